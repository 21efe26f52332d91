"""``pyrt doctor`` and ``pyrt version``."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from pyrt.cli.console import memory, print_facts, print_json, size
from pyrt.hub import cache_dir
from pyrt.hub.hf_cache import hub_cache

LIBRARIES = ("numpy", "tokenizers", "jinja2", "huggingface-hub", "rich", "pip")
BANDWIDTH_MB = 256  # far more than caches hold


def version_line() -> str:
    import pyrt

    return f"pyrt {pyrt.__version__} (Python {platform.python_version()}, {platform.machine()})"


def version(args: argparse.Namespace) -> None:
    print(version_line())


def doctor(args: argparse.Namespace) -> int:
    """Print what was found; exit code 1 if something is wrong."""
    facts = examine()
    if args.json:
        print_json(facts)
    else:
        print_facts(_lines(facts))
    return 1 if facts["problems"] else 0


def examine() -> dict[str, Any]:
    """Everything that `pyrt doctor` tells, as data."""
    import pyrt

    cpu = dict(pyrt.cpu())
    return {
        "pyrt": pyrt.__version__,
        "python": f"{platform.python_version()} at {sys.executable}",
        "system": platform.platform(),
        "libraries": {name: _library(name) for name in LIBRARIES},
        "cpu": cpu,
        "threads_why": threads_why(cpu),
        "read_gb_per_s": {threads: read_bandwidth(threads) for threads in sorted({1, cpu["threads"] or 1})},
        "caches": {"pyrt": _folder(cache_dir()), "hugging_face": _folder(hub_cache())},
        "problems": problems(cpu),
    }


def read_bandwidth(threads: int) -> float | None:
    """GB/s that so many threads read from memory together; None where the core cannot measure it."""
    from pyrt import _core

    measure = getattr(_core, "read_bandwidth", None)
    return None if measure is None else float(measure(BANDWIDTH_MB, threads))


def threads_why(cpu: dict[str, Any]) -> str:
    """The arithmetic behind the default number of threads."""
    bounds = [f"affinity {cpu['affinity']}", f"physical cores {cpu['physical_cores']}"]
    if cpu.get("quota") is not None:
        bounds.append(f"cgroup quota {cpu['quota']:g}")
    for variable in ("PYRT_THREADS", "OMP_NUM_THREADS"):
        if os.environ.get(variable):
            bounds.append(f"{variable}={os.environ[variable]}")
    return f"the least of {', '.join(bounds)}"


def problems(cpu: dict[str, Any]) -> list[str]:
    """What keeps pyrt from working, or from working well, one line each."""
    found = [cpu[key] for key in ("isa_problem", "threads_problem") if cpu[key]]
    if cpu["isa"] == "scalar":
        found.append(
            "only the scalar kernels can run here: " + "; ".join(f"{k}: {v}" for k, v in cpu["why"].items())
        )
    quota = cpu.get("quota")
    if quota is not None and quota < 1:
        found.append(f"the cgroup grants {quota:g} of a CPU: every step will be throttled")
    if _library("pip") is None:
        found.append("pip is missing, so the default model cannot be fetched: python -m ensurepip")
    for name in ("numpy", "tokenizers", "jinja2", "huggingface-hub", "rich"):
        if _library(name) is None:
            found.append(f"the package {name} is missing")
    for folder in (cache_dir(), hub_cache()):
        existing = _existing(folder)
        if not existing.is_dir():
            found.append(
                f"{folder} cannot be a folder, since {existing} is none: models cannot be fetched into it"
            )
        elif not os.access(existing, os.W_OK | os.X_OK):
            found.append(f"{folder} cannot be written: models cannot be fetched into it")
        elif shutil.disk_usage(existing).free < 1 << 30:
            found.append(f"{folder} has {size(shutil.disk_usage(existing).free)} left")
    return found


def _lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    cpu = facts["cpu"]
    lines = [("pyrt", facts["pyrt"]), ("python", facts["python"]), ("system", facts["system"])]
    lines += [
        ("libraries", ", ".join(f"{name} {found or 'missing'}" for name, found in facts["libraries"].items()))
    ]
    caches = ", ".join(
        f"{level.upper()} {memory(cpu[level])}" for level in ("l1d", "l2", "l3") if cpu.get(level)
    )
    lines += [("cpu", str(cpu["model_name"])), ("caches", caches)]
    lines += [("isa", f"{cpu['isa'] or 'none'}{' (PYRT_ISA)' if os.environ.get('PYRT_ISA') else ''}")]
    lines += [(f"  {isa}", why or "available") for isa, why in cpu["why"].items()]
    threads = f"{cpu['threads']}: {facts['threads_why']}" if cpu["threads"] else "none (PYRT_THREADS)"
    lines += [("threads", threads)]
    for threads, speed in facts["read_gb_per_s"].items():
        measured = "not measured" if speed is None else f"{speed:.1f} GB/s"
        lines.append((f"read bandwidth, {threads} thread{'s' * (threads != 1)}", measured))
    lines += [(f"cache of {name}".replace("_", " "), text) for name, text in facts["caches"].items()]
    lines += [("problem", text) for text in facts["problems"]] or [("problems", "none")]
    return lines


def _library(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _folder(folder: Path) -> str:
    used = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return f"{folder} ({size(used)} used, {size(shutil.disk_usage(_existing(folder)).free)} free)"


def _existing(folder: Path) -> Path:
    return folder if folder.exists() else _existing(folder.parent)
