"""``pack_text``, the former name of ``pack`` for text."""

from __future__ import annotations

import os
import warnings
from typing import Any

from fastio.converters.packing.packer import pack
from fastio.converters.packing.record import PackReport
from fastio.converters.sources.documents import TextSource
from fastio.converters.text.encode import Encoder
from fastio.converters.text.samples import TextSamples

__all__ = ["pack_text"]


def pack_text(source: TextSource, encoder: Encoder, out: str | os.PathLike[str], **options: Any) -> PackReport:
    """Pack all documents of ``source``; say ``fastio.converters.pack(TextSamples(source, encoder), out)`` instead."""
    warnings.warn(
        "pack_text is now fastio.converters.pack(TextSamples(source, encoder), out)", DeprecationWarning, stacklevel=2
    )
    return pack(TextSamples(source, encoder), out, **options)
