"""From tokens to text: stop strings, characters, chunks, ends and log-probabilities."""

import codecs
from array import array
from collections import deque

import numpy as np
import pytest
from e2e.fake_core import N_VOCAB, Letters, expected_logits, make_engine
from hypothesis import given
from hypothesis import strategies as st

from pyrt.options import SamplingParams
from pyrt.schedule import Row
from pyrt.stops import StopMatcher
from pyrt.writer import Writer

LETTERS = st.text("abc", max_size=12)
STOPS = st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=4)


def first_stop(text, stops):
    """By definition: the first place where a stop is complete; the longest that ends there."""
    for end in range(len(text) + 1):
        hits = [stop for stop in stops if text[:end].endswith(stop)]
        if hits:
            longest = max(hits, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(st.lists(LETTERS, max_size=8), STOPS)
def test_stops_do_not_depend_on_the_pieces(pieces, stops):
    matcher, shown = StopMatcher(stops), ""
    hit = None
    for piece in pieces:
        text, hit = matcher.push(piece)
        shown += text
        if hit:
            break
    else:
        shown += matcher.finish()
    assert (shown, hit) == first_stop("".join(pieces), stops)


@given(st.lists(LETTERS, max_size=8), STOPS)
def test_no_part_of_a_stop_is_shown_early(pieces, stops):
    """What is shown is the beginning of the final text, and no more is held back than needed."""
    final, _ = first_stop("".join(pieces), stops)
    matcher, shown, seen = StopMatcher(stops), "", ""
    for piece in pieces:
        text, stop = matcher.push(piece)
        shown, seen = shown + text, seen + piece
        assert final.startswith(shown)
        if stop:
            break
        held = seen[len(shown) :]
        assert not held or any(stop.startswith(held) for stop in stops)


class Bytes(Letters):
    """Ids 0-255 are bytes of UTF-8; the rest are nothing."""

    def detokenizer(self, *, continues=False):
        return ByteWriter()


class ByteWriter:
    def __init__(self):
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token):
        return self._decoder.decode(bytes([token]) if token < 256 else b"")

    def finish(self):
        return self._decoder.decode(b"", final=True)


def write(data, vocabulary=None, most=None, **fields):
    """Let a Writer read logits that dictate ``data``; returns (writer, chunks)."""
    chunks = deque()
    params = SamplingParams(max_tokens=len(data) if most is None else most, **fields)
    samplers, most = params.samplers({}), params.max_tokens
    writer = Writer(0, vocabulary or Bytes(), params, samplers, most, False, N_VOCAB, chunks)
    tokens = array("i", [65])
    for wanted in data:
        logits = np.zeros(N_VOCAB, np.float32)
        logits[wanted] = 5
        row = Row(logits, np.array([logits[:256].max(), logits[256:].max()], np.float32), 7.0)
        token = writer.read(tokens, len(tokens) - 1, row)
        if token is None:
            break
        tokens.append(token)
    else:
        writer.end("cancelled")
    return writer, [*chunks, writer.last]


@given(st.text(max_size=20), st.lists(st.text(min_size=1, max_size=3), max_size=3))
def test_chunks_join_to_the_text_and_split_no_character(text, stops):
    data = text.encode("utf-8", "ignore") or b"x"
    text = data.decode()
    writer, chunks = write(data, stop=stops)
    choice = writer.choice()
    assert "".join(chunk.text for chunk in chunks) == choice.text == first_stop(text, stops)[0]
    assert [token for chunk in chunks for token in chunk.tokens] == choice.tokens
    assert choice.tokens == list(data[: len(choice.tokens)])
    assert "�" not in choice.text or "�" in text
    assert [bool(chunk.finish_reason) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert choice.finish_reason == ("stop" if first_stop(text, stops)[1] else "length")


def test_a_character_cut_by_the_end_is_replaced_once():
    writer, chunks = write("aé".encode()[:2])
    assert writer.choice().text == "a�"
    assert "".join(chunk.text for chunk in chunks) == "a�"


def test_an_end_token_ends_and_is_no_text():
    writer, _ = write(b"abc\x00def", Bytes(eos_ids=[0]))
    assert (writer.choice().text, writer.choice().tokens, writer.choice().finish_reason) == (
        "abc",
        [*b"abc\x00"],
        "stop",
    )
    writer, _ = write(b"abc\x00def", Bytes(eos_ids=[0]), ignore_eos=True)
    assert writer.choice().text == "abc\x00def"
    writer, _ = write(b"abcdef", stop_token_ids=[ord("d")])
    assert (writer.choice().text, writer.choice().stop_reason) == ("abc", ord("d"))


def test_min_tokens_holds_off_every_end():
    writer, _ = write(b"ab\x00cd", Bytes(eos_ids=[0]), min_tokens=4)
    assert 0 not in writer.choice().tokens[:3]
    writer, _ = write(b"stop stop", stop="stop", min_tokens=5)
    assert writer.choice().text == "stop "
    assert writer.choice().stop_reason == "stop"


def test_held_back_text_comes_with_the_end():
    writer, chunks = write(b"abcEN", stop="END")
    assert writer.choice().text == "abcEN"
    assert chunks[-1].text == "EN"
    assert chunks[-1].finish_reason == "length"


def test_logprobs_are_the_models_own():
    f = make_engine()
    prompt = [5, 6, 7]
    out = f.run(prompt, max_tokens=6, temperature=0.7, seed=3, top_k=20, logprobs=3, logit_bias={9: 4.0})
    tokens = list(prompt)
    for entry, token in zip(out.logprobs, out.tokens, strict=True):
        logits = expected_logits(tokens).astype(np.float64)
        exact = logits - np.log(np.exp(logits).sum())
        assert entry.id == token
        assert entry.text == chr(65 + token)
        assert entry.logprob == pytest.approx(exact[token], abs=1e-9)
        order = np.argsort(-exact, kind="stable")[:3]
        assert [each[0] for each in entry.top] == list(order)
        assert [each[2] for each in entry.top] == pytest.approx(list(exact[order]), abs=1e-9)
        tokens.append(token)


def test_prompt_logprobs():
    f = make_engine()
    prompt = [*range(50)]
    f.run(prompt, max_tokens=1)  # a cached prefix must not lose them
    out = f.run(prompt, max_tokens=0, prompt_logprobs=2)
    assert out.prompt_logprobs[0] is None
    assert len(out.prompt_logprobs) == 50
    for i, entry in enumerate(out.prompt_logprobs[1:], start=1):
        logits = expected_logits(prompt[:i]).astype(np.float64)
        exact = logits - np.log(np.exp(logits).sum())
        assert entry.id == i
        assert entry.logprob == pytest.approx(exact[i], abs=1e-9)
        assert len(entry.top) == 2
    assert (out.tokens, out.finish_reason) == ([], "length")


@pytest.mark.parametrize("n", [1, 3])
def test_a_stream_is_the_completion_in_pieces(n):
    f = make_engine()
    fields = {"n": n, "max_tokens": 20, "temperature": 1.0, "seed": 1, "logprobs": 0}
    whole = f.run([1, 2], **fields)
    chunks = list(f.stream([1, 2], **fields))
    assert chunks[-1].completion.choices == whole.choices
    for choice in whole.choices:
        mine = [chunk for chunk in chunks if chunk.index == choice.index]
        assert "".join(chunk.text for chunk in mine) == choice.text
        assert [token for chunk in mine for token in chunk.tokens] == choice.tokens
        assert [entry for chunk in mine for entry in chunk.logprobs] == choice.logprobs
        assert mine[-1].finish_reason == choice.finish_reason
        assert not any(chunk.finish_reason for chunk in mine[:-1])
    assert len(chunks) == 20 * n
