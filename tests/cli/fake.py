"""A model that says what it is told to: the commands are tested against it, without weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from pyrt.errors import TemplateError
from pyrt.results import Choice, Chunk, Completion, Timings, Usage


class FakeStream:
    """Yields pieces; an exception among them is raised."""

    def __init__(self, pieces: list[Any], finish: str) -> None:
        self._chunks = self._run(pieces, finish)
        self.closed = False

    def _run(self, pieces: list[Any], finish: str) -> Iterator[Chunk]:
        text = ""
        for piece in pieces:
            if isinstance(piece, BaseException):
                raise piece
            text += piece
            yield Chunk(piece)
        choice = Choice(0, text, list(range(len(pieces))), finish)
        timings = Timings(0.0, 0.25, 0.5, 40.0, 20.0)
        completion = Completion((choice,), 7, Usage(10, len(pieces), 3), timings, "exact")
        yield Chunk("", finish_reason=finish, completion=completion)

    def __iter__(self) -> FakeStream:
        return self

    def __next__(self) -> Chunk:
        return next(self._chunks)

    def __enter__(self) -> FakeStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


@dataclass
class FakeModel:
    """``answers``: the pieces of each coming answer. ``asked`` and ``options`` keep what was asked."""

    answers: list[list[Any]] = field(default_factory=lambda: [["Hello", " world"]])
    finish: str = "stop"
    template: str | None = "x"
    asked: list[Any] = field(default_factory=list)
    options: list[dict[str, Any]] = field(default_factory=list)
    loaded: dict[str, Any] = field(default_factory=dict)
    streams: list[FakeStream] = field(default_factory=list)
    closed: bool = False

    @property
    def tokenizer(self) -> Any:
        return SimpleNamespace(chat_template=self.template)

    def load(self, model: Any = None, **options: Any) -> FakeModel:
        self.loaded = {"model": model, **options}
        return self

    def stream(self, prompt: Any, on_progress: Any = None, **options: Any) -> FakeStream:
        self.asked.append(prompt)
        self.options.append(options)
        on_progress(1, 1)
        self.streams.append(FakeStream(self.answers.pop(0), self.finish))
        return self.streams[-1]

    def chat_stream(self, messages: Any, **options: Any) -> FakeStream:
        if self.template is None:
            raise TemplateError("the model has no chat template")
        return self.stream(list(messages), **options)

    def __enter__(self) -> FakeModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True
