"""Arrays of the index that are partly in memory, partly in a file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio.errors import StoreError
from fastio.store import create_store
from fastio.store.write import spool
from fastio.store.write.atomic import PartialFile
from fastio.store.write.spool import Spool, SpoolPart, blocks_of, write_array
from tests.store.build import LABELLED, make_batch


@settings(max_examples=50)
@given(st.lists(st.integers(0, 9), max_size=12), st.sampled_from([(), (3,)]), st.integers(1, 60))
def test_rows_come_back(counts: list[int], row: tuple[int, ...], block_bytes: int) -> None:
    """What was appended, in order, however it came, whole and in blocks."""
    expected = np.arange(sum(counts) * int(np.prod(row)), dtype=np.int32).reshape(-1, *row)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "SPOOL_BYTES", 40)
        patch.setattr(spool, "_PARTS", 3)
        rows = Spool(np.int32, row, beside="x")
        for stop, count in zip(np.cumsum(counts, dtype=int).tolist(), counts, strict=True):
            rows.append(expected[stop - count : stop])
            assert np.array_equal(rows.part(0, stop), expected[:stop])
        blocks = list(blocks_of(rows, block_bytes))
        middle = SpoolPart(rows, len(expected) // 3, len(expected) // 2)
        assert expected.shape == rows.shape
        assert np.array_equal(np.concatenate([expected[:0], *blocks]), expected)
        assert np.array_equal(middle.part(0, middle.shape[0]), expected[len(expected) // 3 : len(expected) // 2])
        rows.close()


def test_nothing_is_left_beside_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a spool has no name; a store behind a URL has its spools in TMPDIR."""
    monkeypatch.setattr(spool, "SPOOL_BYTES", 50)
    for beside in (str(tmp_path / "out.h5"), "s3://bucket/out.h5", None):
        rows = Spool(np.int64, beside=beside)
        rows.append(np.arange(100))
        assert list(tmp_path.iterdir()) == []
        assert rows.part(0, 100).tolist() == list(range(100))
        rows.close()


def test_a_full_disk_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """StoreError that names the store; nothing of it is left."""

    def full(fd: int, data: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(spool, "SPOOL_BYTES", 50)
    writer = create_store(tmp_path / "out.h5", LABELLED)
    monkeypatch.setattr(spool, "write_all", full)
    with pytest.raises(StoreError, match=r"out\.h5: the disk.*is full"):
        writer.append(make_batch([f"key {i}" for i in range(40)], [b"x"] * 40))
    assert list(tmp_path.iterdir()) == []


def test_an_array_is_written_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has its bytes; dtype, shape and place are right, also of an empty one."""
    monkeypatch.setattr(spool, "BLOCK_BYTES", 40)
    rows, empty = Spool("<u4", (3,), beside=None), Spool("<f8", (2,), beside=None)
    rows.append(np.arange(300, dtype="<u4").reshape(-1, 3))
    file = PartialFile(str(tmp_path / "out"))
    file.write(b"head")

    places = [write_array(file, each) for each in (rows, empty)]

    data = Path(file.partial).read_bytes()
    file.discard()
    assert np.arange(300, dtype="<u4").tobytes() == data[4:]
    assert [(4, "<u4", (100, 3)), (len(data), "<f8", (0, 2))] == [(p.start, p.dtype, p.shape) for p in places]
