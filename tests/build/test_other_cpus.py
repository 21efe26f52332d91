"""The same bits on CPUs that this machine is not, by qemu-user: x86-64 without AVX, kinds of aarch64."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from pathlib import Path

import pytest
from binaries import build, isa_rows, need, run

pytestmark = [pytest.mark.build, pytest.mark.slow]

CROSS = ["aarch64-linux-gnu-g++", "aarch64-linux-gnu-g++-12", "aarch64-linux-gnu-g++-14"]
ARM_CPUS = {"cortex-a53": {"neon", "scalar"}, "cortex-a76": {"neon_dotprod", "neon", "scalar"},
            "max": {"neon_i8mm", "neon_dotprod", "neon", "scalar"}}  # fmt: skip
WESTMERE = ["qemu-x86_64", "-cpu", "Westmere"]  # 2010: SSE4.2, which NumPy's wheels want, and no AVX


def hashes(output: str) -> set[str]:
    """The lines of kernel_hashes and driver that end in a hash."""
    lines = {line for line in output.splitlines() if re.search(r" [0-9a-f]{16}$", line)}
    assert lines
    return lines


def isas(output: str) -> set[str]:
    return set(re.findall(r"^isa (\w+)$", output, re.M))


@pytest.fixture(scope="module")
def arm_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("qemu-aarch64")
    if ready := os.environ.get("PYRT_TEST_ARM_BUILD"):
        return Path(ready)
    compiler = next((name for name in CROSS if shutil.which(name)), None)
    if compiler is None:
        pytest.skip("not installed: a compiler for aarch64")
    target = ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64"]
    return build(tmp_path_factory.mktemp("aarch64"), *target, f"-DCMAKE_CXX_COMPILER={compiler}")


def on_arm(cpu: str, program: Path, *arguments: str) -> str:
    return run("qemu-aarch64", "-cpu", cpu, "-L", "/usr/aarch64-linux-gnu", program, *arguments)


@pytest.mark.parametrize("cpu", ARM_CPUS)
def test_kernels_on_aarch64(cpu: str, native: Path, arm_build: Path) -> None:
    output = on_arm(cpu, arm_build / "kernel_hashes")
    assert isas(output) == ARM_CPUS[cpu]
    assert hashes(output) == hashes(run(native / "kernel_hashes"))


def test_whole_model_on_aarch64(native: Path, arm_build: Path) -> None:
    assert hashes(on_arm("max", arm_build / "driver")) == hashes(run(native / "driver"))


@pytest.mark.parametrize("program", ["test_cpu", "test_pool", "test_pool_process"])
def test_base_on_aarch64(program: str, arm_build: Path) -> None:
    on_arm("cortex-a53", arm_build / program, "--no-fork")


@pytest.fixture
def westmere() -> list[str]:
    need("qemu-x86_64")
    if platform.machine() != "x86_64":
        pytest.skip("this machine's programs are not x86-64")
    return WESTMERE


def test_kernels_without_avx(westmere: list[str], native: Path) -> None:
    output = run(*westmere, native / "kernel_hashes")
    assert isas(output) == {"scalar"}
    assert hashes(output) == hashes(run(native / "kernel_hashes"))


def test_this_machine_runs_what_it_has(native: Path) -> None:
    """No kernel is left out of the comparison without a word."""
    names = {"x86_64": ("x86", "any"), "aarch64": ("arm64", "any")}[platform.machine()]
    rows = {isa for isa, machine in isa_rows() if machine in names}
    ran = isas(run(native / "kernel_hashes"))
    assert "scalar" in ran <= rows
    if ran != rows:
        pytest.skip(f"this CPU lacks {', '.join(sorted(rows - ran))}; the others agree")


def tiny_model(path: Path) -> Path:
    """A random llama with a vocabulary of bytes, complete enough to generate text."""
    pytest.importorskip("gguf")
    from reference.tiny import tiny
    from reference.to_gguf import write_gguf

    knobs, tensors = tiny("llama")
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]  # GPT-2's alphabet for bytes
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]
    tokens = [*alphabet, "ab", *(f"<unused{i}>" for i in range(knobs["n_vocab"] - 257))]
    keys = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "merges": ["a b"]}
    keys["token_type"] = [1] * len(tokens)
    extra = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    return write_gguf(path, "llama", knobs, tensors, extra=extra)


PROGRAM = """
import sys, pyrt
model = pyrt.load(sys.argv[1], threads=1)
answer = model.generate(sys.argv[2], max_tokens=3, temperature=0)
print(pyrt.cpu()["isa"], answer.tokens, repr(answer.text))
"""


def test_import_and_generation_without_avx(westmere: list[str], core_file: Path, tmp_path: Path) -> None:
    """Text from the real model if it is there, from a random one otherwise; the same as on this CPU."""
    models = os.environ.get("PYRT_TEST_MODELS")
    path = Path(models) / "smollm2.gguf" if models else tiny_model(tmp_path / "tiny.gguf")
    environment = {**os.environ, "PYTHONPATH": str(core_file.parents[1]), "HF_HUB_OFFLINE": "1"}
    environment.pop("PYRT_ISA", None)
    command = [sys.executable, "-c", PROGRAM, path, "The capital of France is"]
    there = run(*westmere, *command, env=environment).split(" ", 1)
    here = run(*command, env=environment).split(" ", 1)
    assert there[0] == "scalar"
    assert there[1] == here[1]
    if models:
        assert " Paris" in there[1]
