"""pyrt beside llama-cpp-python: one run, in turn (A B A B), the same file, the same number of threads.

    python bench/compare_llama.py --peer PEER_PYTHON [--pyrt PYTHON] MODEL.gguf [-t 2] [-p 512] [-n 64] [-r 5]

Both are called from Python, each in processes of its own, and each round starts both afresh. Compared are
prompt and generation speed, and the seconds from the start of the process to the first token of a short
prompt on its stdout. Writes results/compare_llama-MODEL.json and .md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine import ROOT, circumstances, sha256

PROMPT = "The capital of France is"
RESULTS = ROOT / "bench" / "results"
# Both sides' byte code may be kept, as it is where a package is installed and not run from its sources.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
# Away from this folder, whose sources would hide the installed pyrt.
ABROAD: dict[str, Any] = {"env": ENVIRONMENT, "cwd": "/"}
PEER_SCRIPT = Path(__file__).with_name("peer_llama.py")

SPEED = """
import json, sys
import pyrt
model, threads, p, n, r = sys.argv[1], *map(int, sys.argv[2:])
rows = pyrt.bench(model, n_prompt=p, n_gen=n, threads=threads, repetitions=r)
found = {row.phase: [row.tokens_per_s] for row in rows}
about = {"version": f"pyrt {rows[0].pyrt}", "build": f"{rows[0].isa}, {rows[0].numerics} numerics"}
print(json.dumps({**found, **about}))
"""

FIRST_TOKEN = """
import sys
import pyrt
model, threads, prompt = sys.argv[1:]
for chunk in pyrt.stream(prompt, model=model, threads=int(threads), max_tokens=8, temperature=0.0):
    if chunk.text:
        print(chunk.text, end="", flush=True)
        break
"""


@dataclass
class Side:
    """One of the two: how it is started, and what was measured."""

    name: str
    speed: list[str]
    first_token: list[str]
    prefill: list[float] = field(default_factory=list)
    decode: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)

    def measure_speed(self, arguments: list[str]) -> None:
        command = [*self.speed, *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **ABROAD)
        found = json.loads(done.stdout)
        self.prefill.append(statistics.median(found["prefill"]))
        self.decode.append(statistics.median(found["decode"]))
        self.about = {key: found[key] for key in ("version", "build")}

    def measure_first_token(self, arguments: list[str]) -> None:
        began = time.perf_counter()
        command = [*self.first_token, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, **ABROAD) as process:
            assert process.stdout is not None
            if not process.stdout.read(1):
                raise RuntimeError(f"{self.name} ended without a token")
            self.first.append(time.perf_counter() - began)
            process.stdout.read()

    def summary(self) -> dict[str, Any]:
        return {
            **self.about,
            "prefill_tokens_per_s": statistics.median(self.prefill),
            "decode_tokens_per_s": statistics.median(self.decode),
            "first_token_s": statistics.median(self.first),
            "rounds": {"prefill": self.prefill, "decode": self.decode, "first_token": self.first},
        }


def compare(args: argparse.Namespace) -> dict[str, Any]:
    """Both sides' medians over the rounds, and pyrt's advantage: above 1 is faster."""
    sides = [
        Side("pyrt", [args.pyrt, "-c", SPEED], [args.pyrt, "-c", FIRST_TOKEN]),
        Side("llama", [args.peer, str(PEER_SCRIPT), "speed"], [args.peer, str(PEER_SCRIPT), "first-token"]),
    ]
    model, threads = str(args.model.resolve()), str(args.threads)
    for side in sides:  # files into the page cache, byte code onto the disk
        side.measure_first_token([model, threads, PROMPT])
        side.first.clear()
    for done in range(args.rounds):
        for side in sides:
            side.measure_speed([model, threads, str(args.n_prompt), str(args.n_gen), "3"])
        for _ in range(3):
            for side in sides:
                side.measure_first_token([model, threads, PROMPT])
        print(f"round {done + 1} of {args.rounds}", file=sys.stderr)
    ours, theirs = (side.summary() for side in sides)
    return {
        "model": args.model.name,
        "sha256": sha256(args.model),
        "threads": args.threads,
        "n_prompt": args.n_prompt,
        "n_gen": args.n_gen,
        "pyrt": ours,
        "llama-cpp-python": theirs,
        "advantage": {
            "prefill": ours["prefill_tokens_per_s"] / theirs["prefill_tokens_per_s"],
            "decode": ours["decode_tokens_per_s"] / theirs["decode_tokens_per_s"],
            "first_token": theirs["first_token_s"] / ours["first_token_s"],
        },
        **circumstances(),
    }


def table(found: dict[str, Any]) -> str:
    ours, theirs, gain = found["pyrt"], found["llama-cpp-python"], found["advantage"]
    rows = [
        (f"prompt of {found['n_prompt']}, tokens/s", "prefill_tokens_per_s", "prefill", ".1f"),
        (f"generating {found['n_gen']}, tokens/s", "decode_tokens_per_s", "decode", ".1f"),
        ("start to first token, s", "first_token_s", "first_token", ".3f"),
    ]
    lines = [
        f"{found['model']}, {found['threads']} threads of {found['cpu']}, {found['date'][:10]}, medians",
        "",
        f"| | {ours['version']} ({ours['build']}) | {theirs['version']} | pyrt is |",
        "|---|---:|---:|---:|",
    ]
    lines += [
        f"| {name} | {ours[key]:{form}} | {theirs[key]:{form}} | {gain[g]:.2f}× |"
        for name, key, g, form in rows
    ]
    return "\n".join(
        [*lines, "", f"`{found['command']}`, {theirs['version']} built with: {theirs['build']}", ""]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", required=True, help="a Python with llama-cpp-python")
    parser.add_argument("--pyrt", default=sys.executable, help="a Python with pyrt (default: this one)")
    parser.add_argument("model", type=Path)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-p", "--n-prompt", type=int, default=512)
    parser.add_argument("-n", "--n-gen", type=int, default=64)
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    args.output = args.output or RESULTS / f"compare_llama-{args.model.stem}.json"
    found = compare(args)
    args.output.parent.mkdir(exist_ok=True)
    args.output.write_text(json.dumps(found, indent=2) + "\n")
    args.output.with_suffix(".md").write_text(table(found))
    print(table(found))


if __name__ == "__main__":
    main()
