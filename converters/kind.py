"""What a kind of source brings along to become an entry of SOURCES."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fastio.converters.labels import LabelFile
from fastio.converters.scan import Folder, scan_root
from fastio.converters.source import Source

__all__ = ["SourceKind", "SourcePath", "source_record"]


@dataclass(frozen=True)
class SourcePath:
    """A path that is to be packed. A folder is scanned once, when the first kind of source asks what lies in it."""

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
        """What lies in the folder itself. Raises SourceError where there is no folder, or it cannot be listed."""
        return scan_root(self.path)


@dataclass(frozen=True, slots=True)
class SourceKind:
    """
    One kind of source that ``fastio pack`` reads.

    ``name`` is the value of ``--source-kind``, and packed stores record it; ``aliases`` are values that older versions
    took. ``what`` completes "expected ..." and says in pack's first line what the source is.

    ``signs`` looks at a path and says in a few words what speaks for this kind ("3 images"), "" if nothing does.
    Without ``--source-kind`` a path is opened if exactly one kind sees signs in it: nothing is guessed.

    ``open`` gives the source. ``open_detected``, where given, does so if nobody named the kind, and may refuse with
    SourceError what it doubts. ``own_labels`` completes "PATH: ...; leave --labels out" for a kind that takes no label
    file; "" if it takes one.
    """

    name: str
    what: str
    signs: Callable[[SourcePath], str]
    open: Callable[[SourcePath, LabelFile | None], Source]
    open_detected: Callable[[SourcePath, LabelFile | None], Source] | None = None
    own_labels: str = ""
    aliases: tuple[str, ...] = ()


def source_record(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """
    What a packed store keeps of its source, as ``metadata["source"]``; ``name`` is the last part of its path.

    The kind stands there twice, for versions of fastio that look for it under its former name, "layout".
    """
    return {"kind": kind, "layout": kind, "name": name, **more}
