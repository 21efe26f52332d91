"""Read one safetensors file; nothing in it is believed before it is checked.

Format: https://huggingface.co/docs/safetensors. ``header_bytes:u64`` (little-endian), a JSON object of that
length, then the data of all tensors without gaps::

    {"__metadata__": {str: str}, name: {"dtype": "BF16", "shape": [out, in], "data_offsets": [begin, end]}}

The library of that name has no bf16 in NumPy; it is what the tests compare with.
"""

from __future__ import annotations

import mmap
from math import prod
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from pyrt import strict_json
from pyrt.errors import ModelFormatError, UnsupportedModelError
from pyrt.tensors import FORMATS, TensorInfo, map_file, quoted

# Types whose name and layout are those of GGUF. Others are listed, since a folder may hold buffers that no
# model needs, but cannot be read.
READABLE = ("F32", "F16", "BF16")
MAX_DIMS = 8


class SafetensorsFile:
    """An open safetensors file: a ``TensorSource``.

    Raises ModelFormatError if the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tensors: dict[str, TensorInfo] = {}
        self._buffer: mmap.mmap | None = map_file(path)
        self._begins: dict[str, int] = {}
        size = len(self._buffer)
        header_bytes = int.from_bytes(self._buffer[:8], "little")
        start = 8 + header_bytes
        if start > size:
            reason = f"{header_bytes} bytes do not fit into the file's {size} (truncated?)"
            raise ModelFormatError(f"{path}: header length: {reason}")
        strict_json.check_size(header_bytes, f"{path}: header length")
        header = strict_json.parse(memoryview(self._buffer)[8:start], f"{path}: header")
        _check_metadata(path, header.pop("__metadata__", {}))
        for name, entry in header.items():
            info, begin = _read_entry(path, name, entry)
            self.tensors[name] = info
            self._begins[name] = start + begin
        self._check_places(start, size)

    def data(self, name: str) -> np.ndarray:
        """The tensor's bytes: a read-only uint8 view into the map. KeyError if there is no such tensor.

        UnsupportedModelError if its type is none that pyrt reads.
        """
        if self._buffer is None:
            raise ValueError(f"{self.path} is closed")
        info = self.tensors[name]
        if info.format not in READABLE:
            known = ", ".join(READABLE)
            reason = f"dtype {quoted(info.format)} is not supported, only {known}"
            raise UnsupportedModelError(f"{self.path}: tensor {quoted(name)}: {reason}")
        return np.frombuffer(self._buffer, np.uint8, info.nbytes, self._begins[name])

    def close(self) -> None:
        """Let go of the file; views that were handed out stay valid, new ones are a ValueError."""
        self._buffer = None

    def _check_places(self, start: int, size: int) -> None:
        """The format wants the tensors to cover the data from start to end: no gap, no byte used twice."""
        end = start
        places = sorted((begin, self.tensors[name].nbytes, name) for name, begin in self._begins.items())
        for begin, nbytes, name in places:
            field = f"tensor {quoted(name)}: data_offsets [{begin - start}, {begin + nbytes - start}]"
            if begin + nbytes > size:
                reason = f"do not end within the file's {size - start} bytes of data (truncated?)"
                raise ModelFormatError(f"{self.path}: {field}: {reason}")
            if begin != end:
                reason = "overlap the tensor before" if begin < end else f"leave a gap after {end - start}"
                raise ModelFormatError(f"{self.path}: {field}: {reason}")
            end = begin + nbytes
        if end != size:
            raise ModelFormatError(f"{self.path}: data: {size - end} bytes at the end belong to no tensor")


def _check_metadata(path: Path, metadata: Any) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ModelFormatError(f"{path}: header: __metadata__: must map names to strings")


def _read_entry(path: Path, name: str, entry: Any) -> tuple[TensorInfo, int]:
    """One tensor's record, and where its data begin, counted from the start of the data."""

    def error(reason: str) -> ModelFormatError:
        return ModelFormatError(f"{path}: tensor {quoted(name)}: {reason}")

    if not isinstance(entry, dict):
        raise error("must be a JSON object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str):
        raise error("dtype: must be a string")
    if not _are_sizes(shape) or len(shape) > MAX_DIMS:
        raise error(f"shape: must be a list of at most {MAX_DIMS} numbers that are not negative")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise error("data_offsets: must be [begin, end]")
    begin, end = offsets
    if dtype in READABLE and prod(shape) * FORMATS[dtype].nbytes != end - begin:
        needed = prod(shape) * FORMATS[dtype].nbytes
        raise error(f"shape: {shape} of {dtype} needs {needed} bytes, but data_offsets give {end - begin}")
    return TensorInfo(name, tuple(shape), dtype, end - begin), begin


def _are_sizes(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 63 for value in values)
