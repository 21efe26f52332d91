"""SamplingParams: what is checked, what names mean, what a model's defaults do."""

import math
from array import array

import numpy as np
import pytest

from pyrt.errors import ContextLengthError
from pyrt.generate import fit
from pyrt.options import FIELDS, SamplingParams, config_defaults, gguf_defaults, make_params

API = {
    "max_tokens": 256, "temperature": None, "top_k": None, "top_p": None, "min_p": None, "typical_p": None,
    "repetition_penalty": None, "presence_penalty": 0.0, "frequency_penalty": 0.0, "logit_bias": None,
    "seed": None, "n": 1, "stop": None, "stop_token_ids": None, "ignore_eos": False, "min_tokens": 0,
    "logprobs": None, "prompt_logprobs": None, "logits_processors": (), "truncate": None, "deadline": None,
}  # fmt: skip


def test_the_fields_are_the_published_ones():
    assert {name: getattr(SamplingParams(), name) for name in FIELDS} == API


def test_it_is_frozen():
    with pytest.raises(AttributeError):
        SamplingParams().temperature = 1.0


NAN, INF = math.nan, math.inf
REALS = ["temperature", "top_p", "min_p", "typical_p", "repetition_penalty", "deadline"]
COUNTS = ["max_tokens", "top_k", "seed", "n", "min_tokens", "logprobs", "prompt_logprobs"]
OUT_OF_RANGE = [
    *[(name, NAN) for name in [*REALS, "presence_penalty", "frequency_penalty"]],
    *[(name, -1) for name in [*REALS, *COUNTS]],
    *[("temperature", INF), ("top_p", 1.1), ("min_p", 2), ("typical_p", 0), ("repetition_penalty", 0)],
    *[("repetition_penalty", 1e300), ("repetition_penalty", 1e-300)],
    *[("n", 0), ("presence_penalty", 2.5), ("frequency_penalty", -3), ("seed", 2**64), ("deadline", 0)],
    *[("stop", ""), ("stop", ["a", ""]), ("truncate", "right"), ("stop_token_ids", [-5])],
    *[("logit_bias", {1: NAN}), ("logit_bias", {1: INF}), ("logit_bias", {-1: 1.0})],
    *[("logit_bias", {1: 1e39}), ("logit_bias", {1: -1e39})],  # beyond float32
    *[(name, 10**309) for name in REALS],
]
WRONG_TYPES = [
    *[("max_tokens", 1.5), ("max_tokens", True), ("temperature", "hot"), ("top_k", 2.0), ("stop", 5)],
    *[("stop", [5]), ("ignore_eos", 1), ("logits_processors", [3]), ("logits_processors", 3), ("seed", "x")],
    *[("n", None), ("presence_penalty", None), ("stop_token_ids", ["a"]), ("stop_token_ids", 3)],
    *[("logit_bias", 3), ("logit_bias", {1: "a"})],
]


@pytest.mark.parametrize(("name", "value"), OUT_OF_RANGE)
def test_values_out_of_range_name_the_field(name, value):
    with pytest.raises(ValueError, match=name):
        SamplingParams(**{name: value})


@pytest.mark.parametrize(("name", "value"), WRONG_TYPES)
def test_wrong_types_name_the_field(name, value):
    with pytest.raises(TypeError, match=name):
        SamplingParams(**{name: value})


def test_contradictions():
    with pytest.raises(ValueError, match=r"min_tokens.*max_tokens"):
        SamplingParams(min_tokens=10, max_tokens=5)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("temprature", "temperature"),
        ("topp", "top_p"),
        ("max_new_token", "max_new_tokens"),
        ("stops", "stop"),
    ],
)
def test_unknown_names_get_the_nearest(typed, meant):
    for make in (lambda **kw: SamplingParams(**kw), lambda **kw: make_params(SamplingParams(), kw)):
        with pytest.raises(TypeError, match=f"{typed}.*'{meant}'"):
            make(**{typed: 1})


def test_aliases():
    params = SamplingParams(max_new_tokens=5, repeat_penalty=1.1, stop_strings=["x"])
    assert (params.max_tokens, params.repetition_penalty, params.stop) == (5, 1.1, ("x",))
    with pytest.raises(TypeError, match="twice"):
        SamplingParams(max_tokens=1, max_new_tokens=2)


def test_keywords_lie_over_params():
    base = SamplingParams(max_tokens=5, top_k=3)
    both = make_params(base, {"top_k": 7, "max_new_tokens": 9})
    assert (both.max_tokens, both.top_k) == (9, 7)
    assert make_params(base, {}) is base
    with pytest.raises(TypeError, match="SamplingParams"):
        make_params({"top_k": 3}, {})


def test_numpy_numbers_and_openai_spellings():
    params = SamplingParams(top_k=np.int64(3), temperature=np.float32(0.5), logit_bias={"7": -100}, stop="a")
    assert (params.top_k, params.temperature, params.logit_bias, params.stop) == (3, 0.5, {7: -100.0}, ("a",))


def test_unset_fields_are_the_models_then_neutral():
    assert SamplingParams().samplers({}).temperature == 0.0
    model = {"temperature": 0.6, "top_p": 0.95}
    chosen = SamplingParams(top_p=0.5).samplers(model)
    assert (chosen.temperature, chosen.top_p, chosen.top_k) == (0.6, 0.5, 0)
    assert SamplingParams(temperature=0).samplers(model).temperature == 0.0
    assert (
        SamplingParams(top_p=0.9).samplers({}).temperature == 1.0
    )  # a nucleus says nothing about a greedy choice
    assert SamplingParams(seed=3).samplers({}).seed == 3
    assert SamplingParams().samplers({}).seed != SamplingParams().samplers({}).seed


def test_generation_config():
    """transformers: without do_sample the other values do not apply."""
    assert config_defaults({}) == {}
    greedy = {"temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.1}
    assert config_defaults(greedy) == {"repetition_penalty": 1.1}
    given = {"do_sample": True, "top_k": 64, "top_p": 0.95, "eos_token_id": [1, 106]}
    assert config_defaults(given) == {"temperature": 1.0, "top_k": 64, "top_p": 0.95}
    with pytest.raises(ValueError, match=r"model's own.*top_p"):
        config_defaults({"do_sample": True, "top_p": 7})


def test_gguf_defaults():
    metadata = {
        "general.sampling.temp": np.float32(0.5),
        "general.sampling.top_k": np.int32(40),
        "general.name": "x",
    }
    assert gguf_defaults(metadata) == {"temperature": 0.5, "top_k": 40}
    assert gguf_defaults({}) == {}


@pytest.mark.parametrize(
    ("n", "max_tokens", "truncate", "kept"),
    [
        (10, 5, None, 10),
        (20, 5, None, 20),
        (21, 5, None, None),
        (21, 5, "left", 15),
        (16, 5, "left", 15),
        (15, 5, "left", 15),
        (100, 50, "left", 10),
        (100, None, "middle", 10),
        (21, 0, "middle", 20),
    ],
)
def test_what_fits_into_20_tokens(n, max_tokens, truncate, kept):
    params = SamplingParams(max_tokens=max_tokens, truncate=truncate)
    if kept is None:
        with pytest.raises(ContextLengthError):
            fit(array("i", range(n)), params, 20, None)
        return
    tokens, cut = fit(array("i", range(n)), params, 20, None)
    assert (len(tokens), cut) == (kept, n - kept)
    assert list(tokens)[-1] == n - 1
    if truncate == "middle":
        assert next(iter(tokens)) == 0


def test_cutting_from_the_left_keeps_the_beginning_of_text():
    tokens, cut = fit(array("i", range(100)), SamplingParams(max_tokens=10, truncate="left"), 20, 0)
    assert (list(tokens), cut) == ([0, *range(91, 100)], 90)
