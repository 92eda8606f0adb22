"""A large index that is not mapped is fetched by its pieces: here each index is large, and behind a web server."""

from __future__ import annotations

import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastio import FastDataset, Remote
from fastio._native import ThreadPool
from fastio.errors import StoreCorrupt, StoreError
from fastio.store import open_store
from fastio.store.files import KINDS, Read
from fastio.store.files.mapped import Reserved
from fastio.store.index import arrays, far_arrays, sealed
from fastio.store.index.far_arrays import FarArray
from fastio.store.index.store import SealedStore
from fastio.store.index.verify import verify_store
from tests.servers.fault_server import BROKEN, Fault
from tests.servers.fixtures import Served
from tests.store.build import make_samples, read_all, write
from tests.store.files.toy import SCHEME, Bucket
from tests.store.index.test_arrays import flipped, index_file, places_of

FORMS = ["out.lmdb", "out.h5", "out.zip", "out-%06d.tar"]
COUNT = 6000
PIECE = 128
BLOCK = 4 * PIECE
SAMPLES = {key: value[:40] for key, value in make_samples(COUNT).items()}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every index has tables, of small pieces, and none of its arrays is too small for them."""
    monkeypatch.setattr(arrays, "LARGE_FROM", 0)
    monkeypatch.setattr(arrays, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(arrays, "KEYS_TOGETHER", 16)
    monkeypatch.setattr(sealed, "_NEAR_BYTES", 512)
    monkeypatch.setattr(far_arrays, "_LOOK_UP_BYTES", 0)


def packed(folder: Path, name: str = "out.h5") -> str:
    """A store of 6,000 samples; that of tar is a set of shards."""
    return write(folder / name, SAMPLES, batch_size=COUNT, shard_bytes=300_000 if "%" in name else None)


def index_of(store: SealedStore) -> Any:
    """The arrays that say where the samples lie."""
    return store._opened().index


@pytest.mark.parametrize("read", ["auto", "pread"])
@pytest.mark.parametrize("name", FORMS)
def test_all_is_as_mapped(served: Served, name: str, read: Read) -> None:
    """Samples, keys, columns and receipt are those of the mapped store, behind the server and by pread."""
    path = packed(served.root, name)
    url = path if read == "pread" else f"{served.url}/{name}"
    with open_store(url, read=read) as store, open_store(path) as plain:
        far = [index_of(store).starts["image"], index_of(store).sizes["image"], index_of(store).columns["label"]]
        assert all(array.far is not None and not array.is_compared for array in far)
        assert read_all(store) == read_all(plain) == SAMPLES
        assert np.array_equal(store.column("label"), plain.column("label"))
        assert np.array_equal(store.value_bytes("image"), plain.value_bytes("image"))
        assert store.receipt() == plain.receipt()
        assert store.keys([7, COUNT - 1, 7]) == plain.keys([7, COUNT - 1, 7])
        for ours, theirs in zip(store.shards, plain.shards, strict=True):
            assert ours.keys.joined(0, ours.count) == theirs.keys.joined(0, theirs.count)
        assert verify_store(store) == []
        assert all(array.is_compared for array in far)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(asked=st.lists(st.lists(st.integers(0, COUNT - 1), max_size=9), min_size=1, max_size=4))
def test_any_look_ups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[list[int]]) -> None:
    """Of any samples, one after the other, they give what the mapped store has; no byte is fetched a second time."""
    if not (path := tmp_path / "out.h5").exists():
        packed(tmp_path)
    bucket = Bucket()
    monkeypatch.setitem(KINDS, "toy", bucket.kind())
    bucket.put(f"{SCHEME}out.h5", path.read_bytes())
    with open_store(f"{SCHEME}out.h5") as store, open_store(path) as plain:
        before = len(bucket.reads)
        for samples in asked:
            chosen = np.array(samples, np.int64)
            found, expected = store.spans("image", chosen), plain.spans("image", chosen)
            for name in ("starts", "sizes", "checksums"):
                assert np.array_equal(getattr(found, name), getattr(expected, name))
        reads = [(start, stop) for _, start, stop in bucket.reads[before:]]
        assert len(reads) == len(set(reads))


def test_only_what_is_asked_for_is_fetched(served: Served) -> None:
    """A sample takes a block of each array, its neighbour nothing; a sample elsewhere other blocks."""
    packed(served.root)
    with open_store(f"{served.url}/out.h5") as store:
        index = index_of(store)
        each = [index.starts["image"], index.sizes["image"], index.checksums["image"]]
        before = served.server.gets()
        store.spans("image", np.array([70]))
        requests = served.server.requests()[before:]
        assert len(requests) == len(each)
        assert sum(request.sent for request in requests) == 3 * BLOCK
        store.spans("image", np.array([71, 70]))
        assert served.server.gets() == before + len(each)
        store.spans("image", np.array([COUNT - 1]))
        assert served.server.gets() == before + 2 * len(each)


def test_many_blocks_are_asked_for_together(served: Served) -> None:
    """Those of a run as one request, and all of an array if these are many; what is there is not asked for again."""
    packed(served.root)
    with open_store(f"{served.url}/out.h5") as store:
        before = served.server.gets()
        store.spans("image", np.arange(COUNT))
        assert served.server.gets() == before + 3
        assert index_of(store).starts["image"].is_compared
        store.check_index()
        assert served.server.gets() <= before + 3 + 3  # the column, the keys and where they begin


def test_keys_one_after_the_other(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for what follows gets more and more of it at once."""
    packed(served.root)
    monkeypatch.setattr(far_arrays, "_WHOLE_SHARE", 0)
    with open_store(f"{served.url}/out.h5") as store:
        before = served.server.gets()
        assert [store.keys([i])[0] for i in range(COUNT)] == list(SAMPLES)
        blocks = sum(map(len, map(str.encode, SAMPLES))) // BLOCK
        assert blocks > 16
        assert served.server.gets() - before < 16


def test_what_arrives_damaged_is_asked_for_once_more(served: Served) -> None:
    """And counted; what comes so twice is refused, and asked for again by the next look-up."""
    packed(served.root)
    chosen = np.array([3, COUNT - 1])
    with open_store(served.root / "out.h5") as plain, open_store(f"{served.url}/out.h5") as store:
        requests = store.files.requests  # type: ignore[attr-defined]
        served.server.set_faults(Fault(kind="flip", at=9, count=1))
        assert np.array_equal(store.spans("image", chosen).starts, plain.spans("image", chosen).starts)
        assert requests.damaged == 1
        chosen = np.array([COUNT // 2])
        served.server.set_faults(Fault(kind="flip", at=9))
        for _ in range(2):
            with pytest.raises(StoreCorrupt, match=r"out.h5: index array 'image_.*' \(bytes .*, entries .*\): differs"):
                store.spans("image", chosen)
        served.server.set_faults()
        assert np.array_equal(store.spans("image", chosen).starts, plain.spans("image", chosen).starts)


@pytest.mark.parametrize("read", ["auto", "pread"])
def test_damage_is_named_as_in_a_mapped_index(served: Served, read: Read) -> None:
    """By file, array and bytes, whenever it is asked for; samples of other pieces are read as ever."""
    path = packed(served.root)
    url = path if read == "pread" else f"{served.url}/out.h5"
    start, _ = places_of(path)["image_starts"]
    entry = COUNT * 3 // 4
    begin = start + entry * 4 // PIECE * PIECE
    what = rf"out.h5: index array 'image_starts' \(bytes {begin} to {begin + PIECE}, entries .*\): differs"
    with flipped(index_file(path), start + 4 * entry):
        with open_store(url, read=read) as store:
            store.spans("image", np.array([0]))
            for _ in range(2):
                with pytest.raises(StoreCorrupt, match=what):
                    store.spans("image", np.array([0, entry]))
            with pytest.raises(StoreCorrupt, match=what):
                store.check_index()
            (damage,) = verify_store(store)
            assert "image_starts" in damage.problem
        with pytest.raises(StoreCorrupt, match=what):
            FastDataset(url, read=read, verify="all")


def test_a_server_that_is_busy(served: Served) -> None:
    """It is asked again, as often as is allowed; then one line says what could not be read. The next look-up may."""
    packed(served.root)
    remote = Remote(download_retry=1)
    with open_store(f"{served.url}/out.h5", remote=remote) as store:
        served.server.set_faults(Fault(kind="status", status=503, count=3))
        assert len(store.spans("image", np.array([3])))
        served.server.set_faults(Fault(kind="status", status=503))
        with pytest.raises(StoreError, match=r"out.h5: bytes .*, which are of the index, cannot be read: .*503"):
            store.spans("image", np.array([COUNT - 1]))
        served.server.set_faults()
        assert len(store.spans("image", np.array([COUNT - 1])))


def test_what_comes_ahead_is_not_waited_for(served: Served) -> None:
    """A look-ahead asks for what its look-up needs; what it could not have, the look-up asks for again."""
    packed(served.root)
    chosen, pool = np.array([3, COUNT - 1]), ThreadPool(1)
    with open_store(f"{served.url}/out.h5", remote=Remote(download_retry=0)) as store:
        coming = store.look_ahead("image", chosen, pool)
        assert coming is not None
        assert coming.wait()
        before = served.server.gets()
        store.spans("image", chosen)
        assert store.look_ahead("image", chosen, pool) is None
        assert served.server.gets() == before
        chosen = np.array([COUNT // 2])
        served.server.set_faults(Fault(kind="status", status=503))
        coming = store.look_ahead("image", chosen, pool)
        assert coming is not None
        assert coming.wait()
        with pytest.raises(StoreError, match="503"):
            store.spans("image", chosen)
        served.server.set_faults()
        assert len(store.spans("image", chosen))


def test_an_object_that_is_replaced(served: Served) -> None:
    """No piece of another version is taken for one of this."""
    path = packed(served.root)
    with open_store(f"{served.url}/out.h5") as store:
        store.spans("image", np.array([3]))
        data = Path(path).read_bytes()
        Path(path).unlink()
        Path(path).write_bytes(data + b"x")
        with pytest.raises(StoreError, match="was replaced or changed"):
            store.spans("image", np.array([COUNT - 1]))


def test_one_fetches_for_a_node(served: Served, tmp_path: Path) -> None:
    """With a cache directory, a second reader asks for nothing that the first one has."""
    packed(served.root)
    remote = Remote(cache_dir=tmp_path / "cache")
    with open_store(f"{served.url}/out.h5", remote=remote) as first:
        expected = first.spans("image", np.arange(COUNT))
        with open_store(f"{served.url}/out.h5", remote=remote) as second:
            before = served.server.gets()
            found = second.spans("image", np.arange(COUNT))
            assert served.server.gets() == before
        assert np.array_equal(found.starts, expected.starts)


def test_processes_of_a_node_share_pages(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long runs lie in the file of the cache directory; without it they would be memory of each process."""
    path = packed(served.root)
    monkeypatch.setattr(far_arrays, "_LEAST_SHARED", 4096)
    cache = tmp_path / "cache"

    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count(str(cache))

    with open_store(path) as plain:
        expected = plain.spans("image", np.arange(COUNT))
    with open_store(f"{served.url}/out.h5", remote=Remote(cache_dir=cache)) as store:
        store.spans("image", np.array([COUNT - 1]))
        before = mapped()
        found = store.spans("image", np.arange(COUNT))
        assert mapped() > before
        shutil.rmtree(cache)
        store.check_index()
        for each in (found, store.spans("image", np.arange(COUNT))):
            for name in ("starts", "sizes", "checksums"):
                assert np.array_equal(getattr(each, name), getattr(expected, name))


def test_a_cache_that_rots(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shared of a file of the cache is compared with what has arrived, and replaced by it where it differs."""
    path = packed(served.root)
    monkeypatch.setattr(far_arrays, "_LEAST_SHARED", 4096)
    share = Reserved.share

    def rotten(self: Reserved, start: int, descriptor: int, size: int, offset: int) -> bool:
        with Path(f"/proc/self/fd/{descriptor}").resolve().open("r+b") as file:
            file.seek(offset + size // 2)
            file.write(b"rot")
        return share(self, start, descriptor, size, offset)

    monkeypatch.setattr(Reserved, "share", rotten)
    with open_store(path) as plain, open_store(f"{served.url}/out.h5", remote=Remote(cache_dir=tmp_path)) as store:
        expected, found = (each.spans("image", np.arange(COUNT)) for each in (plain, store))
        assert np.array_equal(found.starts, expected.starts)
        store.check_index()


def test_threads_share_it(served: Served) -> None:
    """Eight of them ask for samples all over the store at once."""
    path = packed(served.root)
    with open_store(f"{served.url}/out.h5") as store, open_store(path) as plain, ThreadPoolExecutor(8) as threads:
        asked = [np.random.default_rng(seed).integers(0, COUNT, 20) for seed in range(64)]
        found = threads.map(lambda chosen: store.spans("image", chosen).starts, asked)
        for chosen, starts in zip(asked, found, strict=True):
            assert np.array_equal(starts, plain.spans("image", chosen).starts)


def test_all_comes_while_another_looks_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that has found blocks missing goes on with that, though another one has fetched them meanwhile."""
    path = packed(served.root)
    read_on = FarArray._read_on
    with open_store(f"{served.url}/out.h5") as store, open_store(path) as plain:
        chosen = np.arange(COUNT)

        def meanwhile(self: FarArray, *found: Any) -> None:
            monkeypatch.setattr(FarArray, "_read_on", read_on)
            store.spans("image", chosen)
            read_on(self, *found)

        monkeypatch.setattr(FarArray, "_read_on", meanwhile)
        assert np.array_equal(store.spans("image", chosen).starts, plain.spans("image", chosen).starts)


@pytest.mark.parametrize("seed", range(4))
def test_no_fault_is_silent(served: Served, seed: int) -> None:
    """Whatever the server does to answers, what is given is right, or an error says what could not be read."""
    path, rng = packed(served.root), random.Random(seed)
    given_back = errors = 0
    with open_store(path) as plain:
        expected = plain.spans("image", np.arange(COUNT))
    for kind in BROKEN:
        with open_store(f"{served.url}/out.h5", remote=Remote(download_retry=2)) as store:
            served.server.set_faults(Fault(kind=kind, chance=0.4, by=7, text="x" if kind == "etag" else ""))
            for _ in range(6):
                chosen = np.array(rng.sample(range(COUNT), 3), np.int64)
                try:
                    found = store.spans("image", chosen)
                except StoreError:
                    errors += 1
                    continue
                given_back += 1
                for name in ("starts", "sizes", "checksums"):
                    assert np.array_equal(getattr(found, name), getattr(expected, name)[chosen])
            served.server.set_faults()
    assert given_back
    assert errors
