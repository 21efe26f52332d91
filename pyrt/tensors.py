"""What every kind of model file offers: named tensors as views into a read-only memory map."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from pyrt.errors import ModelFormatError


class Format(NamedTuple):
    """How a weight type is stored: ``values`` numbers in each block of ``nbytes`` bytes."""

    values: int
    nbytes: int


# Sizes as in ggml-common.h's block structs; tests/reference/quants.py defines the fields of each block.
FORMATS: Mapping[str, Format] = {
    "F32": Format(1, 4),
    "F16": Format(1, 2),
    "BF16": Format(1, 2),
    "Q4_0": Format(32, 18),
    "Q4_1": Format(32, 20),
    "Q5_0": Format(32, 22),
    "Q5_1": Format(32, 24),
    "Q8_0": Format(32, 34),
    "Q4_K": Format(256, 144),
    "Q5_K": Format(256, 176),
    "Q6_K": Format(256, 210),
}


class TensorInfo(NamedTuple):
    """One tensor of a model file.

    ``shape`` is in row-major order, as in NumPy: a linear layer is ``(out, in)``. ``format`` is a key of
    ``FORMATS``, or in a checkpoint the name of a type that pyrt cannot read. ``nbytes`` is its size there.
    """

    name: str
    shape: tuple[int, ...]
    format: str
    nbytes: int


class TensorSource(Protocol):
    """A model file or folder whose header has been read and checked."""

    path: Path

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """All tensors by name, in the order of the file."""

    def data(self, name: str) -> np.ndarray:
        """The tensor's bytes: uint8, 1-D, read-only, ``nbytes`` long, not copied, perhaps unaligned."""

    def close(self) -> None:
        """Let go of the file; views that were handed out stay valid for as long as they live."""


def map_file(path: Path) -> mmap.mmap:
    """Map a file read-only; ModelFormatError if it is empty, missing or no regular file."""
    try:
        # Asked before opening, because open() on a pipe would wait for a writer.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ModelFormatError(f"{path}: not a regular file")
        with open(path, "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path, or an empty file
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ModelFormatError(f"{path}: cannot be read: {reason}") from error


def quoted(name: str) -> str:
    """A name out of a file made fit for an error message: escaped and never long."""
    return ascii(name if len(name) <= 80 else name[:77] + "...")
