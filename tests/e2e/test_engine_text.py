"""The engine on the fake core: a request gives the same tokens, whatever runs beside it or is cached."""

import random

import numpy as np
import pytest
from e2e.fake_core import N_VOCAB, expected_logits, make_engine

from pyrt import schedule, scoring
from pyrt.errors import ContextLengthError, MemoryLimitError

WINDOWS = [(0,), (0, 40), (64,), (40, 0, 100)]


in_both_numerics = pytest.mark.parametrize("numerics", ["exact", "fast"])


def prompt_of(n, seed=0):
    return random.Random(seed).choices(range(N_VOCAB), k=n)


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("n", [1, 31, 32, 33, 64, 200])
def test_greedy_is_what_the_model_says(windows, n):
    f = make_engine(windows)
    prompt = prompt_of(n)
    assert f.run(prompt, max_tokens=70).tokens == f.expect(prompt, 70)
    f.assert_empty()


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("n", [32, 33, 64, 65, 200])
@in_both_numerics
def test_a_cached_prefix_changes_nothing(windows, n, numerics):
    f = make_engine(windows, numerics=numerics)
    prompt = prompt_of(n)
    cold = f.run(prompt, max_tokens=10)
    warm = f.run(prompt, max_tokens=10)
    assert warm.tokens == cold.tokens == f.expect(prompt, 10)
    assert cold.usage.cached_tokens == 0
    assert warm.usage.cached_tokens == (n - 1) // 32 * 32  # the last token is computed for its logits
    f.assert_empty()


@pytest.mark.parametrize("windows", WINDOWS)
def test_generated_tokens_are_a_prefix_too(windows):
    f = make_engine(windows)
    prompt = prompt_of(10)
    turn = f.run(prompt, max_tokens=100)
    follow = prompt + turn.tokens + prompt_of(5, seed=1)
    out = f.run(follow, max_tokens=20)
    assert out.usage.cached_tokens == 96
    assert out.tokens == f.expect(follow, 20)


@pytest.mark.parametrize("windows", WINDOWS)
def test_fast_prompts_share_no_generated_tokens(windows):
    """What was generated has other bits than the same tokens in a prompt, so it is computed again."""
    f = make_engine(windows, numerics="fast")
    prompt = prompt_of(40)
    turn = f.run(prompt, max_tokens=100)
    follow = prompt + turn.tokens + prompt_of(5, seed=1)
    for cached in (32, 128):
        out = f.run(follow, max_tokens=20)
        assert out.usage.cached_tokens == cached
        assert out.tokens == f.expect(follow, 20)


@pytest.mark.parametrize("windows", WINDOWS)
def test_a_shared_prefix_branches(windows):
    f = make_engine(windows)
    base = prompt_of(100)
    f.run(base, max_tokens=1)
    for seed in range(4):
        prompt = base[:70] + prompt_of(40, seed=seed + 1)
        out = f.run(prompt, max_tokens=5)
        assert out.usage.cached_tokens == 64
        assert out.tokens == f.expect(prompt, 5)


def test_a_page_is_known_with_all_that_was_before_it():
    """Of a prompt that begins like one and goes on like another, only the beginning is cached."""
    f = make_engine()
    a, b, c, d = (prompt_of(32, seed) for seed in range(4))
    for prompt in (a + b, c + d):
        f.run([*prompt, 1], max_tokens=1)
    mixed = [*a, *d, 1]
    out = f.run(mixed, max_tokens=5)
    assert out.usage.cached_tokens == 32
    assert out.tokens == f.expect(mixed, 5)


def test_a_page_taken_in_one_group_only_is_given_back():
    """The windowed group runs out first, when the full group has already handed out its page."""
    f = make_engine((0, 40), n_ctx=160, pages=[40, 5])
    jobs = [f.job(prompt_of(20, seed=i), max_tokens=130).submit() for i in range(4)]
    for i, job in enumerate(jobs):
        assert job.wait().tokens == f.expect(prompt_of(20, seed=i), 130)
    f.assert_empty()


def test_a_window_needs_its_last_pages():
    """A prefix whose windowed pages were evicted is no hit, even if the full group still has it."""
    f = make_engine((0, 32), pages=[64, 40])
    prompt = prompt_of(300)
    f.run(prompt, max_tokens=1)
    full, windowed = f.engine.cache.pools
    keys = list(windowed._page_of)
    while windowed._idle:  # evict all idle pages of the windowed group
        page = next(iter(windowed._idle))
        del windowed._idle[page]
        windowed._forget(page)
        windowed._free.append(page)
    assert keys
    assert all(full.knows(key) for key in keys)
    out = f.run(prompt, max_tokens=8)
    assert out.usage.cached_tokens == 0
    assert out.tokens == f.expect(prompt, 8)


@pytest.mark.parametrize("windows", WINDOWS)
@in_both_numerics
def test_batched_is_as_alone(windows, numerics):
    f = make_engine(windows, numerics=numerics)
    prompts = [prompt_of(n, seed=n) for n in (1, 5, 33, 64, 150, 7, 32, 90)]
    jobs = [f.job(p, max_tokens=30 + i).submit() for i, p in enumerate(prompts)]
    for i, (job, prompt) in enumerate(zip(jobs, prompts, strict=True)):
        assert job.wait().tokens == f.expect(prompt, 30 + i)
    assert max(f.runner.steps) > 100  # they did share steps
    f.assert_empty()


@pytest.mark.parametrize("chunk", [1, 3, 32, 50])
@in_both_numerics
def test_any_chunking_of_the_prompt(chunk, numerics, monkeypatch):
    monkeypatch.setattr(schedule, "CHUNK", chunk)
    monkeypatch.setattr(schedule, "CHUNK_BESIDE_DECODE", chunk)
    f = make_engine((0, 40), numerics=numerics)
    prompts = [prompt_of(n, seed=n) for n in (130, 64, 9)]
    jobs = [f.job(p, max_tokens=12).submit() for p in prompts]
    assert [job.wait().tokens for job in jobs] == [f.expect(p, 12) for p in prompts]
    assert max(f.runner.steps) <= chunk + 3


@pytest.mark.parametrize("windows", [(0,), (0, 40)])
@in_both_numerics
def test_preempted_sequences_come_back_unchanged(windows, numerics):
    """Five sequences that need 25 pages at their end, with 8 pages for all."""
    f = make_engine(windows, n_ctx=160, pages=[8] * len(windows), numerics=numerics)
    prompts = [prompt_of(20, seed=i) for i in range(5)]
    jobs = [f.job(p, max_tokens=130, temperature=1.0, seed=i).submit() for i, p in enumerate(prompts)]
    together = [job.wait() for job in jobs]
    alone = make_engine(windows, n_ctx=160, numerics=numerics)
    for i, (prompt, out) in enumerate(zip(prompts, together, strict=True)):
        assert out.tokens == alone.run(prompt, max_tokens=130, temperature=1.0, seed=i).tokens
        assert len(out.tokens) == 130
    assert sum(f.runner.steps) > 5 * 150  # rows were computed again, so someone was preempted
    f.assert_empty()


def test_the_oldest_is_never_preempted():
    f = make_engine(n_ctx=160, pages=[6])
    first = f.job(prompt_of(20), max_tokens=130).submit()
    others = [f.job(prompt_of(20, seed=i), max_tokens=130).submit() for i in (1, 2)]
    first.wait()
    assert not any(job.request.over for job in others)
    for job in others:
        job.wait()


def test_first_come_first_served_even_when_preempted():
    f = make_engine(n_ctx=160, pages=[6])
    finished = []
    jobs = [f.job(prompt_of(20, seed=i), max_tokens=100) for i in range(8)]
    for i, job in enumerate(jobs):
        job.request.listener = lambda i=i: finished.append(i) if jobs[i].request.over else None
        job.submit()
    jobs[-1].wait()
    assert list(dict.fromkeys(finished)) == list(range(8))


def test_prompt_logprobs_beside_others_and_after_preemption():
    prompts = [prompt_of(70 + i, seed=i) for i in range(4)]
    fields = {"max_tokens": 80, "prompt_logprobs": 1, "logprobs": 1}
    alone = make_engine(n_ctx=160)
    tight = make_engine(n_ctx=160, pages=[8])
    jobs = [tight.job(p, **fields).submit() for p in prompts]
    for job, prompt in zip(jobs, prompts, strict=True):
        out, expected = job.wait(), alone.run(prompt, **fields)
        assert out.prompt_logprobs == expected.prompt_logprobs
        assert out.logprobs == expected.logprobs
    assert sum(tight.runner.steps) > sum(alone.runner.steps)  # someone was preempted


def test_a_step_hands_out_few_logits(monkeypatch):
    monkeypatch.setattr(schedule, "LOGIT_BYTES", 10 * 4 * N_VOCAB)
    f = make_engine()
    tokens = prompt_of(95)
    rows = scoring.logits(f.engine, tokens, N_VOCAB)
    assert np.array_equal(rows[-1], expected_logits(tokens))
    assert max(f.runner.wanted) == 10
    assert sum(f.runner.wanted) == 95


def test_choices_share_the_prompt_and_differ():
    f = make_engine()
    prompt = prompt_of(200)
    out = f.run(prompt, n=4, max_tokens=20, temperature=1.0, seed=7)
    assert len({tuple(choice.tokens) for choice in out.choices}) == 4
    assert sum(f.runner.steps) < 200 + 4 * (32 + 20)
    assert out.usage.completion_tokens == 80
    alone = f.run(prompt, n=1, max_tokens=20, temperature=1.0, seed=7)
    assert alone.tokens == out.choices[0].tokens
    f.assert_empty()


def test_a_batch_computes_its_common_prefix_once():
    f = make_engine()
    base = prompt_of(256)
    jobs = [f.job([*base, i, i], max_tokens=3).submit() for i in range(10)]
    for i, job in enumerate(jobs):
        assert job.wait().tokens == f.expect([*base, i, i], 3)
    assert sum(f.runner.steps) < 256 + 10 * 40


def test_seeds():
    f = make_engine()
    one = f.run([1, 2, 3], temperature=1.0, max_tokens=40, seed=5)
    assert one.seed == 5
    assert f.run([1, 2, 3], temperature=1.0, max_tokens=40, seed=5).tokens == one.tokens
    assert f.run([1, 2, 3], temperature=1.0, max_tokens=40, seed=6).tokens != one.tokens
    drawn = f.run([1, 2, 3], temperature=1.0, max_tokens=40)
    again = f.run([1, 2, 3], temperature=1.0, max_tokens=40)
    assert drawn.seed != again.seed
    assert drawn.tokens != again.tokens
    assert f.run([1, 2, 3], temperature=1.0, max_tokens=40, seed=drawn.seed).tokens == drawn.tokens


def test_the_context_ends_with_length():
    f = make_engine(n_ctx=64)
    out = f.run(prompt_of(50), max_tokens=None)
    assert (len(out.tokens), out.finish_reason) == (14, "length")
    assert f.run(prompt_of(64), max_tokens=5).finish_reason == "length"
    with pytest.raises(ContextLengthError, match="65") as error:
        f.run(prompt_of(65), max_tokens=5)
    assert (error.value.n_prompt, error.value.n_ctx) == (65, 64)


@pytest.mark.parametrize("truncate", ["left", "middle"])
def test_truncation_on_request(truncate):
    f = make_engine(n_ctx=64)
    prompt = prompt_of(100)
    out = f.run(prompt, max_tokens=14, truncate=truncate)
    assert out.truncated_tokens == 50
    assert out.usage.prompt_tokens == 50
    kept = prompt[50:] if truncate == "left" else prompt[:25] + prompt[75:]
    assert out.tokens == f.expect(kept, 14)
    assert f.run(prompt[:50], max_tokens=14, truncate=truncate).truncated_tokens == 0


@pytest.mark.parametrize("prompt", [[], [-1], [N_VOCAB], [1, 2, N_VOCAB + 5, 3], [2**40]])
def test_bad_prompts(prompt):
    with pytest.raises(ValueError, match="empty" if not prompt else f"{max(prompt)}"):
        make_engine().run(prompt)


@pytest.mark.parametrize("fields", [{"logit_bias": {N_VOCAB: 1}}, {"stop_token_ids": [2, N_VOCAB]}])
def test_ids_that_the_model_does_not_have(fields):
    with pytest.raises(ValueError, match=f"{next(iter(fields))}.*{N_VOCAB}"):
        make_engine().run([1, 2], **fields)


@pytest.mark.parametrize("prompt", [["a"], [1.5], 5, None])
def test_prompts_of_the_wrong_type(prompt):
    with pytest.raises(TypeError, match="text or a list of token ids"):
        make_engine().run(prompt)


def test_what_can_never_fit_is_refused_with_the_arithmetic():
    f = make_engine(n_ctx=512, pages=[4])
    with pytest.raises(
        MemoryLimitError, match=r"8 KV pages of 1,000 bytes = 8,000 bytes.*room for 4 = 4,000"
    ):
        f.run(prompt_of(200), max_tokens=50)
    assert f.run(prompt_of(100), max_tokens=28).finish_reason == "length"


def test_a_machine_without_memory():
    f = make_engine(memory_pages=5)
    with pytest.raises(MemoryLimitError, match="no memory"):
        f.run(prompt_of(300))


def test_scores_match_the_model():
    f = make_engine((0, 40))
    tokens = prompt_of(150)
    rows = scoring.logits(f.engine, tokens, N_VOCAB)
    for i in range(150):
        assert np.array_equal(rows[i], expected_logits(tokens[: i + 1], f.windows))
    wide = rows.astype(np.float64)
    exact = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    picked = exact[np.arange(149), tokens[1:]]
    assert np.allclose(scoring.log_probabilities(f.engine, tokens), picked, rtol=0, atol=1e-12)
    assert np.allclose(
        scoring.log_probabilities(f.engine, tokens, first=100), picked[100:], rtol=0, atol=1e-12
    )


def test_a_failing_row_fails_its_request_only():
    f = make_engine(poison=299)
    good = f.job([1, 2, 3], max_tokens=10, logit_bias={299: -100}).submit()
    bad = f.job([1, 299, 3], max_tokens=10).submit()
    assert good.wait().tokens == f.run([1, 2, 3], max_tokens=10, logit_bias={299: -100}).tokens
    with pytest.raises(FloatingPointError, match="layer 3"):
        bad.wait()
    f.assert_empty()


def test_a_failing_processor_fails_its_request_only():
    def broken(tokens, logits):
        raise RuntimeError("mine")

    f = make_engine()
    bad = f.job([1, 2], logits_processors=[broken]).submit()
    good = f.job([1, 2], max_tokens=5).submit()
    assert good.wait().tokens == f.expect([1, 2], 5)
    with pytest.raises(RuntimeError, match="mine"):
        bad.wait()
    f.assert_empty()


def test_progress_of_a_long_prompt():
    seen = []
    f = make_engine(n_ctx=2048)
    job = f.job(prompt_of(1300), max_tokens=2)
    job.request.on_progress = lambda done, total: seen.append((done, total))
    job.submit().wait()
    assert seen == [(512, 1300), (1024, 1300), (1300, 1300)]


def test_usage_and_timings():
    f = make_engine(delay=0.001)
    out = f.run(prompt_of(40), max_tokens=10)
    assert (out.usage.prompt_tokens, out.usage.completion_tokens, out.usage.total_tokens) == (40, 10, 50)
    t = out.timings
    assert t.prefill_seconds >= 0.040
    assert t.decode_seconds >= 0.009
    assert t.prefill_tps == pytest.approx(40 / t.prefill_seconds)
    assert t.decode_tps == pytest.approx(9 / t.decode_seconds)
    assert out.numerics == "exact"
