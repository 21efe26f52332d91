"""How a vocabulary spells bytes: what a token's name in the vocabulary adds to the text.

Decoding is done here rather than by the tokenizers library, so that a stream and the whole text come from
the same bytes, and so that bytes that are not UTF-8 give U+FFFD by one rule (Unicode 15, table 3-8: one for
each maximal part that could have begun a character), however the text is cut.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from pyrt.errors import UnsupportedModelError

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's characters for the bytes: printable Latin-1 stands for itself, the others follow from U+0100.

    Source: bytes_to_unicode in https://github.com/openai/gpt-2/blob/master/src/encoder.py.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


BYTE_ALPHABET = _byte_alphabet()


class Spelling(NamedTuple):
    """What stands in a token's name for which bytes.

    ``byte_level``: each character of BYTE_ALPHABET is a byte. ``replace``: pairs of text and what it stands
    for. ``byte_fallback``: "<0xE2>" is a byte. ``leading_spaces``: so many spaces at the start of a text are
    not part of it, since encoding has put them there.
    """

    byte_level: bool = False
    replace: tuple[tuple[str, str], ...] = ()
    byte_fallback: bool = False
    leading_spaces: int = 0

    def bytes_of(self, token: str, *, literal: bool) -> bytes:
        """The bytes of one token; a ``literal`` one, which was added to the vocabulary, stands for itself."""
        if self.byte_level:
            if literal or not BYTE_ALPHABET.keys() >= set(token):
                return token.encode()
            return bytes(map(BYTE_ALPHABET.__getitem__, token))
        if self.byte_fallback and not literal and (byte := _BYTE.fullmatch(token)):
            return bytes([int(byte[1], 16)])
        for text, meaning in self.replace:
            token = token.replace(text, meaning)
        return token.encode()


def spelling_of(decoder: Any, where: str) -> Spelling:
    """The spelling that a decoder of the tokenizers library stands for; None is no decoder.

    UnsupportedModelError names a decoder that does not simply join what its tokens stand for.
    """
    if decoder is None:
        raise UnsupportedModelError(f"{where}: decoder: a tokenizer without one is not supported")
    state = json.loads(decoder.__getstate__())
    found: dict[str, Any] = {}
    for step in state["decoders"] if state["type"] == "Sequence" else [state]:
        match step:
            case {"type": "ByteLevel"}:
                found["byte_level"] = True
            case {"type": "ByteFallback"}:
                found["byte_fallback"] = True
            case {"type": "Fuse"}:
                pass
            case {"type": "Replace", "pattern": {"String": text}, "content": meaning}:
                found["replace"] = (*found.get("replace", ()), (text, meaning))
            case {"type": "Strip", "content": " ", "start": start, "stop": 0}:
                found["leading_spaces"] = start
            case {"type": "Metaspace", "replacement": text, "prepend_scheme": scheme}:
                found["replace"] = (*found.get("replace", ()), (text, " "))
                found["leading_spaces"] = 0 if scheme == "never" else 1
            case _:
                raise UnsupportedModelError(f"{where}: decoder: {step['type']} is not supported")
    return Spelling(**found)
