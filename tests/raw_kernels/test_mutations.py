"""The tests of this folder fail when a kernel is wrong: every row of mutations.py is noticed."""

from __future__ import annotations

import os
import shutil

import pytest

from raw_kernels.ctable import CSRC, ISAS, table
from raw_kernels.mutations import MUTATIONS, Mutation, caught, sound

NAMES = [f"{m.file}: {m.wrong}" for m in MUTATIONS]


def skip_without(isa: str) -> None:
    if not shutil.which(os.environ.get("CXX", "g++")):
        pytest.skip("no C++ compiler")
    if isa not in ISAS or table(isa) is None:
        pytest.skip(f"this machine or this build lacks {isa}")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=NAMES)
def test_it_still_applies(mutation: Mutation) -> None:
    assert (CSRC / mutation.file).read_text().count(mutation.old) == 1
    assert mutation.old != mutation.new


@pytest.mark.slow
@pytest.mark.build
@pytest.mark.parametrize(("isa", "test"), sorted({(m.isa, m.test) for m in MUTATIONS}))
def test_sound_without_mutation(isa: str, test: str) -> None:
    skip_without(isa)
    assert sound(isa, test)


@pytest.mark.slow
@pytest.mark.build
@pytest.mark.parametrize("mutation", MUTATIONS, ids=NAMES)
def test_caught(mutation: Mutation) -> None:
    skip_without(mutation.isa)
    assert caught(mutation)
