"""A tree of files as the rules see it: a dict from path (from the root of the repository) to text."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
Tree = dict[str, str]
Complaints = Iterator[str]


def read_tree() -> Tree:
    """What git tracks or would track; everything, where there is no git (in an unpacked sdist)."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.split()
    names = names or [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]
    kinds = (".py", ".pyi", ".h", ".cc", ".def", ".toml", ".txt")
    chosen = [name for name in names if name.endswith(kinds) and not name.startswith(("build/", "dist/"))]
    return {name: (ROOT / name).read_text("utf-8") for name in chosen if (ROOT / name).is_file()}


def cxx(tree: Tree, *folders: str) -> Iterator[tuple[str, str]]:
    """Path and text of the C++ files below csrc/<folder>, or of all in csrc."""
    wanted = tuple(f"csrc/{folder}" for folder in folders) or ("csrc/",)
    for path, text in tree.items():
        if path.startswith(wanted) and path.endswith((".h", ".cc", ".def")):
            yield path, text


def python(tree: Tree, folder: str = "pyrt/") -> Iterator[tuple[str, ast.Module]]:
    """Path and syntax tree of the Python files below a folder."""
    for path, text in tree.items():
        if path.startswith(folder) and path.endswith(".py"):
            yield path, ast.parse(text)


def lines_with(pattern: str, path: str, text: str) -> Iterator[str]:
    """One complaint a line that has the pattern."""
    for number, line in enumerate(text.split("\n"), 1):
        if found := re.search(pattern, line):
            yield f"{path}:{number}: {found[0]}"
