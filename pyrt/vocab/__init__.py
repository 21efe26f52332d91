"""Vocabularies: from a model's files to the parts of which a tokenizer is made."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from pyrt.vocab.spelling import Spelling

# Tokens that end a turn in the chat formats of many families. One of them ends generation if the vocabulary
# has it as a special token and the chat template writes it. Source: the templates of the models named.
END_OF_TURN = (
    "<|im_end|>",  # ChatML: Qwen, SmolLM, Hermes
    "<|eot_id|>",  # Llama 3
    "<|eom_id|>",  # Llama 3.1, before a tool's answer
    "<|eot|>",  # Llama 4
    "<end_of_turn>",  # Gemma
    "<|end|>",  # Phi 3
    "<|end_of_text|>",  # Granite
    "<|endoftext|>",  # Phi 3 small, StableLM
    "<|end_of_turn|>",  # OpenChat
    "<|END_OF_TURN_TOKEN|>",  # Command R
)


class Parts(NamedTuple):
    """What a tokenizer is made of, whichever file it came from.

    ``backend`` is a ``tokenizers.Tokenizer``. ``prefix`` and ``suffix`` are the ids that a raw prompt gets
    around it. ``names`` are the spellings of special tokens for templates, as in ``{"bos_token": "<s>"}``.
    ``shadowed`` are tokens that the backend cannot name, because another id is spelled the same.
    """

    where: str
    backend: Any
    spelling: Spelling
    n_vocab: int
    bos_id: int | None
    eos_ids: frozenset[int]
    special_ids: frozenset[int]
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    names: Mapping[str, str] = MappingProxyType({})
    chat_templates: Mapping[str, str] = MappingProxyType({})
    shadowed: Mapping[int, str] = MappingProxyType({})
