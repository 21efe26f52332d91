"""From a row of logits to the next token: pure functions in one visible order (see `choose`).

A vocabulary of 262,144 must cost well under a millisecond, so nothing here sorts or exponentiates all of it
where the core's block maxima, sums and top-k can answer. Exponentials and logarithms come from the core:
NumPy's pick a variant by CPU, and the same request must give the same bits everywhere. Additions, products
and divisions round the same on every CPU, and every sort is the core's (ties: lowest id first) or stable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from pyrt import _core
from pyrt.options import Samplers

GREEDY_BELOW = 1e-6  # nearer to 0 than this a temperature cannot tell float32 logits apart; it is 0
FAR = 88.0  # the core's exp is exactly 0 below -80: a scaled logit this far below the maximum has no mass


class Kept(NamedTuple):
    """Tokens still in the game, likeliest first (ties: lowest id first).

    ids: int32[k]. z: float64[k], (logit - max) / temperature. weight: float64[k], exp(z), not normalised.
    total: what the weights of all tokens that are still allowed sum to; more than weight.sum() only as long
    as unlikely tokens, which no later sampler can keep, have been left out to save time.
    """

    ids: np.ndarray
    z: np.ndarray
    weight: np.ndarray
    total: float


def choose(
    logits: np.ndarray,
    block_max: np.ndarray,
    tokens: Sequence[int],
    n_prompt: int,
    params: Samplers,
    banned: np.ndarray,
    choice: int,
) -> int:
    """The next token id after ``tokens`` (prompt first, ``n_prompt`` of them).

    logits: float32[n_vocab], block_max: float32[ceil(n_vocab / 256)], both edited in place. banned: int64[m]
    ids that may not come now. choice: index among the n choices, part of the random stream.
    """
    penalize(logits, block_max, tokens, n_prompt, params)
    add_bias(logits, block_max, params.logit_bias, banned)
    process(logits, block_max, tokens, params)
    if params.temperature < GREEDY_BELOW:
        return best(logits, block_max)
    u = uniform(params.seed, choice, len(tokens) - n_prompt)
    if not params.narrows:
        return draw_from_all(logits, block_max, params.temperature, u)
    kept = top_k(logits, block_max, params)
    kept = typical_p(kept, params.typical_p)
    kept = top_p(kept, params.top_p)
    kept = min_p(kept, params.min_p)
    return draw(kept, u)


# --- edits of the logits ----------------------------------------------------------------------------------


def penalize(
    logits: np.ndarray, block_max: np.ndarray, tokens: Sequence[int], n_prompt: int, params: Samplers
) -> None:
    """Make tokens that were seen less likely; SamplingParams has the formulas."""
    if params.repetition_penalty != 1.0:
        repetition = np.float32(params.repetition_penalty)
        seen = np.unique(np.asarray(tokens, np.int64))
        old = logits[seen]
        logits[seen] = np.where(old > 0, old / repetition, old * repetition)
        _core.refresh_block_max(logits, block_max, seen.astype(np.int32))
    if params.presence_penalty or params.frequency_penalty:
        said, times = np.unique(np.asarray(tokens[n_prompt:], np.int64), return_counts=True)
        penalty = params.presence_penalty + params.frequency_penalty * times
        logits[said] -= penalty.astype(np.float32)
        _core.refresh_block_max(logits, block_max, said.astype(np.int32))


def add_bias(
    logits: np.ndarray, block_max: np.ndarray, bias: Mapping[int, float], banned: np.ndarray
) -> None:
    """Add the caller's biases, and forbid end tokens while min_tokens are not there."""
    if not bias and not len(banned):
        return
    ids = np.fromiter(bias, np.int64, len(bias))
    logits[ids] += np.fromiter(bias.values(), np.float32, len(bias))
    logits[banned] = -np.inf
    _core.refresh_block_max(logits, block_max, np.concatenate([ids, banned]).astype(np.int32))
    _require_choice(block_max, "logit_bias and min_tokens leave")


def process(logits: np.ndarray, block_max: np.ndarray, tokens: Sequence[int], params: Samplers) -> None:
    """Run the caller's processors. ValueError for NaN, +inf, another shape, or no token left."""
    if not params.logits_processors:
        return
    for processor in params.logits_processors:
        result = processor(list(tokens), logits)
        if result is not None and result is not logits:
            if np.shape(result) != logits.shape:
                raise ValueError(f"logits_processors: {logits.shape} logits became {np.shape(result)}")
            logits[:] = result
    if np.isnan(logits).any() or np.isposinf(logits).any():
        raise ValueError("logits_processors: a logit became NaN or infinite")
    _core.refresh_block_max(logits, block_max, np.arange(0, len(logits), 256, dtype=np.int32))
    _require_choice(block_max, "logits_processors leave")


def _require_choice(block_max: np.ndarray, who: str) -> None:
    if np.isneginf(block_max.max()):
        raise ValueError(f"{who} no token that may come next")


# --- choice among all -------------------------------------------------------------------------------------


def best(logits: np.ndarray, block_max: np.ndarray) -> int:
    """The likeliest token, the lowest id among equals."""
    return int(_core.top_k(logits, block_max, 1)[0][0])


def draw_from_all(logits: np.ndarray, block_max: np.ndarray, temperature: float, u: float) -> int:
    """The token where the cumulative mass, in the order of ids, passes u of the whole: block, then token."""
    top = float(block_max.max())
    scale = 1.0 / temperature
    reached = np.cumsum(_core.block_sums(logits, scale, top * scale))
    target = u * reached[-1]
    block = _passes(reached, target)
    inside = logits[256 * block : 256 * (block + 1)]
    z = (inside.astype(np.float64) - top) / temperature
    before = reached[block - 1] if block else 0.0
    return 256 * block + _passes(np.cumsum(_exp(z)), target - before)


# --- samplers that take tokens away -----------------------------------------------------------------------


def top_k(logits: np.ndarray, block_max: np.ndarray, params: Samplers) -> Kept:
    """The k likeliest; without a k, everything that the later samplers could keep."""
    temperature = params.temperature
    if params.top_k:
        ids, values = _core.top_k(logits, block_max, min(params.top_k, len(logits)))
        kept = _weigh(ids, values, float(values[0]), temperature, 0.0)
        return kept._replace(total=float(kept.weight.sum()))
    top = float(block_max.max())
    total = float(_core.block_sums(logits, 1.0 / temperature, top / temperature).sum())
    for reach in _reaches(params):
        # The last term covers the rounding of the threshold to float32.
        ids, values = _core.above(logits, block_max, top - reach * temperature - abs(top) * 2.0**-22)
        kept = _weigh(ids, values, top, temperature, total)
        if kept.weight.sum() >= params.top_p * total:
            break
    return kept


def _reaches(params: Samplers) -> Sequence[float]:
    """How far below the maximum (in scaled logits) to look; the last leaves out nothing that is needed."""
    if params.typical_p < 1:
        return [FAR]  # the entropy needs all of the mass
    if params.top_p < 1:
        return [4.0, 8.0, 12.0, 16.0, FAR]
    return [min(FAR, 1e-3 - float(_core.log(np.array([params.min_p]))[0]))]


def typical_p(kept: Kept, p: float) -> Kept:
    """The tokens whose surprise is nearest to the entropy, as few as reach mass p (arXiv:2202.00666)."""
    if p >= 1:
        return kept
    probability = kept.weight / kept.total
    surprise = float(_core.log(np.array([kept.total]))[0]) - kept.z
    # Not where there is none: a logit of -inf, which only a vast temperature lets in, has infinite surprise.
    parts = np.multiply(probability, surprise, out=np.zeros_like(surprise), where=probability > 0)
    entropy = float(np.sum(parts))
    order = np.argsort(np.abs(surprise - entropy), kind="stable")
    count = int(np.searchsorted(np.cumsum(probability[order]), p)) + 1
    return _narrow(kept, np.sort(order[:count]))


def top_p(kept: Kept, p: float) -> Kept:
    """The fewest likeliest tokens whose mass reaches p of what is left; at least one (arXiv:1904.09751)."""
    if p >= 1:
        return kept
    count = int(np.searchsorted(np.cumsum(kept.weight), p * kept.total)) + 1
    return _narrow(kept, slice(count))


def min_p(kept: Kept, p: float) -> Kept:
    """Tokens at least p times as likely as the likeliest one left (arXiv:2407.01082)."""
    return _narrow(kept, kept.weight >= p * kept.weight.max()) if p > 0 else kept


def draw(kept: Kept, u: float) -> int:
    """The token where the cumulative mass, likeliest first, passes u (0 ≤ u < 1) of the whole."""
    reached = np.cumsum(kept.weight)
    return int(kept.ids[_passes(reached, u * reached[-1])])


def uniform(seed: int, choice: int, index: int) -> float:
    """The ``index``-th number in [0, 1) of a request's stream: 53 bits of a hash of (seed, choice, index).

    A counter-based generator: neither other requests nor a step that is repeated can move the stream.
    """
    counter = choice.to_bytes(8, "little") + index.to_bytes(8, "little")
    digest = blake2b(counter, key=seed.to_bytes(8, "little"), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def _weigh(ids: np.ndarray, logits: np.ndarray, top: float, temperature: float, total: float) -> Kept:
    z = (logits.astype(np.float64) - top) / temperature
    return Kept(ids, z, _exp(z), total)


def _narrow(kept: Kept, which: np.ndarray | slice) -> Kept:
    weight = kept.weight[which]
    return Kept(kept.ids[which], kept.z[which], weight, float(weight.sum()))


def _exp(z: np.ndarray) -> np.ndarray:
    return _core.exp(np.maximum(z, -FAR).astype(np.float32)).astype(np.float64)


def _passes(reached: np.ndarray, target: float) -> int:
    """First index whose cumulative sum exceeds target; where rounding prevents it, the last with mass."""
    return int(min(np.searchsorted(reached, target, side="right"), np.searchsorted(reached, reached[-1])))


# --- log-probabilities ------------------------------------------------------------------------------------


def likeliest(logits: np.ndarray, block_max: np.ndarray, logsumexp: float, n: int) -> list[tuple[int, float]]:
    """The n likeliest (id, natural log-probability) of a raw row of logits, likeliest first."""
    if n == 0:
        return []
    ids, values = _core.top_k(logits, block_max, min(n, len(logits)))
    return [(int(token), float(value) - logsumexp) for token, value in zip(ids, values, strict=True)]
