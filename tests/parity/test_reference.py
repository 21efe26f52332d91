"""The NumPy reference is the model that transformers means: llama, gemma3 and gpt2, every weight random."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from parity.checkpoints import MODELS, described, logits, tokens, torch
from reference.transformer import Transformer, rounding_error

pytestmark = pytest.mark.parity


class _Double:
    """Stands for the module ``torch`` in a modeling file: whatever it calls float32 becomes float64."""

    float32 = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@pytest.fixture
def in_double(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes a transformers model compute in float64 from end to end, norms and rotary angles included."""

    def convert(model: Any) -> Any:
        monkeypatch.setattr(importlib.import_module(type(model).__module__), "torch", _Double())
        monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
        model.double()
        for name, buffer in model.named_buffers():
            if name.endswith("inv_freq"):
                # 8 significant bits: position * frequency is then the same number in float32 and float64
                buffer.copy_(buffer.to(torch.bfloat16))
        return model

    return convert


@pytest.mark.parametrize("name", MODELS)
def test_same_function_in_float64(name: str, in_double: Any) -> None:
    """Both in float64: nothing but rounding at 1e-16 is left, so a wrong formula has nowhere to hide."""
    model, ids = in_double(MODELS[name]()), tokens(40)
    theirs = logits(model, ids)
    assert theirs.dtype == np.float64
    ours = Transformer(*described(model)).logits(ids)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10 * np.abs(theirs).max())


@pytest.mark.parametrize("name", MODELS)
def test_as_shipped_in_float32(name: str) -> None:
    """Untouched float32 transformers is within a few of the errors that float32 arithmetic makes in it."""
    model, ids = MODELS[name](), tokens(200)
    knobs, tensors = described(model)
    theirs, ours = logits(model, ids), Transformer(knobs, tensors).logits(ids)
    # 8: other orders of sums and a float32 cosine, each costing about what the float32 reference itself loses
    bound = 8 * rounding_error(knobs, tensors, ids).max()
    assert np.abs(theirs - ours).max() <= bound
    assert bound < 1e-4 * np.abs(ours).max(), "a bound this wide would prove nothing"
