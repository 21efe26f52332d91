"""From a prompt to text: one `Job` is a request on its way through the engine, and what comes of it."""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from pyrt.engine import Engine
from pyrt.errors import ContextLengthError
from pyrt.options import Samplers, SamplingParams
from pyrt.results import Chunk, Completion, Timings, Usage
from pyrt.schedule import Request
from pyrt.schedule import Sequence as TokenSequence
from pyrt.writer import Vocabulary, Writer


class Job:
    """One prompt's request: submit, wait or stream, then `completion`.

    Raises ValueError for an empty prompt or ids out of range, ContextLengthError for too long a prompt.
    """

    def __init__(
        self,
        engine: Engine,
        vocabulary: Vocabulary,
        prompt: Sequence[int],
        params: SamplingParams,
        samplers: Samplers,
        *,
        n_ctx: int,
        n_vocab: int,
        continues: bool = True,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._began = time.monotonic()
        _check_ids("logit_bias", params.logit_bias or (), n_vocab)
        _check_ids("stop_token_ids", params.stop_token_ids or (), n_vocab)
        self._engine = engine
        self.seed = samplers.seed
        prompt, self._truncated = fit(token_ids(prompt, n_vocab), params, n_ctx, vocabulary.bos_id)
        room = n_ctx - len(prompt)
        most = room if params.max_tokens is None else min(params.max_tokens, room)
        deadline = None if params.deadline is None else self._began + params.deadline
        self.chunks: deque[Chunk] = deque()
        self.request = Request(deadline=deadline, most_tokens=len(prompt) + most)
        self.request.on_progress = on_progress
        self._writers = [
            Writer(index, vocabulary, params, samplers, most, most == room, n_vocab, self.chunks, continues)
            for index in range(params.n)
        ]
        for writer in self._writers:
            wants_prompt = params.prompt_logprobs is not None and writer.index == 0
            self.request.add(prompt, 0 if wants_prompt else len(prompt) - 1, writer)
        self._completion: Completion | None = None

    def submit(self) -> Job:
        self._engine.submit(self.request)
        return self

    def cancel(self) -> None:
        """End it soon; safe at any time, from any thread."""
        if not self.request.over:
            self._engine.cancel(self.request)

    def wait(self) -> Completion:
        """Block until the whole completion is there. An interrupt (Ctrl-C) cancels the request."""
        try:
            self._engine.wait(self.request, ready=lambda: False)
        finally:
            self.cancel()
        return self.completion()

    def drain(self) -> Iterator[Chunk]:
        """The chunks that are there now."""
        while self.chunks:
            yield self.chunks.popleft()

    def last_chunks(self) -> Iterator[Chunk]:
        """After the end: what is left, and each choice's last chunk, the very last with the completion."""
        yield from self.drain()
        completion = self.completion()
        *others, last = [writer.last for writer in self._writers if writer.last is not None]
        yield from others
        yield replace(last, completion=completion)

    def completion(self) -> Completion:
        """The result of a request that is over. Raises what ended it, if it was an error."""
        if self.request.error is not None:
            raise self.request.error
        if self._completion is None:
            for writer in self._writers:
                writer.end(self.request.ended)
            first = self.request.sequences[0]
            generated = sum(len(writer.tokens) for writer in self._writers)
            self._completion = Completion(
                choices=tuple(writer.choice() for writer in self._writers),
                seed=self.seed,
                usage=Usage(first.n_prompt, generated, first.cached),
                timings=self._timings(first, generated),
                numerics=self._engine.runner.numerics,
                truncated_tokens=self._truncated,
                prompt_logprobs=self._writers[0].prompt_logprobs,
            )
        return self._completion

    def _timings(self, first: TokenSequence, generated: int) -> Timings:
        now = time.monotonic()
        started = first.started if first.started is not None else now
        times = [time for writer in self._writers for time in writer.times]
        begin, end = min(times, default=now), max(times, default=now)
        computed = first.n_prompt - first.cached if times else first.computed - first.cached
        later = generated - sum(bool(writer.times) for writer in self._writers)
        prefill, decode = begin - started, end - begin
        return Timings(
            queue_seconds=started - self._began,
            prefill_seconds=prefill,
            decode_seconds=decode,
            prefill_tps=max(computed, 0) / prefill if prefill > 0 else 0.0,
            decode_tps=later / decode if decode > 0 else 0.0,
        )


def token_ids(prompt: Sequence[int], n_vocab: int) -> array[int]:
    """The prompt as ids of the model. ValueError if it is empty or has an id that the model does not have."""
    try:
        if isinstance(prompt, bytes | bytearray | memoryview):
            raise TypeError
        listed = list(prompt)
        if bool in set(map(type, listed)):
            raise TypeError
        ids = array("i", listed)
    except TypeError:
        raise TypeError(f"a prompt is text or a list of token ids, not {prompt!r:.80}") from None
    except OverflowError:
        ids = array("i", [-1])
    if not ids:
        raise ValueError("the prompt is empty: there is no token to continue from")
    if min(ids) < 0 or max(ids) >= n_vocab:
        _check_ids("prompt", prompt, n_vocab)
    return ids


def _check_ids(name: str, ids: Iterable[int], n_vocab: int) -> None:
    for token in ids:
        if not 0 <= token < n_vocab:
            raise ValueError(
                f"{name}: token id {token} is not in the vocabulary, which ends at {n_vocab - 1}"
            )


def fit(prompt: array[int], params: SamplingParams, n_ctx: int, bos_id: int | None) -> tuple[array[int], int]:
    """The prompt as it goes in, and how many tokens `truncate` cut so that the answer has room too.

    "left" drops the oldest tokens but BOS, "middle" those in the middle; the answer is left max_tokens or
    half of the context, whichever is less. ContextLengthError for too long a prompt without `truncate`.
    """
    wanted = n_ctx if params.max_tokens is None else params.max_tokens
    keep = n_ctx - min(wanted, n_ctx // 2)
    cut = len(prompt) - keep
    if params.truncate is None or cut <= 0:
        if len(prompt) > n_ctx:
            raise ContextLengthError(len(prompt), n_ctx)
        return prompt, 0
    head = keep // 2 if params.truncate == "middle" else int(prompt[0] == bos_id)
    return prompt[:head] + prompt[head + cut :], cut
