"""Open a model folder as transformers writes it: configuration, weights, tokenizer and chat template."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from pyrt import strict_json
from pyrt.errors import ModelFormatError, UnsupportedModelError
from pyrt.safetensors import SafetensorsFile
from pyrt.tensors import TensorInfo, map_file, quoted

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_TEMPLATE_BYTES = 1 << 20

# No separator, so that no index leads out of its folder, and nothing that spoils an error message.
_SHARD_NAME = re.compile(r"\w[\w .+-]{0,200}\.safetensors")


class Checkpoint:
    """An open model folder: a ``TensorSource`` with the texts beside the weights.

    ``config``, ``generation_config`` and ``tokenizer_config`` are JSON objects, empty where the file may be
    missing and is; ``tokenizer_json`` is a path or None. ``chat_templates`` are the templates by name.
    """

    def __init__(self, path: Path, config: dict[str, Any], files: list[SafetensorsFile]) -> None:
        self.path = path
        self.config = config
        self.generation_config = _optional_json(path / "generation_config.json")
        self.tokenizer_config = _optional_json(path / "tokenizer_config.json")
        self.tokenizer_json = _optional(path / "tokenizer.json")
        self.chat_templates = _chat_templates(path, self.tokenizer_config)
        self.tensors: dict[str, TensorInfo] = {}
        self._files = files
        self._file_of: dict[str, SafetensorsFile] = {}
        for file in files:
            for name, info in file.tensors.items():
                if name in self.tensors:
                    other = self._file_of[name].path.name
                    raise ModelFormatError(f"{file.path}: tensor {quoted(name)}: is in {other} too")
                self.tensors[name] = info
                self._file_of[name] = file

    @property
    def chat_template(self) -> str | None:
        """The template that is used where none is asked for by name."""
        return self.chat_templates.get("default")

    def data(self, name: str) -> np.ndarray:
        """The tensor's bytes: a read-only uint8 view into the map. KeyError if there is no such tensor.

        UnsupportedModelError if its type is none that pyrt reads.
        """
        return self._file_of[name].data(name)

    def close(self) -> None:
        """Let go of the files; views that were handed out stay valid, new ones are a ValueError."""
        for file in self._files:
            file.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_checkpoint(folder: str | Path, *, weights: bool = True) -> Checkpoint:
    """Open a folder with config.json and one or sharded model.safetensors.

    ``weights=False`` needs neither of them: enough for a tokenizer. Raises ModelFormatError if a file is
    missing or damaged, UnsupportedModelError if the weights are in another kind of file.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelFormatError(f"{folder}: neither a GGUF file nor a folder")
    if not weights:
        return Checkpoint(folder, _optional_json(folder / CONFIG), [])
    config = strict_json.load(folder / CONFIG)
    if _optional(folder / WEIGHTS):
        return Checkpoint(folder, config, [SafetensorsFile(folder / WEIGHTS)])
    if _optional(folder / INDEX):
        return Checkpoint(folder, config, _open_shards(folder / INDEX))
    if any(folder.glob("pytorch_model*.bin")):
        raise UnsupportedModelError(f"{folder}: pickled weights (pytorch_model.bin) are not supported")
    raise ModelFormatError(f"{folder}: has neither {WEIGHTS} nor {INDEX}")


def _open_shards(index: Path) -> list[SafetensorsFile]:
    """The files that the index names; each must hold the tensors that the index looks for in it."""
    weight_map = strict_json.load(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFormatError(f"{index}: weight_map: must map tensors to files")
    files: dict[str, SafetensorsFile] = {}
    for name, shard in weight_map.items():
        field = f"{index}: weight_map: {quoted(name)}"
        if not isinstance(shard, str) or not _SHARD_NAME.fullmatch(shard):
            raise ModelFormatError(f"{field}: must name a .safetensors file of this folder")
        if shard not in files:
            files[shard] = SafetensorsFile(index.with_name(shard))
        if name not in files[shard].tensors:
            raise ModelFormatError(f"{field}: {quoted(shard)} has no such tensor")
    return [files[shard] for shard in sorted(files)]


def _chat_templates(folder: Path, tokenizer_config: dict[str, Any]) -> dict[str, str]:
    """Templates by name. Files of their own go before what tokenizer_config.json says, as in transformers."""
    where = folder / "tokenizer_config.json"
    stored = tokenizer_config.get("chat_template") or {}
    if isinstance(stored, str):
        stored = {"default": stored}
    elif isinstance(stored, list):
        if not all(isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in stored):
            raise ModelFormatError(f"{where}: chat_template: each of the list needs a name and a template")
        stored = {entry["name"]: entry.get("template") for entry in stored}
    if not isinstance(stored, dict) or not all(isinstance(text, str) for text in stored.values()):
        raise ModelFormatError(f"{where}: chat_template: must be a string or a list of named strings")
    templates = dict(stored)
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        templates[path.stem] = _read_template(path)
    default = _optional(folder / "chat_template.jinja")
    if default:
        templates["default"] = _read_template(default)
    return templates


def _read_template(path: Path) -> str:
    buffer = map_file(path)
    if len(buffer) > MAX_TEMPLATE_BYTES:
        raise ModelFormatError(f"{path}: {len(buffer)} bytes are above the limit of {MAX_TEMPLATE_BYTES}")
    try:
        return buffer[:].decode()
    except UnicodeDecodeError as error:
        raise ModelFormatError(f"{path}: is not UTF-8: {error}") from error


def _optional(path: Path) -> Path | None:
    # A link to nowhere counts as there, so that opening it says what is wrong.
    return path if os.path.lexists(path) else None


def _optional_json(path: Path) -> dict[str, Any]:
    return strict_json.load(path) if _optional(path) else {}
