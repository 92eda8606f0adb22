"""DownloadThread: how many ranges are on their way at once, and what becomes of them when it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastio import _native
from fastio.errors import StoreError
from fastio.store.files.remote.remote_files import HeldRanges
from fastio.store.files.remote.request_threads import ByteRange, Download, DownloadThread, InFlight, Need
from fastio.types.spans import Spans


@pytest.mark.parametrize(("size", "at_once"), [(1 << 20, 16), (256 << 10, 32), (1000, 64)])
def test_small_requests_at_once(size: int, at_once: int) -> None:
    """At the start 16 large requests are under way, twice as many of half a full one, and 64 tiny ones, the most."""
    under_way, most, all_sent = 0, 0, asyncio.Event()

    async def load(_: ByteRange) -> NDArray[np.uint8]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == at_once:
            all_sent.set()
        await asyncio.wait_for(all_sent.wait(), 60)
        await asyncio.sleep(0)  # whatever may be sent by now is sent
        under_way -= 1
        return np.zeros(0, np.uint8)

    thread = DownloadThread(load, InFlight())
    downloads = [thread.begin(ByteRange(0, number, number + size), Need.SOON) for number in range(at_once + 4)]
    assert all(download.wait(60) for download in downloads)
    thread.close()
    assert at_once == most


def test_what_is_needed_sooner_is_sent_first() -> None:
    """Of ranges that wait for their turn; one that is hurried overtakes those that are needed later."""
    sent, may_go = list[int](), asyncio.Event()

    async def load(wanted: ByteRange) -> NDArray[np.uint8]:
        sent.append(wanted.start)
        await may_go.wait()
        return np.zeros(0, np.uint8)

    one = InFlight()
    one.limit = 1
    thread = DownloadThread(load, one)
    needs = [Need.LATER, Need.LATER, Need.LATER, Need.SOON, Need.NOW]
    downloads = [thread.begin(ByteRange(0, number, number + (1 << 20)), need) for number, need in enumerate(needs)]
    downloads[2].hurry()
    loop = thread._loop
    assert loop is not None
    loop.call_soon_threadsafe(may_go.set)
    assert all(download.wait(60) for download in downloads)
    thread.close()

    assert [0, 4, 2, 3, 1] == sent


def test_closed_while_a_request_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for ever for a range that was asked for just when another thread closed the store."""

    async def load(_: ByteRange) -> NDArray[np.uint8]:
        await asyncio.Event().wait()  # as a server that does not answer
        return np.zeros(1, np.uint8)

    thread, call = DownloadThread(load, InFlight()), asyncio.SelectorEventLoop.call_soon_threadsafe
    closing = Thread(target=thread.close)

    def closed_before(loop: asyncio.SelectorEventLoop, function: Callable[..., object], *args: Any, **how: Any) -> Any:
        if function == thread._accept:
            closing.start()
            closing.join(0.5)  # it may have to wait until this has been called
        return call(loop, function, *args, **how)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "call_soon_threadsafe", closed_before)
    download = thread.begin(ByteRange(0, 0, 1), Need.NOW)

    assert download.wait(60)
    with pytest.raises(StoreError, match="was closed while its samples were fetched"):
        download.result()
    closing.join(60)


def test_closed_while_the_client_reports() -> None:
    """A thread of the client that found its request not cancelled yet may report its end to a loop that is closed."""
    requests, found, closed = list[asyncio.Future[int]](), Event(), Event()
    raised = list[BaseException]()

    async def load(_: ByteRange) -> NDArray[np.uint8]:
        requests.append(asyncio.get_running_loop().create_future())
        client.start()
        return np.zeros(await requests[0], np.uint8)

    def report() -> None:
        (request,) = requests
        is_cancelled = request.cancelled()
        found.set()
        closed.wait(60)
        if not is_cancelled:
            try:
                request.get_loop().call_soon_threadsafe(request.set_result, 1)
            except RuntimeError as exc:  # the client prints it
                raised.append(exc)

    client = Thread(target=report)
    thread = DownloadThread(load, InFlight())
    download = thread.begin(ByteRange(0, 0, 1), Need.NOW)
    assert found.wait(60)
    thread.close()
    closed.set()
    client.join(60)

    assert requests[0].get_loop().is_closed()
    assert not raised
    with pytest.raises(StoreError, match="was closed while its samples were fetched"):
        download.result()


# HeldRanges: which download has a span, if several do.


def _download(start: int, stop: int) -> Download:
    return Download(ByteRange(0, start, stop), Future[NDArray[np.uint8]](), abandon=lambda: None, hurry=lambda: None)


def _span(start: int, size: int) -> Spans:
    return Spans(_native.Buffers([]), np.zeros(1, np.int32), np.array([start]), np.array([size]))


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        pytest.param([(100, 200), (100, 200)], 0, id="of equal ones that which was begun first"),
        pytest.param([(100, 900), (100, 200)], 1, id="the shorter one"),
        pytest.param([(0, 900), (100, 200)], 1, id="the one that begins later"),
    ],
)
def test_a_span_is_awaited_where_it_comes_first(ranges: list[tuple[int, int]], expected: int) -> None:
    """Of several downloads that have a span, it is looked for in the one that ends first."""
    held, downloads = HeldRanges(), [_download(*bounds) for bounds in ranges]
    for download in downloads:
        held.add(download)
    found, block = held.find(_span(100, 100))
    assert [downloads[expected]] == found
    assert [0] == block.tolist()
