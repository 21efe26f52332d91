"""GGUF files written as llama.cpp's converter does: pyrt sees the model that went in, in each stored type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from reference.tiny import Model, tiny
from reference.to_gguf import as_type, write_gguf
from reference.transformer import Transformer

import pyrt
from pyrt.config import ModelConfig, read_config
from pyrt.errors import ModelFormatError, UnsupportedModelError
from pyrt.gguf import GGUFFile, open_gguf
from pyrt.source import open_model
from pyrt.weights import WeightTensor, map_weights

TOKENS = np.random.default_rng(1).integers(0, 300, 40)
ROUND_TRIP = ["llama", "gemma3", "gpt2"]


def decoded(tensor: WeightTensor) -> np.ndarray:
    """float32 by the gguf package, which defines the types."""
    kind = gguf.GGMLQuantizationType[tensor.format]
    values = gguf.quants.dequantize(np.frombuffer(tensor.data.tobytes(), np.uint8), kind)
    return values.reshape(tensor.cols) if tensor.rows == 1 else values.reshape(tensor.rows, tensor.cols)


def read(path: Path) -> tuple[ModelConfig, dict[str, np.ndarray]]:
    with open_gguf(path) as source:
        config = read_config(source)
        return config, {tensor.name: decoded(tensor) for tensor in map_weights(source, config)}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("family", "biases"), [*((f, None) for f in ROUND_TRIP), ("llama", True)])
def test_the_same_function_comes_out(family: str, biases: bool | None, tied: bool, tmp_path: Path) -> None:
    """Through permuted rows, fused matrices and the other rope layout, to the logits of what went in."""
    knobs, tensors = tiny(family, tied=tied, biases=biases)
    if family == "gemma3":
        tensors["rope.1"], tensors["rope.0"] = tensors["rope.0"], tensors["rope.1"]
    config, read_back = read(write_gguf(tmp_path / "m.gguf", family, knobs, tensors))
    layout = {"llama": "pairs", "gemma3": "half", "gpt2": "none"}[family]
    close = {"norm_eps": pytest.approx(knobs["norm_eps"], rel=1e-7), "rope_layout": layout}
    assert config.knobs == knobs | close
    assert config.tied == tied
    assert set(read_back) == set(tensors)
    before = Transformer(knobs, tensors).logits(TOKENS)
    after = Transformer(config.knobs, read_back).logits(TOKENS)
    # what is left: epsilon and the frequencies' last bits, both rounded to float32 on the way
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-4 * np.abs(before).max())


@pytest.mark.parametrize("form", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
@pytest.mark.parametrize("family", ROUND_TRIP)
def test_the_stored_bytes_come_out(family: str, form: str, tmp_path: Path) -> None:
    """Rows of q, k and v are cut out of the fused matrix of a quantized file without decoding it."""
    knobs, tensors = tiny(family)
    path = write_gguf(tmp_path / "m.gguf", family, knobs, tensors, as_type(form))
    with open_gguf(path) as source:
        for tensor in map_weights(source, read_config(source)):
            if tensor.name.startswith("rope"):
                continue
            assert not tensor.data.flags.owndata
            before = tensors[tensor.name]
            if before.ndim == 1 or tensor.name == "pos_embed":
                assert tensor.format == "F32"
                continue
            assert tensor.format == form
            if family == "llama" and tensor.name[-1] in "qk":
                continue
            np.testing.assert_array_equal(
                tensor.data, as_type(form)("", before)[1].view(np.uint8).reshape(-1)
            )


@pytest.mark.parametrize("name", ["no-ending", "UP.GGUF", "m.bin"])
def test_a_file_is_known_by_its_content(name: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / name, "llama", *tiny("llama"), as_type("F32"))
    with open_model(path) as source:
        assert isinstance(source, GGUFFile)
    for load in (pyrt.load, pyrt.load_tokenizer):
        with pytest.raises(
            ModelFormatError, match=r"tokenizer\.ggml\.tokens: is missing"
        ):  # all else is read
            load(path)


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_text("hello")
    with pytest.raises(ModelFormatError, match=r"m\.gguf: magic: .* this one with b'hell'"):
        pyrt.load(path)


def test_llama3_scaling_is_in_the_divisors(tmp_path: Path) -> None:
    knobs, tensors = tiny("llama")
    divisors = np.linspace(1, 8, 16).astype(np.float32)
    path = write_gguf(tmp_path / "m.gguf", "llama", knobs, tensors | {"rope_freqs": divisors})
    _, read_back = read(path)
    np.testing.assert_allclose(read_back["rope.0"], tensors["rope.0"] / divisors, rtol=1e-6)


@pytest.mark.parametrize(("kind", "factor"), [("linear", 4.0), (None, 4.0), ("none", 1.0)])
def test_linear_scaling(kind: str | None, factor: float, tmp_path: Path) -> None:
    knobs, tensors = tiny("gemma3")
    tensors["rope.1"], tensors["rope.0"] = tensors["rope.0"], tensors["rope.1"]
    extra = {"gemma3.rope.scaling.type": kind, "gemma3.rope.scaling.factor": 4.0}
    _, read_back = read(write_gguf(tmp_path / "m.gguf", "gemma3", knobs, tensors, extra=extra))
    np.testing.assert_allclose(read_back["rope.0"], tensors["rope.0"] / factor, rtol=1e-6)
    np.testing.assert_allclose(read_back["rope.1"], tensors["rope.1"], rtol=1e-6)


def test_what_gemmas_header_leaves_out(tmp_path: Path) -> None:
    knobs, tensors = tiny("gemma3")
    extra = {
        "gemma3.rope.freq_base_swa": None,
        "gemma3.rope.freq_base": None,
        "gemma3.rope.dimension_count": None,
    }
    config, read_back = read(write_gguf(tmp_path / "m.gguf", "gemma3", knobs, tensors, extra=extra))
    assert config.knobs["layer_window"] == [5, 5, 5, 5, 5, 0, 5]
    assert config.knobs["layer_rope"] == [1, 1, 1, 1, 1, 0, 1]
    assert config.knobs["embed_scale"] == 8.0
    for s, base in enumerate((1e6, 1e4)):
        np.testing.assert_allclose(read_back[f"rope.{s}"][1], base ** (-2 / 32), rtol=1e-6)


@pytest.mark.parametrize("pattern", [2, [True, False, True, False, True, False, True]])
def test_a_pattern_in_the_header_wins(pattern: Any, tmp_path: Path) -> None:
    knobs, tensors = tiny("gemma3")
    extra = {"gemma3.attention.sliding_window_pattern": pattern}
    config, _ = read(write_gguf(tmp_path / "m.gguf", "gemma3", knobs, tensors, extra=extra))
    assert config.knobs["layer_window"] == [5, 0, 5, 0, 5, 0, 5]


def test_gemma3_27b_divides_by_another_root(tmp_path: Path) -> None:
    knobs, tensors = tiny("gemma3", n_layers=62, d_model=32, d_ff=32, n_vocab=32)
    config, _ = read(write_gguf(tmp_path / "m.gguf", "gemma3", knobs, tensors))
    assert config.knobs["attn_scale"] == pytest.approx(168**-0.5)


def broken(model: Model, change: dict[str, Any]) -> Model:
    knobs, tensors = model
    return knobs, {n: v for n, v in (tensors | change).items() if v is not None}


@pytest.mark.parametrize(
    ("extra", "change", "error", "message"),
    [
        ({"llama.expert_count": 8}, {}, UnsupportedModelError, "llama.expert_count: 8 is not supported"),
        ({"llama.rope.scaling.type": "yarn"}, {}, UnsupportedModelError, "scaling.type: 'yarn' is not"),
        ({"llama.attention.value_length": 16}, {}, UnsupportedModelError, "value_length: is not the size"),
        ({"llama.attention.sliding_window": 64}, {}, UnsupportedModelError, "sliding_window: 64 is not"),
        ({"llama.block_count": None}, {}, ModelFormatError, "llama.block_count: is missing"),
        ({"llama.block_count": 1.0}, {}, ModelFormatError, "block_count: must be an integer"),
        ({"llama.block_count": 4_000_000_000}, {}, ModelFormatError, "block_count: must be an integer"),
        ({"llama.attention.head_count": [4, 4, 4]}, {}, ModelFormatError, "head_count: must be an integer"),
        ({"llama.attention.head_count": 0}, {}, ModelFormatError, "head_count: must be an integer"),
        ({"llama.rope.dimension_count": 64}, {}, ModelFormatError, "dimension_count: 64 channels of 32"),
        ({"llama.rope.dimension_count": 31}, {}, ModelFormatError, "dimension_count: 31 channels of 32"),
        ({"llama.vocab_size": 301}, {}, ModelFormatError, r"'token_embd.weight': has the shape \(300, 64\)"),
        ({"llama.embedding_length": 96}, {}, ModelFormatError, r"\(300, 64\); .* it is \(300, 96\)"),
        ({"llama.block_count": 2}, {}, UnsupportedModelError, "'blk.2.attn_k.weight' and 8 more: no part of"),
        ({"llama.block_count": 4}, {}, ModelFormatError, "'blk.3.attn_norm.weight': is missing"),
        ({"general.architecture": "mamba"}, {}, UnsupportedModelError, "'mamba': is none of llama, gemma3"),
        ({"general.architecture": 1}, {}, ModelFormatError, "general.architecture: must be a string"),
        ({}, {"embed": None}, ModelFormatError, "'token_embd.weight': there is no such matrix"),
        ({}, {"layers.1.down": None}, ModelFormatError, "'blk.1.ffn_down.weight': is missing"),
        ({}, {"layers.1.q.bias": np.ones(128)}, UnsupportedModelError, "'blk.1.attn_q.bias': no part of"),
        ({}, {"layers.0.q.bias": np.ones(128)}, ModelFormatError, "'blk.1.attn_q.bias': is missing"),
        ({}, {"layers.0.q_norm": np.ones(32)}, UnsupportedModelError, "'blk.0.attn_q_norm.weight': no part"),
        ({}, {"layers.0.q": np.ones((128, 32))}, ModelFormatError, r"\(128, 32\); .* is \(128, 64\)"),
        ({}, {"layers.0.mlp_norm": np.ones((64, 1))}, ModelFormatError, r"\(64, 1\); .* is \(64,\)"),
        ({}, {"rope_freqs": np.ones(8)}, ModelFormatError, "'rope_freqs.weight': must be 16 F32 numbers"),
        ({}, {"rope_freqs": np.zeros(16)}, ModelFormatError, "'rope_freqs.weight': must be finite numbers"),
    ],
)  # fmt: skip
def test_bad_files(
    extra: dict[str, Any], change: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    knobs, tensors = broken(tiny("llama"), change)
    path = write_gguf(tmp_path / "m.gguf", "llama", knobs, tensors, extra=extra)
    with open_gguf(path) as source, pytest.raises(error, match=message) as raised:
        map_weights(source, read_config(source))
    assert str(raised.value).startswith(str(path))


def test_a_quantized_norm_is_refused(tmp_path: Path) -> None:
    knobs, tensors = tiny("llama")

    def encode(name: str, weights: np.ndarray) -> tuple[str, np.ndarray]:
        form = "Q8_0" if name == "final_norm" else "F32"
        return form, gguf.quants.quantize(weights.astype(np.float32), gguf.GGMLQuantizationType[form])

    path = write_gguf(tmp_path / "m.gguf", "llama", knobs, tensors, encode)
    with (
        open_gguf(path) as source,
        pytest.raises(UnsupportedModelError, match=r"'output_norm\.weight': .*Q8_0"),
    ):
        map_weights(source, read_config(source))
