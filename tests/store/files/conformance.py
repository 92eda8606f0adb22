"""What every kind of files must do: a test class per kind inherits this one and says where its files lie."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastio import FastDataset, _native
from fastio.errors import StoreError, StoreNotFound
from fastio.store import open_store
from fastio.store.files import ByteSource, files_of, open_file
from fastio.store.index.verify import verify_store
from fastio.store.protocol import read_values
from fastio.types.spans import Spans
from tests.forking import in_fork

Put = Callable[[str, bytes], str]

DATA = random.Random(1).randbytes(200_000)
OTHER = random.Random(2).randbytes(200_000)
_RANGES = st.tuples(st.integers(0, 1), st.integers(0, 199_000), st.sampled_from([0, 1, 40, 1000]))


class FilesConformance:
    """Inherited by the tests of each kind."""

    read: Any = "auto"

    @pytest.fixture
    def put(self) -> Put:
        """Place a file where this kind reads it, over another one of that name; its path."""
        raise NotImplementedError

    @pytest.fixture
    def path(self, put: Put) -> str:
        """A file with DATA."""
        return put("one", DATA)

    def open(self, path: str) -> ByteSource:
        """By the kind under test."""
        return open_file(path, self.read)

    def test_ranges(self, path: str) -> None:
        """Any range comes back as it was written, read-only and aligned as in the file, also after a release."""
        file = self.open(path)
        assert (path, len(DATA)) == (file.path, file.size)
        for start, stop in [(0, 0), (0, 10), (199_999, 200_000), (64, 150_000), (200_000, 200_000), (0, 200_000)]:
            found = file.read(start, stop)
            assert DATA[start:stop] == found.tobytes()
            assert not found.flags.writeable
            file.release()

    @pytest.mark.parametrize(("start", "stop"), [(-1, 5), (5, 4), (0, 200_001), (200_001, 200_001)])
    def test_ranges_outside(self, path: str, start: int, stop: int) -> None:
        """A range that leaves the file is refused by name."""
        with pytest.raises(ValueError, match=path):
            self.open(path).read(start, stop)

    def test_an_empty_file(self, put: Put) -> None:
        """It has no bytes, and can be opened."""
        assert self.open(put("empty", b"")).read(0, 0).tobytes() == b""

    def test_a_missing_file(self, path: str) -> None:
        """StoreNotFound names it."""
        with pytest.raises(StoreNotFound, match=f"{path}-missing"):
            self.open(f"{path}-missing")

    @settings(
        max_examples=30,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
    )
    @given(st.lists(_RANGES, max_size=20), st.booleans(), st.booleans())
    def test_any_spans(self, put: Put, spans: list[tuple[int, int, int]], in_pool: bool, in_ring: bool) -> None:
        """Spans of two files in any order, overlapping or empty, are brought into memory as they lie."""
        files = files_of([self.open(put("one", DATA)), self.open(put("two", OTHER))])
        shard, starts, sizes = np.array(spans, np.int64).reshape(-1, 3).T.copy()
        asked = Spans(files.buffers, shard.astype(np.int32), starts, sizes)
        pool = _native.ThreadPool(files.threads) if in_pool else None
        ring = _native.BufferRing(2) if in_ring else None
        files.read_ahead(asked, pool=pool).wait()
        found, status = files.fetch(asked, pool=pool, ring=ring).wait()

        expected = [(DATA, OTHER)[number][start : start + size] for number, start, size in spans]
        assert expected == [view.tobytes() for view in found.views()]
        assert status is None
        if pool is not None:
            pool.close()

    def test_spans_outside(self, path: str) -> None:
        """Spans are checked against the file's size, in memory or not."""
        files = files_of([self.open(path)])
        for shard, start, size in [(0, 199_990, 11), (1, 0, 1), (0, -1, 1), (0, 5, -1)]:
            span = Spans(files.buffers, np.array([shard], np.int32), np.array([start]), np.array([size]))
            with pytest.raises(IndexError):
                files.fetch(span).wait()[0].views()

    def test_what_is_not_in_memory_is_not_looked_at(self, path: str) -> None:
        """Before they are fetched, spans can be looked at in place or not at all."""
        files = files_of([self.open(path)])
        span = Spans(files.buffers, np.zeros(1, np.int32), np.array([5]), np.array([10]))
        if files.in_place:
            assert DATA[5:15] == span.view(0).tobytes()
            return
        with pytest.raises(ValueError, match="not in memory: fetch"):
            span.view(0)
        with pytest.raises(ValueError, match="not in memory: fetch"):
            _native.checksum(span, np.empty(1, np.uint32))

    def test_identity(self, put: Put, path: str) -> None:
        """It is the same for the same version, and another for a new one, which ``check`` names."""
        file = self.open(path)
        file.check()
        assert self.open(path).identity == file.identity
        put("one", OTHER + b"1")
        assert self.open(path).identity != file.identity
        with pytest.raises(StoreError, match=f"{path}: .*open the store again"):
            file.check()

    def test_a_file_that_was_replaced(self, put: Put, path: str) -> None:
        """Whoever opened the old version gets its bytes or an error, never the new ones."""
        file, files = self.open(path), files_of([self.open(path)])
        file.release()
        put("one", OTHER)
        span = Spans(files.buffers, np.zeros(1, np.int32), np.array([5]), np.array([10]))
        reads = (lambda: file.read(5, 15), lambda: files.fetch(span).wait()[0].view(0))
        if files.in_place:
            assert [DATA[5:15]] * 2 == [read().tobytes() for read in reads]
            return
        for read in reads:
            with pytest.raises(StoreError, match=f"{path}: was replaced or changed since it was opened: open"):
                read()

    def test_threads_share_the_files(self, path: str) -> None:
        """Many threads fetch at the same time."""
        files = files_of([self.open(path)])

        def fetched(start: int) -> bytes:
            span = Spans(files.buffers, np.zeros(1, np.int32), np.array([start]), np.array([100]))
            return files.fetch(span).wait()[0].view(0).tobytes()

        starts = range(0, 100_000, 1000)
        with ThreadPoolExecutor(4) as pool:
            assert [DATA[start : start + 100] for start in starts] == list(pool.map(fetched, starts))

    def test_a_forked_child_reads_on(self, path: str) -> None:
        """What was opened before a fork is read behind it, by parent and child."""
        files = files_of([self.open(path)])

        def fetch() -> None:
            span = Spans(files.buffers, np.zeros(1, np.int32), np.array([7]), np.array([100]))
            assert DATA[7:107] == files.fetch(span).wait()[0].view(0).tobytes()

        fetch()
        assert in_fork(fetch) == 0
        fetch()

    def test_a_store(self, png_stores: dict[str, Path], suffix: str, put: Put) -> None:
        """Every format opens, by path and by pickle, has its samples, and is verified."""
        path = put(f"png.{suffix}", png_stores[suffix].read_bytes())
        every = np.arange(50)
        with open_store(png_stores[suffix]) as local, open_store(path, read=self.read) as store:
            copied = pickle.loads(pickle.dumps(store))
            expected = [view.tobytes() for view in local.spans("image", every).views()]
            assert local.keys(every) == store.keys(every)
            assert local.identity == store.identity
            for each in (store, copied):
                assert expected == [view.tobytes() for view in read_values(each, "image", every).views()]
            assert verify_store(store) == []
            copied.close()
        with FastDataset(path, read=self.read) as dataset, FastDataset(png_stores[suffix]) as local_dataset:
            assert [label for _, label in dataset] == [label for _, label in local_dataset]  # type: ignore[attr-defined]
            assert dataset[7][0].tobytes() == local_dataset[7][0].tobytes()
