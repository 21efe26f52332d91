"""Builds the wrong kernels that mutations.txt describes, one after the other, and runs the tests on each.

``python tests/raw_kernels/mutations.py [word]`` takes those whose block has the word.  One that passes is
a gap in them, and the exit status says so.  test_mutations.py does the same in pytest.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX512 = [*AVX2, *(f"-mavx512{part}" for part in ("f", "bw", "vl", "dq", "vnni"))]
AMX = [*AVX512, "-mamx-tile", "-mamx-int8", "-mamx-bf16"]
FLAGS = {"scalar": [], "avx2": AVX2, "avxvnni": [*AVX2, "-mavxvnni"], "avx512": AVX512, "amx": AMX}
EXACT = ["-fno-fast-math", "-fno-math-errno", "-ffp-contract=off"]


class Mutation(NamedTuple):
    """In csrc/``file``, ``old`` (there once) becomes ``new``; test_``test``.py on ``isa`` must fail."""

    file: str
    test: str
    isa: str
    wrong: str
    old: str
    new: str


def read(text: str) -> list[Mutation]:
    """The blocks of mutations.txt behind its preface."""
    found = []
    for block in text.strip().split("\n\n")[1:]:
        head, *lines = block.split("\n")
        where, wrong = head.split(": ", 1)
        file, test, isa = where.split()
        old, new = ("\n".join(line[2:] for line in lines if line[:2] == mark) for mark in ("- ", "+ "))
        found.append(Mutation(file, test, isa, wrong, old, new))
    return found


MUTATIONS = read((Path(__file__).parent / "mutations.txt").read_text())

TABLE = """
#include <cstring>
#include "kernels/table.h"
extern "C" const pyrt_kernels pyrt_kernels_scalar, pyrt_kernels_ISA;
extern "C" const pyrt_kernels* pyrt_kernel_table(const char* isa) {
  if (std::strcmp(isa, "ISA") == 0) return &pyrt_kernels_ISA;
  return std::strcmp(isa, "scalar") == 0 ? &pyrt_kernels_scalar : nullptr;
}
"""


def build(csrc: Path, isa: str, folder: Path) -> Path:
    """A library with that ISA and the scalar one, from the sources in ``csrc``, quickly compiled."""
    (folder / "table.cc").write_text(TABLE.replace("ISA", isa))
    compiler = [os.environ.get("CXX", "g++"), "-std=c++20", "-O1", "-w", "-fPIC", f"-I{csrc}", *EXACT]
    objects = []
    for name in {isa, "scalar"}:
        objects.append(str(folder / f"{name}.o"))
        source = str(csrc / f"kernels/isa/{name}.cc")
        subprocess.run([*compiler, *FLAGS[name], "-c", source, "-o", objects[-1]], check=True)
    library = folder / "kernels.so"
    subprocess.run([*compiler, "-shared", str(folder / "table.cc"), *objects, "-o", str(library)], check=True)
    return library


def tests_pass(library: Path, test: str, isa: str) -> bool:
    """Runs test_<test>.py on the library; a crash is a failure too."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
    command += [f"tests/raw_kernels/test_{test}.py", "-k", isa]
    env = {**os.environ, "PYRT_KERNELS_SO": str(library)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode > 1:
        raise RuntimeError(f"pytest could not run (status {done.returncode}):\n{done.stdout}{done.stderr}")
    return done.returncode == 0


def caught(mutation: Mutation) -> bool:
    """Whether the tests notice."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "csrc", folder / "csrc")
        path = folder / "csrc" / mutation.file
        text = path.read_text()
        if text.count(mutation.old) != 1:
            raise RuntimeError(
                f"{mutation.file} has {mutation.old!r} {text.count(mutation.old)} times, not once"
            )
        path.write_text(text.replace(mutation.old, mutation.new))
        return not tests_pass(build(folder / "csrc", mutation.isa, folder), mutation.test, mutation.isa)


def sound(isa: str, test: str) -> bool:
    """Whether the sources as they are pass the tests that the mutations must fail."""
    with tempfile.TemporaryDirectory() as name:
        return tests_pass(build(ROOT / "csrc", isa, Path(name)), test, isa)


def main(word: str = "") -> int:
    """Every mutation whose block has the word; the exit status."""
    if platform.machine() != "x86_64":
        print("the mutations are written for x86-64")
        return 0
    chosen = [m for m in MUTATIONS if any(word in part for part in m)]
    pairs = sorted({(m.isa, m.test) for m in chosen})
    missed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for pair, good in zip(pairs, pool.map(lambda pair: sound(*pair), pairs), strict=True):
            if not good:
                print("the tests fail without any mutation:", *pair)
                return 1
        for mutation, noticed in zip(chosen, pool.map(caught, chosen), strict=True):
            missed += not noticed
            print("caught" if noticed else "MISSED", f"{mutation.file}: {mutation.wrong}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
