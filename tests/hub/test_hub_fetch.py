"""The Hugging Face way, against a stand-in hub: cache first, what is fetched, and what can go wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from standin import Server

from pyrt import hub
from pyrt.errors import DownloadError

pytest.importorskip("huggingface_hub")

GGUF = {
    "README.md": b"hi",
    "m-Q4_0.gguf": b"four" * 1000,
    "m-Q8_0.gguf": b"eight" * 1000,
    "mmproj-F16.gguf": b"p",
}
SPLIT = {f"m-Q4_0-0000{i}-of-00002.gguf": b"%d" % i * 2000 for i in (1, 2)}
FOLDER = {
    "config.json": json.dumps({"model_type": "llama"}).encode(),
    "generation_config.json": b"{}",
    "tokenizer.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
    "model-00001-of-00002.safetensors": b"one" * 3000,
    "model-00002-of-00002.safetensors": b"two" * 3000,
    "model.safetensors.index.json": b"{}",
    "pytorch_model.bin": b"pickle",
    "modeling_x.py": b"import os",
}


@pytest.fixture(autouse=True)
def _repos(server: Server, caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(caches)
    server.repos |= {"org/gguf": dict(GGUF), "org/split": dict(SPLIT), "org/folder": dict(FOLDER)}


def snapshot(repo: str, server: Server, caches: Path) -> Path:
    return caches / "hf" / "hub" / f"models--{repo.replace('/', '--')}" / "snapshots" / server.commit(repo)


def test_a_tag_fetches_its_file_only_into_the_usual_cache(server: Server, caches: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    path = hub.resolve("org/gguf:Q8_0", on_progress=lambda *args: seen.append(args))
    assert path == snapshot("org/gguf", server, caches) / "m-Q8_0.gguf"
    assert path.read_bytes() == GGUF["m-Q8_0.gguf"]
    assert set(server.got) == {"m-Q8_0.gguf"}
    assert ("download", 5000, 5000) in seen
    assert ("verify", 5000, 5000) in seen


def test_without_a_tag_the_preferred_one(server: Server) -> None:
    assert hub.resolve("org/gguf").name == "m-Q4_0.gguf"


def test_a_file_name_with_brackets_is_no_pattern(server: Server) -> None:
    server.repos["org/gguf"] = {"m[1]-Q4_0.gguf": b"a", "m1-Q4_0.gguf": b"b"}
    assert hub.resolve("org/gguf:m[1]-Q4_0.gguf").read_bytes() == b"a"
    assert set(server.got) == {"m[1]-Q4_0.gguf"}


def test_a_split_model_comes_whole_and_its_first_part_is_the_path(server: Server) -> None:
    path = hub.resolve("org/split")
    assert path.name == "m-Q4_0-00001-of-00002.gguf"
    assert sorted(file.name for file in path.parent.iterdir()) == sorted(SPLIT)


def test_a_checkpoint_comes_without_pickles_and_code(server: Server, caches: Path) -> None:
    path = hub.resolve("org/folder")
    assert path == snapshot("org/folder", server, caches)
    assert {file.name for file in path.iterdir()} == set(FOLDER) - {"pytorch_model.bin", "modeling_x.py"}


@pytest.mark.parametrize("name", ["org/gguf", "org/gguf:Q4_0", "org/split", "org/folder", "org/folder@main"])
def test_what_is_cached_is_used_without_a_socket(
    name: str, server: Server, request: pytest.FixtureRequest
) -> None:
    path = hub.resolve(name)
    before = dict(server.got)
    request.getfixturevalue("no_sockets")
    assert hub.resolve(name) == path
    assert hub.resolve(name, offline=True) == path
    assert server.got == before


def test_a_cached_file_wins_over_the_preference_until_a_pull(server: Server) -> None:
    hub.resolve("org/gguf:Q8_0")
    assert hub.resolve("org/gguf").name == "m-Q8_0.gguf"
    assert hub.pull("org/gguf").name == "m-Q4_0.gguf"
    assert hub.resolve("org/gguf").name == "m-Q4_0.gguf"


@pytest.mark.parametrize("name", ["org/gguf", "org/gguf:Q8_0", "org/folder"])
def test_offline_without_the_model_opens_no_socket(name: str, no_sockets: None) -> None:
    with pytest.raises(DownloadError, match=r"not in .*offline"):
        hub.resolve(name, offline=True)


def test_offline_with_a_part_of_the_model_says_what_lacks(server: Server, caches: Path) -> None:
    path = hub.resolve("org/folder")
    (path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(DownloadError, match="lacks model-00002-of-00002"):
        hub.resolve("org/folder", offline=True)
    assert hub.resolve("org/folder") == path
    assert (path / "model-00002-of-00002.safetensors").read_bytes() == FOLDER[
        "model-00002-of-00002.safetensors"
    ]


def test_pull_brings_a_new_commit_and_a_revision_keeps_the_old(server: Server, caches: Path) -> None:
    old = hub.resolve("org/gguf")
    first = server.commit("org/gguf")
    server.repos["org/gguf"]["m-Q4_0.gguf"] = b"new" * 1000
    assert hub.resolve("org/gguf") == old
    new = hub.pull("org/gguf")
    assert new.read_bytes() == b"new" * 1000
    assert hub.resolve("org/gguf") == new
    assert hub.resolve(f"org/gguf@{first}", offline=True) == old


def test_a_branch_is_cached_under_its_name(server: Server) -> None:
    server.branches["org/gguf"] = {"dev"}
    path = hub.resolve("org/gguf@dev:Q8_0")
    assert hub.resolve("org/gguf:Q8_0@dev", offline=True) == path
    with pytest.raises(DownloadError, match="offline"):
        hub.resolve("org/gguf:Q8_0", offline=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("org/nowhere", "no such repository.*HF_TOKEN"),
        ("org/gguf@nowhere", "no such revision"),
        ("org/gguf:Q3_K_M", r"no file matches 'Q3_K_M'; there are m-Q4_0\.gguf, m-Q8_0\.gguf"),
        ("org/folder:Q4_0", "has no GGUF file"),
    ],
)
def test_what_the_hub_lacks_is_one_line(name: str, message: str, caches: Path) -> None:
    with pytest.raises(DownloadError, match=message) as caught:
        hub.resolve(name)
    assert "\n" not in str(caught.value)
    assert not list(caches.rglob("*.incomplete"))


def test_a_private_repository_needs_the_token(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.private["org/gguf"] = "hf_secret"
    with pytest.raises(DownloadError, match="HF_TOKEN") as caught:
        hub.resolve("org/gguf")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(DownloadError) as caught:
        hub.resolve("org/gguf")
    assert "hf_wrong" not in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert hub.resolve("org/gguf").is_file()


def test_a_gated_repository_says_so(server: Server) -> None:
    server.gated.add("org/gguf")
    with pytest.raises(DownloadError, match="gated"):
        hub.resolve("org/gguf")


def test_no_hub_at_all_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DownloadError, match="the download failed") as caught:
        hub.resolve("org/gguf")
    assert "\n" not in str(caught.value)


def broken(server: Server, how: str) -> None:
    if how == "cut":
        server.faults.cut["m-Q4_0.gguf"] = 0
    elif how == "error":
        server.faults.status["m-Q4_0.gguf"] = 500
    else:
        server.faults.flip.add("m-Q4_0.gguf")


@pytest.mark.parametrize(
    ("how", "message"), [("cut", "failed"), ("error", "failed"), ("flip", "wrong SHA-256")]
)
def test_a_broken_download_is_one_error_leaves_nothing_and_a_retry_works(
    server: Server, caches: Path, monkeypatch: pytest.MonkeyPatch, how: str, message: str
) -> None:
    from huggingface_hub import file_download

    monkeypatch.setattr(file_download.time, "sleep", lambda _: None)
    broken(server, how)
    with pytest.raises(DownloadError, match=message) as caught:
        hub.resolve("org/gguf")
    assert "\n" not in str(caught.value)
    assert not [path for path in (caches / "hf").rglob("*") if path.is_file() and path.stat().st_size > 1000]
    with pytest.raises(DownloadError):
        hub.resolve("org/gguf", offline=True)
    server.faults.cut.clear()
    server.faults.status.clear()
    server.faults.flip.clear()
    assert hub.resolve("org/gguf").read_bytes() == GGUF["m-Q4_0.gguf"]


def test_the_cache_is_where_the_environment_says(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    assert hub.resolve("org/gguf").is_relative_to(tmp_path / "elsewhere" / "models--org--gguf")
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert hub.resolve("org/gguf").is_relative_to(tmp_path / "xdg" / "huggingface" / "hub")


def test_a_cached_model_is_found_without_importing_the_library(server: Server) -> None:
    path = hub.resolve("org/gguf")
    code = "import sys; from pyrt.hub import resolve; print(resolve('org/gguf')); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    found, modules = done.stdout.splitlines()
    assert found == str(path)
    assert not {"huggingface_hub", "ssl", "socket", "hashlib", "subprocess", "numpy"} & set(modules.split())
