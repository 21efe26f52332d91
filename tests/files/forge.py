"""Write GGUF and safetensors files and model folders byte by byte, so that each byte of them can lie."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_PACK = dict(zip((U8, I8, U16, I16, U32, I32, F32, BOOL, U64, I64, F64), "BbHhIif?Qqd", strict=True))

GGML_F32, GGML_F16, GGML_Q8_0, GGML_Q4_K = 0, 1, 8, 12


def u32(n: int) -> bytes:
    return struct.pack("<I", n)


def u64(n: int) -> bytes:
    return struct.pack("<Q", n)


def string(text: str | bytes, length: int | None = None) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return u64(len(raw) if length is None else length) + raw


def scalar(kind: int, value: Any) -> bytes:
    return string(value) if kind == STRING else struct.pack("<" + _PACK[kind], value)


def key(name: str | bytes, kind: int, value: Any) -> bytes:
    """A metadata entry; ``value`` may be bytes that are written as they are."""
    payload = value if isinstance(value, bytes) else scalar(kind, value)
    return string(name) + u32(kind) + payload


def array(name: str | bytes, kind: int, values: Sequence[Any], count: int | None = None) -> bytes:
    items = b"".join(scalar(kind, value) for value in values)
    return string(name) + u32(ARRAY) + u32(kind) + u64(len(values) if count is None else count) + items


def tensor(
    name: str | bytes, dims: Sequence[int], kind: int = GGML_F32, offset: int = 0, n_dims: int | None = None
) -> bytes:
    """A tensor's record; ``dims`` in the order of the file, innermost first."""
    counts = u32(len(dims) if n_dims is None else n_dims) + b"".join(map(u64, dims))
    return string(name) + counts + u32(kind) + u64(offset)


def gguf(
    keys: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_keys: int | None = None,
    n_tensors: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A whole file; the counts are right unless told otherwise."""
    n_tensors = len(tensors) if n_tensors is None else n_tensors
    n_keys = len(keys) if n_keys is None else n_keys
    head = magic + u32(version) + u64(n_tensors) + u64(n_keys) + b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data


def valid_gguf() -> bytes:
    """Small, but with every kind of value and two tensors."""
    keys = [
        key("general.architecture", STRING, "llama"),
        key("general.alignment", U32, 32),
        *(key(f"number.{kind}", kind, 1) for kind in _PACK),
        array("words", STRING, ["", "a", "Ġthe", "\n", "日本"]),
        array("scores", F32, [0.5, -1.0]),
        array("flags", BOOL, [True, False, True]),
        array("none", STRING, []),
    ]
    tensors = [tensor("a.weight", [32, 2], GGML_Q8_0, 0), tensor("b.weight", [3], GGML_F32, 96)]
    return gguf(keys, tensors, bytes(range(68)) + bytes(28) + struct.pack("<3f", 1, 2, 3))


def safetensors(header: dict[str, Any] | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """A whole file; the header's length is right unless told otherwise."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return u64(len(raw) if length is None else length) + raw + data


def entry(dtype: Any, shape: Any, begin: Any, end: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def valid_safetensors() -> bytes:
    """Small, with each type that pyrt reads, one that it does not, and a scalar."""
    header = {
        "__metadata__": {"format": "pt"},
        "a": entry("F32", [2, 3], 0, 24),
        "b": entry("BF16", [4], 24, 32),
        "c": entry("F16", [1, 2], 32, 36),
        "d": entry("I64", [], 36, 44),
        "e": entry("F32", [], 44, 48),
    }
    return safetensors(header, bytes(range(48)))


def folder_of(path: Path, files: dict[str, Any]) -> Path:
    """A folder with these files; dicts are written as JSON."""
    for name, content in files.items():
        target = path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path
