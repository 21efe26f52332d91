"""Which rows the next step computes: a single-threaded scheduler, told as prose in `Scheduler.plan`."""

from __future__ import annotations

import itertools
import time
from array import array
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as AnySequence
from typing import NamedTuple, Protocol

import numpy as np

from pyrt.errors import MemoryLimitError
from pyrt.kv import CHUNK, PAGE, PagedCache, Table

MOST_RUNNING = 64  # sequences in a step
CHUNK_BESIDE_DECODE = 128  # prompt rows in a step while others wait for their next token
LOGIT_BYTES = 64 << 20  # a step hands out at most so many bytes of logits for prompt rows


class Row(NamedTuple):
    """What the model says after one token: float32[n_vocab], its maxima by 256, and float64 log Σ exp."""

    logits: np.ndarray
    block_max: np.ndarray
    logsumexp: float


class Reader(Protocol):
    """What becomes of a sequence's logits: the caller's side of a Sequence."""

    def read(self, tokens: array[int], position: int, row: Row) -> int | None:
        """Take the logits after tokens[: position + 1]: once a position, ascending, from ``wanted_from``.

        At the last known token the answer is the next token, or None if the sequence ends here.
        """


class Sequence:
    """One run of tokens through the model.

    tokens: prompt and, as they come, generated ones. computed: how many have K and V in the cache. unread:
    first position whose logits the reader has not seen. cached: prompt tokens that a shared prefix saved.
    table: its pages; it holds some only while ``running``.
    """

    table: Table

    def __init__(self, request: Request, tokens: AnySequence[int], wanted_from: int, reader: Reader) -> None:
        self.request = request
        self.reader = reader
        self.tokens = array("i", tokens)
        self.n_prompt = len(tokens)
        self.unread = wanted_from
        self.computed = 0
        self.cached = 0
        self.order = 0
        self.running = False
        self.started: float | None = None
        self.finished = False

    @property
    def pending(self) -> int:
        return len(self.tokens) - self.computed


class Request:
    """What one caller waits for: one or more sequences that begin, are cancelled and fail together.

    deadline: time.monotonic() at which it ends. most_tokens: the longest that a sequence may become.
    on_progress(done, total): called as the prompt is computed. listener: called after each step with news.
    ended: None, "cancelled" or "deadline". error: what ended it, to be raised in the caller.
    """

    def __init__(self, *, deadline: float | None = None, most_tokens: int) -> None:
        self.sequences: list[Sequence] = []
        self.deadline = deadline
        self.most_tokens = most_tokens
        self.on_progress: Callable[[int, int], None] | None = None
        self.listener: Callable[[], None] | None = None
        self.cancelled = False
        self.ended: str | None = None
        self.error: BaseException | None = None

    def add(self, tokens: AnySequence[int], wanted_from: int, reader: Reader) -> Sequence:
        sequence = Sequence(self, tokens, wanted_from, reader)
        self.sequences.append(sequence)
        return sequence

    @property
    def over(self) -> bool:
        return self.ended is not None or self.error is not None or all(s.finished for s in self.sequences)


class Span(NamedTuple):
    """tokens[start:stop] of a sequence are rows of the next step."""

    sequence: Sequence
    start: int
    stop: int

    @property
    def of_prompt(self) -> bool:
        """Whether its tokens were given, not generated; never some of each."""
        return self.start < self.sequence.n_prompt

    @property
    def first_wanted(self) -> int:
        """From here on the rows' logits are wanted; ``stop`` if none are."""
        return min(max(self.start, self.sequence.unread), self.stop)


class Scheduler:
    """Waiting and running sequences, both oldest first. Owned by whoever drives the engine.

    fast: prompts are computed by another arithmetic than generated tokens, so only their pages are shared.
    """

    def __init__(self, cache: PagedCache, n_vocab: int, fast: bool) -> None:
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.ended: set[Request] = set()  # those that `end` took out, for whoever tells their callers
        self._cache = cache
        self._fast = fast
        self._chunk = CHUNK
        self._most_wanted = max(1, LOGIT_BYTES // (4 * n_vocab))
        self._count = itertools.count()

    def add(self, request: Request) -> None:
        for sequence in request.sequences:
            sequence.order = next(self._count)
            shared = sequence.n_prompt if self._fast else request.most_tokens
            sequence.table = self._cache.new_table(request.most_tokens, shared)
            self.waiting.append(sequence)

    def live(self) -> list[Sequence]:
        return [*self.running, *self.waiting]

    def plan(self) -> list[Span]:
        """The rows of the next step: chunks of prompts, then a row of each sequence that generates.

        Those that generate are served first, and of each kind the older ones. When pages run out the youngest
        gives its pages up and waits; it is computed again later, what it generated apart from its prompt.
        """
        generating = [s for s in self.running if s.pending == 1]
        prompting = [s for s in self.running if s.pending > 1]
        budget = min(self._chunk, CHUNK_BESIDE_DECODE) if generating else self._chunk
        spans = []
        preempted = False
        for sequence in [*generating, *prompting]:
            span = self._span(sequence, budget) if sequence.running else None
            if span is None:
                continue
            preempted |= self._make_room(sequence, span.stop)
            if sequence.running:
                spans.append(span)
                budget -= 0 if sequence.pending == 1 else span.stop - span.start
        if not preempted:
            spans += self._admit(budget)
        spans = [span for span in spans if span.sequence.running]
        return sorted(spans, key=lambda span: not span.of_prompt)

    def finish(self, sequence: Sequence) -> None:
        """Take a sequence out for good; its published prefix stays findable."""
        if sequence.running:
            self._stop(sequence)
        elif not sequence.finished and sequence in self.waiting:
            self.waiting.remove(sequence)
        sequence.finished = True

    def end(self, request: Request, *, reason: str | None = None, error: BaseException | None = None) -> None:
        """Take a whole request out: cancelled, past its deadline, or failed."""
        for sequence in request.sequences:
            if not sequence.finished:
                self.finish(sequence)
        request.ended, request.error = reason, error
        self.ended.add(request)

    def end_cancelled(self) -> None:
        """End the requests that were cancelled or whose deadline has passed."""
        now = time.monotonic()
        for request in {s.request for s in self.live()}:
            if request.cancelled:
                self.end(request, reason="cancelled")
            elif request.deadline is not None and now >= request.deadline:
                self.end(request, reason="deadline")

    def first_deadline(self) -> float | None:
        deadlines = [s.request.deadline for s in self.live() if s.request.deadline is not None]
        return min(deadlines, default=None)

    def step_was_aborted(self) -> None:
        """Try less at once: frequent cancels must not keep a long chunk from ever being done."""
        self._chunk = max(PAGE, self._chunk // 4)

    def step_was_completed(self) -> None:
        self._chunk = min(CHUNK, self._chunk * 2)

    def _span(self, sequence: Sequence, budget: int) -> Span | None:
        start = sequence.computed
        stop = len(sequence.tokens)
        if start < sequence.n_prompt:
            stop = min(stop, sequence.n_prompt)
        if sequence.pending > 1:
            stop = min(stop, start + budget, max(start, sequence.unread) + self._most_wanted)
        return Span(sequence, start, stop) if stop > start else None

    def _make_room(self, sequence: Sequence, n_tokens: int) -> bool:
        """Reserve pages, preempting the youngest until they are there; True if anyone was preempted."""
        preempted = False
        while sequence.running and not self._reserve(sequence, n_tokens):
            if sequence.running:
                youngest = max(self.running, key=lambda s: s.order)
                self._stop(youngest)
                self.waiting.appendleft(youngest)
                preempted = True
        return preempted

    def _reserve(self, sequence: Sequence, n_tokens: int) -> bool:
        try:
            return self._cache.reserve(sequence.table, n_tokens)
        except MemoryLimitError as error:
            self.end(sequence.request, error=error)
            return False

    def _admit(self, budget: int) -> list[Span]:
        """Start waiting sequences while rows and pages are left, but none whose prefix is being computed."""
        spans = []
        for sequence in list(self.waiting):
            if budget <= 0 or len(self.running) >= MOST_RUNNING:
                break
            cached = self._cache.attach(sequence.table, sequence.tokens, sequence.unread)
            if cached is None:
                continue
            self._start(sequence, cached)
            span = self._span(sequence, budget)
            room = self._cache.has_room(sequence.table, len(sequence.tokens))
            if span and (room or len(self.running) == 1) and self._reserve(sequence, span.stop):
                spans.append(span)
                budget -= span.stop - span.start
            elif sequence.running:
                self._stop(sequence)
                self.waiting.appendleft(sequence)
                break
        return spans

    def _start(self, sequence: Sequence, cached: int) -> None:
        self.waiting.remove(sequence)
        self.running.append(sequence)
        sequence.running = True
        sequence.computed = cached
        if sequence.started is None:
            sequence.started = time.monotonic()
            sequence.cached = cached

    def _stop(self, sequence: Sequence) -> None:
        """Give up pages; what they held is found again by its hash, or computed again."""
        self._cache.release(sequence.table)
        self.running.remove(sequence)
        sequence.running = False
        sequence.computed = 0
