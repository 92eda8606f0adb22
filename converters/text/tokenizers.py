"""``load_tokenizer``: the tokenizer that a user names."""

from __future__ import annotations

from collections.abc import Mapping

from fastio.converters.text.huggingface import HuggingFaceTokenizer
from fastio.converters.text.tokenizer import BytesTokenizer, Tokenizer
from fastio.errors import SourceError

__all__ = ["load_tokenizer"]


def load_tokenizer(name: str, special: Mapping[str, str] | None = None) -> Tokenizer:
    """
    Load ``bytes``, or a Hugging Face ``tokenizers`` JSON by its path; ``special`` names its tokens by role (bos,
    ...).
    """
    if name != "bytes":
        return HuggingFaceTokenizer.load(name, special)
    if special:
        raise SourceError("the tokenizer of bytes has its own special tokens: drop --special")
    return BytesTokenizer()
