"""Open GGUF models, whole or split: metadata by key, tensors by name as views into the mapped files."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pyrt import _core
from pyrt.errors import ModelFormatError
from pyrt.gguf_header import GGUFPart, Numbers, Text, Texts, read_numbers, read_part
from pyrt.tensors import TensorInfo, quoted

# As llama.cpp's gguf-split names the parts; they are counted from 1 in names and from 0 in split.no.
_PART_NAME = re.compile(r"(?P<stem>.*)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.DOTALL)


class Metadata(Mapping[str, Any]):
    """The keys of a file: int, float, bool, str, NumPy arrays of numbers or bools, and list[str].

    Strings and arrays are decoded when they are asked for, arrays each time anew, for they are large; what is
    not UTF-8 is a ModelFormatError then. After ``close`` what is not decoded is a ValueError.
    """

    def __init__(self, part: GGUFPart) -> None:
        self._path = part.path
        self._values = part.values
        self._buffer: mmap.mmap | None = part.buffer

    def close(self) -> None:
        """Let go of the file."""
        self._buffer = None

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        if isinstance(value, (Text, Texts, Numbers)):
            if self._buffer is None:
                raise ValueError(f"{self._path} is closed")
            try:
                decoded = _decode(self._buffer, value)
            except UnicodeDecodeError as error:
                raise ModelFormatError(f"{self._path}: {quoted(key)}: is not UTF-8: {error}") from error
            if isinstance(value, Text):
                self._values[key] = decoded
            return decoded
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _decode(buffer: mmap.mmap, value: Text | Texts | Numbers) -> str | list[str] | np.ndarray:
    if isinstance(value, Text):
        return buffer[value.start : value.end].decode()
    if isinstance(value, Numbers):
        return read_numbers(buffer, value)
    return _core.strings(buffer, value.lengths_at)


class GGUFFile:
    """An open GGUF model: a ``TensorSource`` with ``metadata``, the keys of its first part."""

    def __init__(self, parts: list[GGUFPart]) -> None:
        self.path = parts[0].path
        self.metadata = Metadata(parts[0])
        self.tensors: dict[str, TensorInfo] = {}
        self._places: dict[str, tuple[mmap.mmap, int]] | None = {}
        for part in parts:
            for info, offset in part.tensors:
                if info.name in self.tensors:
                    raise ModelFormatError(f"{part.path}: tensor {quoted(info.name)}: is in two parts")
                self.tensors[info.name] = info
                self._places[info.name] = part.buffer, offset

    def data(self, name: str) -> np.ndarray:
        """The tensor's bytes: a read-only uint8 view into the map. KeyError if there is no such tensor."""
        if self._places is None:
            raise ValueError(f"{self.path} is closed")
        buffer, offset = self._places[name]
        return np.frombuffer(buffer, np.uint8, self.tensors[name].nbytes, offset)

    def close(self) -> None:
        """Let go of the files; views that were handed out stay valid, new ones are a ValueError."""
        # Not mmap.close(), which fails while views are out: a map goes with the last of them.
        self._places = None
        self.metadata.close()

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_gguf(path: str | Path) -> GGUFFile:
    """Open a GGUF file; any part of a split model opens the whole of it.

    Raises ModelFormatError if a file is damaged or missing, UnsupportedModelError if it is sound but of a
    version, byte order or tensor type that pyrt does not read.
    """
    part = read_part(Path(path))
    count = _split_number(part, "split.count", 1)
    if count <= 1:
        return GGUFFile([part])
    number = _split_number(part, "split.no", 0)
    name = _PART_NAME.fullmatch(part.path.name)
    if name is None or (int(name["number"]), int(name["count"])) != (number + 1, count):
        ending = f"-{number + 1:05d}-of-{count:05d}.gguf"
        raise ModelFormatError(f"{path}: split.no, split.count: the file's name must end in {ending}")
    parts = []
    for i in range(count):
        sibling = part.path.with_name(f"{name['stem']}-{i + 1:05d}-of-{count:05d}.gguf")
        parts.append(part if i == number else _read_sibling(sibling, i, count))
    n_tensors = sum(len(p.tensors) for p in parts)
    expected = _split_number(parts[0], "split.tensors.count", n_tensors)
    if n_tensors != expected:
        reason = f"says {expected}, but the parts hold {n_tensors} tensors"
        raise ModelFormatError(f"{parts[0].path}: split.tensors.count: {reason}")
    return GGUFFile(parts)


def _read_sibling(path: Path, number: int, count: int) -> GGUFPart:
    part = read_part(path)
    actual = _split_number(part, "split.no", 0), _split_number(part, "split.count", 1)
    if actual != (number, count):
        raise ModelFormatError(f"{path}: split.no, split.count: are {actual}, not {(number, count)}")
    return part


def _split_number(part: GGUFPart, key: str, default: int) -> int:
    value = part.values.get(key, default)
    if type(value) is not int or value < 0:
        raise ModelFormatError(f"{part.path}: {key}: must be a number that is not negative")
    return value
