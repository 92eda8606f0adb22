"""Rows of the index that are partly in memory, partly in a file, and keys that come once."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio.errors import SchemaError, StoreError
from fastio.store import create_store, open_store
from fastio.store.write import keys as key_ledger
from fastio.store.write import keys as spool
from fastio.store.write.keys import KeyLedger, KeyRange, Spool, fixed_keys
from tests.conftest import SUFFIXES
from tests.store.build import LABELLED, make_batch

KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So little stays in memory that a few rows go to the file."""
    monkeypatch.setattr(spool, "SPOOL_BYTES", 50)
    monkeypatch.setattr(key_ledger, "SPOOL_BYTES", 50)
    monkeypatch.setattr(spool, "_PARTS", 3)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 9), max_size=12), st.sampled_from([(), (3,)]))
def test_rows_come_back(counts: list[int], row: tuple[int, ...]) -> None:
    """What was appended, in order, however it came."""
    expected = np.arange(sum(counts) * int(np.prod(row)), dtype=np.int32).reshape(-1, *row)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "SPOOL_BYTES", 40)
        patch.setattr(spool, "_PARTS", 3)
        rows = Spool(np.int32, row, beside="x")
        for stop, count in zip(np.cumsum(counts, dtype=int).tolist(), counts, strict=True):
            rows.append(expected[stop - count : stop])
        assert len(rows) == len(expected)
        assert np.array_equal(np.concatenate([expected[:0], *rows.pieces()]), expected)
        found = rows.rows()
        rows.close()
        assert found.shape == expected.shape
        assert np.array_equal(found, expected)


def test_nothing_is_left_beside_the_store(tmp_path: Path, small: None) -> None:
    """The file of a spool has no name."""
    rows = Spool(np.int64, beside=str(tmp_path / "out.h5"))
    rows.append(np.arange(100))
    assert list(tmp_path.iterdir()) == []
    assert rows.rows().tolist() == list(range(100))
    rows.close()


def test_a_full_disk_is_one_error(tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """StoreError that names the store; nothing of it is left."""

    def full(fd: int, data: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer = create_store(tmp_path / "out.h5", LABELLED)
    monkeypatch.setattr(spool, "write_all", full)
    with pytest.raises(StoreError, match=r"out\.h5: the disk.*is full"):
        writer.append(make_batch([f"key {i}" for i in range(40)], [b"x"] * 40))
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=100)
@given(st.lists(st.lists(KEYS, min_size=1, max_size=8), max_size=6))
def test_keys_beside_a_set(batches: list[list[str]]) -> None:
    """A batch is refused at the first key that is there already, and then wholly."""
    ledger, seen, taken = KeyLedger(beside="x"), set[str](), list[str]()
    for keys in batches:
        twice = next((i for i, key in enumerate(keys) if key in seen or key in keys[:i]), None)
        assert ledger.add("\0".join(keys).encode()) == twice
        if twice is None:
            seen.update(keys)
            taken += keys
    joined = "\0".join(taken).encode()
    part = KeyRange(
        0, len(joined) + 1 if taken else 0, len(taken), max((len(key.encode()) for key in taken), default=0)
    )
    assert ledger.array(part, fixed=False).tobytes() == joined
    if taken:
        assert ledger.array(part, fixed=True).tolist() == [key.encode() for key in taken]
    ledger.close()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("order", ["rising", "numbers", "falling"])
def test_stores_whose_index_was_spooled(suffix: str, order: str, tmp_path: Path, small: None) -> None:
    """The same bytes as from memory, for keys in any order."""
    numbers = range(200) if order != "falling" else range(199, -1, -1)
    keys = [f"{i:03d}.png" if order == "rising" else f"{i}.png" for i in numbers]

    def write(path: Path) -> bytes:
        with create_store(path, LABELLED) as writer:
            for start in range(0, 200, 17):
                some = keys[start : start + 17]
                writer.append(make_batch(some, [key.encode() * 3 for key in some]))
            with pytest.raises(SchemaError, match=r"key '[0-9]+\.png' comes twice"):
                writer.append(make_batch(["new", keys[60]], [b"x"] * 2))
        return path.read_bytes()

    spooled = write(tmp_path / f"a.{suffix}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "SPOOL_BYTES", 8 << 20)
        patch.setattr(key_ledger, "SPOOL_BYTES", 8 << 20)
        assert write(tmp_path / f"b.{suffix}") == spooled
    with open_store(tmp_path / f"a.{suffix}") as store:
        assert store.keys(np.arange(200)) == keys


def test_shards_take_their_part_of_the_index(tmp_path: Path, small: None) -> None:
    """Keys and labels of each shard are its own."""
    keys = [f"{i}.png" for i in range(50)]
    with create_store(tmp_path / "s-%06d.tar", LABELLED, shard_bytes=20_000) as writer:
        for start in range(0, 50, 7):
            some = keys[start : start + 7]
            writer.append(make_batch(some, [key.encode() for key in some]))
    assert len(list(tmp_path.iterdir())) > 2
    with open_store(tmp_path / "s-*.tar") as store:
        assert store.keys(np.arange(50)) == keys


def test_fixed_keys() -> None:
    """Strings of one width, without the NULs that numpy adds."""
    assert fixed_keys("a\0übc\0d".encode(), 5).tolist() == [b"a", "übc".encode(), b"d"]
