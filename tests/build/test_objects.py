"""Objects compiled for one ISA lend nothing to the rest of the program, and run nothing at load time.

An inline function compiled with -mavx512f and kept by the linker crashes the machine that lacks AVX-512, even
if it never asked for such a kernel.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
from pathlib import Path

import pytest
from binaries import ROOT, build, isa_rows, need, run

pytestmark = pytest.mark.build

MACHINE = {"x86_64": ("x86", "any"), "aarch64": ("arm64", "any")}
COPIES = {"memcpy", "memset", "memmove", "memcmp"}  # what a freestanding compiler may call


def isa_objects(folder: Path) -> dict[str, Path]:
    return {path.name.removesuffix(".cc.o"): path for path in folder.glob("CMakeFiles/pyrt_isa_*.dir/**/*.o")}


def symbols(path: Path) -> list[tuple[str, str]]:
    """Kind (one letter of nm) and name of each symbol that the linker sees."""
    need("nm")
    lines = run("nm", "--extern-only", "--no-sort", path).splitlines()
    return [(parts[-2], parts[-1]) for parts in (line.split() for line in lines) if len(parts) >= 2]


def misfits(path: Path, isa: str) -> list[str]:
    """What this object should not have."""
    need("readelf")
    found = []
    for kind, name in symbols(path):
        if kind == "U":
            if name not in COPIES | {"_GLOBAL_OFFSET_TABLE_"}:
                found.append(f"needs {name}")
        elif kind in "WwVvu":
            found.append(f"lends {name} ({kind})")
        elif name != f"pyrt_kernels_{isa}":
            found.append(f"exports {name} ({kind})")
    sections = r"\.(?:init_array|ctors|preinit_array|tbss|tdata|eh_frame)\S*"
    return found + re.findall(sections, run("readelf", "-SW", path))


def test_every_isa_has_its_object(native: Path) -> None:
    names = MACHINE[platform.machine()]
    assert set(isa_objects(native)) == {isa for isa, machine in isa_rows() if machine in names}


def test_isa_objects_hold_their_table_alone(native: Path) -> None:
    for isa, path in isa_objects(native).items():
        assert not misfits(path, isa), isa
        assert [name for kind, name in symbols(path) if kind != "U"] == [f"pyrt_kernels_{isa}"]


@pytest.mark.parametrize(
    "source",
    [
        "#include <vector>\nint f(int n) { std::vector<int> v; v.resize(n); return v[0]; }",
        "int g();\nint at_load = g();",
        "inline int weak(int n) { return n ? weak(n / 2) + 1 : 0; }\nint (*used)(int) = weak;",
        "#include <cmath>\nfloat f(float x) { return std::exp(x); }",
        "int helper() { return 1; }",
    ],
)
def test_the_check_can_fail(source: str, tmp_path: Path) -> None:
    need("g++")
    (tmp_path / "a.cc").write_text(f'{source}\nextern "C" const int pyrt_kernels_a[1]{{1}};\n')
    run("g++", "-std=c++20", "-O2", "-c", tmp_path / "a.cc", "-o", tmp_path / "a.o")
    assert misfits(tmp_path / "a.o", "a")


def test_other_objects_keep_to_the_baseline(native: Path) -> None:
    """No AVX outside of the ISA objects."""
    need("objdump")
    for path in native.glob("CMakeFiles/pyrt_core.dir/**/*.o"):
        listing = run("objdump", "-d", "--no-show-raw-insn", path)
        assert not re.search(r"%[yz]mm|\tv[a-z0-9]+ .*%xmm", listing), path


def last_flags(command: str) -> list[str]:
    """What a compile command finally says about floating point, one word each."""
    verdict: dict[str, str] = {}
    for flag in command.split():
        if match := re.fullmatch(r"-f(?:no-)?(fast-math|math-errno|lto)(?:=.*)?|-f(fp-contract)=\w+", flag):
            verdict[match[1] or match[2]] = flag
    return sorted(verdict.values())


def test_exact_flags_win_over_the_users(tmp_path: Path) -> None:
    need("ninja")
    hostile = "-Ofast -ffast-math -ffp-contract=fast -fmath-errno -flto"
    folder = build(tmp_path / "b", "-GNinja", flags=hostile, target="help")
    commands = json.loads((folder / "compile_commands.json").read_text())
    assert len(commands) > len(isa_rows())
    for entry in commands:
        wanted = ["-ffp-contract=off", "-fno-fast-math", "-fno-lto", "-fno-math-errno"]
        assert last_flags(entry["command"]) == wanted, entry["file"]
        assert re.findall(r" -O\w+", entry["command"])[-1] == " -O3"


@pytest.mark.slow
def test_hostile_flags_change_no_bit(native: Path, tmp_path: Path) -> None:
    flags = "-Ofast -ffast-math -march=native -ffp-contract=fast"
    other = build(tmp_path / "b", flags=flags, target="kernel_hashes")
    hashes = run(native / "kernel_hashes")
    assert hashes
    assert run(other / "kernel_hashes") == hashes


def test_unsupported_platforms_get_one_clear_line(tmp_path: Path) -> None:
    need("cmake")
    command = ["cmake", "-S", str(ROOT), "-B", str(tmp_path)]
    command += ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=sparc64"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    line = "pyrt builds on Linux for x86-64 and aarch64; this is Linux on sparc64."
    assert line in " ".join(done.stderr.split())
