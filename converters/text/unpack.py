"""Unpacks the text of a store: its tree of files, its single file, or a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.origin import origin_of, recorded_kind
from fastio.converters.text import TEXT_SOURCES
from fastio.converters.text.decode import Document, StoredText, probe_words
from fastio.converters.text.separators import Separators
from fastio.errors import StoreCorrupt

__all__ = ["text_files", "text_notes"]

Parts = Iterator[tuple[str, bytes]]  # name of a file, the next bytes of it
_Progress = Callable[[int, int], object] | None


def text_files(stored: StoredText, progress: _Progress = None, *, numbers: NDArray[np.int64] | None = None) -> Parts:
    """
    Yield the files of a store of text, piece by piece: all pieces of one come before the next.

    Packed from a folder, every document comes under its key. Packed from one .txt, that file comes. Packed from a
    table, or merged from several .txt, its documents come as .jsonl, with key, text (or tokens, if nobody knows their
    text) and label. ``numbers`` is the number of each sample's document if some were left out.
    """
    origin = origin_of(stored.store.metadata)
    documents = _counted(stored, progress)
    unpacks_to = _unpacks_to(origin)
    if unpacks_to == "files":
        yield from ((each.key, _bytes(each)) for each in documents)
    elif unpacks_to == "file" and not {"shuffle", "merged"} & stored.store.metadata.keys():
        yield from _one_file(stored, origin, documents, numbers)
    else:
        yield from _table(stored, str(origin.get("name") or "samples"), documents)


def text_notes(stored: StoredText) -> list[str]:
    """Return what differs from what was packed, one sentence each; nothing if all bytes are the same."""
    notes, metadata = [], stored.store.metadata
    options, origin = stored.options, origin_of(stored.store.metadata)
    probed = options.get("decoded") or {}
    if stored.tokenizer is not None and probed.get("exact", 0) < probed.get("documents", 0):
        documents = options.get("documents", probed["documents"])
        words = probe_words(probed.get("exact", 0), probed["documents"], documents)
        notes.append(f"the tokenizer changes text: when it was packed, {words}")
    cut = options.get("cut") or {}
    if cut.get("documents"):
        notes.append(f"{cut['documents']:,} documents were truncated when they were packed: {cut['tokens']:,} tokens")
    if metadata.get("skipped"):
        notes.append(f"{len(metadata['skipped']):,} documents were skipped when it was packed: `fastio info --skipped`")
    between = origin.get("between")
    if between is not None and not between.get("whole"):
        notes.append("what was between documents is not known everywhere, so the usual separator was written")
    if _unpacks_to(origin) == "table":
        notes.append("texts and labels of a table, not the table itself")
    elif _unpacks_to(origin) == "file" and metadata.get("merged"):
        notes.append("a row for each text, not the files that were packed: the sets of several were merged")
    return notes


def _unpacks_to(origin: Mapping[str, Any]) -> str:
    kind = TEXT_SOURCES.get(recorded_kind(origin))
    return "table" if kind is None else kind.unpacks_to


def _counted(stored: StoredText, progress: _Progress) -> Iterator[Document]:
    done = 0
    for each in stored.documents():
        yield each
        if progress is not None:
            progress(each.sample + 1 - done, 0)
            done = each.sample + 1


def _bytes(document: Document) -> bytes:
    """The text of a document; ids as numbers where nobody knows it."""
    if document.text is not None:
        return document.text
    assert document.ids is not None
    return " ".join(map(str, document.ids.tolist())).encode()


def _one_file(
    stored: StoredText, origin: Mapping[str, Any], documents: Iterator[Document], numbers: NDArray[np.int64] | None
) -> Parts:
    name = PurePosixPath(str(origin.get("name") or "text.txt")).name
    try:
        between = Separators.from_json(origin["between"])
    except (KeyError, TypeError) as exc:
        raise StoreCorrupt(f"{stored.store.path}: does not say what was between its documents: pack again") from exc
    odd, usual = between.after(), (between.usual or "").encode()
    yield name, between.head.encode()
    for position, each in enumerate(documents):
        number = position if numbers is None else int(numbers[each.sample])
        yield name, _bytes(each) + (odd[number].encode() if number in odd else usual)


def _table(stored: StoredText, source: str, documents: Iterator[Document]) -> Parts:
    name = f"{Path(source).stem}.jsonl"
    labels = stored.store.column("label") if "label" in stored.store.schema else None
    classes = stored.store.metadata.get("classes")
    for each in documents:
        row: dict[str, Any] = {"key": each.key}
        if each.text is not None:
            row["text"] = each.text.decode("utf-8", "surrogateescape")
        else:
            assert each.ids is not None
            row["tokens"] = each.ids.tolist()
        if labels is not None:
            label = labels[each.sample].tolist()
            row["label"] = classes[label] if classes and 0 <= label < len(classes) else label
        yield name, json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"
