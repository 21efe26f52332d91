"""The Hugging Face cache, read in place.

Without importing huggingface_hub, which would cost as much as loading a small model. Layout, by
https://huggingface.co/docs/huggingface_hub/guides/manage-cache: ``models--org--name/refs/<revision>`` holds a
commit, ``snapshots/<commit>/<file>`` links to ``blobs/<etag>``; a file is there whole or not at all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from pyrt.errors import DownloadError
from pyrt.hub.catalogue import xdg_cache_home
from pyrt.hub.picks import AmbiguousModelError, choose
from pyrt.hub.reference import HubRef

_COMMIT = re.compile(r"[0-9a-f]{40}")


def hub_cache() -> Path:
    """The folder that huggingface_hub would use, read from the environment at each call."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return _expanded(os.environ[variable])
    home = os.environ.get("HF_HOME")
    return (_expanded(home) if home else xdg_cache_home() / "huggingface") / "hub"


def repo_folder(repo: str) -> Path:
    return hub_cache() / ("models--" + repo.replace("/", "--"))


def snapshot(ref: HubRef) -> Path | None:
    """The folder of the cached commit that ``ref``'s revision names."""
    folder = repo_folder(ref.repo)
    commit = ref.revision or "main"
    if not _COMMIT.fullmatch(commit):
        try:
            commit = (folder / "refs" / commit).read_text().strip()
        except (OSError, UnicodeDecodeError):
            return None
    path = folder / "snapshots" / commit
    return path if _COMMIT.fullmatch(commit) and path.is_dir() else None


def files(folder: Path) -> Iterator[str]:
    """Paths of a snapshot's files relative to it, with "/" between; links to nowhere are left out."""
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            if os.path.exists(path):
                yield os.path.relpath(path, folder).replace(os.sep, "/")


def lookup(ref: HubRef) -> Path | None:
    """The model where the cache has all of it. Raises AmbiguousModelError where it has several that fit."""
    folder = snapshot(ref)
    if folder is None:
        return None
    try:
        return folder / choose(list(files(folder)), ref.pick, str(ref)).entry
    except AmbiguousModelError:
        raise
    except DownloadError:
        return None


def why_not(ref: HubRef) -> str:
    """What keeps `lookup` from finding ``ref``, as the start of a sentence."""
    folder = snapshot(ref)
    if folder is not None:
        try:
            choose(list(files(folder)), ref.pick, str(ref))
        except DownloadError as error:
            return f"what {hub_cache()} has is not enough: {error}"
    return f"{ref} is not in {hub_cache()}"


def _expanded(path: str) -> Path:
    return Path(os.path.expandvars(os.path.expanduser(path)))
