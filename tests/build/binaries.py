"""Build the programs of tests/cpp and run tools on binaries."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    """Standard output of a command; its whole output in the error if it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=env)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def need(*tools: str) -> None:
    """Skip the test, and say so, if a tool is not installed."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def build(folder: Path, *options: str, flags: str = "", target: str = "all") -> Path:
    """Configure and build the programs of tests/cpp into a folder."""
    need("cmake")
    if not any(shutil.which(compiler) for compiler in (os.environ.get("CXX", "c++"), "g++", "clang++")):
        pytest.skip("no C++ compiler")
    environment = {**os.environ, "CXXFLAGS": flags}
    run("cmake", "-S", ROOT, "-B", folder, "-DPYRT_PYTHON=OFF", *options, env=environment)
    run("cmake", "--build", folder, "--parallel", "2", "--target", target)
    return folder


def isa_rows() -> list[tuple[str, str]]:
    """Name and machine of each row of isas.def."""
    rows = (ROOT / "csrc" / "kernels" / "isas.def").read_text()
    return re.findall(r"^ISA\((\w+),\s*(\w+),", rows, re.M)
