"""An index that is not large has tables where samples are small: read whole on a disk, by its pieces behind a URL."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastio.errors import StoreCorrupt
from fastio.store import open_store
from fastio.store.index import arrays, far_arrays, sealed
from fastio.store.index.arrays import CHECKSUMS, TOTALS, has_tables
from fastio.store.index.verify import verify_store
from tests.servers.fixtures import Served
from tests.store.build import make_samples, read_all, write
from tests.store.index.test_arrays import flipped, header_of, index_file, places_of

FORMS = ["out.lmdb", "out.h5", "out.zip", "out-%06d.tar"]
COUNT = 6000
PIECE = 128
SAMPLES = {key: value[:40] for key, value in make_samples(COUNT).items()}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """No index is too small for tables, of small pieces."""
    monkeypatch.setattr(arrays, "TABLES_FROM", 0)
    monkeypatch.setattr(arrays, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(arrays, "KEYS_TOGETHER", 16)
    monkeypatch.setattr(sealed, "_NEAR_BYTES", 512)
    monkeypatch.setattr(far_arrays, "_LOOK_UP_BYTES", 0)


def packed(folder: Path, name: str) -> str:
    """A store of 6,000 samples of 40 bytes; that of tar is a set of shards."""
    return write(folder / name, SAMPLES, batch_size=COUNT, shard_bytes=3_000_000 if "%" in name else None)


@pytest.mark.parametrize(
    ("index_bytes", "data_bytes", "expected"),
    [
        (200_000, 1_000_000, False),  # one request
        (4_000_000, 25_600_000, True),  # rows of token ids
        (4_000_000, 1_024_000_000, True),
        (4_000_000, 1_024_000_001, False),
        (16 << 20, 1 << 40, True),
    ],
)
def test_which_index_has_tables(
    monkeypatch: pytest.MonkeyPatch, index_bytes: int, data_bytes: int, expected: bool
) -> None:
    """One that many readers would read more of than of samples."""
    monkeypatch.undo()
    assert expected == has_tables(index_bytes, data_bytes)


@pytest.mark.parametrize("name", FORMS)
def test_versions_before_read_it(tmp_path: Path, name: str) -> None:
    """The tables are arrays that they pass over; all others are as they were, and so is the version of the header."""
    path = packed(tmp_path, name)
    header = header_of(path)
    assert header.get("fastio", header.get("fastio_set")) == 1
    assert {CHECKSUMS, TOTALS} <= header["arrays"].keys()
    assert header["arrays"]["image_starts"]["dtype"] == "<i8"
    assert "keys" in header["arrays"]


def test_larger_samples_have_none(tmp_path: Path) -> None:
    """A store whose index is small beside its samples is written as ever."""
    samples = {f"{number:02}": bytes(100_000) for number in range(10)}
    assert CHECKSUMS not in places_of(write(tmp_path / "out.h5", samples))


@pytest.mark.parametrize("name", FORMS)
def test_damage_is_named_at_opening_on_a_disk(tmp_path: Path, name: str) -> None:
    """As for every index that is compared in milliseconds."""
    path = packed(tmp_path, name)
    start, _ = places_of(path)["image_starts"]
    with (
        flipped(index_file(path), start + 8 * (COUNT // 2)),
        pytest.raises(StoreCorrupt, match="index array 'image_starts'"),
    ):
        open_store(path)
    with open_store(path) as store:
        assert verify_store(store) == []


@pytest.mark.parametrize("name", FORMS)
def test_all_is_as_on_a_disk(served: Served, name: str) -> None:
    """Samples, keys, columns and receipt, behind the server; a sample takes a small part of the index."""
    path = packed(served.root, name)
    with open_store(f"{served.url}/{name}") as store, open_store(path) as plain:
        opened = sum(request.sent for request in served.server.requests())
        store.spans("image", np.array([70]))
        looked_up = sum(request.sent for request in served.server.requests()) - opened
        assert 0 < looked_up == 3 * 4 * PIECE
        assert read_all(store) == read_all(plain) == SAMPLES
        assert np.array_equal(store.column("label"), plain.column("label"))
        assert store.keys([7, COUNT - 1, 7]) == plain.keys([7, COUNT - 1, 7])
        assert store.receipt() == plain.receipt()
        assert verify_store(store) == []


@pytest.mark.parametrize("name", FORMS)
def test_damage_is_named_behind_a_url(served: Served, name: str) -> None:
    """When a sample of that piece is asked for; others are read as ever."""
    path = packed(served.root, name)
    start, _ = places_of(path)["image_starts"]
    entry = COUNT // 2
    with flipped(index_file(path), start + 8 * entry), open_store(f"{served.url}/{name}") as store:
        store.spans("image", np.array([0]))
        for _ in range(2):
            with pytest.raises(StoreCorrupt, match=r"index array 'image_starts' \(bytes .*, entries .*\): differs"):
                store.spans("image", np.array([entry]))


def test_who_looks_up_again_and_again_gets_all(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look-up that waits brings its blocks; after some, one brings what is left."""
    monkeypatch.setattr(far_arrays, "_LOOK_UP_BYTES", 8 * COUNT // 5)
    packed(served.root, "out.h5")
    asked = np.random.default_rng(0).permutation(COUNT)
    with open_store(f"{served.url}/out.h5") as store:
        before = served.server.gets()
        for sample in asked[:500].tolist():
            store.spans("image", np.array([sample]))
        starts = store._opened().index.starts["image"]
        assert starts.is_compared or starts.far._has.all()
        assert served.server.gets() - before < 3 * 12
