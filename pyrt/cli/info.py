"""``pyrt info``: what a model is made of and what it takes, from its files or from a bare config.json."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyrt import hub, params, strict_json
from pyrt.cli.console import Bars, memory, print_facts, print_json, print_table
from pyrt.config import ModelConfig, config_from_hf, read_config
from pyrt.source import Source, open_model

KV_DTYPES = ("f32", "f16", "int8")


@dataclass(frozen=True)
class Subject:
    """What `pyrt info` is about; ``formats`` is empty where there are no weights to look at."""

    path: Path
    config: ModelConfig
    formats: dict[str, str]
    file_nbytes: int = 0


def info(args: argparse.Namespace) -> None:
    """Print the counts, or with ``--json`` all of them as data."""
    with Bars() as bars:
        subject = look(args.model, args.offline, bars)
    facts = examine(subject, args.context_length)
    if args.json:
        print_json(facts)
    else:
        _print(facts, subject.config)


def look(model: str | None, offline: bool | None = None, on_progress: hub.Progress | None = None) -> Subject:
    """Read a config.json, or a model's headers. Raises ModelFormatError and what `resolve` raises."""
    if model is not None and model.endswith(".json") and Path(model).expanduser().is_file():
        path = Path(model).expanduser()
        return Subject(path, config_from_hf(strict_json.load(path), path), {})
    path = hub.resolve(model, offline, on_progress)
    with open_model(path) as source:
        from pyrt.weights import map_weights

        config = read_config(source)
        formats = {tensor.name: tensor.format for tensor in map_weights(source, config)}
        return Subject(path, config, formats, sum(tensor.nbytes for tensor in source.tensors.values()))


def examine(subject: Subject, context_length: int | None = None) -> dict[str, Any]:
    """All that `pyrt info` says: counts of parameters, sizes in bytes."""
    config = subject.config
    counted = params.count(config)
    n_ctx = context_length or config.context_length
    packed = {name: params.packed_nbytes(config, form) for name, form in (("int8", "Q8_0"), ("int4", "Q4_0"))}
    if subject.formats:
        packed = {"auto": params.packed_nbytes(config, subject.formats)} | packed
    return {
        "path": subject.path,
        "arch": config.arch,
        "shape": {name: config.knobs[name] for name in _SHAPE},
        "context_length": config.context_length,
        "tied_head": config.tied,
        "parameters": {
            "total": counted.total,
            "components": counted.components,
            "shares": {name: counted.share(name) for name in counted.components},
            "layer": counted.layer,
            "feed_forward_to_attention": counted.feed_forward_to_attention,
            "embedding_in_blocks": counted.embedding_in_blocks,
        },
        "file_bytes": subject.file_nbytes or None,
        "weight_bytes": {bits: counted.nbytes(bits) for bits in (16, 8, 4)},
        "packed_bytes": packed,
        "kv_bytes_per_token": {kv: params.kv_token_nbytes(config, kv) for kv in KV_DTYPES},
        "kv_context_length": n_ctx,
        "kv_bytes": {kv: params.kv_nbytes(config, n_ctx, kv) for kv in KV_DTYPES},
    }


_SHAPE = ("n_vocab", "d_model", "n_layers", "n_heads", "n_kv_heads", "head_dim", "d_ff")


def _print(facts: dict[str, Any], config: ModelConfig) -> None:
    shape, counted = facts["shape"], facts["parameters"]
    windows = sum(window > 0 for window in config.knobs["layer_window"])
    print(f"{facts['path']}: {facts['arch']}, context of {facts['context_length']:,} tokens")
    print(
        f"{shape['n_layers']} layers{f' ({windows} with a sliding window)' if windows else ''}, "
        f"width {shape['d_model']:,}, {shape['n_heads']} heads of {shape['head_dim']}, "
        f"{shape['n_kv_heads']} kv heads, feed-forward {shape['d_ff']:,}, "
        f"vocabulary {shape['n_vocab']:,}{', tied head' if facts['tied_head'] else ''}"
    )
    layer = counted["layer"]
    rows = [
        (name, f"{n:,}", f"{counted['shares'][name]:.1%}", f"{layer[name]:,}" if layer.get(name) else "")
        for name, n in counted["components"].items()
    ]
    rows.append(("total", f"{counted['total']:,}", "", f"{sum(layer.values()):,}"))
    print_table(rows, ("COMPONENT", "PARAMETERS", "SHARE", "IN A LAYER"), right=(1, 2, 3))
    ratio, blocks = counted["feed_forward_to_attention"], counted["embedding_in_blocks"]
    print(
        f"feed-forward is {ratio:.2f}× attention; one embedding table weighs as much as {blocks:.2f} layers"
    )
    kv, n_ctx = facts["kv_bytes"], facts["kv_context_length"]
    lines = [(f"weights at {bits} bits", memory(n)) for bits, n in facts["weight_bytes"].items()]
    lines += [("in the file", memory(facts["file_bytes"]))] if facts["file_bytes"] else []
    lines += [(f"as packed, {dtype}", memory(nbytes)) for dtype, nbytes in facts["packed_bytes"].items()]
    lines += [(f"K and V of a token, {name}", memory(n)) for name, n in facts["kv_bytes_per_token"].items()]
    lines += [(f"K and V of {n_ctx:,} tokens, {name}", memory(nbytes)) for name, nbytes in kv.items()]
    print_facts(lines)


def file_facts(path: Path) -> dict[str, Any]:
    """What the files of a model say about themselves, for `pyrt show`."""
    with open_model(path) as source:
        types = Counter(tensor.format for tensor in source.tensors.values())
        facts: dict[str, Any] = {
            "file_bytes": sum(tensor.nbytes for tensor in source.tensors.values()),
            "tensors": len(source.tensors),
            "types": ", ".join(f"{count} {name}" for name, count in types.most_common()),
        }
        facts |= _config_facts(source)
    return facts


def _config_facts(source: Source) -> dict[str, Any]:
    from pyrt.checkpoint import Checkpoint

    config = read_config(source)
    facts = {
        "arch": config.arch,
        "parameters": params.count(config).total,
        "context_length": config.context_length,
    }
    if isinstance(source, Checkpoint):
        return {**facts, "chat_template": source.chat_template is not None}
    keys = {"title": "general.name", "licence": "general.license", "tokenizer": "tokenizer.ggml.model"}
    said = {name: source.metadata[key] for name, key in keys.items() if key in source.metadata}
    return {**facts, **said, "chat_template": "tokenizer.chat_template" in source.metadata}
