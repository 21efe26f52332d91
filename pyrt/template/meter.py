"""What one rendering of a template may use, and what it has used."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2.runtime import Macro
from jinja2.utils import Namespace

from pyrt.errors import TemplateError

# What any template may use, and what more for each byte that the caller hands in.
SECONDS, SECONDS_A_BYTE = 1.0, 1e-6  # of this thread's CPU time: a busy machine does not count
LARGEST, LARGEST_A_BYTE = 1 << 22, 16  # bytes of one value
BUDGET, BUDGET_A_BYTE = 1 << 28, 64  # bytes made in all
MAX_DEPTH = 64
MAX_INT_BITS = 1 << 16
MAX_COUNT = 100_000  # as jinja2.sandbox.MAX_RANGE

_NOTE = 256  # bytes to remember a weight
_LOOK_EVERY = 16  # steps, since a look at the clock takes a microsecond


class Meter:
    """Limits for one rendering.

    A value's weight is the bytes it takes with all that it holds, each thing as often as it appears: a list
    of lists of lists of the same string weighs what it would take written out.
    """

    def __init__(self, inputs: Any) -> None:
        self._known: dict[int, tuple[Any, int, int]] = {}
        self._steps = 0
        self.largest = self.left = sys.maxsize
        weight = self.weight(inputs)
        self.largest = LARGEST + LARGEST_A_BYTE * weight
        self.left = BUDGET + BUDGET_A_BYTE * weight
        self._seconds = SECONDS + SECONDS_A_BYTE * weight
        self._end = time.thread_time() + self._seconds

    def step(self) -> None:
        """Count one step, and raise when the time is up."""
        self._steps += 1
        if self._steps % _LOOK_EVERY == 0:
            self.look()

    def look(self) -> None:
        if time.thread_time() > self._end:
            raise TemplateError(f"the chat template takes more than {self._seconds:.1f} s")

    def spend(self, nbytes: int) -> None:
        """Count memory that is made."""
        self.left -= nbytes
        if self.left < 0:
            raise TemplateError("the chat template makes more text and lists than it may")

    def fit(self, size: float) -> None:
        """Refuse a value before it is made, if its size may be above the limit."""
        if size > self.largest:
            raise TemplateError(f"the chat template makes a value of more than {self.largest} bytes")
        if size > LARGEST // 64:  # a long step
            self.look()

    def made(self, value: Any) -> Any:
        """Count a new value and hand it on."""
        if isinstance(value, str):
            self.fit(len(value))
            self.spend(sys.getsizeof(value))
        elif isinstance(value, (list, tuple, dict)):
            self.fit(self.weight(value))
        elif isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
            raise TemplateError("the chat template makes a number that is too large")
        return value

    def weight(self, value: Any) -> int:
        return self._measure(value)[0]

    def depth(self, value: Any) -> int:
        """How deep lists and mappings are nested in a value."""
        return self._measure(value)[1]

    def _measure(self, value: Any, above: int = 0) -> tuple[int, int]:
        if isinstance(value, (str, int)):
            return sys.getsizeof(value), 0
        if isinstance(value, (KeysView, ValuesView, ItemsView)):
            value = list(value)
        if not isinstance(value, (list, tuple, dict)):
            # A namespace changes, so that it cannot be weighed once; the others are long when written out.
            if isinstance(value, (Namespace, Macro, functools.partial)):
                kind = {Namespace: "namespace", Macro: "macro"}
                what = next((name for base, name in kind.items() if isinstance(value, base)), "method")
                raise TemplateError(f"the chat template uses a {what} as a value")
            return 64, 0
        known = self._known.get(id(value))
        if known is None:
            if above > MAX_DEPTH:
                raise TemplateError(f"values are nested more than {MAX_DEPTH} deep")
            known = self._weigh(value, above)
        if above + known[2] > MAX_DEPTH:
            raise TemplateError(f"values are nested more than {MAX_DEPTH} deep")
        return known[1], known[2]

    def _weigh(self, value: Any, above: int) -> tuple[Any, int, int]:
        parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        weight, depth = sys.getsizeof(value), 0
        for part in parts:
            part_weight, part_depth = self._measure(part, above + 1)
            weight += part_weight
            depth = max(depth, part_depth)
            if weight > self.largest:
                self.fit(weight)
        # Keeping the value keeps its id from being used again. None of them can change in the sandbox.
        self.spend(sys.getsizeof(value) + _NOTE)
        known = self._known[id(value)] = (value, weight, depth + 1)
        return known


_current: ContextVar[Meter] = ContextVar("meter")
current = _current.get


@contextmanager
def metering(meter: Meter) -> Iterator[Meter]:
    """Make it the meter of what is rendered inside."""
    token = _current.set(meter)
    try:
        yield meter
    finally:
        _current.reset(token)
