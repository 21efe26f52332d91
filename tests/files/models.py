"""Real models for tests, from the folder that PYRT_TEST_MODELS names."""

import os
from pathlib import Path

import pytest


def real_model(name: str) -> Path:
    """The path of a model file; skips the test, visibly, where it is absent."""
    folder = os.environ.get("PYRT_TEST_MODELS")
    if not folder:
        pytest.skip("PYRT_TEST_MODELS names no folder")
    path = Path(folder) / name
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    return path
