"""How text is cut into words before byte-level BPE joins their bytes: one row for each way.

GGUF names the way in ``tokenizer.ggml.pre``. The names and what they stand for are those of llama.cpp
(src/llama-vocab.cpp); the patterns are those of the models' own tokenizer.json.
"""

from __future__ import annotations

from typing import Any, NamedTuple

# Patterns in the syntax of Oniguruma. Each one cuts what the one before has left in pieces.
_DIGIT = r"\p{N}"
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # GPT-2
_WORDS_AND_LINES = (  # Llama 3; Qwen 2 takes digits one by one
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,DIGITS}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class PreTokenizer(NamedTuple):
    """``patterns`` are applied in turn. ``whole_words``: a word that is a token needs no merges to become it.

    ``add_bos`` holds where the file does not say.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False

    def build(self) -> Any:
        """The same as a pre-tokenizer of the tokenizers library."""
        from tokenizers import Regex, pre_tokenizers

        cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.patterns]
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([*cuts, to_bytes])


_GPT2 = PreTokenizer((_WORDS,))
_DIGITS_AND_WORDS = PreTokenizer((_DIGIT, _WORDS))
_LLAMA3 = PreTokenizer((_WORDS_AND_LINES.replace("DIGITS", "3"),), whole_words=True, add_bos=True)
_QWEN2 = PreTokenizer((_WORDS_AND_LINES.replace("{1,DIGITS}", ""),))

PRE_TOKENIZERS = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _WORDS, r"\p{N}+", "[0-9][0-9][0-9]")),
    **dict.fromkeys(("gpt-2", "phi-2", "olmo", "mpt", "jais", "mellum", "exaone4"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"), _DIGITS_AND_WORDS),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2"), _LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), _QWEN2),
}
