"""DownloadThread: how many ranges are on their way at once."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from numpy.typing import NDArray

from fastio.store.files.remote.download_thread import ByteRange, DownloadThread
from fastio.store.files.remote.in_flight import InFlight


@pytest.mark.parametrize(("size", "at_once"), [(1 << 20, 8), (256 << 10, 16), (1000, 64)])
def test_small_requests_at_once(size: int, at_once: int) -> None:
    """At the start 8 large requests are under way, twice as many of half a full one, eight times as many tiny ones."""
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
    downloads = [thread.begin(ByteRange(0, number, number + size), is_urgent=False) for number in range(at_once + 4)]
    assert all(download.wait(60) for download in downloads)
    thread.close()
    assert at_once == most
