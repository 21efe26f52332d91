"""Checkpoint folders that are damaged or lie: each is one error that names the file, field and reason."""

import os

import pytest
from files import forge
from files.forge import entry, folder_of, safetensors, u64
from files.watch import refused

from pyrt.checkpoint import INDEX, open_checkpoint
from pyrt.errors import ModelFormatError, UnsupportedModelError

A = {"a": entry("F32", [2], 0, 8)}
DATA = bytes(8)


def lied(**changes):
    """A file of one good tensor of eight bytes, but for these fields."""
    return safetensors({"a": A["a"] | changes}, DATA)


def two(begin, end, size=16):
    """Two tensors, the second of them placed as told."""
    return safetensors(A | {"b": entry("F32", [(end - begin) // 4], begin, end)}, bytes(size))


# name: (bytes of model.safetensors, fragments of the message)
DAMAGED = {
    "empty": (b"", ["empty"]),
    "three bytes": (b"abc", ["header length", "truncated"]),
    "header longer than the file": (safetensors(A, DATA, length=2**32), ["header length", "truncated"]),
    "header of exabytes": (safetensors(A, DATA, length=2**64 - 1), ["header length", str(2**64 - 1)]),
    "header of no bytes": (safetensors(b"", DATA), ["header", "JSON"]),
    "header too short": (safetensors(A, DATA, length=10), ["header", "JSON"]),
    "header into the data": (safetensors(A, DATA, length=68), ["header", "JSON"]),
    "not UTF-8": (safetensors(b'{"\xff": 1}'), ["header", "UTF-8"]),
    "UTF-16": (safetensors('{"a": 1}'.encode("utf-16")), ["header"]),
    "not JSON": (safetensors(b"{'a': 1}"), ["header", "JSON"]),
    "a list": (safetensors(b"[1, 2]"), ["header", "JSON object", "list"]),
    "nested deeply": (safetensors(b'{"a":' * 100_000), ["header", "nested"]),
    "lists nested deeply": (safetensors(b'{"a":' + b"[" * 100_000), ["header", "nested"]),
    "a million values": (safetensors(b'{"a":[' + b"[],[]," * 400_000), ["header", "values", "limit"]),
    "tensor twice": (safetensors(b'{"a": 1, "b": {}, "a": 2}'), ["header", "'a'", "twice"]),
    "field twice": (safetensors(b'{"a": {"dtype": "F32", "dtype": "F16"}}'), ["header", "'dtype'", "twice"]),
    "metadata a number": (safetensors({"__metadata__": 7}), ["__metadata__"]),
    "metadata of numbers": (safetensors({"__metadata__": {"format": 1}}), ["__metadata__"]),
    "tensor a list": (safetensors({"a": []}), ["'a'", "object"]),
    "no fields": (safetensors({"a": {}}), ["'a'", "dtype"]),
    "dtype a number": (lied(dtype=1), ["'a'", "dtype"]),
    "shape a number": (lied(shape=2), ["'a'", "shape"]),
    "shape of floats": (lied(shape=[2.0]), ["'a'", "shape"]),
    "shape of bools": (lied(shape=[2, True]), ["'a'", "shape"]),
    "negative shape": (lied(shape=[-1, -2]), ["'a'", "shape"]),
    "dimension of 70 bits": (lied(shape=[0, 2**70]), ["'a'", "shape"]),
    "digits without end": (safetensors(b'{"a":' + b"1" * 200 + b"}"), ["header", "200 digits"]),
    "nine dimensions": (lied(shape=[1] * 8 + [2]), ["'a'", "shape", "at most 8"]),
    "product one short": (lied(shape=[3]), ["'a'", "needs 12 bytes", "give 8"]),
    "product wraps to its size": (lied(shape=[2**62, 4, 2]), ["'a'", "shape", "give 8"]),
    "product with the wrong type": (lied(dtype="BF16"), ["'a'", "needs 4 bytes", "give 8"]),
    "one offset": (lied(data_offsets=[0]), ["'a'", "data_offsets"]),
    "three offsets": (lied(data_offsets=[0, 8, 8]), ["'a'", "data_offsets"]),
    "negative offset": (lied(data_offsets=[-8, 0]), ["'a'", "data_offsets"]),
    "offsets swapped": (lied(data_offsets=[8, 0]), ["'a'", "data_offsets"]),
    "offset of 70 bits": (lied(data_offsets=[2**70, 2**70 + 8]), ["'a'", "data_offsets"]),
    "offsets past the end": (lied(data_offsets=[8, 16]), ["'a'", "[8, 16]", "truncated"]),
    "data cut": (safetensors(A, DATA[:7]), ["'a'", "[0, 8]", "truncated"]),
    "same bytes": (two(0, 8, 8), ["[0, 8]", "overlap"]),
    "overlap": (two(4, 12, 12), ["'b'", "[4, 12]", "overlap"]),
    "one within the other": (two(4, 8, 8), ["'b'", "[4, 8]", "overlap"]),
    "gap": (two(12, 16), ["'b'", "[12, 16]", "gap after 8"]),
    "gap at the start": (safetensors({"a": entry("F32", [2], 8, 16)}, bytes(16)), ["gap after 0"]),
    "gap at the end": (safetensors(A, bytes(9)), ["1 bytes at the end"]),
    "data without tensors": (safetensors({}, bytes(9)), ["9 bytes at the end"]),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_weights(case, tmp_path):
    raw, fragments = DAMAGED[case]
    folder_of(tmp_path, {"config.json": {}, "model.safetensors": raw})
    refused(ModelFormatError, open_checkpoint, tmp_path, ["model.safetensors: ", *fragments])


def test_every_truncation_is_an_error(tmp_path):
    raw = forge.valid_safetensors()
    for length in range(len(raw)):
        folder_of(tmp_path, {"config.json": {}, "model.safetensors": raw[:length]})
        with pytest.raises(ModelFormatError):
            open_checkpoint(tmp_path)


GOOD = safetensors(A, DATA)
S1, S2 = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


# name: (files beside config.json, fragments of the message)
BAD_SHARDS = {
    "no map": ({INDEX: {}}, [INDEX, "weight_map"]),
    "empty map": ({INDEX: {"weight_map": {}}}, [INDEX, "weight_map"]),
    "map a list": ({INDEX: {"weight_map": ["a"]}}, [INDEX, "weight_map"]),
    "shard a number": ({INDEX: {"weight_map": {"a": 1}}}, ["'a'", ".safetensors file"]),
    "shard another file": ({INDEX: {"weight_map": {"a": "config.json"}}}, ["'a'", ".safetensors file"]),
    "shard missing": ({INDEX: {"weight_map": {"a": S1}}}, [S1, "No such file"]),
    "NUL in its name": ({INDEX: {"weight_map": {"a": "x\0.safetensors"}}}, ["'a'", ".safetensors file"]),
    "name that floods": ({INDEX: {"weight_map": {"a": "x" * 10**6 + S1}}}, ["'a'", ".safetensors file"]),
    "tensor not there": ({INDEX: {"weight_map": {"a": S1, "b": S1}}, S1: GOOD}, ["'b'", S1, "no such"]),
    "tensor in the other shard": (
        {INDEX: {"weight_map": {"a": S2, "b": S1}}, S1: GOOD, S2: safetensors({"b": A["a"]}, DATA)},
        ["'a'", S2, "no such"],
    ),
    "tensor in both shards": (
        {INDEX: {"weight_map": {"a": S1, "b": S2}}, S1: GOOD, S2: two(8, 16)},
        ["'a'", S1, S2],
    ),
    "index nested deeply": ({INDEX: b'{"weight_map":' + b"[" * 100_000}, [INDEX, "nested"]),
    "tensor twice in the index": ({INDEX: b'{"weight_map": {"a": "x", "a": "y"}}'}, [INDEX, "'a'", "twice"]),
}


@pytest.mark.parametrize("case", BAD_SHARDS)
def test_bad_shards(case, tmp_path):
    files, fragments = BAD_SHARDS[case]
    folder_of(tmp_path, {"config.json": {}} | files)
    refused(ModelFormatError, open_checkpoint, tmp_path, fragments)


@pytest.mark.parametrize("shard", ["../x", "{tmp_path}/x", "a/x", "a/../../x", "..\\x"])
def test_shard_out_of_the_folder_is_not_opened(shard, tmp_path):
    name = shard.format(tmp_path=tmp_path) + ".safetensors"
    files = {"config.json": {}, INDEX: {"weight_map": {"a": name}}, "a/x.safetensors": GOOD}
    folder = folder_of(tmp_path / "m", files)
    (tmp_path / "x.safetensors").write_bytes(GOOD)
    refused(ModelFormatError, open_checkpoint, folder, [INDEX, "'a'", "file of this folder"])


WEIGHTS = {"model.safetensors": GOOD}

# name: (files, fragments of the message)
BAD_TEXTS = {
    "no config": (WEIGHTS, ["config.json: ", "No such file"]),
    "empty config": (WEIGHTS | {"config.json": b""}, ["config.json: ", "empty"]),
    "config a list": (WEIGHTS | {"config.json": b"[]"}, ["config.json: ", "JSON object"]),
    "config cut": (WEIGHTS | {"config.json": b'{"a": [1,'}, ["config.json: ", "JSON"]),
    "config nested deeply": (WEIGHTS | {"config.json": b"[" * 10**6}, ["config.json: ", "nested"]),
    "config key twice": (WEIGHTS | {"config.json": b'{"a": 1, "a": 1}'}, ["config.json: ", "'a'", "twice"]),
    "config not UTF-8": (WEIGHTS | {"config.json": b'{"a": "\xff"}'}, ["config.json: ", "UTF-8"]),
    "no weights": ({"config.json": {}}, ["neither", INDEX]),
    "bad generation config": (
        WEIGHTS | {"config.json": {}, "generation_config.json": b"{"},
        ["generation_config.json: ", "JSON"],
    ),
    "template a number": (
        WEIGHTS | {"config.json": {}, "tokenizer_config.json": {"chat_template": 7}},
        ["tokenizer_config.json: ", "chat_template"],
    ),
    "named template without a name": (
        WEIGHTS | {"config.json": {}, "tokenizer_config.json": {"chat_template": [{"template": "x"}]}},
        ["tokenizer_config.json: ", "chat_template", "name"],
    ),
    "named template without a text": (
        WEIGHTS | {"config.json": {}, "tokenizer_config.json": {"chat_template": [{"name": "x"}]}},
        ["tokenizer_config.json: ", "chat_template"],
    ),
    "template not UTF-8": (
        WEIGHTS | {"config.json": {}, "chat_template.jinja": b"\xff"},
        ["chat_template.jinja: ", "UTF-8"],
    ),
    "template of two megabytes": (
        WEIGHTS | {"config.json": {}, "chat_template.jinja": bytes(1 << 21)},
        ["chat_template.jinja: ", "limit"],
    ),
}


@pytest.mark.parametrize("case", BAD_TEXTS)
def test_bad_texts(case, tmp_path):
    files, fragments = BAD_TEXTS[case]
    refused(ModelFormatError, open_checkpoint, folder_of(tmp_path, files), fragments)


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "generation_config.json", "chat_template.jinja"]
)
def test_link_that_leads_to_itself(name, tmp_path):
    folder_of(tmp_path, WEIGHTS | {"config.json": {}})
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to(name)
    refused(ModelFormatError, open_checkpoint, tmp_path, [f"{name}: ", "symbolic links"])


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("config.json", b"{"),
        ("chat_template.jinja", b"{"),
        ("tokenizer_config.json", b"{"),
        ("model.safetensors", u64(2**32) + b"{"),
    ],
)
def test_texts_of_8_gib_are_not_read(name, head, tmp_path):
    folder_of(tmp_path, WEIGHTS | {"config.json": {}} | {name: head})
    os.truncate(tmp_path / name, 2**33)
    refused(ModelFormatError, open_checkpoint, tmp_path, [f"{name}: ", "limit"])


def test_pickled_weights_are_named(tmp_path):
    folder_of(tmp_path, {"config.json": {}, "pytorch_model.bin": b"x"})
    refused(UnsupportedModelError, open_checkpoint, tmp_path, ["pickled", "pytorch_model.bin"])


def test_path_that_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    for name in ("file", "none"):
        refused(ModelFormatError, open_checkpoint, tmp_path / name, ["neither a GGUF file nor a folder"])
