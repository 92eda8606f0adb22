"""info and ls of stores whose samples have many fields."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fastio.cli import cli
from fastio.measure.loop.data import DataOptions
from fastio.measure.trainer.run import MODELS, open_training
from fastio.measure.trainer.step import StepOptions
from fastio.types.schema import COLUMN, Field
from tests.commands import run
from tests.conftest import SUFFIXES
from tests.dataset.many_fields import TYPES, make_samples, write_fields

METADATA = {"classes": ["cat", "dog", "cow"], "field_classes": {"kinds": ["car", "bus", "tram", "bike"]}}


@pytest.fixture(scope="module", params=SUFFIXES)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of all field types in each format."""
    return write_fields(tmp_path_factory.mktemp("cli") / f"s.{request.param}", make_samples(), metadata=METADATA)


def lines_of(text: str, *starts: str) -> list[list[str]]:
    """The words of the first line that begins with each of these."""
    lines = [line.split() for line in text.splitlines()]
    return [next(line for line in lines if line[:1] == [start]) for start in starts]


def test_info_names_types_and_sizes(store: Path) -> None:
    """A line for each field: its type as it is written in --field, bytes, and what its values are like."""
    text = run("info", store)

    boxes, depth, sizes, place, city, is_day = lines_of(text, "boxes", "depth", "embedding", "place", "city", "is_day")
    assert boxes == ["boxes", "xyxy", "32", "144", "B", "0", "to", "4", "rows"]
    assert depth[:2] == ["depth", "mask16"]
    assert sizes == ["embedding", "float32[4]", "16", "80", "B"]
    assert place[:3] == ["place", "float32[2]", "column"]
    assert city == ["city", "text", "column", "2", "different,", "Kyïv,", "Cambrai"]
    assert is_day == ["is_day", "bool", "3", "of", "5", "are", "true"]
    assert "classes of kinds: car, bus, tram, bike" in text


def test_info_shows_a_sample_and_how_to_read_it(store: Path) -> None:
    """The first sample in words, and Python for fastio that runs."""
    text = run("info", store)
    code = text[text.index("from fastio import") : text.index("\n\n", text.index("from fastio import"))]
    names: dict[str, object] = {}
    exec("\n".join(line.strip() for line in code.splitlines()), names)

    assert "The first sample, a/0000\n" in text
    assert re.search(r"^image +PNG, 90 x 70, ", text, re.MULTILINE)
    assert re.search(r"^caption +'Bild 0: zwölf Boxkämpfer'", text, re.MULTILINE)
    assert re.search(r"^label +0 \(cat\)", text, re.MULTILINE)
    assert repr(names["dataset"]).endswith("tuple of image: image, depth: mask16")


def test_info_as_json(store: Path, tmp_path: Path) -> None:
    """The same as an object, and as a page."""
    described = json.loads(run("info", store, "--json"))

    assert described["types"]["kinds"] == "int64[*] per boxes"
    assert described["columns"]["count"] == {"min": 250, "mean": 252.0, "max": 254, "not_finite": 0}
    assert described["example"]["values"]["objects"] == '{"id":0,"polygons":[]}'
    assert described["fields"]["boxes"]["length"] == {"min": 0, "median": 2, "mean": 1.8, "max": 4, "total": 9}
    run("info", store, "--html", tmp_path / "info.html")
    assert "int64[*] per boxes" in (tmp_path / "info.html").read_text()


def test_ls_shows_beginnings(store: Path) -> None:
    """Texts, JSON, ids, rows and columns of each sample, not pictures and embeddings."""
    line = run("ls", store, "a/0003").strip()

    assert "a/0003  caption: 'Bild 3: zwölf Boxkämpfer'  objects: {" in line
    assert "  kinds: 3 rows: car bus tram  weight: 1  count: 253  is_day: False  " in line
    assert "embedding" not in line
    assert "image" not in line


def test_ls_as_json_has_the_values(store: Path) -> None:
    """Values of what JSON can say, sizes of the rest."""
    expected = make_samples()[3]
    (line,) = run("ls", store, "a/0003", "--json").splitlines()
    fields = json.loads(line)["fields"]

    assert list(fields) == list(TYPES)
    for name in ("caption", "objects", "label", "count", "is_day", "city", "weight"):
        assert fields[name] == expected[name]
    for name in ("boxes", "points", "kinds", "tokens", "place"):
        assert np.array_equal(expected[name], np.array(fields[name], expected[name].dtype))
    assert fields["embedding"] == {"size_bytes": 16}


def test_numbers_that_json_lacks(tmp_path: Path) -> None:
    """NaN, infinity and complex numbers do not break the JSON."""
    rows = np.array([[np.nan, 1], [np.inf, 2]], np.float32)
    sample = {"boxes": rows, "caption": "", "score": np.nan, "wave": 1 + 2j}
    types = {"boxes": "float32[*,2]", "caption": "text", "score": "float", "wave": Field("wave", COLUMN, "<c16", ())}
    path = write_fields(tmp_path / "s.lmdb", [sample], types)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    line = json.loads(run("ls", path, "--json"), parse_constant=refuse)
    described = json.loads(run("info", path, "--json"), parse_constant=refuse)
    assert line["fields"] == {"boxes": [[None, 1], [None, 2]], "caption": "", "score": None, "wave": "(1+2j)"}
    assert described["columns"]["score"] == {"min": None, "mean": None, "max": None, "not_finite": 1}
    assert "none is finite" in run("info", path)


def test_an_empty_store(tmp_path: Path) -> None:
    """Without samples there is no example, and nothing fails."""
    path = write_fields(tmp_path / "s.h5", [])

    assert "boxes" in run("info", path)
    assert run("ls", path) == ""


def test_measuring_some_fields(tmp_path: Path) -> None:
    """--fields chooses what is read; a wrong name is one line, and tune prints the dataset to paste."""
    types = {name: TYPES[name] for name in ("thumbnail", "caption", "boxes", "label")}
    path = write_fields(tmp_path / "s.tar", make_samples(), types)

    measured = run("bench", "io", path, "--seconds", "0.1", "--fields", "caption,boxes", "--batch-size", "5")
    assert "samples/s" in measured
    wrong = CliRunner().invoke(cli, ["bench", "io", str(path), "--fields", "pose"])
    assert "no such field: 'pose'; the store has thumbnail, caption, boxes, label" in wrong.output
    code = run("tune", path, "--seconds", "0.1", "--fields", "thumbnail,label")
    assert f"FastLoader(FastDataset({str(path)!r}, fields=('thumbnail', 'label')), batch_size=256" in code


def test_training_takes_the_picture_and_its_label(tmp_path: Path) -> None:
    """A network of ours reads of many fields what it learns from."""
    samples = [{**sample, "image": sample["image"][:32, :32]} for sample in make_samples()]
    path = write_fields(tmp_path / "s.lmdb", samples, {name: TYPES[name] for name in ("mask", "image", "label")})

    with open_training(str(path), MODELS["cifar10cnn"], DataOptions(batch_size=5), settings=StepOptions()) as (data, _):
        images, labels = next(iter(data.loader))
    assert (tuple(images.shape), labels.tolist()) == ((5, 3, 32, 32), [0, 1, 2, 0, 1])
