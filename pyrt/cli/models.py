"""``pyrt pull | list | show | rm``."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyrt import hub
from pyrt.cli.console import Bars, note, print_facts, print_json, print_table, size
from pyrt.errors import PyrtError
from pyrt.hub.listing import Entry, find, list_models, remove


def pull(args: argparse.Namespace) -> None:
    """Fetch each model; the paths go to stdout."""
    for model in args.models or [None]:
        with Bars() as bars:
            path = hub.pull(model, offline=args.offline, on_progress=bars)
        print(path)


def list_(args: argparse.Namespace) -> None:
    entries = list_models()
    if args.json:
        print_json([_as_dict(entry) for entry in entries])
        return
    rows = [
        (entry.name, entry.kind, size(entry.size), _day(entry.modified), str(entry.path or "not fetched yet"))
        for entry in entries
    ]
    print_table(rows, ("NAME", "KIND", "SIZE", "MODIFIED", "PATH"), right=(2,))


def show(args: argparse.Namespace) -> None:
    target = hub.parse(args.name)
    facts: dict[str, Any]
    if isinstance(target, Path):
        facts = {"name": args.name, "source": "path", "path": hub.resolve(target, offline=True)}
    else:
        facts = _as_dict(find(args.name))
    if facts["path"] is not None:
        from pyrt.cli.info import file_facts

        facts |= file_facts(Path(facts["path"]))
    if args.json:
        print_json(facts)
        return
    for field in ("size", "file_bytes"):
        if field in facts:
            facts[field] = size(facts[field])
    if facts.get("modified"):
        facts["modified"] = _day(facts["modified"])
    facts["path"] = facts["path"] or "not fetched yet: `pyrt pull` fetches it"
    print_facts((name.replace("_", " "), _words(value)) for name, value in facts.items() if value is not None)


def rm(args: argparse.Namespace) -> int:
    """Remove what can be removed; an unknown name is an error, but keeps none of the others."""
    failed = 0
    for name in args.names:
        try:
            removed = remove(name, everything=args.all)
        except PyrtError as error:
            note(f"pyrt: error: {error}")
            failed = 1
        else:
            print(f"removed {', '.join(removed.names)}: {size(removed.freed)} freed")
    return failed


def _as_dict(entry: Entry) -> dict[str, Any]:
    facts = asdict(entry)
    del facts["files"]
    return facts


def _words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _day(seconds: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds else ""
