"""BOS is there once, and every token that ends a text is known."""

import pytest
from text.vocabularies import byte_level_keys, load_keys, spm_keys

from pyrt.errors import ModelFormatError

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
BOS = 1


def load(tmp_path, **changes):
    return load_keys(tmp_path / "m.gguf", spm_keys(["▁", "a", "▁a", "b"], **changes))


def test_a_raw_prompt_gets_bos_once(tmp_path):
    tokenizer = load(tmp_path)
    assert tokenizer.bos_id == BOS
    plain = tokenizer.encode("a", add_special_tokens=False)
    assert tokenizer.encode("a") == [BOS, *plain]
    assert tokenizer.encode("") == [BOS]
    # Written out by the user it is not doubled, and two of them are what was asked for.
    assert tokenizer.encode("<s>a").count(BOS) == 1
    assert tokenizer.encode("<s>a") == tokenizer.encode("<s>a", add_special_tokens=False)
    assert tokenizer.encode("<s><s>a").count(BOS) == 2


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"add_bos_token": False}, []),
        ({"add_bos_token": True}, [BOS]),
        ({"add_bos_token": None}, [BOS]),
        ({"bos_token_id": None}, []),
        ({"add_eos_token": True}, [BOS, 2]),
        ({"add_bos_token": False, "add_eos_token": True}, [2]),
    ],
)
def test_the_file_says_what_goes_around(tmp_path, changes, expected):
    assert load(tmp_path, **changes).encode("") == expected


@pytest.mark.parametrize(
    ("pre", "adds"), [("gpt-2", False), ("smollm", False), ("qwen2", False), ("llama-bpe", True)]
)
def test_where_the_file_is_silent_the_family_says_it(tmp_path, pre, adds):
    tokenizer = load_keys(tmp_path / "m.gguf", byte_level_keys(pre))
    assert (tokenizer.encode("a")[0] == tokenizer.bos_id) is adds


@pytest.mark.parametrize("name", ["bos", "eos"])
def test_a_token_to_add_must_exist(tmp_path, name):
    with pytest.raises(ModelFormatError, match=f"add_{name}_token: is true, but there is no {name}_token_id"):
        load(tmp_path, **{f"add_{name}_token": True, f"{name}_token_id": None})


def test_a_rendered_template_gets_nothing_added(tmp_path):
    template = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
    tokenizer = load(tmp_path, **{"tokenizer.chat_template": template})
    messages = [{"role": "user", "content": "a"}]
    assert tokenizer.apply_chat_template(messages) == "<s>a</s>"
    ids = tokenizer.apply_chat_template(messages, tokenize=True)
    assert (ids.count(BOS), ids[0], ids[-1]) == (1, BOS, 2)
    silent = load(tmp_path, **{"tokenizer.chat_template": "{{ messages[0].content }}"})
    assert BOS not in silent.apply_chat_template(messages, tokenize=True)


def test_ends_are_the_union_of_all_that_say_so(tmp_path):
    keys = byte_level_keys()
    ids = {token: i for i, token in enumerate(keys["tokenizer.ggml.tokens"])}
    end, start, im_end = (ids[token] for token in ("<|endoftext|>", "<|im_start|>", "<|im_end|>"))

    def ends(**changes):
        return load_keys(tmp_path / "m.gguf", byte_level_keys(**changes)).eos_ids

    assert ends() == {end}
    assert ends(eot_token_id=im_end) == {end, im_end}
    assert ends(eom_token_id=start, eot_token_id=im_end) == {end, start, im_end}
    assert ends(eos_token_id=None) == set()
    assert ends(**{"tokenizer.chat_template": CHATML}) == {end, im_end}
    # A template that does not write it, and a vocabulary that has no such token.
    assert ends(**{"tokenizer.chat_template": "{{ messages[0].content }}"}) == {end}
    assert ends(**{"tokenizer.chat_template": "<|eot_id|>"}) == {end}


def test_a_template_of_the_callers_ends_turns_too(tmp_path):
    from pyrt.tokenizer import load_tokenizer

    tokenizer = load_keys(tmp_path / "m.gguf", byte_level_keys())
    given = load_tokenizer(tmp_path / "m.gguf", chat_template=CHATML)
    assert given.chat_template == CHATML
    assert given.eos_ids - tokenizer.eos_ids == {given.encode("<|im_end|>")[0]}


def test_specials_are_those_that_are_no_text(tmp_path):
    tokenizer = load_keys(tmp_path / "m.gguf", byte_level_keys())
    ids = tokenizer.encode("<|im_start|>a<tool><|im_end|>")
    assert tokenizer.decode(ids) == "a<tool>"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<|im_start|>a<tool><|im_end|>"
    assert {tokenizer.decode([i], False) for i in tokenizer.special_ids} == {
        "<|endoftext|>", "<|im_start|>", "<|im_end|>",
    }  # fmt: skip
