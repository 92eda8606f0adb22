"""Why a source is not packed, in words: the first bad sample, nothing left, samples that got lost."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fastio.converters.pack_record import sorted_problems
from fastio.converters.raw import Raw
from fastio.converters.scan import shown
from fastio.converters.source import Problem, Source
from fastio.converters.transcode import Transcode
from fastio.errors import SourceError
from fastio.types.schema import POINTS

__all__ = ["check_pictures", "miscounted", "nothing_left", "stop_at"]


def check_pictures(source: Source, pictures: Transcode | Raw) -> None:
    """
    SourceError where there is nothing that could be decoded or written anew (it would be on record as done), or where
    other fields hold positions in pictures whose size would change.
    """
    tied = [field for field in source.schema.payload if field.traits.is_mask or field.is_box or field.role == POINTS]
    if tied and _changes_sizes(pictures):
        raise SourceError(
            f"{shown(source.path)}: has {', '.join(map(str, tied))}, which would no longer fit pictures of other "
            "sizes: drop the options that change sizes (--short-side, --max-side, --resize), and resize while loading: "
            "transforms move masks, boxes and points along"
        )
    if not any(field.traits.is_image for field in source.schema.payload):
        raise SourceError(
            f"{shown(source.path)}: holds no encoded pictures, but "
            f"{', '.join(map(str, source.schema.payload))}: drop the options that change pictures (--restart, "
            "--short-side, --max-side, --resize, --raw)"
        )


def _changes_sizes(pictures: Transcode | Raw) -> bool:
    return pictures.resize is not None or (isinstance(pictures, Transcode) and pictures.side is not None)


def stop_at(source: Source, problem: Problem, *, of: int = 1) -> SourceError:
    """The error for the first of so many bad samples."""
    more = f" (the first of {of} problems)" if of > 1 else ""
    path = shown(source.path)
    folder, slash, name = path.rpartition("/")
    where, sentence = f"{path}/{problem.key}", problem.problem
    row = re.search(rf" \({re.escape(name)}:(\d+)\)\Z", sentence)
    if row is not None:  # of a table, in which no file can be
        where, sentence = f"{path}:{row[1]}", sentence[: row.start()]
    elif problem.key.startswith(f"{name}:"):
        where = f"{folder}{slash}{problem.key}"
    return SourceError(
        f"{where}: {sentence}{more}; correct it, or skip such samples with --on-error skip{problem.way_out}"
    )


def miscounted(source: Source, *, expected: int, packed: int, skipped: int) -> SourceError:
    """The error for a source that yields other samples than it announced."""
    return SourceError(
        f"{shown(source.path)}: {expected} samples were found, but {packed} packed and {skipped} skipped; the source "
        "yielded other samples than it announced. Nothing was kept; please report this"
    )


def nothing_left(source: Source, skipped: Sequence[Problem]) -> SourceError:
    """The error for a source without a sample that could be packed."""
    if not skipped:
        left = f"; {len(source.left_out)} files are not samples, or are left out" if source.left_out else ""
        return SourceError(f"{shown(source.path)}: nothing to pack, the source has no samples{left}")
    first = sorted_problems(skipped)[0]
    return SourceError(
        f"{shown(source.path)}: nothing left to pack, all {len(skipped)} have problems; "
        f"the first: {first.key} {first.problem}"
    )
