"""What a kind of text source brings along to become an entry of TEXT_SOURCES."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastio.converters.text.documents import TextOptions, TextSource

__all__ = ["TextKind"]


@dataclass(frozen=True, slots=True)
class TextKind:
    """
    One kind of text that ``fastio pack`` reads.

    ``name`` is the value of ``--source-kind``, and packed stores record it. ``suffixes`` are those of its files, with
    which a path is recognised; none for a kind that is recognised by what lies in its folder. ``open`` gives the
    source.
    """

    name: str
    suffixes: tuple[str, ...]
    open: Callable[[str, TextOptions], TextSource]
