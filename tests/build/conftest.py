"""A build of the Python-free programs, made once a session or taken from PYRT_TEST_BUILD; the module."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from binaries import build


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build folder of an optimised native build."""
    if ready := os.environ.get("PYRT_TEST_BUILD"):
        return Path(ready)
    return build(tmp_path_factory.mktemp("native"))


@pytest.fixture(scope="session")
def core_file() -> Path:
    """The compiled module that `import pyrt` would load."""
    spec = importlib.util.find_spec("pyrt")
    assert spec is not None
    for folder in spec.submodule_search_locations or []:
        for path in sorted(Path(folder).glob("_core.*.so")):
            return path
    pytest.skip("the compiled core is not there")
