"""Chat: messages to the text that a model's template makes of them, as transformers renders it."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2

from pyrt.errors import TemplateError
from pyrt.template.meter import Meter, metering
from pyrt.template.sandbox import Environment

_MAX_DEPTH = 32
_MAX_SHOWN = 1000  # characters of an error that comes from a template
_MAX_DATE_FORMAT = 256

# How templates read a part of a message's content. The others expect a string.
_READS_PARTS = re.compile(r"""\.text\b|\[\s*['"]text['"]\s*\]|\.get\(\s*['"]text['"]""")


def render(template: str, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> str:
    """The text that a chat template makes of messages and of other variables, like ``add_generation_prompt``.

    A message is a mapping with a ``role`` and a ``content`` that is a string or a list of text parts; these
    are joined with newlines for a template that does not read parts. As in transformers (5.24), the template
    sees plain data only, and no keys of a message that are None.

    Raises TypeError or ValueError for messages or variables that are none, TemplateError if the template is
    broken, breaks a limit or refuses them.
    """
    checked = _messages(messages, parts=_READS_PARTS.search(template) is not None)
    inputs = {name: _plain(value, name) for name, value in variables.items()}
    inputs["messages"] = checked
    # transformers always passes these.
    inputs = {"tools": None, "documents": None, **inputs}
    try:
        with metering(Meter(inputs)) as meter:
            pieces, length = [], 0
            for piece in _compiled(template).generate(inputs):
                pieces.append(piece)
                length += len(piece)
                meter.fit(length)
            return "".join(pieces)
    except TemplateError:
        raise
    except _Refusal as refusal:
        raise TemplateError(_shortened(str(refusal))) from None
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(_shortened(f"the chat template, line {error.lineno}: {error.message}")) from error
    except RecursionError:
        raise TemplateError("the chat template is nested too deeply") from None
    except Exception as error:  # anything: templates call, compare and compute what they like
        raise TemplateError(
            _shortened(f"the chat template fails: {error or type(error).__name__}")
        ) from error


class _Refusal(jinja2.TemplateError):
    """What a template says by raise_exception."""


def _raise_exception(message: Any) -> None:
    raise _Refusal(str(message))


def _strftime_now(format: str) -> str:  # templates may name the parameter
    if len(format) > _MAX_DATE_FORMAT:
        raise TemplateError(f"the chat template has a date format of more than {_MAX_DATE_FORMAT} characters")
    return datetime.now().strftime(format)


def _tojson(
    x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@functools.cache
def _environment() -> Environment:
    return Environment(tojson=_tojson, raise_exception=_raise_exception, strftime_now=_strftime_now)


@functools.lru_cache(maxsize=16)
def _compiled(template: str) -> jinja2.Template:
    return _environment().template(template)


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


def _messages(messages: Any, *, parts: bool) -> list[dict[str, Any]]:
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise TypeError(f"messages must be a list of mappings, not {type(messages).__name__}")
    if not messages:
        raise ValueError("messages is empty")
    return [_message(message, f"messages[{i}]", parts=parts) for i, message in enumerate(messages)]


def _message(message: Any, where: str, *, parts: bool) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise TypeError(f"{where} must be a mapping with role and content, not {type(message).__name__}")
    plain: dict[str, Any] = {key: value for key, value in _plain(message, where).items() if value is not None}
    if not isinstance(plain.get("role"), str):
        raise ValueError(f"{where}: role must be a string, like 'user'")
    content = plain.get("content")
    if isinstance(content, list):
        texts = [_text_of(part, f"{where}: content[{i}]") for i, part in enumerate(content)]
        if not parts:
            plain["content"] = "\n".join(texts)
    elif content is None and "tool_calls" not in plain:
        raise ValueError(f"{where}: content is missing")
    elif content is not None and not isinstance(content, str):
        raise TypeError(
            f"{where}: content must be a string or a list of text parts, not {type(content).__name__}"
        )
    return plain


def _text_of(part: Any, where: str) -> str:
    if not isinstance(part, dict):
        raise TypeError(f"{where} must be a mapping, not {type(part).__name__}")
    if part.get("type") != "text" or not isinstance(part.get("text"), str):
        raise ValueError(f"{where} must be {{'type': 'text', 'text': ...}}; pyrt reads text only")
    text: str = part["text"]
    return text


def _plain(value: Any, where: str, depth: int = 0) -> Any:
    """A copy out of JSON's types, so that a template finds no methods and no objects of the caller."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    if depth > _MAX_DEPTH:
        raise ValueError(f"{where}: is nested more than {_MAX_DEPTH} deep")
    if isinstance(value, Mapping):
        return {_plain(key, where, depth + 1): _plain(item, where, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, where, depth + 1) for item in value]
    raise TypeError(f"{where}: templates take text, numbers, lists and mappings, not {type(value).__name__}")
