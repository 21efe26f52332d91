"""The rules of pyrt/, and those that hold for every file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codebase.scan import functions
from codebase.tree import Complaints, Tree, lines_with, python

# Lowest first. A module imports from its own group or an earlier one, and never in a circle.
PYTHON_LAYERS = [
    "errors _core",
    "tensors header interrupt checks options",
    "strict_json gguf_header safetensors hub",
    "archs gguf checkpoint rope",
    "config source",
    "weights",
    "kv sampling tokenizer chat vocab template stops results",
    "schedule engine params memory",
    "writer generate streams scoring",
    "model",
    "loading",
    "bench perplexity shortcuts",
    "cli __init__ __main__ _locate",
]

MAX_FILE, MAX_FUNCTION, MAX_FORWARD = 400, 60, 120


def imports_of(module: ast.Module, own: str) -> Iterator[tuple[int, str]]:
    """Line and top module of each import from pyrt, but for those that only type checkers see."""
    hidden = {
        id(node)
        for guard in ast.walk(module)
        if isinstance(guard, ast.If) and "TYPE_CHECKING" in ast.unparse(guard.test)
        for node in ast.walk(guard)
    }
    for node in ast.walk(module):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            if node.level:
                yield node.lineno, "a relative import"
            elif node.module == "pyrt":
                names = [alias.name for alias in node.names]
            elif node.module and node.module.startswith("pyrt."):
                names = [node.module.split(".")[1]]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".")[1] for alias in node.names if alias.name.startswith("pyrt.")]
        if id(node) not in hidden:
            yield from ((node.lineno, name) for name in names if name != own)


def python_imports_go_one_way(tree: Tree) -> Complaints:
    level = {name: index for index, names in enumerate(PYTHON_LAYERS) for name in names.split()}
    edges: dict[str, set[str]] = {}
    for path, module in python(tree):
        own = path.removeprefix("pyrt/").removesuffix(".py").split("/")[0]
        if own not in level:
            yield f"{path}: give {own} a place in PYTHON_LAYERS"
            continue
        for line, name in imports_of(module, own):
            if level.get(name, 99) > level[own]:
                yield f"{path}:{line}: {own} must not import {name}"
            edges.setdefault(own, set()).add(name)
    while leaves := [name for name in edges if not edges[name] & edges.keys()]:
        for name in leaves:
            del edges[name]
    if edges:
        yield f"imports in a circle: {', '.join(sorted(edges))}"


def architectures_are_data(tree: Tree) -> Complaints:
    for path, module in python(tree):
        if path == "pyrt/archs.py":
            continue
        for node in ast.walk(module):
            if isinstance(node, ast.Compare):
                sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
                asks = isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn)
                literal = any(re.search(r"['\"]", side) for side in sides)
                arch = any(re.search(r"(?:^|[._])arch(?:itecture|_name)?$", side) for side in sides)
                if asks and literal and arch:
                    yield f"{path}:{node.lineno}: {ast.unparse(node)}"
            elif isinstance(node, ast.Match) and re.search(r"(?:^|[._])arch$", ast.unparse(node.subject)):
                yield f"{path}:{node.lineno}: match over architectures"


def reference_stands_alone(tree: Tree) -> Complaints:
    for path, text in tree.items():
        if path.startswith("tests/reference/"):
            yield from lines_with(r"^\s*(?:from|import)\s+pyrt\b", path, text)


def sizes_stay_small(tree: Tree) -> Complaints:
    for path, text in tree.items():
        if path.endswith((".py", ".h", ".cc", ".def")) and text.count("\n") > MAX_FILE:
            yield f"{path}: {text.count(chr(10))} lines, {MAX_FILE} at most"
        sized: list[tuple[str, int, int]] = []  # name, first line, lines
        if path.endswith((".h", ".cc")):
            sized += functions(text)
        elif path.endswith(".py"):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    sized.append((node.name, node.lineno, (node.end_lineno or 0) - node.lineno + 1))
        for name, line, size in sized:
            limit = MAX_FORWARD if path == "csrc/model/forward.cc" else MAX_FUNCTION
            if size > limit:
                yield f"{path}:{line}: {name} has {size} lines, {limit} at most"


def versions_agree(tree: Tree) -> Complaints:
    project = re.findall(r'^version = "([^"]+)"$', tree.get("pyproject.toml", ""), re.M)
    package = re.findall(r'^__version__ = "([^"]+)"$', tree.get("pyrt/__init__.py", ""), re.M)
    if len(project) != 1 or project != package:
        yield f"pyproject.toml says {project}, pyrt/__init__.py {package}"
