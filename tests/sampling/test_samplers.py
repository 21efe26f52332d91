"""The samplers against their definitions, written down in float64 NumPy over the whole vocabulary."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyrt import sampling
from pyrt.options import SamplingParams

FACT = np.array([8.2, 6.9, 5.4, 4.8, 4.1, 3.7, 2.2, 1.0])


def distribution(logits, tokens=(), n_prompt=0, **fields):
    """Probability of each token by the definitions, in the promised order."""
    p = SamplingParams(**fields).samplers({})
    x = np.asarray(logits, np.float32).astype(np.float64)
    for token in set(tokens):
        x[token] = x[token] / p.repetition_penalty if x[token] > 0 else x[token] * p.repetition_penalty
    said = list(tokens[n_prompt:])
    for token in set(said):
        x[token] -= p.presence_penalty + p.frequency_penalty * said.count(token)
    for token, amount in p.logit_bias.items():
        x[token] += amount
    for processor in p.logits_processors:
        x = np.asarray(processor(list(tokens), x.astype(np.float32)), np.float64)
    if p.temperature == 0:
        return np.eye(len(x))[int(np.argmax(x))]
    x = x / p.temperature
    order = sorted(range(len(x)), key=lambda i: (-x[i], i))
    probability = np.exp(x - x.max())
    if p.top_k:
        probability = keep(probability, order[: p.top_k])
    probability /= probability.sum()
    if p.typical_p < 1:
        surprise = np.array([-math.log(q) if q > 0 else math.inf for q in probability])
        entropy = sum(q * s for q, s in zip(probability, surprise, strict=True) if q > 0)
        nearest = sorted(order, key=lambda i: abs(surprise[i] - entropy))  # stable: ties stay in order
        probability = keep(probability, until(probability, nearest, p.typical_p))
        order = [i for i in order if probability[i] > 0]
    if p.top_p < 1:
        probability = keep(probability, until(probability, order, p.top_p))
    if p.min_p > 0:
        probability = np.where(probability >= p.min_p * probability.max(), probability, 0)
    return probability / probability.sum()


def keep(probability, ids):
    kept = np.zeros_like(probability)
    kept[ids] = probability[ids]
    return kept / kept.sum()


def until(probability, order, mass):
    reached = np.cumsum(probability[order])
    return order[: int(np.argmax(reached >= mass)) + 1] if reached[-1] >= mass else order


def block_maxima(logits):
    return np.array([logits[i : i + 256].max() for i in range(0, len(logits), 256)], np.float32)


def row(logits):
    logits = np.array(logits, np.float32)
    return logits, block_maxima(logits)


def pick(logits, tokens=(), n_prompt=0, choice=0, banned=(), **fields):
    samplers = SamplingParams(**{"seed": 1, **fields}).samplers({})
    banned = np.array(banned, np.int64)
    return sampling.choose(*row(logits), list(tokens), n_prompt, samplers, banned, choice)


def counts(logits, draws, **fields):
    """How often each token comes in ``draws`` steps of one request."""
    samplers = SamplingParams(**{"seed": 1, **fields}).samplers({})
    found = np.zeros(len(logits), np.int64)
    for index in range(draws):
        tokens = np.zeros(index, np.int64)
        token = sampling.choose(*row(logits), tokens, 0, samplers, np.zeros(0, np.int64), 0)
        found[token] += 1
    return found


def assert_drawn_from(found, expected):
    """Chi-square: 99.99% of fair draws stay below the bound (Wilson-Hilferty); nothing forbidden comes."""
    assert found[expected == 0].sum() == 0
    possible = expected * found.sum() >= 5
    pooled = np.append(found[possible], found[~possible].sum())
    mass = np.append(expected[possible], expected[~possible].sum()) * found.sum()
    pooled, mass = pooled[mass > 0], mass[mass > 0]
    statistic = ((pooled - mass) ** 2 / mass).sum()
    k = max(1, len(pooled) - 1)
    bound = k * (1 - 2 / (9 * k) + 3.72 * math.sqrt(2 / (9 * k))) ** 3
    assert statistic < bound


@pytest.mark.parametrize(("temperature", "first"), [(0.5, 0.9264), (1.0, 0.7155), (1.5, 0.5495)])
def test_known_probabilities(temperature, first):
    assert distribution(FACT, temperature=temperature)[0] == pytest.approx(first, abs=5e-5)
    samplers = SamplingParams(temperature=temperature, top_k=8).samplers({})
    kept = sampling.top_k(*row(FACT), samplers)
    assert kept.weight[0] / kept.total == pytest.approx(first, abs=5e-5)


def test_known_nucleus():
    kept = sampling.top_k(*row(FACT), SamplingParams(temperature=1, top_p=0.9).samplers({}))
    nucleus = sampling.top_p(kept, 0.9)
    assert list(nucleus.ids) == [0, 1]
    assert 1 - nucleus.total / kept.total == pytest.approx(0.0895, abs=5e-5)


def test_temperature_zero_takes_the_first():
    assert pick(FACT, temperature=0) == 0
    assert pick(FACT) == 0


SETTINGS = [
    {"temperature": 1.0},
    {"temperature": 0.5},
    {"temperature": 2.5},
    {"top_k": 3},
    {"top_k": 1000, "temperature": 1.7},
    {"top_p": 0.8},
    {"top_p": 0.0},
    {"top_p": 0.999, "temperature": 3.0},
    {"min_p": 0.1},
    {"min_p": 1.0},
    {"min_p": 1e-30},
    {"typical_p": 0.5},
    {"typical_p": 0.9, "temperature": 1.5},
    {"top_k": 20, "typical_p": 0.8, "top_p": 0.9, "min_p": 0.05, "temperature": 1.3},
    {"typical_p": 0.8, "top_p": 0.7},
    {"top_p": 0.9, "min_p": 0.2},
    {"repetition_penalty": 1.5, "temperature": 1.0},
    {"presence_penalty": 1.0, "frequency_penalty": 0.5, "temperature": 0.8, "top_p": 0.95},
    {"logit_bias": {3: 5.0, 7: -math.inf}, "temperature": 1.0},
    {
        "logits_processors": [lambda tokens, logits: np.where(np.arange(len(logits)) % 2, logits, -np.inf)],
        "top_k": 9,
    },
]


@pytest.mark.parametrize("fields", SETTINGS, ids=str)
@pytest.mark.parametrize("n_vocab", [8, 300, 1000])
def test_the_draw_covers_the_defined_distribution(fields, n_vocab):
    """Every number u of a fine grid leads to a token; the share of the grid is the probability."""
    logits = np.random.default_rng(n_vocab).normal(0, 2, n_vocab).astype(np.float32)
    tokens, n_prompt = [0, 1, 1, 2, 3, 3, 3, 5], 3
    expected = distribution(logits, tokens, n_prompt, **fields)
    grid = 2000
    found = np.zeros(n_vocab)
    samplers = SamplingParams(seed=0, **fields).samplers({})
    original = sampling.uniform
    try:
        for i in range(grid):
            sampling.uniform = lambda *_, u=(i + 0.5) / grid: u
            nobody = np.zeros(0, np.int64)
            found[sampling.choose(*row(logits), tokens, n_prompt, samplers, nobody, 0)] += 1
    finally:
        sampling.uniform = original
    assert np.abs(found / grid - expected).max() <= 1 / grid + 1e-6
    assert found[expected == 0].sum() == 0


@pytest.mark.parametrize(
    "fields", [{"temperature": 1.0}, {"top_k": 5}, {"top_p": 0.9, "temperature": 1.5}], ids=str
)
def test_seeded_draws_pass_a_chi_square_test(fields):
    logits = np.random.default_rng(3).normal(0, 2, 300)
    assert_drawn_from(counts(logits, 4000, **fields), distribution(logits, **fields))


def test_the_chi_square_test_can_fail():
    logits = np.random.default_rng(3).normal(0, 2, 300)
    with pytest.raises(AssertionError):
        assert_drawn_from(counts(logits, 4000, temperature=1.0), distribution(logits, temperature=1.1))


@settings(max_examples=200)
@given(
    st.lists(st.integers(-6, 6), min_size=2, max_size=600),
    st.fixed_dictionaries(
        {},
        optional={
            "top_k": st.integers(0, 700),
            "top_p": st.floats(0, 1),
            "min_p": st.floats(0, 1),
            "typical_p": st.floats(0.01, 1),
            "temperature": st.floats(0.05, 5),
        },
    ),
    st.integers(0, 2**64 - 1),
)
def test_only_tokens_that_the_definitions_keep(values, fields, seed):
    """Many ties, any combination. A hair's breadth of mass around each cut may fall to either side."""
    logits = np.array(values, np.float32) / 2
    token = pick(logits, seed=seed, **{"temperature": 1.0, **fields})
    loose = dict(fields)
    if "top_p" in loose:
        loose["top_p"] = min(1.0, loose["top_p"] + 1e-4)
    if "min_p" in loose:
        loose["min_p"] = loose["min_p"] * (1 - 1e-4)
    if "typical_p" in loose:
        loose["typical_p"] = min(1.0, loose["typical_p"] + 1e-4)
    strict = distribution(logits, **{"temperature": 1.0, **fields})
    assert strict[token] > 0 or distribution(logits, **{"temperature": 1.0, **loose})[token] > 0


def test_ties_go_to_the_lowest_id():
    logits = np.zeros(1000, np.float32)
    logits[[300, 77, 900]] = 2.0
    assert pick(logits) == 77
    assert pick(logits, logit_bias={77: -1.0}) == 300
    kept = sampling.top_k(*row(logits), SamplingParams(top_k=2).samplers({}))
    assert list(kept.ids) == [77, 300]


def test_banned_tokens_never_come():
    logits = np.zeros(300, np.float32)
    logits[5] = 10
    assert pick(logits, banned=[5]) == 0
    with pytest.raises(ValueError, match="no token"):
        pick(np.zeros(3), banned=[0, 1, 2])


def test_processors_edit_in_place_or_return():
    def in_place(tokens, logits):
        assert tokens == [4, 5]
        logits[:] = -np.inf
        logits[299] = 0

    logits = np.zeros(300, np.float32)
    assert pick(logits, [4, 5], 1, logits_processors=[in_place]) == 299
    assert pick(logits, [4, 5], 1, temperature=1.0, logits_processors=[in_place]) == 299
    assert pick(logits, [4, 5], 1, logits_processors=lambda _, x: np.roll(np.eye(300)[0], 7)) == 7


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (np.full(300, np.nan), "NaN"),
        (np.full(300, -np.inf), "no token"),
        (np.zeros(4), "300"),
        (np.full(300, np.inf), "NaN"),
    ],
)
def test_bad_processors_are_named(result, message):
    with pytest.raises(ValueError, match=f"logits_processors.*{message}"):
        pick(np.zeros(300), logits_processors=[lambda *_: result])


def test_the_stream_of_numbers_is_fixed():
    """Changing the generator would change every seeded answer, so a few of its numbers are written down."""
    assert sampling.uniform(0, 0, 0) == FIRST_OF_SEED_0
    numbers = [
        sampling.uniform(seed, choice, index)
        for seed in (0, 1, 2**64 - 1)
        for choice in (0, 1)
        for index in range(50)
    ]
    assert len(set(numbers)) == 300
    assert all(0 <= u < 1 for u in numbers)


FIRST_OF_SEED_0 = 0.5742645928430317


def test_low_and_high_temperatures_stay_finite():
    logits = np.random.default_rng(0).normal(0, 30, 1000)
    best = int(np.argmax(logits.astype(np.float32)))
    for temperature in (1e-9, 1e-6, 1e-5, 1e-3):
        assert pick(logits, temperature=temperature) == best
        assert pick(logits, temperature=temperature, top_p=0.9) == best
        assert pick(logits, temperature=temperature, min_p=0.5) == best
    assert len({pick(logits, temperature=1e6, seed=i) for i in range(50)}) > 40


@pytest.mark.filterwarnings("error")
def test_a_vast_temperature_keeps_forbidden_tokens_out():
    fields = {"temperature": 1e300, "typical_p": 0.9, "logit_bias": {0: -math.inf}}
    picked = {pick(FACT, seed=seed, **fields) for seed in range(200)}
    assert picked == set(range(1, len(FACT)))
