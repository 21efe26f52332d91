"""GGUF files that are damaged or lie: each is one error that names the file, the field and the reason."""

import os

import pytest
from files import forge
from files.forge import ARRAY, BOOL, F32, GGML_Q4_K, STRING, U8, U32, U64, gguf, key, tensor, u32, u64
from files.watch import refused

from pyrt import gguf_header
from pyrt.errors import ModelFormatError, UnsupportedModelError
from pyrt.gguf import open_gguf

HUGE = 2**64 - 1
A = tensor("a", [8])
DATA = bytes(64)

# name: (bytes of the file, fragments of the message)
DAMAGED = {
    "empty": (b"", ["empty"]),
    "other magic": (gguf(magic=b"ggjt"), ["magic", "b'ggjt'"]),
    "two bytes": (b"GG", ["magic", "truncated"]),
    "no counts": (b"GGUF" + u32(3), ["tensor count", "truncated"]),
    "huge tensor count": (gguf(n_tensors=HUGE), ["tensor count", str(HUGE * 33)]),
    "huge key count": (gguf(n_keys=HUGE), ["metadata count", str(HUGE * 14)]),
    "name of no bytes": (gguf([key("", U32, 1)]), ["name of key 0", "empty"]),
    "one key too few": (gguf([key("a", U32, 1)], n_keys=2), ["name of key 1", "empty"]),
    "one tensor too few": (gguf([], [A], bytes(99), n_tensors=2), ["name of tensor 1", "empty"]),
    "key of exabytes": (gguf([forge.string("k", HUGE) + DATA]), ["name of key 0", str(HUGE)]),
    "key above 64 KiB": (gguf([key("k" * 65536, U32, 1)]), ["name of key 0", "limit of 65535"]),
    "key not UTF-8": (gguf([key(b"\xff", U32, 1)]), ["name of key 0", "UTF-8"]),
    "key twice": (gguf([key("a.b", U32, 1), key("a.b", U32, 1)]), ["'a.b'", "twice"]),
    "unknown value type": (gguf([key("k", 13, DATA)]), ["'k'", "unknown value type 13"]),
    "unknown item type": (gguf([key("k", ARRAY, u32(99) + u64(1) + DATA)]), ["'k'", "unknown item type 99"]),
    "string of exabytes": (gguf([key("k", STRING, u64(HUGE) + DATA)]), ["'k'", "truncated"]),
    "string of 2**63 bytes": (gguf([key("k", STRING, u64(2**63) + DATA)]), ["'k'", "truncated"]),
    "array of exabytes": (gguf([forge.array("k", F32, [1.0], count=HUGE)]), ["'k'", "truncated"]),
    "array that wraps to its size": (
        gguf([forge.array("k", U64, [1, 2], 2**61 + 2)]),
        ["'k'", "truncated"],
    ),
    "array one too long": (gguf([forge.array("k", U8, [1] * 40, 41)], alignment=1), ["'k'", "41"]),
    "more strings than bytes": (gguf([forge.array("k", STRING, ["a"], 2**40)]), ["'k'", "truncated"]),
    "one string too few": (gguf([forge.array("k", STRING, ["a"] * 9, 10)], alignment=1), ["'k'", "10 str"]),
    "last string too long": (
        gguf(
            [key("k", ARRAY, u32(STRING) + u64(2) + forge.string("a") + forge.string("b", 2))],
            alignment=1,
        ),
        ["'k'", "2 strings"],
    ),
    "strings that wrap around": (
        gguf([key("k", ARRAY, u32(STRING) + u64(3) + forge.string("a", HUGE - 7) + DATA)]),
        ["'k'", "3 strings"],
    ),
    "alignment 0": (gguf([key("general.alignment", U32, 0)], [A], DATA), ["general.alignment"]),
    "alignment 4": (gguf([key("general.alignment", U32, 4)], [A], DATA), ["general.alignment"]),
    "alignment 48": (gguf([key("general.alignment", U32, 48)], [A], DATA), ["general.alignment"]),
    "alignment a string": (gguf([key("general.alignment", STRING, "x")], [A], DATA), ["general.alignment"]),
    "alignment a bool": (gguf([key("general.alignment", BOOL, True)], [A], DATA), ["general.alignment"]),
    "alignment past the end": (gguf([key("general.alignment", U32, 2**31)], [A], DATA), ["'a'", "truncated"]),
    "no dimensions": (gguf([], [tensor("a", [])], DATA), ["'a'", "1 to 4 dimensions, not 0"]),
    "five dimensions": (gguf([], [tensor("a", [1] * 5)], DATA), ["'a'", "dimensions, not 5"]),
    "2**32 dimensions": (gguf([], [tensor("a", [1], n_dims=2**32 - 1)], DATA), ["'a'", "dimensions, not"]),
    "dimension of zero": (gguf([], [tensor("a", [8, 0])], DATA), ["'a'", "zero"]),
    "product wraps to zero": (gguf([], [tensor("a", [2**32, 2**32])], DATA), ["'a'", "truncated"]),
    "product wraps to its size": (gguf([], [tensor("a", [2**62 + 4, 4])], DATA), ["'a'", "truncated"]),
    "four huge dimensions": (gguf([], [tensor("a", [HUGE] * 4)], DATA), ["'a'", "truncated"]),
    "row of half a block": (gguf([], [tensor("a", [128, 2], GGML_Q4_K)], bytes(144)), ["'a'", "128", "Q4_K"]),
    "tensor twice": (gguf([], [A, A], DATA), ["'a'", "twice"]),
    "same bytes": (gguf([], [A, tensor("b", [8])], DATA), ["'b'", "overlaps"]),
    "overlap": (gguf([], [tensor("a", [9]), tensor("b", [8], offset=32)], bytes(99)), ["'b'", "overlaps"]),
    "misaligned offset": (gguf([], [tensor("a", [8], offset=8)], DATA), ["'a'", "alignment 32"]),
    "offset behind the end": (gguf([], [tensor("a", [8], offset=64)], DATA), ["'a'", "offset 64"]),
    "offset wraps around": (gguf([], [tensor("a", [8], offset=2**64 - 32)], DATA), ["'a'", "truncated"]),
    "data cut": (gguf([], [A], DATA[:31]), ["'a'", "truncated"]),
    "name out of the terminal": (gguf([], [tensor("\x1b[2Ja\n", [0])], DATA), [r"'\x1b[2Ja\n'"]),
    "name that floods": (gguf([], [tensor("a" * 60000, [0])], DATA), ["aaa..."]),
    "split count a string": (gguf([key("split.count", STRING, "2")]), ["split.count"]),
    "split without a part's name": (gguf([key("split.count", U32, 2)]), ["-00001-of-00002.gguf"]),
}

# Files that are sound, but of a kind that pyrt does not read.
FOREIGN = {
    "version 1": (gguf(version=1), ["version", "1"]),
    "version 4": (gguf(version=4), ["version", "4"]),
    "big-endian": (gguf(version=3 << 24), ["big-endian"]),
    "type without a name": (gguf([], [tensor("a", [8], 77)], DATA), ["'a'", "type 77 (unknown)", "Q4_K"]),
    "removed type": (gguf([], [tensor("a", [8], 4)], DATA), ["'a'", "ggml type 4 (unknown)"]),
    "type Q2_K": (gguf([], [tensor("a", [256], 10)], DATA), ["'a'", "ggml type 10 (Q2_K)"]),
    "array of arrays": (gguf([key("k", ARRAY, u32(ARRAY) + u64(1) + DATA)]), ["'k'", "arrays of arrays"]),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged(case, tmp_path):
    path = tmp_path / "model.gguf"
    raw, fragments = DAMAGED[case]
    path.write_bytes(raw)
    refused(ModelFormatError, open_gguf, path, fragments)


@pytest.mark.parametrize("case", FOREIGN)
def test_foreign(case, tmp_path):
    path = tmp_path / "model.gguf"
    raw, fragments = FOREIGN[case]
    path.write_bytes(raw)
    refused(UnsupportedModelError, open_gguf, path, fragments)


def test_every_truncation_is_an_error(tmp_path):
    raw = forge.valid_gguf()
    path = tmp_path / "model.gguf"
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        with pytest.raises(ModelFormatError):
            open_gguf(path)


@pytest.mark.parametrize(
    ("field", "head"),
    [
        ("tensor count", b"GGUF" + u32(3) + u64(2**20) + u64(0)),
        ("metadata count", b"GGUF" + u32(3) + u64(0) + u64(2**20)),
        ("'k'", gguf([key("k", STRING, u64(2**32))], alignment=1)),
        ("'k'", gguf([key("k", ARRAY, u32(BOOL) + u64(2**32))], alignment=1)),
        ("'k'", gguf([key("k", ARRAY, u32(STRING) + u64(2**29))], alignment=1)),
        ("'k'", gguf([key("k", ARRAY, u32(STRING) + u64(2) + u64(2**31) + u64(2**31))], alignment=1)),
    ],
    ids=["tensors", "keys", "one string", "bools", "empty strings", "two strings"],
)
def test_counts_that_a_sparse_file_of_8_gib_would_allow(field, head, tmp_path):
    """Nothing here runs past the end, so only a limit keeps the reader from a billion steps or bytes."""
    path = tmp_path / "model.gguf"
    path.write_bytes(head)
    os.truncate(path, 2**33)
    refused(ModelFormatError, open_gguf, path, [field, "limit"])


def test_strings_are_counted_over_all_arrays(tmp_path, monkeypatch):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf([forge.array("k", STRING, ["a"] * 3), forge.array("l", STRING, ["a"] * 3)]))
    monkeypatch.setattr(gguf_header, "MAX_STRINGS", 6)
    open_gguf(path)
    monkeypatch.setattr(gguf_header, "MAX_STRINGS", 5)
    refused(ModelFormatError, open_gguf, path, ["'l'", "3 is above the limit of 2"])


@pytest.mark.parametrize("raw", [b"caf\xe9", b"\xed\xa0\x80", b"\xff"], ids=["latin-1", "surrogate", "0xff"])
def test_text_that_is_not_utf8_is_an_error_when_asked_for(raw, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf([key("one", STRING, forge.string(raw)), forge.array("two", STRING, ["a", raw])]))
    with open_gguf(path) as model:
        assert len(model.metadata) == 2
        refused(ModelFormatError, lambda _: model.metadata["one"], path, ["'one'", "UTF-8"])
        refused(ModelFormatError, lambda _: model.metadata["two"], path, ["'two'", "UTF-8"])


def test_character_torn_between_two_strings_is_not_glued(tmp_path):
    path = tmp_path / "model.gguf"
    first, second = "é".encode()[:1], "é".encode()[1:]
    path.write_bytes(gguf([forge.array("k", STRING, [first, second])]))
    with open_gguf(path) as model, pytest.raises(ModelFormatError, match="UTF-8"):
        model.metadata["k"]


def test_paths_that_are_no_files(tmp_path):
    loop, pipe = tmp_path / "loop.gguf", tmp_path / "pipe.gguf"
    loop.symlink_to(loop)
    os.mkfifo(pipe)
    for path, fragment in [
        (tmp_path, "not a regular file"),
        (pipe, "not a regular file"),
        (loop, "symbolic links"),
        (tmp_path / "none.gguf", "No such file"),
        (tmp_path / "nul\0.gguf", "null byte"),
    ]:
        with pytest.raises(ModelFormatError, match=fragment):
            open_gguf(path)


def split_part(number: int, count: int, tensor_name: str, total: int = 2) -> bytes:
    facts = {"split.no": number, "split.count": count, "split.tensors.count": total}
    return gguf([key(name, U32, value) for name, value in facts.items()], [tensor(tensor_name, [8])], DATA)


@pytest.mark.parametrize(
    ("second", "fragments"),
    [
        (None, ["-00002-of-00002.gguf", "No such file"]),
        (b"GGUF", ["-00002-of-00002.gguf", "truncated"]),
        (split_part(0, 2, "b"), ["-00002-of-00002.gguf", "split.no", "(0, 2)"]),
        (split_part(1, 3, "b"), ["-00002-of-00002.gguf", "split.count", "(1, 3)"]),
        (gguf([], [tensor("b", [8])], DATA), ["-00002-of-00002.gguf", "split.no"]),
        (split_part(1, 2, "a"), ["-00002-of-00002.gguf", "'a'", "two parts"]),
    ],
    ids=["missing", "truncated", "first part again", "of another model", "no part", "tensor in both"],
)
def test_second_part_is_wrong(second, fragments, tmp_path):
    path = tmp_path / "m-00001-of-00002.gguf"
    path.write_bytes(split_part(0, 2, "a"))
    if second is not None:
        (tmp_path / "m-00002-of-00002.gguf").write_bytes(second)
    with pytest.raises(ModelFormatError) as caught:
        open_gguf(path)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_split_lies_about_its_tensors(tmp_path):
    for number, name in enumerate("ab"):
        (tmp_path / f"m-0000{number + 1}-of-00002.gguf").write_bytes(split_part(number, 2, name, total=3))
    with pytest.raises(ModelFormatError, match=r"split\.tensors\.count: says 3, but the parts hold 2"):
        open_gguf(tmp_path / "m-00001-of-00002.gguf")


def test_part_under_another_part_s_name(tmp_path):
    path = tmp_path / "m-00002-of-00002.gguf"
    path.write_bytes(split_part(0, 2, "a"))
    with pytest.raises(ModelFormatError, match=r"must end in -00001-of-00002\.gguf"):
        open_gguf(path)
