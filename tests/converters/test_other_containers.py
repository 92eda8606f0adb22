"""What cannot be packed is called what it is, with what to do instead."""

from __future__ import annotations

import h5py
import lmdb
import numpy as np
from click.testing import CliRunner

from fastio.cli import cli
from fastio.converters import open_source, pack
from tests.converters.trees import flat, picture


def refused(path, out):
    """What pack says of it; nothing is written."""
    result = CliRunner().invoke(cli, ["pack", str(path), str(out)])
    assert 1 == result.exit_code, result.output
    assert not out.exists()
    return result.output


def test_containers_of_others(tmp_path):
    """LMDB as a file, as a folder and under another name; HDF5; what is known by its name; what is not."""
    for path, subdir in ((tmp_path / "a.lmdb", False), (tmp_path / "folder", True), (tmp_path / "a.db", False)):
        with lmdb.open(str(path), subdir=subdir) as env, env.begin(write=True) as txn:
            txn.put(b"0", picture(0))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.zeros(3)
    np.savez(tmp_path / "a.npz", np.zeros(3))
    (tmp_path / "a.zip").write_bytes((tmp_path / "a.npz").read_bytes())
    for name in ("a.tfrecord", "b.h5", "a.bin"):
        (tmp_path / name).write_bytes(b"x")
    found = {
        path.name: refused(path, tmp_path / "out.tar")
        for path in sorted(tmp_path.iterdir())
        if not path.name.endswith("-lock")
    }

    assert "record 0 begins at byte 0, but the file ends within it" in found.pop("a.tfrecord")
    assert "an LMDB file, which fastio did not pack" in found["a.lmdb"]
    assert "an LMDB file, which fastio did not pack" in found["a.db"]
    assert "an LMDB environment, which fastio did not pack" in found["folder"]
    assert "a zip archive, which fastio did not pack: unzip it first, then pack the folder" in found["a.zip"]
    assert "an archive of NumPy, which fastio did not pack: write its samples to files" in found["a.npz"]
    assert "an HDF5 file, which fastio did not pack" in found["a.h5"]
    assert "a file that is named like an HDF5 file but is not one" in found["b.h5"]
    assert "found a file" in found["a.bin"]
    assert not any("fastio unpack" in text for text in found.values())


def test_a_cut_store(tmp_path):
    """A store of ours that has lost its end is called damaged, not foreign."""
    flat(tmp_path / "f", 2)
    for name in ("s.lmdb", "s.h5"):
        pack(open_source(tmp_path / "f"), tmp_path / name)
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data[:5] + bytes([data[5] ^ 255]) + data[6:-100])
        said = refused(tmp_path / name, tmp_path / "out.tar")

        assert "fastio unpack" not in said
