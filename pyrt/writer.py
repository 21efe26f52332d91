"""What becomes of one choice's logits: the next token, its text, and when to stop."""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from pyrt.options import Samplers, SamplingParams
from pyrt.results import Choice, Chunk, TokenLogprob
from pyrt.sampling import choose, likeliest
from pyrt.schedule import Row
from pyrt.stops import StopMatcher


class Detokenizer(Protocol):
    """Turns ids into text piece by piece; a piece never ends inside a character."""

    def push(self, token: int) -> str: ...
    def finish(self) -> str: ...


class Vocabulary(Protocol):
    """What generation asks of a tokenizer."""

    bos_id: int | None
    eos_ids: Any

    def decode(
        self, ids: Sequence[int], skip_special_tokens: bool = True, *, continues: bool = False
    ) -> str: ...
    def detokenizer(self, *, continues: bool = False) -> Detokenizer: ...


class Writer:
    """Reads the logits of one choice and writes its text: the Reader of a generating sequence.

    most: tokens at most; ``fills``: with them the context is full. chunks: where pieces of text go.
    continues: whether the text goes on where the prompt ends, so that a space in between belongs to it.
    """

    def __init__(
        self,
        index: int,
        vocabulary: Vocabulary,
        params: SamplingParams,
        samplers: Samplers,
        most: int,
        fills: bool,
        n_vocab: int,
        chunks: deque[Chunk],
        continues: bool = True,
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
        self._why_length = "context_length" if fills and most != params.max_tokens else None
        self._chunks = chunks
        self._n_prompt: int | None = None
        self._detokenizer = vocabulary.detokenizer(continues=continues)
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
            self._end("length", self._why_length)
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
            self._end("length", self._why_length, text)
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
        return self._vocabulary.decode([token], skip_special_tokens=False, continues=True)
