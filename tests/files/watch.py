"""Open a file under watch: what it says when it is refused, and how much memory it took."""

import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

# What an error, its message and the objects of a tiny header take.
SLACK_BYTES = 1 << 20


def bounded(opener: Callable[[Path], Any], path: Path) -> Any:
    """``opener(path)``; fails if it allocates more than the size of the file or folder and a little."""
    files = [path] if path.is_file() else path.rglob("*")
    size = sum(file.stat().st_size for file in files if file.is_file())
    tracemalloc.start()
    try:
        return opener(path)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= size + SLACK_BYTES, f"allocated {peak} bytes for a file of {size}"


def refused(error: type[Exception], opener: Callable[[Path], Any], path: Path, parts: Iterable[str]) -> None:
    """Check that ``opener(path)`` raises just this error, in one short line with the path and these parts."""
    with pytest.raises(error) as caught:
        bounded(opener, path)
    assert type(caught.value) is error
    message = str(caught.value)
    assert message.startswith(str(path))
    assert [part for part in parts if part not in message] == [], message
    assert message.isprintable()
    assert len(message) < len(str(path)) + 400
