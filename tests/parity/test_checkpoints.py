"""Folders that transformers writes: pyrt sees the same model in them, tensor by tensor and bit by bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parity.checkpoints import MODELS, described, torch

from pyrt.checkpoint import open_checkpoint
from pyrt.config import read_config
from pyrt.errors import ModelFormatError, UnsupportedModelError
from pyrt.weights import WeightTensor, map_weights

pytestmark = pytest.mark.parity


def numbers(tensor: WeightTensor) -> np.ndarray:
    """float32 of a float tensor, decoded by torch."""
    kind = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[tensor.format]
    values = torch.frombuffer(bytearray(tensor.data.tobytes()), dtype=kind).float().numpy()
    return values.reshape(tensor.rows, tensor.cols)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, "float32") for name in MODELS]
    + [(name, dtype) for name in ("llama", "gemma3", "gpt2") for dtype in ("bfloat16", "float16")],
)
def test_same_knobs_and_same_bits(name: str, dtype: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    model.to(getattr(torch, dtype)).save_pretrained(tmp_path)
    knobs, tensors = described(type(model).from_pretrained(tmp_path, dtype=torch.float32))
    with open_checkpoint(tmp_path) as source:
        config = read_config(source)
        # a power there and a root here: the last bit of a double may differ
        assert config.knobs == knobs | {"attn_scale": pytest.approx(knobs["attn_scale"], rel=1e-15)}
        ours = {tensor.name: tensor for tensor in map_weights(source, config)}
        assert set(ours) == set(tensors)
        for key, theirs in tensors.items():
            tensor = ours[key]
            assert (tensor.rows, tensor.cols) == ((1, *theirs.shape) if theirs.ndim == 1 else theirs.shape)
            if key.startswith("rope"):
                # torch computes base ** (i / d) in float32 throughout, so it is off by a few units
                np.testing.assert_allclose(numbers(tensor)[0], theirs, rtol=1e-6)
            else:
                np.testing.assert_array_equal(numbers(tensor), theirs.reshape(tensor.rows, tensor.cols))


def test_shards_are_one_model(tmp_path: Path) -> None:
    model = MODELS["llama"]()
    model.save_pretrained(tmp_path / "one")
    model.save_pretrained(tmp_path / "many", max_shard_size="100KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 3
    with open_checkpoint(tmp_path / "one") as one, open_checkpoint(tmp_path / "many") as many:
        for a, b in zip(*(map_weights(s, read_config(s)) for s in (one, many)), strict=True):
            assert a[:4] == b[:4]
            np.testing.assert_array_equal(a.data, b.data)


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_weights_are_views_into_the_file(name: str, tmp_path: Path) -> None:
    MODELS[name]().save_pretrained(tmp_path)
    with open_checkpoint(tmp_path) as source:
        for tensor in map_weights(source, read_config(source)):
            if tensor.rows > 1:
                assert not tensor.data.flags.owndata
                assert not tensor.data.flags.writeable


def rewritten(folder: Path, **changes: Any) -> Path:
    """The folder with some keys of config.json changed, or removed where the value is None."""
    config = json.loads((folder / "config.json").read_text())
    config = {key: value for key, value in (config | changes).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_older_spelling_of_rope(tmp_path: Path) -> None:
    """Before transformers 5: one key for each base, and rope_scaling with ``type`` or ``rope_type``."""
    for name, changes in {
        "llama3 rope": {"rope_theta": 10000.0},
        "llama linear rope": {"rope_theta": 10000.0},
        "gemma3": {"rope_theta": 1e6, "rope_local_base_freq": 10000.0},
    }.items():
        folder = tmp_path / name
        MODELS[name]().save_pretrained(folder)
        with open_checkpoint(folder) as source:
            new = read_config(source)
            scaling = dict(source.config["rope_parameters"])
        if name == "llama linear rope":
            scaling["type"] = scaling.pop("rope_type")
        old_scaling = None if name == "gemma3" else scaling
        rewritten(folder, rope_parameters=None, rope_scaling=old_scaling, **changes)
        with open_checkpoint(folder) as source:
            old = read_config(source)
        for a, b in zip(new.rope_freqs, old.rope_freqs, strict=True):
            np.testing.assert_array_equal(a, b)


def test_sliding_layers_without_layer_types(tmp_path: Path) -> None:
    MODELS["gemma3"]().save_pretrained(tmp_path)
    with open_checkpoint(tmp_path) as source:
        said = read_config(source).knobs
    with open_checkpoint(rewritten(tmp_path, layer_types=None)) as source:
        assert read_config(source).knobs == said
    with open_checkpoint(rewritten(tmp_path, sliding_window_pattern=3)) as source:
        assert read_config(source).knobs["layer_window"] == [5, 5, 0, 5, 5, 0, 5, 5]


def test_a_head_stored_twice_is_tied_only_if_it_is_the_same(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    MODELS["llama tied"]().save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    save_file(tensors, path)
    with open_checkpoint(tmp_path) as source:
        assert "head" not in {tensor.name for tensor in map_weights(source, read_config(source))}
    tensors["lm_head.weight"][7, 7] += 1
    save_file(tensors, path)
    with open_checkpoint(tmp_path) as source, pytest.raises(UnsupportedModelError, match="lm_head"):
        map_weights(source, read_config(source))


def test_names_without_the_prefix_and_with_buffers(tmp_path: Path) -> None:
    """As in the hub's gpt2: no "transformer." in front, and the causal masks among the weights."""
    from safetensors.numpy import load_file, save_file

    MODELS["gpt2"]().save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    bare = {name.removeprefix("transformer."): value for name, value in tensors.items()}
    bare |= {f"h.{i}.attn.bias": np.ones((1, 1, 4, 4), np.float32) for i in range(3)}
    with open_checkpoint(tmp_path) as source:
        before = [t.data.tobytes() for t in map_weights(source, read_config(source))]
    save_file(bare, path)
    with open_checkpoint(tmp_path) as source:
        assert [t.data.tobytes() for t in map_weights(source, read_config(source))] == before


@pytest.mark.parametrize(
    ("name", "changes", "error", "words"),
    [
        ("llama", {"attention_bias": True}, ModelFormatError, "q_proj.bias': is missing"),
        ("llama biases", {"mlp_bias": False}, UnsupportedModelError, "bias' and 8 more: no part of llama"),
        ("llama", {"tie_word_embeddings": True}, UnsupportedModelError, "lm_head"),
        ("llama tied", {"tie_word_embeddings": False}, ModelFormatError, "lm_head.weight': is missing"),
        ("llama", {"num_hidden_layers": 4}, ModelFormatError, "layers.3.input_layernorm.weight': is missing"),
        ("llama", {"num_hidden_layers": 2}, UnsupportedModelError, "layers.2.input_layernorm.weight' and 8"),
        ("llama", {"head_dim": 16}, ModelFormatError, r"q_proj.weight': .*\(128, 64\); .* is \(64, 64\)"),
        ("llama", {"vocab_size": 321}, ModelFormatError, r"embed_tokens.weight': .*\(320, 64\).*\(321, 64\)"),
        ("gpt2", {"n_inner": 128}, ModelFormatError, r"mlp.c_fc.weight': .*\(64, 256\).*\(64, 128\)"),
        ("gpt2", {"n_positions": 128}, ModelFormatError, r"wpe.weight': .*\(256, 64\).*\(128, 64\)"),
    ],
)  # fmt: skip
def test_header_and_tensors_must_agree(
    name: str, changes: dict[str, Any], error: type[Exception], words: str, tmp_path: Path
) -> None:
    MODELS[name]().save_pretrained(tmp_path)
    with open_checkpoint(rewritten(tmp_path, **changes)) as source, pytest.raises(error, match=words) as e:
        map_weights(source, read_config(source))
    assert str(tmp_path) in str(e.value)


def test_a_gap_in_the_layers(tmp_path: Path) -> None:
    MODELS["gpt2"]().save_pretrained(tmp_path)
    from safetensors.numpy import load_file, save_file

    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["transformer.h.1.attn.c_attn.bias"]
    save_file(tensors, tmp_path / "model.safetensors")
    missing = "transformer.h.1.attn.c_attn.bias': is missing"
    with open_checkpoint(tmp_path) as source, pytest.raises(ModelFormatError, match=missing):
        map_weights(source, read_config(source))
