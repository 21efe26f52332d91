"""The top-level calls, `pyrt.generate("...")` and so on: they keep the last model until `unload`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from pyrt import loading, options

if TYPE_CHECKING:  # what a model needs is imported while its weights are packed
    from pyrt.model import Messages, Model, Prompt
    from pyrt.perplexity import Perplexity
    from pyrt.results import Completion
    from pyrt.streams import Stream

    ModelLike = Model | str | os.PathLike[str] | None

_LOAD = tuple(loading.load.__kwdefaults__ or ())
_CALL = ("params", "chat_template_kwargs")

_lock = threading.Lock()
_kept: tuple[Any, Model] | None = None


def generate(
    prompt: Prompt | list[Prompt], model: ModelLike = None, **kwargs: Any
) -> Completion | list[Completion]:
    """`Model.generate` on a model that is loaded when it is not the one of the last call.

    model: what `load` takes, or a Model. Keywords are those of `load` and of SamplingParams.
    """
    chosen, rest = _model(model, kwargs)
    return chosen.generate(prompt, **rest)  # type: ignore[arg-type]


def stream(prompt: Prompt, model: ModelLike = None, **kwargs: Any) -> Stream:
    """`Model.stream`; see `generate` for the model and the keywords."""
    chosen, rest = _model(model, kwargs)
    return chosen.stream(prompt, **rest)


def chat(messages: Messages, model: ModelLike = None, **kwargs: Any) -> Completion:
    """`Model.chat`; see `generate` for the model and the keywords."""
    chosen, rest = _model(model, kwargs)
    return chosen.chat(messages, **rest)


def chat_stream(messages: Messages, model: ModelLike = None, **kwargs: Any) -> Stream:
    """`Model.chat_stream`; see `generate` for the model and the keywords."""
    chosen, rest = _model(model, kwargs)
    return chosen.chat_stream(messages, **rest)


def perplexity(
    text: str,
    model: ModelLike = None,
    *,
    n_ctx: int = 512,
    windows: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    **for_load: Any,
) -> Perplexity:
    """`pyrt.perplexity.perplexity` on a model as in `generate`; the other keywords are those of `load`."""
    from pyrt.perplexity import check
    from pyrt.perplexity import perplexity as measure

    check(n_ctx, windows, on_progress)
    chosen, _ = _model(model, options.canonical(for_load, _LOAD, loading.ALIASES))
    return measure(chosen, text, n_ctx=n_ctx, windows=windows, on_progress=on_progress)


def unload() -> None:
    """Let go of the model that the top-level calls keep; calls in flight still end well."""
    global _kept
    with _lock:
        _kept = None


def _model(model: ModelLike, kwargs: Mapping[str, Any]) -> tuple[Model, dict[str, Any]]:
    """The model to use, and the keywords that are not for `load`."""
    known = (*_LOAD, *_CALL, *options.FIELDS)
    named = options.canonical(kwargs, known, {**loading.ALIASES, **options.ALIASES})
    for_load = {name: value for name, value in named.items() if name in _LOAD}
    rest = {name: value for name, value in named.items() if name not in _LOAD}
    if loading.is_loaded(model):
        if for_load:
            raise TypeError(f"{next(iter(for_load))} is for loading, but the model is loaded already")
        return cast("Model", model), rest
    options.make_params(rest.get("params"), {name: v for name, v in rest.items() if name not in _CALL})
    return _load(cast("str | os.PathLike[str] | None", model), for_load), rest


def _load(model: str | os.PathLike[str] | None, for_load: dict[str, Any]) -> Model:
    global _kept
    key = (model and os.fspath(model), {name: v for name, v in for_load.items() if name != "on_progress"})
    with _lock:
        if _kept is None or _kept[0] != key:
            _kept = None  # not closed: another thread may be in the middle of a call
            _kept = (key, loading.load(model, **for_load))
        return _kept[1]
