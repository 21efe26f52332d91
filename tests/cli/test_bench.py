"""`pyrt.bench` and `pyrt bench`: what the engine is asked, medians, bytes, and the three forms of output."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyrt._core")

from pyrt import loading
from pyrt.bench import bench, bytes_per_token
from pyrt.cli import main
from pyrt.errors import ContextLengthError
from pyrt.results import Choice, Completion, Timings, Usage

Out = pytest.CaptureFixture[str]


class Timed:
    """A model whose runs take as long as ``speeds`` says, in tokens a second."""

    n_vocab = 100
    tensors = (
        ("embed", "x", 100, 8, 800),
        ("layers.0.q", "x", 8, 8, 64),
        ("final_norm", "x", 1, 8, 32),
        ("head", "x", 100, 8, 1600),
    )

    def __init__(self, threads: int | None, speeds: list[float]) -> None:
        self.speeds = speeds
        self.runs: list[tuple[int, int]] = []
        pools = [SimpleNamespace(page_bytes=3200, window=0), SimpleNamespace(page_bytes=320, window=16)]
        self.engine = SimpleNamespace(cache=SimpleNamespace(pools=pools))
        self.info = SimpleNamespace(
            path=Path("m.gguf"),
            arch="llama",
            dtype="auto",
            parameters=1000,
            packed_bytes=2_000_000,
            kv_dtype="f16",
            isa="avx2",
            threads=threads or 2,
            numerics="exact",
        )

    def check_length(self, n_tokens: int) -> None:
        if n_tokens > 4096:
            raise ContextLengthError(n_tokens, 4096)

    def generate(
        self, prompt: list[int], *, max_tokens: int, temperature: float, ignore_eos: bool
    ) -> Completion:
        assert (temperature, ignore_eos) == (0.0, True)
        assert all(0 <= token < self.n_vocab for token in prompt)
        self.runs.append((len(prompt), max_tokens))
        speed = self.speeds[len(self.runs) % len(self.speeds)]
        choice = Choice(0, "", [0] * max_tokens, "length")
        return Completion(
            (choice,), 0, Usage(len(prompt), max_tokens, 0), Timings(0, 1, 1, speed, 2 * speed), "exact"
        )

    def __enter__(self) -> Timed:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[Timed]:
    made: list[Timed] = []

    def load(model: Any = None, *, threads: int | None = None, on_progress: Any = None, **_: Any) -> Timed:
        made.append(Timed(threads, [10.0, 30.0, 20.0]))
        return made[-1]

    monkeypatch.setattr(loading, "load", load)
    return made


def test_each_test_at_each_depth_and_number_of_threads(models: list[Timed]) -> None:
    rows = bench(n_prompt=[16, 32], n_gen=8, depth=[0, 64], threads=[1, 2], repetitions=1)
    assert [model.info.threads for model in models] == [1, 2]
    told = [(row.threads, row.phase, row.depth, row.n_prompt, row.n_gen) for row in rows]
    one = [("prefill", 16, 0), ("prefill", 32, 0), ("decode", 0, 8)]
    assert told == [(t, phase, d, p, n) for t in (1, 2) for d in (0, 64) for phase, p, n in one]
    # A warm-up; then at depth 64 the context first, so that only what comes after it is computed in the run.
    assert models[0].runs == [
        (1, 9),
        (16, 1),
        (32, 1),
        (1, 9),
        (64, 1),
        (80, 1),
        (64, 1),
        (96, 1),
        (64, 1),
        (65, 9),
    ]


def test_the_median_of_repetitions_that_go_round(models: list[Timed]) -> None:
    (row,) = bench(n_prompt=4, n_gen=0, repetitions=3)
    assert (row.tokens_per_s, row.tokens_per_s_min, row.tokens_per_s_max) == (20.0, 10.0, 30.0)
    assert row.repetitions == 3
    models.clear()
    bench(n_prompt=[4, 5], n_gen=0, repetitions=2)
    assert models[0].runs[1:] == [(4, 1), (5, 1), (4, 1), (5, 1)]


def test_bytes_of_a_token(models: list[Timed]) -> None:
    (row,) = bench(n_prompt=0, n_gen=8, depth=32, repetitions=1)
    # One row of the embedding, the rest whole; K and V of 37 tokens in one group, of 16 in the other.
    assert row.bytes_per_token == 8 + 64 + 32 + 1600 + 100 * 37 + 10 * 16
    assert row.gb_per_s == pytest.approx(row.bytes_per_token * row.tokens_per_s / 1e9)
    assert row.read_gb_per_s > 0.1
    assert row.read_fraction == pytest.approx(row.gb_per_s / row.read_gb_per_s)
    tied = SimpleNamespace(tensors=Timed.tensors[:3], engine=models[0].engine)
    assert bytes_per_token(tied, 0) == 800 + 64 + 32  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_prompt": 0, "n_gen": 0},
        {"n_prompt": -1},
        {"n_gen": []},
        {"repetitions": 0},
        {"threads": [-1]},
        {"n_prompt": 5.5},
    ],
)
def test_counts_that_make_no_sense(models: list[Timed], wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        bench(**wrong)


def test_what_does_not_fit_into_the_context_is_told_before_a_run(models: list[Timed]) -> None:
    with pytest.raises(ContextLengthError):
        bench(n_prompt=[16, 5000], repetitions=1)
    assert models[0].runs == []


def test_json_rows(models: list[Timed], capsys: Out) -> None:
    assert main(["bench", "-p", "16", "-n", "8", "-d", "0,32", "-t", "1", "-r", "2", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    told = [(row["phase"], row["depth"]) for row in rows]
    assert told == [
        ("prefill", 0),
        ("decode", 0),
        ("prefill", 32),
        ("decode", 32),
    ]
    for row in rows:
        assert row["tokens_per_s"] > 0
        assert {"n_prompt", "n_gen", "threads", "isa", "numerics", "model", "parameters"} <= set(row)


def test_csv_and_table(models: list[Timed], capsys: Out) -> None:
    assert main(["bench", "-r", "1", "-o", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["phase"], row["n_prompt"], row["n_gen"]) for row in rows] == [
        ("prefill", "512", "0"),
        ("decode", "0", "64"),
    ]
    assert main(["bench", "-r", "1", "-d", "32"]) == 0
    out = capsys.readouterr().out
    assert "m.gguf" in out
    assert "prefill 512 at 32" in out
    assert "decode 64 at 32" in out
