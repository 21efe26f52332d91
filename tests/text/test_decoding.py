"""Decoding at once and piece by piece: the same text, whole characters, for any ids."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from text.vocabularies import byte_level_keys, native, spm_keys

from pyrt.tokenizer import Detokenizer, Tokenizer
from pyrt.vocab.gguf import parts_of_gguf

PIECES = ["▁", "▁▁", "a", "é", "▁a", "日", "日本", "🦙"]
TOKENIZERS = {
    "bytes": Tokenizer(parts_of_gguf(byte_level_keys(), "m.gguf")),
    "spm": Tokenizer(parts_of_gguf(spm_keys(PIECES), "m.gguf")),
    "spm without prefix": Tokenizer(parts_of_gguf(spm_keys(PIECES, add_space_prefix=False), "m.gguf")),
}


def favourites(tokenizer):
    """Single bytes, spaces and special tokens are what breaks things, so they come often."""
    tokens = range(tokenizer.n_vocab)
    single = [i for i in tokens if len(tokenizer.token_bytes(i)) == 1]
    lead = [i for i in single if tokenizer.token_bytes(i)[0] >= 0x80]
    return st.one_of(st.sampled_from(lead), st.sampled_from(single), st.sampled_from(tokens))


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data(), skip=st.booleans(), continues=st.booleans())
def test_pieces_make_the_text(name, data, skip, continues):
    tokenizer = TOKENIZERS[name]
    ids = data.draw(st.lists(favourites(tokenizer), max_size=40))
    stream = tokenizer.detokenizer(skip, continues=continues)
    pieces = [stream.push(i) for i in ids]
    pieces.append(stream.finish())
    text = tokenizer.decode(ids, skip, continues=continues)
    assert "".join(pieces) == text
    assert text.encode().decode() == text  # no lone surrogates


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_no_piece_of_a_sound_text_holds_a_broken_character(name, text):
    tokenizer = TOKENIZERS[name]
    stream = tokenizer.detokenizer()
    pieces = [stream.push(i) for i in tokenizer.encode(text)]
    if "\ufffd" not in text:
        assert "\ufffd" not in "".join(pieces)
    assert stream.finish() == ""


@given(ids=st.lists(st.integers(0, native().get_vocab_size() - 1)))
def test_byte_level_decodes_as_the_library(ids):
    for skip in (True, False):
        assert TOKENIZERS["bytes"].decode(ids, skip) == native().decode(ids, skip_special_tokens=skip)


def test_a_character_comes_with_its_last_byte():
    tokenizer = TOKENIZERS["spm"]
    llama = [3 + byte for byte in "🦙".encode()]
    stream = tokenizer.detokenizer()
    assert [stream.push(i) for i in llama] == ["", "", "", "🦙"]
    stream = tokenizer.detokenizer()
    assert [stream.push(i) for i in llama[:3]] == ["", "", ""]
    assert stream.finish() == "\ufffd"
    # One U+FFFD for each part that could have begun a character, as in table 3-8 of the Unicode Standard.
    ids = [3 + byte for byte in b"a\xf1\x80\x80\xe1\x80\xc2b\x80c\x80\xbfd"]
    assert tokenizer.decode(ids) == "a\ufffd\ufffd\ufffdb\ufffdc\ufffd\ufffdd"


def test_the_first_space_is_dropped_unless_the_text_goes_on():
    tokenizer = TOKENIZERS["spm"]
    ids = tokenizer.encode("a a", add_special_tokens=False)
    assert tokenizer.decode(ids) == "a a"
    assert tokenizer.decode(ids, continues=True) == " a a"
    two = [tokenizer.encode(" ")[-1]]
    assert tokenizer.token_bytes(two[0]) == b"  "
    assert (tokenizer.decode(two), tokenizer.decode(two, continues=True)) == (" ", "  ")
    # The whole space is dropped, but never a second one.
    space, letter = (next(i for i in range(259, 267) if tokenizer.token_bytes(i) == b) for b in (b" ", b"a"))
    for ids_, expected in (([space, space, letter], " a"), ([space], ""), ([letter, space], "a "), ([], "")):
        stream = tokenizer.detokenizer()
        pieces = [*map(stream.push, ids_), stream.finish()]
        assert "".join(pieces) == tokenizer.decode(ids_) == expected
    stream = Detokenizer(tokenizer)
    assert [stream.push(1), stream.push(ids[0]), stream.push(ids[1])] == ["", "a", " a"]
    assert tokenizer.decode([1, *ids], skip_special_tokens=False) == "<s> a a"


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("bad", [-1, 605 + 1, 2**31, 2**64])
def test_ids_out_of_range_are_one_clear_error(name, bad):
    tokenizer = TOKENIZERS[name]
    for call in (lambda: tokenizer.decode([0, bad]), lambda: tokenizer.detokenizer().push(bad)):
        with pytest.raises(ValueError, match=f"token id {bad} is not among the {tokenizer.n_vocab}"):
            call()


def test_ids_may_be_numpy_integers_and_nothing_else():
    tokenizer = TOKENIZERS["bytes"]
    ids = tokenizer.encode("Hello there")
    assert tokenizer.decode(np.array(ids, np.int32)) == "Hello there"
    assert tokenizer.decode(iter(ids)) == "Hello there"
    with pytest.raises(TypeError):
        tokenizer.decode([1.5])
    with pytest.raises(TypeError):
        tokenizer.decode("Hello")


def test_what_is_no_text_is_refused():
    tokenizer = TOKENIZERS["bytes"]
    with pytest.raises(ValueError, match="lone surrogate"):
        tokenizer.encode("a\ud800")
    for bad in (b"a", None, ["a"]):
        with pytest.raises(TypeError, match="text must be str"):
            tokenizer.encode(bad)
