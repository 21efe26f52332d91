"""Model on the real core, with tiny random models of each family: same bits whatever runs beside it."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import signal
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from e2e.fake_core import Letters, until
from model.stepping import build
from reference.tiny import tiny

import pyrt
from pyrt import _core
from pyrt.config import ModelConfig
from pyrt.errors import Cancelled, ContextLengthError, MemoryLimitError, PyrtError
from pyrt.memory import RunOptions, scratch_bytes
from pyrt.model import Model

FAMILIES = ["llama", "gemma3", "gpt2"]
N_CTX = 256  # gpt2's learned positions


@functools.cache
def weights(family, **sizes):
    return build(*tiny(family, seed=3, **sizes), {})


def make(family="llama", n_ctx=N_CTX, kv_dtype="f16", threads=2, isa="", memory_limit=None, **sizes):
    core = weights(family, **sizes)
    config = ModelConfig(family, core.knobs, (), n_ctx, True, frozenset())
    run = RunOptions(n_ctx, kv_dtype, threads, isa, memory_limit)
    return Model(core, Letters(), config, {}, run, Path(f"{family}.test"))


def prompt_of(n, seed=0):
    return [int(token) for token in np.random.default_rng(seed).integers(0, 300, n)]


def bits(completion):
    """Everything that must not change by a bit."""
    return [
        (choice.tokens, choice.text, [entry.logprob for entry in choice.logprobs])
        for choice in completion.choices
    ]


SAMPLED = {"max_tokens": 40, "temperature": 1.0, "top_p": 0.95, "logprobs": 2}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_bits_cold_cached_batched_and_by_any_threads(family):
    prompts = [prompt_of(n, seed=n) for n in (1, 33, 64, 100, 150)]
    with make(family, threads=1) as model:
        alone = [bits(model.generate(p, seed=i, **SAMPLED)) for i, p in enumerate(prompts)]
        again = [model.generate(p, seed=i, **SAMPLED) for i, p in enumerate(prompts)]
        assert [bits(out) for out in again] == alone
        assert again[-1].usage.cached_tokens == 128
    with make(family, threads=2) as model, ThreadPoolExecutor(5) as pool:
        calls = [pool.submit(model.generate, p, seed=i, **SAMPLED) for i, p in enumerate(prompts)]
        assert [bits(call.result(60)) for call in calls] == alone
    for isa in _core.cpu()["isas"]:
        with make(family, isa=isa) as model:
            assert bits(model.generate(prompts[2], seed=2, **SAMPLED)) == alone[2]


@pytest.mark.parametrize("kv_dtype", ["f16", "f32", "int8"])
def test_a_tight_memory_limit_changes_no_bit(kv_dtype):
    """Sequences are preempted and computed again."""
    prompts = [prompt_of(20, seed=n) for n in range(4)]
    with make(kv_dtype=kv_dtype) as model:
        free = [
            bits(out) for out in model.generate(prompts, max_tokens=130, temperature=1, seed=1, logprobs=0)
        ]
        pages = sum(pool.page_bytes for pool in model.engine.cache.pools)
        room = model._core.packed_bytes + 6 * pages
    limit = room + scratch_bytes(model.config.knobs)
    with make(kv_dtype=kv_dtype, memory_limit=limit) as model:
        assert [pool.limit for pool in model.engine.cache.pools] == [6]
        tight = model.generate(prompts, max_tokens=130, temperature=1, seed=1, logprobs=0)
        assert [bits(out) for out in tight] == free


def test_a_memory_limit_below_the_weights():
    with pytest.raises(MemoryLimitError, match=r"weights .* \+ scratch .* limit of 1,000"):
        make(memory_limit=1000)


def test_int8_and_f16_caches_differ_but_little():
    tokens = prompt_of(100)
    with make(kv_dtype="f32") as exact, make(kv_dtype="int8") as rounded:
        a, b = exact.score(tokens), rounded.score(tokens)
    assert 0 < np.abs(a - b).max() < 0.5


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_score_agree_with_generation(family):
    tokens = prompt_of(70)
    with make(family) as model:
        rows = model.logits(tokens)
        assert (rows.shape, rows.dtype) == ((70, 300), np.float32)
        out = model.generate(tokens, max_tokens=1, prompt_logprobs=0)
        assert out.tokens == [int(np.argmax(rows[-1]))]
        scored = model.score(tokens)
        assert list(scored) == [entry.logprob for entry in out.prompt_logprobs[1:]]
        wide = rows.astype(np.float64)
        exact = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
        assert np.abs(scored - exact[np.arange(69), tokens[1:]]).max() < 1e-5


def test_text_ids_and_lists_of_either():
    with make() as model:
        assert model.generate("ABC", max_tokens=5).tokens == model.generate([0, 1, 2], max_tokens=5).tokens
        array = np.array([0, 1, 2], np.int32)
        assert model.generate(array, max_tokens=5).tokens == model.generate("ABC", max_tokens=5).tokens
        both = model.generate(["ABC", [0, 1, 2]], max_tokens=5)
        assert isinstance(both, list)
        assert both[0].tokens == both[1].tokens
        assert model.generate(["ABC"], max_tokens=2)[0].text
        for bad in ("", [], [[]], [""]):
            with pytest.raises(ValueError, match="empty"):
                model.generate(bad)
        for bad in (b"ABC", bytearray(b"A"), [True, False], [1.5], 7, None, np.array(5)):
            for call in (model.generate, model.stream, model.score, model.logits):
                with pytest.raises(TypeError, match="a prompt is text or a list of token ids"):
                    call(bad)
        with pytest.raises(ContextLengthError):
            model.generate([1] * 300)
        with pytest.raises(TypeError, match="'temperature'"):
            model.generate("ABC", temperatur=1)


def test_what_is_wrong_is_told_before_anything_is_computed():
    with make() as model:
        for call in (model.generate, model.stream):
            with pytest.raises(TypeError, match="on_progress must be callable, not 5"):
                call("ABC", on_progress=5)
        for wrong in (5, "x", {5: 1}):
            with pytest.raises(TypeError, match="chat_template_kwargs must be a dict of names and values"):
                model.chat("ABC", chat_template_kwargs=wrong)
        for name in ("add_generation_prompt", "messages", "tokenize"):
            with pytest.raises(TypeError, match=f"chat_template_kwargs: {name} is not for the caller"):
                model.chat_stream("ABC", chat_template_kwargs={name: False})
        assert not model.engine._scheduler.live()
        assert not model.engine._inbox


@pytest.mark.parametrize("wrong", [5, b"x", ["m.gguf"], object()], ids=repr)
def test_what_is_no_model_is_told(wrong):
    calls = [
        pyrt.load,
        pyrt.bench,
        *(functools.partial(call, "ABC") for call in (pyrt.generate, pyrt.stream)),
    ]
    calls += [functools.partial(call, "ABC") for call in (pyrt.chat, pyrt.chat_stream, pyrt.perplexity)]
    for call in calls:
        with pytest.raises(TypeError, match="model must be a path, a name, a Model or None, not"):
            call(model=wrong)


def test_a_loaded_model_is_not_loaded_again():
    with make() as model:
        with pytest.raises(TypeError, match="loaded already"):
            pyrt.load(model)
        for option in ({"threads": 1}, {"kv_dtype": "f32"}):
            with pytest.raises(TypeError, match=f"{next(iter(option))} is for loading"):
                pyrt.bench(model, **option)
        (row,) = pyrt.bench(model, n_prompt=8, n_gen=0, repetitions=1)
        assert (row.n_prompt, row.model, row.threads) == (8, "llama.test", 2)
        assert model.generate("ABC", max_tokens=1).tokens  # still open


@pytest.mark.parametrize(
    ("error", "name", "wrong"),
    [
        *((ValueError, "windows", {"windows": windows}) for windows in (0, -1)),
        *((TypeError, "n_ctx", {"n_ctx": n_ctx}) for n_ctx in (16.5, "16", None, True)),
        *((ValueError, "n_ctx", {"n_ctx": n_ctx}) for n_ctx in (3, -1)),
        (TypeError, "windows", {"windows": 1.5}),
        (TypeError, "on_progress", {"on_progress": 5}),
    ],
)
def test_perplexity_names_what_is_wrong(error, name, wrong):
    text = "ABCDEFGH" * 16
    with make() as model, pytest.raises(error, match=name):
        pyrt.perplexity(text, model, **{"n_ctx": 16} | wrong)
    with pytest.raises(error, match=name):  # before the model is looked for
        pyrt.perplexity(text, "/no/such/model.gguf", **{"n_ctx": 16} | wrong)


def test_perplexity_takes_no_keywords_but_those_of_load():
    for wrong in ({"temperature": 7.0}, {"max_tokens": -3}, {"params": None}):
        with pytest.raises(TypeError, match=f"unknown option '{next(iter(wrong))}'"):
            pyrt.perplexity("ABC", "/no/such/model.gguf", **wrong)
    with pytest.raises(FileNotFoundError):
        pyrt.perplexity("ABC", "/no/such/model.gguf", n_threads=1)


def test_the_reason_tells_a_full_context_from_a_reached_limit():
    with make() as model:
        full = model.generate([1] * (N_CTX - 4), max_tokens=100)
        assert (full.finish_reason, full.stop_reason, len(full.tokens)) == ("length", "context_length", 4)
        asked = model.generate([1] * (N_CTX - 4), max_tokens=4)
        assert (asked.finish_reason, asked.stop_reason, len(asked.tokens)) == ("length", None, 4)


def test_numbers_that_break_the_model_name_the_layer():
    knobs, tensors = tiny("llama", seed=3)
    tensors["layers.1.down"][:] = 3e38
    core = build(knobs, tensors, {})
    config = ModelConfig("llama", core.knobs, (), N_CTX, True, frozenset())
    with (
        Model(core, Letters(), config, {}, RunOptions(N_CTX), Path("broken")) as model,
        pytest.raises(FloatingPointError, match="layer"),
    ):
        model.generate("ABC")


def test_cancel_in_a_long_prompt_is_quick():
    """A prompt of seconds, left after a moment by its deadline; the bound is far above the 50 ms promised."""
    with make("llama", n_ctx=8192, d_model=512, d_ff=2048, n_layers=8) as model:
        model.generate("ABC", max_tokens=1)
        began = time.monotonic()
        out = model.generate([1] * 8000, deadline=0.2)
        assert out.finish_reason == "cancelled"
        assert time.monotonic() - began < 0.2 + 0.5


def test_ctrl_c_leaves_a_step():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has none
    with make("llama", n_ctx=8192, d_model=512, d_ff=2048, n_layers=8) as model:
        model.generate("ABC", max_tokens=1)
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            model.generate([1] * 8000)
        assert time.monotonic() - began < 0.3 + 0.5
        assert model.generate("ABC", max_tokens=3).tokens
    signal.signal(signal.SIGINT, before)


def test_closed_models_say_so():
    model = make()
    model.close()
    model.close()
    with pytest.raises(PyrtError, match="closed"):
        model.generate("ABC")
    with pytest.raises(PyrtError, match="closed"):
        _ = model.info
    assert "closed" in repr(model)


def test_a_closed_or_forgotten_model_lets_go_of_its_weights():
    core = build(*tiny("llama"), {})
    config = ModelConfig("llama", core.knobs, (), N_CTX, True, frozenset())
    model = Model(core, Letters(), config, {}, RunOptions(N_CTX), Path("gone"))
    stream = model.stream("ABC", max_tokens=50)
    next(stream)
    engine = weakref.ref(model.engine)
    del stream, model
    gc.collect()
    assert engine() is None


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_runs_on_the_same_weights():
    """Forked while another thread is in a step: the child gets its own engine, and the same bits.

    The open stream is another model's, which nobody drives: else the busy thread may bring it to its end
    before the fork.
    """
    forked = threading.Event()
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    with make("gemma3") as model, make("gemma3") as idle, ThreadPoolExecutor(1) as pool:
        expected = bits(model.generate(prompt_of(50), max_tokens=20, logprobs=0))
        open_stream = idle.stream(prompt_of(40), max_tokens=100)
        next(open_stream)

        def generate():
            outs = [model.generate(prompt_of(60), max_tokens=150)]
            while not forked.is_set():
                outs.append(model.generate(prompt_of(60), max_tokens=150))
            return outs

        def child():
            answers.put(bits(model.generate(prompt_of(50), max_tokens=20, logprobs=0)))
            try:
                answers.put(list(open_stream))
            except Cancelled as error:
                answers.put(str(error))

        processes = [context.Process(target=child, daemon=True) for _ in range(2)]
        busy = pool.submit(generate)
        try:
            until(lambda: model.engine._driver)
            for process in processes:
                process.start()
        finally:
            forked.set()
        given = [answers.get(timeout=60) for _ in range(4)]
        for process in processes:
            process.join(60)
            assert process.exitcode == 0
        assert given.count(expected) == 2
        assert sum("forked" in answer for answer in given if isinstance(answer, str)) == 2
        assert all(len(out.tokens) == 150 for out in busy.result(60))
        assert sum(len(chunk.tokens) for chunk in open_stream) == 99
        assert bits(model.generate(prompt_of(50), max_tokens=20, logprobs=0)) == expected
