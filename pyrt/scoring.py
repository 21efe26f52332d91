"""What the model thinks of given tokens: all through the engine, like everything else."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import numpy as np

from pyrt.engine import Engine
from pyrt.schedule import Request, Row

Take = Callable[[int, Row], None]


class _RowReader:
    def __init__(self, take: Take) -> None:
        self._take = take

    def read(self, tokens: array[int], position: int, row: Row) -> int | None:
        self._take(position, row)
        return None


def read_rows(engine: Engine, tokens: Sequence[int], first: int, take: Take) -> None:
    """Run tokens through the model; take(position, row) gets the logits from position ``first`` on."""
    request = Request(most_tokens=len(tokens))
    request.add(tokens, first, _RowReader(take))
    engine.submit(request)
    try:
        engine.wait(request, ready=lambda: False)
    finally:
        if not request.over:
            engine.cancel(request)
    if request.error is not None:
        raise request.error


def logits(engine: Engine, tokens: Sequence[int], n_vocab: int) -> np.ndarray:
    """float32[n_tokens, n_vocab]: row i is what the model says after tokens[: i + 1]."""
    rows = np.empty((len(tokens), n_vocab), np.float32)

    def take(position: int, row: Row) -> None:
        rows[position] = row.logits

    read_rows(engine, tokens, 0, take)
    return rows


def log_probabilities(engine: Engine, tokens: Sequence[int], first: int = 0) -> np.ndarray:
    """float64[n_tokens - 1 - first]: log p(tokens[i + 1] | tokens[: i + 1]) for i from ``first`` on."""
    scores = np.empty(max(0, len(tokens) - 1 - first), np.float64)

    def take(position: int, row: Row) -> None:
        if position + 1 < len(tokens):
            scores[position - first] = float(row.logits[tokens[position + 1]]) - row.logsumexp

    if len(scores):
        read_rows(engine, tokens[:-1], first, take)
    return scores
