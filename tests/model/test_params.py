"""The arithmetic behind `pyrt info`, on the published 8B shape and on models counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
from reference.tiny import shapes

from pyrt import params
from pyrt.config import ModelConfig, config_from_hf

LLAMA_8B: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 128_256, "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 14_336,
    "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip
GEMMA_270M: dict[str, Any] = {
    "model_type": "gemma3_text", "vocab_size": 262_144, "hidden_size": 640, "num_hidden_layers": 18,
    "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 2048,
    "max_position_embeddings": 32_768, "rms_norm_eps": 1e-6, "sliding_window": 512,
    "query_pre_attn_scalar": 256,
}  # fmt: skip
GPT2: dict[str, Any] = {
    "model_type": "gpt2", "vocab_size": 50_257, "n_embd": 768, "n_layer": 12, "n_head": 12,
    "n_positions": 1024, "layer_norm_epsilon": 1e-5,
}  # fmt: skip


def test_the_published_8b_shape() -> None:
    p = params.count(config_from_hf(LLAMA_8B))
    assert p.total == 8_030_261_248
    assert p.components == {
        "embedding": 525_336_576,
        "attention": 32 * 41_943_040,
        "feed-forward": 5_637_144_576,
        "norms": 65 * 4096,
        "head": 525_336_576,
    }
    assert p.layer == {"attention": 41_943_040, "feed-forward": 176_160_768, "norms": 8192}
    assert f"{p.share('feed-forward'):.1%}" == "70.2%"
    assert f"{p.feed_forward_to_attention:.2f}" == "4.20"
    assert [f"{p.nbytes(bits) / 2**30:.2f}" for bits in (16, 8, 4)] == ["14.96", "7.48", "3.74"]
    assert f"{p.embedding_in_blocks:.2f}" == "2.41"  # 525.3 million to the block's 218.1


def test_published_totals_of_the_other_families() -> None:
    # parameter counts that the hub shows for openai-community/gpt2 and google/gemma-3-270m
    assert params.count(config_from_hf(GPT2)).total == 124_439_808
    assert params.count(config_from_hf(GEMMA_270M)).total == 268_098_176


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("config", [LLAMA_8B, GEMMA_270M, GPT2], ids=lambda c: c["model_type"])
def test_components_add_up_to_all_tensors(config: dict[str, Any], tied: bool) -> None:
    described = config_from_hf(config | {"tie_word_embeddings": tied})
    tensors = [shape for shape in described.shapes() if not shape.bias]
    expected = shapes(described.knobs, tied)
    assert {s.name: (s.cols,) if s.vector else (s.rows, s.cols) for s in tensors} == expected
    counted = params.count(described)
    assert counted.total == sum(s.rows * s.cols for s in described.shapes())
    assert counted.total == sum(counted.components.values())


def config_8b(**changes: Any) -> ModelConfig:
    return config_from_hf(LLAMA_8B | changes)


def test_kv_cache_of_the_8b_shape() -> None:
    config = config_8b()
    assert params.kv_token_nbytes(config) == 2 * 32 * 8 * 128 * 2  # k and v, layers, heads, channels, f16
    assert params.kv_token_nbytes(config, "f32") == 262_144
    assert params.kv_token_nbytes(config, "int8") == 2 * 32 * 8 * (128 + 4)  # and a float32 scale
    assert params.kv_nbytes(config, 8192) == 2**30
    assert params.kv_nbytes(config, 1) == 32 * 131_072  # a page is the least
    assert params.kv_nbytes(config, 33) == 64 * 131_072


def test_sliding_windows_stop_growing() -> None:
    config = config_from_hf(GEMMA_270M)
    full_layer = params.kv_token_nbytes(config) // 18
    at_16k, at_32k = params.kv_nbytes(config, 16_384), params.kv_nbytes(config, 32_768)
    assert at_32k - at_16k == 16_384 * 3 * full_layer  # only three of the layers see everything
    assert params.kv_nbytes(config, 512) == 512 * 18 * full_layer


def test_packed_size_follows_panels_and_records() -> None:
    config = config_8b(num_hidden_layers=1, vocab_size=17, tie_word_embeddings=True)
    block = 41_943_040 + 176_160_768
    vectors = 3 * 4096 * 4 + 64 * 4  # two norms, the last norm, and the rotary frequencies
    # the embedding's 17 rows take two panels of 16; Q8_0 is 8.5 bits a weight, Q4_0 4.5
    assert params.packed_nbytes(config, "F16") == 2 * (block + 32 * 4096) + vectors
    assert params.packed_nbytes(config, "Q8_0") == 8.5 / 8 * (block + 32 * 4096) + vectors
    assert params.packed_nbytes(config, "Q4_0") == 4.5 / 8 * (block + 32 * 4096) + vectors
