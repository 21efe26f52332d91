"""Rebuild a tokenizer from the keys of a GGUF file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pyrt import _core
from pyrt.errors import ModelFormatError, UnsupportedModelError
from pyrt.tensors import quoted
from pyrt.vocab import Parts
from pyrt.vocab.pretokenizers import PRE_TOKENIZERS
from pyrt.vocab.spelling import Spelling
from pyrt.vocab.spm import merges_by_score

# enum llama_token_type in llama.h
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

# Several times what any real vocabulary has: 262,144 tokens of 1.9 MB, a token of 1,024 spaces.
MAX_TOKENS = 1 << 20
MAX_TEXT = 1 << 24
MAX_TOKEN_LENGTH = 1 << 12

# What templates call the special tokens, and what GGUF does ("seperator" is spelled so).
_NAMES = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "pad_token": "padding",
    "sep_token": "seperator",
}
_UNREAD = {"bert": "WordPiece", "t5": "Unigram", "rwkv": "RWKV's trie", "plamo2": "PLaMo 2's"}


def parts_of_gguf(metadata: Mapping[str, Any], where: str) -> Parts:
    """The parts of the tokenizer that the keys describe; ``where`` names the file in errors.

    Raises UnsupportedModelError for a kind of vocabulary or pre-tokenizer that pyrt lacks, ModelFormatError
    for keys that are missing or contradict each other.
    """
    keys = _Keys(metadata, where)
    model = keys.get("model", str, required=True)
    if model == "gpt2":
        return _byte_level(keys)
    if model == "llama":
        return _sentence_piece(keys)
    kind = f" ({_UNREAD[model]})" if model in _UNREAD else ""
    raise UnsupportedModelError(f"{where}: tokenizer.ggml.model: {quoted(model)}{kind} is not supported")


class _Keys:
    """The keys under tokenizer.ggml, each checked when it is read."""

    def __init__(self, metadata: Mapping[str, Any], where: str) -> None:
        self.metadata = metadata
        self.where = where
        self.tokens: list[str] = self.strings("tokens", MAX_TOKENS)
        self.types = self._types()

    def error(self, key: str, reason: str) -> ModelFormatError:
        return ModelFormatError(f"{self.where}: tokenizer.ggml.{key}: {reason}")

    def get(self, key: str, kind: type, *, required: bool = False) -> Any:
        value = self.metadata.get(f"tokenizer.ggml.{key}")
        if value is None:
            if required:
                raise self.error(key, "is missing")
        elif type(value) is not kind:
            raise self.error(key, f"must be {kind.__name__}, not {type(value).__name__}")
        return value

    def strings(self, key: str, most: int) -> list[str]:
        value = self.metadata.get(f"tokenizer.ggml.{key}")
        if value is None:
            raise self.error(key, "is missing")
        if not isinstance(value, list) or not value:
            raise self.error(key, "must be an array of strings that is not empty")
        if len(value) > most:
            raise self.error(key, f"{len(value)} strings are above the limit of {most}")
        lengths = list(map(len, value))
        if sum(lengths) > MAX_TEXT or max(lengths) > MAX_TOKEN_LENGTH:
            limits = f"{MAX_TEXT} characters, {MAX_TOKEN_LENGTH} in one string"
            raise self.error(
                key, f"{sum(lengths)}, {max(lengths)} in one string, are above the limit of {limits}"
            )
        return value

    def numbers(self, key: str, kinds: str) -> np.ndarray | None:
        """An array of one number a token; ``kinds`` are the kinds of dtype that it may have."""
        value = self.metadata.get(f"tokenizer.ggml.{key}")
        if value is None:
            return None
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
            raise self.error(key, "must be an array of numbers")
        if len(value) != len(self.tokens):
            raise self.error(key, f"has {len(value)} entries for {len(self.tokens)} tokens")
        return value

    def id(self, name: str) -> int | None:
        """The id that a key like eos_token_id holds."""
        value: int | None = self.get(f"{name}_token_id", int)
        if value is not None and not 0 <= value < len(self.tokens):
            raise self.error(f"{name}_token_id", f"{value} is not among {len(self.tokens)} tokens")
        return value

    def _types(self) -> np.ndarray:
        types = self.numbers("token_type", "iu")
        if types is None:
            return np.full(len(self.tokens), NORMAL)
        if types.min() < NORMAL or types.max() > BYTE:
            i = int(np.flatnonzero((types < NORMAL) | (types > BYTE))[0])
            raise self.error("token_type", f"{types[i]} of token {i} is none of {NORMAL} to {BYTE}")
        return types

    def of_type(self, *types: int) -> list[int]:
        found: list[int] = np.flatnonzero(np.isin(self.types, types)).tolist()
        return found


def _byte_level(keys: _Keys) -> Parts:
    from tokenizers import decoders

    name = keys.get("pre", str, required=True)
    pre = PRE_TOKENIZERS.get(name)
    if pre is None:
        raise UnsupportedModelError(f"{keys.where}: tokenizer.ggml.pre: {quoted(name)} is not supported")
    vocabulary = _ids_of(keys)
    rules = _merges(keys, vocabulary)
    backend = _backend(keys, vocabulary, rules, ignore_merges=pre.whole_words)
    backend.pre_tokenizer = pre.build()
    backend.decoder = decoders.ByteLevel()
    return _parts(keys, vocabulary, backend, Spelling(byte_level=True), add_bos=pre.add_bos)


def _merges(keys: _Keys, vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    """The rules that the file lists as "left right"."""
    merges = keys.strings("merges", 4 * MAX_TOKENS)
    rules = _core.listed_merges(keys.tokens, merges)
    if len(rules) < len(merges):  # checked here, because the library panics over a rule that makes no token
        bad = merges[len(rules)]
        parts = bad.split(" ")
        if len(parts) != 2:
            raise keys.error("merges", f"{quoted(bad)} is no pair of tokens")
        missing = next((part for part in parts if part not in vocabulary), None)
        reason = "does not make a token" if missing is None else f"holds {quoted(missing)}, which is no token"
        raise keys.error("merges", f"{quoted(bad)} {reason}")
    return rules


def _sentence_piece(keys: _Keys) -> Parts:
    from tokenizers import decoders, normalizers

    scores = keys.numbers("scores", "f")
    if scores is None:
        raise keys.error("scores", "is missing")
    if not np.isfinite(scores).all():
        raise keys.error("scores", f"that of token {int(np.isfinite(scores).argmin())} is not finite")
    _refuse_normalisation(keys)
    vocabulary = _ids_of(keys)
    joined = np.array(keys.of_type(NORMAL, UNUSED), np.int64)
    joined = joined[np.argsort(-scores[joined], kind="stable")]
    merges = merges_by_score([keys.tokens[i] for i in joined.tolist()])
    unknown = keys.id("unknown")
    backend = _backend(
        keys, vocabulary, merges,
        byte_fallback=True, fuse_unk=True, unk_token=None if unknown is None else keys.tokens[unknown],
    )  # fmt: skip
    prefix_space = keys.get("add_space_prefix", bool) is not False
    space = normalizers.Replace(" ", "▁")
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), space]) if prefix_space else space
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix_space else steps)
    spelling = Spelling(replace=(("▁", " "),), byte_fallback=True, leading_spaces=int(prefix_space))
    return _parts(keys, vocabulary, backend, spelling, add_bos=True)


def _refuse_normalisation(keys: _Keys) -> None:
    # Converters write these for Unigram models only; to pass over them would give other ids.
    charsmap = keys.metadata.get("tokenizer.ggml.precompiled_charsmap")
    for key, used in (
        ("precompiled_charsmap", charsmap is not None and np.size(charsmap) > 0),
        ("remove_extra_whitespaces", keys.get("remove_extra_whitespaces", bool)),
    ):
        if used:
            raise UnsupportedModelError(
                f"{keys.where}: tokenizer.ggml.{key}: is not supported for this model"
            )


def _ids_of(keys: _Keys) -> dict[str, int]:
    return dict(zip(keys.tokens, range(len(keys.tokens)), strict=True))


def _backend(keys: _Keys, vocabulary: dict[str, int], merges: list[tuple[str, str]], **options: Any) -> Any:
    """A tokenizer with the model set and all tokens added that are matched in text as they stand."""
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.models import BPE

    try:
        backend = Tokenizer(BPE(vocabulary, merges, **options))
    except Exception as error:  # the library has no narrower type
        raise keys.error("merges", str(error)) from error
    # As llama.cpp does it: control tokens and unknown ones are special, user-defined ones are text.
    for special, ids in ((True, keys.of_type(UNKNOWN, CONTROL)), (False, keys.of_type(USER_DEFINED))):
        added = [AddedToken(keys.tokens[i], special=special, normalized=False) for i in ids if keys.tokens[i]]
        (backend.add_special_tokens if special else backend.add_tokens)(added)
    return backend


def _parts(
    keys: _Keys, vocabulary: dict[str, int], backend: Any, spelling: Spelling, *, add_bos: bool
) -> Parts:
    """What all kinds share; ``add_bos`` holds where the file does not say."""
    bos, eos = keys.id("bos"), keys.id("eos")
    said = keys.get("add_bos_token", bool)
    if said and bos is None:
        raise keys.error("add_bos_token", "is true, but there is no bos_token_id")
    add_eos = keys.get("add_eos_token", bool)
    if add_eos and eos is None:
        raise keys.error("add_eos_token", "is true, but there is no eos_token_id")
    ids = {name: keys.id(key) for name, key in _NAMES.items()}
    tokens = keys.tokens
    twice = len(vocabulary) < len(tokens)
    return Parts(
        where=keys.where,
        backend=backend,
        spelling=spelling,
        n_vocab=len(tokens),
        bos_id=bos,
        eos_ids=frozenset(i for i in (eos, keys.id("eot"), keys.id("eom")) if i is not None),
        special_ids=frozenset(keys.of_type(UNKNOWN, CONTROL)),
        prefix=(bos,) if bos is not None and (add_bos if said is None else said) else (),
        suffix=(eos,) if eos is not None and add_eos else (),
        names={name: tokens[i] for name, i in ids.items() if i is not None},
        chat_templates=_chat_templates(keys),
        shadowed={i: text for i, text in enumerate(tokens) if vocabulary[text] != i} if twice else {},
    )


def _chat_templates(keys: _Keys) -> dict[str, str]:
    """Templates by name; the one without a name is the default."""
    templates = {}
    for key in keys.metadata:
        if key == "tokenizer.chat_template" or key.startswith("tokenizer.chat_template."):
            value = keys.metadata[key]
            if not isinstance(value, str):
                raise ModelFormatError(f"{keys.where}: {key}: must be a string")
            templates[key.removeprefix("tokenizer.chat_template").removeprefix(".") or "default"] = value
    return templates
