"""What the sides of bench/compare.py share: the names of tests, the prompt, and the loop over tests."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

# 16 tokens in the vocabularies of SmolLM2 and of bench/make_model.py, about as many in others.
PROMPT = "The capital of France is Paris, and the capital of Italy is Rome. The"


class Case(NamedTuple):
    """``pp512``, ``tg64``, ``tg64@4096`` (at that depth), ``tg32x8`` (so many sequences), ``tg32x8@512``."""

    name: str
    phase: str
    n: int
    batch: int
    depth: int

    @property
    def context(self) -> int:
        """Tokens of one sequence at the end."""
        return self.depth + self.n + 1


def parse(name: str) -> Case:
    """ValueError for what is no test of speed; prompts are not measured in batches."""
    found = re.fullmatch(r"(pp|tg)([1-9]\d*)(?:x([1-9]\d*))?(?:@(\d+))?", name)
    if not found or (found[1] == "pp" and found[3]):
        raise ValueError(f"{name!r} is no test like pp512, tg64, tg64@4096 or tg32x8")
    return Case(name, found[1], int(found[2]), int(found[3] or 1), int(found[4] or 0))


def only_single(test: Case) -> None:
    """For a side whose API cannot do the rest."""
    if test.batch > 1 or test.depth:
        raise NotImplementedError("its script measures neither batches nor depths")


def converted(options: dict[str, str]) -> str:
    """The folder that a side reads instead of the GGUF file."""
    if "model" not in options:
        raise ValueError("it reads no GGUF: convert the file (its script tells how) and give model=FOLDER")
    return options["model"]


def one_line(error: BaseException) -> str:
    """The last line that says something, without the folders of one machine."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__
    return without_folders(text)[:200]


def without_folders(text: str) -> str:
    return re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+", "", text)


def measure(tests: list[str], run: Callable[[Case], float], repetitions: int) -> dict[str, Any]:
    """{"tests": {name: tokens/s of each repetition}, "errors": {name: why}}; the tests take turns."""
    speeds: dict[str, list[float]] = {}
    errors: dict[str, str] = {}
    for _ in range(repetitions):
        for test in map(parse, tests):
            if test.name in errors:
                continue
            try:
                speeds.setdefault(test.name, []).append(run(test))
            except Exception as error:
                errors[test.name] = one_line(error)
                speeds.pop(test.name, None)
    return {"tests": {name: found for name, found in speeds.items() if found}, "errors": errors}
