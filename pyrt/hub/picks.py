"""Which files of a repository make up the model that was asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyrt.errors import DownloadError

# Without a tag the first of these that a repository has is taken: small and sound first.
PREFERENCE = (
    "Q4_K_M",
    "Q4_0",
    "Q8_0",
    "Q4_K_S",
    "Q5_K_M",
    "Q6_K",
    "Q5_K_S",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "BF16",
    "F16",
    "F32",
)

_SPLIT = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_TAG = re.compile(r"(?<![A-Z0-9])(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|MXFP4(?:_MOE)?|BF16|F16|F32)(?![A-Z0-9])")
_SIDE_FILE = re.compile(r"(^|[^a-z])(mmproj|imatrix)([^a-z]|$)", re.IGNORECASE)
_WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")
# What a folder needs beside its weights. Never *.bin or *.pt: those are pickles, which run code when read.
_BESIDE = {
    "config.json",
    "generation_config.json",
    "model.safetensors.index.json",
    "chat_template.jinja",
    "chat_template.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
}
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")


class AmbiguousModelError(DownloadError):
    """Several models fit the name; the message lists them."""


@dataclass(frozen=True)
class GgufModel:
    """One model in one or several files; ``parts`` are paths inside the repository, in order."""

    key: str
    parts: tuple[str, ...]
    count: int

    @property
    def complete(self) -> bool:
        return len(self.parts) == self.count

    @property
    def tag(self) -> str | None:
        """The quantization that the file's name tells, in capitals."""
        found = _TAG.findall(_base(self.key).upper())
        return found[-1] if found else None


class Choice(NamedTuple):
    """Files to have, and the one to open; ``entry`` is empty where the model is the folder."""

    files: tuple[str, ...]
    entry: str = ""


def gguf_models(names: Iterable[str]) -> list[GgufModel]:
    """The GGUF models among file names, split ones as one; projectors and importance matrices left out."""
    parts: dict[tuple[str, int], dict[int, str]] = {}
    for name in sorted(names):
        if not name.lower().endswith(".gguf") or _SIDE_FILE.search(name):
            continue
        split = _SPLIT.fullmatch(name)
        if split:
            key = (split["stem"] + ".gguf", int(split["count"]))
            parts.setdefault(key, {})[int(split["part"])] = name
        else:
            parts[name, 1] = {1: name}
    return [
        GgufModel(key, tuple(found[i] for i in sorted(found) if 1 <= i <= count), count)
        for (key, count), found in parts.items()
    ]


def _base(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def choose(names: Sequence[str], pick: str | None, label: str) -> Choice:
    """What ``pick`` (tag, file name or None) means in a repository of ``names``. Raises DownloadError."""
    models = [model for model in gguf_models(names) if model.complete]
    if models:
        model = _tagged(models, pick, label) if pick else _preferred(models, label)
        return Choice(model.parts, model.parts[0])
    if pick:
        raise DownloadError(f"{label}: the repository has no GGUF file, so {pick!r} names nothing in it")
    return _checkpoint(names, label)


def _preferred(models: Sequence[GgufModel], label: str) -> GgufModel:
    if len(models) == 1:
        return models[0]
    for tag in PREFERENCE:
        tagged = [model for model in models if model.tag == tag]
        if len(tagged) == 1:
            return tagged[0]
        if tagged:
            raise _ambiguous(tagged, label)
    raise _ambiguous(models, label)


def _tagged(models: Sequence[GgufModel], pick: str, label: str) -> GgufModel:
    if pick.lower().endswith(".gguf"):
        found = [model for model in models if pick in (model.key, *model.parts)]
        found = found or [model for model in models if pick in map(_base, (model.key, *model.parts))]
    else:
        found = [model for model in models if model.tag == pick.upper()]
        if not found:
            word = re.compile(rf"(?<![A-Z0-9]){re.escape(pick.upper())}(?![A-Z0-9_])")
            found = [model for model in models if word.search(model.key.upper())]
    if len(found) == 1:
        return found[0]
    if found:
        raise _ambiguous(found, label)
    raise DownloadError(f"{label}: no file matches {pick!r}; there are {_listed(models)}")


def _ambiguous(models: Sequence[GgufModel], label: str) -> AmbiguousModelError:
    return AmbiguousModelError(f"{label} could be any of {_listed(models)}; name one after a colon")


def _listed(models: Sequence[GgufModel]) -> str:
    return ", ".join(model.parts[0] for model in models)


def _checkpoint(names: Sequence[str], label: str) -> Choice:
    present = set(names)
    weights = sorted(name for name in present if _WEIGHTS.fullmatch(name))
    missing = [] if "config.json" in present else ["config.json"]
    if "model.safetensors" in weights:
        weights = ["model.safetensors"]
    elif weights:
        count = int(weights[0].rsplit("-of-", 1)[1].split(".")[0])
        wanted = [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
        missing += [name for name in wanted if name not in present]
    else:
        missing.append("model.safetensors")
    if not any(name in present for name in _TOKENIZERS):
        missing.append("tokenizer.json")
    if missing:
        raise DownloadError(
            f"{label} has no GGUF file and, for a safetensors model, lacks {', '.join(missing)}"
        )
    return Choice(tuple(sorted((_BESIDE & present) | set(weights))))
