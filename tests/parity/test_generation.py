"""Models that transformers wrote, run by pyrt: the same logits to float32 rounding, the same greedy text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from parity.checkpoints import LLAMA3_ROPE, MODELS, N_VOCAB, described, gemma3, llama, logits, tokens, torch
from reference.to_gguf import as_type, write_gguf
from reference.transformer import Transformer, rounding_error

import pyrt

pytestmark = pytest.mark.parity

N_NEW = 64


def save(model: Any, folder: Path, **how: Any) -> Path:
    """The checkpoint with a tokenizer beside it, which ``load`` insists on."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    model.save_pretrained(folder, **how)
    tokenizer = Tokenizer(models.BPE({name: i for i, name in enumerate(token_names())}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def token_names() -> list[str]:
    """A byte-level vocabulary of N_VOCAB tokens: GPT-2's letters for the 256 bytes, then fillers."""
    letters = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = [chr(b) for b in letters] + [chr(256 + i) for i in range(256 - len(letters))]
    return [*names, "ab", *(f"<|{i}|>" for i in range(N_VOCAB - 257))]


def greedy(model: Any, prompt: np.ndarray) -> list[int]:
    ids = torch.from_numpy(prompt)[None]
    with torch.no_grad():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=N_NEW,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    return list(out[0, len(prompt) :].tolist())


def compare(ours: pyrt.Model, theirs: Any, bound: float) -> None:
    """Logits of 150 tokens within ``bound`` of transformers', and 64 greedy tokens after 40 others equal."""
    ids = tokens(150)
    assert np.abs(ours.logits(ids.tolist()) - logits(theirs, ids)).max() <= bound
    prompt = tokens(40, seed=2)
    completion = ours.generate(prompt.tolist(), max_tokens=N_NEW, temperature=0, ignore_eos=True)
    assert completion.tokens == greedy(theirs, prompt)


def rounding_bound(model: Any) -> float:
    """16 of the errors that float32 makes in these logits: transformers and pyrt each differ from the exact
    value by a few of them, see test_reference.py and tests/model/test_logits.py."""
    return float(16 * rounding_error(*described(model), tokens(150)).max())


@pytest.mark.parametrize("name", MODELS)
def test_float32_checkpoint(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    with pyrt.load(save(model, tmp_path), dtype="f32", kv_dtype="f32", threads=1) as ours:
        compare(ours, model, rounding_bound(model))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt2"])
def test_half_checkpoint(name: str, dtype: str, tmp_path: Path) -> None:
    """Run as stored, and widened to float32: both compute in float32, so both are held to the same bound."""
    kind = type(model := MODELS[name]())
    save(model.to(getattr(torch, dtype)), tmp_path)
    theirs = kind.from_pretrained(tmp_path, dtype=torch.float32)
    for ours_dtype in ("auto", "f32"):
        with pyrt.load(tmp_path, dtype=ours_dtype, kv_dtype="f32", threads=1) as ours:
            compare(ours, theirs, rounding_bound(theirs))


def test_sharded_checkpoint(tmp_path: Path) -> None:
    model = MODELS["llama biases"]()
    save(model, tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    with pyrt.load(tmp_path, dtype="f32", kv_dtype="f32", threads=1) as ours:
        compare(ours, model, rounding_bound(model))


def vocabulary() -> dict[str, Any]:
    """The same as GGUF keys."""
    return {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": token_names(),
        "tokenizer.ggml.token_type": [1 if i < 257 else 3 for i in range(N_VOCAB)],
        "tokenizer.ggml.merges": ["a b"], "tokenizer.ggml.eos_token_id": N_VOCAB - 1,
    }  # fmt: skip


def as_stored(model: Any, form: str) -> Any:
    """The model with each matrix replaced by what its quantized rows mean."""
    kind = gguf.GGMLQuantizationType[form]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 or "wpe" in name:
                continue
            is_conv1d = ".c_" in name  # [in, out]
            rows = np.ascontiguousarray((parameter.T if is_conv1d else parameter).numpy())
            means = torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(rows, kind), kind))
            parameter.copy_(means.T if is_conv1d else means)
    return model


@pytest.mark.parametrize("form", ["F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0"])
@pytest.mark.parametrize("name", ["llama", "llama biases", "gemma3", "gpt2"])
def test_gguf(name: str, form: str, tmp_path: Path) -> None:
    # a GGUF file has no key for Gemma's query scalar, which is head_dim in all sizes but one
    model = gemma3(query_pre_attn_scalar=32) if name == "gemma3" else MODELS[name]()
    family = name.split()[0]
    path = write_gguf(tmp_path / "m.gguf", family, *described(model), as_type(form), vocabulary())
    theirs = as_stored(model, form)
    with pyrt.load(path, kv_dtype="f32", threads=1) as ours:
        if form in ("F32", "F16", "BF16"):
            compare(ours, theirs, rounding_bound(theirs))
            return
        ids = tokens(150)
        knobs, means = described(theirs)
        exact, coded = Transformer(knobs, means), Transformer(knobs, means, rounded=activation_codes)
        cost = np.abs(coded.logits(ids) - exact.logits(ids)).max()
        assert np.abs(ours.logits(ids.tolist()) - logits(theirs, ids)).max() <= 2 * cost


def activation_codes(name: str, x: np.ndarray) -> np.ndarray:
    """What int8 activations in groups of 32 cost; keys and values stay as they are."""
    if name in ("key", "value"):
        return x
    groups = x.reshape(*x.shape[:-1], -1, 32)
    amax = np.abs(groups).max(-1, keepdims=True)
    return (np.rint(groups * (127 / amax)) * (amax / 127)).reshape(x.shape)


def test_gguf_with_llama3_scaling(tmp_path: Path) -> None:
    """llama.cpp's converter keeps the base and writes what the frequencies are divided by into rope_freqs."""
    model = llama(rope_parameters=dict(LLAMA3_ROPE))
    knobs, tensors = described(model)
    plain = described(MODELS["llama"]())[1]["rope.0"]
    rope = {"rope.0": plain, "rope_freqs": plain / tensors["rope.0"]}
    path = write_gguf(tmp_path / "m.gguf", "llama", knobs, tensors | rope, extra=vocabulary())
    with pyrt.load(path, kv_dtype="f32", threads=1) as ours:
        compare(ours, model, rounding_bound(model))
