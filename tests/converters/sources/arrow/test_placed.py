"""Where the values of Parquet and Arrow files lie: those that packing gives, whatever writes the files, and damage."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastio.converters import open_source
from fastio.converters.fields.types import parse_choice
from fastio.converters.sources.arrow.pages import ColumnChunk, places_of
from fastio.converters.sources.in_place import content_of
from fastio.converters.sources.listed import ListedSource, Values
from fastio.errors import SourceError, StoreError
from fastio.store import open_store
from tests.converters.sources.arrow.picture_tables import (
    picture_table,
    with_features,
    write_file,
    write_parquet,
    write_saved,
    write_stream,
)
from tests.converters.trees import picture

PLAIN = {"compression": "none", "use_dictionary": False}


def opened(path: Path) -> ListedSource:
    """The column ``data`` of a table."""
    source = open_source(path, fields=[parse_choice("data=data:bytes")])
    assert isinstance(source, ListedSource)
    return source


def placed(source: ListedSource, *, check: bool = False) -> Values:
    """Where the values of all rows lie."""
    owner = source.read.__self__  # type: ignore[attr-defined] # a bound method
    values = owner.places(np.arange(len(source.sizes)), check=check)
    assert isinstance(values, Values)
    return values


def bytes_of(values: Values, name: str) -> list[bytes | None]:
    """The bytes of a field, read from the files or from memory; None where there is a problem."""
    spans, paths = values.spans[name], values.files.get(name)
    if paths is None:
        found = [view.tobytes() for view in spans.views()]
    else:
        data = [Path(path).read_bytes() for path in paths]
        places = zip(spans.shard.tolist(), spans.starts.tolist(), spans.sizes.tolist(), strict=True)
        found = [data[file][start : start + size] for file, start, size in places]
    return [None if i in values.problems else value for i, value in enumerate(found)]


def as_packed(source: ListedSource) -> Values:
    """What packing reads of all rows."""
    return source.read(np.arange(len(source.sizes)), None)()


VALUES = st.lists(st.none() | st.binary(max_size=40) | st.just(b"twice"), min_size=1, max_size=40)


@given(
    values=VALUES,
    version=st.sampled_from(["1.0", "2.0"]),
    has_dictionary=st.booleans(),
    page_bytes=st.sampled_from([1, 64, 1 << 20]),
    dictionary_bytes=st.sampled_from([1, 1 << 20]),
    rows=st.integers(1, 50),
    form=st.sampled_from(["plain", "large", "struct", "required", "fixed"]),
)
@example([b"a"] * 33, "1.0", True, 1 << 20, 1 << 20, 50, "plain")
def test_parquet_is_as_packed(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[bytes | None],
    version: str,
    has_dictionary: bool,
    page_bytes: int,
    dictionary_bytes: int,
    rows: int,
    form: str,
) -> None:
    """Values, nulls and what is said of them, for every way in which pyarrow writes pages without compression."""
    if form in ("required", "fixed"):
        values = [(value or b"").ljust(3)[:3] for value in values]
    column = pa.array(
        values, pa.binary(3) if form == "fixed" else pa.large_binary() if form == "large" else pa.binary()
    )
    if form == "struct":
        paths = [None if i % 3 == 0 else f"{i}.png" for i in range(len(values))]
        column = pa.StructArray.from_arrays([column, pa.array(paths, pa.string())], ["bytes", "path"])
    schema = pa.schema([pa.field("data", column.type, nullable=form != "required")])
    path = tmp_path_factory.mktemp("made") / "a.parquet"
    pq.write_table(
        pa.table([column], schema=schema),
        path,
        compression="none",
        use_dictionary=has_dictionary,
        data_page_version=version,
        data_page_size=page_bytes,
        dictionary_pagesize_limit=dictionary_bytes,
        row_group_size=rows,
        write_page_checksum=True,
    )
    source = opened(path)
    here, there = placed(source, check=True), as_packed(source)

    assert [*here.files] == ["data"]
    assert here.problems == there.problems
    assert bytes_of(here, "data") == bytes_of(there, "data") == values


@given(values=VALUES, form=st.sampled_from(["plain", "large", "struct", "dictionary"]), rows=st.integers(1, 50))
def test_arrow_is_as_packed(
    tmp_path_factory: pytest.TempPathFactory, values: list[bytes | None], form: str, rows: int
) -> None:
    """Values, nulls and what is said of them, of files and streams; equal values may lie in one place."""
    column = pa.array(values, pa.large_binary() if form == "large" else pa.binary())
    if form == "struct":
        column = pa.StructArray.from_arrays([column, pa.nulls(len(values), pa.string())], ["bytes", "path"])
    if form == "dictionary":
        column = column.dictionary_encode()
    folder = tmp_path_factory.mktemp("made")
    for write, name in ((write_file, "a.feather"), (write_stream, "a.arrow")):
        source = opened(write(folder / name, pa.table({"data": column}), rows))
        here, there = placed(source), as_packed(source)

        assert here.problems == there.problems
        assert [*here.files] == ["data"]
        assert bytes_of(here, "data") == bytes_of(there, "data") == values


def test_values_beside_pictures(tmp_path: Path) -> None:
    """Texts and arrays of Arrow lie in place, too; those of Parquet, and JSON, are kept in memory."""
    columns = {
        "caption": [f"é {i}" for i in range(7)],
        "vector": pa.array([[i, 0.5, 2] for i in range(7)], pa.list_(pa.float32(), 3)),
        "boxes": [[[i, 1, 2, 3]] * i for i in range(7)],
        "notes": [[{"a": i}] for i in range(7)],
    }
    table = picture_table(7, **columns)
    arrow, parquet = write_stream(tmp_path / "a.arrow", table), write_parquet(tmp_path / "a.parquet", table, **PLAIN)
    files = {}
    for path in (arrow, parquet):
        source = open_source(path)
        assert isinstance(source, ListedSource)
        here, there = placed(source), as_packed(source)
        files[path.suffix] = {*here.files}
        for field in source.schema.payload:
            assert bytes_of(here, field.name) == bytes_of(there, field.name)
        assert here.columns["label"].tolist() == there.columns["label"].tolist()

    assert {".arrow": {"image", "caption", "vector"}, ".parquet": {"image"}}.items() <= {
        suffix: names - {"boxes", "notes"} for suffix, names in files.items()
    }.items()


def test_rows_without_bytes(tmp_path: Path) -> None:
    """Null, and a picture of which there is only a path, are the problems that packing names; the rest is read."""
    images = [{"bytes": picture(i), "path": None} for i in range(5)]
    images[1], images[3] = None, {"bytes": None, "path": "x.png"}  # type: ignore[call-overload] # a list of both
    table = with_features(pa.table({"image": images, "label": range(5)}), {"image": {"_type": "Image"}})
    for path in (write_parquet(tmp_path / "a.parquet", table, 2, **PLAIN), write_stream(tmp_path / "a.arrow", table)):
        source = open_source(path)
        content = content_of(source, str(path))

        assert not isinstance(content, str)
        assert [f"a/{i}" for i in (0, 2, 4)] == [*content.keys]
        assert [each["problem"] for each in content.metadata["skipped"]] == [
            "has null in the column 'image'; --without leaves a column out",
            "has only the path 'x.png' in the column 'image', without the bytes of that file",
        ]


def test_indices_of_a_saved_dataset(tmp_path: Path) -> None:
    """In place, a saved dataset is the rows that its indices choose, in their order."""
    tables = [picture_table(4), picture_table(3)]
    folder = write_saved(tmp_path / "saved", tables, _indices_data_files=[{"filename": "indices.arrow"}])
    write_stream(folder / "indices.arrow", pa.table({"indices": pa.array([6, 0, 5], pa.uint64())}))
    content = content_of(open_source(folder), str(folder))

    assert not isinstance(content, str)
    assert ["data-00001-of-00002/2", "data-00000-of-00002/0", "data-00001-of-00002/1"] == [*content.keys]
    assert [2, 0, 1] == content.columns["label"].tolist()


def _compressed(path: Path, **options: Any) -> Path:
    """The same file, compressed as a whole."""
    write_parquet(path.with_suffix(""), picture_table(3), **options)
    path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))
    path.with_suffix("").unlink()
    return path


REFUSED: list[tuple[str, Callable[[Path], Path], str]] = [
    (
        "a.parquet",
        lambda path: write_parquet(path, picture_table(3)),
        "are compressed with SNAPPY (column 'image.bytes'; use_dictionary=False",
    ),
    (
        "a.parquet",
        lambda path: write_parquet(
            path, picture_table(3), **PLAIN, column_encoding={"image.bytes": "DELTA_LENGTH_BYTE_ARRAY"}
        ),
        "are encoded as DELTA_LENGTH_BYTE_ARRAY (column 'image.bytes'; use_dictionary=False",
    ),
    ("a.parquet.gz", lambda path: _compressed(path, **PLAIN), "lie in a.parquet.gz, which is compressed as a whole"),
    (
        "a.arrow",
        lambda path: write_file(path, picture_table(3), options=pa.ipc.IpcWriteOptions(compression="lz4")),
        "are compressed in the record batches (LZ4 or Zstandard; compression=None",
    ),
    (
        "a.arrow",
        lambda path: write_file(path, pa.table({"image": pa.array([picture(0)], pa.binary_view())})),
        "are of the type binary_view",
    ),
]


@pytest.mark.parametrize(("name", "write", "words"), REFUSED)
def test_what_does_not_lie_in_place(tmp_path: Path, name: str, write: Callable[[Path], Path], words: str) -> None:
    """Compression and encodings are named with the column, and how to write a file without."""
    path = write(tmp_path / name)
    reason = content_of(open_source(path), str(path))

    assert isinstance(reason, str)
    assert f"its values 'image' {words}" in reason


def test_columns_of_one_path(tmp_path: Path) -> None:
    """A column "a.b" and the part "b" of a column "a" have one path in the file: neither is taken for the other."""
    own, other = [b"own"] * 3, [b"other"] * 3
    parts = pa.StructArray.from_arrays([pa.array(own, pa.binary())], ["b"])
    path = write_parquet(tmp_path / "a.parquet", pa.table([parts, pa.array(other)], names=["a", "a.b"]), 3, **PLAIN)
    source = open_source(path, fields=[parse_choice("data=a.b:bytes")])
    assert isinstance(source, ListedSource)
    here, there = placed(source), as_packed(source)

    assert bytes_of(here, "data") == bytes_of(there, "data") != []
    assert {"data": "lie in one of 2 columns with the path 'a.b'"} == here.unfit


def _pictures(count: int) -> list[dict[str, Any]]:
    return [{"bytes": picture(i), "path": None} for i in range(count)]


_TURNS = [{"user": "what?", "assistant": "this"}]
LISTS = {
    "FineVision": {"images": [_pictures(1), _pictures(2)], "texts": [_TURNS] * 2, "source": ["a", "b"]},
    "the Cauldron": {"images": [_pictures(2), _pictures(1)], "texts": [_TURNS] * 2},
    "lists beside a picture": {"image": _pictures(2), "images": [_pictures(2), []]},
    "lists of bytes": {"images": [[picture(0)], [picture(1)]], "label": [0, 1]},
}


@pytest.mark.parametrize("columns", LISTS.values(), ids=LISTS)
@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_lists_of_pictures(tmp_path: Path, columns: dict[str, Any], suffix: str) -> None:
    """Rows of several pictures are refused in place, with the command that packs them: none is lost."""
    path, table = tmp_path / f"a.{suffix}", pa.table(columns)
    write_stream(path, table) if suffix == "arrow" else write_parquet(path, table, **PLAIN)
    with pytest.raises(StoreError, match=r"its values 'images' are lists\. Pack it: fastio pack"):
        open_store(path)


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_rows_with_a_picture_or_none(tmp_path: Path, suffix: str) -> None:
    """Of LLaVA's rows, those without a picture are named, and the others keep their chats."""
    chats = [[{"from": "human", "value": f"<image> {i}"}] for i in range(4)]
    images = [each if i % 2 else None for i, each in enumerate(_pictures(4))]
    path, table = tmp_path / f"a.{suffix}", pa.table({"id": list("abcd"), "image": images, "conversations": chats})
    write_stream(path, table) if suffix == "arrow" else write_parquet(path, table, **PLAIN)
    with open_store(path) as store:
        skipped = [each["key"] for each in store.metadata["skipped"]]
        assert ["a/0", "a/2"] == skipped
        assert ["a/1", "a/3"] == store.keys(np.arange(2))
        views = store.spans("conversations", np.arange(2)).views()
        assert [chats[1], chats[3]] == [json.loads(view.tobytes()) for view in views]


@pytest.mark.parametrize("at", [i / 150 for i in range(150)])
def test_a_changed_byte(tmp_path: Path, at: float) -> None:
    """Whatever byte of a Parquet file with checksums changes, ``fastio index`` finds no other picture in place."""
    data = bytearray(
        write_parquet(
            tmp_path / "a.parquet", picture_table(9), 4, **PLAIN, write_page_checksum=True, write_statistics=False
        ).read_bytes()
    )
    data[int(len(data) * at)] ^= 0x5A
    (tmp_path / "a.parquet").write_bytes(data)
    try:
        source = open_source(tmp_path / "a.parquet")
        assert isinstance(source, ListedSource)
        if "image" not in {field.name for field in source.schema.payload}:
            return  # a column of another name now
        found, message = bytes_of(placed(source, check=True), "image"), "a.parquet"
    except SourceError as exc:
        found, message = [picture(i) for i in range(9)], str(exc)
    assert "a.parquet" in message
    assert found == [picture(i) for i in range(9)]


def chunk(data: bytes, count: int, **of: Any) -> ColumnChunk:
    """All of these bytes as a column."""
    return ColumnChunk("a.parquet: column 'x', row group 0", "column 'x'", 0, len(data), count, **{"levels": 0, **of})


@given(data=st.binary(max_size=60), count=st.integers(1, 1000), levels=st.integers(0, 3), width=st.sampled_from([0, 4]))
def test_bytes_that_are_no_pages(data: bytes, count: int, levels: int, width: int) -> None:
    """Bytes of anything else are an error that says where, or values within them; nothing is allocated for claims."""
    array = np.frombuffer(data, np.uint8)
    try:
        found = places_of(array, chunk(data, count, levels=levels, width=width))
    except SourceError as exc:
        assert re.match(r"a\.parquet: column 'x', row group 0, at byte", str(exc))  # noqa: PT017 - or values in bounds
    else:
        assert (found.starts >= 0).all()
        assert (found.starts + found.sizes <= len(data)).all()


@pytest.mark.parametrize("groups", [1, 1 << 40, 1 << 68])
def test_runs_that_promise_more(groups: int) -> None:
    """A run of indices into a dictionary of one value, which take no bits, may claim any number of them."""
    run = bytes([0, *(0x80 | (groups << 1 | 1) >> shift & 0x7F for shift in range(0, 63, 7)), (groups << 1 | 1) >> 63])
    words = bytes.fromhex("1504 150e 150e 4c 1502 1500 00 00") + b"\3\0\0\0abc"
    size = f"15{2 * len(run):02x}"
    data = words + bytes.fromhex(f"1500 {size} {size} 2c 1508 1510 1506 1506 00 00") + run
    found = places_of(np.frombuffer(data, np.uint8), chunk(data, 4))
    assert [data[at : at + 3] for at in found.starts.tolist()] == [b"abc"] * 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": -1}, "lead out of the file"),
        ({"size": 10_000}, "lead out of the file"),
        ({"count": 3}, "4 values in a page, where 3 are left"),
        ({"count": 5}, "the header of a page leads out of its column"),
        ({"size": 100}, "a page of .* bytes leads out of its column"),
    ],
)
def test_footers_that_are_wrong(tmp_path: Path, changes: dict[str, int], message: str) -> None:
    """Numbers of the footer that its pages contradict are named with file, column and row group."""
    path = write_parquet(tmp_path / "a.parquet", pa.table({"x": [bytes([i]) * 30 for i in range(4)]}), 4, **PLAIN)
    of = pq.read_metadata(path).row_group(0).column(0)
    right = {"start": of.data_page_offset, "size": of.total_compressed_size, "count": 4, "levels": 1}
    data = np.frombuffer(path.read_bytes(), np.uint8)
    assert len(places_of(data, ColumnChunk("a", "x", **right)).starts) == 4
    with pytest.raises(SourceError, match=rf"a\.parquet, at byte .*{message}"):
        places_of(data, ColumnChunk("a.parquet", "x", **{**right, **changes}))
