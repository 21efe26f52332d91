"""Small vocabularies: trained by the tokenizers library or put together by hand, as keys of GGUF files."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from files import forge
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from pyrt.tokenizer import Tokenizer as PyrtTokenizer
from pyrt.tokenizer import load_tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

CORPUS = [
    *(Path(__file__).parents[1] / "data" / "english.txt").read_text("utf-8").splitlines(keepends=True),
    "Äpfel größer naïve Ελλάδα нещо на Български 我想在apple工作1314151天 🚀🦙 कृपया\n" * 4,
    "def f(x):\n\treturn x + 12345  # 3.14159\r\n\n\n    if x == 007:\n" * 4,
]

# As the models' own tokenizer.json have them.
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def _split(pattern: str) -> Any:
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), last])


def _digits_first() -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _byte_level()])


def _byte_level() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


NATIVE = {
    "gpt-2": _byte_level,
    "smollm": _digits_first,
    "starcoder": _digits_first,
    "llama-bpe": lambda: _split(LLAMA3),
    "qwen2": lambda: _split(QWEN2),
}

CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ADDED = ("<tool>", "    ")


@functools.cache
def native(pre: str = "gpt-2", size: int = 600) -> Tokenizer:
    """A byte-level BPE tokenizer of the library's own training, with control tokens and added ones."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=pre == "llama-bpe"))
    tokenizer.pre_tokenizer = NATIVE[pre]()
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROLS])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in ADDED])
    return tokenizer


def byte_level_keys(pre: str = "gpt-2", size: int = 600, **changes: Any) -> dict[str, Any]:
    """What a GGUF file would hold of ``native(pre, size)``; None takes a key away."""
    tokenizer = native(pre, size)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    kinds = dict.fromkeys(CONTROLS, CONTROL) | dict.fromkeys(ADDED, USER_DEFINED)
    keys = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": np.array([kinds.get(token, NORMAL) for token in tokens], np.int32),
        "merges": [" ".join(pair) for pair in model["merges"]],
        "bos_token_id": tokens.index("<|endoftext|>"),
        "eos_token_id": tokens.index("<|endoftext|>"),
    }
    return with_changes(keys, changes)


def spm_keys(
    pieces: Sequence[str], controls: Sequence[str] = ("<unk>", "<s>", "</s>"), **changes: Any
) -> dict[str, Any]:
    """A SentencePiece vocabulary: control tokens, all bytes, then the pieces, best score first."""
    bytes_ = [f"<0x{i:02X}>" for i in range(256)]
    tokens = [*controls, *bytes_, *pieces]
    kinds = [UNKNOWN, *[CONTROL] * (len(controls) - 1), *[BYTE] * 256, *[NORMAL] * len(pieces)]
    keys = {
        "model": "llama",
        "pre": "default",
        "tokens": tokens,
        "scores": np.array(
            [0.0] * (len(tokens) - len(pieces)) + [-float(i) for i in range(len(pieces))], "f4"
        ),
        "token_type": np.array(kinds, np.int32),
        "unknown_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return with_changes(keys, changes)


def with_changes(keys: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    named = {f"tokenizer.ggml.{name}": value for name, value in keys.items()}
    named |= {name if "." in name else f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    return {name: value for name, value in named.items() if value is not None}


def gguf_bytes(keys: dict[str, Any]) -> bytes:
    """The keys as a GGUF file without tensors."""
    entries = [forge.key("general.architecture", forge.STRING, "llama")]
    for name, value in keys.items():
        if isinstance(value, list):
            entries.append(forge.array(name, forge.STRING, value))
        elif isinstance(value, np.ndarray):
            kind = {"i": forge.I32, "f": forge.F32}[value.dtype.kind]
            entries.append(forge.array(name, kind, value.tolist()))
        else:
            kind = {str: forge.STRING, bool: forge.BOOL, int: forge.I32, float: forge.F32}[type(value)]
            entries.append(forge.key(name, kind, value))
    return forge.gguf(entries)


def load_keys(path: Path, keys: dict[str, Any]) -> PyrtTokenizer:
    path.write_bytes(gguf_bytes(keys))
    return load_tokenizer(path)
