"""JSON out of model files: bounded in size and depth, without the things that parsers disagree about."""

from __future__ import annotations

import json
import mmap
from collections import Counter
from pathlib import Path
from typing import Any

from pyrt.errors import ModelFormatError
from pyrt.tensors import map_file, quoted

# The largest in the field, the index or header of a model of 10^12 parameters, has half of this. Values are
# counted too, because each takes up to a hundred bytes once parsed, but only two in the file.
MAX_JSON_BYTES = 1 << 25
MAX_JSON_VALUES = 1 << 20


def load(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object. ModelFormatError names the file and what is wrong with it."""
    buffer = map_file(path)
    check_size(len(buffer), str(path))
    return parse(buffer, str(path))


def check_size(nbytes: int, where: str) -> None:
    """Refuse a text that is too long to be parsed, before it is read."""
    if nbytes > MAX_JSON_BYTES:
        raise ModelFormatError(f"{where}: {nbytes} bytes of JSON are above the limit of {MAX_JSON_BYTES}")


def parse(raw: mmap.mmap | memoryview, where: str) -> dict[str, Any]:
    """One JSON object; ``where`` begins the message of the ModelFormatError."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise ModelFormatError(f"{where}: {quoted(twice)}: the name appears twice")
        return result

    try:
        text = str(raw, "utf-8")
        n_values = sum(map(text.count, ",[{"))
        if n_values > MAX_JSON_VALUES:
            reason = f"{n_values} values of JSON are above the limit of {MAX_JSON_VALUES}"
            raise ModelFormatError(f"{where}: {reason}")
        value = json.loads(text, object_pairs_hook=unique, parse_int=_int)
    except UnicodeDecodeError as error:
        raise ModelFormatError(f"{where}: is not UTF-8: {error}") from error
    except RecursionError as error:
        raise ModelFormatError(f"{where}: JSON is nested too deeply") from error
    except ValueError as error:  # a JSONDecodeError, or from _int
        raise ModelFormatError(f"{where}: is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelFormatError(f"{where}: must be a JSON object, not {type(value).__name__}")
    return value


def _int(digits: str) -> int:
    # Long numbers take quadratic time; but transformers writes int(1e30) for an unknown model_max_length.
    if len(digits) > 100:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)
