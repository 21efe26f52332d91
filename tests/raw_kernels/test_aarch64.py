"""The AArch64 kernels under qemu-aarch64 compute what those of this machine compute, to the last bit."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from raw_kernels.ctable import CSRC
from raw_kernels.mutations import EXACT, FLAGS, ROOT

pytestmark = [pytest.mark.slow, pytest.mark.build]

PROGRAM = ROOT / "tests/cpp/kernel_hashes.cc"
SHARED = [CSRC / "kernels/registry.cc", CSRC / "base/cpu.cc"]
ARM_FLAGS = {"scalar": [], "neon": [], "neon_dotprod": ["-march=armv8.2-a+dotprod"],
             "neon_i8mm": ["-march=armv8.2-a+dotprod+i8mm"]}  # fmt: skip
# What the CPU has beyond AArch64 decides which kernels run.
CPUS = {
    "cortex-a53": {"scalar", "neon"},
    "cortex-a76": {"scalar", "neon", "neon_dotprod"},
    "max": {"scalar", "neon", "neon_dotprod", "neon_i8mm"},
}


def compiled(compiler: str, flags: dict[str, list[str]], folder: Path) -> Path:
    """kernel_hashes with the kernels of these ISAs, statically linked."""
    common = [compiler, "-std=c++20", "-O2", "-w", f"-I{CSRC}", *EXACT]
    objects = []
    for isa, special in flags.items():
        objects.append(folder / f"{isa}.o")
        source = CSRC / f"kernels/isa/{isa}.cc"
        subprocess.run([*common, "-ffreestanding", *special, "-c", source, "-o", objects[-1]], check=True)
    program = folder / "kernel_hashes"
    subprocess.run([*common, "-static", PROGRAM, *SHARED, *objects, "-o", program], check=True)
    return program


def hashes(command: list[str | Path]) -> dict[str, dict[str, str]]:
    """ISA -> kernel -> hash, as the program prints them; it fails where two ISAs differ."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, dict[str, str]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("isa "):
            kernels = found[line.removeprefix("isa ")] = {}
        else:
            match = re.fullmatch(r"(.+) ([0-9a-f]{16})", line)
            assert match, line
            kernels[match[1]] = match[2]
    return found


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The hashes of this machine's kernels."""
    if platform.machine() != "x86_64" or not shutil.which("g++"):
        pytest.skip("needs an x86-64 machine and g++")
    return hashes([compiled("g++", FLAGS, tmp_path_factory.mktemp("here"))])["scalar"]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program for AArch64."""
    compiler = next(filter(shutil.which, ["aarch64-linux-gnu-g++", "aarch64-linux-gnu-g++-12"]), None)
    if not compiler or not shutil.which("qemu-aarch64"):
        pytest.skip("needs aarch64-linux-gnu-g++ and qemu-aarch64 (apt: g++-aarch64-linux-gnu, qemu-user)")
    return compiled(compiler, ARM_FLAGS, tmp_path_factory.mktemp("there"))


@pytest.mark.parametrize("cpu", CPUS)
def test_same_hashes(cpu: str, here: dict[str, str], there: Path) -> None:
    found = hashes(["qemu-aarch64", "-cpu", cpu, there])
    assert set(found) == CPUS[cpu]
    for isa, kernels in found.items():
        assert kernels == here, isa
