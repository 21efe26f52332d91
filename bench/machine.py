"""What a stored figure must carry to mean anything later: machine, versions, date, command."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def circumstances() -> dict[str, Any]:
    """The facts to store beside a result."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python", *_shown(sys.argv)]),
        "commit": _commit(),
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _shown(argv: list[str]) -> list[str]:
    """A command without the folders of one machine, also in words like ``name=/path,option=/path``."""
    return [re.sub(r"(?:(?<=[=,])|^)/[^,=\s]+", lambda path: _shown_word(path[0]), word) for word in argv]


def _shown_word(path: str) -> str:
    if path.startswith(str(ROOT)):
        return os.path.relpath(path, ROOT)
    program = os.path.isfile(path) and os.access(path, os.X_OK)
    return "PEER_PYTHON" if program else os.path.basename(path)


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    return done.stdout.strip()


def _cpu_model() -> str:
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
