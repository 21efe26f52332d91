"""What a request may ask for: `SamplingParams`, its checks, its aliases and a model's own defaults."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np

from pyrt import checks

ALIASES = {"max_new_tokens": "max_tokens", "repeat_penalty": "repetition_penalty", "stop_strings": "stop"}

LogitsProcessor = Callable[[list[int], np.ndarray], "np.ndarray | None"]


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "max_tokens": checks.integer(0),
    "temperature": checks.real(0.0),
    "top_k": checks.integer(0),
    "top_p": checks.real(0.0, 1.0),
    "min_p": checks.real(0.0, 1.0),
    "typical_p": checks.real(0.0, 1.0, above=True),
    "repetition_penalty": checks.real(0.01, 100.0),
    "presence_penalty": checks.real(-2.0, 2.0),  # OpenAI's range
    "frequency_penalty": checks.real(-2.0, 2.0),
    "logit_bias": checks.bias,
    "seed": checks.integer(0, 2**64 - 1),
    "n": checks.integer(1, 1024),
    "stop": checks.strings,
    "stop_token_ids": checks.token_ids,
    "ignore_eos": checks.boolean,
    "min_tokens": checks.integer(0),
    "logprobs": checks.integer(0),
    "prompt_logprobs": checks.integer(0),
    "logits_processors": checks.processors,
    "truncate": checks.truncate,
    "deadline": checks.real(0.0, above=True),
}


class _AnyName(type):
    """Lets `SamplingParams(...)` take the aliases and name the nearest field when a keyword is unknown."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **canonical(kwargs, FIELDS, ALIASES))


@dataclass(frozen=True)
class SamplingParams(metaclass=_AnyName):
    """How tokens are chosen and when to stop.

    A field that is None takes the model's own ``generation_config``, else it is neutral. The order is
    penalties → bias → logits_processors → temperature → top_k → typical_p → top_p → min_p → draw.

    max_tokens: at most so many new tokens; None means up to the end of the context.
    temperature: divides the logits; 0 is greedy. Unset everywhere it is 0, or 1 if a top_k, top_p, min_p or
        typical_p is asked for (they say nothing about a greedy choice).
    top_k: keep the k likeliest tokens; 0 turns it off.
    typical_p: keep the tokens whose surprise is nearest to the entropy, up to this mass (arXiv:2202.00666).
    top_p: keep the fewest likeliest tokens whose mass reaches top_p (arXiv:1904.09751).
    min_p: keep tokens at least min_p times as likely as the likeliest (arXiv:2407.01082).
    repetition_penalty: 0.01 to 100; positive logits of all tokens seen, prompt included, are divided by it,
        negative ones multiplied (arXiv:1909.05858). presence_penalty and frequency_penalty: OpenAI's, on
        generated tokens.
    logit_bias: {token id: added to its logit}; -inf forbids the token.
    seed: 0 ≤ seed < 2**64; None draws one, and the result reports it.
    n: choices for the prompt; they share its pages.
    stop: strings that end the text (not part of it). stop_token_ids: token ids that end it.
    ignore_eos: go on after the model's end tokens. min_tokens: no end of any kind before so many.
    logprobs, prompt_logprobs: report log-probabilities of each generated / prompt token and of the N
        likeliest (0: the token's own only), from the model's raw logits.
    logits_processors: callables (token_ids, logits) that edit float32[n_vocab] in place or return another.
    truncate: None refuses a prompt that is too long; "left" and "middle" cut it there and report how much.
    deadline: seconds from the request until it ends with what there is, finish_reason "cancelled".

    Raises ValueError naming the field for NaN, out of range or contradictory values, TypeError for a wrong
    type or an unknown name.
    """

    max_tokens: int | None = 256
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None
    n: int = 1
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logits_processors: Sequence[LogitsProcessor] = ()
    truncate: Literal["left", "middle"] | None = None
    deadline: float | None = None

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                object.__setattr__(self, name, check(name, value))
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens: {self.min_tokens} is more than max_tokens {self.max_tokens}")

    def samplers(self, defaults: Mapping[str, Any]) -> Samplers:
        """What the samplers run with: each field from here, else from ``defaults``, else neutral."""
        chosen = {each.name: getattr(self, each.name) for each in fields(Samplers)}
        draws = any(chosen[name] is not None for name in ("top_k", "top_p", "min_p", "typical_p"))
        for source in (defaults, {"temperature": 1.0 if draws else 0.0, "seed": random_seed()}):
            chosen |= {name: value for name, value in source.items() if chosen[name] is None}
        return Samplers(**{name: value for name, value in chosen.items() if value is not None})


@dataclass(frozen=True)
class Samplers:
    """The part of SamplingParams that decides the next token, nothing left open; the defaults are neutral."""

    seed: int
    temperature: float
    top_k: int = 0
    typical_p: float = 1.0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logits_processors: Sequence[LogitsProcessor] = ()

    @property
    def narrows(self) -> bool:
        """Whether any sampler takes tokens away."""
        return self.top_k > 0 or self.min_p > 0 or self.top_p < 1 or self.typical_p < 1


def random_seed() -> int:
    """53 random bits: JSON and JavaScript keep so many."""
    return int.from_bytes(os.urandom(8), "little") >> 11


def make_params(params: SamplingParams | None, kwargs: Mapping[str, Any]) -> SamplingParams:
    """``params`` with keywords (or aliases) laid over it. TypeError for an unknown one."""
    if params is not None and not isinstance(params, SamplingParams):
        raise TypeError(f"params must be a SamplingParams, not {type(params).__name__}")
    named = canonical(kwargs, FIELDS, ALIASES)
    if params is None:
        return SamplingParams(**named)
    return replace(params, **named) if named else params


def canonical(kwargs: Mapping[str, Any], known: Iterable[str], aliases: Mapping[str, str]) -> dict[str, Any]:
    """Keywords under their own names. TypeError for one given twice or unknown; it has the nearest name."""
    named: dict[str, Any] = {}
    for name, value in kwargs.items():
        target = aliases.get(name, name)
        if target not in known:
            raise TypeError(_unknown(name, [*known, *aliases]))
        if target in named:
            raise TypeError(f"{target} is given twice ({name} is another name for it)")
        named[target] = value
    return named


def _unknown(name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"unknown option {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def config_defaults(generation_config: Mapping[str, Any]) -> dict[str, Any]:
    """The sampler fields that a Hugging Face ``generation_config.json`` sets.

    Without ``do_sample: true`` transformers decodes greedily whatever the other values say, and so do we.
    """
    names = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty")
    found = {name: generation_config[name] for name in names if generation_config.get(name) is not None}
    if generation_config.get("do_sample"):
        found.setdefault("temperature", 1.0)
    else:
        found = {name: value for name, value in found.items() if name == "repetition_penalty"}
    return _sound(found)


# Keys that llama.cpp's converter writes (gguf-py/gguf/constants.py, Keys.General.SAMPLING_*).
_GGUF_SAMPLING = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
}


def gguf_defaults(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The sampler fields that a GGUF header recommends (most say nothing: then greedy)."""
    return _sound(
        {name: metadata[key] for key, name in _GGUF_SAMPLING.items() if metadata.get(key) is not None}
    )


def _sound(found: dict[str, Any]) -> dict[str, Any]:
    """The values checked like a caller's; the error says where they come from."""
    for name, value in found.items():
        try:
            found[name] = _CHECKS[name](name, value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"the model's own generation defaults: {error}") from None
    return found


FIELDS = tuple(each.name for each in fields(SamplingParams))
_OPTIONAL = {
    each.name for each in fields(SamplingParams) if each.default is None or each.name == "max_tokens"
}
