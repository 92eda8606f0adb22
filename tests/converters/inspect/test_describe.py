"""What info says, and that its five lines without fastio do what they promise."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fastio.converters import open_source, pack
from fastio.converters.inspect.describe import describe
from fastio.store import FORMATS, open_store
from fastio.types.schema import BYTES, RAW, Field
from tests.conftest import write_store
from tests.converters.trees import class_folders, flat, foreign_tar, pickled, picture
from tests.store.build import LABELLED

SUFFIXES = [each.suffixes[0] for each in FORMATS.values()]


@pytest.fixture(params=SUFFIXES)
def packed(request, tmp_path):
    """Class folders and their store."""
    class_folders(tmp_path / "c")
    path = tmp_path / f"out{request.param}"
    pack(open_source(tmp_path / "c"), path)
    return path


def test_numbers(packed):
    """Counts, classes, sizes and kinds are those of the files."""
    with open_store(packed) as store:
        said = json.loads(json.dumps(describe(store)))
    field = said["fields"]["image"]

    assert (9, packed.stat().st_size) == (said["samples"], said["size_bytes"])
    assert [("bee", 3), ("cat", 3), ("dog", 3)] == [(c["name"], c["samples"]) for c in said["classes"]]
    assert (4, 5, 6) == tuple(field["height"][each] for each in ("min", "median", "max"))
    assert (8, 9, 10) == tuple(field["width"][each] for each in ("min", "median", "max"))
    assert ({"JPEG": 6, "PNG": 3}, {"3": 9}, 9) == (field["kinds"], field["channels"], field["kinds_of"])
    assert ({"kind": "imagefolder", "layout": "imagefolder", "name": "c", "labels": None}, 0) == (
        said["source"],
        said["skipped"],
    )


def test_without_labels(tmp_path):
    """No classes, and no line about labels."""
    flat(tmp_path / "f")
    pack(open_source(tmp_path / "f"), tmp_path / "s.lmdb")
    with open_store(tmp_path / "s.lmdb") as store:
        said = describe(store)

    assert said["classes"] is None
    assert "labels = " not in said["read_without_fastio"]


def test_labels_that_are_numbers(tmp_path):
    """They are counted under their own values, without names."""
    labels = flat(tmp_path / "f", 4)
    pack(open_source(tmp_path / "f", labels=pickled(tmp_path / "l.pkl", labels)), tmp_path / "s.lmdb")
    with open_store(tmp_path / "s.lmdb") as store:
        assert [(0, None, 2), (1, None, 1), (2, None, 1)] == [tuple(c.values()) for c in describe(store)["classes"]]


def test_foreign_shards(tmp_path):
    """Tar shards of others are described as well, sizes unknown."""
    with open_store(foreign_tar(tmp_path / "s.tar")) as store:
        said = describe(store)

    assert (5, {"PNG": 5}) == (said["samples"], said["fields"]["image"]["kinds"])


# webdataset leaves its files to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_five_lines_without_fastio(tmp_path, name):
    """The snippet of each format gives every image and label with the plain library alone."""
    labels = flat(tmp_path / "f")
    path = tmp_path / f"s{FORMATS[name].suffixes[0]}"
    pack(open_source(tmp_path / "f", labels=pickled(tmp_path / "l.pkl", labels)), path)
    names = {"path": str(path)}
    snippet = FORMATS[name].plain_reader(LABELLED)
    exec(snippet, names)

    assert [picture(i) for i in range(7)] == [bytes(image) for image in names["images"]]
    assert list(labels.values()) == list(names["labels"])
    assert len(snippet.splitlines()) <= 5


PIXELS = np.arange(4 * 8 * 6 * 3, dtype=np.uint8).reshape(4, 8, 6, 3)
COLUMNS = {
    "no": None,
    "integer": np.array([3, 1, -4, 1], np.int64),
    "small": np.array([3, 1, 4, 1], np.uint8),
    "box": np.arange(16, dtype=np.float32).reshape(4, 4),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("labels", COLUMNS)
@pytest.mark.parametrize("codec", [RAW, BYTES])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_lines_for_other_fields_than_image(tmp_path, suffix, codec, labels):
    """What is printed for a store runs on that store, whatever its field is called and however it is kept."""
    values = [row.tobytes() for row in PIXELS]
    field = Field("pixels", codec, "|u1", PIXELS.shape[1:] if codec == RAW else (None,))
    path = write_store(tmp_path / f"s{suffix}", values, COLUMNS[labels], field=field)
    with open_store(path) as store:
        snippet = FORMATS[store.format].plain_reader(store.schema)
        printed = describe(store)["read_without_fastio"]
    names = {}
    exec(printed, names)

    assert values == [bytes(image) if isinstance(image, bytes) else image.tobytes() for image in names["images"]]
    assert ("labels" in names) == (labels != "no")
    if labels != "no":
        assert COLUMNS[labels].tolist() == np.asarray(names["labels"]).tolist()
    assert len(snippet.splitlines()) <= 5


def test_a_set_is_named_as_webdataset_takes_it(tmp_path):
    """By the range of its numbers, or as a list where one is missing; one file by its name."""
    for i in (0, 1, 2):
        foreign_tar(tmp_path / f"s-{i:06d}.tar")
    said = []
    for name in ("s-%06d.tar", "s-000000.tar", "s-*[02].tar"):
        with open_store(tmp_path / name) as store:
            said.append(describe(store)["read_without_fastio"].splitlines()[0])

    assert f"path = '{tmp_path}/s-{{000000..000002}}.tar'" == said[0]
    assert f"path = '{tmp_path}/s-000000.tar'" == said[1]
    assert f"path = ['{tmp_path}/s-000000.tar', '{tmp_path}/s-000002.tar']" == said[2]


def test_three_lines_for_the_classical_dataset(tmp_path):
    """A raw HDF5 store is one array: nothing else is printed but its name."""
    path = write_store(tmp_path / "s.h5", [b"123456"] * 2, field=Field("image", RAW, "|u1", (1, 2, 3)))
    with open_store(path) as store:
        expected = f"path = {str(path)!r}\n" + 'import h5py\nwith h5py.File(path) as f:\n    images = f["image"][:]\n'
        assert expected == describe(store)["read_without_fastio"]
