"""`Model`: loaded weights, ready to generate. Immutable, thread-safe; everything goes through one engine."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from pyrt import _core, checks, scoring
from pyrt.config import ModelConfig
from pyrt.engine import Engine
from pyrt.errors import Cancelled, ContextLengthError, PyrtError
from pyrt.generate import Job, token_ids
from pyrt.kv import PagedCache, page_limits
from pyrt.memory import SEQUENCES, ModelInfo, RunOptions, kv_budget
from pyrt.options import SamplingParams, make_params
from pyrt.results import Chunk, Completion
from pyrt.streams import Stream, async_stream, async_wait

if TYPE_CHECKING:
    from pyrt.tokenizer import Tokenizer

Messages = str | Sequence[Mapping[str, Any]]
Prompt = str | Sequence[int]
OnProgress = Callable[[int, int], None]


class Model:
    """Made by `pyrt.load`. Use it from any thread or task; close it, or use it in a ``with`` block."""

    def __init__(
        self,
        core: _core.Model,
        tokenizer: Tokenizer,
        config: ModelConfig,
        defaults: Mapping[str, Any],
        run: RunOptions,
        path: Path,
        dtype: str = "auto",
    ) -> None:
        self.tokenizer = tokenizer
        self.config = config
        self.context_length = run.context_length
        self._core: _core.Model | None = core
        self._defaults = defaults
        self._run = run
        self._path = path
        self._dtype = dtype
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        _models.add(self)
        self._budget = kv_budget(core, run)
        self.engine  # noqa: B018  a wrong isa or too small a limit is an error of loading

    # --- generate -----------------------------------------------------------------------------------------

    @overload
    def generate(
        self,
        prompt: str | list[int],
        params: SamplingParams | None = None,
        *,
        on_progress: OnProgress | None = None,
        **options: Any,
    ) -> Completion: ...
    @overload
    def generate(
        self,
        prompt: Sequence[Prompt],
        params: SamplingParams | None = None,
        *,
        on_progress: OnProgress | None = None,
        **options: Any,
    ) -> list[Completion]: ...
    def generate(self, prompt: Any, params: Any = None, *, on_progress: Any = None, **options: Any) -> Any:
        """Continue a prompt (text or ids), or each of a list of them in one batch.

        Keywords are fields of SamplingParams, laid over ``params``. on_progress(done, total) is told of
        prompt tokens as they are computed. Raises what SamplingParams and `Job` raise.
        """
        params = make_params(params, options)
        if not is_batch(prompt):
            return self._job(prompt, params, on_progress).submit().wait()
        return self._wait([self._job(each, params, on_progress) for each in prompt])

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        on_progress: OnProgress | None = None,
        **options: Any,
    ) -> Stream:
        """Like generate, piece by piece. Closing the stream cancels."""
        job = self._job(prompt, make_params(params, options), on_progress).submit()
        return Stream(self.engine, job)

    def chat(
        self,
        messages: Messages,
        params: SamplingParams | None = None,
        *,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        on_progress: OnProgress | None = None,
        **options: Any,
    ) -> Completion:
        """Answer messages ([{"role": ..., "content": ...}], or one user message as a string).

        The model's own template is applied; TemplateError if there is none. The rest is as in generate.
        """
        prompt = self._render(messages, chat_template_kwargs)
        return self._job(prompt, make_params(params, options), on_progress, continues=False).submit().wait()

    def chat_stream(
        self,
        messages: Messages,
        params: SamplingParams | None = None,
        *,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        on_progress: OnProgress | None = None,
        **options: Any,
    ) -> Stream:
        """Like chat, piece by piece."""
        prompt = self._render(messages, chat_template_kwargs)
        job = self._job(prompt, make_params(params, options), on_progress, continues=False).submit()
        return Stream(self.engine, job)

    @overload
    async def agenerate(
        self, prompt: str | list[int], params: SamplingParams | None = None, **options: Any
    ) -> Completion: ...
    @overload
    async def agenerate(
        self, prompt: Sequence[Prompt], params: SamplingParams | None = None, **options: Any
    ) -> list[Completion]: ...
    async def agenerate(self, prompt: Any, params: Any = None, **options: Any) -> Any:
        """generate for asyncio: many tasks share one batch; cancelling the task cancels the request."""
        params = make_params(params, options)
        prompts = prompt if is_batch(prompt) else [prompt]
        jobs = [self._job(each, params) for each in prompts]
        results = await async_wait(self.engine, [job.submit() for job in jobs])
        return results if is_batch(prompt) else results[0]

    async def astream(
        self, prompt: Prompt, params: SamplingParams | None = None, **options: Any
    ) -> AsyncIterator[Chunk]:
        """stream for asyncio: ``async for chunk in model.astream(...)``."""
        job = self._job(prompt, make_params(params, options)).submit()
        async for chunk in async_stream(self.engine, job):
            yield chunk

    # --- score --------------------------------------------------------------------------------------------

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """float32[n_tokens, n_vocab]: row i is what the model says after tokens[: i + 1]."""
        return scoring.logits(self.engine, self._checked(tokens), self.n_vocab)

    def score(self, text: str | Sequence[int]) -> np.ndarray:
        """float64[n_tokens - 1]: the natural log-probability of each token but the first."""
        tokens = self.tokenizer.encode(text) if isinstance(text, str) else text
        return scoring.log_probabilities(self.engine, self._checked(tokens))

    def check_length(self, n_tokens: int) -> None:
        """ContextLengthError if so many tokens do not fit into the context."""
        if n_tokens > self.context_length:
            raise ContextLengthError(n_tokens, self.context_length)

    # --- about --------------------------------------------------------------------------------------------

    @property
    def n_vocab(self) -> int:
        return int(self.config.knobs["n_vocab"])

    @property
    def tensors(self) -> list[tuple[str, str, int, int, int]]:
        """(name, layout, rows, columns, bytes as packed) of each tensor, by the core's names."""
        return self._alive().tensors

    @property
    def info(self) -> ModelInfo:
        core, runner = self._alive(), self.engine.runner
        return ModelInfo(
            path=self._path,
            arch=self.config.arch,
            dtype=self._dtype,
            n_vocab=self.n_vocab,
            context_length=self.context_length,
            parameters=sum(
                rows * cols for name, _, rows, cols, _ in core.tensors if not name.startswith("rope.")
            ),
            packed_bytes=core.packed_bytes,
            kv_dtype=self._run.kv_dtype,
            kv_bytes_per_token=sum(pool.page_bytes for pool in self.engine.cache.pools)
            // _core.KvCache.PAGE_TOKENS,
            isa=runner.isa,
            threads=runner.threads,
            numerics=runner.numerics,
        )

    @property
    def engine(self) -> Engine:
        """What runs the requests of this process; a forked child makes its own over the same weights."""
        engine = self._engine
        if engine is None:
            with self._lock:
                engine = self._engine = self._engine or self._new_engine()
        return engine

    def close(self) -> None:
        """Cancel what runs and let go of weights and cache. Calls after it are a PyrtError."""
        with self._lock:
            engine, self._engine, self._core = self._engine, None, None
        if engine is not None:
            engine.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<pyrt.Model {self.config.arch} {self._path}{' closed' if self._core is None else ''}>"

    # --- inside -------------------------------------------------------------------------------------------

    def _alive(self) -> _core.Model:
        if self._core is None:
            raise PyrtError("this model is closed")
        return self._core

    def _new_engine(self) -> Engine:
        core, run = self._alive(), self._run
        cache = _core.KvCache(core, run.kv_dtype)
        runner = _core.Runner(core, cache, run.isa, run.threads, run.numerics == "fast")
        limits = page_limits(cache.groups, run.context_length, SEQUENCES, self._budget)
        salt = f"{runner.numerics} {run.kv_dtype}".encode()
        return Engine(runner, PagedCache(cache, limits, salt), self.n_vocab)

    def _refuse_more(self, reason: str) -> None:
        if self._engine is not None:
            self._engine.close(reason)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        if self._engine is not None:
            self._engine.abandon("the request belongs to the process that forked")
            _left_behind.append(self._engine)
            self._engine = None

    def _job(
        self,
        prompt: Prompt,
        params: SamplingParams,
        on_progress: OnProgress | None = None,
        *,
        continues: bool = True,
    ) -> Job:
        if isinstance(prompt, str) and not prompt:
            raise ValueError("the prompt is empty")
        checks.callback("on_progress", on_progress)
        return Job(
            self.engine,
            self.tokenizer,
            self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt,
            params,
            params.samplers(self._defaults),
            n_ctx=self.context_length,
            n_vocab=self.n_vocab,
            continues=continues,
            on_progress=on_progress,
        )

    def _wait(self, jobs: list[Job]) -> list[Completion]:
        try:
            for job in jobs:
                job.submit()
            return [job.wait() for job in jobs]
        finally:
            for job in jobs:
                job.cancel()

    def _render(self, messages: Messages, kwargs: Mapping[str, Any] | None) -> list[int]:
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        variables = {} if kwargs is None else checks.variables("chat_template_kwargs", kwargs)
        text = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, **variables)
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _checked(self, tokens: Sequence[int]) -> Sequence[int]:
        ids = token_ids(tokens, self.n_vocab)
        self.check_length(len(ids))
        return ids


def is_batch(prompt: Any) -> bool:
    """Whether a prompt is a list of prompts: of strings, or of lists of ids."""
    if isinstance(prompt, str) or not isinstance(prompt, Sequence | np.ndarray):
        return False  # of what is neither text nor a list, token_ids tells what is wrong
    if isinstance(prompt, np.ndarray) and prompt.ndim == 0:
        return False
    return len(prompt) > 0 and isinstance(prompt[0], str | Sequence | np.ndarray)


_models: weakref.WeakSet[Model] = weakref.WeakSet()
_left_behind: list[Engine] = []  # their threads stayed in the parent; destroying them would wait for these


def _after_fork() -> None:
    for model in list(_models):
        model._after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _at_exit() -> None:
    """End the steps of daemon threads: the interpreter would kill these threads in the middle of C++."""
    hook = threading.excepthook

    def excepthook(args: threading.ExceptHookArgs) -> None:
        if not isinstance(args.exc_value, Cancelled):  # no news, and told by half: the thread is killed next
            hook(args)

    threading.excepthook = excepthook
    for model in list(_models):
        model._refuse_more("the program ends")


atexit.register(_at_exit)
