"""The commands on the real default model, as a user types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from files.models import real_model

from pyrt.cli import main

pytestmark = pytest.mark.slow

Out = pytest.CaptureFixture[str]
TEXT = Path(__file__).parents[1] / "data" / "english.txt"


@pytest.fixture(scope="module")
def model() -> str:
    return str(real_model("smollm2.gguf"))


def test_run_continues_raw_text(model: str, capsys: Out) -> None:
    assert main(["run", "-m", model, "--raw", "The capital of France is", "-n", "3", "-v"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(" Paris")
    assert "prompt 5 tokens" in err


def test_run_answers_through_the_template(model: str, capsys: Out) -> None:
    assert main(["run", "-m", model, "Why is the sky blue?", "-n", "48", "--temperature", "0"]) == 0
    out, _ = capsys.readouterr()
    assert "scatter" in out or "light" in out
    assert "<|im_" not in out


def test_the_same_seed_says_the_same(model: str, capsys: Out) -> None:
    said = []
    for seed in ("1", "1", "2"):
        argv = ["run", "-m", model, "--raw", "Once upon a time", "-n", "12", "--temperature", "1", "-s", seed]
        assert main(argv) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] != said[2]


def test_tokenize(model: str, capsys: Out) -> None:
    assert main(["tokenize", "-m", model, "--json", "Hello", "world 🙂"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [token["id"] for token in found][:2] == [19556, 905]
    assert "".join(token["piece"] for token in found) == "Hello world 🙂"
    assert main(["tokenize", "-m", model, "a\tb\n"]) == 0
    assert "\\n" in capsys.readouterr().out


def test_a_prompt_that_is_too_long_is_one_line(model: str, capsys: Out) -> None:
    assert main(["run", "-m", model, "-c", "64", "--raw", "word " * 100]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "pyrt: error: the prompt has 101 tokens, but the context holds 64\n"


@pytest.mark.parametrize("flags", [["--isa", "nonsense"], ["-c", "100000"]])
def test_what_the_machine_or_the_model_lacks_is_one_line(model: str, capsys: Out, flags: list[str]) -> None:
    assert main(["run", "-m", model, *flags, "x"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_perplexity_of_two_windows(model: str, capsys: Out) -> None:
    assert main(["perplexity", "-m", model, str(TEXT), "--windows", "2", "-c", "128", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["n_windows"], found["n_ctx"], found["n_scored"]) == (2, 128, 2 * 63)
    assert 5 < found["value"] < 500


def test_bench_rows(model: str, capsys: Out) -> None:
    assert (
        main(["bench", "-m", model, "-p", "32", "-n", "4", "-d", "0,64", "-t", "1", "-r", "1", "-o", "json"])
        == 0
    )
    rows = json.loads(capsys.readouterr().out)
    assert [(row["phase"], row["depth"]) for row in rows] == [
        ("prefill", 0),
        ("decode", 0),
        ("prefill", 64),
        ("decode", 64),
    ]
    assert all(row["tokens_per_s"] > 0 for row in rows)
    # The whole file but its header is read for each token, and half a megabyte of K and V more at depth 64.
    assert rows[1]["bytes_per_token"] == pytest.approx(96.5e6, rel=0.02)
    assert 1e6 < rows[3]["bytes_per_token"] - rows[1]["bytes_per_token"] < 3e6


def test_a_conversation_over_a_pipe(model: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pyrt", "chat", "-m", model, "-n", "8", "--temperature", "0"],
        input="Say hello.\n/clear\nSay hello.\n",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == second
    assert len(first) > 3


def test_a_model_without_template_says_so(capsys: Out) -> None:
    gemma = str(real_model("gemma3.gguf"))
    for argv in (["run", "-m", gemma, "Hello"], ["chat", "-m", gemma]):
        assert main(argv) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert len(err.splitlines()) == 1
        assert "--raw" in err
