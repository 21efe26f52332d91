"""A model with its flags, and an answer streamed to stdout: what ``run`` and ``chat`` share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyrt.cli.console import Bars, UsageError, given, note
from pyrt.cli.parser import LOADING, SAMPLING
from pyrt.errors import TemplateError

if TYPE_CHECKING:
    from pyrt.model import Model
    from pyrt.results import Completion
    from pyrt.streams import Stream


def load(args: argparse.Namespace, bars: Bars, **more: Any) -> Model:
    """The model that the flags ask for."""
    import pyrt

    return pyrt.load(args.model, **{**loading(args), **more}, on_progress=bars)


def loading(args: argparse.Namespace) -> dict[str, Any]:
    """The flags of loading, checked before anything is read. Raises UsageError."""
    from pyrt.loading import check

    fields = given(args, LOADING)
    counts = fields.get("threads")
    with _usage():
        for threads in counts if isinstance(counts, list) else [counts]:  # `bench` takes several
            check({**fields, "threads": threads})
    return fields


def sampling(args: argparse.Namespace) -> dict[str, Any]:
    """The sampling flags, checked before a model is loaded. Raises UsageError."""
    from pyrt.options import SamplingParams

    fields = given(args, SAMPLING)
    with _usage():
        SamplingParams(**fields)
    return fields


@contextmanager
def _usage() -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from error


def write(text: str) -> None:
    """Text to stdout at once: a reader at the other end of a pipe sees each token when it is made."""
    if text:
        sys.stdout.write(text)
        sys.stdout.flush()


def say(stream: Stream, bars: Bars, said: list[str] | None = None) -> Completion:
    """Stream an answer to stdout and end its line; the completion.

    ``said`` gets the text piece by piece, as far as it came. Ctrl-C cancels the request and is raised.
    """
    last = "\n"
    completion: Completion | None = None
    try:
        with stream:
            for chunk in stream:
                if chunk.text:
                    bars.close()
                    write(chunk.text)
                    last = chunk.text[-1]
                    if said is not None:
                        said.append(chunk.text)
                completion = chunk.completion or completion
    finally:
        bars.close()
        if last != "\n":
            write("\n")
    assert completion is not None
    return completion


def remark(completion: Completion, verbose: bool) -> None:
    """What stdout does not tell: that the answer was cut off, and with ``verbose`` what it took."""
    if completion.finish_reason == "length":
        full = completion.stop_reason == "context_length"
        limit = "the context is full" if full else "-n sets the limit"
        note(f"[cut off after {completion.usage.completion_tokens} tokens; {limit}]")
    if verbose:
        usage, times = completion.usage, completion.timings
        note(
            f"[prompt {usage.prompt_tokens} tokens, {usage.cached_tokens} cached, {times.prefill_tps:.1f}/s; "
            f"first token after {times.first_token_seconds:.3f} s; "
            f"answer {usage.completion_tokens} tokens, {times.decode_tps:.1f}/s; "
            f"{completion.finish_reason}; seed {completion.seed}; {completion.numerics}]"
        )


def without_template(model: Model, error: TemplateError) -> TemplateError:
    """``error``, with the way out where the model has no template at all."""
    if model.tokenizer.chat_template is not None:
        return error
    return TemplateError(f"{error}; `pyrt run --raw` continues text without one")
