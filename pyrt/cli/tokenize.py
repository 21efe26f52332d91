"""``pyrt tokenize``."""

from __future__ import annotations

import argparse

from pyrt.cli.console import Bars, print_json, print_table, read_text


def tokenize(args: argparse.Namespace) -> None:
    """Print the ids of a text and the piece that each stands for."""
    import pyrt
    from pyrt import hub

    text = read_text(args.text, "text")
    with Bars() as bars:
        path = hub.resolve(args.model, offline=args.offline, on_progress=bars)
    tokenizer = pyrt.load_tokenizer(path)
    ids = tokenizer.encode(text, add_special_tokens=not args.no_special)
    pieces = [tokenizer.decode([token], skip_special_tokens=False) for token in ids]
    if args.json:
        print_json([{"id": token, "piece": piece} for token, piece in zip(ids, pieces, strict=True)])
        return
    rows = [(str(token), repr(piece)[1:-1]) for token, piece in zip(ids, pieces, strict=True)]
    print_table(rows, ("ID", "PIECE"), right=(0,))
