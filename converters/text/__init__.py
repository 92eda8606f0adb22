"""Packs text into stores of tokens or UTF-8, and unpacks them again. Each name is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastio.lazy import lazy_names

if TYPE_CHECKING:
    from fastio.converters.text.documents import Documents, Limits, TextOptions, TextSource
    from fastio.converters.text.encode import Encoder, Sequences
    from fastio.converters.text.huggingface import HuggingFaceTokenizer
    from fastio.converters.text.kind import TextKind
    from fastio.converters.text.kinds import TEXT_SOURCES, find_text, open_text
    from fastio.converters.text.pack import TextReport, pack_text
    from fastio.converters.text.tokenizer import BytesTokenizer, Tokenizer
    from fastio.converters.text.tokenizers import load_tokenizer

__all__ = [
    "TEXT_SOURCES",
    "BytesTokenizer",
    "Documents",
    "Encoder",
    "HuggingFaceTokenizer",
    "Limits",
    "Sequences",
    "TextKind",
    "TextOptions",
    "TextReport",
    "TextSource",
    "Tokenizer",
    "find_text",
    "load_tokenizer",
    "open_text",
    "pack_text",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "TEXT_SOURCES": "fastio.converters.text.kinds",
        "BytesTokenizer": "fastio.converters.text.tokenizer",
        "Documents": "fastio.converters.text.documents",
        "Encoder": "fastio.converters.text.encode",
        "HuggingFaceTokenizer": "fastio.converters.text.huggingface",
        "Limits": "fastio.converters.text.documents",
        "Sequences": "fastio.converters.text.encode",
        "TextKind": "fastio.converters.text.kind",
        "TextOptions": "fastio.converters.text.documents",
        "TextReport": "fastio.converters.text.pack",
        "TextSource": "fastio.converters.text.documents",
        "Tokenizer": "fastio.converters.text.tokenizer",
        "find_text": "fastio.converters.text.kinds",
        "load_tokenizer": "fastio.converters.text.tokenizers",
        "open_text": "fastio.converters.text.kinds",
        "pack_text": "fastio.converters.text.pack",
    },
)
