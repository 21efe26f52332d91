"""Parse the header of one GGUF file; nothing in it is believed before it is checked.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. All numbers are little-endian::

    "GGUF" version:u32 n_tensors:u64 n_keys:u64
    n_keys    x  key:string type:u32 value
    n_tensors x  name:string n_dims:u32 dims:u64[n_dims] type:u32 offset:u64
    padding to general.alignment, then the tensors' data, to which the offsets refer

    string = length:u64 bytes       array = type:u32 count:u64 items

Counts, lengths and offsets are Python integers, so they cannot overflow, and each is compared with the
bytes that are left before anything is allocated or looped over. Long arrays of strings, the one hot loop,
are walked by the core with the same checks.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyrt import _core
from pyrt.errors import ModelFormatError, UnsupportedModelError
from pyrt.tensors import FORMATS, TensorInfo, map_file, quoted

# Far above any real model (262,144 tokens and half a million merges; 50,000 tensors), and low enough to be
# walked within a second: without them a sparse file of zeros is a valid header of a billion empty strings.
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 16
MAX_STRINGS = 1 << 22
MAX_NAME_BYTES = (1 << 16) - 1
MAX_VALUE_BYTES = 1 << 27

MAX_DIMS = 4
DEFAULT_ALIGNMENT = 32

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

# Types of metadata values: numbers and bools, and two of their own kind.
_NUMBERS: dict[int, np.dtype[Any]] = {
    kind: np.dtype(name)
    for kind, name in (
        (0, "<u1"), (1, "<i1"), (2, "<u2"), (3, "<i2"), (4, "<u4"), (5, "<i4"), (6, "<f4"), (7, "?"),
        (10, "<u8"), (11, "<i8"), (12, "<f8"),
    )
}  # fmt: skip
_STRING, _ARRAY = 8, 9

# enum ggml_type in ggml.h. Those that FORMATS lacks are here to be named when they are refused.
_GGML_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K",
    11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
    19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32",
    27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


class Text(NamedTuple):
    """A string that was checked but not decoded."""

    start: int
    end: int


class Texts(NamedTuple):
    """An array of strings that was checked but not decoded; ``lengths_at`` tells where each length stands."""

    lengths_at: np.ndarray


class Numbers(NamedTuple):
    """An array of numbers or bools that was checked but not read."""

    dtype: np.dtype[Any]
    start: int
    length: int


class PlacedTensor(NamedTuple):
    """A tensor and the position of its data in the file."""

    info: TensorInfo
    offset: int


class GGUFPart(NamedTuple):
    """One mapped GGUF file: a whole model or a part of a split one.

    ``values`` holds numbers and bools as they are, the rest as Text, Texts or Numbers.
    """

    path: Path
    buffer: mmap.mmap
    values: dict[str, Any]
    tensors: list[PlacedTensor]


def read_part(path: Path) -> GGUFPart:
    """Map a GGUF file and read its header.

    Raises ModelFormatError if the file is damaged, UnsupportedModelError if it is sound but of a version,
    byte order or tensor type that pyrt does not read.
    """
    walk = _Walk(path, map_file(path))
    _check_magic(walk)
    # The shortest records have names of one byte, and one dimension or a value of one byte.
    n_tensors = walk.count("tensor count", 33, MAX_TENSORS)
    n_keys = walk.count("metadata count", 14, MAX_KEYS)
    values = _read_values(walk, n_keys)
    tensors: dict[str, PlacedTensor] = {}
    for i in range(n_tensors):
        tensor = _read_tensor(walk, i)
        if tensor.info.name in tensors:
            raise walk.error(f"tensor {quoted(tensor.info.name)}", "the name appears twice")
        tensors[tensor.info.name] = tensor
    alignment = values.get("general.alignment", DEFAULT_ALIGNMENT)
    # The format asks for a multiple of 8; ggml and every writer take powers of two only.
    if type(alignment) is not int or alignment < 8 or alignment & (alignment - 1):
        raise walk.error("general.alignment", "must be a power of two and at least 8")
    return GGUFPart(path, walk.buffer, values, _place(walk, tensors.values(), alignment))


def read_numbers(buffer: mmap.mmap, numbers: Numbers) -> np.ndarray:
    """A copy of the array; a bool is what is not zero."""
    dtype, start, length = numbers
    if dtype == np.bool_:
        return np.frombuffer(buffer, np.uint8, length, start) != 0
    return np.frombuffer(buffer, dtype, length, start).copy()


class _Walk:
    """A walk over the bytes of one file; every step is checked against what is left."""

    def __init__(self, path: Path, buffer: mmap.mmap) -> None:
        self.path = path
        self.buffer = buffer
        self.size = len(buffer)
        self.pos = 0

    def error(self, field: str, reason: str) -> ModelFormatError:
        return ModelFormatError(f"{self.path}: {field}: {reason}")

    def unsupported(self, field: str, reason: str) -> UnsupportedModelError:
        return UnsupportedModelError(f"{self.path}: {field}: {reason}")

    def need(self, nbytes: int, field: str) -> None:
        if nbytes > self.size - self.pos:
            left = f"{self.size - self.pos} are left after offset {self.pos}"
            raise self.error(field, f"needs {nbytes} bytes, but {left} (truncated?)")

    def take(self, nbytes: int, field: str) -> int:
        """Step over some bytes and return where they begin."""
        self.need(nbytes, field)
        self.pos += nbytes
        return self.pos - nbytes

    def u32(self, field: str) -> int:
        return int(_U32.unpack_from(self.buffer, self.take(4, field))[0])

    def u64(self, field: str) -> int:
        return int(_U64.unpack_from(self.buffer, self.take(8, field))[0])

    def count(self, field: str, item_bytes: int, limit: int) -> int:
        """The number of items that follow, each of which takes at least ``item_bytes``."""
        n = self.u64(field)
        self.need(n * item_bytes, field)
        if n > limit:
            raise self.error(field, f"{n} is above the limit of {limit}")
        return n

    def name(self, field: str) -> str:
        length = self.count(field, 1, MAX_NAME_BYTES)
        if length == 0:
            raise self.error(field, "is empty")
        start = self.take(length, field)
        try:
            return self.buffer[start : self.pos].decode()
        except UnicodeDecodeError as error:
            raise self.error(field, "is not UTF-8") from error

    def text(self, field: str) -> Text:
        length = self.count(field, 1, MAX_VALUE_BYTES)
        start = self.take(length, field)
        return Text(start, self.pos)

    def texts(self, field: str, limit: int) -> Texts:
        count = self.count(field, 8, limit)
        start = self.pos
        lengths_at, pos = _core.string_offsets(self.buffer, start, count)
        if pos < 0:
            raise self.error(field, f"its {count} strings do not end within the file (truncated?)")
        if pos - start > MAX_VALUE_BYTES:
            raise self.error(field, f"{pos - start} bytes are above the limit of {MAX_VALUE_BYTES}")
        self.pos = pos
        return Texts(lengths_at)

    def numbers(self, field: str, dtype: np.dtype[Any], count: int) -> Numbers:
        nbytes = count * dtype.itemsize
        start = self.take(nbytes, field)
        if nbytes > MAX_VALUE_BYTES:
            raise self.error(field, f"{nbytes} bytes are above the limit of {MAX_VALUE_BYTES}")
        return Numbers(dtype, start, count)

    def value(self, field: str, max_strings: int) -> Any:
        kind = self.u32(f"{field}: type")
        if kind == _STRING:
            return self.text(field)
        if kind == _ARRAY:
            return self.array(field, max_strings)
        if kind not in _NUMBERS:
            raise self.error(field, f"unknown value type {kind}")
        return read_numbers(self.buffer, self.numbers(field, _NUMBERS[kind], 1))[0].item()

    def array(self, field: str, max_strings: int) -> Texts | Numbers:
        kind = self.u32(f"{field}: item type")
        if kind == _STRING:
            return self.texts(field, max_strings)
        if kind == _ARRAY:
            raise self.unsupported(field, "arrays of arrays are not supported")
        if kind not in _NUMBERS:
            raise self.error(field, f"unknown item type {kind}")
        return self.numbers(field, _NUMBERS[kind], self.u64(field))


def _check_magic(walk: _Walk) -> None:
    walk.take(4, "magic")
    if walk.buffer[:4] != b"GGUF":
        raise walk.error("magic", f"a GGUF file begins with b'GGUF', this one with {walk.buffer[:4]!r}")
    version = walk.u32("version")
    if version and not version & 0xFFFF:
        raise walk.unsupported("version", "the file is big-endian, pyrt reads little-endian ones")
    if version not in (2, 3):
        raise walk.unsupported("version", f"{version} is not supported, only 2 and 3")


def _read_values(walk: _Walk, n_keys: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    max_strings = MAX_STRINGS
    for i in range(n_keys):
        key = walk.name(f"name of key {i}")
        if key in values:
            raise walk.error(quoted(key), "the key appears twice")
        value = values[key] = walk.value(quoted(key), max_strings)
        if isinstance(value, Texts):
            max_strings -= len(value.lengths_at)
    return values


def _read_tensor(walk: _Walk, i: int) -> PlacedTensor:
    """One tensor's record; its offset still counts from the start of the data."""
    name = walk.name(f"name of tensor {i}")
    field = f"tensor {quoted(name)}"
    n_dims = walk.u32(field)
    if not 1 <= n_dims <= MAX_DIMS:
        raise walk.error(field, f"must have 1 to {MAX_DIMS} dimensions, not {n_dims}")
    dims = tuple(walk.u64(field) for _ in range(n_dims))
    if 0 in dims:
        raise walk.error(field, f"has a dimension of zero: {dims}")
    kind = walk.u32(field)
    offset = walk.u64(field)
    format_ = _GGML_TYPES.get(kind, "unknown")
    if format_ not in FORMATS:
        known = ", ".join(FORMATS)
        raise walk.unsupported(field, f"ggml type {kind} ({format_}) is not supported, only {known}")
    block = FORMATS[format_]
    if dims[0] % block.values:
        raise walk.error(field, f"rows of {dims[0]} are no multiple of {format_}'s block of {block.values}")
    nbytes = prod(dims) // block.values * block.nbytes
    return PlacedTensor(TensorInfo(name, dims[::-1], format_, nbytes), offset)


def _place(walk: _Walk, tensors: Iterable[PlacedTensor], alignment: int) -> list[PlacedTensor]:
    """Count offsets from the start of the file; a tensor must be aligned, inside, and alone in its bytes."""
    start = end = -(-walk.pos // alignment) * alignment
    placed = [PlacedTensor(info, start + offset) for info, offset in tensors]
    for info, offset in sorted(placed, key=lambda tensor: tensor.offset):
        field = f"tensor {quoted(info.name)}: offset {offset - start}"
        if offset % alignment:
            raise walk.error(field, f"no multiple of the alignment {alignment}")
        if offset + info.nbytes > walk.size:
            reason = f"{info.nbytes} bytes from {offset} on do not end within the file's {walk.size}"
            raise walk.error(field, f"{reason} (truncated?)")
        if offset < end:
            raise walk.error(field, "overlaps the tensor before it")
        end = offset + info.nbytes
    return placed
