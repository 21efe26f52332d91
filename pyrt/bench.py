"""Tokens per second of a model, measured through the engine like any other request.

A prompt run is a request for one token after random ids, a generation run one for many tokens, without end.
Both can start at a depth: that many tokens are in the KV cache before (shared pages, as in a chat).
"""

from __future__ import annotations

import os
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from pyrt import _core, checks, loading
from pyrt.kv import PAGE

if TYPE_CHECKING:
    from pyrt.model import Model

Counts = int | Sequence[int]


@dataclass(frozen=True)
class BenchRow:
    """One test's result; speeds in tokens per second, sizes in bytes, bandwidths in GB/s (10⁹ bytes).

    tokens_per_s: median of the repetitions, beside the slowest and the fastest. bytes_per_token: what
    generating one token has to read, that is the packed weights and the K and V of the context (None for
    prompts, which read the weights once for many tokens). gb_per_s: that times the speed. read_gb_per_s:
    what as many threads read of a buffer of the weights' size in the same run; read_fraction: gb_per_s of it.
    """

    phase: Literal["prefill", "decode"]
    n_prompt: int
    n_gen: int
    depth: int
    threads: int
    tokens_per_s: float
    tokens_per_s_min: float
    tokens_per_s_max: float
    repetitions: int
    bytes_per_token: int | None
    gb_per_s: float | None
    read_gb_per_s: float
    read_fraction: float | None
    isa: str
    numerics: str
    kv_dtype: str
    dtype: str
    model: str
    arch: str
    parameters: int
    packed_bytes: int
    cpu: str
    pyrt: str


def bench(
    model: Model | str | os.PathLike[str] | None = None,
    *,
    n_prompt: Counts = 512,
    n_gen: Counts = 64,
    depth: Counts = 0,
    threads: Counts | None = None,
    repetitions: int = 3,
    on_progress: loading.Progress | None = None,
    **options: Any,
) -> list[BenchRow]:
    """Measure prompt speed for each of ``n_prompt``, generation speed for each of ``n_gen`` (0: none).

    Each at each ``depth`` and each number of ``threads`` (None: pyrt's own choice). The repetitions go round
    all tests in turn, so that a busy moment does not fall on one test. ``model`` and ``options`` are those of
    `pyrt.load`, or ``model`` is a Model, measured as it was loaded. on_progress(stage, done, total). Raises
    ValueError or TypeError for counts that make no sense, ContextLengthError for what does not fit into the
    model's context, and what `load` raises.
    """
    tests = _tests(_counts("n_prompt", n_prompt), _counts("n_gen", n_gen), _counts("depth", depth))
    checks.integer(1)("repetitions", repetitions)
    checks.callback("on_progress", on_progress)
    if loading.is_loaded(model):
        for_load = [*options, *([] if threads is None else ["threads"])]
        if for_load:
            raise TypeError(f"{for_load[0]} is for loading, but the model is loaded already")
        return list(_measure(cast("Model", model), tests, repetitions, on_progress))
    path = cast("str | os.PathLike[str] | None", model)
    rows = []
    for count in [None] if threads is None else _counts("threads", threads):
        with loading.load(path, threads=count, on_progress=on_progress, **options) as loaded:
            rows += list(_measure(loaded, tests, repetitions, on_progress))
    return rows


@dataclass(frozen=True)
class _Test:
    n_prompt: int
    n_gen: int
    depth: int

    def run(self, model: Model, numbers: random.Random) -> float:
        """Tokens per second, once."""
        context = random.Random(self.depth).choices(range(model.n_vocab), k=self.depth)
        if self.depth:
            model.generate(
                context, max_tokens=1, temperature=0.0, ignore_eos=True
            )  # its pages stay in the cache
        fresh = numbers.choices(range(model.n_vocab), k=self.n_prompt or 1)
        done = model.generate([*context, *fresh], max_tokens=self.n_gen + 1, temperature=0.0, ignore_eos=True)
        return done.timings.decode_tps if self.n_gen else done.timings.prefill_tps


def _tests(n_prompt: Sequence[int], n_gen: Sequence[int], depth: Sequence[int]) -> list[_Test]:
    tests = []
    for tokens_before in depth:
        tests += [_Test(count, 0, tokens_before) for count in n_prompt if count]
        tests += [_Test(0, count, tokens_before) for count in n_gen if count]
    if not tests:
        raise ValueError("n_prompt and n_gen: both are 0, so there is nothing to measure")
    return tests


def _measure(
    model: Model, tests: list[_Test], repetitions: int, on_progress: loading.Progress | None
) -> Iterator[BenchRow]:
    for test in tests:
        model.check_length(test.depth + (test.n_prompt or 1) + test.n_gen + 1)
    info = model.info
    bandwidth = float(_core.read_bandwidth(max(64, info.packed_bytes / 1e6), info.threads))
    numbers = random.Random(0)
    _Test(0, 8, 0).run(model, numbers)  # wakes the threads and maps the pages
    speeds: dict[_Test, list[float]] = {test: [] for test in tests}
    for repetition in range(repetitions):
        for done, test in enumerate(tests, repetition * len(tests)):
            if on_progress is not None:
                on_progress("bench", done, repetitions * len(tests))
            speeds[test].append(test.run(model, numbers))
    for test, found in speeds.items():
        yield _row(model, test, found, bandwidth)


def _row(model: Model, test: _Test, speeds: list[float], bandwidth: float) -> BenchRow:
    import pyrt

    info = model.info
    speed = statistics.median(speeds)
    read = bytes_per_token(model, test.depth + 1 + test.n_gen // 2) if test.n_gen else None
    moved = None if read is None else read * speed / 1e9
    return BenchRow(
        phase="decode" if test.n_gen else "prefill",
        n_prompt=test.n_prompt,
        n_gen=test.n_gen,
        depth=test.depth,
        threads=info.threads,
        tokens_per_s=speed,
        tokens_per_s_min=min(speeds),
        tokens_per_s_max=max(speeds),
        repetitions=len(speeds),
        bytes_per_token=read,
        gb_per_s=moved,
        read_gb_per_s=bandwidth,
        read_fraction=None if moved is None else moved / bandwidth,
        isa=info.isa,
        numerics=info.numerics,
        kv_dtype=info.kv_dtype,
        dtype=info.dtype,
        model=info.path.name,
        arch=info.arch,
        parameters=info.parameters,
        packed_bytes=info.packed_bytes,
        cpu=str(_core.cpu()["model_name"]),
        pyrt=pyrt.__version__,
    )


def bytes_per_token(model: Model, n_context: int) -> int:
    """What a token generated after ``n_context`` others reads: weights, and the K and V that it sees."""
    tensors = model.tensors
    tied = not any(name == "head" for name, *_ in tensors)
    tables = ("pos_embed",) if tied else ("pos_embed", "embed")  # of these a token reads one row
    weights = sum(nbytes if name not in tables else nbytes // rows for name, _, rows, _, nbytes in tensors)
    pools = model.engine.cache.pools
    kv = sum(pool.page_bytes * min(n_context, pool.window or n_context) // PAGE for pool in pools)
    return weights + kv


def _counts(name: str, value: Counts) -> list[int]:
    counts = list(value) if isinstance(value, Sequence) else [value]
    if not counts or any(not isinstance(count, int) or count < 0 for count in counts):
        raise ValueError(f"{name}: {value!r} is no list of counts")
    return counts
