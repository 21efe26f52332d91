"""From the tensors of a file to those of the core: names, shapes, parts of fused ones; copies are rare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from pyrt.archs import ARCHS, Dialect, template
from pyrt.config import ModelConfig, Shape
from pyrt.errors import ModelFormatError, UnsupportedModelError
from pyrt.gguf import GGUFFile
from pyrt.source import Source
from pyrt.tensors import FORMATS, TensorInfo, quoted

_FLOATS: dict[str, np.dtype[Any]] = {"F32": np.dtype("<u4"), "F16": np.dtype("<u2"), "BF16": np.dtype("<u2")}


class WeightTensor(NamedTuple):
    """A tensor as the core takes it: ``rows`` of ``cols`` numbers of one ``format``; a vector is one row.

    ``data``: uint8, 1-D, contiguous; a view into the mapped file unless the numbers have to be reordered.
    ``mapped`` tells which.
    """

    name: str
    format: str
    rows: int
    cols: int
    data: np.ndarray
    mapped: bool


class _Part(NamedTuple):
    """A tensor of the core as a part of one in the file, from its row ``first`` on (of a vector: number)."""

    shape: Shape
    info: TensorInfo
    first: int


def map_weights(source: Source, config: ModelConfig) -> Iterator[WeightTensor]:
    """Every tensor of the model under its core name: rotary frequencies, then the rest in the order of use.

    All is checked before the first comes out. ModelFormatError names file and tensor if one is missing or has
    another shape than the header says; UnsupportedModelError if its type is unknown or tensors are left over.
    """
    arch = ARCHS[config.arch]
    dialect = arch.gguf if isinstance(source, GGUFFile) else arch.hf
    parts = [_find(source, config, dialect, shape) for shape in config.shapes()]
    _refuse_leftovers(source, config, dialect, {part.info.name for part in parts})

    def read() -> Iterator[WeightTensor]:
        for s, freqs in enumerate(config.rope_freqs):
            yield WeightTensor(f"rope.{s}", "F32", 1, freqs.size, freqs.view(np.uint8), False)
        for part in parts:
            yield _cut(source.data(part.info.name), part, dialect)

    return read()


def _find(source: Source, config: ModelConfig, dialect: Dialect, shape: Shape) -> _Part:
    """The place of ``shape`` in the file, after the checks of the tensor's shape and type."""
    info, first, length = _lookup(source, dialect, shape), 0, shape.cols if shape.vector else shape.rows
    if info is None and shape.kind in ("q", "k", "v") and "qkv" in dialect.tensors:
        info = _lookup(source, dialect, shape._replace(kind="qkv"))
        k = config.knobs
        q, kv = k["n_heads"] * k["head_dim"], k["n_kv_heads"] * k["head_dim"]
        first, length = {"q": 0, "k": q, "v": q + kv}[shape.kind], q + 2 * kv
    if info is None:
        stem = dialect.tensors.get(shape.kind) or dialect.tensors["qkv"]
        wanted = _file_name(dialect.prefixes[0] + stem, shape)
        raise ModelFormatError(f"{source.path}: tensor {quoted(wanted)}: is missing")

    field = f"{source.path}: tensor {quoted(info.name)}"
    if info.format not in FORMATS:
        raise UnsupportedModelError(f"{field}: the type {quoted(info.format)} is not supported")
    expected = (length,) if shape.vector else (length, shape.cols)
    if _is_transposed(dialect, shape):
        expected = expected[::-1]
    if info.shape != expected:
        raise ModelFormatError(f"{field}: has the shape {info.shape}; by the header it is {expected}")
    if info.format not in _FLOATS and (shape.vector or _is_transposed(dialect, shape)):
        raise UnsupportedModelError(f"{field}: the type {info.format} is supported for rows of weights only")
    return _Part(shape, info, first)


def _lookup(source: Source, dialect: Dialect, shape: Shape) -> TensorInfo | None:
    stem = dialect.tensors.get(shape.kind)
    if stem is None:
        return None
    names = (_file_name(prefix + stem, shape) for prefix in dialect.prefixes)
    return next((source.tensors[name] for name in names if name in source.tensors), None)


def _file_name(stem: str, shape: Shape) -> str:
    return stem.replace("{i}", str(shape.layer)) + (".bias" if shape.bias else ".weight")


def _is_transposed(dialect: Dialect, shape: Shape) -> bool:
    return dialect.transposed and shape.layer >= 0 and not shape.vector


def _cut(data: np.ndarray, part: _Part, dialect: Dialect) -> WeightTensor:
    """The part of a tensor's bytes that the core asks for, in its order."""
    shape, form, mapped = part.shape, part.info.format, True
    if _is_transposed(dialect, shape):
        columns = data.view(_FLOATS[form]).reshape(shape.cols, -1)[:, part.first : part.first + shape.rows]
        data, mapped = np.ascontiguousarray(columns.T).reshape(-1).view(np.uint8), False
    else:
        count, width = (shape.cols, 1) if shape.vector else (shape.rows, shape.cols)
        row = width // FORMATS[form].values * FORMATS[form].nbytes
        data = data[part.first * row : (part.first + count) * row]
    if dialect.norm_offset and shape.vector and not shape.bias:
        data, form = (_floats(form, data) + np.float32(dialect.norm_offset)).view(np.uint8), "F32"
        mapped = False
    return WeightTensor(shape.name, form, shape.rows, shape.cols, data, mapped)


def _floats(form: str, data: np.ndarray) -> np.ndarray:
    """float32 of F32, F16 or BF16 bytes."""
    if form == "BF16":
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
    return data.view(np.dtype("<f4" if form == "F32" else "<f2")).astype(np.float32)


def _refuse_leftovers(source: Source, config: ModelConfig, dialect: Dialect, used: set[str]) -> None:
    """A tensor that nothing has asked for means that the header describes another model."""
    if config.tied:
        head, embed = (_lookup(source, dialect, Shape(kind, -1, 0, 0)) for kind in ("head", "embed"))
        if head and embed and head.shape == embed.shape and _equal(source, head.name, embed.name):
            used.add(head.name)  # some writers store the shared table twice
    ignored = {prefix + name for name in dialect.ignored for prefix in dialect.prefixes}
    left = sorted(name for name in source.tensors if name not in used and template(name) not in ignored)
    if left:
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        reason = f"no part of {config.arch} as the header describes it"
        raise UnsupportedModelError(f"{source.path}: tensor {quoted(left[0])}{more}: {reason}")


def _equal(source: Source, a: str, b: str) -> bool:
    return source.tensors[a].format == source.tensors[b].format and np.array_equal(
        source.data(a), source.data(b)
    )
