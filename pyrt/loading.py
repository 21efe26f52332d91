"""`load`: from a name or path to a Model that is ready to run."""

from __future__ import annotations

import gc
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyrt import _core, checks, options
from pyrt.checkpoint import Checkpoint
from pyrt.config import ModelConfig, read_config
from pyrt.errors import MemoryLimitError, ModelFormatError
from pyrt.gguf import GGUFFile
from pyrt.hub import resolve
from pyrt.interrupt import Shield
from pyrt.source import Source, open_model
from pyrt.weights import WeightTensor, map_weights

if TYPE_CHECKING:
    from pyrt.model import Model
    from pyrt.tensors import TensorSource
    from pyrt.tokenizer import Tokenizer

Progress = Callable[[str, int, int], None]

ALIASES = {"n_ctx": "context_length", "n_threads": "threads"}
# How the core stores a float matrix; int8 and int4 leave what the file has quantized as it is.
_STORE = {"auto": "", "f32": "F32", "f16": "F16", "bf16": "BF16", "int8": "Q8_0", "int4": "Q4_0"}
_FLOATS = ("F32", "F16", "BF16")
_QUANTIZING = ("int8", "int4")
MAX_THREADS = 1024  # as csrc/base/thread_pool.cc
_PORTION = 1 << 23  # bytes of copies that wait to be packed
_PROGRESS_SECONDS = 0.05
_CHOICES = {
    "dtype": tuple(_STORE),
    "kv_dtype": ("f16", "f32", "int8"),
    "numerics": ("fast", "exact"),
}


def load(
    model: str | os.PathLike[str] | None = None,
    *,
    dtype: str = "auto",
    kv_dtype: str = "f16",
    context_length: int | None = None,
    threads: int | None = None,
    memory_limit: int | None = None,
    numerics: str = "fast",
    isa: str | None = None,
    offline: bool | None = None,
    chat_template: str | None = None,
    on_progress: Progress | None = None,
    **aliases: Any,
) -> Model:
    """Load a model: a path, a hub id ("org/name" or "org/name:Q4_K_M"), or None for the default model.

    dtype: "auto" runs what the file stores; "f32", "f16", "bf16" convert; "int8" and "int4" quantize the
    matrices of a float model in groups of 32. kv_dtype: "f16", "f32" or "int8". context_length: tokens,
    None for the model's own. threads: None for what affinity, quota and physical cores allow. memory_limit:
    bytes for weights, KV cache and scratch together. numerics: "fast" or "exact". isa: the instruction set
    to use, an error if it is not there. offline: open no socket.
    chat_template: Jinja source to use instead of the model's. on_progress(stage, done, total).
    n_ctx and n_threads are other names for context_length and threads.

    Raises ValueError or TypeError for a wrong parameter, ModelFormatError, UnsupportedModelError,
    DownloadError, or MemoryLimitError with the arithmetic.
    """
    given = {name: value for name, value in locals().items() if name not in ("model", "aliases")}
    for name, value in options.canonical(aliases, given, ALIASES).items():
        if given[name] is not None:
            raise TypeError(f"{name} is given twice")
        given[name] = value
    check(given)
    if is_loaded(model):
        raise TypeError(f"{model} is loaded already")
    path = resolve(model, offline, on_progress)
    with open_model(path) as source:
        config = read_config(source)
        n_ctx = _context_length(given["context_length"], config)
        _check_weights(source, memory_limit)
        _check_dtype(source, dtype)
        # What Python has to do takes about as long as packing, which works without Python's lock.
        with _no_collections(), _Packing(source, config, dtype, given["threads"]) as packing:
            model_class, tokenizer = _parts(source, chat_template)
            core = packing.finish(on_progress)
        defaults = model_defaults(source)
    from pyrt.memory import RunOptions

    run = RunOptions(n_ctx, kv_dtype, given["threads"] or 0, isa or "", memory_limit, numerics)
    return model_class(core, tokenizer, config, defaults, run, path, dtype)


def _parts(source: Source, chat_template: str | None) -> tuple[type[Model], Tokenizer]:
    """The tokenizer and what else is needed beside the weights; the imports take a third of its time."""
    from pyrt.model import Model
    from pyrt.tokenizer import tokenizer_from_source

    return Model, tokenizer_from_source(source, chat_template=chat_template)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Pause the garbage collector: a vocabulary is a hundred thousand objects, none of them garbage."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class _Packing:
    """A ``with`` block beside which a thread of its own packs the weights; it is over at the block's end."""

    def __init__(self, source: Source, config: ModelConfig, dtype: str, threads: int | None) -> None:
        self._threads = threads or _default_threads()
        self._path = source.path
        self._total = sum(info.nbytes for info in source.tensors.values())
        self._tensors = map_weights(source, config)
        self._dtype = dtype
        # Until `finish`, a core is left to what runs beside it.
        self._builder = _core.ModelBuilder(config.knobs, max(1, self._threads - 1))
        self._error: BaseException | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pyrt-load")

    def __enter__(self) -> _Packing:
        try:
            self._thread.start()
        except BaseException:  # an interrupt, which may leave a thread that has begun
            self._builder.cancel()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with Shield():  # else another Ctrl-C would leave the thread behind
            self._builder.cancel()
            self._thread.join()
        self._error = None  # its traceback leads back here, so that only the collector would free the weights

    def finish(self, on_progress: Progress | None) -> _core.Model:
        """Wait for the rest, with all threads. Raises what went wrong."""
        self._builder.set_threads(self._threads)
        # Not by join, which takes a thread for ended if an interrupt cuts it short (CPython 3.11).
        while not self._over.is_set():
            if on_progress:
                on_progress("load", min(self._builder.done, self._total), self._total)
            self._over.wait(_PROGRESS_SECONDS if on_progress else None)
        if isinstance(self._error, _core.Error):  # it names the tensor
            raise ModelFormatError(f"{self._path}: {self._error}") from self._error
        if isinstance(self._error, MemoryError):
            raise MemoryLimitError(
                f"{self._path}: the machine, or a limit on this process, gives no memory for the weights, "
                f"which are {self._total:,} bytes as stored"
            ) from None
        if self._error is not None:
            raise self._error
        model = self._builder.build()
        if on_progress:
            on_progress("load", self._total, self._total)
        return model

    def _run(self) -> None:
        try:
            for tensors in _portions(self._tensors):
                self._builder.add_all([(*t[:5], store(t, self._dtype), t.mapped) for t in tensors])
        except BaseException as error:
            self._error = error
        finally:
            self._over.set()


def is_loaded(model: object) -> bool:
    """Whether it is a Model, not what `load` takes. TypeError if it is neither."""
    if model is None or isinstance(model, str | os.PathLike):
        return False
    from pyrt.model import Model

    if not isinstance(model, Model):
        raise TypeError(f"model must be a path, a name, a Model or None, not {model!r:.80}")
    return True


def check(given: Mapping[str, Any]) -> None:
    """ValueError or TypeError naming a parameter of `load` that makes no sense."""
    for name, choices in _CHOICES.items():
        if given.get(name, choices[0]) not in choices:
            raise ValueError(f"{name}: {given[name]!r} is none of {', '.join(choices)}")
    for name, most in (("context_length", math.inf), ("threads", MAX_THREADS), ("memory_limit", math.inf)):
        if given.get(name) is not None:
            checks.integer(1, most)(name, given[name])
    for name in ("isa", "chat_template"):
        if not isinstance(given.get(name), str | None):
            raise TypeError(f"{name} must be a string, not {given[name]!r}")
    checks.callback("on_progress", given.get("on_progress"))


def model_defaults(source: TensorSource) -> dict[str, Any]:
    """The sampling defaults that come with a model."""
    if isinstance(source, GGUFFile):
        return options.gguf_defaults(source.metadata)
    assert isinstance(source, Checkpoint)
    return options.config_defaults(source.generation_config)


def _default_threads() -> int:
    cpu = _core.cpu()
    if cpu["threads_problem"]:
        raise ValueError(cpu["threads_problem"])
    return int(cpu["threads"])


def _context_length(asked: int | None, config: ModelConfig) -> int:
    if asked is not None and asked > config.context_length:
        raise ValueError(
            f"context_length: {asked} is more than the {config.context_length} the model was made for"
        )
    return asked or config.context_length


def _check_weights(source: TensorSource, memory_limit: int | None) -> None:
    """Refuse before reading gigabytes; what the weights come to when packed is checked again later."""
    nbytes = sum(info.nbytes for info in source.tensors.values())
    if memory_limit is not None and nbytes > memory_limit:
        raise MemoryLimitError(
            f"the weights in {source.path} are {nbytes:,} bytes, the memory limit is {memory_limit:,}"
        )


def _check_dtype(source: TensorSource, dtype: str) -> None:
    """ValueError where there is nothing that int8 or int4 would quantize."""
    formats = {info.format for info in source.tensors.values() if len(info.shape) == 2}
    if dtype in _QUANTIZING and not formats & set(_FLOATS):
        stored = ", ".join(sorted(formats))
        raise ValueError(f"dtype: {dtype!r} quantizes float weights, but those of {source.path} are {stored}")


def _portions(tensors: Iterable[WeightTensor]) -> Iterator[list[WeightTensor]]:
    """All tensors at once, but for copies, which need memory: these by some 8 MB."""
    portion: list[WeightTensor] = []
    copied = 0
    for tensor in tensors:
        portion.append(tensor)
        copied += 0 if tensor.mapped else tensor.data.nbytes
        if copied >= _PORTION:
            yield portion
            portion, copied = [], 0
    yield portion


def store(tensor: WeightTensor, dtype: str) -> str:
    """The format that the core shall keep a tensor in; "" is as it comes."""
    matrix = tensor.rows > 1 and tensor.name != "pos_embed"
    if dtype in _QUANTIZING and not (matrix and tensor.format in _FLOATS):
        return ""
    return _STORE[dtype] if tensor.rows > 1 else ""
