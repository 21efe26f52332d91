"""Checks of single parameters: each returns the value in its own type, or names what is wrong."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np


def integer(low: int, high: float = math.inf) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError(f"{name} must be an integer, not {value!r}")
        try:
            number = operator.index(value)
        except TypeError:
            raise TypeError(f"{name} must be an integer, not {value!r}") from None
        if not low <= number <= high:
            raise ValueError(f"{name}: {number} is not " + _range(low, high))
        return number

    return check


def real(low: float, high: float = math.inf, *, above: bool = False) -> Callable[[str, Any], float]:
    def check(name: str, value: Any) -> float:
        if isinstance(value, (bool, str, bytes)):
            raise TypeError(f"{name} must be a number, not {value!r}")
        try:
            number = float(value)
        except TypeError:
            raise TypeError(f"{name} must be a number, not {value!r}") from None
        if not math.isfinite(number) or not low <= number <= high or (above and number == low):
            raise ValueError(f"{name}: {number} is not " + _range(low, high, above))
        return number

    return check


def _range(low: float, high: float, above: bool = False) -> str:
    start = f"above {low}" if above else f"at least {low}"
    return start if math.isinf(high) else f"{start} and at most {high}"


def boolean(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def strings(name: str, value: Any) -> tuple[str, ...]:
    strings = (value,) if isinstance(value, str) else tuple(value)
    for string in strings:
        if not isinstance(string, str):
            raise TypeError(f"{name} must be a string or a list of strings, not {string!r}")
        if not string:
            raise ValueError(f"{name}: an empty string would stop everywhere")
    return strings


def token_ids(name: str, value: Any) -> tuple[int, ...]:
    check = integer(0)
    return tuple(check(name, token) for token in value)


def bias(name: str, value: Any) -> dict[int, float]:
    bias = {}
    for token, amount in dict(value).items():
        # OpenAI's JSON has the ids as strings.
        key = integer(0)(name, int(token) if isinstance(token, str) and token.isdecimal() else token)
        bias[key] = float(amount)
        if math.isnan(bias[key]) or bias[key] == math.inf:
            raise ValueError(f"{name}: {amount} for token {key} is not a number that can be added")
    return bias


def processors(name: str, value: Any) -> tuple[Callable[..., Any], ...]:
    processors = (value,) if callable(value) else tuple(value)
    if not all(callable(processor) for processor in processors):
        raise TypeError(f"{name} must be callables (token_ids, logits)")
    return processors


def truncate(name: str, value: Any) -> str:
    if value not in ("left", "middle"):
        raise ValueError(f"{name}: {value!r} is neither None, 'left' nor 'middle'")
    return str(value)
