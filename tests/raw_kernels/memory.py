"""Arrays that end where forbidden memory begins: a kernel that reads or writes past one dies at once."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

from raw_kernels.ctable import ffi

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_PROT_NONE = 0
FRONT = 128  # bytes in front of an array that nobody may change
_CANARY = 0xA5

_CTYPES = {
    np.dtype(np.float32): "float*",
    np.dtype(np.uint8): "uint8_t*",
    np.dtype(np.int8): "int8_t*",
    np.dtype(np.uint16): "uint16_t*",
    np.dtype(np.int32): "int32_t*",
    np.dtype(np.int64): "int64_t*",
}


def guarded(array: np.ndarray) -> np.ndarray:
    """A copy whose last byte is the last of a page, with a page behind it that cannot be touched.

    So its address is a multiple of the item size, and of nothing else.
    """
    size = -(-(array.nbytes + FRONT) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, size + mmap.PAGESIZE), np.uint8)
    if _libc.mprotect(memory.ctypes.data + size, mmap.PAGESIZE, _PROT_NONE) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    start = size - array.nbytes
    memory[start - FRONT : start] = _CANARY
    copy = memory[start:size].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def front_intact(array: np.ndarray) -> bool:
    """Whether nothing was written in front of a guarded array."""
    front = (ctypes.c_uint8 * FRONT).from_address(array.ctypes.data - FRONT)
    return set(front) == {_CANARY}


def blank(shape: tuple[int, ...] | int, dtype: Any = np.float32) -> np.ndarray:
    """Guarded memory for results, filled with bytes that look like no result (as float32, a NaN)."""
    array = guarded(np.empty(shape, dtype))
    array.view(np.uint8).fill(0xFF)
    return array


def pointer(array: np.ndarray | None) -> Any:
    """The address of a contiguous array as a typed pointer; None is null."""
    if array is None:
        return ffi.NULL
    assert array.flags.c_contiguous
    return ffi.cast(_CTYPES[array.dtype], array.ctypes.data)
