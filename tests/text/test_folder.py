"""tokenizer.json as it is, with what the files beside it say."""

import json

import pytest
from files.forge import folder_of
from hypothesis import given
from hypothesis import strategies as st
from text.vocabularies import CONTROLS, native
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from pyrt.checkpoint import open_checkpoint
from pyrt.errors import ModelFormatError, UnsupportedModelError
from pyrt.tokenizer import load_tokenizer, tokenizer_from_source

END, START, IM_END = (native().token_to_id(token) for token in CONTROLS)
N = native().get_vocab_size()


def copy():
    return Tokenizer.from_str(native().to_str())


def folder(tmp_path, backend=None, **files):
    content = {f"{name}.json": value for name, value in files.items()}
    return folder_of(tmp_path, {"tokenizer.json": (backend or native()).to_str().encode(), **content})


def around(before=(), after=()):
    """A tokenizer whose post-processor puts these tokens around a text."""
    backend = copy()
    specials = [(token, backend.token_to_id(token)) for token in {*before, *after}]
    backend.post_processor = processors.TemplateProcessing(
        single=" ".join([*before, "$A", *after]), special_tokens=specials
    )
    return backend


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return load_tokenizer(folder(tmp_path_factory.mktemp("folder")))


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_ids_and_text_are_those_of_the_library(plain, text):
    ids = plain.encode(text)
    assert ids == native().encode(text).ids
    assert plain.decode(ids) == native().decode(ids)
    assert plain.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("target", ["", "tokenizer.json"])
def test_folder_and_file_are_one(tmp_path, target):
    tokenizer = load_tokenizer(folder(tmp_path, tokenizer_config={"eos_token": "<|im_end|>"}) / target)
    assert tokenizer.eos_ids == {IM_END}
    assert tokenizer.n_vocab == N
    assert tokenizer.special_ids == {END, START, IM_END}
    with open_checkpoint(tmp_path, weights=False) as source:
        assert tokenizer_from_source(source).encode("ab") == tokenizer.encode("ab")


@pytest.mark.parametrize(
    ("before", "after", "config", "expected"),
    [
        (("<|im_start|>",), (), {}, [START]),
        (("<|im_start|>",), ("<|im_end|>",), {}, [START, IM_END]),
        (("<|im_start|>",), (), {"add_bos_token": False}, []),
        (("<|im_start|>",), (), {"add_bos_token": True}, [START]),
        ((), (), {"add_bos_token": True}, [START]),
        ((), (), {"add_eos_token": True}, [IM_END]),
        ((), (), {}, []),
    ],
)
def test_what_goes_around_a_raw_prompt(tmp_path, before, after, config, expected):
    config = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", **config}
    tokenizer = load_tokenizer(folder(tmp_path, around(before, after), tokenizer_config=config))
    assert tokenizer.encode("") == expected
    assert tokenizer.encode("", add_special_tokens=False) == []
    if expected[:1] == [START]:
        assert tokenizer.encode("<|im_start|>a").count(START) == 1


def test_ends_are_the_union_of_three_files(tmp_path):
    files = {
        "tokenizer_config": {"eos_token": {"content": "<|im_end|>", "lstrip": False}},
        "generation_config": {"eos_token_id": [END, 7]},
        "config": {"eos_token_id": 8},
    }
    assert load_tokenizer(folder(tmp_path, **files)).eos_ids == {IM_END, END, 7, 8}


def test_templates_and_names_reach_the_template(tmp_path):
    config = {
        "bos_token": "<|im_start|>",
        "chat_template": [
            {"name": "default", "template": "{{ bos_token }}{{ messages[0].content }}<|im_end|>"},
            {"name": "tool_use", "template": "{{ tools|length }} tools"},
        ],
    }
    tokenizer = load_tokenizer(folder(tmp_path, tokenizer_config=config))
    messages = [{"role": "user", "content": "a"}]
    assert tokenizer.apply_chat_template(messages) == "<|im_start|>a<|im_end|>"
    assert tokenizer.apply_chat_template(messages, tools=[{}, {}]) == "2 tools"
    assert tokenizer.apply_chat_template(messages, chat_template="tool_use", tools=[{}]) == "1 tools"
    assert tokenizer.eos_ids == {IM_END}


def test_rows_beyond_the_tokenizer_are_empty(tmp_path):
    tokenizer = load_tokenizer(folder(tmp_path, config={"vocab_size": N + 10}))
    assert tokenizer.n_vocab == N + 10
    assert tokenizer.decode([N, N + 9]) == ""
    with pytest.raises(ValueError, match=f"token id {N + 10} is not among"):
        tokenizer.decode([N + 10])


def test_nothing_is_cut_or_filled_up(tmp_path):
    backend = copy()
    backend.enable_truncation(3)
    backend.enable_padding(length=50)
    tokenizer = load_tokenizer(folder(tmp_path, backend))
    assert tokenizer.decode(tokenizer.encode("a b c d e f")) == "a b c d e f"


def sentence_piece(decoder, prepend=True):
    pieces = ["<unk>", "<s>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "a", "b", "▁a"]
    ids = {piece: i for i, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(ids, [("▁", "a")], unk_token="<unk>", byte_fallback=True))
    space = normalizers.Replace(" ", "▁")
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), space]) if prepend else space
    backend.decoder = decoder
    backend.add_special_tokens([AddedToken("<s>", normalized=False, special=True)])
    return backend


LLAMA2 = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]


@pytest.mark.parametrize(
    ("decoder", "text"),
    [
        (decoders.Sequence(LLAMA2), "a b"),
        (decoders.Sequence(LLAMA2[:3]), " a b"),
        (decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]), "a b"),
        (decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="never")]), " a b"),
    ],
)
def test_decoders_say_how_tokens_are_spelled(tmp_path, decoder, text):
    backend = sentence_piece(decoder)
    tokenizer = load_tokenizer(folder(tmp_path, backend))
    ids = tokenizer.encode("a b")
    assert tokenizer.decode(ids) == backend.decode(ids) == text
    ids = tokenizer.encode("é<s>")
    assert tokenizer.decode(ids).strip() == "é"


def test_a_decoder_may_strip_more_than_one_space(tmp_path):
    backend = sentence_piece(decoders.Sequence([*LLAMA2[:3], decoders.Strip(" ", 2, 0)]))
    tokenizer = load_tokenizer(folder(tmp_path, backend))
    space, letter = backend.token_to_id("▁"), backend.token_to_id("a")
    for n in range(4):
        ids = [space] * n + [letter, space]
        stream = tokenizer.detokenizer()
        assert (
            "".join([*map(stream.push, ids), stream.finish()]) == tokenizer.decode(ids) == backend.decode(ids)
        )


@pytest.mark.parametrize(
    ("decoder", "name"),
    [
        (decoders.WordPiece(), "WordPiece"),
        (decoders.CTC(), "CTC"),
        (decoders.BPEDecoder(), "BPEDecoder"),
        (decoders.Sequence([decoders.ByteLevel(), decoders.Strip("x", 1, 1)]), "Strip"),
        (None, "a tokenizer without one"),
    ],
)
def test_other_decoders_are_refused_by_name(tmp_path, decoder, name):
    backend = Tokenizer(models.BPE({"a": 0}, []))
    if decoder is not None:
        backend.decoder = decoder
    with pytest.raises(UnsupportedModelError, match=rf"tokenizer\.json: decoder: {name}"):
        load_tokenizer(folder(tmp_path, backend))


GOOD = native().to_str()


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "has no tokenizer.json"),
        ({"tokenizer.json": b""}, "tokenizer.json: "),
        ({"tokenizer.json": b"{}"}, "tokenizer.json: "),
        ({"tokenizer.json": b"\xff\xfe"}, "tokenizer.json: "),
        ({"tokenizer.json": GOOD[:-100].encode()}, "tokenizer.json: "),
        ({"tokenizer.json": b"[" * 100_000}, "tokenizer.json: "),
        ({"tokenizer.json": json.loads(GOOD) | {"model": {"type": "BPE", "vocab": {}, "merges": ["a b"]}}},
         "tokenizer.json: "),
        ({"tokenizer.json": GOOD.encode(), "tokenizer_config.json": {"eos_token": "<nope>"}},
         "tokenizer_config.json: eos_token: '<nope>' is not in tokenizer.json"),
        ({"tokenizer.json": GOOD.encode(), "tokenizer_config.json": {"bos_token": 5}},
         "tokenizer_config.json: bos_token: must name a token"),
        ({"tokenizer.json": GOOD.encode(), "generation_config.json": {"eos_token_id": "2"}},
         "generation_config.json: eos_token_id: '2' is no token id"),
        ({"tokenizer.json": GOOD.encode(), "generation_config.json": {"eos_token_id": [2, -1]}},
         "generation_config.json: eos_token_id: '-1' is no token id"),
        ({"tokenizer.json": GOOD.encode(), "config.json": {"vocab_size": 10**12}},
         "config.json: vocab_size: '1000000000000' is no size"),
    ],
)  # fmt: skip
def test_damaged_folders_are_one_clear_error(tmp_path, files, reason):
    folder_of(tmp_path, files)
    with pytest.raises(ModelFormatError) as caught:
        load_tokenizer(tmp_path)
    assert str(caught.value).startswith(str(tmp_path))
    assert reason in str(caught.value)


def test_a_path_that_is_not_there(tmp_path):
    for path in (tmp_path / "none.gguf", tmp_path / "none" / "tokenizer.json"):
        with pytest.raises(ModelFormatError, match="none"):
            load_tokenizer(path)


def test_pre_tokenizers_are_taken_as_they_are(tmp_path):
    backend = copy()
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), backend.pre_tokenizer])
    assert load_tokenizer(folder(tmp_path, backend)).encode("2024") == backend.encode("2024").ids
