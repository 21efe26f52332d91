"""Take the tokenizer of a folder as it is: tokenizer.json and what the files beside it say about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyrt.checkpoint import Checkpoint
from pyrt.errors import ModelFormatError, UnsupportedModelError
from pyrt.tensors import quoted
from pyrt.vocab import Parts
from pyrt.vocab.spelling import spelling_of

MAX_BYTES = 1 << 28
MAX_TOKENS = 1 << 20

# The attributes of transformers' tokenizers that templates may use.
_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def parts_of_folder(folder: Checkpoint) -> Parts:
    """The parts of the tokenizer in an open folder, with or without weights.

    Raises ModelFormatError if tokenizer.json is missing or damaged or the files contradict each other,
    UnsupportedModelError if the tokenizer is of a kind that pyrt lacks.
    """
    path = folder.tokenizer_json
    if path is None:
        raise ModelFormatError(f"{folder.path}: has no tokenizer.json")
    backend = _load(path)
    added = backend.get_added_tokens_decoder()
    names = _names(folder)
    bos = _id(backend, folder, names, "bos")
    eos = _id(backend, folder, names, "eos")
    prefix, suffix = _around(backend, str(path))
    config = folder.tokenizer_config
    # transformers lets these two go before what tokenizer.json does.
    if isinstance(config.get("add_bos_token"), bool) and bos is not None:
        prefix = (bos,) if config["add_bos_token"] else ()
    if isinstance(config.get("add_eos_token"), bool) and eos is not None:
        suffix = (eos,) if config["add_eos_token"] else ()
    n_vocab = max([backend.get_vocab_size(), *(i + 1 for i in added), _vocab_size(folder)])
    ends = {*_ids(folder, "generation_config", "eos"), *_ids(folder, "config", "eos")}
    return Parts(
        where=str(path),
        backend=backend,
        spelling=spelling_of(backend.decoder, str(path)),
        n_vocab=n_vocab,
        bos_id=bos,
        eos_ids=frozenset(ends if eos is None else ends | {eos}),
        special_ids=frozenset(i for i, token in added.items() if token.special),
        prefix=prefix,
        suffix=suffix,
        names=names,
        chat_templates=folder.chat_templates,
    )


def _load(path: Path) -> Any:
    from tokenizers import Tokenizer

    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ModelFormatError(f"{path}: {size} bytes are above the limit of {MAX_BYTES}")
        backend = Tokenizer.from_file(str(path))
    except OSError as error:
        raise ModelFormatError(f"{path}: cannot be read: {error.strerror}") from error
    except ModelFormatError:
        raise
    except BaseException as error:
        # The library has no narrower types: Exception for what it refuses, a BaseException where it panics.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ModelFormatError(f"{path}: {error}") from error
    # A prompt is never cut or filled up unasked.
    backend.no_truncation()
    backend.no_padding()
    return backend


def _names(folder: Checkpoint) -> dict[str, str]:
    """Special tokens by attribute; each is a string or an object with its content."""
    names = {}
    for name in _NAMES:
        token = folder.tokenizer_config.get(name)
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            names[name] = text
        elif token is not None:
            raise ModelFormatError(f"{folder.path / 'tokenizer_config.json'}: {name}: must name a token")
    return names


def _id(backend: Any, folder: Checkpoint, names: dict[str, str], name: str) -> int | None:
    """The id of the tokenizer's own BOS or EOS."""
    token = names.get(f"{name}_token")
    if token is not None:
        found: int | None = backend.token_to_id(token)
        if found is None:
            where = folder.path / "tokenizer_config.json"
            raise ModelFormatError(f"{where}: {name}_token: {quoted(token)} is not in tokenizer.json")
        return found
    ids = [*_ids(folder, "generation_config", name), *_ids(folder, "config", name)]
    return ids[0] if ids else None


def _ids(folder: Checkpoint, file: str, name: str) -> list[int]:
    """The ids that a key like eos_token_id holds: none, one or several."""
    value = getattr(folder, file).get(f"{name}_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for i in ids:
        if type(i) is not int or not 0 <= i < MAX_TOKENS:
            where = folder.path / f"{file}.json"
            raise ModelFormatError(f"{where}: {name}_token_id: {quoted(str(i))} is no token id")
    return ids


def _vocab_size(folder: Checkpoint) -> int:
    """Rows of the embedding table, which may have more of them than the tokenizer has tokens."""
    text = folder.config.get("text_config")
    config = text if isinstance(text, dict) else folder.config
    size = config.get("vocab_size", 0)
    if type(size) is not int or not 0 <= size <= MAX_TOKENS:
        where = folder.path / "config.json"
        raise ModelFormatError(f"{where}: vocab_size: {quoted(str(size))} is no size")
    return size


def _around(backend: Any, where: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that the tokenizer's post-processor puts before and after a text."""
    plain: list[int] = []
    for text in ("a", "0", "!", " "):  # one of which any vocabulary should know
        plain = backend.encode(text, add_special_tokens=False).ids
        if plain:
            break
    full = backend.encode(text, add_special_tokens=True).ids
    for start in range(len(full) - len(plain) + 1):
        if full[start : start + len(plain)] == plain:
            return tuple(full[:start]), tuple(full[start + len(plain) :])
    raise UnsupportedModelError(
        f"{where}: post_processor: one that changes the text's own tokens is not supported"
    )
