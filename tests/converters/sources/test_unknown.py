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
from fastio.errors import SourceError
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
    assert "found a file" in found["a.dat"]
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
