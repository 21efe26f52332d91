"""The SentencePiece library trains vocabularies and tells which ids it would give."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from text.vocabularies import BYTE, CONTROL, CORPUS, NORMAL, UNKNOWN, USER_DEFINED, with_changes

from pyrt.tokenizer import Tokenizer
from pyrt.vocab.gguf import parts_of_gguf

sentencepiece = pytest.importorskip("sentencepiece", reason="parity with SentencePiece needs its library")
pytestmark = pytest.mark.parity

OPTIONS = {
    "llama": {"byte_fallback": True, "add_dummy_prefix": True},
    "gemma": {
        "byte_fallback": True,
        "add_dummy_prefix": False,
        "user_defined_symbols": ["<b>", "\n", "\n\n", "▁▁"],
    },
    "no bytes": {"byte_fallback": False, "add_dummy_prefix": True},
}


def kind_of(model, i):
    kinds = {UNKNOWN: model.is_unknown, CONTROL: model.is_control, BYTE: model.is_byte}
    return next((kind for kind, test in kinds.items() if test(i)), NORMAL)


def trained(name):
    """A model of the library's own training, and the tokenizer of its vocabulary as converters store it."""
    options = OPTIONS[name]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=model, model_type="bpe", vocab_size=900, minloglevel=2,
        normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.98,
        split_by_whitespace=False, max_sentencepiece_length=12, **options,
    )  # fmt: skip
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(theirs.get_piece_size())
    own = options.get("user_defined_symbols", [])
    tokens = [theirs.id_to_piece(i) for i in ids]
    kinds = [USER_DEFINED if token in own else kind_of(theirs, i) for i, token in enumerate(tokens)]
    keys = {
        "model": "llama",
        # llama.cpp's converter writes the spaces of user-defined tokens as spaces.
        "tokens": [token.replace("▁", " ") if token in own else token for token in tokens],
        "scores": np.array([theirs.get_score(i) for i in ids], np.float32),
        "token_type": np.array(kinds, np.int32),
        "unknown_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "add_space_prefix": options["add_dummy_prefix"],
    }  # fmt: skip
    return theirs, Tokenizer(parts_of_gguf(with_changes(keys, {}), name))


@pytest.fixture(scope="module", params=OPTIONS)
def pair(request):
    return trained(request.param)


WORDS = sorted({word for line in CORPUS for word in line.split(" ")})
TEXTS = st.one_of(
    st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join),
    st.lists(st.sampled_from([*"aeinst ", "  ", "an", "é", "🦙", "の", "\t", "0", "...", "----"])).map(
        "".join
    ),
    st.text(st.characters(exclude_categories=["Cs", "Cc"])),
)


@given(text=TEXTS)
def test_ids_and_text_are_those_of_the_library(pair, text):
    theirs, ours = pair
    for special in ("▁", "\0", "<unk>", "<s>", "</s>"):  # which the library does not look for in text
        text = text.replace(special, "")
    ids = ours.encode(text, add_special_tokens=False)
    assert ids == theirs.encode(text)
    if 0 not in ids:
        assert ours.decode(ids) == theirs.decode(ids) == text


def test_user_defined_pieces_stand_alone():
    theirs, ours = trained("gemma")
    for text in ("a<b>b", "x\n\n\ny", "a   b", "  <b>  ", "\n"):
        assert ours.encode(text, add_special_tokens=False) == theirs.encode(text)
        assert ours.decode(ours.encode(text)) == text


def test_any_ids_decode_as_there():
    theirs, ours = trained("llama")
    chance = np.random.default_rng(0)
    normal = [i for i in range(ours.n_vocab) if kind_of(theirs, i) == NORMAL]
    for _ in range(200):
        ids = chance.choice(normal, chance.integers(1, 20)).tolist()
        assert ours.decode(ids) == theirs.decode(ids)
