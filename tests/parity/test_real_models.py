"""The real models against float64 logits of the same dequantized weights, along a given text.

Their weights are 4 to 8 bits, so pyrt multiplies by int8 activations. What that costs is found by letting the
reference do the same, and pyrt may cost no more. Set PYRT_TEST_MODELS to a folder with the two files.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from files.models import real_model
from reference import quants
from reference.transformer import Transformer

import pyrt
from pyrt.config import read_config
from pyrt.gguf import open_gguf
from pyrt.weights import map_weights

pytestmark = [pytest.mark.parity, pytest.mark.slow]

TEXT = """Days of the week: Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday. The lighthouse
keeper had lived on the island for thirty years. Every evening he climbed the spiral stairs, trimmed the
wick and lit the lamp, and every morning he put it out again. def area(radius): return 3.14159 * radius ** 2
1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13. The quick brown fox jumps over the lazy dog.
Days of the week: Monday, Tuesday, Wednesday"""


class Run(NamedTuple):
    """Logits [n, n_vocab] of the text: pyrt's, the exact ones, and the reference's with pyrt's roundings."""

    ours: np.ndarray
    exact: np.ndarray
    coded: np.ndarray


def as_pyrt_rounds(name: str, x: np.ndarray) -> np.ndarray:
    """int8 codes in groups of 32 for the inputs of matrices, float16 for keys and values."""
    if name in ("key", "value"):
        return x.astype(np.float16).astype(x.dtype)
    groups = x.reshape(*x.shape[:-1], -1, 32)
    amax = np.abs(groups).max(-1, keepdims=True)
    return (np.rint(groups * (127 / np.maximum(amax, 2.0**-120))) * (amax / 127)).reshape(x.shape)


@pytest.fixture(scope="module", params=["smollm2.gguf", "gemma3.gguf"])
def run(request: pytest.FixtureRequest) -> Run:
    path = real_model(request.param)
    with pyrt.load(path) as model:
        ids = model.tokenizer.encode(TEXT)
        ours = model.logits(ids).astype(np.float64)
    with open_gguf(path) as source:
        config = read_config(source)
        means = {}
        for name, form, rows, cols, data, _ in map_weights(source, config):
            values = quants.dequantize(form, data)
            means[name] = values if rows == 1 else values.reshape(rows, cols)
    exact = Transformer(config.knobs, means).logits(np.array(ids))
    coded = Transformer(config.knobs, means, rounded=as_pyrt_rounds).logits(np.array(ids))
    return Run(ours, exact, coded)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def divergence(exact: np.ndarray, other: np.ndarray) -> float:
    """Mean Kullback-Leibler divergence in nats a token."""
    p, q = log_softmax(exact), log_softmax(other)
    return float((np.exp(p) * (p - q)).sum(-1).mean())


def test_divergence_is_that_of_the_activation_codes(run: Run) -> None:
    assert divergence(run.exact, run.ours) <= 1.5 * divergence(run.exact, run.coded)


def test_every_logit_is_within_what_the_codes_cost(run: Run) -> None:
    """4: where a value falls between two codes, float32 rounding may choose either, and layers later the two
    runs differ as much as each differs from the exact one."""
    cost = np.abs(run.coded - run.exact).max(-1)
    assert (np.abs(run.ours - run.exact).max(-1) <= 4 * cost).all()


def test_the_first_choice_is_the_same_where_the_margin_allows(run: Run) -> None:
    """Two logits, each off by the cost of the codes, cannot change places over a margin of twice that."""
    second, first = np.sort(run.exact, -1)[:, -2:].T
    clear = first - second > 2 * np.abs(run.coded - run.exact).max(-1)
    assert clear.mean() > 0.2, "the text must have enough tokens that the model is sure of"
    np.testing.assert_array_equal(run.ours.argmax(-1)[clear], run.exact.argmax(-1)[clear])
