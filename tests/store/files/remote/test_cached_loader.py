"""Stores behind URLs with a cache directory: what was read once comes from the disk, and is as right as before."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from fastio.store import FORMATS, create_shard, open_store
from fastio.store.files.remote.disk import Claim, DiskObject
from fastio.store.files.remote.range_cache import RangeCache
from fastio.store.files.remote.remote_source import RemoteSource
from fastio.store.files.remote_options import Remote
from fastio.store.index.store import SealedStore
from fastio.store.sets.names import set_path
from fastio.store.sets.seal import seal_set
from tests.forking import in_fork
from tests.servers.fault_server import Fault
from tests.servers.fixtures import Served
from tests.store.build import LABELLED, make_batch, write

pytestmark = pytest.mark.usefixtures("no_hedging")
COUNT = 40
VALUES = [np.random.default_rng(i).bytes(5000 + i) for i in range(COUNT)]


@pytest.fixture
def store(served: Served) -> str:
    """The URL of a store of VALUES in one file."""
    write(served.root / "in.h5", {f"{i}.png": value for i, value in enumerate(VALUES)})
    return f"{served.url}/in.h5"


def options(folder: Path, limit: int | None = None) -> Remote:
    """A cache there."""
    return Remote(cache_dir=str(folder / "cache"), cache_limit=limit, download_retry=0)


def read(store: SealedStore, *, size: int = 5, seed: int = 0) -> None:
    """Read all samples and compare them: windows of ``size`` samples, in any order."""
    windows = np.split(np.arange(len(store)), range(size, len(store), size))
    for number in np.random.default_rng(seed).permutation(len(windows)).tolist():
        part = windows[number]
        spans, status = store.files.fetch(store.spans("image", part)).wait()
        assert status is None
        assert [VALUES[i % COUNT] for i in part.tolist()] == [view.tobytes() for view in spans.views()]


def reopened(url: str, remote: Remote) -> SealedStore:
    """A store as another process opens it: its cache knows nothing yet."""
    from fastio.store.files.remote import range_cache

    range_cache._shared.cache_clear()
    return open_store(url, remote=remote)


def test_the_second_epoch_comes_from_the_disk(store: str, served: Served, tmp_path: Path) -> None:
    """Of this process, and of another one, which asks for the end of the object only."""
    with open_store(store, remote=options(tmp_path)) as opened:
        read(opened)
        before = served.server.gets(".h5")
        read(opened)
        assert before == served.server.gets(".h5")
    with reopened(store, options(tmp_path)) as other:
        read(other)

    assert before + 1 == served.server.gets(".h5")


def test_what_comes_again_is_not_kept(store: str, served: Served, tmp_path: Path) -> None:
    """Its window is one request, as if it had not been there; and it is found in a window that is kept."""
    with open_store(store, remote=options(tmp_path)) as opened:
        sample, window = opened.spans("image", np.array([7])), opened.spans("image", np.arange(5, 10))
        before = served.server.gets(".h5")
        assert opened.files.read_ahead(sample, comes_again=True).wait()
        assert opened.files.read_ahead(window).wait()
        assert before + 2 == served.server.gets(".h5")
        assert opened.files.read_ahead(sample, comes_again=True).wait()
        assert before + 2 == served.server.gets(".h5")


def test_half_kept_is_half_fetched(store: str, served: Served, tmp_path: Path) -> None:
    """With a limit, each further epoch fetches what is not kept and not a byte more, in any order."""
    with open_store(store, remote=options(tmp_path, 100_000)) as opened:
        cache = RangeCache.of(options(tmp_path, 100_000))
        assert cache is not None
        in_head = 8192 - int(opened.spans("image", np.arange(len(opened))).starts.min())  # read with what comes before
        index_bytes = cache.kept_bytes - in_head
        read(opened)
        fetched = []
        for size in (4, 7, 11):
            before = served.server.body_bytes()
            read(opened, size=size, seed=size)
            fetched.append(served.server.body_bytes() - before)
        kept, whole = cache.kept_bytes - index_bytes, sum(map(len, VALUES))

    assert 0.3 < kept / whole < 0.5
    assert [whole - kept] * 3 == fetched


def test_bytes_flipped_in_transit_do_not_stay(store: str, served: Served, tmp_path: Path) -> None:
    """A sample that arrives damaged is fetched once more, and what was cached of it goes."""
    with open_store(store, remote=options(tmp_path)) as opened:
        served.server.set_faults(Fault(kind="flip", at=100, path=".h5", count=1))
        read(opened)
    with reopened(store, options(tmp_path)) as other:
        read(other)


def test_cached_bytes_that_flip_are_fetched(store: str, served: Served, tmp_path: Path) -> None:
    """On the disk between two processes, too."""
    with open_store(store, remote=options(tmp_path)) as opened:
        read(opened)
    for file in (tmp_path / "cache").glob("*.bytes"):
        raw = bytearray(file.read_bytes())
        raw[len(raw) // 2] ^= 8
        file.write_bytes(raw)
    with reopened(store, options(tmp_path)) as other:
        read(other)


def test_cached_bytes_that_flip_while_they_are_used(
    store: str, served: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They are fetched again, and then come from the disk as before; the log names the first file, once."""
    with open_store(store, remote=options(tmp_path)) as opened, caplog.at_level(logging.WARNING):
        read(opened)
        read(opened)
        files = list((tmp_path / "cache").glob("*.bytes"))
        for file in files:
            with file.open("r+b") as kept:
                kept.seek(file.stat().st_size // 2)
                value = kept.read(1)[0] ^ 8
                kept.seek(-1, os.SEEK_CUR)
                kept.write(bytes([value]))
        read(opened)
        read(opened)  # what lay around the damaged samples
        before = served.server.gets(".h5")
        read(opened)

    assert before == served.server.gets(".h5")
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.partition(": ")[0] in map(str, files)


def test_shards_of_a_set_need_no_request(served: Served, tmp_path: Path) -> None:
    """A set object tells the content of its shards, so a second process asks for none of them."""
    names = [f"in-{number:06d}.tar" for number in range(2)]
    for number, name in enumerate(names):
        with create_shard(served.root / name, LABELLED, plan=7, number=number) as writer:
            writer.append(make_batch([f"{number}/{i}.png" for i in range(COUNT)], VALUES))
    path = set_path(str(served.root / "in-%06d.tar"))
    seal_set(path, names, FORMATS["tar"], metadata=b"{}")
    url = f"{served.url}/in.fastio-set"
    with open_store(url, remote=options(tmp_path)) as opened:
        read(opened)
    before = served.server.gets(".tar")
    with reopened(url, options(tmp_path)) as other:
        read(other)

    assert before == served.server.gets(".tar")


def test_another_version_is_not_taken_from_the_cache(store: str, served: Served, tmp_path: Path) -> None:
    """An object that was replaced has another ETag, and so other names."""
    with open_store(store, remote=options(tmp_path)) as opened:
        read(opened)
    values = [value[::-1] for value in VALUES]
    write(served.root / "in.h5", {f"{i}.png": value for i, value in enumerate(values)}, overwrite=True)
    os.utime(served.root / "in.h5", (0, 0))  # the server's ETags are sizes and seconds
    with reopened(store, options(tmp_path)) as other:
        spans, _ = other.files.fetch(other.spans("image", np.arange(COUNT))).wait()

        assert values == [view.tobytes() for view in spans.views()]


def test_an_index_that_was_cached_damaged(store: str, served: Served, tmp_path: Path) -> None:
    """An index whose bits flip on the way is read once more, and does not stay in the cache for the others."""
    for at in (100, 3000):  # the seal, which lies in the head of an HDF5 file, and the head itself
        served.server.set_faults(Fault(kind="flip", at=at, path=".h5", count=2))
        with reopened(store, options(tmp_path)) as opened:
            read(opened)
        served.server.clear()
        before = served.server.gets(".h5")
        with reopened(store, options(tmp_path)) as other:
            read(other)
        assert before + 1 == served.server.gets(".h5")


def test_one_process_fetches_the_index(served: Served, tmp_path: Path) -> None:
    """A large index is fetched once; who opens the store after that reads the end of the object only."""
    write(served.root / "in.tar", {f"{'x' * 80}{i}.png": b"%d" % i for i in range(2000)}, batch_size=2000)
    counts = []
    for _ in range(2):
        before = served.server.gets(".tar")
        with reopened(f"{served.url}/in.tar", options(tmp_path)) as opened:
            assert f"{'x' * 80}1999.png" == opened.keys([1999])[0]
        counts.append(served.server.gets(".tar") - before)

    assert [2, 1] == counts


READS_ALL = """
import sys, numpy, fastio
remote = fastio.Remote(cache_dir=sys.argv[2])
with fastio.open_store(sys.argv[1], remote=remote) as store:
    for _ in range(2):
        ahead = [store.files.read_ahead(store.spans("image", numpy.arange(i, i + 5))) for i in range(0, len(store), 5)]
        spans, status = store.files.fetch(store.spans("image", numpy.arange(len(store)))).wait()
        assert status is None
"""


def test_two_processes_fetch_each_byte_once(store: str, served: Served, tmp_path: Path) -> None:
    """Two that begin together with one folder ask the server for the samples of one."""
    served.server.set_faults(Fault(kind="delay", seconds=0.1, path=".h5"))
    command = [sys.executable, "-c", READS_ALL, store, str(tmp_path / "cache")]
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [0, 0] == [process.wait(120) for process in both]
    whole = sum(map(len, VALUES))
    ends = 2 * min(64 << 10, (served.root / "in.h5").stat().st_size)  # read by each, to learn the version

    assert whole <= served.server.body_bytes(".h5") <= whole + ends + 50_000  # and the index, once


def test_four_processes_and_one_is_killed(store: str, served: Served, tmp_path: Path) -> None:
    """Kill -9 while it fetches: the others take over, and ask again for what it had under way at most."""
    served.server.set_faults(Fault(kind="delay", seconds=0.3, path=".h5"))
    command = [sys.executable, "-c", READS_ALL, store, str(tmp_path / "cache")]
    first, *others = [subprocess.Popen(command) for _ in range(4)]
    while not list((tmp_path / "cache").glob("*.ranges")) and first.poll() is None:
        time.sleep(0.01)
    first.kill()
    first.wait()
    assert [0, 0, 0] == [process.wait(120) for process in others]
    whole = sum(map(len, VALUES))
    ends = 4 * min(64 << 10, (served.root / "in.h5").stat().st_size)

    assert whole <= served.server.body_bytes(".h5") <= 2 * whole + ends + 50_000


def test_a_process_that_hangs_is_not_waited_for(store: str, tmp_path: Path) -> None:
    """Whoever has claimed a range and does not fetch it delays others by what one request may take, once."""
    hasty = Remote(cache_dir=str(tmp_path / "cache"), download_timeout=2)
    with open_store(store, remote=hasty) as opened:
        source = opened.shards[0].data
        claim = source.cached.claim(0, source.size)  # type: ignore[attr-defined]
        read(opened)
        claim.release()


def test_a_request_that_is_cancelled_leaves_no_claim(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a thread gets the right to fetch just then: others waited for it as long as a request may take."""
    claim, has_it, may_go = DiskObject.claim, threading.Event(), threading.Event()

    def slow(disk: DiskObject, start: int, stop: int) -> Claim | None:
        found = claim(disk, start, stop)
        has_it.set()
        may_go.wait(10)
        return found

    with open_store(store, remote=options(tmp_path)) as opened:
        spans = opened.spans("image", np.arange(5))
        monkeypatch.setattr(DiskObject, "claim", slow)
        ahead = opened.files.read_ahead(spans)
        assert has_it.wait(10)
        monkeypatch.setattr(DiskObject, "claim", claim)
        ahead.cancel()
        time.sleep(0.1)  # until the loop has cancelled it
        may_go.set()
        (source,) = opened.sources
        assert isinstance(source, RemoteSource)
        assert source.cached is not None
        start, stop, latest = int(spans.starts[0]), int(spans.starts[-1]), time.monotonic() + 10
        while (found := source.cached.claim(start, stop)) is None and time.monotonic() < latest:
            time.sleep(0.01)
        assert found is not None
        found.release()


def test_a_fork_while_a_thread_uses_the_cache(store: str, tmp_path: Path) -> None:
    """A forked process does not wait for a lock that another thread of its parent had."""
    with open_store(store, remote=options(tmp_path)) as opened:
        read(opened)
        source = opened.shards[0].data
        assert isinstance(source, RemoteSource)
        assert source.cached is not None

        def use() -> None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)  # a process that waits for ever is killed
            assert source.cached is not None
            assert source.cached.find(0, 10) is not None
            source.cached.drop(0, 10)
            assert source.cached.find(0, 10) is None

        with RangeCache.of(source.options)._lock:  # type: ignore[union-attr]
            assert 0 == in_fork(use)
