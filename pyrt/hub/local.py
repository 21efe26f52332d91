"""A path that the user gave: which file in it is the model."""

from __future__ import annotations

import os
from pathlib import Path

from pyrt.errors import ModelFormatError, ModelNotFoundError
from pyrt.hub.picks import gguf_models


def locate(path: Path) -> Path:
    """The GGUF file (first part of a split one) or checkpoint folder that ``path`` means, used in place."""
    try:
        os.stat(path)
    except PermissionError as error:
        raise ModelFormatError(f"{path}: cannot be read: {error.strerror}") from error
    except OSError:
        raise ModelNotFoundError(f"{path}: a link to nowhere") from None
    if path.is_dir():
        return _in_folder(path)
    siblings = _listed(path.parent) if "-of-" in path.name else [path.name]
    for model in gguf_models(siblings):
        if path.name in model.parts and model.complete:
            return path.with_name(model.parts[0])
    return path


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError as error:
        raise ModelFormatError(f"{folder}: cannot be read: {error.strerror}") from error


def _in_folder(folder: Path) -> Path:
    names = sorted(_listed(folder))
    if "config.json" in names:
        return folder
    models = gguf_models(names)
    if len(models) == 1:
        return folder / models[0].parts[0]
    if models:
        listed = ", ".join(model.parts[0] for model in models)
        raise ModelNotFoundError(f"{folder} holds {len(models)} models, name one of them: {listed}")
    raise ModelNotFoundError(f"{folder} holds neither config.json nor a .gguf file")
