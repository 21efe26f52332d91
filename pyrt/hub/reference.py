"""What a model's name means: a path, a catalogue entry or a hub id."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pyrt.errors import ModelFormatError, ModelNotFoundError
from pyrt.hub import catalogue
from pyrt.hub.catalogue import CATALOGUE, DEFAULT, CatalogueEntry

Progress = Callable[[str, int, int], None]
"""``on_progress(stage, done, total)``: bytes done of total in a stage; total 0 where it is not known."""

# An id as huggingface_hub's own validator has it: word characters, "-" and ".", at most 96 of them each.
_HUB_ID = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})"
    r"(?:@(?P<before>[\w./-]+))?(?::(?P<pick>[\w./ +()\[\]-]+))?(?:@(?P<after>[\w./-]+))?",
    re.ASCII,
)
_HUB_PREFIXES = ("https://huggingface.co/", "http://huggingface.co/", "huggingface.co/", "hf.co/", "hf://")


class HubRef(NamedTuple):
    """A repository, its branch, tag or commit (None: main), a quantization or file (None: by preference)."""

    repo: str
    revision: str | None = None
    pick: str | None = None

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"{self.repo}{revision}:{self.pick}" if self.pick else f"{self.repo}{revision}"


def parse(model: str | os.PathLike[str] | None) -> Path | CatalogueEntry | HubRef:
    """Tell paths, catalogue names and hub ids apart; what is on the disk is a path. Or ModelNotFoundError."""
    if model is None:
        return DEFAULT
    if not isinstance(model, str):
        return _existing(Path(model))
    if not model.strip() or "\0" in model:
        raise ModelNotFoundError(f"{model!r} cannot be the name of a model")
    path = Path(model).expanduser()
    if os.path.lexists(path):
        return path
    entry = catalogue.find(model)
    if entry is not None:
        return entry
    name = model
    for prefix in _HUB_PREFIXES:
        name = name.removeprefix(prefix)
    match = None if model[0] in "./~" else _HUB_ID.fullmatch(name)
    if match is None or match["repo"].lower().endswith((".gguf", ".safetensors", ".json")):
        return _existing(path)
    return _hub_ref(model, match)


def _hub_ref(model: str, match: re.Match[str]) -> HubRef:
    revisions = [text for text in (match["before"], match["after"]) if text]
    pick = match["pick"]
    if len(revisions) > 1:
        raise ModelNotFoundError(f"{model}: two revisions in one name")
    for text in (*revisions, *((pick,) if pick else ())):
        # Both become parts of paths in the cache.
        if ".." in text.split("/") or text.startswith("/") or text.endswith("/"):
            raise ModelNotFoundError(f"{model}: {text!r} is no name inside a repository")
    return HubRef(match["repo"], revisions[0] if revisions else None, pick)


def _existing(path: Path) -> Path:
    try:
        os.lstat(path)
    except PermissionError as error:  # of a folder on the way: nobody knows whether it exists
        raise ModelFormatError(f"{path}: cannot be read: {error.strerror}") from error
    except (OSError, ValueError):
        pass
    else:
        return path
    hint = ""
    if len(path.parts) == 1 and not path.suffix:
        names = ", ".join(entry.name for entry in CATALOGUE)
        hint = f"; known by name: {names}; hub ids look like org/name:Q4_K_M"
    raise ModelNotFoundError(f"{path}: no such file or folder{hint}")
