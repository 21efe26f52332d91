"""Write a GGUF file for benchmarks: the shape of Llama 3.2 1B with random weights.

    python bench/make_model.py --type Q4_0 | Q4_K_M | Q8_0 [--n-layers 16 ...] MODEL.gguf

Weights are about normal, of standard deviation 0.02, so that activations stay of the order of 1; norms are 1.
The types of the tensors are those that llama.cpp's quantizer chooses. The blocks of one small pool repeat.
The vocabulary is byte-level, with a merge for every token that is neither a byte nor special.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from itertools import islice, product
from pathlib import Path
from string import ascii_lowercase

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from peers.spec import PROMPT

STD = 0.02
POOL = 4099  # blocks; a prime, so that rows of a matrix differ
FILE_TYPES = {"Q4_0": 2, "Q8_0": 7, "Q4_K_M": 15}  # enum llama_ftype in llama.h


@dataclass(frozen=True)
class Shape:
    """Sizes of a llama model with tied embeddings; the defaults are those of Llama 3.2 1B."""

    n_vocab: int = 128_256
    n_layers: int = 16
    d_model: int = 2048
    n_heads: int = 32
    n_kv_heads: int = 8
    head_dim: int = 64
    d_ff: int = 8192
    context_length: int = 131_072

    def matrices(self) -> Iterator[tuple[str, int, int]]:
        """(name, rows, columns) in the order of the file."""
        d, q, kv = self.d_model, self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        yield "token_embd", self.n_vocab, d
        for i in range(self.n_layers):
            yield from (
                (f"blk.{i}.{name}", rows, columns)
                for name, rows, columns in (
                    ("attn_q", q, d),
                    ("attn_k", kv, d),
                    ("attn_v", kv, d),
                    ("attn_output", d, q),
                    ("ffn_gate", self.d_ff, d),
                    ("ffn_up", self.d_ff, d),
                    ("ffn_down", d, self.d_ff),
                )
            )

    def norms(self) -> Iterator[str]:
        yield "output_norm"
        for i in range(self.n_layers):
            yield from (f"blk.{i}.attn_norm", f"blk.{i}.ffn_norm")


def kind_of(file_type: str, name: str, n_layers: int) -> Kind:
    """What llama.cpp's quantizer makes of a matrix (src/llama-quant.cpp)."""
    if file_type == "Q8_0":
        return Kind.Q8_0
    if name == "token_embd":  # the head as well
        return Kind.Q6_K
    if file_type == "Q4_0":
        return Kind.Q4_0
    if name.endswith(("attn_v", "ffn_down")):
        i, eighth = int(name.split(".")[1]), n_layers // 8
        if i < eighth or i >= 7 * n_layers // 8 or (i - eighth) % 3 == 2:
            return Kind.Q6_K
    return Kind.Q4_K


# --- blocks, uint8[POOL, bytes of a block] -------------------------------------------------------------


def plain_blocks(kind: Kind, rng: np.random.Generator) -> np.ndarray:
    weights = rng.normal(0, STD, (POOL, 32)).astype(np.float32)
    return gguf.quants.quantize(weights, kind)


def q4_k_blocks(rng: np.random.Generator) -> np.ndarray:
    """d·s·(q - 7.5) for s of 6 bits and q of 4, as d·s·q - 7.5·d·m with m = s."""
    codes = normal_codes(rng, (POOL, 4, 2, 32), 7.5, 3, 15)
    s = rng.integers(32, 64, (POOL, 8), np.uint8)
    low, high = s[:, :4], s[:, 4:]
    packed = [low | high >> 4 << 6] * 2 + [high & 15 | (high & 15) << 4]
    d = STD / (48 * 3)
    head = np.tile(np.array([d, 7.5 * d], np.float16).view(np.uint8), (POOL, 1))
    return np.hstack([head, *packed, (codes[:, :, 0] | codes[:, :, 1] << 4).reshape(POOL, 128)])


def q6_k_blocks(rng: np.random.Generator) -> np.ndarray:
    """d·s·(q - 32) for s of 8 bits and q of 6."""
    codes = normal_codes(rng, (POOL, 2, 4, 32), 32, 10, 63)
    low, high = codes & 15, codes >> 4
    ql = np.concatenate([low[:, :, 0] | low[:, :, 2] << 4, low[:, :, 1] | low[:, :, 3] << 4], -1)
    qh = high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6
    scales = rng.integers(16, 49, (POOL, 16), np.uint8)
    d = np.tile(np.array([STD / (32 * 10)], np.float16).view(np.uint8), (POOL, 1))
    return np.hstack([ql.reshape(POOL, 128), qh.reshape(POOL, 64), scales, d])


def normal_codes(
    rng: np.random.Generator, shape: tuple[int, ...], mean: float, std: float, top: int
) -> np.ndarray:
    return np.clip(np.rint(rng.normal(mean, std, shape)), 0, top).astype(np.uint8)


BLOCKS: dict[Kind, Callable[[np.random.Generator], np.ndarray]] = {
    Kind.Q4_0: lambda rng: plain_blocks(Kind.Q4_0, rng),
    Kind.Q8_0: lambda rng: plain_blocks(Kind.Q8_0, rng),
    Kind.Q4_K: q4_k_blocks,
    Kind.Q6_K: q6_k_blocks,
}


# --- vocabulary ----------------------------------------------------------------------------------------


def byte_characters() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary (GPT-2's bytes_to_unicode)."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in shown else chr(next(hidden)) for byte in range(256)]


def vocabulary(n_vocab: int) -> tuple[list[str], list[str]]:
    """Tokens and merges: bytes, the words of PROMPT, then words of two and four letters; BOS and EOS last."""
    tokens: dict[str, None] = dict.fromkeys(byte_characters())
    merges: list[str] = []

    def add(left: str, right: str) -> None:
        if left + right not in tokens:
            tokens[left + right] = None
            merges.append(f"{left} {right}")

    for word in re.findall(r" ?\w+", PROMPT):
        spelled = word.replace(" ", "Ġ")
        for end in range(1, len(spelled)):
            add(spelled[:end], spelled[end])
    pairs = list(map("".join, product(ascii_lowercase, repeat=2)))
    for left, right in [*product(ascii_lowercase, repeat=2), *islice(product(pairs, repeat=2), n_vocab)]:
        if len(tokens) < n_vocab - 2:
            add(left, right)
    if len(tokens) != n_vocab - 2:
        raise ValueError(f"a vocabulary of {n_vocab} is too small or too large")
    return [*tokens, "<|begin_of_text|>", "<|end_of_text|>"], merges


# --- file ----------------------------------------------------------------------------------------------


def write_model(path: Path, file_type: str, shape: Shape, seed: int = 0) -> None:
    """A file of a few hundred megabytes takes some seconds and little memory."""
    writer = gguf.GGUFWriter(path, "llama")
    add_header(writer, file_type, shape)
    matrices = [(name, rows, columns, kind_of(file_type, name, shape.n_layers))
                for name, rows, columns in shape.matrices()]  # fmt: skip
    for name, rows, columns, kind in matrices:
        weights, nbytes = gguf.GGML_QUANT_SIZES[kind]
        if columns % weights:
            raise ValueError(f"{name}: {columns} columns are no whole blocks of {kind.name}")
        row = columns // weights * nbytes
        writer.add_tensor_info(name + ".weight", (rows, row), np.dtype(np.uint8), rows * row, kind)
    for name in shape.norms():
        writer.add_tensor_info(name + ".weight", (shape.d_model,), np.dtype(np.float32), 4 * shape.d_model)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    rng = np.random.default_rng(seed)
    pools = {kind: BLOCKS[kind](rng) for kind in dict.fromkeys(kind for *_, kind in matrices)}
    for _, rows, columns, kind in matrices:
        pool = np.roll(pools[kind], int(rng.integers(POOL)), 0)
        n_blocks = rows * columns // gguf.GGML_QUANT_SIZES[kind][0]
        writer.write_tensor_data(np.resize(pool, (n_blocks, pool.shape[1])))
    for _ in shape.norms():
        writer.write_tensor_data(np.ones(shape.d_model, np.float32))
    writer.close()


def add_header(writer: gguf.GGUFWriter, file_type: str, shape: Shape) -> None:
    writer.add_name(f"random llama {file_type}")
    writer.add_file_type(FILE_TYPES[file_type])
    writer.add_quantization_version(2)
    writer.add_context_length(shape.context_length)
    writer.add_embedding_length(shape.d_model)
    writer.add_block_count(shape.n_layers)
    writer.add_feed_forward_length(shape.d_ff)
    writer.add_head_count(shape.n_heads)
    writer.add_head_count_kv(shape.n_kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(500_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape.n_vocab)
    tokens, merges = vocabulary(shape.n_vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 2) + [3] * 2)  # normal, control
    writer.add_token_merges(merges)
    writer.add_bos_token_id(len(tokens) - 2)
    writer.add_eos_token_id(len(tokens) - 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--type", choices=FILE_TYPES, default="Q4_0", dest="file_type")
    for field in fields(Shape):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=int, default=field.default)
    parser.add_argument("path", type=Path)
    args = parser.parse_args()
    shape = Shape(**{field.name: getattr(args, field.name) for field in fields(Shape)})
    write_model(args.path, args.file_type, shape)


if __name__ == "__main__":
    main()
