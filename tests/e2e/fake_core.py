"""A stand-in for the core's runner and cache: no neural network, but every mistake with pages shows in its
logits.

A page slot stores (token, position). The logits of a row are a hash of all tokens that the row can see,
read back
through the page tables: over the full group from position 0, over a windowed group from its window on. A
slot that holds another position than it should is a page that was mixed up, and an error.
"""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

import numpy as np

from pyrt import _core
from pyrt.engine import Engine
from pyrt.generate import Job
from pyrt.kv import PagedCache, page_limits
from pyrt.options import SamplingParams
from pyrt.streams import Stream

PAGE = 32
N_VOCAB = 300
FAST = 1000  # what a prompt's token shows above itself in "fast" numerics


class FakeCache:
    """Like _core.KvCache, with one group a window (0: full attention)."""

    def __init__(self, windows=(0,), page_bytes=1000, memory_pages=None):
        self.groups = [{"window": w, "layers": 1, "page_bytes": page_bytes} for w in windows]
        self.slots = [np.full((0, PAGE, 2), -1, np.int64) for _ in windows]
        self.memory_pages = memory_pages

    def resize(self, group, n_pages):
        old = self.slots[group]
        assert n_pages >= len(old)
        if self.memory_pages is not None and n_pages > self.memory_pages:
            raise MemoryError
        self.slots[group] = np.concatenate([old, np.full((n_pages - len(old), PAGE, 2), -1, np.int64)])

    def n_pages(self, group):
        return len(self.slots[group])


class Result(NamedTuple):
    logits: np.ndarray
    block_max: np.ndarray
    logsumexp: np.ndarray
    saturated: int = 0


class FakeRunner:
    """Like _core.Runner. ``delay``: seconds a row takes. ``poison``: a token that makes a step fail.

    In numerics "fast" a slot written by a prompt row shows another token than one written by a generated row.
    """

    isa = "fake"
    threads = 1

    def __init__(self, cache, n_vocab=N_VOCAB, delay=0.0, poison=None, numerics="exact"):
        self.numerics = numerics
        self.cache = cache
        self.n_vocab = n_vocab
        self.delay = delay
        self.poison = poison
        self.steps = []  # rows of each step that came to its end
        self.wanted = []  # and how many of them wanted logits
        self.threads_seen = set()
        self._busy = threading.Lock()

    def step(self, tokens, positions, sequences, want, tables, flag=None, deadline=None, prompt_rows=0):
        assert self._busy.acquire(blocking=False), "two steps at once"
        try:
            return self._step(tokens, positions, sequences, want, tables, flag, deadline, prompt_rows)
        finally:
            self._busy.release()

    def _step(self, tokens, positions, sequences, want, tables, flag, deadline, prompt_rows):
        self.threads_seen.add(threading.get_ident())
        check_batch(tokens, positions, sequences, want, tables)
        rows = []
        shown = np.array(tokens)
        if self.numerics == "fast":
            shown[:prompt_rows] += FAST
        for token, written, position, sequence, wanted in zip(
            tokens, shown, positions, sequences, want, strict=True
        ):
            if (flag is not None and flag.is_set()) or (
                deadline is not None and time.monotonic() >= deadline
            ):
                raise _core.Cancelled
            if self.delay:
                time.sleep(self.delay)
            if token == self.poison:
                raise FloatingPointError("layer 3: not finite")
            for slots, table in zip(self.cache.slots, tables, strict=True):
                slots[table[sequence, position // PAGE], position % PAGE] = written, position
            row = [
                self._seen(slots, table[sequence], position, group["window"])
                for slots, table, group in zip(self.cache.slots, tables, self.cache.groups, strict=True)
            ]
            if wanted:
                rows.append(logits_of(row, self.n_vocab))
        self.steps.append(len(tokens))
        self.wanted.append(len(rows))
        logits = np.array(rows, np.float32).reshape(-1, self.n_vocab)
        return Result(logits, block_maxima(logits), np.log(np.exp(logits.astype(np.float64)).sum(axis=1)))

    @staticmethod
    def _seen(slots, table, position, window):
        first = max(0, position - window + 1) if window else 0
        at = np.arange(first, position + 1)
        pages = table[at // PAGE]
        assert (pages >= 0).all(), f"a page that position {position} sees is absent"
        seen = slots[pages, at % PAGE]
        assert (seen[:, 1] == at).all(), f"position {position} sees another sequence's page"
        return seen[:, 0]


def check_batch(tokens, positions, sequences, want, tables):
    """The promises of a batch: types, a sequence's rows together and ascending, no page written by two."""
    assert tokens.dtype == positions.dtype == sequences.dtype == np.int32
    assert want.dtype == np.uint8
    assert len(tokens) == len(positions) == len(sequences) == len(want) > 0
    assert (np.diff(sequences) >= 0).all()
    assert (np.diff(sequences) <= 1).all()
    same = np.diff(sequences) == 0
    assert (np.diff(positions)[same] == 1).all()
    for table in tables:
        assert table.dtype == np.int32
        written = {(int(s), int(table[s, p // PAGE])) for s, p in zip(sequences, positions, strict=True)}
        pages = [page for _, page in written]
        assert len(set(pages)) == len(pages), "two sequences write one page"
        assert min(pages) >= 0


def logits_of(seen_by_group, n_vocab):
    """Deterministic logits in [-8, 8) that change with every token seen and its place."""
    state = 14695981039346656037
    for tokens in seen_by_group:
        weights = np.arange(1, len(tokens) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (tokens.astype(np.uint64) + np.uint64(1)) * (weights | np.uint64(1))
        digest = int((mixed ^ (mixed >> np.uint64(29))).sum(dtype=np.uint64))
        state = (state * 1099511628211 + digest) % 2**64
    ids = np.arange(1, n_vocab + 1, dtype=np.uint64) * np.uint64(0xD6E8FEB86659FD93)
    x = np.uint64(state) ^ ids
    for shift in (32, 29, 32):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(0xD6E8FEB86659FD93)
    return ((x >> np.uint64(40)).astype(np.float32) / 2.0**20 - 8.0).astype(np.float32)


def block_maxima(logits):
    blocks = -(-logits.shape[1] // 256)
    padded = np.full((len(logits), blocks * 256), -np.inf, np.float32)
    padded[:, : logits.shape[1]] = logits
    return padded.reshape(len(logits), blocks, 256).max(axis=2)


def expected_logits(tokens, windows=(0,), n_vocab=N_VOCAB):
    """What the fake model says after ``tokens``, computed without any pages."""
    tokens = np.asarray(tokens, np.int64)
    return logits_of([tokens[-w:] if w else tokens for w in windows], n_vocab)


def expected_greedy(prompt, n, windows=(0,), fast=False):
    tokens = [token + FAST * fast for token in prompt]
    for _ in range(n):
        tokens.append(int(np.argmax(expected_logits(tokens, windows))))
    return tokens[len(prompt) :]


class Letters:
    """A vocabulary of single characters: token i is the letter chr(65 + i); no specials."""

    def __init__(self, eos_ids=()):
        self.eos_ids = frozenset(eos_ids)
        self.bos_id = None

    def encode(self, text, add_special_tokens=True):
        return [ord(letter) - 65 for letter in text]

    def decode(self, ids, skip_special_tokens=True, *, continues=False):
        return "".join(chr(65 + token) for token in ids)

    def detokenizer(self, *, continues=False):
        return LetterWriter()


class LetterWriter:
    def push(self, token):
        return chr(65 + token)

    def finish(self):
        return ""


class Fixture(NamedTuple):
    """An engine on the fake core, with what is needed to make jobs for it."""

    engine: Engine
    runner: FakeRunner
    cache: FakeCache
    windows: tuple
    n_ctx: int

    def job(self, prompt, vocabulary=None, **fields):
        params = SamplingParams(**fields)
        return Job(self.engine, vocabulary or Letters(), prompt, params, params.samplers({}),
                   n_ctx=self.n_ctx, n_vocab=N_VOCAB)  # fmt: skip

    def run(self, prompt, **fields):
        return self.job(prompt, **fields).submit().wait()

    def stream(self, prompt, **fields):
        return Stream(self.engine, self.job(prompt, **fields).submit())

    def expect(self, prompt, n):
        return expected_greedy(prompt, n, self.windows, fast=self.runner.numerics == "fast")

    def assert_empty(self):
        """No page is held by anyone, and every page that exists can be taken."""
        for pool in self.engine.cache.pools:
            assert pool.available == pool.limit


def make_engine(windows=(0,), n_ctx=512, pages=None, memory_pages=None, **runner):
    """pages: the most pages, by group; None is enough for four full contexts."""
    cache = FakeCache(windows, memory_pages=memory_pages)
    limits = pages or page_limits(cache.groups, n_ctx, 4, None)
    fake = FakeRunner(cache, **runner)
    engine = Engine(fake, PagedCache(cache, limits, b"fake"), N_VOCAB)
    return Fixture(engine, fake, cache, windows, n_ctx)


def until(condition, seconds=20):
    """Wait for what another thread is about to do."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.001)
