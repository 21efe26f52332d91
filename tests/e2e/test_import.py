"""`import pyrt`: light, and from inside a source folder either working or one clear ImportError."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pyrt
from pyrt import _core

PACKAGE = Path(pyrt.__file__).parent
HEAVY = ["jinja2", "huggingface_hub", "rich", "tokenizers", "asyncio", "torch", "numpy"]
USE = "import pyrt; print(pyrt.cpu()['isa'], pyrt._core.__file__)"


def python(code, cwd, path="", *flags):
    """A fresh interpreter started in ``cwd``, which comes first on its path."""
    environment = {"PYTHONPATH": str(path), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *flags, "-c", code]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture
def clone(tmp_path):
    """A source folder without the compiled core."""
    ignore = shutil.ignore_patterns("_core.*.so", "__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "clone" / "pyrt", ignore=ignore)
    return tmp_path / "clone"


@pytest.fixture
def installed(tmp_path):
    """A folder like site-packages, with an installed pyrt-llm."""

    def install(version, core=True):
        site = tmp_path / "site"
        info = site / f"pyrt_llm-{version}.dist-info"
        info.mkdir(parents=True)
        (site / "pyrt").mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pyrt-llm\nVersion: {version}\n")
        name = Path(_core.__file__).name
        if core:
            shutil.copy(_core.__file__, site / "pyrt" / name)
        (info / "RECORD").write_text(
            f"pyrt/__init__.py,,\npyrt/{name},,\n" if core else "pyrt/__init__.py,,\n"
        )
        return site

    return install


def test_inside_the_clone_the_installed_core_is_found(clone, installed):
    site = installed(pyrt.__version__)
    done = python(USE, clone, site, "-S")
    assert done.returncode == 0, done.stderr
    assert str(site) in done.stdout


@pytest.mark.parametrize("version", [None, "9.9", pyrt.__version__])
def test_inside_the_clone_without_its_core_there_is_one_clear_error(clone, installed, version):
    site = installed(version, core=version == "9.9") if version else ""
    done = python(USE, clone, site, "-S")
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert "pip install" in last
    assert {None: "not installed", "9.9": "9.9"}.get(version, "no compiled core for this Python") in last


def test_importing_alone_needs_no_core(clone):
    assert python("import pyrt; print(pyrt.__version__)", clone, "", "-S").stdout.strip() == pyrt.__version__


def test_nothing_heavy_is_imported():
    done = python(f"import sys, pyrt; print([m for m in {HEAVY} if m in sys.modules])", PACKAGE.parent)
    assert done.stdout.strip() == "[]", done.stderr


def test_loading_imports_nothing_that_it_does_not_need():
    lazy = ["jinja2", "huggingface_hub", "rich", "asyncio", "torch", "transformers"]
    done = python(
        f"import sys, pyrt; pyrt.load; print([m for m in {lazy} if m in sys.modules])", PACKAGE.parent
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("name", sorted(set(pyrt.__all__) - {"__version__"}))
def test_every_public_name_is_there(name):
    assert getattr(pyrt, name) is not None
    assert name in dir(pyrt)


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = pyrt.nothing


@pytest.mark.parametrize("name", ["generate", "perplexity", "chat", "bench"])
def test_functions_stay_functions_when_modules_of_their_name_are_imported(name):
    code = (
        f"import importlib, pyrt; importlib.import_module('pyrt.{name}'); print(type(pyrt.{name}).__name__)"
    )
    done = python(code, PACKAGE.parent)
    assert done.stdout.strip() == "function", done.stderr


def test_a_thread_that_comes_back_after_the_interpreter_ended_aborts_nothing():
    """The daemon thread is in the core, without Python's lock, until the modules are being torn down."""
    code = (
        "import threading, time\n"
        "from pyrt import _core\n"
        "class Late:\n"
        "    def __del__(self, sleep=time.sleep):\n"
        "        sleep(1)\n"
        "late = Late()\n"
        "threading.Thread(target=_core.read_bandwidth, args=(1, 1, 0.4), daemon=True).start()\n"
        "time.sleep(0.1)\n"
    )
    done = python(code, PACKAGE.parent)
    assert (done.returncode, done.stderr) == (0, "")
