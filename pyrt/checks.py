"""Checks of single parameters: each returns the value in its own type, or names what is wrong."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
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
        except OverflowError:  # an integer of hundreds of digits
            number = math.inf
        if not math.isfinite(number):
            raise ValueError(f"{name}: {number} is not a finite number")
        if not low <= number <= high or (above and number == low):
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
    found = (value,) if isinstance(value, str) else _each(name, value, "a string or a list of strings")
    for string in found:
        if not isinstance(string, str):
            raise TypeError(f"{name} must be a string or a list of strings, not {string!r}")
        if not string:
            raise ValueError(f"{name}: an empty string would stop everywhere")
    return found


def token_ids(name: str, value: Any) -> tuple[int, ...]:
    check = integer(0)
    return tuple(check(name, token) for token in _each(name, value, "a list of token ids"))


def bias(name: str, value: Any) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict of token ids and numbers, not {value!r}")
    most = float(np.finfo(np.float32).max)  # as the logits that it is added to
    amount_of = real(-most, most)
    added = {}
    for token, amount in value.items():
        # OpenAI's JSON has the ids as strings.
        key = integer(0)(name, int(token) if isinstance(token, str) and token.isdecimal() else token)
        added[key] = -math.inf if amount == -math.inf else amount_of(name, amount)
    return added


def callback(name: str, value: Any) -> Any:
    if not (value is None or callable(value)):
        raise TypeError(f"{name} must be callable, not {value!r}")
    return value


def processors(name: str, value: Any) -> tuple[Callable[..., Any], ...]:
    found = (value,) if callable(value) else _each(name, value, "a list of callables")
    if not all(callable(processor) for processor in found):
        raise TypeError(f"{name} must be callables (token_ids, logits)")
    return found


def variables(name: str, value: Any) -> Mapping[str, Any]:
    """What a chat template is given besides the messages, and besides what `chat` says itself."""
    if not (isinstance(value, Mapping) and all(isinstance(key, str) for key in value)):
        raise TypeError(f"{name} must be a dict of names and values, not {value!r}")
    for key in ("self", "messages", "add_generation_prompt", "tokenize"):
        if key in value:
            raise TypeError(f"{name}: {key} is not for the caller to set")
    return value


def truncate(name: str, value: Any) -> str:
    if value not in ("left", "middle"):
        raise ValueError(f"{name}: {value!r} is neither None, 'left' nor 'middle'")
    return str(value)


def _each(name: str, value: Any, what: str) -> tuple[Any, ...]:
    try:
        return tuple(value)
    except TypeError:
        raise TypeError(f"{name} must be {what}, not {value!r}") from None
