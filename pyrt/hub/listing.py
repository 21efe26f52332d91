"""What is on this machine: the models of the catalogue and of the Hugging Face cache, listed and removed."""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pyrt.errors import DownloadError, ModelNotFoundError, PyrtError
from pyrt.hub import hf_cache
from pyrt.hub.catalogue import CATALOGUE, CatalogueEntry
from pyrt.hub.picks import GgufModel, choose, gguf_models
from pyrt.hub.reference import HubRef, parse


@dataclass(frozen=True)
class Entry:
    """One model. ``name`` is what ``-m`` takes for exactly this one; ``path`` is None before it is fetched.

    ``size``: bytes on disk, or to come. ``modified``: seconds since 1970 of the newest file.
    """

    name: str
    source: str  # "catalogue" | "hub"
    kind: str  # "gguf" | "safetensors"
    size: int
    path: Path | None
    modified: float | None = None
    licence: str | None = None
    about: str | None = None
    files: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Removed:
    """What `remove` deleted; ``freed`` counts the bytes of files that are gone from the disk."""

    names: tuple[str, ...]
    freed: int


def list_models() -> list[Entry]:
    """The catalogue first, then all models of the Hugging Face cache by name. Opens no socket."""
    return [_catalogue_entry(entry) for entry in CATALOGUE] + sorted(_hub_entries(), key=lambda e: e.name)


def find(name: str | None) -> Entry:
    """The listed model that ``name`` means. Raises ModelNotFoundError with the nearest names."""
    target = parse(name)
    if isinstance(target, CatalogueEntry):
        return _catalogue_entry(target)
    if isinstance(target, Path):
        raise ModelNotFoundError(f"{target} is a path: it is used in place and belongs to no cache")
    found = hf_cache.lookup(target)
    for entry in _hub_entries():
        if entry.path == found:
            return entry
    raise _unknown(str(name))


def remove(name: str, everything: bool = False) -> Removed:
    """Delete one model from the caches, or with ``everything`` all that the cache holds of its repository.

    A file that another cached revision shares stays until that goes too. Raises ModelNotFoundError for a
    path (users' own files are not ours to delete), DownloadError where ``org/name`` means several models.
    """
    target = parse(name)
    if isinstance(target, Path):
        raise ModelNotFoundError(f"{target} is a path: pyrt removes from its caches only, delete it yourself")
    if isinstance(target, CatalogueEntry):
        if not target.path().exists():
            raise ModelNotFoundError(f"{target} is not in the cache")
        size = target.path().stat().st_size
        with _telling((target.name,), target.path().parent):
            target.path().unlink()
        return Removed((target.name,), size)
    held = [entry for entry in _hub_entries() if entry.name.split("@")[0].split(":")[0] == target.repo]
    if not held:
        raise _unknown(name)
    doomed = held if everything or (len(held) == 1 and not target.pick) else _named(target, held)
    return _remove(target.repo, doomed, all(entry in doomed for entry in held))


def _named(target: HubRef, held: list[Entry]) -> list[Entry]:
    path = hf_cache.lookup(target) if target.pick or target.revision else None
    doomed = [entry for entry in held if entry.path == path]
    if doomed:
        return doomed
    names = ", ".join(entry.name for entry in held)
    if target.pick or target.revision:
        raise ModelNotFoundError(f"{target} is not in the cache; of this repository it has {names}")
    raise DownloadError(f"the cache holds {len(held)} models of {target}: name one of {names}, or use --all")


def _remove(repo: str, doomed: list[Entry], whole: bool) -> Removed:
    folder = hf_cache.repo_folder(repo)
    store = hf_cache.hub_cache() / "blobs"  # newer huggingface_hub: large files shared by all repositories
    names = tuple(entry.name for entry in doomed)
    files = [path for entry in doomed for path in entry.files]
    before = _bytes_in(folder) + _bytes_in(store)
    with _telling(names, folder):
        if store.is_dir():
            _remove_shared(repo, None if whole else set(files))
        elif whole:
            shutil.rmtree(folder)
        else:
            for path in files:
                _remove_file(folder, path)
    return Removed(names, before - _bytes_in(folder) - _bytes_in(store))


@contextmanager
def _telling(names: tuple[str, ...], folder: Path) -> Iterator[None]:
    """An OSError as a PyrtError that says what was to be removed."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise PyrtError(f"cannot remove {', '.join(names)} from {folder}: {reason}") from error


def _remove_shared(repo: str, files: set[Path] | None) -> None:
    """Let huggingface_hub delete files (None: the whole repository): it knows who else uses its store."""
    from huggingface_hub import scan_cache_dir

    info = scan_cache_dir(hf_cache.hub_cache())
    ours = frozenset(found for found in info.repos if (found.repo_type, found.repo_id) == ("model", repo))
    revisions = [revision for found in ours for revision in found.revisions]
    if files is None:
        commits = [revision.commit_hash for revision in revisions]
        strategy = replace(info, repos=ours).delete_revisions(*commits)
    else:
        real = {Path(os.path.realpath(path.parent)) / path.name for path in files}
        doomed = [file for revision in revisions for file in revision.files if file.file_path in real]
        strategy = info.delete_files(*doomed)
    strategy.execute()


def _remove_file(folder: Path, path: Path) -> None:
    """Delete a file of a snapshot, and its blob unless another snapshot links to it."""
    if not path.is_symlink():
        path.unlink()
        return
    blob = Path(os.path.normpath(path.parent / os.readlink(path)))
    path.unlink()
    if blob.parent != Path(os.path.normpath(folder / "blobs")):
        return  # huggingface_hub did not make this link
    links = (link for link in (folder / "snapshots").rglob("*") if link.is_symlink())
    if not any(os.path.normpath(link.parent / os.readlink(link)) == str(blob) for link in links):
        blob.unlink()


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _catalogue_entry(entry: CatalogueEntry) -> Entry:
    path = entry.path() if entry.is_cached() else None
    return Entry(
        name=entry.name,
        source="catalogue",
        kind="gguf",
        size=entry.size,
        path=path,
        modified=path.stat().st_mtime if path else None,
        licence=entry.licence,
        about=entry.about,
        files=(path,) if path else (),
    )


def _hub_entries() -> Iterator[Entry]:
    root = hf_cache.hub_cache()
    for folder in sorted(root.glob("models--*--*")):
        repo = folder.name.removeprefix("models--").replace("--", "/", 1)
        for commit, revision in _revisions(folder):
            label = repo if revision == "main" else f"{repo}@{revision}"
            yield from _snapshot_entries(folder / "snapshots" / commit, label)


def _revisions(folder: Path) -> Iterator[tuple[str, str]]:
    """Each cached commit with the name that reaches it: "main", else a branch or tag, else the commit."""
    names: dict[str, list[str]] = {}
    for path in (folder / "refs").rglob("*"):
        if path.is_file():
            name = path.relative_to(folder / "refs").as_posix()
            names.setdefault(path.read_text(errors="replace").strip(), []).append(name)
    for path in sorted((folder / "snapshots").glob("*")):
        if path.is_dir():
            yield path.name, min(names.get(path.name, [path.name]), key=lambda name: (name != "main", name))


def _snapshot_entries(snapshot: Path, label: str) -> Iterator[Entry]:
    names = list(hf_cache.files(snapshot))
    models = [model for model in gguf_models(names) if model.complete]
    for model in models:
        yield _entry(f"{label}:{_short(model, models)}", "gguf", snapshot, model.parts, model.parts[0])
    if not models:
        try:
            choice = choose(names, None, label)
        except DownloadError:
            return  # not a model, or not all of it
        yield _entry(label, "safetensors", snapshot, choice.files, choice.entry)


def _short(model: GgufModel, models: list[GgufModel]) -> str:
    """The tag where it is unique in the snapshot, else the file."""
    alike = [other for other in models if other.tag == model.tag]
    return model.tag if model.tag and len(alike) == 1 else model.parts[0]


def _entry(name: str, kind: str, snapshot: Path, names: tuple[str, ...], entry: str) -> Entry:
    files = tuple(snapshot / name for name in names)
    stats = [path.stat() for path in files]
    return Entry(
        name=name,
        source="hub",
        kind=kind,
        size=sum(stat.st_size for stat in stats),
        path=snapshot / entry,
        modified=max(stat.st_mtime for stat in stats),
        files=files,
    )


def _unknown(name: str) -> ModelNotFoundError:
    near = difflib.get_close_matches(name, [entry.name for entry in list_models()], n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else "; `pyrt list` shows what is here"
    return ModelNotFoundError(f"{name} is not in the cache{hint}")
