"""The texts and ids that llama.cpp publishes with its vocabularies."""

from pathlib import Path

import pytest

from pyrt.errors import UnsupportedModelError
from pyrt.tokenizer import load_tokenizer

FOLDER = Path(__file__).parents[2].parent / "shared" / "vectors" / "tokenizers"
NAMES = ["gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2", "starcoder"]


def vocabulary(name):
    path = FOLDER / f"ggml-vocab-{name}.gguf"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    return path


@pytest.mark.parametrize("name", NAMES)
def test_all_ids_match(name):
    path = vocabulary(name)
    *texts, rest = Path(f"{path}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = Path(f"{path}.out").read_text().splitlines()
    assert (len(texts), len(lines), rest) == (46, 46, "")
    tokenizer = load_tokenizer(path)
    for text, line in zip(texts, lines, strict=True):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert ids == [int(word) for word in line.split()], text
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("name", NAMES)
def test_every_token_has_bytes(name):
    tokenizer = load_tokenizer(vocabulary(name))
    spelled = {tokenizer.token_bytes(i) for i in range(tokenizer.n_vocab)}
    # StarCoder's has the bytes of its training text only, so that rare planes of Unicode are lost on it.
    assert {bytes([i]) for i in range(128 if name == "starcoder" else 256)} <= spelled
    with pytest.raises(ValueError, match=str(tokenizer.n_vocab)):
        tokenizer.token_bytes(tokenizer.n_vocab)


def test_word_pieces_are_refused_by_name():
    with pytest.raises(
        UnsupportedModelError, match=r"bge\.gguf: tokenizer\.ggml\.model: 'bert' \(WordPiece\)"
    ):
        load_tokenizer(vocabulary("bert-bge"))
