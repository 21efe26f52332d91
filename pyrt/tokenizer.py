"""Text to token ids and back, for a folder's tokenizer.json and for the vocabulary inside a GGUF file."""

from __future__ import annotations

import codecs
import operator
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrt.errors import TemplateError
from pyrt.vocab import END_OF_TURN, Parts

if TYPE_CHECKING:
    from pyrt.source import Source


class Tokenizer:
    """The tokenizer of one model. It does not change, so threads may share it.

    ``bos_id`` is the id that begins a text, or None. ``eos_ids`` are all ids that end a generated text: what
    the generation config, the tokenizer, the GGUF keys and the end of a turn in the chat template say.
    ``special_ids`` are the tokens that are not text. ``n_vocab`` bounds all ids. ``chat_template`` is the
    model's own or the one given at loading, None where there is none; ``chat_templates`` has all by name.
    """

    def __init__(self, parts: Parts, chat_template: str | None = None) -> None:
        self._parts = parts
        self._backend = parts.backend
        self._bytes: dict[int, bytes] = {}
        added = parts.backend.get_added_tokens_decoder()
        self._literal = frozenset(added)
        self.bos_id = parts.bos_id
        self.n_vocab = parts.n_vocab
        self.special_ids = parts.special_ids
        self.chat_templates = dict(parts.chat_templates)
        if chat_template is not None:
            self.chat_templates["default"] = chat_template
        self.eos_ids = parts.eos_ids | self._ends_of_turn()

    @property
    def chat_template(self) -> str | None:
        return self.chat_templates.get("default")

    def __repr__(self) -> str:
        return f"<Tokenizer of {self._parts.where}: {self.n_vocab} tokens>"

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text.

        Special tokens that are spelled out in the text become their ids. ``add_special_tokens`` puts around
        it what the model expects around a raw prompt, as a rule one BOS, but never a second one. What a
        vocabulary cannot spell is left out, as the tokenizers library does: byte-level ones may lack bytes.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be str, not {type(text).__name__}")
        try:
            ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        except TypeError:  # how the library says that it cannot make UTF-8 of it
            raise ValueError("text holds a lone surrogate, which is no character") from None
        if add_special_tokens:
            before, after = list(self._parts.prefix), list(self._parts.suffix)
            if before and ids[: len(before)] != before:
                ids = before + ids
            if after and ids[-len(after) :] != after:
                ids = ids + after
        return ids

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True, *, continues: bool = False) -> str:
        """The text of some token ids; any ids below ``n_vocab`` have one. ValueError for others.

        Bytes that are not UTF-8 become U+FFFD. Where encoding begins a text with a space of its own, decoding
        takes it off again, unless the ids continue another text (``continues``).
        """
        hidden = self.special_ids if skip_special_tokens else frozenset()
        text = b"".join(self.token_bytes(i) for i in ids if i not in hidden).decode(errors="replace")
        return text if continues else _without_spaces(text, self._parts.spelling.leading_spaces)

    def detokenizer(self, skip_special_tokens: bool = True, *, continues: bool = False) -> Detokenizer:
        """A decoder that takes one id at a time; the pieces together are what ``decode`` gives."""
        return Detokenizer(self, skip_special_tokens, continues=continues)

    def token_bytes(self, token: int) -> bytes:
        """What one token adds to the text: its bytes, which need not be whole characters. ValueError if it
        is not below ``n_vocab``."""
        known = self._bytes.get(token)
        if known is None:
            known = self._bytes[operator.index(token)] = self._spell(operator.index(token))
        return known

    def _spell(self, token: int) -> bytes:
        if not 0 <= token < self.n_vocab:
            raise ValueError(f"token id {token} is not among the {self.n_vocab} of the vocabulary")
        name = self._parts.shadowed.get(token)
        if name is None:
            name = self._backend.id_to_token(token)
        if name is None:  # a row that fills the embedding table up
            return b""
        return self._parts.spelling.bytes_of(name, literal=token in self._literal)

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        chat_template: str | None = None,
        tokenize: bool = False,
        **template_kwargs: Any,
    ) -> Any:
        """Messages as the model's chat template writes them: text, or with ``tokenize`` its token ids.

        ``chat_template`` is another template, or the name of one in ``chat_templates``. What else is passed,
        as ``tools``, goes to the template. The ids have nothing added, since templates write BOS themselves.
        Raises TemplateError if there is no template, if it refuses the messages or breaks a limit, and
        TypeError or ValueError for messages that are none.
        """
        from pyrt.chat import render

        template = self._template(chat_template, template_kwargs.get("tools"))
        variables = {**self._parts.names, **template_kwargs, "add_generation_prompt": add_generation_prompt}
        text = render(template, messages, variables)
        return self.encode(text, add_special_tokens=False) if tokenize else text

    def _template(self, given: str | None, tools: Any) -> str:
        if given is not None:
            return self.chat_templates.get(given, given)
        if tools and "tool_use" in self.chat_templates:  # the name that transformers looks for
            return self.chat_templates["tool_use"]
        if self.chat_template is None:
            raise TemplateError(
                f"{self._parts.where}: the model has no chat template; pass one as chat_template=..., or use "
                "generate() to continue text"
            )
        return self.chat_template

    def _ends_of_turn(self) -> set[int]:
        template = self.chat_template or ""
        ids = {self._backend.token_to_id(token) for token in END_OF_TURN if token in template}
        return ids & self._literal


class Detokenizer:
    """Decodes a stream of token ids; what it returns never ends inside a character.

    ``push`` gives the text that has become certain, ``finish`` the rest; together they are what
    ``Tokenizer.decode`` gives for all ids.
    """

    def __init__(
        self, tokenizer: Tokenizer, skip_special_tokens: bool = True, *, continues: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._hidden = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._spaces = 0 if continues else tokenizer._parts.spelling.leading_spaces
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Text that one more id makes certain, perhaps none. ValueError for an id out of range."""
        return "" if token in self._hidden else self._text(self._tokenizer.token_bytes(token))

    def finish(self) -> str:
        """The text of bytes that were held back."""
        return self._text(b"", final=True)

    def _text(self, data: bytes, final: bool = False) -> str:
        text = self._decoder.decode(data, final)
        if self._spaces and text:
            shorter = _without_spaces(text, self._spaces)
            self._spaces = 0 if shorter else self._spaces - len(text)
            return shorter
        return text


def _without_spaces(text: str, most: int) -> str:
    n = min(most, len(text) - len(text.lstrip(" ")))
    return text[n:]


def load_tokenizer(path: str | Path, *, chat_template: str | None = None) -> Tokenizer:
    """The tokenizer of a model without its weights.

    ``path`` is a GGUF file, with or without weights, a folder, or a tokenizer.json. ``chat_template`` takes
    the place of the model's own. Raises ModelFormatError or UnsupportedModelError.
    """
    path = Path(path)
    from pyrt.source import open_model

    with open_model(path.parent if path.name == "tokenizer.json" else path, weights=False) as source:
        return tokenizer_from_source(source, chat_template=chat_template)


def tokenizer_from_source(source: Source, *, chat_template: str | None = None) -> Tokenizer:
    """The tokenizer of an open model file or folder; see ``load_tokenizer``."""
    from pyrt.checkpoint import Checkpoint

    if isinstance(source, Checkpoint):
        from pyrt.vocab.folder import parts_of_folder

        return Tokenizer(parts_of_folder(source), chat_template)
    from pyrt.vocab.gguf import parts_of_gguf

    return Tokenizer(parts_of_gguf(source.metadata, str(source.path)), chat_template)
