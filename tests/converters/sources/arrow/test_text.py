"""Columns of Parquet, Arrow and saved ``datasets``: strings, ready ids, labels, and what is wrong with a row."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastio.converters import pack
from fastio.converters.sources.arrow.reading import size_bytes
from fastio.converters.text import Encoder, Limits, Sequences, TextOptions, TextSamples, open_text
from fastio.errors import SourceError
from fastio.store import open_store
from tests.converters.sources.text_conformance import write_datasets, write_file, write_stream
from tests.converters.text.build import BYTES, documents, ids, packed

TEXTS = ["one", "zü", "", "x" * 30, "last"]


def parquet(path: Path, **columns: Any) -> Path:
    """A Parquet file of these columns, two rows a group."""
    pq.write_table(pa.table(columns), path, row_group_size=2)
    return path


class OldViews:
    """A column of views as pyarrow 18 has it."""

    @property
    def nbytes(self) -> int:
        raise pa.ArrowTypeError("Extracting byte ranges not supported for type string_view")

    def get_total_buffer_size(self) -> int:
        return 72


def test_views_that_pyarrow_cannot_measure() -> None:
    """Their buffers are measured; other columns by their values."""
    assert (72, 8) == (size_bytes(OldViews()), size_bytes(pa.array([1, 2])[:1]))


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.binary(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
@pytest.mark.parametrize("write", [write_stream, write_file])
def test_strings_of_any_kind(tmp_path: Path, kind: Any, write: Any) -> None:
    """However Arrow keeps strings, they are the same documents; slices of batches too."""
    texts = [text.encode() for text in TEXTS] if kind == pa.binary() else TEXTS
    path = write(tmp_path / "a.arrow", pa.table({"text": pa.array(texts, kind)}), 3)
    found, problems = documents(path, limits=Limits(block_documents=2))

    assert [text.encode() for text in TEXTS] == list(found.values())
    assert {} == problems
    assert [f"a.arrow:{i}" for i in range(1, 6)] == list(found)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("name", ["a.parquet", "stream.arrow", "file.arrow"])
def test_compressed(tmp_path: Path, name: str, suffix: str) -> None:
    """Compressed as a whole, files that must be read out of order too."""
    table = pa.table({"text": TEXTS})
    if name == "a.parquet":
        pq.write_table(table, tmp_path / name)
    else:
        (write_file if name == "file.arrow" else write_stream)(tmp_path / name, table)
    data, path = (tmp_path / name).read_bytes(), tmp_path / (name + suffix)
    if suffix == ".gz":
        path.write_bytes(gzip.compress(data))
    else:
        with pa.CompressedOutputStream(str(path), "zstd") as out:
            out.write(data)

    assert [text.encode() for text in TEXTS] == list(documents(path)[0].values())


def test_a_full_folder_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed Parquet file is unpacked first: where there is no room for that, it is not the file's fault."""
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress(parquet(tmp_path / "a.parquet", text=TEXTS).read_bytes()))
    monkeypatch.setattr("tempfile.TemporaryFile", lambda: Path("/dev/full").open("wb"))  # noqa: SIM115 - closed by the code
    with pytest.raises(SourceError, match=r"a\.parquet\.gz: cannot be unpacked into .*: No space left on device; free"):
        open_text(tmp_path / "a.parquet.gz")


def test_zstd_of_plain_text(tmp_path: Path) -> None:
    """A .txt.zst is read as the file in it; one that is cut off is an error."""
    path = tmp_path / "a.txt.zst"
    lines = "\n".join(map(str, range(50_000))).encode()
    with pa.CompressedOutputStream(str(path), "zstd") as out:
        out.write(lines)

    assert lines.split(b"\n") == list(documents(path)[0].values())
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(SourceError, match=r"a\.txt\.zst: "):
        documents(path)


def test_rows_that_are_none(tmp_path: Path) -> None:
    """Null is a problem of its row, which is counted from 1."""
    found, problems = documents(
        parquet(tmp_path / "a.parquet", text=["a", None, "c", "d" * 101]), TextOptions(max_document_bytes=100)
    )

    assert {"a.parquet:1": b"a", "a.parquet:3": b"c"} == found
    assert {
        "a.parquet:2": "has null in the column 'text'",
        "a.parquet:4": "is longer than 100 bytes; --max-document raises that limit",
    } == problems


@pytest.mark.parametrize("kind", [pa.int32(), pa.uint16(), pa.int64(), pa.uint64()], ids=str)
@pytest.mark.parametrize("make", [pa.list_, pa.large_list], ids=["list", "large_list"])
def test_ready_ids(tmp_path: Path, kind: Any, make: Any) -> None:
    """Lists of whole numbers are ids, taken as they are; uint16 where the vocabulary is known to fit."""
    lists = [[5, 6, 7], [8], [9, 10, 11, 12]]
    path = parquet(tmp_path / "a.parquet", input_ids=pa.array(lists, make(kind)))
    source = open_text(path, options=TextOptions(text_field="input_ids"))
    assert source.is_ids
    for vocab_size, dtype in ((13, "<u2"), (None, "<u4")):
        encoder = Encoder(None, Sequences(), is_ids=True, vocab_size=vocab_size)
        pack(TextSamples(source, encoder), tmp_path / "out.h5", overwrite=True)
        with open_store(tmp_path / "out.h5") as store:
            said = store.metadata["tokenizer"]
        assert lists == list(ids(tmp_path / "out.h5", dtype).values())
        assert ("ids", vocab_size) == (said["kind"], said["vocab_size"])


def test_ids_out_of_range(tmp_path: Path) -> None:
    """An id that the vocabulary does not have is named with its row; so are lists with null, and empty ones."""
    lists = [[5], [1, 300, 2], [-1], None, [1, None], [], [6, 7]]
    path = parquet(tmp_path / "a.parquet", ids=pa.array(lists, pa.list_(pa.int64())))
    report = packed(path, tmp_path / "out.h5", options=TextOptions(text_field="ids"), tokenizer=BYTES, on_error="skip")

    assert {"a.parquet:1": [5], "a.parquet:7": [6, 7]} == ids(tmp_path / "out.h5")
    assert {
        "a.parquet:2": "has the token id 300, expected 0 to 258",
        "a.parquet:3": "has the token id -1, expected 0 to 258",
        "a.parquet:4": "has null in the column 'ids'",
        "a.parquet:5": "has null among the ids of the column 'ids'",
        "a.parquet:6": "has no tokens",
    } == {problem.key: problem.problem for problem in report.skipped}


def test_ids_beyond_64_bits(tmp_path: Path) -> None:
    """Numbers that no int64 holds do not become other ids."""
    path = parquet(tmp_path / "a.parquet", ids=pa.array([[2**64 - 1], [2**32], [2**32 - 1]], pa.list_(pa.uint64())))
    source = open_text(path, options=TextOptions(text_field="ids"))
    report = pack(TextSamples(source, Encoder(None, Sequences(), is_ids=True)), tmp_path / "out.h5", on_error="skip")

    assert [[2**32 - 1]] == list(ids(tmp_path / "out.h5", "<u4").values())
    assert ["a.parquet:1", "a.parquet:2"] == [problem.key for problem in report.skipped]


def test_ids_beyond_four_bytes(tmp_path: Path) -> None:
    """A vocabulary that is said to be larger than 2**32 does not let ids through that would become others."""
    path = parquet(tmp_path / "a.parquet", text=pa.array([[5_000_000_000], [7]], pa.list_(pa.int64())))
    encoder = Encoder(None, Sequences(), is_ids=True, vocab_size=10**10)
    report = pack(TextSamples(open_text(path), encoder), tmp_path / "out.h5", on_error="skip")

    assert [[7]] == list(ids(tmp_path / "out.h5", "<u4").values())
    assert ["has the token id 5000000000, expected 0 to 4,294,967,295"] == [each.problem for each in report.skipped]


def labels_of(path: Path) -> tuple[list[int], list[str] | None]:
    """Labels and classes of a file's column ``label``."""
    source = open_text(path, options=TextOptions(label_field="label"))
    found = [part.labels for part in source.read(Limits()) if part.labels is not None]
    return np.concatenate(found).tolist(), source.metadata["classes"]


def test_class_labels_of_datasets(tmp_path: Path) -> None:
    """Names that ``datasets`` declares are the classes, in their order; a number without a name is a problem."""
    features = {"label": {"names": ["pos", "neg"], "_type": "ClassLabel"}, "text": {"_type": "Value"}}
    table = pa.table({"text": ["a", "b", "c"], "label": [1, 0, -1]})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    folder = write_datasets(tmp_path / "saved", table)

    assert ([1, 0], ["pos", "neg"]) == labels_of(folder)
    problems = documents(folder, TextOptions(label_field="label"))[1]
    assert ["has the label -1, expected 0 to 1 (column 'label')"] == list(problems.values())


def test_labels_without_names(tmp_path: Path) -> None:
    """Numbers are labels as they are."""
    assert ([7, 8], None) == labels_of(parquet(tmp_path / "a.parquet", text=["a", "b"], label=[7, 8]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            TextOptions(text_field="body"),
            r"has no column 'body', only 'text' \(string\), 'n' \(int64\): --field packs .*; --text-column names",
        ),
        (TextOptions(text_field="n"), "column 'n' is int64, expected strings or lists of integers"),
        (
            TextOptions(label_field="class"),
            r"has no column 'class', only 'text' \(string\), 'n' \(int64\): name another with --label-column",
        ),
        (TextOptions(split="line"), "--document line has no effect"),
    ],
)
def test_columns_that_are_not_there(tmp_path: Path, options: TextOptions, message: str) -> None:
    """What was asked for and is not there is named, with what is."""
    with pytest.raises(SourceError, match=message):
        open_text(parquet(tmp_path / "a.parquet", text=["a"], n=[1]), options=options)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_damaged_files(tmp_path: Path, name: str) -> None:
    """What is no such file, or is cut off, is an error that names it."""
    (tmp_path / name).write_bytes(b"no table at all")
    with pytest.raises(SourceError, match=rf"{name}: expected .* data"):
        documents(tmp_path / name)


def test_a_stream_that_is_cut_off(tmp_path: Path) -> None:
    """A stream without its end has lost rows: an error, not fewer samples."""
    path = write_stream(tmp_path / "a.arrow", pa.table({"text": ["x" * 50] * 200}), 10)
    whole = path.read_bytes()
    for size in (len(whole) // 2, len(whole) - 8, len(whole) - 300):
        path.write_bytes(whole[:size])
        with pytest.raises(SourceError, match=r"a\.arrow: "):
            documents(path)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_what_stands_behind_a_stream(tmp_path: Path, suffix: str) -> None:
    """A second stream in the same file would be lost: an error."""
    once = write_stream(tmp_path / "once.arrow", pa.table({"text": ["a"]})).read_bytes()
    path = tmp_path / f"a.arrow{suffix}"
    path.write_bytes(gzip.compress(once * 2) if suffix else once * 2)
    with pytest.raises(SourceError, match="bytes follow the end of the Arrow stream"):
        documents(path)


OFFSETS = ([0, 4, 2, 12], [0, 4, 8, 1 << 30], [0, -4, 8, 12], [4, 8, 12, 16], [0, 1 << 30, 1 << 30, 12])


@pytest.mark.parametrize("offsets", OFFSETS, ids=str)
@pytest.mark.parametrize(
    "column",
    [pa.array(["aaaa", "bbbb", "cccc"]), pa.array([[1] * 4, [2] * 4, [3] * 4])],
    ids=["strings", "ids"],
)
def test_damaged_offsets(tmp_path: Path, column: Any, offsets: list[int]) -> None:
    """Offsets that lead out of the values of a damaged file are an error, whatever Arrow would do with them."""
    path = write_file(tmp_path / "a.arrow", pa.table({"text": column}))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(np.array([0, 4, 8, 12], "<i4").tobytes(), np.array(offsets, "<i4").tobytes()))
    with pytest.raises(SourceError, match=r"a\.arrow: expected arrow data: .*; damaged or truncated\?"):
        documents(path)


def test_damaged_pages_of_parquet(tmp_path: Path) -> None:
    """A page that does not have its checksum is an error, where the writer left one."""
    path, table = tmp_path / "a.parquet", pa.table({"text": ["hello world", "q"]})
    how = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(table, path, write_page_checksum=True, **how)
    path.write_bytes(path.read_bytes().replace(b"world", b"wOrld"))
    with pytest.raises(SourceError, match=r"a\.parquet: expected parquet data: .*CRC"):
        documents(path)


@pytest.mark.parametrize("name", ["text", "label"])
def test_columns_of_one_name(tmp_path: Path, name: str) -> None:
    """Which of two columns is meant cannot be told."""
    arrays = [pa.array(["a"]), pa.array(["b"]), pa.array(["c"])]
    path = write_file(tmp_path / "a.arrow", pa.Table.from_arrays(arrays, ["text", "label", name]))
    with pytest.raises(SourceError, match=f"a.arrow: has 2 columns named '{name}', so it is unclear which one counts"):
        open_text(path, options=TextOptions(label_field="label"))


def test_a_later_file_without_labels(tmp_path: Path) -> None:
    """Every file of a folder must have the columns."""
    parquet(tmp_path / "a.parquet", text=["a"], label=[1])
    parquet(tmp_path / "b.parquet", text=["b"])
    with pytest.raises(SourceError, match=r"b\.parquet: has no column 'label', only 'text' \(string\)"):
        documents(tmp_path, TextOptions(label_field="label"))


@pytest.mark.parametrize("note", ["{broken", "[1]"])
def test_a_broken_note_of_datasets(tmp_path: Path, note: str) -> None:
    """Without it nobody knows whether labels have names."""
    table = pa.table({"text": ["a"], "label": [1]}).replace_schema_metadata({"huggingface": note})
    with pytest.raises(SourceError, match="the notes of Hugging Face datasets in it cannot be read"):
        open_text(write_file(tmp_path / "a.arrow", table), options=TextOptions(label_field="label"))


def test_datasets_of_several_splits(tmp_path: Path) -> None:
    """A dictionary of splits is not one source: its folders are named."""
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(SourceError, match=r"holds several splits: pack one of them, .*/train, .*/test"):
        open_text(tmp_path)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"_data_files": []}, r"state\.json names no data files"),
        ({"_data_files": [{"filename": "gone.arrow"}]}, r"gone\.arrow, which state\.json names, is missing"),
        ({"_indices_data_files": [{"filename": "state.json"}]}, r"state\.json names no data files"),
    ],
)
def test_datasets_that_are_not_whole(tmp_path: Path, state: object, message: str) -> None:
    """A saved dataset whose files are missing, or that means other rows than its files have, is refused."""
    (tmp_path / "dataset_info.json").write_text("{}")
    (tmp_path / "state.json").write_text(json.dumps(state))
    with pytest.raises(SourceError, match=message):
        open_text(tmp_path)
