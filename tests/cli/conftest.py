"""Fixtures: the fake model behind `pyrt.load`, stdin, and empty caches."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from fake import FakeModel

import pyrt


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    fake = FakeModel()
    monkeypatch.setitem(vars(pyrt), "load", fake.load)
    return fake


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set what is on stdin; ``terminal`` says that it is one."""

    def put(data: bytes | str = b"", terminal: bool = False) -> None:
        stream = io.TextIOWrapper(io.BytesIO(data if isinstance(data, bytes) else data.encode()), "utf-8")
        monkeypatch.setattr(stream, "isatty", lambda: terminal, raising=False)
        monkeypatch.setattr("sys.stdin", stream)

    put()
    return put


@pytest.fixture(autouse=True)
def _empty_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "PYRT_LOG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PYRT_CACHE_DIR", str(tmp_path / "pyrt"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.chdir(tmp_path)
