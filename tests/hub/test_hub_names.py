"""What names mean: paths, catalogue entries, hub ids; and which files of a repository they pick."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pyrt.errors import DownloadError, ModelFormatError, ModelNotFoundError
from pyrt.hub import DEFAULT, HubRef, parse, resolve
from pyrt.hub.picks import PREFERENCE, choose, gguf_models


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("org/name", HubRef("org/name")),
        ("org/name:Q4_K_M", HubRef("org/name", None, "Q4_K_M")),
        ("org/name:a.gguf", HubRef("org/name", None, "a.gguf")),
        ("org/name:dir/a-00001-of-00002.gguf", HubRef("org/name", None, "dir/a-00001-of-00002.gguf")),
        ("org/name@v1.0", HubRef("org/name", "v1.0")),
        ("org/name@refs/pr/1:Q8_0", HubRef("org/name", "refs/pr/1", "Q8_0")),
        ("org/name:Q8_0@dev", HubRef("org/name", "dev", "Q8_0")),
        ("https://huggingface.co/org/name", HubRef("org/name")),
        ("hf.co/org/name:Q4_0", HubRef("org/name", None, "Q4_0")),
    ],
)
def test_a_hub_id_is_taken_apart(text: str, ref: HubRef) -> None:
    assert parse(text) == ref


@pytest.mark.parametrize(
    "ref", [HubRef("a/b"), HubRef("a/b", "r"), HubRef("a/b", None, "t"), HubRef("a/b", "r", "t")]
)
def test_a_printed_hub_id_means_itself(ref: HubRef) -> None:
    assert parse(str(ref)) == ref


def test_names_of_the_catalogue_in_any_case() -> None:
    assert parse(None) is DEFAULT
    assert parse("smollm2-135m-instruct") is DEFAULT
    assert parse("SmolLM2") is DEFAULT


def test_what_exists_is_a_path_whatever_else_it_could_be(tmp_path: Path) -> None:
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "name").write_bytes(b"")
    assert parse("org/name") == Path("org/name")


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "a\0b", "nowhere", "nowhere.gguf", "dir/nowhere.gguf", "./a/b", "../a/b", "/a/b", "~/a/b"),
        *(
            "a/b/c",
            "a/b@x@y",
            "a/b@x:Q4_0@y",
            "a/b@../../x",
            "a/b:../x",
            "a/b:x/../../y",
            "a/b:/etc/x",
            "a/..",
            "../b",
        ),
    ],
)
def test_a_name_that_means_nothing_is_one_typed_error(text: str) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        parse(text)
    assert isinstance(caught.value, FileNotFoundError)
    assert "\n" not in str(caught.value)


def test_a_folder_or_part_stands_for_the_model_in_it(tmp_path: Path) -> None:
    names = ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    assert resolve(tmp_path) == tmp_path / names[0]
    assert resolve(str(tmp_path / names[1])) == tmp_path / names[0]
    (tmp_path / "b.gguf").write_bytes(b"x")
    assert resolve("b.gguf") == Path("b.gguf")
    with pytest.raises(ModelNotFoundError, match=r"a-00001-of-00002\.gguf, b\.gguf"):
        resolve(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert resolve(tmp_path) == tmp_path


@pytest.mark.parametrize("call", ["lstat", "stat", "listdir"])
def test_what_may_not_be_looked_at_is_not_called_missing(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder without the right to read it, one on the way to the model, and a link into one."""

    def refuse(path: object, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    (tmp_path / "folder").mkdir()
    with monkeypatch.context() as patched:  # pathlib and pytest need them too
        patched.setattr(os, call, refuse)
        with pytest.raises(ModelFormatError, match=r"folder: cannot be read: Permission denied$"):
            resolve(str(tmp_path / "folder"))


def test_an_empty_folder_and_a_dangling_link_are_typed_errors(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"neither config\.json nor"):
        resolve(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(ModelNotFoundError, match="nowhere"):
        resolve(tmp_path / "link")


GGUF_REPO = [
    "README.md",
    "m-Q2_K.gguf",
    "m-Q8_0.gguf",
    "m-Q4_0.gguf",
    "m-Q4_K_S.gguf",
    "mmproj-m-F16.gguf",
    "imatrix.gguf",
]


def test_the_documented_order_decides_without_a_tag() -> None:
    names = [f"m.{tag}.gguf" for tag in sorted(PREFERENCE)]
    for tag in PREFERENCE:
        assert choose(names, None, "r").entry == f"m.{tag}.gguf"
        names.remove(f"m.{tag}.gguf")


@pytest.mark.parametrize(
    ("pick", "file"),
    [
        (None, "m-Q4_0.gguf"),
        ("q8_0", "m-Q8_0.gguf"),
        ("Q2_K", "m-Q2_K.gguf"),
        ("m-Q4_K_S.gguf", "m-Q4_K_S.gguf"),
    ],
)
def test_a_tag_or_file_name_picks_one(pick: str | None, file: str) -> None:
    assert choose(GGUF_REPO, pick, "r").files == (file,)


@pytest.mark.parametrize("pick", ["Q4_K", "Q4_K_M", "F16", "x.gguf", "4_0", "m"])
def test_a_tag_that_no_file_has_lists_the_files(pick: str) -> None:
    if pick == "m":
        with pytest.raises(DownloadError, match="could be any of"):
            choose(GGUF_REPO, pick, "r")
        return
    with pytest.raises(DownloadError, match=r"no file matches .*m-Q2_K\.gguf"):
        choose(GGUF_REPO, pick, "r")


def test_two_files_of_one_tag_are_ambiguous() -> None:
    names = ["UD-Q4_K_M.gguf", "m-Q4_K_M.gguf"]
    for pick in (None, "Q4_K_M"):
        with pytest.raises(DownloadError, match="could be any of"):
            choose(names, pick, "r")
    assert choose(names, "UD-Q4_K_M", "r").files == ("UD-Q4_K_M.gguf",)


def test_all_parts_of_a_split_model_or_none() -> None:
    parts = [f"Q4_0/m-Q4_0-{i:05}-of-00003.gguf" for i in (1, 2, 3)]
    for pick in (None, "Q4_0", parts[0], parts[2], "Q4_0/m-Q4_0.gguf", "m-Q4_0-00002-of-00003.gguf"):
        assert choose(parts[::-1], pick, "r").files == tuple(parts)
    assert [model.complete for model in gguf_models(parts[:2])] == [False]
    with pytest.raises(DownloadError):
        choose(parts[:2], "Q4_0", "r")


SAFE = ["config.json", "tokenizer.json", "generation_config.json", "chat_template.jinja"]


def test_a_checkpoint_takes_its_safetensors_and_never_a_pickle() -> None:
    names = [
        *SAFE,
        "model.safetensors",
        "pytorch_model.bin",
        "x.pt",
        "consolidated.safetensors",
        "README.md",
        "run.py",
    ]
    assert choose(names, None, "r").files == tuple(sorted([*SAFE, "model.safetensors"]))
    assert choose(names, None, "r").entry == ""


def test_a_sharded_checkpoint_takes_all_shards() -> None:
    shards = [f"model-{i:05}-of-00002.safetensors" for i in (1, 2)]
    index = "model.safetensors.index.json"
    assert set(choose([*SAFE, *shards, index], None, "r").files) == {*SAFE, *shards, index}
    with pytest.raises(DownloadError, match="lacks model-00001-of-00002"):
        choose([*SAFE, shards[1], index], None, "r")


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_an_incomplete_checkpoint_names_what_it_lacks(missing: str) -> None:
    names = [name for name in [*SAFE, "model.safetensors", "pytorch_model.bin"] if name != missing]
    with pytest.raises(DownloadError, match=f"lacks {missing}"):
        choose(names, None, "r")
