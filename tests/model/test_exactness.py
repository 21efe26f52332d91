"""The contract on numbers: the same request gives the same bits, whatever runs it or runs beside it."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from reference.tiny import tiny
from stepping import Machine, build

from pyrt import _core

ISAS = _core.cpu()["isas"]
N_TOKENS = 620  # beyond one split of 512 keys, and no multiple of 32

LEGACY = {
    "embed": "Q8_0",
    "q": "Q4_0",
    "k": "Q4_1",
    "v": "Q5_0",
    "o": "Q5_1",
    "gate": "Q4_1",
    "up": "Q4_1",
    "down": "Q8_0",
}
K_QUANTS = {
    "embed": "Q6_K",
    "q": "Q4_K",
    "k": "Q4_K",
    "v": "Q6_K",
    "o": "Q5_K",
    "gate": "Q4_K",
    "up": "Q5_K",
    "down": "Q6_K",
}
FLOATS = {"embed": "F16", "q": "F16", "k": "BF16", "v": "F32", "o": "BF16", "up": "F16", "down": "BF16"}

CASES = {
    "llama-legacy-f16": ("llama", LEGACY, "f16", {"n_vocab": 301}),
    "gemma3-k_quants-int8": ("gemma3", K_QUANTS, "int8", {"d_model": 256, "d_ff": 256, "n_heads": 8}),
    "gpt2-floats-f32": ("gpt2", FLOATS, "f32", {"n_positions": 1024, "head_dim": 20, "d_model": 80}),
}


@functools.cache
def model_of(case: str) -> _core.Model:
    family, types, _, sizes = CASES[case]
    return build(*tiny(family, seed=3, **sizes), types)


def machine(case: str, isa: str, threads: int) -> Machine:
    return Machine(model_of(case), isa, threads, CASES[case][2])


@functools.cache
def tokens(case: str, seed: int = 0, n: int = N_TOKENS) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, model_of(case).knobs["n_vocab"], n, np.int32)


@functools.cache
def expected(case: str, seed: int = 0, n: int = N_TOKENS) -> np.ndarray:
    """The plainest run there is: the scalar kernels, one thread, one sequence, one step."""
    return machine(case, "scalar", 1).logits(tokens(case, seed, n), n)


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("case", CASES)
def test_the_expected_logits_say_something(case: str) -> None:
    logits = expected(case)
    assert np.isfinite(logits).all()
    assert logits.std() > 0.1
    assert len(np.unique(logits.argmax(axis=1))) > 20


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("case", CASES)
def test_isa_and_threads(case: str, isa: str, threads: int) -> None:
    assert_same_bits(machine(case, isa, threads).logits(tokens(case), N_TOKENS), expected(case))


@pytest.mark.parametrize("chunk", [1, 2, 31, 32, 33, 257, 512])
@pytest.mark.parametrize("case", CASES)
def test_chunking(case: str, chunk: int) -> None:
    """A prompt in chunks of any size, down to token by token as in generation."""
    assert_same_bits(machine(case, "", 2).logits(tokens(case), chunk), expected(case))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("case", CASES)
def test_batch(case: str, isa: str) -> None:
    """Three sequences of different lengths advance side by side at different speeds."""
    lengths, chunks = [N_TOKENS, 77, 200], [90, 1, 16]
    m = machine(case, isa, 2)
    tables = m.tables(lengths)
    sequences = [tokens(case, seed, n) for seed, n in enumerate(lengths)]
    got: list[list[np.ndarray]] = [[] for _ in lengths]
    at = [0] * len(lengths)
    while any(a < n for a, n in zip(at, lengths, strict=True)):
        spans = [(s, at[s], sequences[s][at[s] : at[s] + chunks[s]]) for s in (2, 0, 1) if at[s] < lengths[s]]
        rows = m.step(spans, tables)
        for s, _, part in spans:
            got[s].append(rows[: len(part)])
            rows = rows[len(part) :]
            at[s] += len(part)
    for s, n in enumerate(lengths):
        assert_same_bits(np.concatenate(got[s]), expected(case, s, n))


@pytest.mark.parametrize("case", CASES)
def test_wanted_rows_only(case: str) -> None:
    """Rows that ask for no logits change nothing for those that do, the last layer's shortcut included."""
    m = machine(case, "", 2)
    tables = m.tables([N_TOKENS])
    want = np.zeros(N_TOKENS, np.uint8)
    want[[0, 31, 32, 333, N_TOKENS - 1]] = 1
    step = m.runner.step(
        tokens(case), np.arange(N_TOKENS, dtype=np.int32), np.zeros(N_TOKENS, np.int32), want, tables
    )
    assert_same_bits(step.logits, expected(case)[want == 1])


@pytest.mark.parametrize("case", CASES)
def test_shared_prefix(case: str) -> None:
    """A second sequence that takes over the first one's full pages goes on with the bits of a cold run."""
    m = machine(case, "", 2)
    tables = m.tables([N_TOKENS, N_TOKENS])
    split = N_TOKENS // 32 * 32 - 64
    m.step([(0, 0, tokens(case)[:split])], tables)
    for table in tables:
        table[1, : split // 32] = table[0, : split // 32]
    got = m.step([(1, split, tokens(case)[split:])], tables)
    assert_same_bits(got, expected(case)[split:])


def test_pages_that_no_window_sees_may_be_gone() -> None:
    case = "gemma3-k_quants-int8"
    m = machine(case, "", 2)
    windows = [g["window"] for g in m.cache.groups]
    assert sorted(windows) == [0, 5]
    tables = m.tables([N_TOKENS])
    m.step([(0, 0, tokens(case)[:600])], tables)
    tables[windows.index(5)][0, : (600 - 5 + 1) // 32] = -1
    assert_same_bits(m.step([(0, 600, tokens(case)[600:])], tables), expected(case)[600:])


@pytest.mark.parametrize("case", CASES)
def test_what_sampling_is_given(case: str) -> None:
    m = machine(case, "", 2)
    ids = tokens(case)[:40]
    step = m.runner.step(
        ids, np.arange(40, dtype=np.int32), np.zeros(40, np.int32), np.ones(40, np.uint8), m.tables([40])
    )
    n = step.logits.shape[1]
    blocks = [step.logits[:, at : at + 256] for at in range(0, n, 256)]
    np.testing.assert_array_equal(step.block_max, np.stack([b.max(axis=1) for b in blocks], axis=1))
    top = step.logits.astype(np.float64).max(axis=1)
    exact = top + np.log(np.exp(step.logits - top[:, None]).sum(axis=1))
    np.testing.assert_allclose(step.logsumexp, exact, rtol=1e-9, atol=1e-6)
