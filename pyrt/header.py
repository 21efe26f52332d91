"""The header of a model file as typed, bounded fields; errors name file, key and reason."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyrt.errors import ModelFormatError, UnsupportedModelError


class Header(NamedTuple):
    """Keys and values of config.json or of a GGUF file. A JSON null counts as absent.

    ``where`` begins every message; ``prefix`` stands before every key in the file. A getter without a default
    raises ModelFormatError if the key is absent, and every getter if the value is not of its kind.
    """

    where: str
    values: Mapping[str, Any]
    prefix: str = ""

    def get(self, key: str) -> Any:
        """The raw value, or None."""
        return self.values.get(self.prefix + key)

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        value = self._given(key, default)
        if type(value) is not int or not low <= value <= high:
            raise self.error(key, f"must be an integer from {low} to {high}, not {_short(value)}")
        return value

    def number(self, key: str, high: float, default: float | None = None) -> float:
        """A finite number above 0 and at most ``high``."""
        value = self._given(key, default)
        # Not math.isfinite before the comparison: an integer of a thousand digits does not fit into a float.
        if type(value) not in (int, float) or not 0 < value <= high or not math.isfinite(value):
            raise self.error(key, f"must be a number above 0 and at most {high:g}, not {_short(value)}")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        value = self._given(key, default)
        if type(value) is not bool:
            raise self.error(key, f"must be true or false, not {_short(value)}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._given(key, default)
        if not isinstance(value, str):
            raise self.error(key, f"must be a string, not {_short(value)}")
        return value

    def section(self, key: str) -> Header:
        """A JSON object in the JSON object, empty if absent."""
        value = self.get(key)
        if not isinstance(value, Mapping | None):
            raise self.error(key, f"must be an object, not {_short(value)}")
        return Header(f"{self.where}: {self.prefix}{key}", value or {})

    def error(self, key: str, reason: str) -> ModelFormatError:
        return ModelFormatError(f"{self.where}: {self.prefix}{key}: {reason}")

    def unsupported(self, key: str, reason: str) -> UnsupportedModelError:
        return UnsupportedModelError(f"{self.where}: {self.prefix}{key}: {reason}")

    def refuse_others(self, key: str, only: Any) -> None:
        """UnsupportedModelError unless the key is absent or has this value."""
        value = self.get(key)
        if value is not None and not _same(value, only):
            raise self.unsupported(key, f"{_short(value)} is not supported, only {only}")

    def _given(self, key: str, default: Any) -> Any:
        value = self.get(key)
        value = default if value is None else value
        if value is None:
            raise self.error(key, "is missing")
        return value


def _same(value: Any, only: Any) -> bool:
    return isinstance(value, bool | int | float) and value == only


def _short(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
