"""The compiled module and the wheel: what they need, what they export, how large they are."""

from __future__ import annotations

import os
import re
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from binaries import ROOT, need, run

pytestmark = pytest.mark.build

# The C and C++ run time and nothing else: no OpenMP, no BLAS.
LIBRARIES = {
    "libstdc++.so", "libm.so", "libgcc_s.so", "libc.so", "libpthread.so",
    "ld-linux-x86-64.so", "ld-linux-aarch64.so",
}  # fmt: skip


def stack_is_executable(path: Path) -> bool:
    """glibc 2.41 refuses to load such a library. No PT_GNU_STACK at all means the same."""
    need("readelf")
    rows = re.findall(r"GNU_STACK\s.*", run("readelf", "-lW", path))
    return len(rows) != 1 or "RWE" in rows[0]


def test_stack_is_not_executable(core_file: Path) -> None:
    assert not stack_is_executable(core_file)


def test_the_stack_check_can_fail(tmp_path: Path) -> None:
    need("g++")
    (tmp_path / "a.cc").write_text("int f() { return 1; }\n")
    run("g++", "-shared", "-fPIC", "-Wl,-z,execstack", tmp_path / "a.cc", "-o", tmp_path / "a.so")
    assert stack_is_executable(tmp_path / "a.so")


def test_needs_no_other_libraries(core_file: Path) -> None:
    need("readelf")
    dynamic = run("readelf", "-dW", core_file)
    needed = set(re.findall(r"\(NEEDED\).*\[(.+?)(?:\.\d+)*\]", dynamic))
    assert needed
    assert needed <= LIBRARIES
    assert "RPATH" not in dynamic
    assert "RUNPATH" not in dynamic


def test_exports_two_names(core_file: Path) -> None:
    need("nm")
    lines = run("nm", "--dynamic", "--defined-only", core_file).splitlines()
    assert {line.split()[-1] for line in lines} == {"PyInit__core", "pyrt_kernel_table"}


def test_loading_leaves_the_floating_point_environment_alone(core_file: Path) -> None:
    """A library linked with -ffast-math would switch on flush-to-zero for the whole process."""
    program = "import numpy as np, pyrt; pyrt.cpu(); assert np.float32(1e-40) * np.float32(2) > 0"
    environment = {**os.environ, "PYTHONPATH": str(core_file.parents[1])}
    run(sys.executable, "-c", program, env=environment)


@pytest.fixture(scope="module")
def wheel() -> Path:
    path = os.environ.get("PYRT_TEST_WHEEL")
    if not path:
        pytest.skip("PYRT_TEST_WHEEL names no wheel (pip wheel . --no-deps makes one)")
    return Path(path)


def test_wheel_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size < 5 * 1024 * 1024


def test_wheel_holds_the_package_alone(wheel: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = zipfile.ZipFile(wheel).namelist()
    information = f"pyrt_llm-{project['version']}.dist-info/"
    assert {name.split("/")[0] + "/" for name in names} == {"pyrt/", information}
    package = [name for name in names if name.startswith("pyrt/")]
    cores = [name for name in package if name.endswith(".so")]
    assert len(cores) == 1
    kinds = {Path(name).suffix for name in set(package) - set(cores)}
    assert kinds <= {".py", ".pyi", ".typed", ".html", ".json"}
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "pyrt").rglob("*.py")}
    assert sources | {"pyrt/_core.pyi", "pyrt/py.typed"} <= set(package)
    assert information + "licenses/LICENSE" in names


def test_wheel_metadata(wheel: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    archive = zipfile.ZipFile(wheel)
    information = f"pyrt_llm-{project['version']}.dist-info/"
    metadata = archive.read(information + "METADATA").decode()
    assert f"\nVersion: {project['version']}\n" in metadata
    required = re.findall(r"^Requires-Dist: ([\w-]+)(?!.*extra)", metadata, re.M)
    assert set(required) == {"numpy", "tokenizers", "jinja2", "huggingface-hub", "rich"}
    assert "pyrt = pyrt.cli:main" in archive.read(information + "entry_points.txt").decode()
