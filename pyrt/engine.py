"""One engine for all callers of a model: their rows join one step, and one of the callers drives it.

Callers on any thread submit requests and wait for them. The first who waits becomes the driver: it plans a
step, runs it with the GIL free, hands the logits to the readers, and wakes those with news. When its own
request is done it passes the wheel to another waiting caller, so that an idle model owns no thread.
Cancelling sets a flag which the core reads between tiles; the step's rows are then simply run again without
the cancelled ones.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable
from itertools import repeat

import numpy as np

from pyrt import _core
from pyrt.errors import Cancelled
from pyrt.interrupt import Shield
from pyrt.kv import PagedCache
from pyrt.schedule import Request, Row, Scheduler, Span

Ready = Callable[[], bool]


class Engine:
    """Runs requests. Thread-safe: submit, wait, cancel and close may be called from anywhere.

    ``_lock`` guards the inbox, ``_driving`` and the parked callers. Everything else (scheduler, cache,
    runner) belongs to the driver, who works without the lock.
    """

    def __init__(self, runner: _core.Runner, cache: PagedCache, n_vocab: int) -> None:
        self.runner = runner
        self.cache = cache
        self._scheduler = Scheduler(cache, n_vocab, runner.numerics == "fast")
        self._flag = _core.CancelFlag()
        self._lock = threading.Lock()
        self._left = threading.Condition(self._lock)  # the driver has stepped down
        self._inbox: list[Request] = []
        self._driver: int | None = None  # the thread that drives
        self._parked: list[tuple[Request, Ready, threading.Condition]] = []
        self._unattended: list[Request] = []
        self._closed: str | None = None
        self._warned = False

    def submit(self, request: Request) -> None:
        """Put a request in; it runs when anyone drives. MemoryLimitError if it could never be held."""
        self.cache.check_fits(request.most_tokens)
        with self._lock:
            self._refuse_if_closed()
            self._inbox.append(request)

    def wait(self, request: Request, ready: Ready) -> None:
        """Return when ``ready()`` or the request is over; drive meanwhile, unless someone else does."""
        with Shield() as shield, self._lock:
            self._refuse_driver()
            try:
                while not (ready() or request.over):
                    self._refuse_if_closed()
                    if self._driver is not None:
                        self._park(request, ready, shield)
                    else:
                        self._drive(request, ready, shield)
            finally:
                self._pass_on()

    def drive_in_background(self, request: Request) -> None:
        """Let a thread of the engine's own wait for requests that no caller's thread waits for (asyncio)."""
        with self._lock:
            self._unattended.append(request)
            if len(self._unattended) > 1:
                return
        threading.Thread(target=self._attend, name="pyrt").start()

    def cancel(self, request: Request) -> None:
        """End a request soon (within a tile of the running step). Never blocks: finalizers call it too."""
        request.cancelled = True
        self._flag.set()
        if self._driver is None and self._lock.acquire(blocking=False):
            try:
                if self._driver is None:
                    self._collect()
                    self._scheduler.end_cancelled()
            finally:
                self._lock.release()

    def close(self, reason: str = "the model was closed") -> None:
        """Cancel everything; waiting callers get Cancelled. Returns when no step is running any more."""
        with self._lock:
            self._refuse_driver()
            self._closed = reason
            self._flag.set()
            while self._driver is not None:
                self._left.wait()
            self._collect()
            for request in {sequence.request for sequence in self._scheduler.live()}:
                self._scheduler.end(request, error=Cancelled(reason))
            self._wake(set())

    def abandon(self, reason: str) -> None:
        """After a fork, in the child: this engine's threads stayed behind, so it can only refuse."""
        self._closed = reason
        self._lock = threading.Lock()
        self._driver = None
        self._parked, self._unattended = [], []

    def _attend(self) -> None:
        while True:
            with self._lock:
                self._unattended = [request for request in self._unattended if not request.over]
                if not self._unattended:
                    return
                request = self._unattended[0]
            try:
                self.wait(request, ready=lambda: False)
            except BaseException as error:  # nobody is above to catch it: whoever awaits the request is told
                request.error = request.error or error
                if request.listener is not None:
                    request.listener()

    # --- the wheel ----------------------------------------------------------------------------------------

    def _park(self, request: Request, ready: Ready, shield: Shield) -> None:
        me = (request, ready, threading.Condition(self._lock))
        self._parked.append(me)
        try:
            with shield.lifted():
                me[2].wait()
        finally:
            self._parked.remove(me)

    def _drive(self, request: Request, ready: Ready, shield: Shield) -> None:
        self._driver = threading.get_ident()
        try:
            while not (ready() or request.over or self._closed):
                self._flag.clear()  # before looking at request.cancelled: a later cancel sets it again
                self._collect()
                self._lock.release()
                try:
                    touched = self._step(shield)
                finally:
                    self._lock.acquire()
                self._wake(touched)
        finally:
            self._driver = None
            self._left.notify_all()

    def _collect(self) -> None:
        for request in self._inbox:
            self._scheduler.add(request)
        self._inbox.clear()

    def _wake(self, touched: set[Request]) -> None:
        for request, ready, parked in self._parked:
            if ready() or request.over:
                parked.notify()
        for request in touched | self._scheduler.ended:
            if request.listener is not None:
                request.listener()
        self._scheduler.ended.clear()

    def _pass_on(self) -> None:
        if self._driver is None and self._parked:
            self._parked[0][2].notify()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise Cancelled(self._closed)

    def _refuse_driver(self) -> None:
        if self._driver == threading.get_ident():
            raise RuntimeError("a callback of a request cannot use the model that calls it")

    # --- the step -----------------------------------------------------------------------------------------

    def _step(self, shield: Shield) -> set[Request]:
        """Plan, compute, deliver; returns the requests that may have news."""
        self._scheduler.end_cancelled()
        spans = self._scheduler.plan()
        self._attempt(spans, shield)
        return {span.sequence.request for span in spans}

    def _attempt(self, spans: list[Span], shield: Shield) -> None:
        """Compute and deliver; an error in a step of several is pinned on those who fail alone too."""
        spans = [span for span in spans if span.sequence.running]
        if not spans:
            return
        try:
            with shield.lifted():
                result = self._forward(spans)
        except _core.Cancelled:
            self._scheduler.step_was_aborted()
            return
        except Exception as error:
            if len(spans) == 1:
                self._scheduler.end(spans[0].sequence.request, error=error)
            else:
                for span in spans:
                    self._attempt([span], shield)
            return
        self._scheduler.step_was_completed()
        self._report_saturation(result.saturated)
        self._deliver(spans, result)

    def _forward(self, spans: list[Span]) -> _core.StepResult:
        tokens, positions, sequences, wanted = array("i"), array("i"), array("i"), bytearray()
        for row, span in enumerate(spans):
            tokens += span.sequence.tokens[span.start : span.stop]
            positions.extend(range(span.start, span.stop))
            sequences.extend(repeat(row, span.stop - span.start))
            wanted += bytes(span.first_wanted - span.start) + b"\1" * (span.stop - span.first_wanted)
        return self.runner.step(
            np.frombuffer(tokens, np.int32),
            np.frombuffer(positions, np.int32),
            np.frombuffer(sequences, np.int32),
            np.frombuffer(wanted, np.uint8),
            self._tables(spans),
            self._flag,
            self._scheduler.first_deadline(),
            sum(span.stop - span.start for span in spans if span.of_prompt),
        )

    def _tables(self, spans: list[Span]) -> list[np.ndarray]:
        width = max(span.sequence.table.length for span in spans)
        tables = []
        for group in range(len(self.cache.pools)):
            rows = array("i")
            for span in spans:
                pages = span.sequence.table.pages[group][:width]
                rows += pages
                rows.extend(repeat(-1, width - len(pages)))
            tables.append(np.frombuffer(rows, np.int32).reshape(len(spans), width))
        return tables

    def _deliver(self, spans: list[Span], result: _core.StepResult) -> None:
        row = 0
        for span in spans:
            first, row = row, row + span.stop - span.first_wanted
            sequence = span.sequence
            if not sequence.running:  # a sibling in this step failed the request
                continue
            self.cache.commit(sequence.table, sequence.tokens, span.start, span.stop)
            sequence.computed = span.stop
            try:
                self._read(span, result, first)
            except Exception as error:
                self._scheduler.end(sequence.request, error=error)

    def _report_saturation(self, count: int) -> None:
        if count and not self._warned:
            import logging

            self._warned = True
            logging.getLogger("pyrt").warning(
                "%d keys or values were beyond float16 and were cut to its range; kv_dtype='f32' holds them",
                count,
            )

    def _read(self, span: Span, result: _core.StepResult, row: int) -> None:
        sequence = span.sequence
        report = sequence.request.on_progress
        if report is not None and span.start < sequence.n_prompt:
            report(min(span.stop, sequence.n_prompt), sequence.n_prompt)
        token = None
        for position in range(span.first_wanted, span.stop):
            logits = Row(result.logits[row], result.block_max[row], float(result.logsumexp[row]))
            token = sequence.reader.read(sequence.tokens, position, logits)
            sequence.unread = position + 1
            row += 1
        if span.stop == len(sequence.tokens):
            if token is None:
                self._scheduler.finish(sequence)
            else:
                sequence.tokens.append(token)
