"""`pyrt run`: where the prompt comes from, where text goes, exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from inspect import signature
from pathlib import Path

import pytest
from fake import FakeModel

from pyrt.cli import main
from pyrt.cli.parser import COMMANDS, LOADING, SAMPLING
from pyrt.errors import ContextLengthError, DownloadError
from pyrt.options import SamplingParams

Stdin = Callable[..., None]
Out = pytest.CaptureFixture[str]


def test_text_on_stdout_and_nothing_else(model: FakeModel, capsys: Out) -> None:
    assert main(["run", "Why?"]) == 0
    assert capsys.readouterr() == ("Hello world\n", "")
    assert model.asked == [[{"role": "user", "content": "Why?"}]]
    assert model.closed
    assert model.streams[0].closed


@pytest.mark.parametrize(
    ("argv", "data", "prompt"),
    [
        (["a", "b c"], "unread", "a b c"),
        ([], "from a pipe\n", "from a pipe"),
        (["-"], "one\ntwo\n\n", "one\ntwo\n"),
        (["Sum up:", "-"], "text", "Sum up: text"),
        (["--", "-n"], "", "-n"),
        ([], "grüße 🙂", "grüße 🙂"),
    ],
)
def test_where_the_prompt_comes_from(
    model: FakeModel, stdin: Stdin, argv: list[str], data: str, prompt: str
) -> None:
    stdin(data)
    assert main(["run", *argv]) == 0
    assert model.asked[0][0]["content"] == prompt


def test_no_prompt_on_a_terminal_is_wrong_usage(model: FakeModel, stdin: Stdin, capsys: Out) -> None:
    stdin(terminal=True)
    assert main(["run"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", "pyrt: error: no prompt: give it as an argument or on stdin\n")
    assert not model.loaded


def test_stdin_that_is_no_text_is_one_line(model: FakeModel, stdin: Stdin, capsys: Out) -> None:
    stdin(b"abc\xff")
    assert main(["run"]) == 1
    assert (
        capsys.readouterr().err
        == "pyrt: error: the prompt on stdin is not UTF-8 text: invalid start byte at byte 3\n"
    )


def test_an_argument_that_is_no_text_is_one_line(model: FakeModel, capsys: Out) -> None:
    assert main(["run", "good", os.fsdecode(b"a\xff")]) == 1
    assert (
        capsys.readouterr().err == "pyrt: error: the prompt is not UTF-8 text: invalid start byte at byte 1\n"
    )
    for flag in ("--system", "--stop"):
        assert main(["run", flag, os.fsdecode(b"\xff"), "x"]) == 2
        assert f"{flag}: is not UTF-8 text" in capsys.readouterr().err
    assert not model.loaded


def test_raw_continues_the_text_itself(model: FakeModel) -> None:
    assert main(["run", "--raw", "The capital of"]) == 0
    assert model.asked == ["The capital of"]


def test_a_system_message_goes_first(model: FakeModel) -> None:
    assert main(["run", "--system", "Be brief.", "Why?"]) == 0
    assert [message["role"] for message in model.asked[0]] == ["system", "user"]
    assert main(["run", "--system", "Be brief.", "--raw", "Why?"]) == 2


def test_a_model_without_template_names_raw(model: FakeModel, capsys: Out) -> None:
    model.template = None
    assert main(["run", "Why?"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "no chat template" in err
    assert "--raw" in err


def test_flags_carry_the_names_of_the_api(model: FakeModel) -> None:
    argv = [
        "-n",
        "5",
        "-s",
        "3",
        "-t",
        "2",
        "-c",
        "64",
        "--temperature",
        "0.5",
        "--top-k",
        "4",
        "--top-p",
        "0.9",
    ]
    argv += ["--min-p", "0.1", "--repetition-penalty", "1.1"]
    argv += [
        "--stop",
        "a",
        "--stop",
        "b",
        "--kv-dtype",
        "int8",
        "--dtype",
        "int4",
        "--isa",
        "avx2",
        "--offline",
    ]
    argv += ["--numerics", "exact", "-m", "org/name:Q4_0"]
    assert main(["run", *argv, "x"]) == 0
    assert model.options[0] == {
        "max_tokens": 5,
        "seed": 3,
        "temperature": 0.5,
        "top_k": 4,
        "top_p": 0.9,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "stop": ["a", "b"],
    }
    del model.loaded["on_progress"]
    assert model.loaded == {
        "model": "org/name:Q4_0",
        "threads": 2,
        "context_length": 64,
        "kv_dtype": "int8",
        "dtype": "int4",
        "isa": "avx2",
        "offline": True,
        "numerics": "exact",
    }


def test_what_is_not_given_is_left_to_the_api(model: FakeModel) -> None:
    assert main(["run", "x"]) == 0
    assert model.options[0] == {}
    assert set(model.loaded) == {"model", "on_progress"}


def test_every_flag_is_a_parameter_of_the_api() -> None:
    assert set(SAMPLING) <= {field.name for field in fields(SamplingParams)}
    loading = pytest.importorskip("pyrt.loading")
    assert set(LOADING) <= set(signature(loading.load).parameters)


@pytest.mark.parametrize(
    "argv",
    [
        *(
            ["--top-p", "7"],
            ["--temperature", "nan"],
            ["--temperature", "x"],
            ["-n", "-1"],
            ["-t", "0"],
            ["-t", "2000"],
            ["--seed", "-4"],
        ),
        *(["--nonsense"], ["--dtype", "q3"], ["-c", "0"]),
    ],
)
def test_wrong_values_are_usage_and_load_nothing(model: FakeModel, capsys: Out, argv: list[str]) -> None:
    assert main(["run", *argv, "x"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert not model.loaded


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["nonsense"],
        ["--nonsense"],
        ["rm"],
        ["perplexity"],
        ["bench", "-r", "0"],
        ["bench", "-t", "0"],
        ["bench", "-t", "1,2000"],
    ],
)
def test_wrong_usage_is_2(argv: list[str], capsys: Out) -> None:
    assert main(argv) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_every_command_has_help(command: str | None, capsys: Out) -> None:
    assert main([command, "--help"] if command else ["--help"]) == 0
    assert "usage: pyrt" in capsys.readouterr().out


def test_an_error_is_one_line_without_traceback(model: FakeModel, capsys: Out) -> None:
    model.answers = [["Half", ContextLengthError(9, 8)]]
    assert main(["run", "x"]) == 1
    out, err = capsys.readouterr()
    assert out == "Half\n"
    assert err == "pyrt: error: the prompt has 9 tokens, but the context holds 8\n"


def test_an_unforeseen_error_is_named_and_debug_shows_where(
    model: FakeModel, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.answers = [[RuntimeError("first\nsecond")], [RuntimeError("x")]]
    assert main(["run", "x"]) == 1
    assert capsys.readouterr().err == "pyrt: error: RuntimeError: first second\n"
    monkeypatch.setenv("PYRT_LOG", "debug")
    assert main(["run", "x"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("level", ["info", "1"])
def test_a_level_of_the_log_that_does_nothing_is_told(
    model: FakeModel, capsys: Out, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    monkeypatch.setenv("PYRT_LOG", level)
    assert main(["run", "x"]) == 0
    told = f"pyrt: PYRT_LOG={level} does nothing, only debug does\n"
    assert capsys.readouterr() == ("Hello world\n", told)
    for silent in ("", "debug", "DEBUG"):
        monkeypatch.setenv("PYRT_LOG", silent)
        model.answers = [["Hello"]]
        assert main(["run", "x"]) == 0
        assert capsys.readouterr().err == ""


def test_what_the_system_refuses_is_one_line_without_its_number(
    model: FakeModel, capsys: Out, tmp_path: Path
) -> None:
    model.answers = [[MemoryError("std::bad_alloc")], [PermissionError(13, "Permission denied", "some/file")]]
    assert main(["run", "x"]) == 1
    told = "pyrt: error: the machine, or a limit on this process, gives no more memory\n"
    assert capsys.readouterr().err == told
    assert main(["run", "x"]) == 1
    assert capsys.readouterr().err == "pyrt: error: some/file: Permission denied\n"
    assert main(["perplexity", "nope.txt"]) == 1
    assert capsys.readouterr().err == "pyrt: error: nope.txt: cannot be read: No such file or directory\n"
    assert main(["perplexity", str(tmp_path)]) == 1
    assert capsys.readouterr().err.endswith(": cannot be read: Is a directory\n")


def test_a_failed_load_is_one_line(monkeypatch: pytest.MonkeyPatch, model: FakeModel, capsys: Out) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise DownloadError("no way")

    monkeypatch.setattr(model, "load", refuse)
    monkeypatch.setitem(vars(sys.modules["pyrt"]), "load", refuse)
    assert main(["run", "x"]) == 1
    assert capsys.readouterr().err == "pyrt: error: no way\n"


def test_ctrl_c_is_130_and_ends_the_line(model: FakeModel, capsys: Out) -> None:
    model.answers = [["Half", KeyboardInterrupt()]]
    assert main(["run", "x"]) == 130
    assert capsys.readouterr() == ("Half\n", "")
    assert model.streams[0].closed


def test_a_cut_answer_says_so_on_stderr(model: FakeModel, capsys: Out) -> None:
    model.finish = "length"
    assert main(["run", "x"]) == 0
    assert capsys.readouterr() == ("Hello world\n", "[cut off after 2 tokens; -n sets the limit]\n")


def test_verbose_tells_tokens_speed_and_seed_on_stderr(model: FakeModel, capsys: Out) -> None:
    assert main(["run", "-v", "x"]) == 0
    out, err = capsys.readouterr()
    assert out == "Hello world\n"
    for fact in (
        "prompt 10 tokens, 3 cached, 40.0/s",
        "0.250 s",
        "answer 2 tokens, 20.0/s",
        "stop",
        "seed 7",
        "exact",
    ):
        assert fact in err


CHILD = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has none
sys.path[:0] = {path!r}
from fake import FakeModel
import pyrt
model = FakeModel()
class Endless(list):
    def __iter__(self):
        while True:
            yield "word "
            time.sleep(0.01)
model.answers = [Endless()]
vars(pyrt)["load"] = model.load
from pyrt.cli import main
code = main()
{after}
sys.exit(code)
"""


def child(stdout: int, after: str = "") -> subprocess.Popen[bytes]:
    code = CHILD.format(path=[str(Path(__file__).parent), *sys.path], after=after)
    return subprocess.Popen(
        [sys.executable, "-c", code, "run", "x"],
        stdout=stdout,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )


def test_each_piece_is_written_when_it_is_made() -> None:
    process = child(subprocess.PIPE)
    assert process.stdout is not None
    assert os.read(process.stdout.fileno(), 5) == b"word "
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == b""


def test_a_second_ctrl_c_ends_the_process_in_silence() -> None:
    process = child(subprocess.PIPE, "signal.raise_signal(signal.SIGINT)")
    assert process.stdout is not None
    assert os.read(process.stdout.fileno(), 5) == b"word "
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert err == b""


def test_main_called_with_arguments_leaves_the_handler_alone(model: FakeModel) -> None:
    before = signal.getsignal(signal.SIGINT)
    model.answers = [[KeyboardInterrupt()]]
    assert main(["run", "x"]) == 130
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_while_a_class_is_made_is_130(model: FakeModel) -> None:
    """As dataclasses are at import: Python 3.11 makes a RuntimeError of what comes out of __set_name__."""

    class Field:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt

    def answer(_: object, **__: object) -> None:
        type("Made", (), {"field": Field()})

    model.chat_stream = answer  # type: ignore[method-assign, assignment]
    assert main(["run", "x"]) == 130


def test_a_reader_that_leaves_is_no_error() -> None:
    process = child(subprocess.PIPE)
    assert process.stdout is not None
    os.read(process.stdout.fileno(), 1)
    process.stdout.close()
    assert process.stderr is not None
    assert process.wait(timeout=30) == 0
    assert process.stderr.read() == b""
