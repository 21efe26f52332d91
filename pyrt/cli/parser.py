"""The commands and their flags: names from the Python API, letters from llama.cpp."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Command = Callable[[argparse.Namespace], int | None]
Flag = tuple[tuple[str, ...], dict[str, Any]]


def positive(text: str) -> int:
    """A number from 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def utf8(text: str) -> str:
    """Text that no byte beyond UTF-8 came in."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("is not UTF-8 text") from None
    return text


def counts(text: str) -> list[int]:
    """Numbers from 0 with commas between."""
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 0:
        raise argparse.ArgumentTypeError(f"{min(numbers)} is less than 0")
    return numbers


def _flag(*names: str, **settings: Any) -> Flag:
    return names, settings


OFFLINE = _flag("--offline", action="store_true", default=None, help="use no network")
JSON = _flag("--json", action="store_true", help="print JSON")
VERBOSE = _flag("-v", "--verbose", action="store_true", help="tell tokens, speed and seed on stderr")
MODEL = _flag(
    "-m",
    "--model",
    metavar="MODEL",
    help="a GGUF file, a folder, org/name[@revision][:tag or file] or a name of the catalogue",
)
CONTEXT = _flag("-c", "--context-length", type=positive, metavar="N", help="tokens of context")
THREADS = _flag("-t", "--threads", type=positive, metavar="N", help="how many threads compute")

# Flags of `pyrt.load`, by the names they have there.
LOADING: dict[str, Flag] = {
    "context_length": CONTEXT,
    "threads": THREADS,
    "dtype": _flag(
        "--dtype",
        choices=("auto", "f32", "f16", "bf16", "int8", "int4"),
        help="weights (auto: as the file stores them)",
    ),
    "kv_dtype": _flag("--kv-dtype", choices=("f32", "f16", "int8"), help="keys and values in the cache"),
    "numerics": _flag("--numerics", choices=("fast", "exact"), help="arithmetic of prompts"),
    "isa": _flag("--isa", metavar="NAME", help="force an instruction set; `pyrt doctor` lists them"),
    "offline": OFFLINE,
}

# Flags of SamplingParams, by the names they have there.
SAMPLING: dict[str, Flag] = {
    "max_tokens": _flag("-n", "--max-tokens", type=int, metavar="N", help="at most so many new tokens"),
    "temperature": _flag("--temperature", type=float, metavar="X", help="0 is greedy"),
    "top_k": _flag("--top-k", type=int, metavar="N", help="among the N likeliest tokens"),
    "top_p": _flag("--top-p", type=float, metavar="X", help="among the likeliest with this mass"),
    "min_p": _flag("--min-p", type=float, metavar="X", help="at least X times the likeliest"),
    "typical_p": _flag("--typical-p", type=float, metavar="X", help="among the typical with this mass"),
    "repetition_penalty": _flag("--repetition-penalty", type=float, metavar="X", help="1 is none"),
    "presence_penalty": _flag("--presence-penalty", type=float, metavar="X", help="0 is none"),
    "frequency_penalty": _flag("--frequency-penalty", type=float, metavar="X", help="0 is none"),
    "seed": _flag("-s", "--seed", type=int, metavar="N", help="same seed, same text"),
    "stop": _flag(
        "--stop", type=utf8, action="append", metavar="TEXT", help="end before this text; may be repeated"
    ),
}


class Spec(NamedTuple):
    """A command: ``module.function`` in this package, its help, its flags, and groups of flags by title."""

    function: str
    about: str
    flags: tuple[Flag, ...] = ()
    groups: tuple[tuple[str, dict[str, Flag]], ...] = ()


_GENERATING = (("loading", LOADING), ("sampling (default: the model's own, else greedy)", SAMPLING))
_MEASURING = {name: flag for name, flag in LOADING.items() if name not in ("context_length", "threads")}
_SYSTEM = _flag("--system", type=utf8, metavar="TEXT", help="a system message before the first one")

COMMANDS = {
    "run": Spec(
        "run.run",
        "answer one prompt through the model's chat template",
        (
            _flag("prompt", nargs="*", metavar="PROMPT", help="what to say; - or nothing reads stdin"),
            _flag("--raw", action="store_true", help="continue the text itself, without the chat template"),
            *(MODEL, _SYSTEM, VERBOSE),
        ),
        _GENERATING,
    ),
    "chat": Spec("chat.chat", "talk with a model", (MODEL, _SYSTEM, VERBOSE), _GENERATING),
    "pull": Spec(
        "models.pull",
        "fetch models, or bring them up to date",
        (_flag("models", nargs="*", metavar="MODEL", help="hub ids or names of the catalogue"), OFFLINE),
    ),
    "list": Spec("models.list_", "list the models of the catalogue and the caches", (JSON,)),
    "show": Spec(
        "models.show",
        "show where a model is and what its files say",
        (_flag("name", nargs="?", metavar="MODEL", help="a path, or a name that `pyrt list` prints"), JSON),
    ),
    "rm": Spec(
        "models.rm",
        "remove models from the caches",
        (
            _flag("names", nargs="+", metavar="MODEL", help="names as `pyrt list` prints them"),
            _flag("--all", action="store_true", help="all that is cached of each repository"),
        ),
    ),
    "info": Spec(
        "info.info",
        "count parameters, bytes and memory of a model or config.json",
        (
            _flag("model", nargs="?", metavar="MODEL", help="a model, or a bare config.json"),
            *(CONTEXT, OFFLINE, JSON),
        ),
    ),
    "bench": Spec(
        "measure.bench",
        "measure tokens per second; lists have commas between",
        (
            MODEL,
            _flag("-p", "--n-prompt", type=counts, default=[512], metavar="N,..", help="prompts (512)"),
            _flag("-n", "--n-gen", type=counts, default=[64], metavar="N,..", help="new tokens (64)"),
            _flag("-d", "--depth", type=counts, default=[0], metavar="N,..", help="tokens before them (0)"),
            _flag("-t", "--threads", type=counts, metavar="N,..", help="how many threads compute"),
            _flag(
                "-r", "--repetitions", type=positive, default=3, metavar="N", help="of each, the median (3)"
            ),
            _flag("-o", "--output", choices=("table", "json", "csv"), default="table", help="(table)"),
        ),
        (("loading", _MEASURING),),
    ),
    "perplexity": Spec(
        "measure.perplexity",
        "measure how well a model predicts a text",
        (
            _flag("file", metavar="FILE", help="a text in UTF-8; - reads stdin"),
            _flag("--windows", type=positive, metavar="N", help="only the first so many"),
            *(MODEL, JSON),
        ),
        (("loading", LOADING),),
    ),
    "tokenize": Spec(
        "tokenize.tokenize",
        "print the token ids and pieces of a text",
        (
            _flag("text", nargs="*", metavar="TEXT", help="what to encode; - or nothing reads stdin"),
            _flag("--no-special", action="store_true", help="add no begin or end token"),
            *(MODEL, OFFLINE, JSON),
        ),
    ),
    "doctor": Spec("doctor.doctor", "tell what pyrt sees and chose on this machine, and why", (JSON,)),
    "version": Spec("doctor.version", "print the version"),
}


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The chosen command's namespace, its function in ``command``; SystemExit(2) for wrong usage.

    Only the parser of the command that is asked for is built: all of them would take 20 ms of every start.
    """
    if argv and argv[0] in COMMANDS:
        name = argv[0]
        return _fill(argparse.ArgumentParser(prog=f"pyrt {name}"), COMMANDS[name]).parse_args(argv[1:])
    return build().parse_args(argv)


def build() -> argparse.ArgumentParser:
    """The parser of all commands."""
    about = "Language models on the CPU: minimal, exact and fast."
    parser = argparse.ArgumentParser(prog="pyrt", description=about)
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, spec in COMMANDS.items():
        _fill(commands.add_parser(name, help=spec.about), spec)
    return parser


def _fill(parser: argparse.ArgumentParser, spec: Spec) -> argparse.ArgumentParser:
    parser.description = f"{spec.about[0].upper()}{spec.about[1:]}."
    for names, settings in spec.flags:
        parser.add_argument(*names, **settings)
    for title, flags in spec.groups:
        group = parser.add_argument_group(title)
        for names, settings in flags.values():
            group.add_argument(*names, **settings)

    def command(args: argparse.Namespace) -> int | None:
        module, _, attribute = spec.function.partition(".")
        run: Command = getattr(importlib.import_module(f"pyrt.cli.{module}"), attribute)
        return run(args)

    parser.set_defaults(command=command)
    return parser


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from pyrt.cli.doctor import version_line

        print(version_line())
        parser.exit()
