"""A job's chunks as they come: a plain iterator, and the same for asyncio."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from pyrt.results import Chunk, Completion

if TYPE_CHECKING:
    from pyrt.engine import Engine
    from pyrt.generate import Job


class Stream(Iterator[Chunk]):
    """Chunks of one completion. Closing it, leaving its ``with`` block or forgetting it cancels.

    One thread at a time may read it, RuntimeError else; any may close it.
    """

    def __init__(self, engine: Engine, job: Job) -> None:
        self._job = job
        self._chunks = _chunks(engine, job)
        self._closed = False
        self._reading = threading.Lock()

    def __next__(self) -> Chunk:
        if self._closed:
            raise StopIteration
        if not self._reading.acquire(blocking=False):
            raise RuntimeError("one thread at a time can read a stream, and another is reading this one")
        try:
            return next(self._chunks)
        except BaseException:
            self._job.cancel()
            raise
        finally:
            self._reading.release()

    def close(self) -> None:
        self._closed = True
        self._job.cancel()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self._job.cancel()


def _chunks(engine: Engine, job: Job) -> Iterator[Chunk]:
    while not job.request.over:
        engine.wait(job.request, ready=lambda: bool(job.chunks))
        yield from job.drain()
    yield from job.last_chunks()


async def async_wait(engine: Engine, jobs: list[Job]) -> list[Completion]:
    """The completions of submitted jobs. Cancelling the task cancels them."""
    try:
        for job in jobs:
            async for _ in _news(engine, job):
                pass
        return [job.completion() for job in jobs]
    finally:
        for job in jobs:
            job.cancel()


async def async_stream(engine: Engine, job: Job) -> AsyncIterator[Chunk]:
    """The chunks of a submitted job. Closing the generator or cancelling the task cancels it."""
    try:
        async for _ in _news(engine, job):
            for chunk in job.drain():
                yield chunk
        for chunk in job.last_chunks():
            yield chunk
    finally:
        job.cancel()


async def _news(engine: Engine, job: Job) -> AsyncIterator[None]:
    """Yields whenever the job may have news, until it is over; the engine's own thread drives it."""
    import asyncio

    loop = asyncio.get_running_loop()
    news = asyncio.Event()

    def listener() -> None:
        with suppress(RuntimeError):  # the loop was closed with the request still running: nobody listens
            loop.call_soon_threadsafe(news.set)

    job.request.listener = listener
    engine.drive_in_background(job.request)
    while not job.request.over:
        await news.wait()
        news.clear()
        yield
