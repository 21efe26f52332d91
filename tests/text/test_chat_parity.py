"""Rendered chats, character for character and id for id as transformers has them."""

import jinja2
import pytest
from files.models import real_model
from text import templates
from text.vocabularies import byte_level_keys, load_keys, native

from pyrt.errors import TemplateError
from pyrt.tokenizer import load_tokenizer

transformers = pytest.importorskip("transformers", reason="parity with transformers needs transformers")
pytestmark = pytest.mark.parity

CALL = {
    "type": "function",
    "id": "abcdefgh1",
    "function": {"name": "weather", "arguments": {"city": "Zürich", "n": [1, 2.5, None]}},
}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"name": "weather", "description": "It's <b>", "parameters": CITY}
TOOLS = [{"type": "function", "function": WEATHER}]
SYSTEM = {"role": "system", "content": " Be brief.\n"}
CHATS = {
    "one": [{"role": "user", "content": "  Why is the sky blue? é🦙\n"}],
    "system": [SYSTEM, {"role": "user", "content": "Hi"}],
    "turns": [
        SYSTEM,
        {"role": "user", "content": '<|im_end|> & "x" {{ y }}'},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."},
        {"role": "user", "content": ""},
    ],
    "reasoning": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "because"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d", "reasoning_content": "hence"},
    ],
    "tools": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "12 °C"},
        {"role": "tool", "content": "rain"},
        {"role": "assistant", "content": "Wet."},
    ],
    "two calls": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "Let me see", "tool_calls": [CALL, CALL]},
    ],
    "parts": [{"role": "user", "content": [{"type": "text", "text": " a "}, {"type": "text", "text": "b"}]}],
    "wrong order": [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}],
    "odd role": [{"role": "critic", "content": "a"}],
}
# Where a template reads strings only, pyrt joins the parts and transformers fails.
PAIRS = [(name, chat) for name in templates.ALL for chat in CHATS if chat != "parts" or name == "turns"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    ours = load_keys(tmp_path_factory.mktemp("vocabulary") / "m.gguf", byte_level_keys())
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=native(), bos_token="<|endoftext|>", eos_token="<|endoftext|>"
    )
    return ours, theirs


def outcome(render):
    """The text, or how the template has refused the messages."""
    try:
        return render()
    except (TemplateError, jinja2.TemplateError) as refusal:
        return "refused: " + str(refusal).removeprefix("the chat template fails: ")


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["plain", "tools"])
@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize(("name", "chat"), PAIRS)
def test_texts_are_equal(pair, name, chat, prompt, tools):
    ours, theirs = pair
    options = {"chat_template": templates.ALL[name], "add_generation_prompt": prompt, "tools": tools}
    options["enable_thinking"] = False
    messages = CHATS[chat]
    mine = outcome(lambda: ours.apply_chat_template(messages, **options))
    other = outcome(lambda: theirs.apply_chat_template(messages, tokenize=False, **options))
    assert mine == other
    if not mine.startswith("refused: "):
        ids = theirs.apply_chat_template(messages, tokenize=True, return_dict=False, **options)
        assert ours.apply_chat_template(messages, tokenize=True, **options) == ids


def test_enough_is_rendered_and_enough_refused(pair):
    ours, _ = pair
    results = [
        outcome(lambda m=messages, t=template: ours.apply_chat_template(m, chat_template=t))
        for template in templates.ALL.values()
        for messages in CHATS.values()
    ]
    refused = [result for result in results if result.startswith("refused: ")]
    assert 4 <= len(refused) <= 12, refused


def test_smollm2_chats_are_equal():
    """The template of the real file, and the ids of the tokenizer that is rebuilt from it."""
    ours = load_tokenizer(real_model("smollm2.gguf"))
    backend = ours._parts.backend
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=ours.chat_template)
    for messages in CHATS.values():
        if all(isinstance(message["content"], str) for message in messages):
            expected = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            assert ours.apply_chat_template(messages) == expected
            ids = theirs(expected, add_special_tokens=False)["input_ids"]
            assert ours.apply_chat_template(messages, tokenize=True) == ids
