"""Random damage to small sound files: only pyrt's own errors come out, and memory stays in bounds."""

from collections.abc import Callable
from pathlib import Path

import pytest
from files import forge
from files.watch import bounded
from fuzz.readers import accepts_gguf, accepts_safetensors, answer, memory_file
from hypothesis import given, settings
from hypothesis import strategies as st

from pyrt.safetensors import SafetensorsFile

NUMBERS = [forge.u64(n) for n in (0, 1, 2**31, 2**32 - 1, 2**61 + 1, 2**63 - 1, 2**63, 2**64 - 1)]
SIGNS = [bytes([sign]) for sign in b'[]{},:"-e0']
PIECES = st.one_of(st.binary(min_size=1, max_size=8), st.sampled_from(NUMBERS), st.sampled_from(SIGNS))


@st.composite
def damaged(draw: Callable, raw: bytes) -> bytes:
    """Bytes overwritten, inserted, deleted, repeated, copied elsewhere or cut off, one to four times."""
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(raw)))
        end = draw(st.integers(begin, min(len(raw), begin + 64)))
        match draw(st.sampled_from(["write", "insert", "delete", "repeat", "copy", "cut"])):
            case "write":
                piece = draw(PIECES)
                raw = raw[:begin] + piece + raw[begin + len(piece) :]
            case "insert":
                raw = raw[:begin] + draw(PIECES) + raw[begin:]
            case "delete":
                raw = raw[:begin] + raw[end:]
            case "repeat":
                raw = raw[:end] + raw[begin:]
            case "copy":
                at = draw(st.integers(0, len(raw)))
                raw = raw[:at] + raw[begin:end] + raw[at + end - begin :]
            case "cut":
                raw = raw[:begin]
    return raw


def assert_damage_is_survived(accepts: Callable[[Path], bool], raw: bytes) -> None:
    accepted = []

    @settings(max_examples=500, deadline=None)
    @given(damaged(raw))
    def run(changed: bytes) -> None:
        with memory_file(changed) as path:
            accepted.append(bounded(accepts, path))

    run()
    # Both must occur, or the damage was so heavy or so light that nothing was tried.
    assert 0 < sum(accepted) < len(accepted)


def test_damaged_gguf():
    assert_damage_is_survived(accepts_gguf, forge.valid_gguf())


def test_damaged_safetensors():
    assert_damage_is_survived(accepts_safetensors, forge.valid_safetensors())


def test_damaged_safetensors_are_refused_just_where_the_library_refuses():
    library = pytest.importorskip("safetensors")

    def verdict(path: Path) -> set[str] | str:
        try:
            return {name for name, _ in library.deserialize(path.read_bytes())}
        except library.SafetensorError as error:
            return str(error)

    def accepts(path: Path) -> bool:
        model = answer(SafetensorsFile, path)
        expected = verdict(path)
        if model is None:
            assert isinstance(expected, str)
        elif isinstance(expected, str):
            # An unknown type makes the library refuse the whole file, pyrt only the tensor.
            assert "unknown variant" in expected
        else:
            assert set(model.tensors) == expected
        return model is not None

    assert_damage_is_survived(accepts, forge.valid_safetensors())
