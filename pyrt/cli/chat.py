"""``pyrt chat``: a conversation in the terminal."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING, Any

from pyrt.cli.console import Bars, checked, note
from pyrt.cli.session import load, remark, sampling, say, without_template
from pyrt.errors import ContextLengthError, PyrtError, TemplateError

if TYPE_CHECKING:
    from pyrt.model import Model

HELP = """\
/help          these lines
/clear         forget the conversation (the system message stays)
/system TEXT   set the system message and start anew; without TEXT, show it
/exit          leave (so does Ctrl-D)
\"\"\"            begins and ends a message of several lines
Ctrl-C         stops an answer, not the program"""


def chat(args: argparse.Namespace) -> None:
    """Read messages until the end of input; answers go to stdout."""
    fields = sampling(args)
    with Bars() as bars, load(args, bars) as model:
        bars.close()
        if model.tokenizer.chat_template is None:
            raise TemplateError("the model has no chat template; `pyrt run --raw` continues text without one")
        if hasattr(sys.stdin, "reconfigure"):
            sys.stdin.reconfigure(errors="surrogateescape")  # one bad line shall not hide those after it
        if sys.stdin.isatty():
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  (input() gets line editing and a history)
            note(f"{args.model or 'SmolLM2-135M-Instruct'}: /help for help, Ctrl-D to leave")
        _Conversation(model, fields, bars, args.system, args.verbose).talk()


class _Conversation:
    """The messages so far, and what a line of input does to them."""

    def __init__(
        self, model: Model, fields: dict[str, Any], bars: Bars, system: str | None, verbose: bool
    ) -> None:
        self._model = model
        self._fields = fields
        self._bars = bars
        self._system = system
        self._verbose = verbose
        self._messages: list[dict[str, str]] = []

    def talk(self) -> None:
        while (line := self._read()) is not None:
            try:
                checked(line, "the message")
            except PyrtError as error:
                note(str(error))
                continue
            command, _, rest = line.strip().partition(" ")
            if command == "/exit":
                return
            if command.startswith("/"):
                self._obey(command, rest.strip())
            elif line.strip():
                self._answer(line)

    def _read(self) -> str | None:
        """The next message; None at the end of input. Ctrl-C clears the line."""
        prompts = (">>> ", "... ") if sys.stdin.isatty() else ("", "")
        try:
            line = input(prompts[0])
            if not line.startswith('"""'):
                return line
            lines = [line[3:]]
            while not lines[-1].endswith('"""'):
                lines.append(input(prompts[1]))
            return "\n".join(lines)[:-3]
        except EOFError:
            return None
        except KeyboardInterrupt:
            note("\n(/exit or Ctrl-D leaves)")
            return ""

    def _obey(self, command: str, rest: str) -> None:
        if command == "/help":
            note(HELP)
        elif command == "/clear":
            self._messages.clear()
        elif command == "/system" and rest:
            self._system = rest
            self._messages.clear()
        elif command == "/system":
            note(self._system or "(no system message)")
        else:
            note(f"no command {command}; /help lists them")

    def _answer(self, line: str) -> None:
        """Ask the model. A stopped answer stays in the conversation as far as it came; a refusal does not."""
        system = [] if self._system is None else [{"role": "system", "content": self._system}]
        question = {"role": "user", "content": line}
        said: list[str] = []
        try:
            messages = [*system, *self._messages, question]
            stream = self._model.chat_stream(messages, on_progress=self._bars.stage("prompt"), **self._fields)
            remark(say(stream, self._bars, said), self._verbose)
        except KeyboardInterrupt:
            note("(stopped)")
        except ContextLengthError as error:
            note(f"{error}: /clear starts anew")
            return
        except TemplateError as error:
            note(str(without_template(self._model, error)))
            return
        except PyrtError as error:
            note(str(error))
            return
        self._messages += [question, {"role": "assistant", "content": "".join(said)}]
