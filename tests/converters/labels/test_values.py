"""Labels that are fractions or several numbers a sample: from any label file, through any store, and back."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader
from fastio.cli import cli
from fastio.converters import LabelOptions, open_source, pack
from fastio.converters.labels.file import read_labels
from fastio.errors import SourceError
from tests.commands import run
from tests.converters.trees import flat

NAMES = [f"{i:04d}.png" for i in range(4)]
FRACTIONS = [0.1, -2.5, 1e-30, 3]
FLOATS = [[0.1, 1.0], [2.5, -3.0], [0.0, 1e-9], [7.0, 0.25]]
INTEGERS = [[1, 0, 1], [0, 0, 0], [2**40, 1, -1], [1, 1, 1]]


def write(path, values):
    """A label file with these values; gives the options that it is read with."""
    labels = dict(zip(NAMES, values, strict=True))
    width = len(values[0]) if isinstance(values[0], list) else 1
    titles = [f"t{i}" for i in range(width)]
    match path.suffix:
        case ".pkl":
            dtype = np.float64 if isinstance(values[0], list) and isinstance(values[0][0], float) else np.int64
            arrays = {k: np.array(v, dtype) if isinstance(v, list) else v for k, v in labels.items()}
            path.write_bytes(pickle.dumps(arrays))
        case ".json":
            path.write_text(json.dumps(labels))
        case ".jsonl":
            path.write_text("".join(json.dumps({"filename": k, "label": v}) + "\n" for k, v in labels.items()))
        case ".csv":
            rows = [[k, *(v if isinstance(v, list) else [v])] for k, v in labels.items()]
            path.write_text("\n".join(",".join(map(str, row)) for row in [["filename", *titles], *rows]))
    return LabelOptions(label_columns=tuple(titles)) if path.suffix == ".csv" else LabelOptions()


@pytest.mark.parametrize("suffix", [".pkl", ".json", ".jsonl", ".csv"])
@pytest.mark.parametrize(
    ("values", "dtype"), [(FRACTIONS, torch.float64), (FLOATS, torch.float32), (INTEGERS, torch.int64)]
)
def test_every_file_gives_the_same_tensors(tmp_path, suffix, values, dtype):
    """A loader's labels are what torch's DataLoader makes of them."""
    flat(tmp_path / "f", 4)
    options = write(tmp_path / f"l{suffix}", values)
    pack(open_source(tmp_path / "f", labels=tmp_path / f"l{suffix}", label_options=options), tmp_path / "s.lmdb")
    dataset = FastDataset(tmp_path / "s.lmdb")
    (_, ours), (_, theirs) = (
        next(iter(each)) for each in (FastLoader(dataset, 4), DataLoader(dataset, 4, collate_fn=labels_alone))
    )

    assert (dtype, torch.tensor(values, dtype=dtype).tolist()) == (ours.dtype, ours.tolist())
    assert (ours.dtype, ours.tolist()) == (theirs.dtype, theirs.tolist())
    assert [] == dataset.classes


def labels_alone(samples):
    """torch's default collate, of the labels alone."""
    return None, torch.utils.data.default_collate([label for _, label in samples])


def shuffled(dataset):
    """The labels of one shuffled epoch of a loader, sorted."""
    batches = list(FastLoader(dataset, 2, shuffle=True))
    assert {dataset.labels.dtype} == {labels.numpy().dtype for _, labels in batches}
    return sorted(label for _, labels in batches for label in labels.tolist())


@pytest.mark.parametrize("out", ["s.lmdb", "s.h5", "s.tar"])
@pytest.mark.parametrize("values", [FRACTIONS, FLOATS, INTEGERS], ids=["fractions", "floats", "integers"])
@pytest.mark.parametrize("suffix", [".csv", ".json", ".jsonl"])
def test_every_store_keeps_them_and_unpack_writes_them(tmp_path, out, values, suffix):
    """Through each format, and back to a label file that says the same; info, ls and verify know them."""
    flat(tmp_path / "f", 4)
    options = write(tmp_path / "l.csv", values)
    source = open_source(tmp_path / "f", labels=tmp_path / "l.csv", label_options=options)
    pack(source, tmp_path / out)
    run("unpack", tmp_path / out, tmp_path / "again", "--labels", tmp_path / f"again{suffix}")
    dataset = FastDataset(tmp_path / out)
    assert sorted(dataset.labels.tolist()) == shuffled(dataset)
    several = isinstance(values[0], list)
    columns = options.label_columns if several and suffix == ".csv" else ()

    expected, found = (
        read_labels(tmp_path / "l.csv", options),
        read_labels(tmp_path / f"again{suffix}", LabelOptions(label_columns=columns)),
    )
    assert (expected.numbered, expected.titles if columns else ()) == (found.numbered, found.titles if columns else ())
    assert json.loads(run("info", tmp_path / out, "--json"))["classes"] is None
    assert ("t1" in run("info", tmp_path / out)) == several
    assert str(values[1]) in run("ls", tmp_path / out)
    assert "4 compared" in run("verify", tmp_path / out, "--against", tmp_path / "f", "--labels", tmp_path / "l.csv")
    run("show", tmp_path / out, "--out", tmp_path / "sheet.png")
    run("info", tmp_path / out, "--html", tmp_path / "page.html")
    assert "<h2" in (tmp_path / "page.html").read_text()


def test_a_changed_vector_is_found(tmp_path):
    """verify --against compares every number of a label."""
    flat(tmp_path / "f", 4)
    write(tmp_path / "l.json", INTEGERS)
    pack(open_source(tmp_path / "f", labels=tmp_path / "l.json"), tmp_path / "s.lmdb")
    write(tmp_path / "l.json", [*INTEGERS[:3], [1, 1, 2]])
    args = ["verify", str(tmp_path / "s.lmdb"), "--against", str(tmp_path / "f"), "--labels", str(tmp_path / "l.json")]
    result = CliRunner().invoke(cli, args)

    assert 1 == result.exit_code
    assert "0003.png" in result.output
    assert "0002.png" not in result.output


BAD = {
    "ragged": (
        '{"a.png": [1, 2], "b.png": [1]}',
        "labels have different lengths: 'a.png' has 2 numbers, 'b.png' has 1",
    ),
    "mixed": ('{"a.png": [1, 2], "b.png": 1}', "labels mix numbers and lists of numbers"),
    "text": ('{"a.png": [1, "cat"]}', "a list with the text 'cat' in it"),
    "words": ('{"a.png": 0.5, "b.png": "cat"}', "labels mix numbers and names: 'a.png' has 0.5, 'b.png' has 'cat'"),
    "nested": ('{"a.png": [[1]]}', "a list with a list in it"),
    "empty": ('{"a.png": []}', "an empty list"),
    "null": ('{"a.png": [1, null]}', "a list with a NoneType in it"),
    "nan": ('{"a.png": [1, NaN]}', "a list with nan in it"),
    "large": ('{"a.png": [1.5, 1e300]}', "does not fit into float32"),
    "exact": ('{"a.png": 0.5, "b.png": 9007199254740993}', "cannot hold it exactly"),
    "wide": ('{"a.png": [9223372036854775808]}', "64 bits"),
}


@pytest.mark.parametrize("what", BAD)
def test_mixtures_are_refused(tmp_path, what):
    """One line that names the samples."""
    text, words = BAD[what]
    (tmp_path / "l.json").write_text(text)
    with pytest.raises(SourceError) as caught:
        read_labels(tmp_path / "l.json")

    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "columns", "words"),
    [
        ("file,a,b\nx.png,1,cat\n", ("a", "b"), "line 2: 'cat' is not a number"),
        ("file,a,b\nx.png,1,\n", ("a", "b"), "line 2 has no label"),
        ("file,a\nx.png,1e999\ny.png,0.5\n", ("a",), "line 2: label 1e999 does not fit in a float64"),
        ("file,a\nx.png,0.5\ny.png,nan\n", ("a",), "line 2 has '0.5', line 3 has 'nan'"),
    ],
)
def test_cells_that_are_no_numbers(tmp_path, text, columns, words):
    """The place is named."""
    (tmp_path / "l.csv").write_text(text)
    with pytest.raises(SourceError) as caught:
        read_labels(tmp_path / "l.csv", LabelOptions(label_columns=columns))

    assert words in str(caught.value)


def test_a_matrix_is_no_label(tmp_path):
    """Arrays of two dimensions are refused."""
    (tmp_path / "l.pkl").write_bytes(pickle.dumps({"a.png": np.zeros((2, 2))}))
    with pytest.raises(SourceError, match="label is an array of 2 dimensions"):
        read_labels(tmp_path / "l.pkl")
