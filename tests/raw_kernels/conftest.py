"""Every ISA of the architecture is a parameter; those that this machine lacks are skipped by name."""

from __future__ import annotations

from typing import Any

import pytest

from raw_kernels.ctable import ISAS, table


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> Any:
    """The kernel table of one ISA."""
    found = table(request.param)
    if found is None:
        pytest.skip(f"this machine or this build lacks {request.param}")
    return found
