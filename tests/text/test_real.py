"""The vocabularies of real models, held to ids that llama.cpp gives (llama-cpp-python 0.3.36)."""

# ruff: noqa: E501 (rows of ids)

import functools

import pytest
from files.models import real_model
from hypothesis import given
from hypothesis import strategies as st

from pyrt.tokenizer import load_tokenizer

# text, ids of SmolLM2-135M-Instruct, ids of Gemma 3 270M
GOLDEN = [
    (
        "Hello world",
        [19556, 905],
        [9259, 1902],
    ),
    (
        " Hello  World!\n",
        [38699, 216, 2260, 17, 198],
        [26352, 138, 14447, 236888, 107],
    ),
    (
        "I'm sure we've 12345 llamas 🦙, naïve façade.",
        [57, 5248, 2090, 392, 3543, 216, 33, 34, 35, 36, 37, 303, 4130, 292, 15107, 116, 243, 28, 15486, 46494, 40852, 30],
        [236777, 236789, 236757, 2889, 692, 236789, 560, 236743, 236770, 236778, 236800, 236812, 236810, 236136, 236743, 478, 397, 404, 391, 236764, 120362, 96008, 236761],
    ),
    (
        "def f(x):\n\t\treturn  x\n\n\n",
        [1604, 275, 24, 104, 727, 3354, 197, 5406, 216, 1792, 16506],
        [2063, 517, 236769, 236781, 1473, 107, 255969, 2060, 138, 236781, 109],
    ),
    (
        "<|im_start|>user\nHi<|im_end|>\n<start_of_turn>",
        [1, 4093, 198, 26843, 2, 198, 44, 3738, 79, 1714, 79, 20589, 46],
        [236820, 236909, 548, 236779, 3041, 111038, 2364, 107, 10979, 236820, 236909, 548, 236779, 643, 111038, 107, 105],
    ),
    (
        "<table><b>x</b></table>\t▁",
        [44, 6413, 21198, 82, 46, 104, 9617, 82, 29299, 6413, 46, 197, 11007, 219],
        [168, 200, 236781, 209, 176, 255968, 236743],
    ),
    (
        "我想在apple工作1314151天～",
        [19805, 235, 177, 221, 128, 32632, 21949, 36149, 115, 40994, 33, 35, 33, 36, 33, 37, 33, 18614, 119, 186, 138, 248],
        [62133, 237075, 17641, 11700, 236770, 236800, 236770, 236812, 236770, 236810, 236770, 237471, 238352],
    ),
    (
        "कृपया 😶‍🌫️ ½ ﬁ 　",
        [38565, 9310, 221, 4300, 120, 32932, 18075, 40303, 131, 321, 231, 10813, 230, 121, 31752, 216, 16738, 40367, 15442, 12109, 218],
        [151699, 236743, 247717, 237243, 248989, 238178, 47041, 97940, 432, 398, 465, 366, 366],
    ),
    (
        "a   b    c     d",
        [81, 256, 278, 333, 265, 289, 287],
        [236746, 139, 236763, 140, 236755, 141, 236753],
    ),
    (
        "नमस्ते <0x0A> <eos>",
        [30658, 35090, 38770, 16525, 26293, 30581, 2067, 32, 104, 32, 49, 46, 2067, 85, 395, 46],
        [226767, 655, 236771, 236781, 236771, 236776, 236813, 236743, 1],
    ),
]  # fmt: skip


@pytest.fixture(scope="module", params=["smollm2.gguf", "gemma3.gguf"])
def model(request):
    return load_tokenizer(real_model(request.param))


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case[0][:12])
def test_ids(model, case):
    text, *ids = case
    tokens = model.encode(text, add_special_tokens=False)
    assert tokens == ids[model.n_vocab > 200_000]
    assert model.decode(tokens, skip_special_tokens=False) == text.replace(
        "▁", " " if model.n_vocab > 200_000 else "▁"
    )


@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁")))
def test_any_text_comes_back(model, text):
    # SmolLM2 has the bytes of its training text only; what has others is lost, as in every runtime.
    missing = {byte for byte in range(256) if bytes([byte]) not in spelled(model)}
    text = "".join(letter for letter in text if missing.isdisjoint(letter.encode()))
    ids = model.encode(text, add_special_tokens=False)
    assert model.decode(ids, skip_special_tokens=False) == text
    stream = model.detokenizer(skip_special_tokens=False)
    assert "".join([*map(stream.push, ids), stream.finish()]) == text


@functools.cache
def spelled(model):
    return {model.token_bytes(i) for i in range(model.n_vocab)}


@given(data=st.data())
def test_any_ids_have_a_text(model, data):
    ids = data.draw(st.lists(st.integers(0, model.n_vocab - 1)))
    for skip in (True, False):
        stream = model.detokenizer(skip)
        assert "".join([*map(stream.push, ids), stream.finish()]) == model.decode(ids, skip)


def test_specials():
    smollm2 = load_tokenizer(real_model("smollm2.gguf"))
    assert (smollm2.bos_id, smollm2.eos_ids, smollm2.n_vocab) == (1, {2}, 49152)
    assert smollm2.encode("Hi") == smollm2.encode("Hi", add_special_tokens=False)
    gemma = load_tokenizer(real_model("gemma3.gguf"))
    assert (gemma.bos_id, gemma.eos_ids, gemma.n_vocab) == (2, {1}, 262144)
    assert gemma.encode("Hi") == [2, *gemma.encode("Hi", add_special_tokens=False)]
    assert gemma.encode("<bos>Hi").count(2) == 1
    assert gemma.chat_template is None
