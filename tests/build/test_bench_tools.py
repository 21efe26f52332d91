"""The tools of bench/: the model that make_model writes, the names of tests, limits, and the table."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from binaries import ROOT

sys.path.append(str(ROOT / "bench"))  # last: tests/raw_kernels goes before bench/kernels.py

import compare
import compare_report
import machine
from make_model import FILE_TYPES, Shape, byte_characters, kind_of, write_model
from peers.spec import PROMPT, Case, measure, parse

TINY = Shape(
    n_vocab=600,
    n_layers=8,
    d_model=256,
    n_heads=4,
    n_kv_heads=2,
    head_dim=64,
    d_ff=512,
    context_length=128,
)


@pytest.fixture(scope="module", params=FILE_TYPES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    path = tmp_path_factory.mktemp("made") / "model.gguf"
    write_model(path, request.param, TINY)
    return request.param, path


def test_weights_are_about_normal(model: tuple[str, Path]) -> None:
    file_type, path = model
    tensors = gguf.GGUFReader(path).tensors
    assert len(tensors) == 1 + 7 * TINY.n_layers + 1 + 2 * TINY.n_layers
    for tensor in tensors:
        weights = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if tensor.name.endswith("norm.weight"):
            assert (weights == 1).all()
            continue
        assert tensor.tensor_type == kind_of(file_type, tensor.name.removesuffix(".weight"), TINY.n_layers)
        assert abs(weights.mean()) < 0.001
        assert 0.019 < weights.std() < 0.022
        middle = (np.abs(weights) < 0.02).mean()  # 0.68 of a normal distribution, 0.58 of a uniform one
        assert 0.62 < middle < 0.75


def test_half_of_q4_k_m_is_q6_k() -> None:
    kinds = [kind_of("Q4_K_M", f"blk.{i}.ffn_down", 16).name for i in range(16)]
    assert [i for i, kind in enumerate(kinds) if kind == "Q6_K"] == [0, 1, 4, 7, 10, 13, 14, 15]
    assert kind_of("Q4_K_M", "blk.0.attn_q", 16).name == "Q4_K"


def test_pyrt_runs_the_model(model: tuple[str, Path]) -> None:
    pytest.importorskip("pyrt._core", reason="the compiled core is not there", exc_type=ImportError)
    import pyrt

    with pyrt.load(model[1], threads=1) as loaded:
        tokens = loaded.tokenizer.encode(PROMPT)
        assert len(tokens) == 1 + 16
        assert loaded.tokenizer.decode(tokens[1:]) == PROMPT
        for text in ("ab{}\n\x00é😀", "zzyyx Rome"):  # by bytes, and by merges
            assert loaded.tokenizer.decode(loaded.tokenizer.encode(text)[1:]) == text
        logits = loaded.logits(tokens)
        assert 0.1 < logits.std() < 2
        assert logits.std(axis=0).min() > 0.01  # the tokens matter


def test_a_vocabulary_too_small_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a vocabulary of 260"):
        write_model(tmp_path / "m.gguf", "Q8_0", Shape(n_vocab=260))


def test_byte_characters() -> None:
    characters = byte_characters()
    assert len(set(characters)) == 256
    assert [characters[ord(c)] for c in "A ~\n"] == ["A", "Ġ", "~", "Ċ"]


def test_names_of_tests() -> None:
    assert parse("pp512") == Case("pp512", "pp", 512, 1, 0)
    assert parse("tg32x8@64") == Case("tg32x8@64", "tg", 32, 8, 64)
    assert parse("tg64@4096").context == 4161
    for wrong in ("pp", "tg0", "pp8x2", "first", "tg64@", "xtg64"):
        with pytest.raises(ValueError, match="is no test"):
            parse(wrong)


def test_measuring_keeps_reasons() -> None:
    def run(test: Case) -> float:
        if test.batch > 1:
            raise RuntimeError("first line\nno batches in /somewhere/secret/file\n")
        return 2.0

    found = measure(["pp4", "tg4x2"], run, 2)
    assert found["tests"] == {"pp4": [2.0, 2.0]}
    assert found["errors"] == {"tg4x2": "RuntimeError: no batches in file"}


def test_processes() -> None:
    def run(program: str, timeout: float = 60) -> compare.Answer:
        return compare.run([sys.executable, "-c", program], dict(os.environ), timeout)

    good = run("b = bytearray(b'x') * 50_000_000; print('word')")
    assert (good.text, good.error) == ("word\n", None)
    assert good.peak_bytes > 50e6  # the parent's own may be in it
    assert run("raise OSError('no /a/b/c.gguf')").error == "ended with 1: OSError: no c.gguf"
    assert run("pass").error == "ended with 0: it said nothing"
    assert good.others < os.cpu_count()
    late = run("import time; time.sleep(60)", 0.2)
    assert late.error == "no end after 0 s: it said nothing"
    assert late.seconds < 30


def test_limits() -> None:
    weights = {"layers": {"int8": 1000, "float": 0}, "head": {"int8": 500, "float": 0}}
    one = {
        **weights,
        "isa": "avx2",
        "read_gb_per_s": 2.0,
        "step_bytes": {"tg4": 1000, "tg4x8": 1200},
    }
    tests = [parse(name) for name in ("pp500", "tg4", "tg4x8")]
    found = compare.limits(tests, [{**one, "peak": {"int8": 6e9}}], threads=2)
    assert found["tg4"] == {"tokens_per_s": pytest.approx(2e9 / 1000), "by": "reading"}
    assert found["tg4x8"] == {"tokens_per_s": pytest.approx(12e9 / 3000), "by": "multiplying"}
    assert found["pp500"] == {"tokens_per_s": pytest.approx(12e9 / 2002), "by": "multiplying"}
    assert set(compare.limits(tests, [{**one, "peak": {}}], threads=2)) == {"tg4", "tg4x8"}


STORED: dict[str, Any] = {
    "date": "2026-01-02T03:04:05+00:00",
    "cpu": "some CPU",
    "command": "python bench/compare.py",
    "commit": "abc",
    "threads": 2,
    "tests": ["pp512", "tg32x8", "first"],
    "sides": ["pyrt", "other"],
    "models": [
        {
            "model": "m.gguf",
            "bytes": 5_000_000,
            "sides": {"pyrt": {"version": "pyrt 1", "build": "avx2"}},
            "results": {
                "pp512": {"pyrt": 300.0, "other": 200.0},
                "tg32x8": {"pyrt": 50.0},
                "first": {"pyrt": 0.5, "other": 1.0},
            },
            "limits": {"pp512": {"tokens_per_s": 600.0, "by": "multiplying"}},
            "notes": {"other": {"tg32x8": "it has no batches"}},
            "others": {"pyrt": [0.0, 0.01], "other": [0.0, 0.5]},
        }
    ],
}


def test_table() -> None:
    lines = compare_report.table(STORED).splitlines()
    assert "| prompt of 512, tokens/s | 300 | 200 | 1.50× | 600 (multiplying) | 50% |" in lines
    assert "| generating 32 in each of 8 sequences, tokens/s | 50.0 | - | - | - | - |" in lines
    assert "| start to first token, s | 0.50 | 1.00 | 2.00× | - | - |" in lines
    assert "- other, tg32x8: it has no batches" in lines
    assert "- other: other processes kept up to 0.50 CPUs busy during its speed tests" in lines
    assert not any(line.startswith("- pyrt: other processes") for line in lines)


def test_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    compare_report.plot(STORED, tmp_path / "name")
    assert [path.name for path in tmp_path.iterdir()] == ["name-speed.png"]


def test_commands_are_shown_without_folders() -> None:
    shown = machine._shown(["bench/x.py", "a=/no/where/b,c=/no/d.gguf", "/no/e.gguf", "1/2"])
    assert shown == ["bench/x.py", "a=b,c=d.gguf", "e.gguf", "1/2"]
