"""Perplexity of pyrt and llama.cpp on the same text, windows and file, stored in results/perplexity.json.

    python bench/perplexity.py --peer PEER_PYTHON MODEL.gguf [MODEL.gguf ...]

PEER_PYTHON is a Python with llama-cpp-python. The text is tests/data/english.txt, a story written for this
project and given to the public domain (CC0). tests/parity/test_perplexity.py holds pyrt to what is stored.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from machine import ROOT, circumstances, sha256

TEXT = ROOT / "tests" / "data" / "english.txt"
RESULTS = ROOT / "bench" / "results" / "perplexity.json"
N_CTX = 512


def ours(model: Path) -> dict[str, Any]:
    import pyrt
    from pyrt.perplexity import perplexity

    text = TEXT.read_text("utf-8")
    with pyrt.load(model, context_length=N_CTX) as loaded:
        found = perplexity(loaded, text, n_ctx=N_CTX)
        tokens = np.array(loaded.tokenizer.encode(text), np.int32)
        return {
            "perplexity": found.value,
            "n_scored": found.n_scored,
            "n_tokens": len(tokens),
            "tokens_sha256": hashlib.sha256(tokens.tobytes()).hexdigest(),
            "version": f"pyrt {pyrt.__version__}",
            "build": f"{loaded.info.isa}, {loaded.info.numerics} numerics, {loaded.info.kv_dtype} K and V",
        }


def theirs(peer: str, model: Path) -> dict[str, Any]:
    request = {"model": str(model), "text": str(TEXT), "n_ctx": N_CTX}
    command = [peer, str(Path(__file__).with_name("peers")), "llama_cpp", "perplexity", json.dumps(request)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", required=True, help="a Python with llama-cpp-python")
    parser.add_argument("models", nargs="+", type=Path)
    args = parser.parse_args()
    entries = []
    for model in args.models:
        mine, peer = ours(model), theirs(args.peer, model)
        ratio = mine["perplexity"] / peer["perplexity"]
        same = all(mine[key] == peer[key] for key in ("n_scored", "tokens_sha256"))
        print(
            f"{model.name}: pyrt {mine['perplexity']:.4f}, llama.cpp {peer['perplexity']:.4f}, "
            f"ratio {ratio:.5f}, {'same' if same else 'DIFFERENT'} tokens and windows"
        )
        entry = {"file": model.name, "sha256": sha256(model), "pyrt": mine, "llama.cpp": peer, "ratio": ratio}
        entries.append(entry)
    stored = {
        "text": TEXT.name,
        "text_sha256": sha256(TEXT),
        "n_ctx": N_CTX,
        "models": entries,
        **circumstances(),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(stored, indent=2) + "\n")


if __name__ == "__main__":
    main()
