"""Merge rules for SentencePiece BPE models, which come with a score for each piece instead.

SentencePiece joins the two neighbours whose joined text is the piece of the highest score, the leftmost of
several, until no neighbours make a piece (Kudo and Richardson 2018, https://arxiv.org/abs/1808.06226, and
src/bpe_model.cc there). A list of rules (left, right), best first, says the same if it holds every way to
cut every piece in two, ordered by the scores of the pieces.

The order of several cuts of one piece does not matter: two neighbours that make it come from joins inside of
their text only, which do not depend on its surroundings. So wherever the piece is about to be joined, it is
joined from the same two. Only pieces of equal score, which no training gives, go by their order instead of
leftmost.

Each cut of a piece is a lookup or two, so the work is linear in the text of the vocabulary. The lookups go
through arrays of hashes, since half a million slices and set lookups in Python take more than twice as long.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_BATCH = 1 << 16
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2^64


def merges_by_score(pieces: Sequence[str]) -> list[tuple[str, str]]:
    """The rules for all pieces, which come best score first.

    Text is compared by hash. Whoever does not trust the pieces must check that each rule makes one.
    """
    table = _Table(pieces)
    names = np.array([*pieces, ""], np.object_)
    merges: list[tuple[str, str]] = []
    for start in range(0, len(pieces), _BATCH):
        left, right = _cuts(pieces, table, start)
        merges += zip(names[left].tolist(), names[right].tolist(), strict=True)
    return merges


class _Table:
    """Pieces by hash, sorted for binary search."""

    def __init__(self, pieces: Sequence[str]) -> None:
        hashes = np.zeros(len(pieces), np.uint64)
        for start in range(0, len(pieces), _BATCH):
            batch = _Hashes(pieces[start : start + _BATCH])
            hashes[start : start + _BATCH] = batch.of(batch.starts, batch.starts + batch.lengths)
        self._index = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._index]

    def find(self, hashes: np.ndarray) -> np.ndarray:
        """Index of the piece with each hash, -1 where there is none."""
        order = np.argsort(hashes)  # sorted needles are found four times faster
        needles = hashes[order]
        at = np.minimum(np.searchsorted(self._hashes, needles), len(self._hashes) - 1)
        found = np.empty(len(hashes), np.int64)
        found[order] = np.where(self._hashes[at] == needles, self._index[at], -1)
        return found


class _Hashes:
    """Hashes of all substrings of some pieces: the sum of (character + 1)·base^(place in it), modulo 2^64."""

    def __init__(self, pieces: Sequence[str]) -> None:
        chars = np.frombuffer("".join(pieces).encode("utf-32-le"), np.uint32)
        self.lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        self.starts = np.cumsum(self.lengths) - self.lengths
        self._sums = np.zeros(len(chars) + 1, np.uint64)
        np.cumsum((chars.astype(np.uint64) + np.uint64(1)) * _powers(_BASE, len(chars)), out=self._sums[1:])
        self._shift = _powers(pow(_BASE, -1, 1 << 64), len(chars) + 1)

    def of(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        return (self._sums[ends] - self._sums[starts]) * self._shift[starts]


def _powers(base: int, n: int) -> np.ndarray:
    powers = np.full(n, base, np.uint64)
    powers[:1] = 1
    return np.multiply.accumulate(powers)


def _cuts(pieces: Sequence[str], table: _Table, start: int) -> tuple[np.ndarray, np.ndarray]:
    """Left and right part, as indices, of each cut of pieces[start:start + _BATCH], in the order of rules."""
    hashes = _Hashes(pieces[start : start + _BATCH])
    counts = np.maximum(hashes.lengths - 1, 0)
    first = np.cumsum(counts) - counts
    # A row for each cut of each piece, before its character k = 1 … length - 1.
    piece = np.repeat(np.arange(len(counts)), counts)
    length = hashes.lengths[piece]
    k = np.arange(len(piece)) - first[piece] + 1
    begin = hashes.starts[piece]
    left = table.find(hashes.of(begin, begin + k))
    right = np.full_like(left, -1)
    rows = np.flatnonzero(left >= 0)
    right[rows] = table.find(hashes.of(begin + k, begin + length)[rows])
    rows = np.flatnonzero((left >= 0) & (right >= 0))
    return left[rows], right[rows]
