"""A toy kind of source, as a user would add it: a .book file, a line of JSON and then pictures one after the other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from fastio._native import Buffers
from fastio.converters.sources.files import IMAGE_FIELD, LABEL_FIELD
from fastio.converters.sources.listed import ListedSource, Values, names_at
from fastio.converters.sources.options import SourceOptions, source_record
from fastio.errors import SourceError
from fastio.store.kinds.registry import SourceKind
from fastio.store.kinds.scan import Problem, SourcePath
from fastio.types.schema import Schema
from fastio.types.spans import Spans


def open_book(place: SourcePath, _options: SourceOptions = None) -> ListedSource:
    """The pictures of one book; those that the file ends before are problems."""
    try:
        with Path(place.path).open("rb") as file:
            head = file.readline()
        rows = [(str(key), int(size), int(label)) for key, size, label in json.loads(head)]
    except (OSError, ValueError, TypeError) as exc:
        raise SourceError(f"{place.path}: expected a book, a line of [[key, size, label], ...]: {exc}") from exc
    data = np.memmap(place.path, np.uint8, "r")
    sizes = np.array([size for _, size, _ in rows], np.int64)
    starts = len(head) + np.cumsum(sizes) - sizes
    whole = starts + sizes <= len(data)
    kept = [row for row, is_whole in zip(rows, whole, strict=True) if is_whole]
    spans = Spans(Buffers([data]), np.zeros(len(kept), np.int32), starts[whole], sizes[whole])
    return ListedSource(
        path=place.path,
        kind=KIND.name,
        schema=Schema((IMAGE_FIELD, LABEL_FIELD)),
        metadata={"classes": None, "source": source_record(KIND.name, place.name)},
        keys_at=names_at([key for key, _, _ in kept]),
        sizes=sizes[whole],
        read=lambda indices, _pool: lambda: Values({"image": spans.at(indices)}),
        disk_bytes=Path(place.path).stat().st_blocks * 512,
        files_opened=1,
        columns={"label": np.array([label for _, _, label in kept], np.int64)},
        problems=[Problem(rows[i][0], "is cut off") for i in np.flatnonzero(~whole).tolist()],
    )


KIND = SourceKind(
    name="book",
    suffixes=(".book",),
    what="a book of pictures",
    signs=lambda place: "the name of a book" if Path(place.path).suffix == ".book" else "",
    open=open_book,
    own_labels="a book has its own labels",
)
