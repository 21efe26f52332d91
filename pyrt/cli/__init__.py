"""The command line, ``pyrt COMMAND``; `pyrt.cli.parser` lists the commands.

Text goes to stdout, everything else to stderr. Exit codes: 0 done, 1 error (one line, no traceback), 2 usage,
130 cancelled. A command's module is imported when the command runs: `pyrt run` must not wait for the others.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from pyrt.errors import Cancelled, PyrtError

OK, ERROR, USAGE, CANCELLED = 0, 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    ``argv`` is without the program's name; None is the program's own call, with which the process ends.
    """
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        # The next one ends the process without a word; Python would print it, out of whatever line it is at
        # by then. Not in a function of its own, at whose first line the next one may come out already.
        while argv is None:
            try:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                break
            except KeyboardInterrupt:
                continue
        return CANCELLED


def _run(argv: Sequence[str]) -> int:
    from pyrt.cli.parser import parse

    if "numpy" not in sys.modules:  # no command uses NumPy's BLAS, whose threads are a third of its import
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by whoever called
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open for good
    # A terminal that cannot show a character gets a question mark, not an exception.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    if os.environ.get("PYRT_LOG", "debug").lower() not in ("", "debug"):
        sys.stderr.write(f"pyrt: PYRT_LOG={os.environ['PYRT_LOG']} does nothing, only debug does\n")
    try:
        args = parse(argv)
        code = args.command(args)
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_gone()
    except Cancelled:
        return CANCELLED
    except SystemExit as error:  # argparse: --help, usage
        return error.code if isinstance(error.code, int) else ERROR
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # in a class body, by Python 3.11
            raise error.__cause__ from None
        return _failed(error)
    return OK if code is None else int(code)


def _failed(error: Exception) -> int:
    """One line for the user; the whole story for who asks with PYRT_LOG=debug."""
    from pyrt.cli.console import UsageError

    if os.environ.get("PYRT_LOG", "").lower() == "debug":
        import traceback

        traceback.print_exc()
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, MemoryError):
        text = "the machine, or a limit on this process, gives no more memory"
    elif isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    elif not isinstance(error, (PyrtError, UsageError, ValueError, OSError)):
        text = f"{type(error).__name__}: {text}"
    sys.stderr.write(f"pyrt: error: {text}\n")
    return USAGE if isinstance(error, UsageError) else ERROR


def _reader_gone() -> int:
    """``pyrt run ... | head`` closed the pipe: no error, and Python's flush at exit must not make it one."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
    return OK
