"""The packed layouts once more, from the words in csrc/packed/layout.h: no code shared with the packer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from reference.kernels import Weights

from raw_kernels.ctable import rows

PANEL = 16


@dataclass(frozen=True)
class Layout:
    """A row of csrc/packed/layouts.def."""

    name: str
    bits: int
    zero: int
    group: int
    two_level: bool
    minima: bool

    @property
    def record(self) -> int:
        """Weights of each row in a record."""
        return 256 if self.two_level else 64

    @property
    def kernel(self) -> str:
        return f"gemm_{self.name.lower()}"

    @property
    def largest_code(self) -> int:
        return int((1 << self.bits) - 1)


LAYOUTS = [
    Layout(name, int(bits), int(zero), int(group), two_level == "true", minima == "true")
    for name, bits, zero, group, two_level, minima in rows("packed/layouts.def", "LAYOUT")
]


def padded(x: np.ndarray, n: int, k: int) -> np.ndarray:
    """x with rows and columns of zeros added up to [n, k]."""
    return np.pad(x, ((0, n - x.shape[0]), (0, k - x.shape[1])))


def pad_weights(layout: Layout, w: Weights) -> Weights:
    """Whole panels and records: rows and columns beyond the matrix have code 0 and scale 0."""
    n, k = (-(-size // unit) * unit for size, unit in zip(w.codes.shape, (PANEL, layout.record), strict=True))
    scales = k // (256 if layout.two_level else layout.group)

    def pad(x: np.ndarray | None, columns: int) -> np.ndarray | None:
        return None if x is None else padded(x, n, columns)

    groups = k // layout.group
    return w._replace(
        codes=padded(w.codes, n, k), d=padded(w.d, n, scales), m=pad(w.m, scales),
        sub=pad(w.sub, groups), sub_m=pad(w.sub_m, groups),
    )  # fmt: skip


def pack(layout: Layout, weights: Weights) -> np.ndarray:
    """Weights [n, k] as panels uint8 [n / 16, panel_bytes]; d and m are float16."""
    w = pad_weights(layout, weights)
    n, k = w.codes.shape
    panels, records = n // PANEL, k // layout.record

    def per_record(x: np.ndarray | None, dtype: type) -> np.ndarray:
        """[n, columns] -> the bytes of [panel, record, column][16 n]."""
        values = np.zeros((n, records), dtype) if x is None else np.asarray(x, dtype)
        split = values.reshape(panels, PANEL, records, -1).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(split).view(np.uint8).reshape(panels, records, -1)

    header = [per_record(w.d, np.float16)]
    if layout.two_level:
        header += [per_record(w.m, np.float16), per_record(w.sub, np.int8)]
        if layout.minima:
            header.append(per_record(w.sub_m, np.uint8))
    elif layout.minima:
        header.append(per_record(w.m, np.float16))

    # [panel, record, group, quad, lane, code of the quad]
    quads = (
        w.codes.astype(np.uint8)
        .reshape(panels, PANEL, records, -1, layout.group // 4, 4)
        .transpose(0, 2, 3, 4, 1, 5)
    )
    if layout.bits == 8:
        planes = [quads]
    else:
        low = quads & np.uint8(15)
        planes = [low[:, :, :, 0::2] | low[:, :, :, 1::2] << np.uint8(4)]
        extra = layout.bits - 4
        if extra:
            upper = [(quads[:, :, :, r] >> 4) << (extra * r) for r in range(layout.group // 4)]
            planes.append(np.bitwise_or.reduce(upper)[:, :, :, None])
    body = np.concatenate(planes, axis=3).reshape(panels, records, -1)
    return np.concatenate([*header, body], axis=2).reshape(panels, -1)
