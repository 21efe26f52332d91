"""Small random models that transformers itself builds, and their tensors under pyrt's core names.

The renaming is written here a second time, by hand and from transformers' modeling files, so that the
tests of pyrt/archs.py and pyrt/weights.py have something independent to be compared with.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="parity with transformers needs torch")
transformers = pytest.importorskip("transformers", reason="parity with transformers needs transformers")
torch.set_num_threads(1)

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
N_VOCAB, N_POSITIONS = 320, 256


def llama(**changes: Any) -> Any:
    """Grouped-query attention with a head size that is not width / heads; untied unless changed."""
    config = {
        "vocab_size": N_VOCAB, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-5,
        "max_position_embeddings": N_POSITIONS,
    }  # fmt: skip
    return _random(transformers.LlamaForCausalLM, transformers.LlamaConfig(**{**config, **changes}))


def gemma3(**changes: Any) -> Any:
    """Eight layers, of which one sees everything, and a window of 5, far below the tests' lengths."""
    config = {
        "vocab_size": N_VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 8,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32, "query_pre_attn_scalar": 24,
        "sliding_window": 5, "max_position_embeddings": N_POSITIONS,
    }  # fmt: skip
    return _random(transformers.Gemma3ForCausalLM, transformers.Gemma3TextConfig(**{**config, **changes}))


def gpt2(**changes: Any) -> Any:
    config = {"vocab_size": N_VOCAB, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": N_POSITIONS,
              "bos_token_id": 0, "eos_token_id": 0}  # fmt: skip
    return _random(transformers.GPT2LMHeadModel, transformers.GPT2Config(**{**config, **changes}))


def _random(kind: Any, config: Any, seed: int = 0) -> Any:
    """Every parameter is drawn, norms and biases too: a fresh model's ones and zeros there hide mistakes."""
    config._attn_implementation = "sdpa"
    model = kind(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 1:
                centred_on_one = name.endswith("weight") and "Gemma3" not in kind.__name__
                parameter.copy_(centred_on_one + 0.2 * noise)
            elif "embed" in name or "wte" in name:
                parameter.copy_(0.6 * noise)
            else:
                parameter.copy_(1.2 / math.sqrt(parameter.shape[-1]) * noise)
    return model


MODELS = {
    "llama": lambda: llama(),
    "llama tied": lambda: llama(tie_word_embeddings=True),
    "llama biases": lambda: llama(attention_bias=True, mlp_bias=True),
    "llama3 rope": lambda: llama(rope_parameters=dict(LLAMA3_ROPE)),
    "llama linear rope": lambda: llama(rope_parameters=dict(LINEAR_ROPE)),
    "gemma3": lambda: gemma3(),
    "gpt2": lambda: gpt2(),
    "gpt2 wide mlp": lambda: gpt2(n_inner=96, n_head=2),
}


def tokens(n: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, N_VOCAB, n)


def logits(model: Any, ids: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(ids)[None]).logits[0].numpy()


def described(model: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The knobs and the core-named tensors (as the model holds them) of one of the models above."""
    return {"llama": _llama, "gemma3_text": _gemma3, "gpt2": _gpt2}[model.config.model_type](model)


def _state(model: Any) -> dict[str, np.ndarray]:
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del state["lm_head.weight"]
    return state


def _renamed(state: dict[str, np.ndarray], names: dict[str, str]) -> dict[str, np.ndarray]:
    tensors = {}
    for name, value in state.items():
        stem, kind = name.rsplit(".", 1)
        for theirs, ours in names.items():
            stem = stem.replace(theirs, ours)
        tensors[stem if kind == "weight" else stem + ".bias"] = value
    return tensors


_NAMES = {
    "model.embed_tokens": "embed", "model.norm": "final_norm", "lm_head": "head", "model.layers": "layers",
    "self_attn.q_norm": "q_norm", "self_attn.k_norm": "k_norm", "input_layernorm": "attn_norm",
    "self_attn.q_proj": "q", "self_attn.k_proj": "k", "self_attn.v_proj": "v", "self_attn.o_proj": "o",
    "mlp.gate_proj": "gate", "mlp.up_proj": "up", "mlp.down_proj": "down",
}  # fmt: skip


def _common(c: Any) -> dict[str, Any]:
    return {
        "n_vocab": c.vocab_size, "n_layers": c.num_hidden_layers, "d_model": c.hidden_size,
        "n_heads": c.num_attention_heads, "n_kv_heads": c.num_key_value_heads, "head_dim": c.head_dim,
        "d_ff": c.intermediate_size, "norm": "rms", "norm_eps": c.rms_norm_eps, "gated_mlp": True,
        "rope_layout": "half", "rope_dim": c.head_dim, "n_positions": 0,
    }  # fmt: skip


def _llama(model: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    c = model.config
    tensors = _renamed(_state(model), {**_NAMES, "post_attention_layernorm": "mlp_norm"})
    tensors["rope.0"] = model.model.rotary_emb.inv_freq.float().numpy()
    knobs = _common(c) | {
        "activation": "silu", "embed_scale": 1.0, "attn_scale": c.head_dim**-0.5, "qk_norm": False,
        "post_norms": False, "layer_window": [0] * c.num_hidden_layers,
        "layer_rope": [0] * c.num_hidden_layers,
    }  # fmt: skip
    return knobs, tensors


def _gemma3(model: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    c, rope = model.config, model.model.rotary_emb
    norms = {"post_attention_layernorm": "attn_post_norm", "pre_feedforward_layernorm": "mlp_norm",
             "post_feedforward_layernorm": "mlp_post_norm"}  # fmt: skip
    tensors = _renamed(_state(model), {**_NAMES, **norms})
    for name in tensors:
        if name.endswith("norm"):
            tensors[name] = 1 + tensors[name]
    tensors["rope.0"] = rope.full_attention_inv_freq.float().numpy()
    tensors["rope.1"] = rope.sliding_attention_inv_freq.float().numpy()
    local = [(i + 1) % 6 != 0 for i in range(c.num_hidden_layers)]
    knobs = _common(c) | {
        "activation": "gelu_tanh", "embed_scale": float(np.float32(math.sqrt(c.hidden_size))),
        "attn_scale": c.query_pre_attn_scalar**-0.5, "qk_norm": True, "post_norms": True,
        "layer_window": [c.sliding_window * here for here in local],
        "layer_rope": [int(here) for here in local],
    }  # fmt: skip
    return knobs, tensors


def _gpt2(model: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    c, state, d = model.config, _state(model), model.config.n_embd
    for name in list(state):
        if "attn.c_" in name or "mlp.c_" in name:
            state[name] = state[name].T
        if "c_attn" in name:
            parts = state.pop(name).reshape(3, d, *([d] if name.endswith("weight") else []))
            state |= {name.replace("c_attn", part): parts[j] for j, part in enumerate("qkv")}
    names = {
        "transformer.wte": "embed", "transformer.wpe": "pos_embed", "transformer.ln_f": "final_norm",
        "lm_head": "head", "transformer.h": "layers", "ln_1": "attn_norm", "ln_2": "mlp_norm",
        "attn.c_proj": "o", "mlp.c_fc": "up", "mlp.c_proj": "down", "attn.": "",
    }  # fmt: skip
    n = c.n_layer
    knobs = {
        "n_vocab": c.vocab_size, "n_layers": n, "d_model": d, "n_heads": c.n_head, "n_kv_heads": c.n_head,
        "head_dim": d // c.n_head, "d_ff": c.n_inner or 4 * d, "norm": "layer",
        "norm_eps": c.layer_norm_epsilon, "activation": "gelu_tanh", "gated_mlp": False, "embed_scale": 1.0,
        "attn_scale": (d // c.n_head) ** -0.5, "qk_norm": False, "post_norms": False, "rope_layout": "none",
        "rope_dim": 0, "layer_window": [0] * n, "layer_rope": [0] * n, "n_positions": c.n_positions,
    }  # fmt: skip
    return knobs, _renamed(state, names)
