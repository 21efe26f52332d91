"""Listing and removing: exact names, exact bytes, nothing of anybody else."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from pyrt.errors import DownloadError, ModelNotFoundError, PyrtError
from pyrt.hub import DEFAULT, HubRef, resolve
from pyrt.hub.hf_cache import lookup
from pyrt.hub.listing import find, list_models, remove

A, B = "a" * 40, "b" * 40


def store(
    caches: Path, repo: str, commit: str, files: dict[str, bytes], refs: tuple[str, ...] = ("main",)
) -> Path:
    """Files in the cache as huggingface_hub lays them out."""
    folder = caches / "hf" / "hub" / f"models--{repo.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    (folder / "blobs").mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        blob = folder / "blobs" / hashlib.sha256(data).hexdigest()
        blob.write_bytes(data)
        link = snapshot / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path("../" * (1 + len(Path(name).parts))) / "blobs" / blob.name)
    for ref in refs:
        path = folder / "refs" / ref
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(commit)
    return snapshot


FOLDER = {"config.json": b"{}", "tokenizer.json": b"{ }", "model.safetensors": b"w" * 500}


@pytest.fixture(autouse=True)
def _models(caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(caches)
    store(caches, "org/gguf", A, {"m-Q4_0.gguf": b"4" * 100, "m-Q8_0.gguf": b"8" * 200})
    store(caches, "org/gguf", B, {"m-Q4_0.gguf": b"4" * 100, "m-Q8_0.gguf": b"9" * 300}, ("v2", "refs/pr/1"))
    store(caches, "org/folder", A, FOLDER)
    store(caches, "org/split", A, {f"s-Q4_0-0000{i}-of-00002.gguf": b"%d" % i * 50 for i in (1, 2)}, ())
    store(caches, "org/half", A, {"h-Q4_0-00001-of-00002.gguf": b"x"})
    store(caches, "org/twins", A, {"a-Q4_0.gguf": b"a", "b-Q4_0.gguf": b"b"})
    store(caches, "org/data", A, {"train.parquet": b"x"})


NAMES = {
    "org/gguf:Q4_0": 100,
    "org/gguf:Q8_0": 200,
    "org/gguf@refs/pr/1:Q4_0": 100,
    "org/gguf@refs/pr/1:Q8_0": 300,
    "org/folder": 505,
    f"org/split@{A}:Q4_0": 100,
    "org/twins:a-Q4_0.gguf": 1,
    "org/twins:b-Q4_0.gguf": 1,
}


def test_all_models_are_listed_and_each_name_means_its_model(no_sockets: None) -> None:
    catalogue, *cached = list_models()
    assert (catalogue.name, catalogue.path, catalogue.size) == (DEFAULT.name, None, DEFAULT.size)
    assert {entry.name: entry.size for entry in cached} == NAMES
    for entry in cached:
        assert resolve(entry.name, offline=True) == entry.path
        assert find(entry.name) == entry


def test_an_empty_machine_lists_the_catalogue(caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(caches / "nothing"))
    assert [entry.name for entry in list_models()] == [DEFAULT.name]


def sizes(caches: Path) -> int:
    return sum(
        path.stat().st_size for path in (caches / "hf").rglob("*") if path.is_file() and not path.is_symlink()
    )


@pytest.mark.parametrize(
    ("name", "freed"),
    [
        ("org/gguf:Q8_0", 200),
        ("org/gguf:Q4_0", 0),  # another revision still links to these bytes
        ("org/gguf@v2:Q8_0", 300),
        ("org/twins:a-Q4_0.gguf", 1),
    ],
)
def test_one_model_goes_and_its_neighbours_stay(name: str, freed: int, caches: Path) -> None:
    before = sizes(caches)
    gone = find(name).name
    removed = remove(name)
    assert (removed.names, removed.freed) == ((gone,), freed)
    assert before - sizes(caches) == freed
    expected = set(NAMES) - {gone}
    if "twins" in gone:  # the one that is left has its tag for itself
        expected = expected - {"org/twins:b-Q4_0.gguf"} | {"org/twins:Q4_0"}
    left = list_models()[1:]
    assert {entry.name for entry in left} == expected
    assert all(entry.path and entry.path.exists() for entry in left)


def test_a_cache_that_cannot_be_written_is_one_typed_error(
    caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    DEFAULT.path().parent.mkdir(parents=True, exist_ok=True)
    DEFAULT.path().touch()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse)
        patched.setattr("shutil.rmtree", refuse)
        for name in (DEFAULT.name, "org/folder"):
            with pytest.raises(PyrtError, match=rf"cannot remove {name}.* from .*: Permission denied$"):
                remove(name)


def test_shared_bytes_go_with_their_last_name(caches: Path) -> None:
    assert remove("org/gguf:Q4_0").freed == 0
    assert remove("org/gguf@v2:Q4_0").freed == 100


@pytest.mark.parametrize("name", ["org/folder", f"org/split@{A}:Q4_0", f"org/split@{A}"])
def test_the_last_model_takes_its_repository_along(name: str, caches: Path) -> None:
    before = sizes(caches)
    removed = remove(name)
    assert removed.freed == before - sizes(caches) > 0
    assert not (caches / "hf" / "hub" / f"models--{name.split('@')[0].replace('/', '--')}").exists()


def test_a_bare_name_of_several_is_refused_but_for_all(caches: Path) -> None:
    with pytest.raises(DownloadError, match=r"holds 4 models of org/gguf.*--all"):
        remove("org/gguf")
    removed = remove("org/gguf", everything=True)
    assert len(removed.names) == 4
    assert removed.freed >= 600
    assert lookup(HubRef("org/gguf")) is None


@pytest.mark.parametrize("name", ["org/gguf:Q5_0", "org/nowhere", "org/half", "smollm2", "org/fodler"])
def test_what_is_not_there_cannot_be_removed(name: str, caches: Path) -> None:
    before = sizes(caches)
    with pytest.raises(ModelNotFoundError):
        remove(name)
    assert sizes(caches) == before


def test_the_nearest_name_is_offered() -> None:
    with pytest.raises(ModelNotFoundError, match="did you mean org/folder"):
        find("org/fodler")


def test_a_path_is_never_removed(caches: Path) -> None:
    mine = caches / "mine.gguf"
    mine.write_bytes(b"x")
    for name in (str(mine), "mine.gguf"):
        with pytest.raises(ModelNotFoundError, match="delete it yourself"):
            remove(name)
    assert mine.exists()


def test_a_link_that_leads_elsewhere_is_not_followed(caches: Path) -> None:
    mine = caches / "mine.bin"
    mine.write_bytes(b"precious")
    (caches / "hf/hub/models--org--gguf/snapshots" / A / "x-Q5_0.gguf").symlink_to(mine)
    assert remove("org/gguf:Q5_0").freed == 0
    assert mine.exists()


def test_the_catalogue_model_goes_with_its_size(caches: Path) -> None:
    path = DEFAULT.path()
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * 77)
    assert remove("smollm2").freed == 77
    assert not path.exists()


@pytest.mark.parametrize("name", ["org/gguf:Q8_0", "org/folder"])
def test_bytes_in_the_store_of_newer_libraries_are_freed_too(name: str, caches: Path) -> None:
    library = pytest.importorskip("huggingface_hub.utils._shared_blobs")
    root = caches / "hf" / "hub"
    path = find(name).files[-1]
    blob = Path(path.parent / path.readlink())
    size = blob.stat().st_size
    published = library.publish_blob_to_shared_store(
        blob_path=str(Path(blob.parent.resolve()) / blob.name),
        xet_hash="c" * 64,
        cache_dir=root,
        expected_size=size,
    )
    assert published
    assert blob.is_symlink()
    before = sizes(caches)
    removed = remove(name)
    assert not (root / "blobs" / "cc" / ("c" * 64)).exists()
    assert removed.freed >= size
    assert sizes(caches) < before


def test_huggingface_hub_agrees_with_what_is_left(caches: Path) -> None:
    library = pytest.importorskip("huggingface_hub")
    remove("org/gguf:Q8_0")
    info = library.scan_cache_dir(caches / "hf" / "hub")
    files = {
        file.file_name
        for repo in info.repos
        if repo.repo_id == "org/gguf"
        for rev in repo.revisions
        for file in rev.files
    }
    assert not info.warnings
    assert files == {"m-Q4_0.gguf", "m-Q8_0.gguf"}
