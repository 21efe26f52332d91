"""SHA-256 of files, with progress."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pyrt.hub.reference import Progress

CHUNK = 1 << 20


def sha256(path: Path, on_progress: Progress | None = None, stage: str = "verify") -> str:
    """The hash of a file in hexadecimal, read in pieces of a megabyte."""
    digest = hashlib.sha256()
    total = path.stat().st_size
    done = 0
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
            done += len(piece)
            if on_progress is not None:
                on_progress(stage, done, total)
    return digest.hexdigest()
