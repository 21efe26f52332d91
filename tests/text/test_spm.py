"""SentencePiece vocabularies: the rules held to the definition, what surrounds them to hand-made cases."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text.vocabularies import USER_DEFINED, load_keys, spm_keys
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from pyrt.tokenizer import Tokenizer
from pyrt.vocab.gguf import parts_of_gguf
from pyrt.vocab.spm import merges_by_score


def joined(text, rank):
    """The definition: join the two neighbours that make the best piece, the leftmost of several."""
    symbols = list(text)
    while True:
        pairs = [rank.get(a + b, math.inf) for a, b in pairwise(symbols)]
        if min(pairs, default=math.inf) == math.inf:
            return symbols
        at = pairs.index(min(pairs))
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]


@st.composite
def vocabularies(draw):
    letters = draw(st.sampled_from(["ab", "abc", "▁aé"]))
    pieces = draw(st.lists(st.text(letters, min_size=2, max_size=7), max_size=30, unique=True))
    order = draw(st.permutations([*letters, *pieces]))
    texts = draw(st.lists(st.text(letters, max_size=24), min_size=1, max_size=8))
    return order, texts


@given(vocabularies())
def test_rules_mean_what_scores_mean(case):
    pieces, texts = case
    rank = {piece: i for i, piece in enumerate(pieces)}
    backend = Backend(BPE(rank, merges_by_score(pieces)))
    for text in texts:
        assert backend.encode(text).tokens == joined(text, rank), (pieces, text)


def test_a_piece_has_one_rule_the_last_join_of_its_own_text():
    chance = random.Random(0)
    pieces = [*"abcdé▁🦙"]
    pieces += sorted({"".join(chance.choices("abcdé▁🦙", k=chance.randint(2, 6))) for _ in range(3000)})
    chance.shuffle(pieces)
    rank = {piece: i for i, piece in enumerate(pieces)}
    expected = []
    for piece in pieces:
        others = {other: i for other, i in rank.items() if other != piece}
        last = joined(piece, others)
        if len(last) == 2:
            expected.append(tuple(last))
    assert len(expected) > 1000
    rules = merges_by_score(pieces)
    assert len({left + right for left, right in rules}) == len(rules)
    assert [rule for rule in rules if rule in set(expected)] == expected
    for left, right in set(rules) - set(expected):  # of a piece that has no other way to be cut
        piece = left + right
        cuts = [(piece[:k], piece[k:]) for k in range(1, len(piece))]
        assert [cut for cut in cuts if {*cut} <= {*pieces}] == [(left, right)]
    assert merges_by_score([]) == []


def test_a_long_piece_has_all_its_cuts_for_rules():
    pieces = ["ab" * n for n in (1, 2, 4, 8, 16, 31, 32, 33, 64, 100)] + ["a", "b"]
    long = [piece for piece in pieces if len(piece) > 64]
    cuts = [(piece[:k], piece[k:]) for piece in long for k in range(1, len(piece))]
    known = [cut for cut in cuts if {*cut} <= {*pieces}]
    assert len(known) == 7
    assert [rule for rule in merges_by_score(pieces) if "".join(rule) in long] == known


PIECES = ["▁t", "he", "▁the", "in", "▁", "e", "t", "h", "a", "i", "n", "x", "▁▁", "▁a"]


FIXED = Tokenizer(parts_of_gguf(spm_keys(PIECES), "m.gguf"))


@pytest.fixture
def spm():
    return FIXED


def names(tokenizer, ids):
    return [tokenizer._parts.backend.id_to_token(i) for i in ids]


def test_text_begins_with_a_space_of_its_own(spm):
    assert names(spm, spm.encode("the hen", False)) == ["▁the", "▁", "he", "n"]
    assert names(spm, spm.encode(" the", False)) == ["▁", "▁the"]
    assert spm.encode("", False) == []
    for text in ("the hen", " the", "  ", " ", "", "x"):
        assert spm.decode(spm.encode(text)) == text


def test_no_space_prefix_where_the_file_says_so(tmp_path):
    spm = load_keys(tmp_path / "m.gguf", spm_keys(PIECES, add_space_prefix=False))
    assert names(spm, spm.encode("the hen", False)) == ["t", "he", "▁", "he", "n"]
    assert spm.decode(spm.encode(" the")) == " the"


def test_unknown_characters_are_bytes(spm):
    assert names(spm, spm.encode("é", False)) == ["▁", "<0xC3>", "<0xA9>"]
    assert names(spm, spm.encode("<0x41>", False))[-1] == "<0x3E>"  # not the byte that it spells
    assert spm.decode(spm.encode("é🦙\n\0<0x41>")) == "é🦙\n\0<0x41>"


def test_without_byte_tokens_unknown_characters_are_one_unknown_token(tmp_path):
    keys = spm_keys(PIECES)
    keep = [i for i, token in enumerate(keys["tokenizer.ggml.tokens"]) if not token.startswith("<0x")]
    keys["tokenizer.ggml.tokens"] = [keys["tokenizer.ggml.tokens"][i] for i in keep]
    for name in ("scores", "token_type"):
        keys[f"tokenizer.ggml.{name}"] = keys[f"tokenizer.ggml.{name}"][keep]
    spm = load_keys(tmp_path / "m.gguf", keys)
    assert names(spm, spm.encode("aéü", False)) == ["▁a", "<unk>"]


def test_user_defined_and_control_tokens_are_matched_in_text(tmp_path):
    keys = spm_keys([*PIECES, "<b>", "  "])
    keys["tokenizer.ggml.token_type"][-2:] = USER_DEFINED
    spm = load_keys(tmp_path / "m.gguf", keys)
    ids = spm.encode("a<b>t  </s>", False)
    # As llama.cpp has it, text after such a token begins with a space of its own too.
    assert names(spm, ids) == ["▁a", "<b>", "▁t", "  ", "</s>"]
    assert spm.decode(ids) == "a<b> t  "
    assert spm.decode(ids, skip_special_tokens=False) == "a<b> t  </s>"
    assert spm.special_ids == {0, 1, 2}


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_round_trip(text):
    # ▁ itself is what a space becomes, so it comes back as one; a space follows a control token in the text.
    for control in ("<unk>", "<s>", "</s>"):
        text = text.replace(control, "")
    assert FIXED.decode(FIXED.encode(text)) == text.replace("▁", " ")
