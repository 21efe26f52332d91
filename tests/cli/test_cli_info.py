"""`pyrt info`: the published arithmetic of the 8B shape, from a bare config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyrt.cli import main

Out = pytest.CaptureFixture[str]

# The published shape of Llama 3 8B (arXiv:2407.21783, table 3, and the model's config.json).
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128256,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return path


def test_the_8b_shape_in_figures(config: Path, capsys: Out) -> None:
    assert main(["info", str(config)]) == 0
    out = capsys.readouterr().out
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert lines["total"] == ["8,030,261,248", "218,112,000"]
    assert lines["feed-forward"][:1] != []
    for said in (
        *("8,030,261,248", "5,637,144,576", "70.2%", "41,943,040", "176,160,768", "4.20×"),
        *("14.96 GiB", "7.48 GiB", "3.74 GiB", "2.41 layers"),
    ):
        assert said in out


def test_the_same_as_data(config: Path, capsys: Out) -> None:
    assert main(["info", str(config), "--json", "-c", "4096"]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    counted = facts["parameters"]
    assert counted["total"] == 8_030_261_248 == sum(counted["components"].values())
    assert counted["components"]["feed-forward"] == 32 * 3 * 4096 * 14336
    assert sum(counted["shares"].values()) == pytest.approx(1.0)
    assert facts["weight_bytes"]["16"] == 2 * counted["total"]
    assert facts["kv_bytes_per_token"]["f16"] == 2 * 32 * 8 * 128 * 2
    assert facts["kv_bytes"]["f16"] == 4096 * facts["kv_bytes_per_token"]["f16"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "must be a JSON object"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
        ('{"model_type": "nonsense"}', "nonsense"),
    ],
)
def test_a_bad_config_is_one_line(tmp_path: Path, capsys: Out, text: str, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    assert main(["info", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert len(err.splitlines()) == 1
