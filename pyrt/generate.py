"""From a prompt to text: one `Job` is a request on its way through the engine, and what its tokens become."""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from pyrt.engine import Engine
from pyrt.errors import ContextLengthError
from pyrt.options import Samplers, SamplingParams
from pyrt.results import Choice, Chunk, Completion, Timings, TokenLogprob, Usage
from pyrt.sampling import choose, likeliest
from pyrt.schedule import Request, Row
from pyrt.schedule import Sequence as TokenSequence
from pyrt.stops import StopMatcher


class Detokenizer(Protocol):
    """Turns ids into text piece by piece; a piece never ends inside a character."""

    def push(self, token: int) -> str: ...
    def finish(self) -> str: ...


class Vocabulary(Protocol):
    """What generation asks of a tokenizer."""

    eos_ids: Any

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str: ...
    def detokenizer(self) -> Detokenizer: ...


class Job:
    """One prompt's request: submit, wait or stream, then `completion`.

    Raises ValueError for an empty prompt or ids out of range, ContextLengthError for a prompt that is too
    long.
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
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._began = time.monotonic()
        self._engine = engine
        self._params = params
        self.seed = samplers.seed
        check_ids(prompt, n_vocab)
        prompt, self._truncated = fit(prompt, params, n_ctx)
        room = n_ctx - len(prompt)
        most = room if params.max_tokens is None else min(params.max_tokens, room)
        deadline = None if params.deadline is None else self._began + params.deadline
        self.chunks: deque[Chunk] = deque()
        self.request = Request(deadline=deadline, most_tokens=len(prompt) + most)
        self.request.on_progress = on_progress
        self._writers = [
            Writer(index, vocabulary, params, samplers, most, n_vocab, self.chunks)
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


class Writer:
    """Reads the logits of one choice and writes its text: the Reader of a generating sequence."""

    def __init__(
        self,
        index: int,
        vocabulary: Vocabulary,
        params: SamplingParams,
        samplers: Samplers,
        most: int,
        n_vocab: int,
        chunks: deque[Chunk],
    ) -> None:
        self.index = index
        self.tokens: list[int] = []
        self.times: list[float] = []  # of the first token and of the last
        self.last: Chunk | None = None  # the chunk that ends the text; not among the other chunks
        self.prompt_logprobs: list[TokenLogprob | None] | None = None
        self._vocabulary = vocabulary
        self._params = params
        self._samplers = samplers
        self._most = most
        self._chunks = chunks
        self._n_prompt: int | None = None
        self._detokenizer = vocabulary.detokenizer()
        self._matcher = StopMatcher(params.stop or ())
        self._stop_ids = frozenset(params.stop_token_ids or ())
        self._eos_ids = frozenset() if params.ignore_eos else frozenset(vocabulary.eos_ids)
        ends = sorted(token for token in self._stop_ids | self._eos_ids if token < n_vocab)
        self._ends = np.array(ends, np.int64)
        self._pieces: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._told = 0  # tokens that chunks have told of
        self._finish: tuple[str, str | int | None] | None = None

    def read(self, tokens: array[int], position: int, row: Row) -> int | None:
        if self._n_prompt is None:
            self._n_prompt = len(tokens)
        if self._params.prompt_logprobs is not None and self.index == 0 and position < self._n_prompt:
            self._report_prompt(tokens, position, row)
        if position < len(tokens) - 1:
            return None
        if self._most == 0:
            self._end("length")
            return None
        token = self._choose(tokens, row)
        self.tokens.append(token)
        self.times[1:] = [time.monotonic()]
        self._write(token)
        return None if self._finish else token

    def end(self, ended: str | None) -> None:
        """Close the text of a choice that the request's end cut short."""
        if self._finish is None:
            self._end("cancelled", ended)

    def choice(self) -> Choice:
        assert self._finish is not None
        logprobs = None if self._params.logprobs is None else self._logprobs
        return Choice(self.index, "".join(self._pieces), self.tokens, *self._finish, logprobs)

    def _choose(self, tokens: array[int], row: Row) -> int:
        assert self._n_prompt is not None
        banned = self._ends if len(self.tokens) < self._params.min_tokens else self._ends[:0]
        wanted = self._params.logprobs
        raw = row if wanted is None else Row(row.logits.copy(), row.block_max.copy(), row.logsumexp)
        token = choose(row.logits, row.block_max, tokens, self._n_prompt, self._samplers, banned, self.index)
        if wanted is not None:
            self._logprobs.append(self._logprob(token, raw, wanted))
        return token

    def _write(self, token: int) -> None:
        if token in self._eos_ids or token in self._stop_ids:
            self._end("stop", token if token in self._stop_ids else None)
            return
        piece = self._detokenizer.push(token)
        if len(self.tokens) < self._params.min_tokens:
            text, stop = piece, None
        else:
            text, stop = self._matcher.push(piece)
        if stop is not None:
            self._say(text, ("stop", stop))
        elif len(self.tokens) >= self._most:
            self._end("length", text=text)
        elif text:
            self._say(text)

    def _end(self, reason: str, why: str | int | None = None, text: str = "") -> None:
        """Say ``text`` and what was held back, which may still complete a stop string."""
        rest, stop = self._matcher.push(self._detokenizer.finish())
        if stop is not None:
            self._say(text + rest, ("stop", stop))
        else:
            self._say(text + rest + self._matcher.finish(), (reason, why))

    def _say(self, text: str, finish: tuple[str, str | int | None] | None = None) -> None:
        self._pieces.append(text)
        new = slice(self._told, len(self.tokens))
        self._told = len(self.tokens)
        logprobs = self._logprobs[new] if self._params.logprobs is not None else None
        chunk = Chunk(text, self.index, self.tokens[new], finish[0] if finish else None, logprobs)
        if finish is None:
            self._chunks.append(chunk)
        else:
            self._finish = finish
            self.last = chunk

    def _report_prompt(self, tokens: array[int], position: int, row: Row) -> None:
        if self.prompt_logprobs is None:
            self.prompt_logprobs = [None]
        if position + 1 < len(tokens) and self._params.prompt_logprobs is not None:
            self.prompt_logprobs.append(
                self._logprob(tokens[position + 1], row, self._params.prompt_logprobs)
            )

    def _logprob(self, token: int, row: Row, n: int) -> TokenLogprob:
        top = likeliest(row.logits, row.block_max, row.logsumexp, n)
        return TokenLogprob(
            token,
            self._text(token),
            float(row.logits[token]) - row.logsumexp,
            tuple((each, self._text(each), logprob) for each, logprob in top),
        )

    def _text(self, token: int) -> str:
        return self._vocabulary.decode([token], skip_special_tokens=False)


def check_ids(prompt: Sequence[int], n_vocab: int) -> None:
    """ValueError for an empty prompt or an id that the model does not have."""
    if not len(prompt):
        raise ValueError("the prompt is empty: there is no token to continue from")
    for token in (min(prompt), max(prompt)):
        if not 0 <= token < n_vocab:
            raise ValueError(
                f"the prompt has token id {token}, but the vocabulary has {n_vocab} ids (from 0)"
            )


def fit(prompt: Sequence[int], params: SamplingParams, n_ctx: int) -> tuple[Sequence[int], int]:
    """The prompt as it goes in, and how many tokens `truncate` cut so that the answer has room too.

    "left" drops the oldest tokens, "middle" those in the middle; the answer is left max_tokens or half of
    the context, whichever is less. Without `truncate`, a prompt longer than the context is a
    ContextLengthError.
    """
    wanted = n_ctx if params.max_tokens is None else params.max_tokens
    keep = n_ctx - min(wanted, n_ctx // 2)
    cut = len(prompt) - keep
    if params.truncate is None or cut <= 0:
        if len(prompt) > n_ctx:
            raise ContextLengthError(len(prompt), n_ctx)
        return prompt, 0
    head = keep // 2 if params.truncate == "middle" else 0
    return [*prompt[:head], *prompt[len(prompt) - (keep - head) :]], cut
