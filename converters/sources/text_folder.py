"""A folder of .txt files, or class folders of them: one document per file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio._native import ThreadPool
from fastio.converters.sources.documents import Documents, Limits, TextOptions
from fastio.converters.sources.file_set import drop_twins
from fastio.converters.sources.files import read_problem
from fastio.converters.sources.options import source_record
from fastio.converters.sources.source import split_by_bytes
from fastio.converters.sources.streams import opened
from fastio.errors import SourceError
from fastio.store.kinds.names import plain_name, text_kind
from fastio.store.kinds.scan import Folder, Problem, Wanted, scan_root, scan_tree, shown

__all__ = [
    "open_folder",
]


_COMPRESSED = 2  # of text_kind
TEXTS = Wanted(text_kind, "a text", ".txt, .txt.gz, .txt.zst")


def open_folder(path: str, options: TextOptions) -> FolderSource:
    """
    Open ``path/*.txt``, or ``path/class/.../*.txt`` with the first folder level as classes, sorted by name.

    A class folder without a text is a problem, but stays a class; texts beside class folders have no class, so they
    are problems.
    """
    options.refuse(path, "split", "text_field", "label_field", "without", "chat")
    top = scan_root(path, TEXTS)
    classes = [shown(name) for name in top.folders]
    found, values = (top, None) if not top.folders else _classes(path, top)
    source = source_record("text-folder", Path(path).resolve().name, max_document_bytes=options.max_document_bytes)
    stays = drop_twins(found)
    values = None if values is None else values[np.array(stays, bool)]
    return FolderSource(
        path=path,
        names=found.keys,
        keys=[plain_name(key) for key in found.keys],
        sizes=np.array(found.sizes, np.int64),
        labels=values,
        problems=sorted(found.problems, key=lambda problem: problem.key),
        disk_bytes=found.disk_bytes,
        metadata={"classes": classes or None, "source": source},
        options=options,
    )


def _classes(path: str, top: Folder) -> tuple[Folder, NDArray[np.int64]]:
    """All files below the class folders, and their labels."""
    found = Folder(problems=list(top.problems), disk_bytes=top.disk_bytes)
    found.problems += [
        Problem(key, "is beside the class folders, so it has no class: move it into one") for key in top.keys
    ]
    counts = []
    for name in top.folders:
        part = scan_tree(path, name, TEXTS)
        if not part.keys and not part.problems:
            part.problems.append(Problem(shown(name), "is a class folder without a text: remove it or fill it"))
        found.add(part)
        counts.append(len(part.keys))
    return found, np.repeat(np.arange(len(counts), dtype=np.int64), counts)


@dataclass(frozen=True, slots=True)
class FolderSource:
    """Text files below ``path``, in the order of ``names``. Satisfies ``TextSource``."""

    path: str
    names: Sequence[str]
    keys: Sequence[str]  # the names without the suffix of a compression
    sizes: NDArray[np.int64]  # on the disk
    labels: NDArray[np.int64] | None
    problems: Sequence[Problem]
    disk_bytes: int
    metadata: Mapping[str, Any]
    options: TextOptions
    is_ids: bool = False

    @property
    def kind(self) -> str:
        """The name in SOURCES."""
        return "text-folder"

    @property
    def has_labels(self) -> bool:
        """Whether there are class folders."""
        return self.labels is not None

    @property
    def size_bytes(self) -> int:
        """The bytes of all files that may be packed."""
        return int(self.sizes.sum())

    @property
    def files_opened(self) -> int:
        """One file per document."""
        return len(self.names)

    def file_sizes(self) -> Iterator[tuple[str, int]]:
        """Yield each text and its size."""
        for name, size in zip(self.names, self.sizes.tolist(), strict=True):
            yield f"{self.path}/{name}", size

    def read(self, limits: Limits, pool: ThreadPool | None = None) -> Iterator[Documents]:
        """Yield all files, some at a time."""
        # What is compressed is larger than its file: by how much is known when it has been read.
        factors = [4 if text_kind(name) == _COMPRESSED else 1 for name in self.names]
        weights = self.sizes * np.array(factors, np.int64)
        for piece in split_by_bytes(weights, limits.block_bytes, limits.block_documents):
            yield self._documents(slice(piece.start, piece.stop), pool)

    def _documents(self, part: slice, pool: ThreadPool | None) -> Documents:
        names, sizes = self.names[part], self.sizes[part].copy()
        problems: dict[int, str] = {}
        unpacked: dict[int, bytes] = {}
        for i, name in enumerate(names):
            if sizes[i] > self.options.max_document_bytes:
                problems[i] = self.options.too_long
            elif text_kind(name) == _COMPRESSED:
                self._unpack(name, i, unpacked, problems)
        plain = [i for i in range(len(names)) if i not in problems and i not in unpacked]
        for i, text in unpacked.items():
            sizes[i] = len(text)
        sizes[list(problems)] = 0
        starts = np.cumsum(sizes) - sizes
        data = np.empty(int(sizes.sum()), np.uint8)
        for i, text in unpacked.items():
            data[starts[i] : starts[i] + len(text)] = np.frombuffer(text, np.uint8)
        status, errno = np.zeros(len(plain), np.int32), np.zeros(len(plain), np.int32)
        _native.read_files(
            os.fsencode(self.path), [names[i] for i in plain], sizes[plain], data, starts[plain], status, errno, pool
        ).wait()
        for row in np.flatnonzero(status).tolist():
            problems[plain[row]] = read_problem(int(status[row]), int(errno[row]))
        documents = Documents(
            keys=self.keys[part],
            data=data,
            starts=starts,
            sizes=sizes,
            labels=None if self.labels is None else self.labels[part],
            problems=(),
            read_bytes=int(self.sizes[part].sum()),
        )
        return documents.without(problems)

    def _unpack(self, name: str, i: int, unpacked: dict[int, bytes], problems: dict[int, str]) -> None:
        """One compressed file."""
        try:
            with opened(f"{self.path}/{name}") as stream:
                text = stream.read(self.options.max_document_bytes + 1)
        except SourceError as exc:
            problems[i] = str(exc).removeprefix(f"{self.path}/{name}: ")
            return
        if len(text) > self.options.max_document_bytes:
            problems[i] = self.options.too_long
        else:
            unpacked[i] = text
