"""How large results can become, told from the arguments: filters, methods and operators of templates.

A size is a bound in characters. Functions that are not here cannot be called from a template. They have the
parameters of the functions they speak for, so that keyword arguments land where they belong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, MappingView
from string import Formatter
from typing import Any

from jinja2.runtime import LoopContext
from markupsafe import Markup

from pyrt.errors import TemplateError
from pyrt.template.meter import MAX_COUNT, MAX_INT_BITS, current

# The longest spelling of a character: \U0010ffff in a repr; escapes in JSON, HTML and URLs are not longer.
_ESCAPED = 12
# What a string of its own takes for one character: the object, a slot in a list, two bytes.
_ALONE = 64
_SLOW = 10_000  # characters for which a filter of quadratic cost is quick
_LONG_NAME = 4096
MAX_HASHED = 4096  # keys, which a template can choose so that they all collide
_TOO_LARGE = float("inf")

Size = Callable[..., float]


def text_size(value: Any) -> int:
    """Length of str(value) at most."""
    return len(value) if isinstance(value, str) else _ESCAPED * current().weight(value)


def _factor(n: int) -> Size:
    """The text and a few times as much, whatever the arguments, which are short."""
    return lambda value="", *args, **kwargs: (
        n * text_size(value) + sum(map(text_size, [*args, *kwargs.values()]))
    )


def _count(n: Any) -> int:
    """A number that is used as a width or count."""
    if isinstance(n, int) and abs(n) > MAX_COUNT:
        raise TemplateError(f"the chat template asks for a width or count of {n:.6g}")
    return abs(n) if isinstance(n, int) else 0


def _slow(value: Any = "", *args: Any, **kwargs: Any) -> float:
    """Filters that run in Python or take quadratic time; ``wordwrap`` adds a given text at every break."""
    sizes = [text_size(value), *map(text_size, args), *map(text_size, kwargs.values())]
    for n in (*args, *kwargs.values()):
        _count(n)
    return _TOO_LARGE if max(sizes) > _SLOW else max(sizes[0], 1) * (8 + sum(sizes[1:]))


def _sequence(value: Any = (), *args: Any, **kwargs: Any) -> float:
    """Filters that list the items of a value, or its characters; their arguments are names of attributes."""
    for arg in (*args, *kwargs.values()):
        if isinstance(arg, str) and len(arg) > _LONG_NAME:
            return _TOO_LARGE
    return _ALONE * len(value) if isinstance(value, str) else 0


def _unique(value: Any = (), *args: Any, **kwargs: Any) -> float:
    return _TOO_LARGE if len(value) > MAX_HASHED else _sequence(value, *args, **kwargs)


def _center(value: Any = "", width: Any = 80, *_: Any) -> float:
    return text_size(value) + _count(width)


def _indent(s: Any = "", width: Any = 4, first: Any = False, blank: Any = False) -> float:
    text = s if isinstance(s, str) else str(s)
    each = len(width) if isinstance(width, str) else _count(width)
    return len(text) + (len(text.splitlines()) + 1) * each


def _replace(s: Any = "", old: Any = "", new: Any = "", *_: Any) -> float:
    text, part = s if isinstance(s, str) else str(s), str(old)
    return len(text) + (text.count(part) if part else len(text) + 1) * text_size(new)


def _join(value: Any = (), d: Any = "", attribute: Any = None) -> float:
    if isinstance(value, str):
        return _ALONE * len(value) + len(value) * text_size(d)
    return sum(map(text_size, value)) + len(value) * text_size(d)


def _counts(value: Any = (), n: Any = 1, fill_with: Any = None) -> float:
    return _sequence(value) + _count(n)


def _round(value: Any = 0, precision: Any = 0, method: Any = "") -> float:
    return 0 if _count(precision) <= 300 else _TOO_LARGE


def _sum(iterable: Any = (), attribute: Any = None, start: Any = 0) -> float:
    return _sequence(iterable, attribute) if isinstance(start, (int, float)) else _TOO_LARGE


def _tojson(
    x: Any = None,
    ensure_ascii: Any = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: Any = False,
) -> float:
    meter = current()
    weight, step = meter.weight(x), 0
    if indent is not None:
        step = len(indent) if isinstance(indent, str) else _count(indent)
    between = sum(map(text_size, separators)) if separators else 4
    # An item weighs a slot of eight bytes at least.
    return _ESCAPED / 2 * weight + weight / 8 * (between + 1 + step * meter.depth(x))


def _printf(value: Any = "", *args: Any, **kwargs: Any) -> float:
    """``%`` and the filter ``format``: each conversion is as wide as a number in the text, or an argument."""
    template = str(value)
    if len(template) > _LONG_NAME or re.search(r"%[-+ #0-9.]*\*", template):
        return _TOO_LARGE
    widths = [int(digits) if len(digits) < 10 else _TOO_LARGE for digits in re.findall(r"\d+", template)]
    sizes = [_ESCAPED * current().weight(arg) for arg in (*args, *kwargs.values())]
    # By name, an argument may be used again and again.
    used = template.count("%") * max(sizes, default=0) if "%(" in template else sum(sizes)
    return len(template) + template.count("%") * max(widths, default=0) + used


def _strip(s: Any = "", chars: Any = None) -> float:
    """Each character is compared with all that are to go."""
    return 2 * text_size(s) if chars is None or text_size(s) * text_size(chars) < 1e8 else _TOO_LARGE


def _search(s: str = "", sub: Any = None, *_: Any, **__: Any) -> float:
    """From the end, a search takes the product of the lengths."""
    return 0 if not isinstance(sub, str) or len(s) * len(sub) < 1e8 else _TOO_LARGE


def _split(s: str = "", sep: Any = None, *_: Any, **__: Any) -> float:
    if not isinstance(sep, str):
        return _ALONE * len(s) / 2
    return len(s) + _ALONE * s.count(sep or " ") + _search(s, sep)


def _expandtabs(s: str = "", tabsize: Any = 8) -> float:
    return len(s) + s.count("\t") * _count(tabsize)


def _free(*_: Any, **__: Any) -> float:
    return 0


def _each(size: Size, names: str) -> dict[str, Size]:
    return dict.fromkeys(names.split(), size)


FILTER_SIZES: dict[str, Size] = {
    **_each(_free, "abs attr count d default filesizeformat float int length"),
    **_each(_factor(3), "capitalize lower upper string safe"),
    **_each(_factor(_ESCAPED), "e escape forceescape urlencode"),
    **_each(_sequence, "dictsort first groupby items last list map max min random reject rejectattr"),
    **_each(_sequence, "reverse select selectattr sort"),
    **_each(_counts, "batch slice"),
    **_each(_slow, "pprint striptags title urlize wordcount wordwrap xmlattr"),
    "center": _center,
    "format": _printf,
    "indent": _indent,
    "join": _join,
    "replace": _replace,
    "round": _round,
    "sum": _sum,
    "tojson": _tojson,
    "trim": _strip,
    "truncate": _factor(1),
    "unique": _unique,
}

_STRING_METHODS: dict[str, Size] = {
    **_each(_free, "count endswith find index startswith isalnum isalpha isascii isdecimal isdigit"),
    **_each(_free, "isidentifier islower isnumeric isprintable isspace istitle isupper"),
    **_each(_factor(3), "capitalize casefold lower swapcase title upper"),
    **_each(_factor(1), "partition removeprefix removesuffix"),
    **_each(_search, "rfind rindex"),
    **_each(_split, "rpartition rsplit split"),
    **_each(_center, "center ljust rjust zfill"),
    **_each(_strip, "strip lstrip rstrip"),
    "expandtabs": _expandtabs,
    "join": lambda sep="", value=(): _join(value, sep),
    "replace": _replace,
    "splitlines": lambda s="", *_: _ALONE / 2 * len(s),
}

METHOD_SIZES: dict[type, dict[str, Size]] = {
    str: _STRING_METHODS,
    list: _each(_free, "copy count index"),
    tuple: _each(_free, "count index"),
    dict: _each(_free, "copy get items keys values"),
    int: _each(_free, "bit_length is_integer"),
    float: _each(_free, "is_integer"),
    range: _each(_free, "count index"),
}


def operator_size(operator: str, left: Any, right: Any) -> float:
    """The size of ``left operator right``."""
    if isinstance(left, str) and operator == "%":
        return _printf(left, *(right if isinstance(right, tuple) else (right,))) * html_factor(left)
    for a, b in ((left, right), (right, left)):
        if isinstance(a, (str, list, tuple)) and operator == "*":
            return _length(a) * b if isinstance(b, int) else 0
    if operator == "+":
        return (_length(left) + _length(right)) * html_factor(left) * html_factor(right)
    if isinstance(left, int) and isinstance(right, int):
        bits = max(left.bit_length(), right.bit_length())
        if operator == "**" and right > 0:
            bits = left.bit_length() * right
        if bits > MAX_INT_BITS:
            raise TemplateError("the chat template computes with numbers that are too large")
    return 0


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str) else current().weight(value)


def html_factor(value: Any) -> int:
    """Next to markup, text is escaped."""
    return _ESCAPED if isinstance(value, Markup) else 1


def materialise(value: Any) -> Any:
    """Items of an iterator as a list, which can be measured; other values as they are."""
    lazy = isinstance(value, (Iterator, MappingView, range)) and not isinstance(value, LoopContext)
    return list(value) if lazy else value


class LimitedFormatter(Formatter):
    """str.format whose fields are sizes first; ``getattr`` and ``getitem`` are those of the environment."""

    def __init__(self, environment: Any) -> None:
        super().__init__()
        self._environment = environment
        self._size = 0.0

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        import _string  # type: ignore[import-not-found]  # as string.Formatter itself

        first, rest = _string.formatter_field_name_split(field_name)
        value = self.get_value(first, args, kwargs)
        for is_attribute, name in rest:
            look_up = self._environment.getattr if is_attribute else self._environment.getitem
            value = look_up(value, name)
        return value, first

    def convert_field(self, value: Any, conversion: Any) -> Any:
        current().fit(_ESCAPED * current().weight(value))
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> Any:
        meter = current()
        meter.step()
        widths = [
            int(digits) if len(digits) < 10 else _TOO_LARGE for digits in re.findall(r"\d+", format_spec)
        ]
        self._size += max(widths, default=0) + text_size(value)
        meter.fit(self._size)
        return super().format_field(value, format_spec)
