"""ik-llama-cpp-python's side: llama.cpp's fork ik_llama.cpp, by the same calls as far as it has them.

Options: ``repack=1`` (reorder the weights on load, as its -rtr does), ``flash_attn=1``: off by default, as in
the package on CPUs without AVX-VNNI, where it aborts. The package does not stream: one token is asked for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import ik_llama_cpp
from ik_llama_cpp import _ctypes_api as api

from peers.llama_runner import Runner
from peers.spec import measure


class IkRunner(Runner):
    flash_attn = "flash_attn"

    def model_params(self) -> Any:
        params = super().model_params()
        if self.options.get("repack") == "1":
            params.repack_tensors, params.use_mmap = True, False
        return params

    def clear(self) -> None:
        self.c.llama_kv_cache_clear(self.context)

    def wait(self) -> None:
        if not self.c.llama_get_logits_ith(self.context, -1):
            raise RuntimeError("no logits")


def speed(
    model: str, threads: int, tests: list[str], repetitions: int, options: dict[str, str]
) -> dict[str, Any]:
    runner = IkRunner(api, model, threads, tests, {"flash_attn": "0", **options})
    describe = api._lib.llama_print_system_info
    describe.restype = ctypes.c_char_p
    about = {
        "version": f"ik-llama-cpp-python {ik_llama_cpp.__version__}",
        "build": describe().decode().strip(),
    }
    return {**measure(tests, runner.run, repetitions), **about}


def first(model: str, threads: int, prompt: str, options: dict[str, str]) -> Iterator[str]:
    flash = options.get("flash_attn") == "1"
    llama = ik_llama_cpp.IkLlama(model, n_threads=threads, flash_attn=flash, verbose=False)
    tokens = llama.generate(llama.tokenize(prompt), max_tokens=1)
    yield llama.detokenize(tokens)
