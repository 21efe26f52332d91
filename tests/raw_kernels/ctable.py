"""The kernel table of the built module, called raw: cffi reads csrc/kernels/table.h itself.

``PYRT_KERNELS_SO`` in the environment names another library that exports ``pyrt_kernel_table``.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
from functools import cache
from pathlib import Path
from typing import Any

import cffi

CSRC = Path(__file__).resolve().parents[2] / "csrc"
MACHINE = {"x86_64": "x86", "aarch64": "arm64"}[platform.machine()]

ffi = cffi.FFI()


def rows(definition: str, macro: str) -> list[list[str]]:
    """The rows of a table-like .def file, as lists of their trimmed arguments."""
    text = (CSRC / definition).read_text()
    calls = re.findall(rf"^{macro}\((.*)\)", text, re.MULTILINE)
    return [[part.strip() for part in call.split(",")] for call in calls]


def declarations() -> str:
    """table.h without its preprocessor lines and its C++ parts."""
    header = (CSRC / "kernels/table.h").read_text()
    header = re.sub(r"#ifdef __cplusplus.*?#endif", "", header, flags=re.DOTALL)
    return "\n".join(line for line in header.splitlines() if not line.startswith("#"))


def library_path() -> str:
    forced = os.environ.get("PYRT_KERNELS_SO")
    if forced:
        return forced
    spec = importlib.util.find_spec("pyrt._core")
    if spec is None or spec.origin is None:
        raise RuntimeError(
            "the kernel tests need the built module: pip install . (or name a library in PYRT_KERNELS_SO)"
        )
    return spec.origin


ffi.cdef(declarations())


@cache
def library() -> Any:
    return ffi.dlopen(library_path())


# Every ISA of this machine's architecture, the definition first.
ISAS = [
    name for name, machine, *_ in reversed(rows("kernels/isas.def", "ISA")) if machine in (MACHINE, "any")
]


@cache
def table(isa: str) -> Any:
    """The kernels of an ISA, or None if this machine or this build lacks it."""
    found = library().pyrt_kernel_table(isa.encode())
    return found if found != ffi.NULL else None


def kernel_names() -> list[str]:
    """The fields of the table but the name of the ISA."""
    return [name for name, _ in ffi.typeof("pyrt_kernels").fields if name != "isa"]
