"""llama.cpp at its best: its C API with random tokens, no sampling, batches as in llama-bench."""

from __future__ import annotations

import random
import time
from typing import Any

from peers.spec import Case, parse

N_BATCH, N_UBATCH = 2048, 512  # llama-bench's
Row = tuple[int, int, int]  # token, position, sequence


class Runner:
    """A model and one context, made anew when a test wants another number of sequences.

    ``c`` is the module with the C API. A fork of llama.cpp overrides what differs in its API.
    """

    flash_attn = "flash_attn_type"  # of llama_context_params

    def __init__(self, c: Any, path: str, threads: int, tests: list[str], options: dict[str, str]) -> None:
        self.c, self.threads, self.tests, self.options = c, threads, list(map(parse, tests)), options
        c.llama_backend_init()
        self.model = c.llama_model_load_from_file(path.encode(), self.model_params())
        if not self.model:
            raise RuntimeError("llama.cpp cannot load this file")
        self.n_vocab = c.llama_vocab_n_tokens(c.llama_model_get_vocab(self.model))
        self.batch = c.llama_batch_init(N_BATCH, 0, 1)
        self.context: Any = None
        self.sequences = 0
        self.numbers = random.Random(0)

    def model_params(self) -> Any:
        params = self.c.llama_model_default_params()
        params.n_gpu_layers = 0
        return params

    def clear(self) -> None:
        """Empty the KV cache."""
        self.c.llama_memory_clear(self.c.llama_get_memory(self.context), False)

    def wait(self) -> None:
        """Until the logits are there."""
        self.c.llama_synchronize(self.context)
        self.c.llama_get_logits(self.context)

    def open_context(self, sequences: int) -> None:
        """Room for every test with so many sequences; then a warm-up."""
        if self.sequences == sequences:
            return
        if self.context:
            self.c.llama_free(self.context)
        self.context, self.sequences = None, 0
        same = [test for test in self.tests if test.batch == sequences]
        params = self.c.llama_context_default_params()
        params.n_ctx = sequences * (-(-max(test.context for test in same) // 256) * 256)
        params.n_batch, params.n_ubatch, params.n_seq_max = N_BATCH, N_UBATCH, sequences
        params.n_threads = params.n_threads_batch = self.threads
        if "flash_attn" in self.options:
            setattr(params, self.flash_attn, int(self.options["flash_attn"]))
        if "kv_unified" in self.options:
            params.kv_unified = self.options["kv_unified"] == "1"
        self.context = self.c.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("llama.cpp makes no such context")
        self.sequences = sequences
        prompts = [test.n for test in same if test.phase == "pp"]
        self.clear()
        self.feed(0, 0, min([N_UBATCH, *prompts]) if prompts else 1)

    def token(self) -> int:
        return self.numbers.randrange(self.n_vocab)

    def send(self, rows: list[Row], all_logits: bool) -> None:
        """One call of llama_decode; otherwise only the last row has logits."""
        b = self.batch
        b.n_tokens = len(rows)
        for i, (token, position, sequence) in enumerate(rows):
            b.token[i], b.pos[i], b.n_seq_id[i], b.seq_id[i][0] = token, position, 1, sequence
            b.logits[i] = all_logits or i == len(rows) - 1
        if status := self.c.llama_decode(self.context, b):
            raise RuntimeError(f"llama_decode returned {status}")
        self.wait()

    def feed(self, sequence: int, first: int, last: int) -> None:
        """Random tokens at positions [first, last) of a sequence."""
        for start in range(first, last, N_BATCH):
            positions = range(start, min(start + N_BATCH, last))
            self.send([(self.token(), position, sequence) for position in positions], False)

    def run(self, test: Case) -> float:
        self.open_context(test.batch)
        self.clear()
        for sequence in range(test.batch if test.depth else 0):
            self.feed(sequence, 0, test.depth)
        end = test.depth + test.n
        began = time.perf_counter()
        if test.phase == "pp":
            self.feed(0, test.depth, end)
        else:
            for position in range(test.depth, end):
                self.send([(self.token(), position, sequence) for sequence in range(test.batch)], True)
        return test.n * test.batch / (time.perf_counter() - began)
