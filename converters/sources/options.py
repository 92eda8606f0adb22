"""SourceOptions: what the user says about a source beside its path; and what a packed store records of both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fastio.converters.fields.types import FieldChoice
from fastio.converters.labels.file import LabelFile, LabelOptions

__all__ = [
    "IdOptions",
    "SourceOptions",
    "source_record",
]


@dataclass(frozen=True, slots=True)
class IdOptions:
    """
    What the user says about a file of token ids: their ``dtype``, how many there are, and which one ends documents. See
    ``TokenStream``.
    """

    dtype: str | None = None
    vocab_size: int | None = None
    eos: int | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """
    What the user says about a source beside its path.

    ``labels`` is a label file, and ``columns`` says which columns of it (or of the source itself, if that is a table)
    hold what. ``fields`` are the fields asked for; none: what the source has. ``root`` is the folder that file names in
    a table are relative to; None: the table's own folder. ``split`` is the part to open, of a kind that finds its parts
    by itself; None: the only one, or all of them where the kind can. ``chat`` is the column of chats of a table, of
    which pictures, the parts of chats and what ``fields`` asks for are packed. ``as_recorded`` says that these options
    are those of a packed store: which columns they leave out was decided when it was packed. ``ids`` are for files of
    token ids.
    """

    labels: LabelFile | None = None
    columns: LabelOptions = field(default_factory=LabelOptions)
    fields: tuple[FieldChoice, ...] = ()
    root: str | None = None
    split: str | None = None
    as_recorded: bool = False
    ids: IdOptions = IdOptions()
    chat: str | None = None


def source_record(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """
    Return what a packed store keeps of its source, as ``metadata["source"]``; ``name`` is the last part of its path.

    The kind is there twice, because older versions look for it under its former name, "layout". ``left_out`` are the
    columns that are not packed; it is not recorded if there are none.
    """
    if not more.get("left_out"):
        more.pop("left_out", None)
    return {"kind": kind, "layout": kind, "name": name, **more}
