"""What becomes of a range whose request fails: it is asked for again, or named; never wrong, never forever."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastio import FastDataset, FastLoader, _native
from fastio.errors import SampleError, StoreError
from fastio.store.files import files_of, open_file
from fastio.store.files.remote import client as retry
from fastio.store.files.remote import loaders
from fastio.store.files.remote.loaders import Hedging
from fastio.store.files.remote.remote_files import RemoteFiles
from fastio.store.files.remote.request_threads import FEWEST, MOST, InFlight
from fastio.store.files.remote_options import Remote
from fastio.types.spans import Spans
from tests.conftest import encode, pictures, write_store
from tests.store.files.conformance import DATA
from tests.store.files.range_server import Fault, RangeServer, Response, range_server

OPTIONS = Remote(download_retry=2, download_timeout=30)


@pytest.fixture(scope="module")
def running() -> Iterator[RangeServer]:
    """One server for the module."""
    with range_server() as server:
        yield server


@pytest.fixture
def server(running: RangeServer, monkeypatch: pytest.MonkeyPatch) -> RangeServer:
    """Without faults of other tests; pauses between attempts are short."""
    monkeypatch.setattr(retry, "_FIRST_S", 0.001)
    running.faults.clear()
    running.always = None
    running.requests.clear()
    return running


@pytest.fixture
def files(server: RangeServer) -> Iterator[RemoteFiles]:
    """One object with DATA."""
    files = files_of([open_file(server.put("one", DATA), options=OPTIONS)])
    server.requests.clear()
    assert isinstance(files, RemoteFiles)
    yield files
    files.close()


def span(files: RemoteFiles, start: int, size: int) -> Spans:
    """One span of the object."""
    return Spans(files.buffers, np.zeros(1, np.int32), np.array([start]), np.array([size]))


def status(number: int, code: str = "", **headers: str) -> Fault:
    """A fault: an answer with this status."""

    def fault(response: Response) -> None:
        response.status, response.headers = number, headers
        response.body = f"<Error><Code>{code}</Code><Message>Words.</Message></Error>".encode() if code else b""

    return fault


def whole(response: Response) -> None:
    """Ignores the range: 200 for 206."""
    response.status, response.body = 200, DATA
    del response.headers["Content-Range"]


def wrong_range(response: Response) -> None:
    """Sends another range of the same length, and says so."""
    response.headers["Content-Range"] = f"bytes 5-{4 + len(response.body)}/{len(DATA)}"


def wrong_size(response: Response) -> None:
    """Says that the object has another size."""
    response.headers["Content-Range"] = response.headers["Content-Range"].rpartition("/")[0] + "/77"


def short(response: Response) -> None:
    """Ends the range early, with consistent headers."""
    response.body = response.body[:-7]
    first = response.headers["Content-Range"].removeprefix("bytes ").partition("-")[0]
    last = int(first) + len(response.body) - 1
    response.headers["Content-Range"] = f"bytes {first}-{last}/{len(DATA)}"


def cut(response: Response) -> None:
    """Ends the connection within the body."""
    response.is_cut = True


BUSY = r"the server answers 503 Service Unavailable(, SlowDown: Words\.)?"  # obstore 0.8 keeps the words to itself
FAULTS: dict[str, tuple[Fault, str]] = {  # each with a regular expression for what is said
    "503": (status(503, "SlowDown"), BUSY),
    "500": (status(500), "the server answers 500 Internal Server Error"),
    "429": (status(429), "the server answers 429 Too Many Requests"),
    "cut": (cut, "the connection was cut before the last byte"),
    "200 for 206": (whole, "asked for a range, the server sent the whole object"),
    "wrong range": (wrong_range, "asked for bytes 300 to 500, the server sent 5 to 205"),
    "wrong size": (wrong_size, "Wanted range starting at 300, but object was only 77 bytes long"),
    "short": (short, "asked for bytes 300 to 500, the server sent 300 to 493"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_passes(server: RangeServer, files: RemoteFiles, name: str) -> None:
    """The range is asked for again, ahead or not, and whoever fetches it notices nothing."""
    fault, _ = FAULTS[name]
    server.faults.extend([fault, fault, None, fault])
    windows = files.read_ahead(span(files, 300, 200))
    found, unread = files.fetch(span(files, 310, 20)).wait()
    assert unread is None
    assert DATA[310:330] == found.view(0).tobytes()
    windows.cancel()
    found, unread = files.fetch(span(files, 300, 200)).wait()
    assert unread is None
    assert DATA[300:500] == found.view(0).tobytes()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_stays(server: RangeServer, files: RemoteFiles, name: str) -> None:
    """After the last attempt the spans of that range have a status, the others come, and the reason is known."""
    fault, reason = FAULTS[name]
    server.faults.extend([fault] * 3)
    windows = files.read_ahead(span(files, 300, 200))
    windows.wait()
    asked = Spans(files.buffers, np.zeros(3, np.int32), np.array([310, 100_000, 400]), np.array([10, 20, 0]))
    found, unread = files.fetch(asked).wait()
    assert unread is not None
    assert [_native.IO_ERROR, _native.OK, _native.OK] == unread.tolist()
    assert [b"", DATA[100_000:100_020], b""] == [view.tobytes() for view in found.views()]
    message = files.failure(asked)
    assert message is not None
    assert re.match(f"{reason}, at the last of 3 attempts: ", message)
    windows.cancel()
    assert files.fetch(asked).wait()[1] is None
    assert files.failure(asked) is None
    server.faults.extend([fault] * 3)
    with pytest.raises(StoreError, match=rf"{server.url}/one: cannot be read .*the last of 3 attempts") as caught:
        open_file(f"{server.url}/one", options=OPTIONS).read(300, 500)
    assert StoreError is caught.type, "an error that users can import"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            status(403, "AccessDenied"),
            r"/one: access denied \(the server answers 403 Forbidden, AccessDenied: Words\.\)",
        ),
        (status(400, "ExpiredToken"), r"/one: the credentials have expired .*: log in again"),
        (status(404), r"/one: can no longer be read \(no such object\): open the store again"),
    ],
)
def test_an_error_that_ends_the_epoch(server: RangeServer, files: RemoteFiles, fault: Fault, message: str) -> None:
    """What would hit every sample is raised at once, not left to those who skip samples."""
    server.faults.append(fault)
    with pytest.raises(StoreError, match=message) as caught:
        files.fetch(span(files, 300, 200)).wait()
    assert "\n" not in str(caught.value)
    assert len(server.requests) == 1


def test_a_server_that_hangs(server: RangeServer) -> None:
    """Each attempt ends after ``download_timeout``, and the error says so."""
    options = replace(OPTIONS, download_retry=1, download_timeout=0.05)
    hasty = RemoteFiles([_with(open_file(server.put("one", DATA), options=OPTIONS), options)])
    release = threading.Event()
    server.always = lambda _: (release.wait(20), None)[1]
    asked = span(hasty, 300, 200)
    _, unread = hasty.fetch(asked).wait()
    release.set()
    assert unread is not None
    assert hasty.failure(asked) == (
        "no whole answer within 0.05 s, at the last of 2 attempts: check the server, or raise download_timeout"
    )
    hasty.close()


@pytest.mark.parametrize(
    "script",
    [
        "from fastio.store import open_store; open_store(sys.argv[1], remote=remote)",
        "from fastio.store import open_store; open_store(sys.argv[2], remote=remote)",
        "from fastio.store.staging import stage; stage(sys.argv[1], sys.argv[3], options=remote)",
    ],
    ids=["file", "shards", "stage"],
)
def test_ctrl_c_while_a_server_hangs(
    server: RangeServer, png_stores: dict[str, Path], tmp_path: Path, script: str
) -> None:
    """It ends the wait for the server, which answers once the process is gone."""
    url = server.put("in.tar", png_stores["tar"].read_bytes())
    server.put("in-000000.tar", b"none")
    server.put("in-000001.tar", b"none")
    asked, gone = threading.Event(), threading.Event()

    def hang(_: Response) -> None:
        asked.set()
        gone.wait(120)

    server.always = hang
    begin = "import sys; from fastio.store.files.remote_options import Remote; "
    begin += "remote = Remote(download_timeout=120); "
    shards = f"{server.url}/in-{{000000..000001}}.tar"
    command = [sys.executable, "-c", begin + script, url, shards, str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            assert asked.wait(60)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
            gone.set()

    assert "KeyboardInterrupt" in errors.decode()


def _with(source: Any, options: Remote) -> Any:
    """Read on with other options."""
    source.options = options
    source.release()
    return source


def test_a_server_that_is_gone() -> None:
    """One line says that there is no connection."""
    with range_server() as server:
        url = server.put("one", DATA)
    with pytest.raises(StoreError, match=rf"{url}: cannot be read or written: no connection \(Connection refused\)"):
        open_file(url, options=replace(OPTIONS, download_retry=0))


def test_a_slow_answer_is_asked_for_twice(
    server: RangeServer, files: RemoteFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it is known what is usual, a request that hangs is sent again; the first answer counts."""
    monkeypatch.setattr(loaders, "_FEWEST", 190)  # before, a busy machine could use up what may be asked for twice
    for start in range(0, 190_000, 1000):
        files.fetch(span(files, start, 1000)).wait()
    count = len(server.requests)
    release = threading.Event()
    server.faults.append(lambda _: (release.wait(20), None)[1])
    found, unread = files.fetch(span(files, 3000, 1000)).wait()
    assert unread is None
    assert DATA[3000:4000] == found.view(0).tobytes()
    release.set()
    assert len(server.requests) == count + 2


def test_an_epoch_repeats_so_many_requests(
    server: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one that fails ends the epoch, and says why; a new epoch may repeat as many."""
    monkeypatch.setattr("fastio.loader.producer.read_ahead.held_bytes", lambda: 0)
    path = write_store(tmp_path / "x.h5", [encode(pixels) for pixels in pictures(40)], np.arange(40) % 4)
    url = server.put("x.h5", path.read_bytes())
    with FastLoader(FastDataset(url, remote=Remote(download_retry=3, epoch_retry=2)), 4) as loader:
        for _ in range(2):
            server.faults += [status(503), status(503)]
            assert 40 == sum(len(labels) for _, labels in loader)
            receipt = loader.receipt()
            assert receipt.is_exact
            assert receipt.requests is not None
            assert (2, 2, 0) == (receipt.requests.most, receipt.requests.repeated, receipt.requests.failed)
            assert receipt.requests.answered > 0
            assert receipt.to_json()["requests"]["repeated"] == 2

        server.always = status(503)
        words = "has repeated 2 requests, as many as epoch_retry allows: check the server, or raise epoch_retry"
        with pytest.raises(SampleError, match=words):
            list(loader)
        assert loader.stats.requests is not None
        assert 2 == loader.stats.requests.repeated
        assert loader.stats.requests.failed > 0


def test_patience() -> None:
    """It is three times what 95 % take, by size; unknown at first; at most 5 % of the bytes are asked for twice."""
    hedging = Hedging()
    for _ in range(19):
        hedging.arrived(4 << 20, 0.1)
    assert hedging.patience_s(4 << 20) is None
    for _ in range(80):
        hedging.arrived(4 << 20, 0.1)
    hedging.arrived(4 << 20, 9.0)
    assert hedging.patience_s(4 << 20) == pytest.approx(0.3)
    assert hedging.patience_s(8 << 20) == pytest.approx(0.6)
    assert hedging.patience_s(1) == hedging.patience_s(1 << 20) == pytest.approx(0.075)
    assert [True] * 5 + [False] == [hedging.take(4 << 20) for _ in range(6)]


def _settled(rate_of: Any, *, is_full: bool = True) -> int:
    """Return what the limit mostly is in the end, for a server that gives ``rate_of(limit)`` bytes a second."""
    in_flight, now, limits = InFlight(), 0.0, list[int]()
    for _ in range(20_000):
        now += 1000 / rate_of(in_flight.limit)
        in_flight.arrived(1000, now, is_full=is_full)
        assert 1 <= in_flight.limit <= MOST
        limits.append(in_flight.limit)
    return int(np.median(limits[10_000:]))


def test_requests_in_flight() -> None:
    """They grow while the rate grows, up to 64, and only if readers ask for more."""
    assert MOST - 4 <= _settled(lambda limit: limit * 1e6) <= MOST
    assert _settled(lambda limit: limit * 1e6, is_full=False) == FEWEST
    assert 20 <= _settled(lambda limit: min(limit, 20) * 1e6) <= 2 * 20
    assert FEWEST <= _settled(lambda limit: 1e6) <= 2 * FEWEST
    in_flight = InFlight()
    in_flight.throttled()
    assert in_flight.limit == FEWEST // 2


def test_a_slow_beginning_is_not_for_long() -> None:
    """Where more requests brought nothing at first, more are tried soon again, and ever more seldom."""
    in_flight, now, limits = InFlight(), 0.0, list[int]()
    for answers in range(1000):
        now += 1 / (in_flight.limit if answers > 200 else 1)
        in_flight.arrived(1000, now, is_full=True)
    assert in_flight.limit == MOST
    in_flight = InFlight()
    for _ in range(100_000):
        now += 1
        in_flight.arrived(1000, now, is_full=True)
        limits.append(in_flight.limit)
    tried = np.diff(np.array(limits) > FEWEST, prepend=False).nonzero()[0][::2]
    pauses = np.diff(tried)
    assert (np.diff(pauses) >= 0).all()
    assert 9 * pauses[0] < pauses[-1]


def test_pauses() -> None:
    """They double, with a random part, up to 15 seconds."""
    for attempt, most in enumerate([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15, 15]):
        assert most / 2 <= retry.pause_s(attempt) <= most


def test_a_busy_server_is_asked_again(server: RangeServer, files: RemoteFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """After pauses that grow, and without a thread that outlives its files."""
    pauses: list[int] = []
    before = set(threading.enumerate())  # files of other tests that nobody has closed may have some
    monkeypatch.setattr(loaders, "pause_s", lambda number: pauses.append(number) or 0.0)
    server.faults.extend([status(503, "SlowDown"), status(503, **{"Retry-After": "7"})])
    found, unread = files.fetch(span(files, 300, 200)).wait()
    assert unread is None
    assert DATA[300:500] == found.view(0).tobytes()
    assert [("one", 300, 500)] * 3 == server.requests
    assert [0, 1] == pauses
    files.close()
    own = set(threading.enumerate()) - before
    assert not [thread.name for thread in own if thread.name.startswith(("asyncio", "fastio-remote"))]


def test_the_end_of_an_object_is_checked(server: RangeServer) -> None:
    """An answer that is too short is asked for again, and then named."""
    url = server.put("one", DATA)
    server.faults.append(short)
    assert DATA[-9:] == open_file(url, options=OPTIONS).read(len(DATA) - 9, len(DATA)).tobytes()
    server.always = short
    with pytest.raises(
        StoreError, match=r"/one: cannot be read or written: asked for bytes .* sent .*: check the server"
    ):
        open_file(url, options=OPTIONS)


@pytest.mark.parametrize("name", ["in.tar", "a b.tar"])
def test_a_server_without_ranges_is_refused_at_once(server: RangeServer, name: str) -> None:
    """It says so by its answer: the object is not asked for again and again."""
    url = server.put(name, DATA)
    server.put(name.replace(" ", "%20"), DATA)
    server.always = whole
    options = Remote(storage_options={"headers": {"X-Of": "a test"}}, download_retry=5)
    with pytest.raises(StoreError, match=r"the server has no ranges and .* such as nginx, or copy the file") as caught:
        open_file(url, options=options)
    assert str(caught.value).startswith(f"{url}: ")
    assert "\n" not in str(caught.value)
    assert 2 == len(server.requests)


def test_a_server_with_ranges_that_once_sends_the_whole_is_asked_again(server: RangeServer) -> None:
    """By what it answers to another request, by Accept-Ranges, or because it sent a range before."""

    def whole_of_ranges(response: Response) -> None:
        whole(response)
        response.headers["Accept-Ranges"] = "bytes"

    url = server.put("one", DATA)
    new = replace(OPTIONS, storage_options={"headers": {"X-Of": "another test"}})
    server.faults.extend([whole, None, whole_of_ranges, whole_of_ranges])
    assert DATA[-9:] == open_file(url, options=new).read(len(DATA) - 9, len(DATA)).tobytes()
    assert 5 == len(server.requests)
    server.faults.extend([whole, whole])
    assert DATA[-9:] == open_file(url, options=new).read(len(DATA) - 9, len(DATA)).tobytes()
    assert 8 == len(server.requests)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_what_a_user_sees(server: RangeServer, png_stores: dict[str, Path], on_error: Any) -> None:
    """An error names shard, sample, key and reason; skipped samples are those alone whose range failed."""
    url = server.put("png.tar", png_stores["tar"].read_bytes())
    dataset = FastDataset(url)
    dataset.store.files.close()
    files = RemoteFiles([_with(shard.data, OPTIONS) for shard in dataset.store.shards])
    dataset.store._content = replace(dataset.store._content, files=files)
    where = dataset.store.spans("image", np.array([17]))
    start = int(where.starts[0])

    def fails_at_17(response: Response) -> None:
        first, last = response.headers["Content-Range"].removeprefix("bytes ").partition("/")[0].split("-")
        if int(first) <= start <= int(last):
            status(503, "SlowDown")(response)

    server.always = fails_at_17
    with pytest.raises(
        SampleError, match=rf"{url}\[17\] \('.*'\), field 'image': it could not be opened or read: the ser"
    ):
        dataset[17]
    assert dataset[3] is not None
    with FastLoader(dataset, batch_size=10, on_error=on_error, threads=1) as loader:
        if on_error == "raise":
            with pytest.raises(SampleError, match=f"{BUSY}, at"):
                list(loader)
        else:
            assert sum(len(images) for images, _ in loader) < 50
    server.always = None
    dataset.close()
