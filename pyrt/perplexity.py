"""Perplexity as llama.cpp's llama-perplexity defines it, so that figures can be compared."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyrt import checks
from pyrt.scoring import log_probabilities

if TYPE_CHECKING:
    from pyrt.model import Model


@dataclass(frozen=True)
class Perplexity:
    """exp of the mean negative log-likelihood (natural logarithm) of the scored tokens.

    standard_error: of the perplexity, to first order. n_windows windows of n_ctx tokens were run.
    """

    value: float
    standard_error: float
    n_scored: int
    n_windows: int
    n_ctx: int

    def __float__(self) -> float:
        return self.value


def perplexity(
    model: Model,
    text: str,
    *,
    n_ctx: int = 512,
    windows: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Perplexity:
    """Perplexity of ``text``, in windows of ``n_ctx`` tokens that start afresh.

    The text is encoded once (with BOS if the model adds one) and cut into whole windows; the first token of
    each is replaced by BOS if the model adds one; tokens n_ctx / 2 + 1 and later of a window are scored
    (llama.cpp, tools/perplexity/perplexity.cpp). windows: only the first so many. on_progress(done, total)
    counts windows.

    ValueError or TypeError for a wrong parameter, ValueError if the text has fewer than two windows' tokens
    (as there), ContextLengthError if a window does not fit into the model's context.
    """
    check(n_ctx, windows, on_progress)
    model.check_length(n_ctx)
    tokens = model.tokenizer.encode(text)
    if len(tokens) < 2 * n_ctx:
        raise ValueError(
            f"the text has {len(tokens)} tokens; two windows of {n_ctx} are the least that says anything"
        )
    bos = model.tokenizer.bos_id if model.tokenizer.encode("x")[0] == model.tokenizer.bos_id else None
    count = len(tokens) // n_ctx if windows is None else min(windows, len(tokens) // n_ctx)
    scores = []
    for index in range(count):
        window = tokens[index * n_ctx : (index + 1) * n_ctx]
        if bos is not None:
            window[0] = bos
        scores.append(log_probabilities(model.engine, window, first=n_ctx // 2))
        if on_progress is not None:
            on_progress(index + 1, count)
    return _summary(np.concatenate(scores), count, n_ctx)


def check(n_ctx: int, windows: int | None, on_progress: Callable[[int, int], None] | None) -> None:
    """ValueError or TypeError naming a parameter of `perplexity` that makes no sense."""
    checks.integer(4)("n_ctx", n_ctx)  # fewer leave nothing to score after the first half
    if windows is not None:
        checks.integer(1)("windows", windows)
    checks.callback("on_progress", on_progress)


def _summary(scores: np.ndarray, n_windows: int, n_ctx: int) -> Perplexity:
    mean = -float(scores.mean())
    spread = float(scores.std()) / math.sqrt(max(1, len(scores) - 1))
    value = math.exp(mean)
    return Perplexity(value, value * spread, len(scores), n_windows, n_ctx)
