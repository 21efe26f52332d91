"""A reading of C++ just good enough for the rules: text without comments, includes, sizes of functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<raw>[^(\s]*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""", re.S
)
_NOT_A_FUNCTION = re.compile(r"^\s*(?:template\s*<[^{}]*>\s*)?(?:namespace|class|struct|union|enum|extern)\b")


class Function(NamedTuple):
    name: str
    first_line: int
    n_lines: int


def code(text: str, keep_strings: bool = False) -> str:
    """The text with comments blanked, strings too unless wanted; every line break stays."""

    def blank(match: re.Match[str]) -> str:
        token = match[0]
        if token[0] == "'" and match.start() > 0 and text[match.start() - 1].isalnum():
            return token  # a digit separator, 50'000
        if token[0] != "/" and keep_strings:
            return token
        return re.sub(r"[^\n]", " ", token)

    return _TOKEN.sub(blank, text)


def without_directives(text: str) -> str:
    """Preprocessor lines blanked, continued ones too."""
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m[0].count("\n"), text, flags=re.M)


def includes(text: str) -> Iterator[str]:
    """What a file includes, with its quotes or brackets."""
    pattern = r'^[ \t]*#[ \t]*include[ \t]*(<[^>]+>|"[^"]+")'
    yield from re.findall(pattern, code(text, keep_strings=True), re.M)


def functions(text: str) -> list[Function]:
    """Each function that is not inside of another, from the first line of its signature to its last brace."""
    source = without_directives(code(text))
    found: list[Function] = []
    kinds: list[str] = []  # of the open braces: "scope", "function", "list"
    start, position, begun = 0, 0, 0
    while match := re.compile(r"[{};]").search(source, position):
        at, position = match.start(), match.end()
        if match[0] == "{":
            header = source[start:at]
            inside = "function" in kinds
            if not inside and re.search(r"[\w>=(,]\s*$", header) and not _opens_body(header):
                kinds.append("list")  # an initializer: the declaration goes on behind it
                continue
            is_function = not inside and ")" in header and not _NOT_A_FUNCTION.match(header)
            kinds.append("function" if is_function else "scope")
            if is_function:
                begun = start + len(header) - len(header.lstrip())
        elif match[0] == "}" and kinds:
            kind = kinds.pop()
            if kind == "list":
                continue
            if kind == "function":
                found.append(_function(source, begun, at))
        start = position
    return found


def _opens_body(header: str) -> bool:
    """Does a brace behind this text open a scope, though the text ends in a word?"""
    return bool(
        _NOT_A_FUNCTION.match(header)
        or re.search(r"\)\s*(?:const|noexcept|override|final|mutable|->[\w:<>\s*&]+|\s)*$", header)
        or re.fullmatch(r"\s*(?:do|else|try)?\s*", header)
    )


def _function(source: str, begun: int, at: int) -> Function:
    first = source.count("\n", 0, begun) + 1
    name = re.search(r"([~\w:]+|operator\S+)\s*\(", source[begun:at])
    return Function(name[1] if name else "?", first, source.count("\n", begun, at) + 1)
