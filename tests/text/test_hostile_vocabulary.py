"""Vocabularies that contradict themselves: one error that names file, field and reason."""

# ruff: noqa: E501 (a row of a table is a line)

import sys

import numpy as np
import pytest
from files import forge
from hypothesis import given
from hypothesis import strategies as st
from text.vocabularies import byte_level_keys, gguf_bytes, load_keys, spm_keys

from pyrt.errors import ModelFormatError, PyrtError, UnsupportedModelError
from pyrt.tokenizer import load_tokenizer
from pyrt.vocab.gguf import MAX_TOKEN_LENGTH, parts_of_gguf

N_BYTES, N_SPM = 605, 3 + 256 + 2


def spm(**changes):
    return spm_keys(["▁", "a"], **changes)


CASES = {
    "no tokens": (byte_level_keys(tokens=None), "tokens: is missing"),
    "empty tokens": (byte_level_keys(tokens=[]), "tokens: must be an array of strings that is not empty"),
    "tokens of numbers": (byte_level_keys(tokens=np.arange(3)), "tokens: must be an array of strings"),
    "a token too long": (byte_level_keys(tokens=["a" * (MAX_TOKEN_LENGTH + 1)]), "above the limit of"),
    "too much text": (byte_level_keys(tokens=["a" * 4096] * 5000), "20480000, 4096 in one string, are above"),
    "no model": (byte_level_keys(model=None), "model: is missing"),
    "model a number": (byte_level_keys(model=7), "model: must be str, not int"),
    "no pre": (byte_level_keys(**{"tokenizer.ggml.pre": None}), "pre: is missing"),
    "no merges": (byte_level_keys(merges=None), "merges: is missing"),
    "merges of numbers": (byte_level_keys(merges=np.arange(3)), "merges: must be an array of strings"),
    "merge of one": (byte_level_keys(merges=["ab"]), "merges: 'ab' is no pair of tokens"),
    "merge of three": (byte_level_keys(merges=["a b c"]), "merges: 'a b c' is no pair of tokens"),
    "merge of nothing": (byte_level_keys(merges=[""]), "merges: '' is no pair of tokens"),
    "merge that makes no token": (byte_level_keys(merges=["a ~"]), "merges: 'a ~' does not make a token"),
    "merge of unknown tokens": (
        byte_level_keys(tokens=["ab", "a"], token_type=None, merges=["a b"], bos_token_id=0, eos_token_id=0),
        "merges: 'a b' holds 'b', which is no token",
    ),
    "few types": (byte_level_keys(token_type=np.ones(5, np.int32)), f"token_type: has 5 entries for {N_BYTES}"),
    "many types": (byte_level_keys(token_type=np.ones(999, np.int32)), f"token_type: has 999 entries for {N_BYTES}"),
    "types of text": (byte_level_keys(token_type=["a"]), "token_type: must be an array of numbers"),
    "types of floats": (byte_level_keys(token_type=np.ones(N_BYTES, np.float32)), "token_type: must be an array"),
    "type 0": (byte_level_keys(token_type=np.zeros(N_BYTES, np.int32)), "token_type: 0 of token 0 is none of 1 to 6"),
    "type 7": (byte_level_keys(token_type=np.full(N_BYTES, 7, np.int32)), "token_type: 7 of token 0 is none of"),
    "no scores": (spm(scores=None), "scores: is missing"),
    "few scores": (spm(scores=np.zeros(2, np.float32)), f"scores: has 2 entries for {N_SPM} tokens"),
    "scores of ints": (spm(scores=np.zeros(N_SPM, np.int32)), "scores: must be an array of numbers"),
    "nan": (spm(scores=np.full(N_SPM, np.nan, np.float32)), "scores: that of token 0 is not finite"),
    "inf": (spm(scores=np.full(N_SPM, np.inf, np.float32)), "scores: that of token 0 is not finite"),
    "bos out of range": (spm(bos_token_id=N_SPM), f"bos_token_id: {N_SPM} is not among {N_SPM} tokens"),
    "eos negative": (spm(eos_token_id=-1), f"eos_token_id: -1 is not among {N_SPM} tokens"),
    "eot a float": (spm(eot_token_id=1.0), "eot_token_id: must be int, not float"),
    "unknown out of range": (spm(unknown_token_id=2**31 - 1), "unknown_token_id: 2147483647 is not among"),
    "pad a text": (spm(padding_token_id="0"), "padding_token_id: must be int, not str"),
    "add_bos a number": (spm(add_bos_token=1), "add_bos_token: must be bool, not int"),
    "prefix a text": (spm(add_space_prefix="no"), "add_space_prefix: must be bool, not str"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_error_names_file_field_and_reason(name, tmp_path):
    keys, reason = CASES[name]
    path = tmp_path / "m.gguf"
    with pytest.raises(ModelFormatError) as caught:
        load_keys(path, keys)
    assert type(caught.value) is ModelFormatError
    assert str(caught.value).startswith(f"{path}: tokenizer.ggml.{reason}"[: len(str(path)) + 17])
    assert reason in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 200


def test_template_must_be_text(tmp_path):
    with pytest.raises(ModelFormatError, match=r"tokenizer\.chat_template: must be a string"):
        load_keys(tmp_path / "m.gguf", byte_level_keys(**{"tokenizer.chat_template": 5}))


def test_bytes_that_are_not_utf8(tmp_path):
    raw = gguf_bytes(spm()).replace("▁".encode(), b"\xe2\x96\xff", 1)
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)
    with pytest.raises(ModelFormatError, match=r"m\.gguf: 'tokenizer\.ggml\.tokens': is not UTF-8"):
        load_tokenizer(path)


@pytest.mark.parametrize("model", ["bert", "t5", "rwkv", "plamo2", "no_vocab", "x" * 10_000])
def test_other_kinds_are_refused_by_name(model, tmp_path):
    with pytest.raises(UnsupportedModelError, match=rf"tokenizer\.ggml\.model: '{model[:70]}") as caught:
        load_keys(tmp_path / "m.gguf", byte_level_keys(model=model))
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "changes", [{"precompiled_charsmap": np.ones(4, np.int32)}, {"remove_extra_whitespaces": True}]
)
def test_normalisation_that_is_not_there_is_refused(changes, tmp_path):
    with pytest.raises(UnsupportedModelError, match=next(iter(changes))):
        load_keys(tmp_path / "m.gguf", spm(**changes))


def test_harmless_oddities_are_read(tmp_path):
    keys = spm_keys(["a", "a", "", "b", "▁"], remove_extra_whitespaces=False)
    tokenizer = load_keys(tmp_path / "m.gguf", keys)
    twins = range(259, 264)
    assert [tokenizer.token_bytes(i) for i in twins] == [b"a", b"a", b"", b"b", b" "]
    assert tokenizer.decode(tokenizer.encode("ab")) == "ab"
    no_types = spm_keys(["▁", "a"], token_type=None)
    assert load_keys(tmp_path / "m.gguf", no_types).decode([259, 260]) == "a"


@pytest.mark.skipif(sys.platform != "linux", reason="reads the stderr of the process")
def test_nothing_is_written_to_stderr(tmp_path, capfd):
    for keys, _ in CASES.values():
        with pytest.raises(ModelFormatError):
            load_keys(tmp_path / "m.gguf", keys)
    assert capfd.readouterr() == ("", "")


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 700), st.floats(), st.text(max_size=3),
    st.lists(st.text(max_size=3), max_size=5),
    st.lists(st.integers(-9, 9), max_size=5).map(lambda numbers: np.array(numbers, np.int32)),
    st.lists(st.floats(width=32), max_size=5).map(lambda numbers: np.array(numbers, np.float32)),
)  # fmt: skip
FIELDS = [*byte_level_keys(), *spm(), "tokenizer.chat_template", *(
    f"tokenizer.ggml.{name}" for name in ("add_bos_token", "add_eos_token", "add_space_prefix", "eot_token_id")
)]  # fmt: skip


@given(
    base=st.sampled_from([byte_level_keys(), spm()]),
    changes=st.dictionaries(st.sampled_from(sorted(set(FIELDS))), JUNK, min_size=1, max_size=4),
)
def test_any_change_gives_a_tokenizer_or_one_error(base, changes):
    from pyrt.tokenizer import Tokenizer

    keys = {name: value for name, value in {**base, **changes}.items() if value is not None}
    try:
        tokenizer = Tokenizer(parts_of_gguf(keys, "m.gguf"))
    except PyrtError as error:
        message = str(error)
    else:
        for text in ("", "a b <s> é\n"):
            tokenizer.decode(tokenizer.encode(text))
        tokenizer.decode(range(tokenizer.n_vocab))
        return
    assert message.startswith("m.gguf: tokenizer.")


def test_a_file_without_a_vocabulary(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(forge.gguf([forge.key("general.architecture", forge.STRING, "llama")]))
    with pytest.raises(ModelFormatError, match=r"m\.gguf: tokenizer\.ggml\.tokens: is missing"):
        load_tokenizer(path)
