"""`pyrt list | show | rm | pull`, `doctor` and `version`: tables, JSON, exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import pyrt
from pyrt.cli import main
from pyrt.hub import DEFAULT

Out = pytest.CaptureFixture[str]
COMMIT = "a" * 40


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    """The default model's place in the cache, with something of its size, and one model from the hub."""
    path = DEFAULT.path()
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(DEFAULT.size)
    folder = tmp_path / "hf" / "hub" / "models--org--gguf"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    (folder / "snapshots" / COMMIT).mkdir(parents=True)
    (folder / "snapshots" / COMMIT / "m-Q4_0.gguf").write_bytes(b"x" * 2500)
    return path


def test_list_is_a_plain_table_in_a_pipe(cached: Path, capsys: Out) -> None:
    assert main(["list"]) == 0
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAME", "KIND", "SIZE", "MODIFIED", "PATH"]
    assert first.split()[:4] == [DEFAULT.name, "gguf", "98.4", "MB"]
    assert first.endswith(str(cached))
    assert second.split()[:4] == ["org/gguf:Q4_0", "gguf", "2.5", "KB"]


def test_list_names_what_could_be_fetched(capsys: Out) -> None:
    assert main(["list"]) == 0
    assert "not fetched yet" in capsys.readouterr().out


def test_list_as_json(cached: Path, capsys: Out) -> None:
    assert main(["list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in found] == [DEFAULT.name, "org/gguf:Q4_0"]
    assert found[0]["path"] == str(cached)
    assert found[1]["size"] == 2500


def test_show_of_what_is_not_there_yet(capsys: Out) -> None:
    assert main(["show"]) == 0
    out = capsys.readouterr().out
    assert DEFAULT.name in out
    assert "pyrt pull" in out
    assert main(["show", "org/nowhere"]) == 1


def test_rm_tells_what_it_freed(cached: Path, capsys: Out) -> None:
    assert main(["rm", "org/gguf:Q4_0", "smollm2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "removed org/gguf:Q4_0: 2.5 KB freed",
        f"removed {DEFAULT.name}: 98.4 MB freed",
    ]
    assert not cached.exists()


def test_rm_goes_on_after_an_unknown_name(cached: Path, capsys: Out) -> None:
    assert main(["rm", "org/nowhere", "smollm2"]) == 1
    out, err = capsys.readouterr()
    assert "98.4 MB freed" in out
    assert err.startswith("pyrt: error: org/nowhere is not in the cache")


def test_pull_offline_is_one_line(capsys: Out) -> None:
    assert main(["pull", "--offline"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"pyrt: error: .* offline mode forbids fetching it\n", err)


def test_version(capsys: Out) -> None:
    for argv in (["version"], ["--version"]):
        assert main(argv) == 0
        assert capsys.readouterr().out.startswith(f"pyrt {pyrt.__version__} (Python 3.")


def test_doctor_tells_the_isa_and_why(capsys: Out) -> None:
    pytest.importorskip("pyrt._core")
    assert main(["doctor", "--json"]) in (0, 1)
    facts = json.loads(capsys.readouterr().out)
    cpu = facts["cpu"]
    assert cpu["isa"] in cpu["isas"]
    assert set(cpu["isas"]) <= set(cpu["why"])
    assert all(cpu["why"].values())
    assert cpu["threads"] >= 1
    assert all(speed is None or 0.1 < speed < 10_000 for speed in facts["read_gb_per_s"].values())
    assert main(["doctor"]) in (0, 1)
    out = capsys.readouterr().out
    for said in (cpu["isa"], "the least of affinity", facts["caches"]["pyrt"].split()[0], "numpy", "problem"):
        assert said in out


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("PYRT_ISA", "sse9", "PYRT_ISA: sse9 is unknown"),
        ("PYRT_THREADS", "abc", "PYRT_THREADS must be a number from 1 to 1024, not 'abc'"),
        ("PYRT_CACHE_DIR", "/dev/null", "/dev/null cannot be a folder"),
        ("PYRT_CACHE_DIR", "/dev/null/x", "/dev/null/x cannot be a folder, since /dev/null is none"),
    ],
)
def test_doctor_survives_a_bad_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: Out, variable: str, value: str, problem: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert main(["doctor"]) == 1
    out, err = capsys.readouterr()
    assert problem in out
    assert err == ""


def test_doctor_names_problems(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from pyrt.cli import doctor

    cpu = {"isa": "scalar", "why": {"avx2": "no avx2", "scalar": "runs everywhere"}, "quota": 0.5}
    cpu["isa_problem"] = cpu["threads_problem"] = None
    monkeypatch.setattr(doctor, "_library", lambda name: None if name == "pip" else "1")
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    found = "\n".join(doctor.problems(cpu))
    for said in ("no avx2", "0.5 of a CPU", "ensurepip", "cannot be written"):
        assert said in found
