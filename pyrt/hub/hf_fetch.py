"""Fetching with huggingface_hub into its own cache, checked against the hashes that the hub gives."""

from __future__ import annotations

import errno
import glob
import os
import re
from pathlib import Path
from typing import Any

from pyrt.errors import DownloadError, PyrtError
from pyrt.hub.digest import sha256
from pyrt.hub.hf_cache import hub_cache
from pyrt.hub.picks import choose
from pyrt.hub.reference import HubRef, Progress

_SHA256 = re.compile(r"[0-9a-f]{64}")


def fetch(ref: HubRef, on_progress: Progress | None = None) -> Path:
    """Bring ``ref`` up to date in the Hugging Face cache; the path of its GGUF file or snapshot folder.

    huggingface_hub keeps its own rules: HF_ENDPOINT, HF_TOKEN and the proxies of the environment, and a file
    enters the cache by an atomic rename. Raises DownloadError.
    """
    try:
        from huggingface_hub import HfApi, snapshot_download
    except ImportError as error:
        raise DownloadError(f"{ref}: fetching it needs the package huggingface_hub ({error})") from error
    endpoint = os.environ.get("HF_ENDPOINT") or None
    try:
        info = HfApi(endpoint=endpoint).model_info(ref.repo, revision=ref.revision)
        choice = choose([file.rfilename for file in info.siblings or ()], ref.pick, str(ref))
        folder = Path(
            snapshot_download(
                ref.repo,
                revision=ref.revision,
                cache_dir=hub_cache(),
                endpoint=endpoint,
                allow_patterns=[glob.escape(name) for name in choice.files],
                tqdm_class=_bar(on_progress),
            )
        )
        for name in choice.files:
            _check(folder / name, str(ref), on_progress)
    except PyrtError:
        raise
    except Exception as error:  # which errors differs by version and transport
        raise DownloadError(f"{ref}: {_reason(error)}") from error
    return folder / choice.entry


def _check(path: Path, label: str, on_progress: Progress | None) -> None:
    """Throw a damaged file away: a large one's blob is named by its SHA-256 (a small one's by its git id)."""
    if not path.exists():
        raise DownloadError(f"{label}: {path.name} did not arrive; try again")
    if not path.is_symlink():
        return
    # One step along the link, not all: in a shared store the blob is itself a link, to another kind of name.
    blob = path.parent / os.readlink(path)
    if _SHA256.fullmatch(blob.name) and sha256(path, on_progress) != blob.name:
        path.unlink()
        blob.unlink(missing_ok=True)
        raise DownloadError(f"{label}: {path.name} arrived damaged (wrong SHA-256) and is deleted; try again")


def _reason(error: Exception) -> str:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return "the repository is gated: accept its licence on its page and set HF_TOKEN"
    if isinstance(error, errors.RevisionNotFoundError):
        return "the repository has no such revision"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "the hub has no such repository, or it is private and HF_TOKEN is not set"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"no space left in {hub_cache()}"
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"the download failed ({type(error).__name__}: {text})"


def _bar(on_progress: Progress | None) -> type[Any]:
    """A stand-in for tqdm's class that prints nothing and passes counts of bytes on."""

    class Bar:
        def __init__(self, iterable: Any = None, **kwargs: Any) -> None:
            self.iterable = iterable
            self.total = kwargs.get("total") or 0
            self.n = kwargs.get("initial") or 0
            self.desc = kwargs.get("desc") or ""
            # snapshot_download opens three: files done, bytes over the wire, bytes on disk. The last counts.
            self.reports = kwargs.get("unit") == "B" and not self.desc.startswith("Downloading")

        def update(self, n: float | None = 1) -> None:
            self.n += int(n or 0)
            if self.reports and on_progress is not None:
                on_progress("download", self.n, int(self.total or 0))

        def __iter__(self) -> Any:
            return iter(self.iterable)

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def _nothing(self, *_: object, **__: object) -> None:
            pass

        close = refresh = clear = display = reset = set_description = set_description_str = _nothing
        set_postfix = set_postfix_str = _nothing

    return Bar
