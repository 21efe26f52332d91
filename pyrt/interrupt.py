"""Ctrl-C only where it can do no harm."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any


class Shield:
    """While active on the main thread, SIGINT waits until the block is left or the shield is lifted.

    A KeyboardInterrupt can come out of any line of Python. Whoever drives the engine keeps other callers'
    requests in
    order, so it may only be interrupted where it waits: inside the core's step, or for another driver.
    Whatever handler the program has set is the one that is called, a little later.
    """

    def __init__(self) -> None:
        self._handler: Any = None
        self._pending: tuple[int, FrameType | None] | None = None
        self._lifted = False

    def __enter__(self) -> Shield:
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):  # else ignored, default, or not ours to call
                self._handler = handler
                signal.signal(signal.SIGINT, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            self._deliver()

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Here the handler runs at once (and its KeyboardInterrupt leaves the block)."""
        self._lifted = True
        try:
            self._deliver()
            yield
        finally:
            self._lifted = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._pending = (number, frame)
        if self._lifted:
            self._deliver()

    def _deliver(self) -> None:
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._handler(*pending)
