"""``pyrt bench`` and ``pyrt perplexity``."""

from __future__ import annotations

import argparse
import csv
import sys
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from pyrt.cli.console import Bars, given, print_json, print_table, read_file, size
from pyrt.cli.session import load, loading

if TYPE_CHECKING:
    from pyrt.bench import BenchRow


def bench(args: argparse.Namespace) -> None:
    """Measure, then print a table, JSON or CSV on stdout."""
    from pyrt.bench import BenchRow
    from pyrt.bench import bench as measure

    options = {**loading(args), **given(args, ("n_prompt", "n_gen", "depth", "repetitions"))}
    with Bars() as bars:
        rows = measure(args.model, on_progress=bars, **options)
    if args.output == "json":
        print_json([asdict(row) for row in rows])
    elif args.output == "csv":
        writer = csv.DictWriter(sys.stdout, [field.name for field in fields(BenchRow)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    else:
        _print_rows(rows)


def _print_rows(rows: list[BenchRow]) -> None:
    first = rows[0]
    millions = f"{first.parameters / 1e6:,.1f} million parameters"
    print(f"{first.model}: {millions}, {size(first.packed_bytes)} as packed")
    print(f"{first.cpu}: {first.isa}, {first.numerics} numerics, K and V in {first.kv_dtype}")
    table = [
        (
            f"{row.phase} {row.n_gen or row.n_prompt}" + (f" at {row.depth}" if row.depth else ""),
            str(row.threads),
            f"{row.tokens_per_s:.1f}",
            f"{row.tokens_per_s_min:.1f}-{row.tokens_per_s_max:.1f}",
            "" if row.bytes_per_token is None else size(row.bytes_per_token),
            "" if row.gb_per_s is None else f"{row.gb_per_s:.1f}",
            f"{row.read_gb_per_s:.1f}",
            "" if row.read_fraction is None else f"{row.read_fraction:.0%}",
        )
        for row in rows
    ]
    header = ("TEST", "THREADS", "TOKENS/S", "RANGE", "PER TOKEN", "GB/S", "READ GB/S", "OF IT")
    print_table(table, header, right=range(1, len(header)))


def perplexity(args: argparse.Namespace) -> None:
    """Windows of ``-c`` tokens (512, as llama.cpp has it, if not given)."""
    from pyrt.perplexity import perplexity as measure

    text = read_file(args.file, "text")
    n_ctx = args.context_length or 512
    with Bars() as bars, load(args, bars, context_length=n_ctx) as model:
        bars.close()
        found = measure(model, text, n_ctx=n_ctx, windows=args.windows, on_progress=bars.stage("windows"))
    if args.json:
        print_json(asdict(found))
    else:
        print(f"{found.value:.4f} ± {found.standard_error:.4f}")
        sys.stderr.write(f"{found.n_scored} tokens scored in {found.n_windows} windows of {found.n_ctx}\n")
