"""pyrt's perplexity beside llama.cpp's, which bench/perplexity.py has stored: same text, windows and file."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
STORED = ROOT / "bench" / "results" / "perplexity.json"
TOLERANCE = 0.005  # relative; both quantize activations, by different rules


def entries() -> list[dict[str, Any]]:
    return list(json.loads(STORED.read_text())["models"]) if STORED.exists() else []


def find(entry: dict[str, Any]) -> Path:
    """The model's file: by name in PYRT_TEST_MODELS, or the default model where it is in the cache."""
    from pyrt.hub import DEFAULT

    folder = os.environ.get("PYRT_TEST_MODELS")
    if folder and (Path(folder) / entry["file"]).is_file():
        return Path(folder) / entry["file"]
    if entry["sha256"] == DEFAULT.sha256 and DEFAULT.is_cached():
        return DEFAULT.path()
    pytest.skip(f"{entry['file']} is not in PYRT_TEST_MODELS")


@pytest.mark.parity
@pytest.mark.slow
@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry["file"])
def test_perplexity_is_llama_cpps(entry: dict[str, Any]) -> None:
    import pyrt
    from pyrt.perplexity import perplexity

    stored = json.loads(STORED.read_text())
    data = (ROOT / "tests" / "data" / stored["text"]).read_bytes()
    assert hashlib.sha256(data).hexdigest() == stored["text_sha256"]
    theirs = entry["llama.cpp"]
    with pyrt.load(find(entry), context_length=stored["n_ctx"]) as model:
        tokens = np.array(model.tokenizer.encode(data.decode()), np.int32)
        assert hashlib.sha256(tokens.tobytes()).hexdigest() == theirs["tokens_sha256"]
        found = perplexity(model, data.decode(), n_ctx=stored["n_ctx"])
    assert found.n_scored == theirs["n_scored"]
    assert found.value == pytest.approx(theirs["perplexity"], rel=TOLERANCE)


def test_the_stored_figures_are_of_both_real_models() -> None:
    found = {entry["file"]: entry for entry in entries()}
    assert {"smollm2.gguf", "gemma3.gguf"} <= set(found)
    for entry in found.values():
        assert entry["pyrt"]["tokens_sha256"] == entry["llama.cpp"]["tokens_sha256"]
        assert entry["ratio"] == pytest.approx(1.0, abs=TOLERANCE)
