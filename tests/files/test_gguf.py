"""Sound GGUF files, held to what was written and to the gguf package's reader."""

import gc
import subprocess
import sys

import numpy as np
import pytest
from files import forge
from files.forge import ARRAY, BOOL, STRING, U8, U32, gguf, key, tensor, u32, u64
from files.models import real_model
from reference import quants

from pyrt.errors import ModelFormatError
from pyrt.gguf import open_gguf
from pyrt.tensors import FORMATS, TensorInfo


def write(path, raw):
    path.write_bytes(raw)
    return path


def test_values_and_tensors_of_a_file_written_by_hand(tmp_path):
    with open_gguf(write(tmp_path / "m.gguf", forge.valid_gguf())) as model:
        metadata = dict(model.metadata)
        numbers = [metadata.pop(name) for name in list(metadata) if name.startswith("number.")]
        assert [(n, type(n)) for n in numbers[:8]] == [(1, int)] * 6 + [(1.0, float), (True, bool)]
        assert [(n, type(n)) for n in numbers[8:]] == [(1, int), (1, int), (1.0, float)]
        scores, flags = metadata.pop("scores"), metadata.pop("flags")
        assert (scores.dtype, scores.tolist()) == (np.float32, [0.5, -1.0])
        assert (flags.dtype, flags.tolist()) == (np.bool_, [True, False, True])
        assert metadata == {
            "general.architecture": "llama",
            "general.alignment": 32,
            "words": ["", "a", "Ġthe", "\n", "日本"],
            "none": [],
        }
        assert list(model.tensors.values()) == [
            TensorInfo("a.weight", (2, 32), "Q8_0", 68),
            TensorInfo("b.weight", (3,), "F32", 12),
        ]
        assert model.data("a.weight").tolist() == list(range(68))
        assert model.data("b.weight").view(np.float32).tolist() == [1, 2, 3]


def test_version_2_is_read_like_3(tmp_path):
    model = open_gguf(write(tmp_path / "m.gguf", gguf([key("k", U32, 7)], version=2)))
    assert dict(model.metadata) == {"k": 7}


def test_numbers_keep_sign_and_size(tmp_path):
    bits = {forge.I8: 7, forge.I16: 15, forge.I32: 31, forge.I64: 63}
    keys = [key(str(kind), kind, -(2**n)) for kind, n in bits.items()]
    model = open_gguf(write(tmp_path / "m.gguf", gguf([*keys, key("u64", forge.U64, 2**64 - 1)])))
    assert list(model.metadata.values()) == [-(2**n) for n in bits.values()] + [2**64 - 1]


def test_any_bool_but_zero_is_true(tmp_path):
    keys = [key("one", BOOL, b"\2"), key("all", ARRAY, u32(BOOL) + u64(3) + b"\0\1\2")]
    model = open_gguf(write(tmp_path / "m.gguf", gguf(keys)))
    assert model.metadata["one"] is True
    assert model.metadata["all"].view(np.uint8).tolist() == [0, 1, 1]


@pytest.mark.parametrize("strings", [["a\0b", "", "\0"], ["\0"], ["x" * 1000, "é" * 300], [""] * 3, ["a"]])
def test_strings_with_nul_long_ones_and_empty_ones(strings, tmp_path):
    keys = [forge.array("k", STRING, strings), key("after", U8, 9)]
    model = open_gguf(write(tmp_path / "m.gguf", gguf(keys)))
    assert model.metadata["k"] == strings
    assert model.metadata["after"] == 9


def test_larger_alignment_and_tensors_out_of_order(tmp_path):
    records = [tensor("b", [4], offset=64), tensor("a", [2], offset=0)]
    data = np.arange(2, dtype=np.float32).tobytes().ljust(64) + np.arange(4, dtype=np.float32).tobytes()
    raw = gguf([key("general.alignment", U32, 64)], records, data, alignment=64)
    model = open_gguf(write(tmp_path / "m.gguf", raw))
    assert list(model.tensors) == ["b", "a"]
    assert [model.data(name).view(np.float32).tolist() for name in "ab"] == [[0, 1], [0, 1, 2, 3]]


def test_views_are_read_only_and_outlive_close(tmp_path):
    model = open_gguf(write(tmp_path / "m.gguf", forge.valid_gguf()))
    view = model.data("a.weight")
    assert (view.dtype, view.ndim, view.flags.writeable, view.flags.owndata) == (np.uint8, 1, False, False)
    name = model.metadata["general.architecture"]
    assert model.metadata["words"] == model.metadata["words"]
    model.close()
    model.close()
    gc.collect()
    assert view.tolist() == list(range(68))
    assert model.metadata["general.architecture"] is name
    with pytest.raises(ValueError, match="closed"):
        model.data("a.weight")
    with pytest.raises(ValueError, match="closed"):
        model.metadata["words"]


def test_nothing_keeps_the_file_mapped_after_close(tmp_path):
    path = write(tmp_path / "m.gguf", forge.valid_gguf())
    model = open_gguf(path)
    view = model.data("a.weight")
    model.metadata["scores"]
    assert mapped(path)
    model.close()
    assert mapped(path)
    del view
    assert not mapped(path)


def mapped(path):
    with open("/proc/self/maps") as maps:
        return str(path) in maps.read()


def write_with_package(gguf_package, path, **options):
    """A model of every readable type, by the gguf package; returns the blocks by tensor."""
    writer = gguf_package.GGUFWriter(path, "llama", **options)
    writer.add_uint32("llama.block_count", 3)
    writer.add_array("tokenizer.ggml.tokens", ["<s>", "é", "hello world"])
    writer.add_array("tokenizer.ggml.scores", [0.0, -1.5, 2.0])
    writer.add_bool("flag", True)
    rng = np.random.default_rng(5)
    tensors = {}
    for name, block in FORMATS.items():
        rows = quants.random_blocks(name, 6, rng).reshape(3, 2 * block.nbytes)
        tensors[name] = rows
        kind = gguf_package.GGMLQuantizationType[name]
        writer.add_tensor(f"{name}.weight", rows, raw_shape=rows.shape, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def test_file_written_by_the_gguf_package(tmp_path):
    package = pytest.importorskip("gguf")
    tensors = write_with_package(package, tmp_path / "m.gguf")
    model = open_gguf(tmp_path / "m.gguf")
    assert model.metadata["general.architecture"] == "llama"
    assert model.metadata["llama.block_count"] == 3
    assert model.metadata["tokenizer.ggml.tokens"] == ["<s>", "é", "hello world"]
    assert model.metadata["tokenizer.ggml.scores"].tolist() == [0.0, -1.5, 2.0]
    assert model.metadata["flag"] is True
    for name, rows in tensors.items():
        info = TensorInfo(f"{name}.weight", (3, 2 * FORMATS[name].values), name, rows.size)
        assert model.tensors[info.name] == info
        np.testing.assert_array_equal(model.data(info.name), rows.ravel())
    assert_equals_package(package, tmp_path / "m.gguf")


def assert_equals_package(package, path):
    """Every key and every tensor as the gguf package's reader has them."""
    reader = package.GGUFReader(path)
    model = open_gguf(path)
    ours, theirs = model.metadata, {k: f for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    assert list(ours) == list(theirs)
    for name, field in theirs.items():
        value = ours[name]
        assert (value.tolist() if isinstance(value, np.ndarray) else value) == field.contents(), name
    assert list(model.tensors) == [t.name for t in reader.tensors]
    for t in reader.tensors:
        info = TensorInfo(t.name, tuple(t.shape.tolist()[::-1]), t.tensor_type.name, int(t.n_bytes))
        assert model.tensors[t.name] == info
        np.testing.assert_array_equal(model.data(t.name), t.data.view(np.uint8).ravel(), t.name)


def test_split_files_written_by_the_gguf_package(tmp_path):
    package = pytest.importorskip("gguf")
    tensors = write_with_package(package, tmp_path / "m.gguf", split_max_tensors=4)
    paths = sorted(tmp_path.glob("m-*.gguf"))
    assert [path.name for path in paths] == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    for path in paths:  # any part opens the whole
        model = open_gguf(path)
        assert model.path == paths[0]
        assert model.metadata["llama.block_count"] == 3
        for name, rows in tensors.items():
            np.testing.assert_array_equal(model.data(f"{name}.weight"), rows.ravel())
    paths[1].unlink()
    with pytest.raises(ModelFormatError, match=r"m-00002-of-00003\.gguf: cannot be read: No such file"):
        open_gguf(paths[0])


@pytest.mark.slow
def test_real_model_equals_the_gguf_package():
    assert_equals_package(pytest.importorskip("gguf"), real_model("smollm2.gguf"))


def test_real_model_with_a_vocabulary_of_262144():
    model = open_gguf(real_model("gemma3.gguf"))
    metadata = model.metadata
    assert metadata["general.architecture"] == "gemma3"
    for name in ("tokens", "scores", "token_type"):
        assert len(metadata[f"tokenizer.ggml.{name}"]) == 262144
    assert metadata["tokenizer.ggml.tokens"][:4] == ["<pad>", "<eos>", "<bos>", "<unk>"]
    embedding = TensorInfo("token_embd.weight", (262144, 640), "Q8_0", 262144 * 640 // 32 * 34)
    assert model.tensors["token_embd.weight"] == embedding
    assert {info.format for info in model.tensors.values()} <= set(FORMATS)
    # Together with the header the tensors make up the whole file, but for padding.
    assert 0 < model.path.stat().st_size - sum(t.nbytes for t in model.tensors.values()) < 20 << 20


def test_import_is_light():
    code = "import sys, pyrt.gguf, pyrt.checkpoint; print(sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for heavy in ("jinja2", "tokenizers", "huggingface_hub", "rich", "torch", "safetensors", "gguf"):
        assert f"'{heavy}'" not in done.stdout
