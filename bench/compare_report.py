"""Tables and plots of what bench/compare.py stored.

python bench/compare_report.py RESULT.json [--plot]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from peers.spec import Case, parse

Found = dict[str, Any]
OTHERS = 0.05  # CPUs that other processes may use before a table tells of it
WORDS = {
    "first": "start to first token, s",
    "memory of first": "memory for the first token, MB",
    "memory of speed": "memory of the speed tests, MB",
}


def table(found: Found) -> str:
    """Markdown: of each model a table and its notes, then versions and circumstances."""
    lines = [f"{found['threads']} threads of {found['cpu']}, {found['date'][:10]}, medians of the rounds", ""]
    for model in found["models"]:
        lines += [f"### {model['model']} ({model['bytes'] / 1e6:.0f} MB)", ""]
        lines += [*model_table(model, found["sides"]), "", *notes(model), ""]
    about = {name: facts for model in found["models"] for name, facts in model["sides"].items()}
    lines += [f"- {name}: {facts['version']}, {facts['build']}" for name, facts in about.items()]
    if found.get("limits_note"):
        lines.append(f"- {found['limits_note']}")
    return "\n".join([*lines, f"- `{found['command']}`, commit {found['commit']}", ""])


def model_table(model: Found, sides: list[str]) -> list[str]:
    """Ratios above 1 are in pyrt's favour: more tokens a second, fewer seconds or bytes."""
    ours, *peers = sides
    heads = ["", *sides, *(f"{ours} / {name}" for name in peers), "limit", f"{ours} of it"]
    lines = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for row, values in model["results"].items():
        speed = row not in WORDS
        mine, limit = values.get(ours), model["limits"].get(row)
        cells = [phrase(row), *(number(values.get(name), row) for name in sides)]
        for name in peers:
            other = values.get(name)
            ratio = None if not mine or not other else mine / other if speed else other / mine
            cells.append("-" if ratio is None else f"{ratio:.2f}×")
        cells.append(f"{number(limit['tokens_per_s'], row)} ({limit['by']})" if limit else "-")
        cells.append(f"{mine / limit['tokens_per_s']:.0%}" if limit and mine else "-")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def notes(model: Found) -> list[str]:
    """One line for each reason, with the rows that it explains."""
    lines = []
    for name, by_row in model["notes"].items():
        rows: dict[str, list[str]] = {}
        for row, why in by_row.items():
            rows.setdefault(why, []).append(row)
        lines += [f"- {name}, {', '.join(names)}: {why}" for why, names in rows.items()]
    for name, others in model["others"].items():
        if max(others) > OTHERS:
            lines.append(
                f"- {name}: other processes kept up to {max(others):.2f} CPUs busy during its speed tests"
            )
    return lines


def phrase(row: str) -> str:
    if row in WORDS:
        return WORDS[row]
    test = parse(row)
    words = f"prompt of {test.n}" if test.phase == "pp" else f"generating {test.n}"
    words += f" in each of {test.batch} sequences" * (test.batch > 1)
    return words + f" after {test.depth}" * bool(test.depth) + ", tokens/s"


def number(value: float | None, row: str) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if row == "first" else f"{value:.0f}" if value >= 100 else f"{value:.1f}"


# --- plots ---------------------------------------------------------------------------------------------


def plot(found: Found, output: Path) -> None:
    """NAME-speed.png, and NAME-depth.png and NAME-batch.png where there are several depths or batches."""
    try:
        import matplotlib
    except ImportError:
        print("no plots: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    def draw(kind: str, panels: list[Any]) -> None:
        if not panels:
            return
        figure, axes = pyplot.subplots(1, len(panels), figsize=(5 * len(panels), 4), squeeze=False)
        for axis, panel in zip(axes[0], panels, strict=True):
            panel(axis)
            axis.set_ylabel("tokens/s")
            axis.set_ylim(0, 1.4 * axis.get_ylim()[1])  # room for the legend
            axis.legend(fontsize="small", loc="upper right", ncols=2)
        figure.tight_layout()
        figure.savefig(output.with_name(f"{output.name}-{kind}.png"), dpi=120)
        pyplot.close(figure)

    plain = [test for test in found["tests"] if test not in ("first", "memory")]
    names = [test for test in plain if (one := parse(test)).batch == 1 and one.depth == 0]
    draw("speed", [lambda axis, name=name: bars(axis, found, name) for name in names])
    for kind in ("depth", "batch"):
        several = [model for model in found["models"] if len(series(model, plain, kind)) > 1]
        draw(kind, [lambda axis, m=model, k=kind: curves(axis, found, m, plain, k) for model in several])


def bars(axis: Any, found: Found, name: str) -> None:
    """One test: a group for each model, a bar for each side, a line at each limit."""
    sides, width = found["sides"], 0.8 / len(found["sides"])
    for i, side in enumerate(sides):
        heights = [model["results"][name].get(side, 0) for model in found["models"]]
        axis.bar([x + i * width for x in range(len(heights))], heights, width, label=side, align="edge")
    for x, model in enumerate(found["models"]):
        if limit := model["limits"].get(name):
            axis.hlines(limit["tokens_per_s"], x, x + 0.8, "black", "dashed", label=None if x else "limit")
    axis.set_xticks([x + 0.4 for x in range(len(found["models"]))])
    axis.set_xticklabels([Path(model["model"]).stem for model in found["models"]], fontsize="small")
    axis.set_title(phrase(name).removesuffix(", tokens/s"))


def series(model: Found, names: list[str], kind: str) -> list[Case]:
    """The generating tests that differ in depth alone, or in batch alone, in order."""
    other = "batch" if kind == "depth" else "depth"
    usual = {"batch": 1, "depth": 0}[other]
    chosen = [test for test in map(parse, names) if test.phase == "tg" and getattr(test, other) == usual]
    measured = [test for test in chosen if model["results"][test.name]]
    return sorted(measured, key=lambda test: getattr(test, kind))


def curves(axis: Any, found: Found, model: Found, names: list[str], kind: str) -> None:
    tests = series(model, names, kind)
    for side in found["sides"]:
        points = [(getattr(test, kind), model["results"][test.name].get(side)) for test in tests]
        known = [(x, y) for x, y in points if y is not None]
        if known:
            axis.plot(*zip(*known, strict=True), marker="o", label=side)
    limits = [(getattr(test, kind), model["limits"].get(test.name)) for test in tests]
    bounds = [(x, limit["tokens_per_s"]) for x, limit in limits if limit]
    if bounds:
        axis.plot(*zip(*bounds, strict=True), "k--", label="limit")
    axis.set_xlabel("tokens before" if kind == "depth" else "sequences together")
    axis.set_title(f"{Path(model['model']).stem}, generating")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("result", type=Path)
    parser.add_argument("--plot", action="store_true")
    args = parser.parse_args()
    found = json.loads(args.result.read_text())
    output = args.result.with_suffix("")
    args.result.with_suffix(".md").write_text(table(found))
    print(table(found))
    if args.plot:
        plot(found, output)


if __name__ == "__main__":
    main()
