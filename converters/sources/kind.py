"""SourceKind: what a kind of source needs to become an entry of SOURCES."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fastio.converters.fields.types import FieldChoice
from fastio.converters.labels.file import LabelFile, LabelOptions
from fastio.converters.sources.scan import Folder, scan_root
from fastio.converters.sources.source import Source

__all__ = [
    "SourceKind",
    "SourceOptions",
    "SourcePath",
    "source_record",
]


@dataclass(frozen=True)
class SourcePath:
    """A path to be packed. A folder is scanned once, when the first kind of source asks for its content."""

    path: str

    @cached_property
    def is_folder(self) -> bool:
        """Whether this is a folder, or a link to one."""
        return Path(self.path).is_dir()

    @property
    def name(self) -> str:
        """The last part of the path, links followed."""
        return Path(self.path).resolve().name

    @cached_property
    def top(self) -> Folder:
        """What is directly in the folder. Raises SourceError if it is not a folder, or cannot be listed."""
        return scan_root(self.path)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """
    What the user says about a source beside its path.

    ``labels`` is a label file, and ``columns`` says which columns of it (or of the source itself, if that is a table)
    hold what. ``fields`` are the fields asked for; none: what the source has. ``root`` is the folder that file names in
    a table are relative to; None: the table's own folder. ``as_recorded`` says that these options are those of a
    packed store: which columns they leave out was decided when it was packed.
    """

    labels: LabelFile | None = None
    columns: LabelOptions = field(default_factory=LabelOptions)
    fields: tuple[FieldChoice, ...] = ()
    root: str | None = None
    as_recorded: bool = False


@dataclass(frozen=True, slots=True)
class SourceKind:
    """
    One kind of source that ``fastio pack`` reads.

    ``name`` is the value of ``--source-kind``, and packed stores record it; ``aliases`` are the values of older
    versions. ``what`` completes "expected ..." and says in pack's first line what the source is.

    ``signs`` examines a path and says in a few words what indicates this kind ("3 images"), "" if nothing does.
    Without ``--source-kind``, a path is opened only if exactly one kind sees signs: nothing is guessed. Kinds in
    ``covers`` do not count then: this one knows that there is more in the path than they see.

    ``text_kinds`` are names in TEXT_SOURCES of kinds that read the same files. Such a path is packed as text unless
    ``has_more_than_text`` says that text alone would leave out pictures in it, or the user asks for fields.

    ``open`` returns the source. ``open_detected``, if given, does so when the user has not named the kind, and may
    raise SourceError for doubtful ones. ``own_labels`` completes "PATH: ...: drop --labels" for a kind without a
    label file; "" if it takes one. ``takes_fields`` says that it uses ``SourceOptions.fields``, and ``takes_root`` that
    it uses ``root``; for other kinds they are errors. With ``needs_fields``, its signs count only if fields are asked
    for: without them, the path is something else. ``takes_columns`` says that it is a table itself, of which
    ``SourceOptions.columns`` names columns without a label file, and ``takes_without`` that this may name what is left
    out, whatever the kind calls its columns. ``suffixes`` are the extensions of its files, in lower case: where such
    files lie in a folder that is of no kind, the error says that this kind is near.
    """

    name: str
    what: str
    signs: Callable[[SourcePath], str]
    open: Callable[[SourcePath, SourceOptions], Source]
    open_detected: Callable[[SourcePath, SourceOptions], Source] | None = None
    own_labels: str = ""
    takes_fields: bool = False
    takes_root: bool = False
    needs_fields: bool = False
    takes_columns: bool = False
    takes_without: bool = False
    covers: tuple[str, ...] = ()
    text_kinds: tuple[str, ...] = ()
    has_more_than_text: Callable[[SourcePath], bool] = lambda _: False
    aliases: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()


def source_record(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """
    Return what a packed store keeps of its source, as ``metadata["source"]``; ``name`` is the last part of its path.

    The kind is there twice, because older versions look for it under its former name, "layout". ``left_out`` are the
    columns that are not packed; it is not recorded if there are none.
    """
    if not more.get("left_out"):
        more.pop("left_out", None)
    return {"kind": kind, "layout": kind, "name": name, **more}
