"""The byte layouts drawn on top of the files that write them are those of real stores."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import h5py
import pytest

from fastio.store import create_store
from fastio.store.formats import hdf5, lmdb, tar, zip_archive
from fastio.store.sets import set_object
from tests.store.build import LABELLED, make_batch

_LINE = re.compile(r"^    ([0-9a-f]{4})  ((?:[0-9a-f]{2} {1,2})*[0-9a-f]{2})(?=   |$)", re.MULTILINE)


def test_hexdump_of_a_set_object(tmp_path: Path) -> None:
    """The worked hexdump of a set object is that of two shards with a sample each."""
    with create_store(tmp_path / "two-%d.tar", LABELLED, shard_bytes=1) as writer:
        writer.append(make_batch(["a.png", "b.png"], [b"first", b"2nd"]))
    data = (tmp_path / "two.fastio-set").read_bytes()
    drawn = [(int(at, 16), bytes.fromhex(digits)) for at, digits in _LINE.findall(set_object.__doc__ or "")]
    assert len(drawn) == 15
    assert drawn == [(at, data[at : at + len(expected)]) for at, expected in drawn]


@pytest.mark.parametrize(("module", "lines"), [(lmdb, 25), (hdf5, 10), (tar, 15), (zip_archive, 20)])
def test_hexdump(tmp_path: Path, module: ModuleType, lines: int) -> None:
    """Every line of the worked hexdump is what a store of these two samples has there."""
    if module is hdf5 and not h5py.version.hdf5_version.startswith("2.0"):
        pytest.skip(f"drawn from HDF5 2.0, this is {h5py.version.hdf5_version}")
    path = tmp_path / f"two{module.FORMAT.suffixes[0]}"
    with create_store(path, LABELLED) as writer:
        writer.append(make_batch(["a.png", "b.png"], [b"first", b"2nd"]))
    data = path.read_bytes()
    drawn = [(int(at, 16), bytes.fromhex(digits)) for at, digits in _LINE.findall(module.__doc__ or "")]
    assert len(drawn) >= lines
    assert drawn == [(at, data[at : at + len(expected)]) for at, expected in drawn]
