"""What cannot be packed is called what it is, with what to do instead."""

from __future__ import annotations

import zipfile

import h5py
import lmdb
import numpy as np
import pytest
from click.testing import CliRunner

from fastio.cli import cli
from fastio.converters import open_source, pack
from fastio.errors import SourceError, StoreError, StoreNotFound
from fastio.store import open_store
from tests.converters.trees import flat, picture


def refused(path, out):
    """What pack says of it; nothing is written."""
    result = CliRunner().invoke(cli, ["pack", str(path), str(out)])
    assert 1 == result.exit_code, result.output
    assert not out.exists()
    return result.output


def test_containers_of_others(tmp_path):
    """LMDB as a file, as a folder and under another name, HDF5, NumPy and zip are packed, each as its own kind."""
    for path, subdir in ((tmp_path / "a.lmdb", False), (tmp_path / "folder", True), (tmp_path / "a.db", False)):
        with lmdb.open(str(path), subdir=subdir) as env, env.begin(write=True) as txn:
            txn.put(b"0", picture(0))
    pixels = np.zeros((3, 4, 4, 3), np.uint8)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = pixels
    np.savez(tmp_path / "a.npz", x=pixels)
    np.save(tmp_path / "a.npy", pixels)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.png", picture(0))
    kinds = {"a.lmdb": "lmdb", "folder": "lmdb", "a.db": "lmdb", "a.h5": "hdf5", "a.npz": "npy", "a.npy": "npy"}
    for name, kind in {**kinds, "a.zip": "zip"}.items():
        source = open_source(tmp_path / name)

        assert (kind, len(source)) == (source.kind, pack(source, tmp_path / f"{name}.out.tar").packed)


def test_what_cannot_be_packed(tmp_path):
    """What is known by name, what is not what it is called, what is unknown, and a file that is asked to be a store."""
    for name in ("a.beton", "b.h5", "a.dat"):
        (tmp_path / name).write_bytes(b"x")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.zeros(3)
    found = {name: refused(tmp_path / name, tmp_path / "out.tar") for name in ("a.beton", "b.h5", "a.dat")}

    assert "which fastio does not read: read its samples with its Loader" in found["a.beton"]
    assert "a file that is named like an HDF5 file but is not one" in found["b.h5"]
    assert "found a .dat file of 1 B that begins with 'x'; fastio pack --help lists the kinds" in found["a.dat"]
    assert not any("fastio unpack" in text for text in found.values())
    with pytest.raises(SourceError, match=r"an HDF5 file, which fastio did not pack: .* --source-kind hdf5"):
        open_source(tmp_path / "a.h5", kind="store")


def test_a_cut_store(tmp_path):
    """A store of ours that has lost its end is called damaged, not foreign."""
    flat(tmp_path / "f", 2)
    for name in ("s.lmdb", "s.h5"):
        pack(open_source(tmp_path / "f"), tmp_path / name)
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data[:5] + bytes([data[5] ^ 255]) + data[6:-100])
        said = refused(tmp_path / name, tmp_path / "out.tar")

        assert "fastio unpack" not in said


JPEG = b"\xff\xd8\xff\xe0"
NONSENSE = {
    "scans": (
        {"a/1.dcm": b"x", "b/2.dcm": b"x", "meta.yaml": b"x"},
        r"3 files in 2 folders below it \(2 \.dcm, 1 \.yaml",
    ),
    "docs": (
        {"src/1.md": b"x", "conf.toml": b"x"},
        r"nearest: a folder of texts, for 1 file: documents are named \.txt, unlike src/1\.md",
    ),
    "camera": ({"IMG_1": JPEG, "IMG_2": JPEG}, r"2 files \(2 without extension\); nearest: .* IMG_1 is a JPEG"),
    "mixed": (
        {"a/x.zip": b"x", "b/y.lmdb": b"x", "b/c.jsonl.gz": b"x"},
        r"nearest: a zip archive .* a/x\.zip; or a packed store, .* b/y\.lmdb; or a table .* b/c\.jsonl\.gz$",
    ),
    "hollow": (
        {"a/b/.keep": b""},
        r"1 file in 2 folders below it \(1 without extension\); fastio pack --help lists the kinds",
    ),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_what_was_seen(tmp_path, name):
    """Files are counted by their extensions; the nearest kinds are named, and what is missing, not all kinds."""
    files, expected = NONSENSE[name]
    for path, content in files.items():
        (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name / path).write_bytes(content)
    with pytest.raises(SourceError, match=rf"{name}: is of no kind that fastio packs: found .*{expected}") as caught:
        open_source(tmp_path / name)

    assert len(str(caught.value)) < 400 + len(str(tmp_path))
    assert "fastio packs: found " in refused(tmp_path / name, tmp_path / "out.tar")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("t.ndjson", b"{}", r"nearest: a table \(jsonl\): JSON lines are named \.jsonl, unlike t\.ndjson"),
        ("photo.jpg", JPEG, r"nearest: a folder of images: name the folder that it lies in"),
        ("t.jsonk", b"{}", r"nearest: a table \(jsonl?\), if it is named \.jsonl?"),
    ],
)
def test_files_that_are_near_to_a_kind(tmp_path, name, content, expected):
    """A file's extension, size and first bytes are told, and what it would have to be called."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=rf"found a \.\w+ file of {len(content)} B that begins with .*{expected}"):
        open_source(tmp_path / name)


def test_what_is_there_is_not_called_missing(tmp_path):
    """StoreNotFound is for names under which nothing lies, not for what is no store."""
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "scans").mkdir()
    (tmp_path / "scans" / "a.dcm").write_bytes(b"x")
    for name in ("scans", "rows.jsonl", "*.jsonl"):
        with pytest.raises(StoreError) as caught:
            open_store(tmp_path / name)
        assert not isinstance(caught.value, StoreNotFound), name
    for name in ("none", "none.lmdb", "*.parquet"):
        with pytest.raises(StoreNotFound):
            open_store(tmp_path / name)
