"""Merge rules for SentencePiece BPE models, which come with a score for each piece instead.

SentencePiece joins the two neighbours whose joined text is the piece of the highest score, the leftmost of
several, until no neighbours make a piece (Kudo and Richardson 2018, https://arxiv.org/abs/1808.06226, and
src/bpe_model.cc there). A list of rules (left, right), ordered by the scores of what they make, says the same
if it holds every pair of neighbours that is ever joined.

That is one pair a piece: two neighbours that make it come from joins inside of their text only, which do not
depend on its surroundings. So wherever the piece is about to be joined, it is joined from the same two, which
joining its own text finds. Long pieces have all their cuts for rules instead: the others never come to pass.
Only pieces of equal score, which no training gives, go by their order instead of leftmost.

All cuts would be twice as many rules (513,511 for 236,246 with Gemma 3) for the library to store.
"""

from __future__ import annotations

from pyrt import _core


def merges_by_score(pieces: list[str]) -> list[tuple[str, str]]:
    """The rules for pieces that come best score first; each rule makes one of them."""
    return _core.piece_merges(pieces)
