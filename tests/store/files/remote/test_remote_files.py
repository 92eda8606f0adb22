"""Files behind a URL: what every kind must do, how many requests that takes, and what is held in memory."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastio import _native
from fastio.errors import StoreError
from fastio.store import open_store
from fastio.store.files import files_of, open_file
from fastio.store.files.remote.clients import client_of
from fastio.store.files.remote.loaders import joined_ranges
from fastio.store.files.remote.remote_files import RemoteFiles
from fastio.store.files.remote.remote_source import RemoteSource
from fastio.store.files.remote.request_threads import ByteRange
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.types.spans import Spans
from tests.forking import answer_of_fork
from tests.servers.fixtures import Bucket, Served
from tests.store.build import make_samples, write
from tests.store.files.conformance import DATA, OTHER, FilesConformance, Put
from tests.store.files.range_server import RangeServer, range_server

KB = 1 << 10


@pytest.fixture(scope="module")
def running() -> Iterator[RangeServer]:
    """One server for the module."""
    with range_server() as server:
        yield server


@pytest.fixture
def server(running: RangeServer) -> RangeServer:
    """Without objects, faults and counts of other tests."""
    running.objects.clear()
    running.faults.clear()
    running.always = None
    running.requests.clear()
    running.conditions.clear()
    return running


def spans_of(files: RemoteFiles, *places: tuple[int, int], shard: int = 0) -> Spans:
    """Spans of one object."""
    starts, sizes = np.array(places, np.int64).reshape(-1, 2).T.copy()
    return Spans(files.buffers, np.full(len(starts), shard, np.int32), starts, sizes)


@pytest.fixture
def files(server: RangeServer) -> Iterator[RemoteFiles]:
    """One object of 40 MB; its opening is not counted."""
    data = np.random.default_rng(5).integers(0, 256, 40_000_000, np.uint8).tobytes()
    files = files_of([open_file(server.put("large", data))])
    server.requests.clear()
    assert isinstance(files, RemoteFiles)
    yield files
    files.close()


def test_what_opening_reads_is_few_requests(server: RangeServer) -> None:
    """The end and the head are one each, whatever is read of them; an index of many MB is several at once."""
    data = np.random.default_rng(6).integers(0, 256, 5_000_000, np.uint8).tobytes()
    source = open_file(server.put("opened", data))
    ranges = ((0, 128), (0, 4552), (100, 8192), (4_999_000, 5_000_000), (200, 200))
    for start, stop in ranges:
        assert data[start:stop] == source.read(start, stop).tobytes()
    assert len(server.requests) == 2
    assert data[8000:4_999_999] == source.read(8000, 4_999_999).tobytes()
    assert len(server.requests) == 2 + 3
    source.release()
    assert data[:128] == source.read(0, 128).tobytes()
    assert len(server.requests) == 2 + 3 + 1


def test_several_ranges_are_asked_for_at_once(server: RangeServer) -> None:
    """No answer comes before all are asked for; each is what `read` gives."""
    data = np.random.default_rng(7).integers(0, 256, 500_000, np.uint8).tobytes()
    source = open_file(server.put("apart", data))
    assert isinstance(source, RemoteSource)
    meeting = threading.Barrier(3)
    server.faults.extend([lambda _: meeting.wait(60) and None] * 3)
    ranges = ((100_000, 100_001), (200_000, 300_000), (350_000, 350_000), (10_000, 90_000), (499_000, 500_000))
    assert [data[start:stop] for start, stop in ranges] == [each.tobytes() for each in source.read_at_once(ranges)]
    assert not meeting.broken


class TestRemote(FilesConformance):
    """Objects on an HTTP server."""

    @pytest.fixture
    def put(self, server: RangeServer) -> Put:
        """Objects are replaced at once."""
        return server.put

    def test_a_forked_child_reads_on(self, path: str) -> None:
        """It does not: the client would hang. One line names the way out."""
        files = files_of([open_file(path)])
        span = Spans(files.buffers, np.zeros(1, np.int32), np.array([7]), np.array([100]))
        files.fetch(span).wait()
        for act in (lambda: files.fetch(span), lambda: open_file(path), lambda: open_file(path).read(0, 150_000)):
            assert answer_of_fork(partial(_refusal, act)) == (
                "object stores cannot be read in a forked process: use FastLoader, which needs no worker processes, "
                'or DataLoader(..., multiprocessing_context="spawn")'
            )
        files.fetch(span).wait()

    def test_opening_a_store(self, server: RangeServer, put: Put, tmp_path: Path, suffix: str) -> None:
        """It takes at most five ranges, none of which a sample needs, and every later one is of the same version."""
        path = put(f"x.{suffix}", Path(write(tmp_path / f"x.{suffix}", make_samples(700))).read_bytes())
        with open_store(path) as store:
            assert len(server.requests) <= 5
            opening = sum(stop - start for _, start, stop in server.requests)
            server.conditions.clear()
            spans = store.spans("image", np.arange(700))
            assert opening < len(server.objects[f"x.{suffix}"]) - int(spans.sizes.sum()) + 70_000
            store.files.fetch(spans).wait()
            assert len(set(server.conditions)) == 1


def _refusal(act: Callable[[], object]) -> str:
    """Return the message of the StoreError that ``act`` raises."""
    with pytest.raises(StoreError) as caught:
        act()
    return str(caught.value)


def test_windows_are_held_while_their_handle_lives(server: RangeServer, files: RemoteFiles) -> None:
    """Spans of windows come without further requests and without a copy; afterwards they are asked for again."""
    windows = files.read_ahead(spans_of(files, (0, 100 * KB), (500 * KB, 100 * KB)))
    inside = spans_of(files, (501 * KB, KB), (0, 100 * KB), (3, 5), (700 * KB, 0))
    first, status = files.fetch(inside).wait()
    assert status is None
    data = server.objects["large"]
    assert [data[501 * KB : 502 * KB], data[: 100 * KB], data[3:8], b""] == [v.tobytes() for v in first.views()]
    assert np.shares_memory(first.view(1), first.view(2))
    assert [("large", 0, 100 * KB), ("large", 500 * KB, 600 * KB)] == sorted(server.requests)
    assert windows.nbytes == 200 * KB
    windows.cancel()
    files.fetch(inside).wait()
    assert len(server.requests) == 4
    assert data[3:8] == first.view(2).tobytes()


def test_a_window_is_one_request(server: RangeServer, files: RemoteFiles) -> None:
    """Windows far apart have a request each, a large one too."""
    far = [(start << 20, 1 << 20) for start in (0, 7, 3)] + [(10 << 20, 20 << 20)]
    files.read_ahead(spans_of(files, *far)).wait()
    assert sorted(("large", start, start + size) for start, size in far) == sorted(server.requests)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1000), st.integers(1, 300)), max_size=30))
def test_joined_ranges(places: list[tuple[int, int, int]]) -> None:
    """Each span lies in its range; ranges are of the given size, or of one span, and come in the order of need."""
    shard, starts, sizes = np.array(places, np.int64).reshape(-1, 3).T.copy() * np.array([[1], [KB], [KB]])
    spans = Spans(_native.Buffers([]), shard.astype(np.int32), starts, sizes)
    ranges, number = joined_ranges(spans, most_bytes=400 * KB)
    for (at, start, size), position in zip(places, number.tolist(), strict=True):
        found = ranges[position]
        assert found.shard == at
        assert found.start <= start * KB <= (start + size) * KB <= found.stop
    assert all(wanted.size <= 400 * KB for wanted in ranges)
    assert sorted(set(number.tolist())) == list(dict.fromkeys(number.tolist())) == list(range(len(ranges)))


def test_neighbours_share_a_range() -> None:
    """Gaps of up to 64 KiB are read with what lies around them."""
    starts = np.array([0, 100, 165 + 64, 1000], np.int64) * KB
    spans = Spans(_native.Buffers([]), np.zeros(4, np.int32), starts, np.full(4, 65 * KB))
    ranges, number = joined_ranges(spans)
    assert [ByteRange(0, 0, 294 * KB), ByteRange(0, 1000 * KB, 1065 * KB)] == ranges
    assert [0, 0, 0, 1] == number.tolist()


def test_spans_that_nobody_holds(server: RangeServer, files: RemoteFiles) -> None:
    """They are asked for when they are fetched, neighbours together, whatever their order."""
    files.fetch(spans_of(files, (90 * KB, KB), (0, KB), (40 * KB, KB), (20 << 20, KB), (500, 10))).wait()
    assert [("large", 0, 91 * KB), ("large", 20 << 20, (20 << 20) + KB)] == sorted(server.requests)


def test_overlapping_ranges(files: RemoteFiles, server: RangeServer) -> None:
    """A span is found in the range that holds all of it, though another one begins nearer to it."""
    windows = [files.read_ahead(spans_of(files, place)) for place in ((0, 900 * KB), (100 * KB, KB), (200 * KB, KB))]
    found, _ = files.fetch(spans_of(files, (200 * KB, 300 * KB), (100 * KB, 500))).wait()
    data = server.objects["large"]
    assert all(window.wait() for window in windows)
    assert [data[200 * KB : 500 * KB], data[100 * KB : 100 * KB + 500]] == [v.tobytes() for v in found.views()]
    assert len(server.requests) == len(windows)


def test_a_flipped_bit_is_fetched_again(server: RangeServer) -> None:
    """Spans with checksums are compared on arrival; damaged ones come once more, and then stay as they are."""
    files = files_of([open_file(server.put("one", DATA))])
    places = [(start, 1000) for start in range(0, 100_000, 1000)]
    spans = spans_of(files, *places)
    sums = np.array([_native.crc32(np.frombuffer(DATA[a : a + b], np.uint8)) for a, b in places], np.uint32)
    spans = Spans(spans.buffers, spans.shard, spans.starts, spans.sizes, sums)

    def flip(response: Any) -> None:
        response.body = response.body[:500] + bytes([response.body[500] ^ 1]) + response.body[501:]

    server.requests.clear()
    server.faults.append(flip)
    found, status = files.fetch(spans).wait()
    assert status is None
    assert [DATA[a : a + b] for a, b in places] == [view.tobytes() for view in found.views()]
    assert [("one", 0, 100_000), ("one", 0, 1000)] == server.requests
    server.always = flip
    found, status = files.fetch(spans).wait()
    assert status is None
    assert DATA[:1000] != found.view(0).tobytes()
    assert DATA[1000:2000] == found.view(1).tobytes()


def test_threads_end_with_close(server: RangeServer) -> None:
    """The thread of requests starts with the first one, and ends with ``close`` or with its owner."""
    before = set(threading.enumerate())  # files of other tests that nobody has closed may have some

    def own() -> int:
        return sum("fastio-remote" in thread.name for thread in set(threading.enumerate()) - before)

    files = files_of([open_file(server.put("one", DATA))])
    assert own() == 0
    files.fetch(spans_of(files, (0, 10))).wait()
    assert own() == 1
    files.close()
    files.close()
    assert own() == 0
    with pytest.raises(StoreError, match="the store was closed: open it again"):
        files.fetch(spans_of(files, (0, 10)))
    files = files_of([open_file(server.put("one", DATA))])
    files.read_ahead(spans_of(files, (0, 10))).wait()
    del files
    gc.collect()
    assert own() == 0


def test_close_does_not_wait_for_a_server(server: RangeServer) -> None:
    """What is under way fails at once."""
    files = files_of([open_file(server.put("one", DATA))])
    release = threading.Event()
    server.always = lambda _: (release.wait(20), None)[1]
    windows = files.read_ahead(spans_of(files, (0, 10)))
    coming = files.fetch(spans_of(files, (0, 5)))
    files.close()
    with pytest.raises(StoreError, match="was closed while its samples were fetched: open it again"):
        coming.wait()
    assert windows.done
    release.set()


def test_a_dropped_window_is_cancelled(server: RangeServer, files: RemoteFiles) -> None:
    """Requests that nobody wants any more are not sent; the next ones are."""
    release = threading.Event()
    server.always = lambda _: (release.wait(20), None)[1]
    files._in_flight.limit = 1
    windows = files.read_ahead(spans_of(files, *((start << 20, 900 * KB) for start in range(30))))
    windows.cancel()
    release.set()
    found, _ = files.fetch(spans_of(files, (35 << 20, KB))).wait()
    assert server.objects["large"][35 << 20 : (35 << 20) + KB] == found.view(0).tobytes()
    assert len(server.requests) <= 2


def test_an_interpreter_that_ends_while_requests_run(server: RangeServer) -> None:
    """It ends at once and without a word."""
    release = threading.Event()
    path = server.put("one", DATA)
    code = (
        "import numpy as np\n"
        "from fastio.store.files import files_of, open_file\n"
        "from fastio.types.spans import Spans\n"
        f"files = files_of([open_file({path!r})])\n"
        "span = Spans(files.buffers, np.zeros(1, np.int32), np.array([5]), np.array([10]))\n"
        "print('open', flush=True)\n"
        "input()\n"
        "windows = files.read_ahead(span)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        server.always = lambda _: (release.wait(120), None)[1]
        assert ("", "") == process.communicate("\n", timeout=60)
        assert process.returncode == 0
    release.set()


def test_a_replaced_object_ends_the_reading(server: RangeServer, files: RemoteFiles) -> None:
    """It is an error by name, also of windows that were asked for before."""
    server.put("large", OTHER * 200)
    windows = files.read_ahead(spans_of(files, (0, KB)))
    windows.wait()
    for span in (spans_of(files, (0, 10)), spans_of(files, (30 << 20, 10))):
        with pytest.raises(StoreError, match=r"/large: was replaced or changed since it was opened: open the store"):
            files.fetch(span).wait()


# Files behind an S3 server and a slow web server.


class TestBucket(FilesConformance):
    """Objects of an S3 server, found as boto3 finds it: by the environment."""

    @pytest.fixture
    def put(self, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Put:
        """Objects are replaced at once."""
        for name, value in bucket.server.environment().items():
            monkeypatch.setenv(name, value)

        def put(name: str, data: bytes) -> str:
            client, key = client_of(f"{bucket.url}/{name}", DEFAULT)
            client.put(key, data)
            return f"{bucket.url}/{name}"

        return put

    def test_a_forked_child_reads_on(self, path: str) -> None:
        """It does not, as with every client: see test_remote.py."""


def test_a_key_that_is_wrong(bucket: Bucket) -> None:
    """One line says that access is denied."""
    options = Remote({**bucket.options, "secret_access_key": "wrong"}, download_retry=0)
    with pytest.raises(StoreError, match=rf"{bucket.url}/x: access denied \(the server answers 403") as caught:
        open_file(f"{bucket.url}/x", options=options)
    assert "\n" not in str(caught.value)


def test_windows_take_a_request_each(served: Served) -> None:
    """As many requests as windows beside that of the opening, and no byte twice."""
    data = np.random.default_rng(0).integers(0, 256, 12 << 20, np.uint8).tobytes()
    (served.root / "x").write_bytes(data)
    files = files_of([open_file(f"{served.url}/x")])
    assert isinstance(files, RemoteFiles)
    starts = np.random.default_rng(1).permutation(12) << 20
    size = (1 << 20) - (100 << 10)  # the gaps are too large to be read with them
    windows = [
        files.read_ahead(Spans(files.buffers, np.zeros(1, np.int32), starts[k : k + 1], np.array([size])))
        for k in range(12)
    ]
    inside = Spans(files.buffers, np.zeros(24, np.int32), np.repeat(starts, 2) + 5, np.full(24, 1000))
    found, status = files.fetch(inside).wait()
    assert status is None
    assert [data[at : at + 1000] for at in inside.starts.tolist()] == [view.tobytes() for view in found.views()]
    assert all(window.wait() for window in windows)
    assert (12 + 1, 12 * size + (64 << 10)) == (served.server.gets(), served.server.body_bytes())
    files.close()
