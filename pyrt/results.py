"""What a request gives back; nothing about it is silent."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class TokenLogprob:
    """Natural log-probability of a token under the model's raw logits.

    top: as many of the likeliest tokens here as were asked for, (id, text, logprob), likeliest first.
    """

    id: int
    text: str
    logprob: float
    top: tuple[tuple[int, str, float], ...] = ()


@dataclass(frozen=True)
class Usage:
    """Tokens. cached_tokens: those of the prompt whose K and V were already there."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Timings:
    """Seconds, and tokens per second.

    queue: from the call to the first step. prefill: until the first token; prefill_tps counts the prompt
    tokens computed (not the cached ones). decode: from the first token to the last; decode_tps counts what
    came in it, all choices together. 0.0 where nothing ran.
    """

    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float
    prefill_tps: float
    decode_tps: float

    @property
    def first_token_seconds(self) -> float:
        return self.queue_seconds + self.prefill_seconds

    @property
    def seconds(self) -> float:
        return self.queue_seconds + self.prefill_seconds + self.decode_seconds


@dataclass(frozen=True)
class Choice:
    """One of a request's n continuations.

    tokens: every generated id, an end token included; text has neither end tokens nor the stop string.
    finish_reason: "stop" (end token, stop id or stop string), "length" (max_tokens or the end of the
    context) or "cancelled" (the deadline passed). stop_reason: the stop string or stop id that ended it,
    "deadline", or "context_length" where the context was full before max_tokens.
    """

    index: int
    text: str
    tokens: list[int]
    finish_reason: str
    stop_reason: str | int | None = None
    logprobs: list[TokenLogprob] | None = None


@dataclass(frozen=True)
class Completion:
    """The answer to one prompt. ``text``, ``tokens`` and so on are those of the first choice.

    seed: what drew the tokens, given or not. numerics: the arithmetic that ran. truncated_tokens: prompt
    tokens that `truncate` cut. prompt_logprobs: one for each id of the prompt, None for the first.
    """

    choices: tuple[Choice, ...]
    seed: int
    usage: Usage
    timings: Timings
    numerics: str
    truncated_tokens: int = 0
    prompt_logprobs: list[TokenLogprob | None] | None = None

    @property
    def text(self) -> str:
        return self.choices[0].text

    @property
    def tokens(self) -> list[int]:
        return self.choices[0].tokens

    @property
    def finish_reason(self) -> str:
        return self.choices[0].finish_reason

    @property
    def stop_reason(self) -> str | int | None:
        return self.choices[0].stop_reason

    @property
    def logprobs(self) -> list[TokenLogprob] | None:
        return self.choices[0].logprobs

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Chunk:
    """A piece of a stream: whole characters, never the beginning of a stop string.

    index: which choice. tokens: the ids since the last chunk. finish_reason: in a choice's last chunk.
    completion: everything, in the very last chunk.
    """

    text: str
    index: int = 0
    tokens: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    logprobs: list[TokenLogprob] | None = None
    completion: Completion | None = None
