"""Packing beside something else: what is done, cancelling, and the same bits for any number of threads."""

from __future__ import annotations

import gc
import itertools
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from reference.stored import store
from reference.tiny import tiny
from reference.to_gguf import as_type, write_gguf

import pyrt
from pyrt import _core, loading
from pyrt.config import ModelConfig, read_config
from pyrt.errors import MemoryLimitError
from pyrt.gguf import open_gguf
from pyrt.weights import Source, WeightTensor


def test_done_counts_the_bytes_of_matrices() -> None:
    knobs, tensors = tiny("llama")
    builder = _core.ModelBuilder(knobs, 1)
    assert builder.done == 0
    builder.add("embed", "F32", *tensors["embed"].shape, tensors["embed"])
    assert builder.done == tensors["embed"].nbytes


def test_a_machine_without_memory_for_the_weights_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(source: Source, config: ModelConfig) -> Iterator[WeightTensor]:
        yield from ()
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr(loading, "map_weights", exhausted)
    path = write_gguf(tmp_path / "m.gguf", "llama", *tiny("llama"), as_type("F32"))
    with open_gguf(path) as source, loading._Packing(source, read_config(source), "auto", 2) as packing:
        nbytes = sum(info.nbytes for info in source.tensors.values())
        with pytest.raises(
            MemoryLimitError, match=rf"m\.gguf: .* no memory for the weights.* {nbytes:,} bytes"
        ):
            packing.finish(None)


def test_a_bad_number_of_threads_in_the_environment_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYRT_THREADS", "abc")
    path = write_gguf(tmp_path / "m.gguf", "llama", *tiny("llama"), as_type("F32"))
    with pytest.raises(ValueError, match="PYRT_THREADS must be a number from 1 to 1024, not 'abc'"):
        pyrt.load(path)


def test_cancelled_packing_ends_at_once() -> None:
    knobs, tensors = tiny("llama")
    builder = _core.ModelBuilder(knobs, 2)
    builder.cancel()
    with pytest.raises(_core.Cancelled):
        builder.add("embed", "F32", *tensors["embed"].shape, tensors["embed"])


@pytest.mark.parametrize("form", ["F32", "Q8_0"])
def test_slices_and_threads_leave_no_trace(form: str) -> None:
    """A matrix of several slices, packed while the number of threads changes, decodes to what was stored."""
    knobs, tensors = tiny("llama", n_vocab=20_011, d_model=256, d_ff=512, head_dim=64)
    stored = store((knobs, tensors), form)
    builder = _core.ModelBuilder(knobs, 1)
    packed = threading.Event()

    def change_threads() -> None:
        for threads in itertools.cycle((1, 3, 2)):
            builder.set_threads(threads)
            if packed.wait(0.001):
                return

    changes = threading.Thread(target=change_threads)
    changes.start()
    try:
        for name, (kind, data, means) in stored.items():
            rows, cols = means.shape if means.ndim == 2 else (1, means.size)
            builder.add(name, kind, rows, cols, data)
    finally:
        packed.set()
        changes.join(60)
    model = builder.build()
    means = stored["embed"].means
    for row in {*range(0, 20_011, 97), *range(7_600, 7_800), *range(20_000, 20_011)}:
        np.testing.assert_array_equal(model.row("embed", row), means[row])


def slowly(map_weights: Callable[..., Iterator[WeightTensor]]) -> Callable[..., Iterator[WeightTensor]]:
    """The same tensors, but not before the block beside which they are packed can have ended."""

    def later(source: Source, config: ModelConfig) -> Iterator[WeightTensor]:
        tensors = map_weights(source, config)
        time.sleep(0.3)
        yield from tensors

    return later


def test_an_interrupt_beside_packing_leaves_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf(tmp_path / "m.gguf", "llama", *tiny("llama"), as_type("F32"))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loading, "map_weights", slowly(loading.map_weights))
    monkeypatch.setattr(loading, "_parts", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pyrt.load(path)
    assert "pyrt-load" not in {thread.name for thread in threading.enumerate()}


def test_an_interrupt_at_the_end_waits_for_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the wait in `finish`, by a signal, as Ctrl-C does it."""
    path = write_gguf(tmp_path / "m.gguf", "llama", *tiny("llama"), as_type("F32"))
    monkeypatch.setattr(loading, "map_weights", slowly(loading.map_weights))
    with open_gguf(path) as source:

        def interrupted() -> None:
            main = threading.get_ident()
            with loading._Packing(source, read_config(source), "auto", 2) as packing:
                threading.Timer(0.05, signal.pthread_kill, [main, signal.SIGINT]).start()
                packing.finish(None)

        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has none
        try:
            with pytest.raises(KeyboardInterrupt):
                interrupted()
        finally:
            signal.signal(signal.SIGINT, before)
    assert "pyrt-load" not in {thread.name for thread in threading.enumerate()}


def test_an_interrupt_at_the_end_of_packing_leaves_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second Ctrl-C, while the block that the first one ended waits for the thread."""
    path = write_gguf(tmp_path / "m.gguf", "llama", *tiny("llama"), as_type("F32"))
    monkeypatch.setattr(loading, "map_weights", slowly(loading.map_weights))
    with open_gguf(path) as source:
        packing = loading._Packing(source, read_config(source), "auto", 2)
        join = packing._thread.join

        def interrupted() -> None:
            signal.raise_signal(signal.SIGINT)
            join()

        monkeypatch.setattr(packing._thread, "join", interrupted)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt), packing:
                pass
        finally:
            signal.signal(signal.SIGINT, before)
    assert not packing._thread.is_alive()


def test_a_start_that_is_interrupted_cancels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(tmp_path / "m.gguf", "llama", *tiny("llama"), as_type("F32"))
    monkeypatch.setattr(loading, "map_weights", slowly(loading.map_weights))
    with open_gguf(path) as source:
        packing = loading._Packing(source, read_config(source), "auto", 2)
        start, thread = packing._thread.start, packing._thread

        def interrupted() -> None:
            start()
            raise KeyboardInterrupt

        monkeypatch.setattr(thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            packing.__enter__()
        thread.join(60)
        assert not thread.is_alive()
    assert packing._builder.done == 0
    assert isinstance(packing._error, _core.Cancelled)


def test_a_cancelled_load_frees_the_weights_without_the_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf(tmp_path / "m.gguf", "llama", *tiny("llama"), as_type("F32"))
    monkeypatch.setattr(loading, "map_weights", slowly(loading.map_weights))
    gc.collect()
    gc.disable()
    try:
        with open_gguf(path) as source:
            packing = loading._Packing(source, read_config(source), "auto", 2)
        alive = weakref.ref(packing)
        with packing:
            pass
        del packing
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("late", [False, True], ids=["while packing", "when it is over"])
def test_progress_ends_at_the_whole(late: bool, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", "llama", *tiny("llama"), as_type("F32"))
    seen: list[tuple[str, int, int]] = []
    with open_gguf(path) as source, loading._Packing(source, read_config(source), "auto", 2) as packing:
        if late:
            packing._thread.join(60)
            assert not packing._thread.is_alive()
        packing.finish(lambda *progress: seen.append(progress))
    stages, done, totals = zip(*seen, strict=True)
    assert {*stages} == {"load"}
    assert len({*totals}) == 1
    assert list(done) == sorted(done)
    assert done[-1] == totals[-1] > 0
