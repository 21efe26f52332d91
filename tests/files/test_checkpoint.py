"""Sound checkpoint folders, held to what was written, to the safetensors library and to transformers."""

import gc

import numpy as np
import pytest
from files import forge
from files.forge import entry, folder_of, safetensors

from pyrt.checkpoint import open_checkpoint
from pyrt.errors import UnsupportedModelError
from pyrt.tensors import TensorInfo


def test_one_file_written_by_hand(tmp_path):
    files = {"config.json": {"model_type": "llama"}, "model.safetensors": forge.valid_safetensors()}
    with open_checkpoint(folder_of(tmp_path, files)) as model:
        assert model.path == tmp_path
        assert model.config == {"model_type": "llama"}
        assert (model.generation_config, model.tokenizer_config) == ({}, {})
        assert (model.tokenizer_json, model.chat_template) == (None, None)
        assert list(model.tensors.values()) == [
            TensorInfo("a", (2, 3), "F32", 24),
            TensorInfo("b", (4,), "BF16", 8),
            TensorInfo("c", (1, 2), "F16", 4),
            TensorInfo("d", (), "I64", 8),
            TensorInfo("e", (), "F32", 4),
        ]
        assert model.data("b").tolist() == list(range(24, 32))
        with pytest.raises(UnsupportedModelError, match=r"model\.safetensors: tensor 'd': dtype 'I64'"):
            model.data("d")


def test_shards_and_the_texts_beside_them(tmp_path):
    shard = {name: safetensors({name: entry("F32", [1], 0, 4)}, name.encode() * 4) for name in "ab"}
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    files = {
        "config.json": {},
        "model.safetensors.index.json": {"metadata": {"total_size": 8}, "weight_map": names},
        **{names[name]: shard[name] for name in "ab"},
        "generation_config.json": {"eos_token_id": [1, 2]},
        "tokenizer.json": {},
        "tokenizer_config.json": {"model_max_length": 10**30, "chat_template": "{{ x }}"},
    }
    model = open_checkpoint(folder_of(tmp_path, files))
    assert [bytes(model.data(name)) for name in model.tensors] == [b"aaaa", b"bbbb"]
    assert model.generation_config == {"eos_token_id": [1, 2]}
    assert model.tokenizer_config["model_max_length"] == 10**30
    assert model.tokenizer_json == tmp_path / "tokenizer.json"
    assert model.chat_template == "{{ x }}"


def test_files_may_be_links_as_in_the_hub_s_cache(tmp_path):
    snapshot = tmp_path / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    blobs = folder_of(tmp_path / "blobs", {"1": {}, "2": forge.valid_safetensors()})
    (snapshot / "config.json").symlink_to(blobs / "1")
    (snapshot / "model.safetensors").symlink_to(blobs / "2")
    assert len(open_checkpoint(snapshot).tensors) == 5


def test_tokenizer_alone_needs_no_weights(tmp_path):
    files = {"tokenizer.json": {}, "tokenizer_config.json": {"bos_token": "<s>"}}
    model = open_checkpoint(folder_of(tmp_path, files), weights=False)
    assert (model.config, dict(model.tensors)) == ({}, {})
    assert model.tokenizer_config == {"bos_token": "<s>"}


NAMED = [{"name": "default", "template": "D"}, {"name": "rag", "template": "R"}]


@pytest.mark.parametrize(
    ("files", "default", "names"),
    [
        ({"tokenizer_config.json": {"chat_template": "T"}}, "T", ["default"]),
        ({"tokenizer_config.json": {"chat_template": None}}, None, []),
        ({"tokenizer_config.json": {"chat_template": NAMED}}, "D", ["default", "rag"]),
        ({"tokenizer_config.json": {"chat_template": NAMED[1:]}}, None, ["rag"]),
        ({"chat_template.jinja": b"J", "tokenizer_config.json": {"chat_template": "T"}}, "J", ["default"]),
        ({"chat_template.jinja": b"J", "additional_chat_templates/rag.jinja": b"R"}, "J", ["default", "rag"]),
    ],
    ids=["in the config", "null", "named", "named without a default", "own file first", "own files"],
)
def test_chat_templates(files, default, names, tmp_path):
    model = open_checkpoint(folder_of(tmp_path, files), weights=False)
    assert model.chat_template == default
    assert sorted(model.chat_templates) == names


def test_views_are_read_only_and_outlive_close(tmp_path):
    files = {"config.json": {}, "model.safetensors": forge.valid_safetensors()}
    model = open_checkpoint(folder_of(tmp_path, files))
    view = model.data("a")
    assert (view.dtype, view.ndim, view.flags.writeable, view.flags.owndata) == (np.uint8, 1, False, False)
    model.close()
    gc.collect()
    assert view.tolist() == list(range(24))
    with pytest.raises(ValueError, match="closed"):
        model.data("a")


def test_file_written_by_the_safetensors_library(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    rng = np.random.default_rng(3)
    arrays = {
        "f32": rng.standard_normal((3, 5), np.float32),
        "f16": rng.standard_normal((2, 2, 2)).astype(np.float16),
        "scalar": np.array(1.5, np.float32),
        "i8": np.arange(3, dtype=np.int8),
    }
    library.save_file(arrays, tmp_path / "model.safetensors", metadata={"format": "np"})
    model = open_checkpoint(folder_of(tmp_path, {"config.json": {}}))
    assert set(model.tensors) == set(arrays)
    for name in ("f32", "f16", "scalar"):
        assert model.tensors[name].shape == arrays[name].shape
        np.testing.assert_array_equal(model.data(name).view(arrays[name].dtype), arrays[name].ravel())


@pytest.mark.parity
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_folder_written_by_transformers(dtype, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = transformers.LlamaConfig(vocab_size=64, num_hidden_layers=2, **sizes)
    written = transformers.LlamaForCausalLM(config).to(getattr(torch, dtype))
    written.save_pretrained(tmp_path, max_shard_size="12KB")
    model = open_checkpoint(tmp_path)
    assert model.config["model_type"] == "llama"
    state = written.state_dict()
    assert set(model.tensors) == set(state)
    for name, tensor in state.items():
        info = model.tensors[name]
        assert (info.shape, info.format) == (
            tuple(tensor.shape),
            {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}[dtype],
        )
        np.testing.assert_array_equal(model.data(name), tensor.contiguous().view(torch.uint8).numpy().ravel())
