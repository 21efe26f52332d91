"""Write the weights of a GGUF file as a folder of transformers, for runtimes that convert such folders.

    python bench/peers/gguf_to_folder.py MODEL.gguf HF_FOLDER

Needs torch, transformers 5, accelerate and gguf.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

if __name__ == "__main__":
    path, folder = map(Path, sys.argv[1:])
    AutoModelForCausalLM.from_pretrained(
        path.parent,
        gguf_file=path.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
    ).save_pretrained(folder)
    AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).save_pretrained(folder)
