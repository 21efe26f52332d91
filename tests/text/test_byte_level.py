"""Byte-level BPE rebuilt from GGUF keys, held to the tokenizers library's own training of the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text.vocabularies import ADDED, CONTROLS, CORPUS, NATIVE, byte_level_keys, load_keys, native

from pyrt.errors import UnsupportedModelError
from pyrt.vocab.gguf import parts_of_gguf
from pyrt.vocab.pretokenizers import PRE_TOKENIZERS


@pytest.fixture(scope="module", params=sorted(NATIVE))
def pair(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "m.gguf"
    return load_keys(path, byte_level_keys(request.param)), native(request.param)


SPECIALS = st.sampled_from(
    [*CONTROLS, *ADDED, "<|im", "|>", "\r\n", "'LL", " 's", "3333333", "½", "\u3000", "\x85"]
)
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.one_of(SPECIALS, st.text(max_size=4)))
    .map("".join)
    .filter(lambda text: text.isprintable() or text),
    st.sampled_from(CORPUS),
).filter(lambda text: not any("\ud800" <= letter <= "\udfff" for letter in text))


@given(text=TEXTS)
def test_ids_are_those_of_the_library(pair, text):
    rebuilt, trained = pair
    ids = rebuilt.encode(text, add_special_tokens=False)
    assert ids == trained.encode(text, add_special_tokens=False).ids
    assert rebuilt.decode(ids, skip_special_tokens=False) == text


def test_corpus_round_trips(pair):
    rebuilt, trained = pair
    text = "".join(CORPUS)
    ids = rebuilt.encode(text)
    assert ids[rebuilt.encode(text, False) != ids :] == trained.encode(text, add_special_tokens=False).ids
    assert rebuilt.decode(ids) == text


def test_backend_alone_decodes_the_same(pair):
    rebuilt, trained = pair
    ids = trained.encode("Äpfel <|im_end|> 我", add_special_tokens=False).ids
    for skip in (True, False):
        assert rebuilt.decode(ids, skip) == trained.decode(ids, skip_special_tokens=skip)


def test_default_cuts_punctuation_and_digits():
    cuts = PRE_TOKENIZERS["default"].build().pre_tokenize_str("It's $12345, ok\n\n  x")
    words = [word.replace("Ġ", " ").replace("Ċ", "\n") for word, _ in cuts]
    assert words == ["It", "'", "s", " ", "$", "123", "45", ",", " ok", "\n\n ", " x"]


@pytest.mark.parametrize("alias", sorted(PRE_TOKENIZERS))
def test_each_name_is_known(alias):
    keys = byte_level_keys(pre="gpt-2")
    keys["tokenizer.ggml.pre"] = alias
    assert parts_of_gguf(keys, "m.gguf").n_vocab == 605


@pytest.mark.parametrize("name", ["deepseek-llm", "GPT-2", "gpt-2 ", ""])
def test_unknown_pre_tokenizers_are_refused_by_name(name):
    keys = byte_level_keys()
    keys["tokenizer.ggml.pre"] = name
    with pytest.raises(
        UnsupportedModelError, match=rf"m\.gguf: tokenizer\.ggml\.pre: '{name}' is not supported"
    ):
        parts_of_gguf(keys, "m.gguf")


def test_whole_words_go_before_merges():
    # "zq" is a token that no merge makes: Llama 3 finds it, GPT-2 does not.
    for pre, expected in (("llama-bpe", ["zq"]), ("gpt-2", ["z", "q"])):
        keys = byte_level_keys(pre)
        tokens = [*keys["tokenizer.ggml.tokens"], "zq"]
        keys |= {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": None}
        backend = parts_of_gguf({k: v for k, v in keys.items() if v is not None}, "m.gguf").backend
        assert backend.encode("zq", add_special_tokens=False).tokens == expected
