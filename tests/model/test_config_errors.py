"""Headers that are incomplete, absurd or beyond pyrt: one typed error each, naming file, key and reason."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrt.config import config_from_hf
from pyrt.errors import ModelFormatError, PyrtError, UnsupportedModelError

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 320, "hidden_size": 64,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "intermediate_size": 160, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "rope_theta": 1e4, "rope_scaling": None, "attention_bias": False, "mlp_bias": False,
    "tie_word_embeddings": False,
}  # fmt: skip
GEMMA3 = {key: value for key, value in LLAMA.items() if key != "hidden_act"} | {
    "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "sliding_window": 5,
    "query_pre_attn_scalar": 32, "hidden_activation": "gelu_pytorch_tanh",
}  # fmt: skip
GPT2 = {
    "model_type": "gpt2", "vocab_size": 320, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 256,
    "n_inner": None, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
}  # fmt: skip
LLAMA3_ROPE = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
ABSENT = object()


def changed(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {key: value for key, value in (config | changes).items() if value is not ABSENT}


REQUIRED = ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"]


@pytest.mark.parametrize("key", REQUIRED)
@pytest.mark.parametrize("value", [ABSENT, None])
def test_what_must_be_there(key: str, value: object) -> None:
    with pytest.raises(ModelFormatError, match=rf"^x/config\.json: {key}: is missing$"):
        config_from_hf(changed(LLAMA, **{key: value}), "x/config.json")


@pytest.mark.parametrize(
    ("config", "key", "field", "value"),
    [
        # The defaults of LlamaConfig, Gemma3TextConfig and GPT2Config in transformers.
        (LLAMA, "max_position_embeddings", "context_length", 2048),
        (LLAMA, "rms_norm_eps", "norm_eps", 1e-6),
        (GEMMA3, "max_position_embeddings", "context_length", 131_072),
        (GEMMA3, "rms_norm_eps", "norm_eps", 1e-6),
        (GPT2, "n_positions", "context_length", 1024),
        (GPT2, "layer_norm_epsilon", "norm_eps", 1e-5),
    ],
)
@pytest.mark.parametrize("absent", [ABSENT, None])
def test_what_may_be_left_out(config: dict, key: str, field: str, value: float, absent: object) -> None:
    read = config_from_hf(changed(config, **{key: absent}))
    assert (read.knobs | {"context_length": read.context_length})[field] == value


@pytest.mark.parametrize("key", [*REQUIRED, "max_position_embeddings", "num_key_value_heads", "head_dim"])
@pytest.mark.parametrize(
    "value", [0, -1, 1.5, 64.0, "64", True, [64], {}, 2**31, 10**400, math.nan, math.inf]
)
def test_sizes_are_whole_positive_and_bounded(key: str, value: object) -> None:
    with pytest.raises(ModelFormatError, match=rf"^config\.json: {key}: must be an integer from 1 to "):
        config_from_hf(changed(LLAMA, **{key: value}))


@pytest.mark.parametrize("value", [0, -1e-5, 1.5, math.nan, math.inf, "1e-5", True, 10**400])
def test_epsilon(value: object) -> None:
    with pytest.raises(ModelFormatError, match=r"^config\.json: rms_norm_eps: must be a number above 0"):
        config_from_hf(changed(LLAMA, rms_norm_eps=value))


@pytest.mark.parametrize(
    ("config", "changes", "error", "message"),
    [
        (LLAMA, {"num_key_value_heads": 3}, ModelFormatError, "num_key_value_heads: 3 does not divide the 4"),
        (LLAMA, {"num_hidden_layers": 10_001}, ModelFormatError, "num_hidden_layers: must be an integer"),
        (LLAMA, {"head_dim": 31}, ModelFormatError, "head_dim: 31 channels of 31 .* in pairs"),
        (LLAMA, {"head_dim": None, "num_attention_heads": 6}, ModelFormatError,
         "num_attention_heads: 6 heads do not divide the width of 64"),
        (LLAMA, {"attention_bias": "no"}, ModelFormatError, "attention_bias: must be true or false"),
        (LLAMA, {"tie_word_embeddings": 1}, ModelFormatError, "tie_word_embeddings: must be true or false"),
        (LLAMA, {"hidden_act": "relu"}, UnsupportedModelError, "hidden_act: 'relu' is not supported"),
        (LLAMA, {"hidden_act": ["silu"]}, UnsupportedModelError, "hidden_act: .* is not supported"),
        (LLAMA, {"rope_theta": -1.0}, ModelFormatError, "rope_theta: must be a number above 0"),
        (LLAMA, {"rope_scaling": "linear"}, ModelFormatError, "rope_scaling: must be an object"),
        (LLAMA, {"rope_scaling": {"type": "linear"}}, ModelFormatError, "rope_scaling: factor: is missing"),
        (LLAMA, {"rope_scaling": LLAMA3_ROPE | {"low_freq_factor": 4.0}}, ModelFormatError,
         "rope_scaling: low_freq_factor: 4 must be below high_freq_factor, 4"),
        (LLAMA, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, UnsupportedModelError, "'dynamic' is"),
        (LLAMA, {"rope_parameters": {"rope_type": "yarn"}}, UnsupportedModelError, "'yarn' is not supported"),
        (LLAMA, {"rope_scaling": {"rope_type": "longrope"}}, UnsupportedModelError, "'longrope' is not"),
        (LLAMA, {"partial_rotary_factor": 0.5}, UnsupportedModelError, "partial_rotary_factor: 0.5 is not"),
        (LLAMA, {"quantization_config": {"quant_method": "awq"}}, UnsupportedModelError,
         "quantization_config: {'quant_method': 'awq'} is not supported"),
        (GEMMA3, {"final_logit_softcapping": 30.0}, UnsupportedModelError, "logit_softcapping: 30.0 is"),
        (GEMMA3, {"use_bidirectional_attention": True}, UnsupportedModelError, "_attention: True"),
        (GEMMA3, {"sliding_window": None}, ModelFormatError, "sliding_window: is missing"),
        (GEMMA3, {"layer_types": ["full_attention"]}, ModelFormatError, "layer_types: must be a list of 3"),
        (GEMMA3, {"layer_types": ["full_attention", "chunked", []]}, ModelFormatError, "layer_types: must"),
        (GEMMA3, {"query_pre_attn_scalar": 0}, ModelFormatError, "query_pre_attn_scalar: must be a number"),
        (GPT2, {"scale_attn_by_inverse_layer_idx": True}, UnsupportedModelError, "layer_idx: True is"),
        (GPT2, {"scale_attn_weights": False}, UnsupportedModelError, "scale_attn_weights: False is not"),
        (LLAMA, {"architectures": None, "model_type": None}, ModelFormatError, "model_type: is missing"),
        (LLAMA, {"architectures": "Llama"}, ModelFormatError, "architectures: must be a list of strings"),
        (LLAMA, {"vision_config": {}}, UnsupportedModelError, "vision_config: models that join text"),
    ],
)  # fmt: skip
def test_contradictions_and_what_pyrt_lacks(
    config: dict[str, Any], changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=r"^config\.json: .*" + message):
        config_from_hf(config | changes)


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0}}},
    ],
)
def test_scaling_is_for_the_layers_that_see_everything(scaling: dict[str, Any]) -> None:
    plain, scaled = config_from_hf(GEMMA3).rope_freqs, config_from_hf(GEMMA3 | scaling).rope_freqs
    assert (plain[0] / 8 == scaled[0]).all()
    assert (plain[1] == scaled[1]).all()


def test_frequencies_that_no_layer_uses_are_left_out() -> None:
    assert len(config_from_hf(GEMMA3).rope_freqs) == 2
    assert len(config_from_hf(GEMMA3 | {"layer_types": ["full_attention"] * 3}).rope_freqs) == 1
    assert config_from_hf(GPT2).rope_freqs == ()


@pytest.mark.parametrize(
    ("name", "closest"), [("Gemma2ForCausalLM", "gemma3"), ("LlamaForSequenceClassification", "llama"),
                          ("GPT2Model", "gpt2")]
)  # fmt: skip
def test_unknown_architecture_names_the_closest(name: str, closest: str) -> None:
    config = {"llama": LLAMA, "gemma3": GEMMA3, "gpt2": GPT2}[closest] | {"architectures": [name]}
    message = f"architecture '{name}': is none of llama, gemma3, gpt2; the closest is {closest}$"
    with pytest.raises(UnsupportedModelError, match=message):
        config_from_hf(config)


def test_unknown_architecture_names_what_the_closest_lacks() -> None:
    names = [f"model.layers.{i}.self_attn.{part}.weight" for i in range(2) for part in ("q_proj", "q_norm")]
    with pytest.raises(UnsupportedModelError, match=r"the closest is gemma3$"):
        config_from_hf(LLAMA | {"architectures": ["Qwen3ForCausalLM"]}, tensors=names)
    names += [f"model.layers.{i}.mlp.experts.{j}.up_proj.weight" for i in range(2) for j in range(2)]
    lacks = r"which has no model.layers.\{i\}.mlp.experts.0.up_proj.weight, "
    with pytest.raises(UnsupportedModelError, match=lacks):
        config_from_hf(LLAMA | {"architectures": ["Qwen3MoeForCausalLM"]}, tensors=names)


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.sampled_from(["rope_type", "type", "factor", "full_attention"]),
                    st.text(max_size=5) | st.floats() | st.sampled_from(["linear", "llama3", "yarn"])),
)  # fmt: skip


@given(st.data())
def test_any_header_is_read_or_refused(data: st.DataObject) -> None:
    config = dict(data.draw(st.sampled_from([LLAMA, GEMMA3, GPT2])))
    keys = [*config, "rope_parameters", "layer_types", "sliding_window_pattern", "text_config"]
    config |= data.draw(st.dictionaries(st.sampled_from(keys), JUNK, min_size=1, max_size=4))
    try:
        described = config_from_hf(config)
    except PyrtError as error:
        message = str(error)
    else:
        k = described.knobs
        assert len(k["layer_window"]) == len(k["layer_rope"]) == k["n_layers"] <= 10_000
        assert all(freqs.size == k["rope_dim"] // 2 for freqs in described.rope_freqs)
        return
    assert message.startswith("config.json: ")
