"""Many callers, and callers that go away: threads, tasks, Ctrl-C, deadlines, closed generators, forks.

The fake runner sleeps a millisecond a row and looks at the flag between rows, so that a prompt of 2,000
tokens takes seconds unless it is cancelled. Bounds on waiting are many times what is promised (50 ms): they
tell a cancelled step from one that ran to its end, on a busy machine too.
"""

import asyncio
import gc
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from e2e.fake_core import make_engine, until

from pyrt.errors import Cancelled, MemoryLimitError
from pyrt.streams import async_stream, async_wait

LONG = [7] * 2000


def slow_engine():
    return make_engine(n_ctx=4096, delay=0.001)


def test_64_requests_from_8_threads():
    f = make_engine((0, 40), n_ctx=256)
    prompts = [[i, 2 * i, 3] * (1 + i % 9) for i in range(64)]
    with ThreadPoolExecutor(8) as pool:
        outs = list(pool.map(lambda p: f.run(p, max_tokens=25), prompts))
    assert [out.tokens for out in outs] == [f.expect(p, 25) for p in prompts]
    assert len(f.runner.steps) < sum(25 for _ in prompts)  # rows joined
    f.assert_empty()


def test_threads_that_stream_wait_and_give_up():
    f = make_engine((0, 40), n_ctx=256, delay=0.0001)

    def call(i):
        prompt = [i, i + 1, i + 2] * 11
        if i % 3 == 0:
            return f.run(prompt, max_tokens=30).tokens == f.expect(prompt, 30)
        with f.stream(prompt, max_tokens=30) as stream:
            if i % 3 == 1:
                return [t for chunk in stream for t in chunk.tokens] == f.expect(prompt, 30)
            next(stream)
            return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(60)))
    f.engine.cancel(f.job([1]).request)  # anyone's cancel clears up after those who left
    f.assert_empty()


def test_an_idle_engine_owns_no_thread():
    before = set(threading.enumerate())
    f = make_engine()
    f.run([1, 2], max_tokens=5)
    assert set(threading.enumerate()) == before


def test_the_wheel_is_handed_over():
    """The driver's own request ends first; another waiting thread goes on driving."""
    f = make_engine(delay=0.0005)
    with ThreadPoolExecutor(2) as pool:
        short = pool.submit(f.run, [1], max_tokens=5)
        long = pool.submit(f.run, [2], max_tokens=150)
        assert len(short.result(20).tokens) == 5
        assert long.result(20).tokens == f.expect([2], 150)
    assert f.runner.threads_seen  # the runner itself asserts that never two steps ran at once


def test_a_deadline_ends_a_long_prompt():
    f = slow_engine()
    began = time.monotonic()
    out = f.run(LONG, deadline=0.1)
    assert time.monotonic() - began < 1.0
    assert (out.text, out.finish_reason, out.stop_reason) == ("", "cancelled", "deadline")
    assert out.usage.prompt_tokens == 2000
    f.assert_empty()


def test_a_deadline_keeps_what_there_is():
    f = slow_engine()
    out = f.run([1, 2], deadline=0.2, max_tokens=1000)
    assert 0 < len(out.tokens) < 1000
    assert out.tokens == f.expect([1, 2], len(out.tokens))
    assert out.finish_reason == "cancelled"


def test_a_deadline_of_one_does_not_touch_others():
    f = slow_engine()
    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(f.run, [5, 6], max_tokens=100)
        late = pool.submit(f.run, LONG, deadline=0.05)
        assert late.result(20).finish_reason == "cancelled"
        assert other.result(20).tokens == f.expect([5, 6], 100)


def test_a_closed_stream_leaves_a_long_prompt_at_once():
    f = slow_engine()
    stream = f.stream(LONG)
    with ThreadPoolExecutor(2) as pool:
        reader = pool.submit(list, stream)
        until(lambda: f.engine._driver)
        time.sleep(0.05)
        other = pool.submit(f.run, [5, 6], max_tokens=20)
        began = time.monotonic()
        stream.close()
        assert reader.result(20)[-1].finish_reason == "cancelled"
        assert time.monotonic() - began < 1.0
        assert other.result(20).tokens == f.expect([5, 6], 20)
    f.assert_empty()


def test_closed_and_forgotten_streams_free_their_pages():
    f = make_engine()
    stream = f.stream([1, 2, 3] * 20, max_tokens=100)
    next(stream)
    assert f.engine.cache.pools[0].available < f.engine.cache.pools[0].limit
    stream.close()
    f.assert_empty()
    assert list(stream) == []
    stream = f.stream([1, 2, 3] * 20, max_tokens=100)
    next(stream)
    del stream
    gc.collect()
    f.assert_empty()


def test_a_stream_that_another_thread_reads_says_so():
    f = slow_engine()
    stream = f.stream([1, 2], max_tokens=200)
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(list, stream)
        until(lambda: f.engine._driver)
        with pytest.raises(RuntimeError, match="one thread at a time"):
            next(stream)
        assert [t for chunk in reader.result(20) for t in chunk.tokens] == f.expect([1, 2], 200)


def test_a_stream_never_begun_is_cancelled_too():
    f = make_engine()
    f.stream([1, 2], max_tokens=100).close()
    assert f.run([3], max_tokens=3).tokens == f.expect([3], 3)
    f.assert_empty()


@pytest.fixture
def ctrl_c():
    """Python's own handler, which background jobs of a shell start without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_after(seconds):
    def send():
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send).start()


def test_ctrl_c_while_driving(ctrl_c):
    f = slow_engine()
    f.runner.delay = 0.001
    interrupt_after(0.1)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        f.run(LONG)
    assert time.monotonic() - began < 1.0
    f.assert_empty()
    assert f.run([3], max_tokens=3).tokens == f.expect([3], 3)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_while_another_thread_drives(ctrl_c):
    f = slow_engine()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(f.run, [5, 6], max_tokens=200)
        until(lambda: f.engine._driver)
        interrupt_after(0.1)
        with pytest.raises(KeyboardInterrupt):
            f.run(LONG)
        assert other.result(20).tokens == f.expect([5, 6], 200)
    f.assert_empty()


def test_ctrl_c_at_any_moment_harms_no_other_request(ctrl_c):
    """Interrupts hit the driver anywhere; the other requests' tokens stay right and all pages come back."""
    f = make_engine((0, 40))
    prompts = [[i] * 40 for i in range(4)]
    others = [f.job(p, max_tokens=60).submit() for p in prompts]
    for i in range(30):
        try:
            interrupt_after(0.0005 * (1 + i % 7))
            while True:
                f.run([100 + i] * 30, max_tokens=50)
        except KeyboardInterrupt:
            pass
    for prompt, job in zip(prompts, others, strict=True):
        assert job.wait().tokens == f.expect(prompt, 60)
    f.assert_empty()


def test_ctrl_c_in_the_middle_of_another_callers_token(ctrl_c):
    """The driver is just handing out a token of someone else's; that one is finished before it gives way."""

    def interrupt(tokens, logits):
        if len(tokens) == 10:
            signal.raise_signal(signal.SIGINT)

    f = make_engine()
    other = f.job([5, 6], max_tokens=30, logits_processors=[interrupt]).submit()
    with pytest.raises(KeyboardInterrupt):
        f.run([1, 2, 3], max_tokens=100)
    assert other.wait().tokens == f.expect([5, 6], 30)
    f.assert_empty()


def test_close_ends_everyone():
    f = slow_engine()
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(f.run, LONG), pool.submit(f.run, [1, 2], max_tokens=2000)]
        until(lambda: f.engine._driver)
        f.engine.close()
        for call in calls:
            with pytest.raises(Cancelled, match="closed"):
                call.result(20)
    with pytest.raises(Cancelled, match="closed"):
        f.run([1])


def test_tasks_share_steps():
    f = make_engine((0, 40), n_ctx=256)
    prompts = [[i, i + 1] * 10 for i in range(40)]

    async def one(prompt):
        (out,) = await async_wait(f.engine, [f.job(prompt, max_tokens=20).submit()])
        return out.tokens

    async def main():
        return await asyncio.gather(*map(one, prompts))

    assert asyncio.run(main()) == [f.expect(p, 20) for p in prompts]
    assert len(f.runner.steps) < 200
    until(lambda: not any(thread.name == "pyrt" for thread in threading.enumerate()))


def test_an_async_stream():
    f = make_engine()

    async def main():
        job = f.job([1, 2], max_tokens=30).submit()
        return [chunk async for chunk in async_stream(f.engine, job)]

    chunks = asyncio.run(main())
    assert [t for chunk in chunks for t in chunk.tokens] == f.expect([1, 2], 30)
    assert chunks[-1].completion.finish_reason == "length"


def test_a_cancelled_task_ends_its_long_prompt_and_no_other():
    f = slow_engine()

    async def main():
        job = f.job(LONG).submit()
        task = asyncio.create_task(async_wait(f.engine, [job]))
        other = asyncio.create_task(async_wait(f.engine, [f.job([5, 6], max_tokens=20).submit()]))
        await asyncio.sleep(0.1)
        task.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        (out,) = await other
        assert out.tokens == f.expect([5, 6], 20)
        until(lambda: job.request.over, 1.0)
        return time.monotonic() - began

    assert asyncio.run(main()) < 1.5
    f.assert_empty()


def test_the_event_loop_stays_free():
    f = slow_engine()

    async def main():
        ticks = 0
        task = asyncio.create_task(async_wait(f.engine, [f.job([1] * 500, max_tokens=1).submit()]))
        while not task.done():
            await asyncio.sleep(0.005)
            ticks += 1
        return ticks

    assert asyncio.run(main()) > 20


def test_a_callback_that_uses_its_own_model_is_an_error_not_a_deadlock():
    f = make_engine()
    for call in (lambda: f.run([1]), f.engine.close):
        with pytest.raises(RuntimeError, match="callback"):
            f.run([1, 2], logits_processors=[lambda tokens, logits, call=call: call()])
    f.assert_empty()


def test_a_failure_of_one_choice_is_the_requests_and_no_other_choice_runs_on():
    f = make_engine(poison=7)
    job = f.job([1, 2], n=3, max_tokens=50, logit_bias={7: 100.0}).submit()
    other = f.job([3, 4], max_tokens=20, logit_bias={7: -100.0}).submit()
    with pytest.raises(FloatingPointError):
        job.wait()
    assert len(other.wait().tokens) == 20
    f.assert_empty()


def test_an_awaited_request_hears_of_a_machine_without_memory():
    f = make_engine(n_ctx=1024, memory_pages=16)

    async def main():
        with pytest.raises(MemoryLimitError, match="no memory"):
            await asyncio.wait_for(async_wait(f.engine, [f.job([1] * 300, max_tokens=None).submit()]), 20)

    asyncio.run(main())


def test_frequent_cancels_do_not_starve_a_long_prompt():
    """A chunk of 512 rows takes half a second, someone cancels every 80 ms: the prompt is done anyway."""
    f = slow_engine()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(f.run, [7] * 600, max_tokens=1)
        end = time.monotonic() + 30
        while not call.done():
            assert time.monotonic() < end
            f.engine.cancel(f.job([1]).request)
            time.sleep(0.08)
        assert call.result(0).tokens == f.expect([7] * 600, 1)


def test_a_loop_that_is_gone_harms_nobody():
    f = make_engine(delay=0.0005)
    loop = asyncio.new_event_loop()

    async def begin():
        task = asyncio.ensure_future(async_wait(f.engine, [f.job([5, 6], max_tokens=50).submit()]))
        await asyncio.sleep(0.01)
        return task

    task = loop.run_until_complete(begin())
    loop.close()
    assert f.run([1, 2], max_tokens=20).tokens == f.expect([1, 2], 20)
    until(lambda: not any(thread.name == "pyrt" for thread in threading.enumerate()))
    task._log_destroy_pending = False
