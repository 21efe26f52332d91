"""What the commands share: given flags, stdin, sizes in words, tables, and progress bars on a terminal."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any

from pyrt.errors import PyrtError

BAR_AFTER = 0.5  # seconds: what is done sooner needs no bar, and no import of rich


class UsageError(Exception):
    """The command line makes no sense: exit code 2."""


def given(args: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """The flags among ``names`` that the user gave, under their Python names."""
    return {name: value for name in names if (value := getattr(args, name, None)) is not None}


def note(text: str) -> None:
    """One line for the human, on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def read_text(words: Sequence[str], what: str) -> str:
    """The words as one text; "-" among them, or none at all, stands for stdin (without its last newline)."""
    if not words and sys.stdin.isatty():
        raise UsageError(f"no {what}: give it as an argument or on stdin")
    parts = [_stdin(what) if word == "-" else checked(word, f"the {what}") for word in words or ("-",)]
    return " ".join(parts)


def read_file(path: str, what: str) -> str:
    """A text file in UTF-8; "-" is stdin."""
    if path == "-":
        return _stdin(what)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise PyrtError(f"{path}: cannot be read: {error.strerror}") from error
    return _decoded(data, path)


def checked(text: str, name: str) -> str:
    """``text`` from an argument or a terminal: there Python lets bytes beyond UTF-8 through as surrogates.

    PyrtError if there are any.
    """
    return _decoded(text.encode("utf-8", "surrogateescape"), name)


def _stdin(what: str) -> str:
    return _decoded(sys.stdin.buffer.read(), f"the {what} on stdin").removesuffix("\n")


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PyrtError(f"{name} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def size(n_bytes: float) -> str:
    """1500 → "1.5 KB": decimal units, as disks and downloads are counted."""
    return _scaled(n_bytes, 1000, ("B", "KB", "MB", "GB", "TB"), 1)


def memory(n_bytes: float) -> str:
    """1536 → "1.50 KiB": binary units, as memory is counted."""
    return _scaled(n_bytes, 1024, ("B", "KiB", "MiB", "GiB", "TiB"), 2)


def _scaled(n: float, step: int, units: Sequence[str], digits: int) -> str:
    power = 0
    while abs(n) >= step and power < len(units) - 1:
        n /= step
        power += 1
    return f"{n:.{digits if power else 0}f} {units[power]}"


def print_table(rows: Sequence[Sequence[str]], header: Sequence[str], right: Iterable[int] = ()) -> None:
    """A table on stdout: drawn by rich on a terminal, plain columns in a pipe."""
    if not sys.stdout.isatty():
        aligned = set(right)
        widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
        for row in (header, *rows):
            cells = (
                cell.rjust(width) if i in aligned else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            print("  ".join(cells).rstrip())
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for i, title in enumerate(header):
        table.add_column(title, justify="right" if i in set(right) else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Lines of "name  value", the values in one column."""
    listed = list(facts)
    width = max((len(name) for name, _ in listed), default=0)
    for name, value in listed:
        print(f"{name.ljust(width)}  {value}".rstrip())


class Bars:
    """Call it with (stage, done, total): a bar on stderr for each stage that lasts, gone when the block ends.

    On no terminal it draws nothing. Calls may come from several threads.
    """

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._progress: Any = None
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if not self._live or time.monotonic() - self._started < BAR_AFTER:
            return
        with self._lock:
            if self._progress is None:
                self._progress = self._open()
            if stage not in self._tasks:
                for task in self._tasks.values():
                    self._progress.update(task, visible=False)
                self._tasks[stage] = self._progress.add_task(stage, total=None)
            self._progress.update(self._tasks[stage], completed=done, total=total or None)

    def stage(self, name: str) -> Callable[[int, int], None]:
        """The same bar as a function of (done, total)."""
        return lambda done, total: self(name, done, total)

    def close(self) -> None:
        """Erase the bar, so that what follows starts on a clean line."""
        with self._lock:
            if self._progress is not None:
                self._progress.stop()
                self._progress = None
                self._tasks.clear()
            self._started = time.monotonic()

    def _open(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        progress = Progress(*columns, console=Console(file=self._stream), transient=True)
        progress.start()
        return progress
