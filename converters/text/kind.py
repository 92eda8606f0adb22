"""TextKind: what a kind of text source needs to become an entry of TEXT_SOURCES."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from fastio.converters.text.documents import TextOptions, TextSource

__all__ = ["TextKind"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextKind:
    """
    One kind of text that ``fastio pack`` reads.

    ``name`` is the value of ``--source-kind``, and packed stores record it. ``open`` returns the source.

    A path is recognised by the ``suffixes`` of its file, or of the files in its folder; a folder also by a file with
    one of the names ``marks``, or by a file in it that ``is_file`` recognises.

    ``unpacks_to`` says what ``fastio unpack`` makes of the documents: one file each, under its key; the single file
    that they came from; or a table.
    """

    name: str
    open: Callable[[str, TextOptions], TextSource]
    suffixes: tuple[str, ...] = ()
    marks: frozenset[str] = frozenset()
    is_file: Callable[[str], bool] | None = None
    unpacks_to: Literal["files", "file", "table"] = "table"
