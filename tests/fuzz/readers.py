"""What a fuzzer does with a file: open it, ask for everything in it, and let only pyrt's own errors pass."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyrt.errors import PyrtError
from pyrt.gguf import GGUFFile, open_gguf
from pyrt.safetensors import SafetensorsFile


@contextmanager
def memory_file(raw: bytes) -> Iterator[Path]:
    """The path of a file that is on no disk, which is what makes a thousand of them a second possible."""
    fd = os.memfd_create("model")
    try:
        os.write(fd, raw)
        yield Path(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def accepts_gguf(path: Path) -> bool:
    """Whether a GGUF file opens; if so, its metadata and tensors are read in full."""
    model = answer(open_gguf, path)
    if model is not None:
        for key in model.metadata:
            answer(model.metadata.__getitem__, key)
        read_tensors(model)
    return model is not None


def accepts_safetensors(path: Path) -> bool:
    """Whether a safetensors file opens; if so, its tensors are read in full."""
    model = answer(SafetensorsFile, path)
    if model is not None:
        read_tensors(model)
    return model is not None


def read_tensors(model: GGUFFile | SafetensorsFile) -> None:
    """Touch every byte (a view past the map would crash); together they cannot be more than the file."""
    for name, info in model.tensors.items():
        view = answer(model.data, name)
        if view is not None:
            assert view.nbytes == info.nbytes
            view.sum()
    assert sum(info.nbytes for info in model.tensors.values()) <= model.path.stat().st_size
    model.close()


def answer(question: Callable[[Any], Any], argument: Any) -> Any:
    """The result, or None for a PyrtError."""
    try:
        return question(argument)
    except PyrtError:
        return None
