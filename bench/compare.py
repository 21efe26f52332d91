"""pyrt beside other runtimes: one run, in turn (A B A B), the same files, the same number of threads.

    python bench/compare.py [--pyrt PYTHON] --peer llama.cpp=PYTHON[,flash_attn=0] [--peer NAME=PYTHON ...]
        MODEL.gguf [MODEL.gguf ...] [--tests pp512,tg64,first] [-t 2] [-r 3] [--isa avx2] [-o NAME] [--plot]

Each round runs every side in a fresh process of its own Python. The tests:

    ppN     a prompt of N random tokens, tokens/s            tgN@D, ppN@D   after D other tokens
    tgN     generating N tokens, tokens/s                    tgNxB          B sequences, the sum of tokens/s
    first   seconds from the start of Python to the first token after a prompt of 16, several times a round
    memory  peak of resident memory of the processes of ``first`` and of the speed tests, with mapped files

Peers are named llama.cpp, ik_llama.cpp, openvino, ctranslate2, onnxruntime and mistralrs; bench/peers tells
their options. ``model=FOLDER`` is for those that read no GGUF ({stem} stands for the file's name without its
ending), ``label=TEXT`` tells two of one kind apart. --isa forces pyrt's instructions; the peers' are those
that they were built for. Writes NAME.json and NAME.md, with --plot NAME-*.png.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compare_report import plot, table
from machine import ROOT, circumstances, sha256
from peers.spec import PROMPT, Case, parse, without_folders

RESULTS = ROOT / "bench" / "results"
PEERS = ROOT / "bench" / "peers"
SCRIPTS = {
    "llama.cpp": "llama_cpp",
    "ik_llama.cpp": "ik_llama_cpp",
    "openvino": "openvino_genai",
    "ctranslate2": "ctranslate2",
    "onnxruntime": "onnxruntime_genai",
    "mistralrs": "mistralrs",
}
FIRSTS = 3  # starts a round
# Byte code may be kept, as it is where a package is installed and not run from its sources.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


@dataclass
class Answer:
    """What a process said, or why it failed; seconds to the first byte; peak bytes of resident memory.

    ``others``: how many CPUs all other processes kept busy in the meantime.
    """

    text: str
    seconds: float
    peak_bytes: int
    error: str | None
    others: float


@dataclass(frozen=True)
class Side:
    """One runtime: how it is started, and the options of its script."""

    name: str
    script: str
    python: str
    options: dict[str, str]
    environment: dict[str, str] = field(default_factory=dict)

    def ask(self, job: str, model: Path, timeout: float, **request: Any) -> Answer:
        options = {key: value.replace("{stem}", model.stem) for key, value in self.options.items()}
        said = json.dumps({"model": str(model.resolve()), "options": options, **request})
        return run([self.python, str(PEERS), self.script, job, said], ENVIRONMENT | self.environment, timeout)


def run(command: list[str], environment: dict[str, str], timeout: float) -> Answer:
    """Away from this repository, whose sources would hide an installed pyrt."""
    with tempfile.TemporaryFile() as complaints:
        began, busy = time.perf_counter(), busy_seconds()
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=complaints, env=environment, cwd="/", bufsize=0
        )
        assert process.stdout is not None
        timer = threading.Timer(timeout, process.kill)
        timer.start()
        text = process.stdout.read(1)
        seconds = time.perf_counter() - began
        text += process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        others = busy_seconds() - busy - usage.ru_utime - usage.ru_stime
        others = max(0.0, others) / (time.perf_counter() - began)
        late = not timer.is_alive()
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        complaints.seek(0)
        lines = [line.strip() for line in complaints.read().decode("utf-8", "replace").splitlines()]
    error = None
    if process.returncode or not text:
        said = [line for line in lines if line] or ["it said nothing"]
        telling = [line for line in said if re.search(r"ASSERT|[Ee]rror\b|[Ee]xception\b", line)]
        last = (telling or said)[-1]
        how = f"no end after {timeout:.0f} s" if late else f"ended with {process.returncode}"
        error = without_folders(f"{how}: {last}")[:240]
    return Answer(text.decode("utf-8", "replace"), seconds, usage.ru_maxrss * 1024, error, others)


def busy_seconds() -> float:
    """What all processes together have used of all CPUs (proc_stat(5): user, nice, system)."""
    with open("/proc/stat") as file:
        return sum(map(int, file.readline().split()[1:4])) / os.sysconf("SC_CLK_TCK")


class Comparison:
    """One model: what was measured, by row of the table and side, and why something was not."""

    def __init__(self, model: Path, sides: list[Side], args: argparse.Namespace) -> None:
        self.model, self.sides, self.args = model, sides, args
        self.speeds: list[Case] = [parse(name) for name in args.tests if name not in ("first", "memory")]
        self.measured: dict[str, dict[str, list[float]]] = {}
        self.notes: dict[str, dict[str, str]] = {}
        self.about: dict[str, dict[str, str]] = {}
        self.limits: list[dict[str, Any]] = []
        self.others: dict[str, list[float]] = {}  # of the speed tests
        self.rows = [name for name in args.tests if name != "memory"]
        if "memory" in args.tests:
            self.rows += ["memory of first"] + ["memory of speed"] * bool(self.speeds)

    def keep(self, row: str, side: Side, *values: float) -> None:
        self.measured.setdefault(row, {}).setdefault(side.name, []).extend(values)

    def note(self, row: str, side: Side, why: str) -> None:
        self.notes.setdefault(side.name, {})[row] = why
        print(f"{self.model.name}: {side.name}: {row}: {why}", file=sys.stderr)

    def measure(self, peaks: Peaks) -> None:
        for side in self.sides:  # files into the page cache, byte code onto the disk
            self.first(side, warm_up=True)
        for done in range(self.args.rounds):
            for side in self.sides:
                self.speed(side)
            for _ in range(FIRSTS):
                for side in self.sides:
                    self.first(side)
            self.limit(self.sides[0], peaks)
            print(f"{self.model.name}: round {done + 1} of {self.args.rounds}", file=sys.stderr)

    def speed(self, side: Side) -> None:
        """One process for all tests. What fails is not tried again in later rounds."""
        failed = self.notes.get(side.name, {})
        if wanted := [test.name for test in self.speeds if test.name not in failed]:
            self.speed_of(side, wanted)

    def speed_of(self, side: Side, wanted: list[str]) -> None:
        answer = side.ask(
            "speed",
            self.model,
            self.args.timeout,
            threads=self.args.threads,
            tests=wanted,
            repetitions=self.args.repetitions,
        )
        if answer.error and len(wanted) > 1:  # which of them was it?
            for name in wanted:
                self.speed_of(side, [name])
            return
        if answer.error:
            self.note(wanted[0], side, answer.error)
            return
        found = json.loads(answer.text)
        for name, why in found["errors"].items():
            self.note(name, side, why)
        for name, values in found["tests"].items():
            self.keep(name, side, statistics.median(values))
        self.keep("memory of speed", side, answer.peak_bytes / 1e6)
        self.others.setdefault(side.name, []).append(round(answer.others, 2))
        self.about[side.name] = {key: found[key] for key in ("version", "build")}

    def limit(self, side: Side, peaks: Peaks) -> None:
        """What the machine can do, in a process of its own."""
        names = [test.name for test in self.speeds]
        if not names or "limit" in self.notes.get(side.name, {}):
            return
        answer = side.ask("limits", self.model, self.args.timeout, threads=self.args.threads, tests=names)
        if answer.error:
            self.note("limit", side, answer.error)
            return
        found = json.loads(answer.text)
        self.limits.append({**found, "peak": peaks.measure(found["isa"])})

    def first(self, side: Side, *, warm_up: bool = False) -> None:
        if not {"first", "memory"} & set(self.args.tests) or "first" in self.notes.get(side.name, {}):
            return
        answer = side.ask("first", self.model, self.args.timeout, threads=self.args.threads, prompt=PROMPT)
        if answer.error:
            self.note("first", side, answer.error)
        elif not warm_up:
            self.keep("first", side, answer.seconds)
            self.keep("memory of first", side, answer.peak_bytes / 1e6)

    def summary(self) -> dict[str, Any]:
        """Medians of the rounds by row, and all rounds."""
        kept = {row: self.measured.get(row, {}) for row in self.rows}
        medians = {row: {name: statistics.median(v) for name, v in by.items()} for row, by in kept.items()}
        return {
            "model": self.model.name,
            "bytes": self.model.stat().st_size,
            "sha256": sha256(self.model),
            "sides": self.about,
            "results": medians,
            "limits": limits(self.speeds, self.limits, self.args.threads),
            "notes": self.notes,
            "others": self.others,
            "rounds": kept,
            "limit_rounds": self.limits,
        }


class Peaks:
    """Operations a second of one thread, by arithmetic, from bench/kernels.py; ``why`` if there are none.

    In a process of its own: what this one holds would count as the memory of the processes that it starts.
    """

    def __init__(self) -> None:
        self.why: str | None = None
        self.environment = ENVIRONMENT | where_pyrt_is(sys.executable)

    def measure(self, isa: str) -> dict[str, float]:
        """{"int8": operations/s, "float": operations/s}, or less."""
        if self.why:
            return {}
        command = [
            sys.executable,
            str(ROOT / "bench" / "kernels.py"),
            "--json",
            "--isa",
            isa,
            "--kernel",
            "-",
        ]
        answer = run(command, self.environment, 60)
        found = {} if answer.error else json.loads(answer.text)["peaks"]
        float_isa = "avx2" if isa == "avxvnni" else isa
        names = {"int8": f"int8_{isa}", "float": f"float_{float_isa}"}
        if isa == "amx":  # its prompts are multiplied in bf16
            names = dict.fromkeys(names, "bf16_amx")
        if not found:
            self.why = f"the peak of multiplying is unknown: {answer.error or 'peaks.c does not compile'}"
            print(self.why, file=sys.stderr)
        return {kind: found[name] for kind, name in names.items() if name in found}


def limits(tests: list[Case], rounds: list[dict[str, Any]], threads: int) -> dict[str, dict[str, Any]]:
    """{test: {"tokens_per_s": the least of those that are known, and what it comes from}}.

    Reading: a step reads the weights and each sequence's K and V at the measured bandwidth. Multiplying: each
    weight of the layers is two operations for a token, and those of the head for a generated one.
    """
    found: dict[str, dict[str, Any]] = {}
    for test in tests:
        bounds: dict[str, list[float]] = {"reading": [], "multiplying": []}
        for one in rounds:
            if test.name in one["step_bytes"]:
                read = one["read_gb_per_s"] * 1e9
                bounds["reading"].append(test.batch * read / one["step_bytes"][test.name])
            heads = 1 if test.phase == "tg" else 1 / test.n
            weights = {kind: n + heads * one["head"][kind] for kind, n in one["layers"].items()}
            peak = one["peak"]
            if all(kind in peak for kind, n in weights.items() if n):
                seconds = sum(2 * n / (threads * peak[kind]) for kind, n in weights.items() if n)
                bounds["multiplying"].append(1 / seconds)
        known = {by: statistics.median(values) for by, values in bounds.items() if values}
        if known:
            by = min(known, key=lambda name: known[name])
            found[test.name] = {"tokens_per_s": known[by], "by": by}
    return found


def peer(text: str) -> Side:
    """``name=PYTHON[,option=value...]``."""
    name, _, rest = text.partition("=")
    python, *options = rest.split(",")
    if name not in SCRIPTS or not python:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PYTHON with a name of {', '.join(SCRIPTS)}")
    return side(name, SCRIPTS[name], python, options)


def side(name: str, script: str, python: str, options: list[str], **environment: str) -> Side:
    chosen = dict(option.split("=", 1) for option in options)
    label = chosen.pop("label", None)
    shown = [f"{key}={value}" for key, value in chosen.items() if key != "model"]
    return Side(label or ", ".join([name, *shown]), script, python, chosen, environment)


def pyrt_side(text: str, isa: str | None) -> Side:
    """The installed pyrt, or where there is none, the sources of this repository."""
    python, *options = text.split(",")
    environment = ({"PYRT_ISA": isa} if isa else {}) | where_pyrt_is(python)
    return side("pyrt", "pyrt_runtime", python, options, **environment)


def where_pyrt_is(python: str) -> dict[str, str]:
    command = [python, "-c", "import pyrt"]
    done = subprocess.run(command, cwd="/", env=ENVIRONMENT, capture_output=True, check=False)
    return {"PYTHONPATH": str(ROOT)} if done.returncode else {}


def tests(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in ("first", "memory"):
            parse(name)
    return list(dict.fromkeys(names))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pyrt", default=sys.executable, metavar="PYTHON", help="default: this Python")
    parser.add_argument("--peer", type=peer, action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL.gguf")
    parser.add_argument("--tests", type=tests, default="pp512,pp2048,tg64,tg64@4096,tg32x8,first,memory")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("--repetitions", type=int, default=1, help="of each test within a round's process")
    parser.add_argument("--isa", help="pyrt's instruction set")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for one process")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "compare", metavar="NAME")
    parser.add_argument("--plot", action="store_true")
    args = parser.parse_args()
    sides = [pyrt_side(args.pyrt, args.isa), *args.peer]
    if len({each.name for each in sides}) < len(sides):
        parser.error("two sides have the same name: give them a label=")
    found: dict[str, Any] = {
        **circumstances(),
        "threads": args.threads,
        "isa": args.isa,
        "tests": args.tests,
        "sides": [each.name for each in sides],
        "models": [],
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    peaks = Peaks()
    for model in args.models:
        comparison = Comparison(model, sides, args)
        comparison.measure(peaks)
        found["models"].append(comparison.summary())
        found["limits_note"] = peaks.why
        args.output.with_name(args.output.name + ".json").write_text(json.dumps(found, indent=2) + "\n")
    args.output.with_name(args.output.name + ".md").write_text(table(found))
    print(table(found))
    if args.plot:
        plot(found, args.output)


if __name__ == "__main__":
    main()
