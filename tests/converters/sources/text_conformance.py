"""What every source of text must do, whatever its kind; run on all of ``fastio.converters.SOURCES`` with text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fastio.converters import SOURCES
from fastio.converters.text import Documents, Limits, TextOptions, TextSource, open_text
from tests.converters.trees import tree

ROWS = [{"text": f"row {i} ü", "label": ("bee", "cat", "dog")[i % 3]} for i in range(12)]
LABELLED = TextOptions(label_field="label")


def write_stream(path: Path, table: Any, batch_rows: int = 5) -> Path:
    """An Arrow stream, as ``datasets`` writes them."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=batch_rows)
    return path


def write_file(path: Path, table: Any, batch_rows: int = 5) -> Path:
    """An Arrow file."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=batch_rows)
    return path


def write_datasets(folder: Path, table: Any) -> Path:
    """A folder as ``datasets.Dataset.save_to_disk`` leaves it."""
    folder.mkdir()
    write_stream(folder / "data-00000-of-00001.arrow", table)
    files = [{"filename": "data-00000-of-00001.arrow"}]
    (folder / "state.json").write_text(json.dumps({"_data_files": files, "_indices_data_files": None}))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def as_csv(delimiter: str) -> str:
    """The rows as a table."""
    text = io.StringIO()
    writer = csv.DictWriter(text, ["text", "label"], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(ROWS)
    return text.getvalue()


def _make_table(name: str, content: str) -> Callable[[Path], TextSource]:
    return lambda folder: open_text(tree(folder, {name: content}) / name, options=LABELLED)


def _make_parquet(folder: Path) -> TextSource:
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "a.parquet", row_group_size=5)
    return open_text(folder / "a.parquet", options=LABELLED)


def _make_folder(folder: Path) -> TextSource:
    return open_text(tree(folder / "texts", {f"{row['label']}/{i:02d}.txt": row["text"] for i, row in enumerate(ROWS)}))


MAKERS: dict[str, Callable[[Path], TextSource]] = {
    "text-folder": _make_folder,
    "lines": lambda folder: open_text(tree(folder, {"a.txt": "\n".join(row["text"] for row in ROWS)}) / "a.txt"),
    "jsonl": _make_table("a.jsonl", "\n".join(map(json.dumps, ROWS))),
    "json": _make_table("a.json", json.dumps(ROWS)),
    "csv": _make_table("a.csv", as_csv(",")),
    "tsv": _make_table("a.tsv", as_csv("\t")),
    "parquet": _make_parquet,
    "arrow": lambda f: open_text(write_stream(f / "a.arrow", pa.Table.from_pylist(ROWS)), options=LABELLED),
    "datasets": lambda f: open_text(write_datasets(f / "saved", pa.Table.from_pylist(ROWS)), options=LABELLED),
}
TEXTS = {name for name, kind in SOURCES.items() if kind.open_text}

assert TEXTS == MAKERS.keys(), "a new source of text needs a maker here"


def parts(source: TextSource, block_bytes: int = 1 << 20, block_documents: int = 1000) -> Iterator[Documents]:
    """The pieces of a source."""
    return source.read(Limits(block_bytes, block_documents))


def read_all(source: TextSource, *limits: int) -> list[tuple[str, str, int | None]]:
    """Key, text and label of every document."""
    found = []
    for part in parts(source, *limits):
        stops = (part.starts + part.sizes).tolist()
        texts = [part.data[a:b].tobytes().decode() for a, b in zip(part.starts.tolist(), stops, strict=True)]
        labels = [None] * len(texts) if part.labels is None else part.labels.tolist()
        found += list(zip(part.keys, texts, labels, strict=True))
    return found


class TextSourceConformance:
    """The contract of ``fastio.converters.text.TextSource``; ``source`` is a fixture of ROWS without any problem."""

    def test_all_rows_are_documents(self, source: TextSource) -> None:
        """Every text is there once, under a key of its own."""
        found = read_all(source)

        assert sorted(str(row["text"]) for row in ROWS) == sorted(text for _, text, _ in found)
        assert len(ROWS) == len({key for key, _, _ in found})

    def test_labels_are_sorted_classes(self, source: TextSource) -> None:
        """Names become the positions in their sorted list."""
        found = read_all(source)
        if not source.has_labels:
            assert all(label is None for _, _, label in found)
            return
        classes = source.metadata["classes"]
        expected = {str(row["text"]): row["label"] for row in ROWS}

        assert ["bee", "cat", "dog"] == classes
        assert expected == {text: classes[label] for _, text, label in found}

    def test_pieces_do_not_change_the_documents(self, source: TextSource) -> None:
        """The same documents in the same order, however they are cut, and when read again."""
        assert read_all(source) == read_all(source, 1, 1) == read_all(source, 40, 3)

    def test_pieces_are_bounded(self, source: TextSource) -> None:
        """No piece has more documents than asked for."""
        assert all(len(part.keys) <= 2 for part in parts(source, 1 << 20, 2))

    def test_documents_lie_apart_in_order(self, source: TextSource) -> None:
        """Documents follow each other in the data of their piece."""
        for part in parts(source, 60, 4):
            stops = part.starts + part.sizes
            assert np.all(part.starts[1:] >= stops[:-1])
            assert len(stops) == 0 or stops[-1] <= len(part.data)

    def test_progress_counts_the_files(self, source: TextSource) -> None:
        """What was read adds up to about the bytes announced, and never to more."""
        read = sum(part.read_bytes for part in parts(source, 60, 4))

        assert 0 <= read <= source.size_bytes <= max(source.disk_bytes, source.size_bytes)
        assert source.files_opened > 0

    def test_metadata_is_json(self, source: TextSource) -> None:
        """What goes into the store can be written there, and says where it came from."""
        list(parts(source))
        said = json.loads(json.dumps(source.metadata))

        assert source.kind == said["source"]["kind"]
        assert "classes" in said
        assert not source.is_ids
