"""`pyrt chat`: the conversation, its commands, and what Ctrl-C does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fake import FakeModel

from pyrt.cli import main
from pyrt.errors import ContextLengthError

Stdin = Callable[..., None]
Out = pytest.CaptureFixture[str]


def roles(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in messages]


def test_the_conversation_grows_by_question_and_answer(model: FakeModel, stdin: Stdin, capsys: Out) -> None:
    model.answers = [["A1"], ["A", "2"]]
    stdin("Q1\n\n  \nQ2\n")
    assert main(["chat"]) == 0
    assert capsys.readouterr().out == "A1\nA2\n"
    assert roles(model.asked[1]) == [("user", "Q1"), ("assistant", "A1"), ("user", "Q2")]


def test_clear_forgets_but_keeps_the_system_message(model: FakeModel, stdin: Stdin) -> None:
    model.answers = [["A1"], ["A2"]]
    stdin("Q1\n/clear\nQ2\n")
    assert main(["chat", "--system", "S"]) == 0
    assert roles(model.asked[1]) == [("system", "S"), ("user", "Q2")]


def test_a_new_system_message_starts_anew(model: FakeModel, stdin: Stdin, capsys: Out) -> None:
    model.answers = [["A1"], ["A2"]]
    stdin("Q1\n/system Be a cat.\n/system\nQ2\n")
    assert main(["chat"]) == 0
    assert roles(model.asked[1]) == [("system", "Be a cat."), ("user", "Q2")]
    assert "Be a cat." in capsys.readouterr().err


def test_exit_ends_and_help_helps(model: FakeModel, stdin: Stdin, capsys: Out) -> None:
    stdin("/help\n/nonsense\n/exit\nQ1\n")
    assert main(["chat"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "/clear" in err
    assert "no command /nonsense" in err
    assert not model.asked


def test_a_message_of_several_lines(model: FakeModel, stdin: Stdin) -> None:
    stdin('"""one\ntwo\nthree"""\n')
    assert main(["chat"]) == 0
    assert model.asked[0][0]["content"] == "one\ntwo\nthree"


def test_ctrl_c_stops_the_answer_and_keeps_what_was_said(model: FakeModel, stdin: Stdin, capsys: Out) -> None:
    model.answers = [["A1 ", "half", KeyboardInterrupt()], ["A2"]]
    stdin("Q1\nQ2\n")
    assert main(["chat"]) == 0
    out, err = capsys.readouterr()
    assert out == "A1 half\nA2\n"
    assert "(stopped)" in err
    assert roles(model.asked[1]) == [("user", "Q1"), ("assistant", "A1 half"), ("user", "Q2")]
    assert model.streams[0].closed


def test_ctrl_c_at_the_prompt_does_not_leave(
    model: FakeModel, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    lines: list[Any] = [KeyboardInterrupt(), "Q1", EOFError()]

    def read(_: str = "") -> str:
        line = lines.pop(0)
        if isinstance(line, BaseException):
            raise line
        return str(line)

    monkeypatch.setattr("builtins.input", read)
    assert main(["chat"]) == 0
    assert len(model.asked) == 1
    assert "/exit" in capsys.readouterr().err


def test_a_question_that_does_not_fit_leaves_the_conversation(
    model: FakeModel, stdin: Stdin, capsys: Out
) -> None:
    model.answers = [["A1"], [ContextLengthError(9, 8)], ["A3"]]
    stdin("Q1\nQ2\nQ3\n")
    assert main(["chat"]) == 0
    assert "/clear" in capsys.readouterr().err
    assert roles(model.asked[2]) == [("user", "Q1"), ("assistant", "A1"), ("user", "Q3")]


def test_a_message_that_is_no_text_is_told_and_the_next_is_read(
    model: FakeModel, stdin: Stdin, capsys: Out
) -> None:
    model.answers = [["A1"], ["A3"]]
    stdin(b"Q1\ncaf\xe9\n/system \xff\nQ3\n")
    assert main(["chat"]) == 0
    out, err = capsys.readouterr()
    assert out == "A1\nA3\n"
    assert err == (
        "the message is not UTF-8 text: unexpected end of data at byte 3\n"
        "the message is not UTF-8 text: invalid start byte at byte 8\n"
    )
    assert roles(model.asked[1]) == [("user", "Q1"), ("assistant", "A1"), ("user", "Q3")]


def test_a_model_without_template_is_told_at_once(model: FakeModel, stdin: Stdin, capsys: Out) -> None:
    model.template = None
    stdin("Q1\n")
    assert main(["chat"]) == 1
    assert "pyrt run --raw" in capsys.readouterr().err
