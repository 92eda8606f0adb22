"""Label files in five formats say the same, and what is doubtful is refused with its place."""

from __future__ import annotations

import csv
import gzip
import json
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio.converters.inspect.unpack import format_labels
from fastio.converters.labels.file import read_labels
from fastio.errors import SourceError
from tests.converters.trees import pickled

SUFFIXES = (".pkl", ".csv", ".tsv", ".json", ".jsonl")

names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20).map(lambda s: s.strip() or "x")
words = st.text(st.characters(categories=("Lu", "Ll")), min_size=1, max_size=8)
numbers = st.integers(-(2**63), 2**63 - 1)


def write(path, labels):
    """A label file as its format's own library writes it."""
    match path.suffix:
        case ".pkl":
            path.write_bytes(pickle.dumps(labels))
        case ".json":
            path.write_text(json.dumps(labels))
        case ".jsonl":
            path.write_text("".join(json.dumps({"filename": k, "label": v}) + "\n" for k, v in labels.items()))
        case ".csv" | ".tsv":
            with path.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file, delimiter="," if path.suffix == ".csv" else "\t").writerows(
                    [("filename", "label"), *labels.items()]
                )
    return path


@given(st.dictionaries(names, words, min_size=1, max_size=8) | st.dictionaries(names, numbers, min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_all_formats_agree(tmp_path_factory, labels):
    """The same labels in any format are the same numbers and classes."""
    folder = tmp_path_factory.mktemp("labels")
    read = [read_labels(write(folder / f"labels{suffix}", labels)) for suffix in SUFFIXES]
    strings = isinstance(next(iter(labels.values())), str)
    classes = tuple(sorted(set(labels.values()))) if strings else None
    expected = {k: classes.index(v) for k, v in labels.items()} if classes else labels

    assert [(expected, classes)] * len(SUFFIXES) == [(each.by_name, each.classes) for each in read]


@given(st.dictionaries(names, words, min_size=1, max_size=8) | st.dictionaries(names, numbers, min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_written_labels_come_back(tmp_path_factory, labels):
    """What format_labels writes, read_labels reads."""
    folder = tmp_path_factory.mktemp("labels")
    for suffix in SUFFIXES[1:]:
        path = folder / f"labels{suffix}"
        path.write_text(format_labels(path, labels), encoding="utf-8", newline="")
        again = read_labels(path)

        assert labels == {k: again.classes[v] if again.classes else v for k, v in again.by_name.items()}


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("key", ["a.png", b"a.png"])
@pytest.mark.parametrize("label", [3, np.int64(3), np.uint8(3), np.array(3), np.array([3]), 3.0])
def test_pickles_of_all_kinds(tmp_path, protocol, key, label):
    """Keys as str or bytes, labels as int, numpy int or small array, in every protocol."""
    path = tmp_path / "labels.pkl"
    path.write_bytes(pickle.dumps({key: label}, protocol))

    assert {"a.png": 3} == read_labels(path).by_name


@pytest.mark.parametrize("label", ["cat", b"cat", np.str_("cat"), np.bytes_(b"cat")])
def test_class_names_in_a_pickle(tmp_path, label):
    """Class names as str, bytes or numpy strings."""
    path = tmp_path / "labels.pkl"
    path.write_bytes(pickle.dumps({"a.png": label, "b.png": "ant"}))

    assert (("ant", "cat"), {"a.png": 1, "b.png": 0}) == (read_labels(path).classes, read_labels(path).by_name)


TABLES = {
    "by header, in any place": "label,filename\ncat,a.png\n",
    "by header, in capitals": "Path,Class\na.png,cat\n",
    "without header": "a.png,cat\n",
    "with a byte order mark": "\ufefffilename,label\na.png,cat\n",
    "with blanks after the comma": 'filename, label\na.png, "cat"\n',
    "with blank lines and CRLF": "filename,label\r\n\r\na.png,cat\r\n\r\n",
}


@pytest.mark.parametrize("what", TABLES)
def test_tables(tmp_path, what):
    """Columns by the header's names, or the first two."""
    path = tmp_path / "labels.csv"
    path.write_text(TABLES[what], encoding="utf-8", newline="")

    assert ({"a.png": 0}, ("cat",)) == (read_labels(path).by_name, read_labels(path).classes)


def test_leading_zeros_are_names(tmp_path):
    """ "007" and "7" must not become one number."""
    path = tmp_path / "labels.csv"
    path.write_text("a.png,007\nb.png,008\n")

    assert ("007", "008") == read_labels(path).classes


JSON = {
    "an object": '{"a.png": "cat"}',
    "records": '[{"label": "cat", "filename": "a.png"}]',
    "pairs": '[["a.png", "cat"]]',
    "records of one": '[{"a.png": "cat"}]',
}


@pytest.mark.parametrize("what", JSON)
def test_json(tmp_path, what):
    """An object of names and labels, or a list of records."""
    path = tmp_path / "labels.json"
    path.write_text(JSON[what])

    assert {"a.png": 0} == read_labels(path).by_name


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("l.csv", "a.png,1\nb.png,2\na.png,3\n"),
        ("l.json", '{"a.png": 1, "b.png": 2, "a.png": 3}'),
        ("l.jsonl", '["a.png", 1]\n["b.png", 2]\n["a.png", 3]\n'),
    ],
)
def test_contradictions_are_named(tmp_path, file, content):
    """A name with two labels is not labelled, and both are said; the same label twice is no contradiction."""
    (tmp_path / file).write_text(content)
    labels = read_labels(tmp_path / file)

    assert {"b.png": 2} == labels.by_name
    assert "1 and 3" in labels.contradictions["a.png"]


BAD = {
    "labels.txt": ("a.png 1", "not a label file"),
    "empty.csv": ("", "holds no labels"),
    "empty.json": ("{}", "holds no labels"),
    "mixed.json": ('{"a.png": 1, "b.png": "cat"}', "labels mix numbers and names"),
    "mixed.csv": ("a.png,1\nb.png,cat\n", "line 1 has '1', line 2 has 'cat'"),
    "none.json": ('{"a.png": null}', "label is None"),
    "nan.json": ('{"a.png": NaN}', "label is nan"),
    "object.json": ('[{"filename": "a.png", "label": {"x": 1}}]', "of type JsonObject"),
    "large.json": ('{"a.png": 9223372036854775808}', "64 bits"),
    "larger.json": ('{"a.png": 123456789012345678901234567890, "b.png": "cat"}', "64 bits"),
    "digits.csv": ("a.png,1\nb.png," + "9" * 5000 + "\n", "line 2: label 9{20}... does not fit in 64 bits"),
    "twice.csv": ("filename,label,split,Label\na.png,1,train,2\n", "line 1: 'label' comes twice"),
    "twice.jsonl": ('{"filename": "a.png", "label": 1, "label": 2}', "line 1: 'label' comes twice"),
    "unnamed.csv": ("a.png,cat,0.7\n", r"line 1: 3 columns \(a.png,cat,0.7\), but no header.*filename,label"),
    "comma.csv": ("a.png,1\nb, c.png,1\n", "line 2: 3 columns, expected 2; .* needs quotes"),
    "no_label.csv": ("a.png,\n", "line 1 has no label"),
    "semicolon.csv": ("a.png;1\n", "line 1: 1 column.*';' seems to be between its columns, expected ','"),
    "comma.tsv": ("a.png,1\n", "',' seems to be between"),
    "tab.csv": ("a.png\t1\n", r"'\\t' seems to be between"),
    "short.csv": ("filename,label\na.png\n", r"line 2: 1 column\(s\)"),
    "quote.csv": ('a.png,"cat\n', "line 1"),
    "broken.json": ('{"a.png": ', "not readable as JSON"),
    "broken.jsonl": ('["a.png", 1]\n{', "line 2: not readable as JSON"),
    "deep.json": ("[" * 100_000, "not readable as JSON"),
    "number.json": ("3", "expected an object"),
    "record.jsonl": ('{"a": 1, "b": 2}', "line 1: no known title for the file names and labels among 'a', 'b'"),
    "key.jsonl": ("[3, 1]", "line 1: file name is 3"),
    "blank.json": ('{"a.png": "", "b.png": "cat"}', "label is empty"),
    "nameless.json": ('{"": 1}', "file name is empty"),
}


@pytest.mark.parametrize("file", BAD)
def test_what_is_refused(tmp_path, file):
    """The message names the file, the place and what was expected."""
    content, message = BAD[file]
    (tmp_path / file).write_text(content)
    with pytest.raises(SourceError, match=message) as caught:
        read_labels(tmp_path / file)

    assert str(tmp_path / file) in str(caught.value)


@pytest.mark.parametrize("labels", [{"a.png": 1 << 20_000}, {b"a.png": -1 << 20_000, "a.png": 1 << 20_000}])
def test_numbers_of_thousands_of_digits(tmp_path, labels):
    """Python refuses to print them: they are said to be too large all the same."""
    with pytest.raises(SourceError, match=r"'a\.png': label is a number of 20001 bits and does not fit in 64 bits"):
        read_labels(pickled(tmp_path / "l.pkl", labels))


def test_a_file_that_is_not_text(tmp_path):
    """Bytes that are no UTF-8 are named with their line."""
    (tmp_path / "l.csv").write_bytes(b"a.png,1\nb\xff.png,2\n")
    with pytest.raises(SourceError, match="line 2: not UTF-8"):
        read_labels(tmp_path / "l.csv")


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed(tmp_path, suffix):
    """A compressed file is read as the one in it; one that is cut off is an error."""
    path = tmp_path / f"l.csv{suffix}"
    content = b"filename,label\n" + b"".join(b"%d.png,%d\n" % (i, i % 7) for i in range(2000))
    if suffix == ".gz":
        path.write_bytes(gzip.compress(content))
    else:
        with pa.CompressedOutputStream(str(path), "zstd") as out:
            out.write(content)

    assert {f"{i}.png": i % 7 for i in range(2000)} == read_labels(path).by_name
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(SourceError, match=rf"l\.csv{suffix}: "):
        read_labels(path)


def test_a_missing_file(tmp_path):
    """A label file that is not there is named."""
    with pytest.raises(SourceError, match="cannot be read"):
        read_labels(tmp_path / "l.csv")


def test_names_that_look_like_numbers_are_not_written_to_a_table(tmp_path):
    """A table has no types: they would come back as numbers."""
    with pytest.raises(SourceError, match=r"write \.json"):
        format_labels(tmp_path / "l.csv", {"a.png": "7", "b.png": "cat"})
