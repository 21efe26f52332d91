"""The model that a path means: a GGUF file, whatever its name, or a folder as transformers writes it."""

from __future__ import annotations

from pathlib import Path

from pyrt.checkpoint import Checkpoint, open_checkpoint
from pyrt.gguf import GGUFFile, open_gguf

Source = GGUFFile | Checkpoint


def open_model(path: Path, *, weights: bool = True) -> Source:
    """Open it; ``weights=False`` is enough for a folder's tokenizer. Raises what the two readers raise.

    A file is taken for GGUF, whose reader looks at its first bytes: names are not to be believed.
    """
    return open_checkpoint(path, weights=weights) if path.is_dir() else open_gguf(path)
