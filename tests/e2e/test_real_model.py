"""The whole way on real models: load, generate, chat, stream, reuse, cancel."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from files.models import real_model

import pyrt
from pyrt import loading
from pyrt.errors import MemoryLimitError, ModelFormatError, PyrtError, TemplateError

PROMPT = "The capital of France is"


@pytest.fixture(scope="module")
def smollm():
    with pyrt.load(real_model("smollm2.gguf")) as model:
        yield model


@pytest.fixture(scope="module")
def gemma():
    with pyrt.load(real_model("gemma3.gguf")) as model:
        yield model


def bits(completion):
    return completion.tokens, completion.text, [entry.logprob for entry in completion.logprobs]


def test_the_capital_of_france(smollm, gemma):
    assert smollm.generate(PROMPT, max_tokens=2).text.startswith(" Paris")
    # llama-cpp-python 0.3.36 says the same, greedily, on the same file.
    assert gemma.generate(PROMPT, max_tokens=9).text == " the capital of the country of France. It"


def test_chat_ends_at_the_end_of_the_turn(smollm):
    out = smollm.chat("Reply with one word: what is the capital of France?", max_tokens=60)
    assert "Paris" in out.text
    assert out.finish_reason == "stop"
    assert out.tokens[-1] in smollm.tokenizer.eos_ids
    assert "<|im_end|>" not in out.text
    again = smollm.chat([{"role": "user", "content": "Reply with one word: what is the capital of France?"}])
    assert again.text == out.text


def test_a_second_turn_reuses_the_first(smollm):
    messages = [{"role": "user", "content": "Tell me a short story about a fox. " * 3}]
    first = smollm.chat(messages, max_tokens=80, ignore_eos=True)
    messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "And then?"}]
    second = smollm.chat(messages, max_tokens=5)
    assert second.usage.cached_tokens >= first.usage.prompt_tokens // 32 * 32


def test_a_model_without_a_template_says_so(gemma):
    if gemma.tokenizer.chat_template is not None:
        pytest.skip("this file has a chat template")
    with pytest.raises(TemplateError, match="no chat template"):
        gemma.chat("Hello")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm", "gemma"])
def test_the_same_bits_alone_cached_batched_and_with_one_thread(name, request):
    model = request.getfixturevalue(name)
    long = " ".join(f"Line {i} says {i * i}." for i in range(120))  # beyond Gemma's window of 512 tokens
    prompts = [PROMPT, long, "def fibonacci(n):", "Once upon a time, " * 10]
    fields = {"max_tokens": 30, "temperature": 0.8, "top_p": 0.9, "seed": 11, "logprobs": 0}
    with pyrt.load(model.info.path, threads=1) as other:
        alone = [bits(other.generate(prompt, **fields)) for prompt in prompts]
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(model.generate, prompt, **fields) for prompt in prompts * 2]
        assert [bits(call.result(300)) for call in calls] == alone * 2
    cached = model.generate(long, **fields)
    assert cached.usage.cached_tokens > 512
    assert bits(cached) == alone[1]


def test_a_stream_joins_to_the_text(smollm):
    whole = smollm.generate("Some emoji: 🦊🦊🦊🦊", max_tokens=40)
    chunks = list(smollm.stream("Some emoji: 🦊🦊🦊🦊", max_tokens=40))
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert all("\ufffd" not in chunk.text for chunk in chunks[:-1])
    assert chunks[-1].completion.tokens == whole.tokens


def test_cancelling_a_long_prompt(smollm):
    ids = [100 + i % 1000 for i in range(8000)]
    began = time.monotonic()
    out = smollm.generate(ids, deadline=0.1)
    assert out.finish_reason == "cancelled"
    assert time.monotonic() - began < 1.0  # the prompt would take several seconds


def test_scores_and_logits(smollm):
    ids = smollm.tokenizer.encode(PROMPT + " Paris")
    rows = smollm.logits(ids)
    assert rows.shape == (len(ids), smollm.n_vocab)
    scores = smollm.score(PROMPT + " Paris")
    assert len(scores) == len(ids) - 1
    wide = rows[-2].astype(np.float64)
    assert scores[-1] == pytest.approx(wide[ids[-1]] - np.log(np.exp(wide).sum()), abs=1e-5)
    assert scores[-1] > -2


def test_dtypes_of_a_quantized_file(smollm):
    """Converted to float the same weights differ only by the rounding of activations."""
    with pyrt.load(smollm.info.path, dtype="f32", kv_dtype="f32") as exact:
        assert exact.info.packed_bytes > 3 * smollm.info.packed_bytes
        a, b = exact.score(PROMPT + " Paris"), smollm.score(PROMPT + " Paris")
    assert 0 < np.abs(a - b).max() < 0.2


def test_the_top_level_keeps_the_last_model():
    path = real_model("smollm2.gguf")
    loads = []
    original = loading.load

    @functools.wraps(original)
    def counted(*args, **kwargs):
        loads.append(kwargs)
        return original(*args, **kwargs)

    counted.__kwdefaults__ = original.__kwdefaults__  # by which keywords are told apart
    loading.load = counted
    try:
        first = pyrt.generate(PROMPT, model=path, max_tokens=3)
        assert pyrt.generate(PROMPT, model=str(path), max_new_tokens=3).tokens == first.tokens
        stream = pyrt.stream(PROMPT, model=path, max_tokens=3)
        assert len(loads) == 1
        assert pyrt.generate(PROMPT, model=path, n_ctx=256, max_tokens=3).tokens == first.tokens
        assert len(loads) == 2
        assert "".join(chunk.text for chunk in stream) == first.text  # from the model that was let go
        with pytest.raises(TypeError, match="'temperature'"):
            pyrt.generate(PROMPT, model="/no/such/model", temperatur=1)
        with pytest.raises(PyrtError):
            pyrt.generate(PROMPT, model="/no/such/model.gguf")
    finally:
        loading.load = original
        pyrt.unload()


def test_a_model_is_taken_as_it_is(smollm):
    assert pyrt.generate(PROMPT, model=smollm, max_tokens=2).text == " Paris."
    with pytest.raises(TypeError, match="threads is for loading"):
        pyrt.generate(PROMPT, model=smollm, threads=1)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"dtype": "int3"}, ValueError, "dtype"),
        ({"kv_dtype": "q4"}, ValueError, "kv_dtype"),
        ({"numerics": "best"}, ValueError, "numerics"),
        ({"threads": 0}, ValueError, "threads"),
        ({"threads": 1.5}, TypeError, "threads"),
        ({"context_length": -1}, ValueError, "context_length"),
        ({"context_length": 10**6}, ValueError, "context_length"),
        ({"n_ctx": 8, "context_length": 8}, TypeError, "twice"),
        ({"contextlength": 8}, TypeError, "'context_length'"),
        ({"isa": "sse9"}, ValueError, "sse9"),
        ({"isa": 2}, TypeError, "isa must be a string"),
        ({"threads": 10**6}, ValueError, "threads"),
        ({"chat_template": 1}, TypeError, "chat_template must be a string"),
        ({"on_progress": True}, TypeError, "on_progress must be callable"),
        ({"dtype": "int8"}, ValueError, "dtype: 'int8' quantizes float weights, but .* Q4_1"),
        ({"memory_limit": 10_000}, MemoryLimitError, "10,000"),
        ({"memory_limit": 100_000_000}, MemoryLimitError, "scratch"),
    ],
)
def test_wrong_load_parameters(fields, error, message):
    with pytest.raises(error, match=message):
        pyrt.load(real_model("smollm2.gguf"), **fields)


def test_a_bad_isa_in_the_environment_is_named_and_yields_to_an_explicit_one(monkeypatch):
    monkeypatch.setenv("PYRT_ISA", "sse9")
    with pytest.raises(ValueError, match=r"PYRT_ISA: sse9 is unknown; this machine can run .*scalar"):
        pyrt.load(real_model("smollm2.gguf"))
    assert pyrt.cpu()["isa"] is None
    with pyrt.load(real_model("smollm2.gguf"), isa="scalar") as model:
        assert model.info.isa == "scalar"
        assert model.generate(PROMPT, max_tokens=1, temperature=1, seed=1).tokens


def test_a_program_may_end_while_a_daemon_thread_generates():
    code = (
        "import pyrt, sys, threading, time\n"
        "model = pyrt.load(sys.argv[1])\n"
        "run = lambda: model.generate([1] * 4000, max_tokens=4000)\n"
        "threading.Thread(target=run, daemon=True).start()\n"
        "time.sleep(0.3)\n"
    )
    command = [sys.executable, "-c", code, str(real_model("smollm2.gguf"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_perplexity_of_plain_text_is_low_and_of_noise_is_high(smollm):
    rng = np.random.default_rng(0)
    text = "The quick brown fox jumps over the lazy dog. It was the best of times. " * 20
    noise = "".join(map(chr, rng.integers(97, 123, 1000)))
    low = pyrt.perplexity(text, model=smollm, n_ctx=64)
    high = pyrt.perplexity(noise, model=smollm, n_ctx=64, windows=3)
    assert low.value < 10 < 50 < high.value
    assert high.n_scored == 3 * 31
    with pytest.raises(ValueError, match="two windows"):
        pyrt.perplexity("short", model=smollm)


def test_a_damaged_weight_names_the_file_and_the_tensor(tmp_path):
    data = bytearray(real_model("smollm2.gguf").read_bytes())
    data[-4096:] = b"\xff" * 4096
    path = tmp_path / "damaged.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelFormatError, match=r"damaged\.gguf: .*not finite"):
        pyrt.load(path)


def test_a_bad_number_of_threads_in_the_environment_is_not_blamed_on_the_file(monkeypatch):
    monkeypatch.setenv("PYRT_THREADS", "-2")
    with pytest.raises(ValueError, match="PYRT_THREADS"):
        pyrt.load(real_model("smollm2.gguf"))
