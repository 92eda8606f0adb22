"""Packs text into stores of tokens or UTF-8, and unpacks them again. Each name is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastio.lazy import lazy_names

if TYPE_CHECKING:
    from fastio.converters.sources.documents import Documents, Limits, TextOptions, TextSource
    from fastio.converters.sources.text_kinds import TEXT_SOURCES, TextKind, find_text, open_text
    from fastio.converters.text.encode import Encoder, Sequences
    from fastio.converters.text.huggingface import HuggingFaceTokenizer, load_tokenizer
    from fastio.converters.text.pack import TextReport, pack_text
    from fastio.converters.text.tokenizer import BytesTokenizer, Tokenizer

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
        "TEXT_SOURCES": "fastio.converters.sources.text_kinds",
        "BytesTokenizer": "fastio.converters.text.tokenizer",
        "Documents": "fastio.converters.sources.documents",
        "Encoder": "fastio.converters.text.encode",
        "HuggingFaceTokenizer": "fastio.converters.text.huggingface",
        "Limits": "fastio.converters.sources.documents",
        "Sequences": "fastio.converters.text.encode",
        "TextKind": "fastio.converters.sources.text_kinds",
        "TextOptions": "fastio.converters.sources.documents",
        "TextReport": "fastio.converters.text.pack",
        "TextSource": "fastio.converters.sources.documents",
        "Tokenizer": "fastio.converters.text.tokenizer",
        "find_text": "fastio.converters.sources.text_kinds",
        "load_tokenizer": "fastio.converters.text.huggingface",
        "open_text": "fastio.converters.sources.text_kinds",
        "pack_text": "fastio.converters.text.pack",
    },
)
