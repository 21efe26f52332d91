"""How a model is run, and how many bytes that leaves for its KV cache."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pyrt import _core
from pyrt.errors import MemoryLimitError
from pyrt.kv import CHUNK

SEQUENCES = 4  # full contexts that the KV cache may hold by default


class RunOptions(NamedTuple):
    """How a model runs. isa "" and threads 0: the best. memory_limit: bytes; None: half of the RAM."""

    context_length: int
    kv_dtype: str = "f16"
    threads: int = 0
    isa: str = ""
    memory_limit: int | None = None
    numerics: str = "fast"


@dataclass(frozen=True)
class ModelInfo:
    """What was loaded, and what runs it. kv_bytes_per_token: in all layers, as if no window were sliding."""

    path: Path
    arch: str
    dtype: str
    n_vocab: int
    context_length: int
    parameters: int
    packed_bytes: int
    kv_dtype: str
    kv_bytes_per_token: int
    isa: str
    threads: int
    numerics: str


def kv_budget(core: _core.Model, run: RunOptions) -> int:
    """Bytes for KV pages. MemoryLimitError, with the arithmetic, if a stated limit leaves none."""
    if run.memory_limit is None:
        return machine_bytes() // 2
    scratch = scratch_bytes(core.knobs)
    budget = run.memory_limit - core.packed_bytes - scratch
    if budget <= 0:
        raise MemoryLimitError(
            f"weights {core.packed_bytes:,} + scratch {scratch:,} bytes leave nothing of the memory limit of "
            f"{run.memory_limit:,} bytes for the KV cache"
        )
    return budget


def machine_bytes() -> int:
    """The RAM of the machine, or what the cgroup allows (docs.kernel.org, cgroup-v2 and v1 memory)."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            found = min(found, int(Path(limit).read_text()))
        except (OSError, ValueError):  # another cgroup version, or "max"
            continue
    return found


def scratch_bytes(knobs: Mapping[str, Any]) -> int:
    """An upper estimate of what a step of CHUNK rows needs beside weights and KV, logits included."""
    heads = (2 * knobs["n_heads"] + 2 * knobs["n_kv_heads"]) * knobs["head_dim"]
    return 4 * CHUNK * (4 * knobs["d_model"] + 3 * knobs["d_ff"] + heads) + 4 * 64 * knobs["n_vocab"]
