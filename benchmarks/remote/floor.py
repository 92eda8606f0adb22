"""
What requests alone take: CPU seconds and page faults of loops that fetch ranges of 2 MiB on 16 connections from nginx.

``python -m benchmarks.remote.floor [--gigabytes 1] [--rounds 3] [--only TEXT]``. The server is on this machine, and
neither late nor slow; its CPU time is not counted, nor are imports. Each loop runs in a fresh process, in turn, and
compares the number of bytes.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import mmap
import resource
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.remote.run import DATA
from benchmarks.rounds import interleaved, run_process
from tests.servers.fault_server import FaultServer, why_no_nginx

__all__ = ["LOOPS", "main"]

_RANGE_BYTES = 2 << 20
_CONNECTIONS = 16
_FILE_BYTES = 256 << 20
_HELD_BYTES = 700_000_000
_NAME = "floor.bin"

Buffers = Callable[[], Any]  # each call gives the memory of the next range


def _in_threads(url: str, ranges: int, connection: Callable[[str], Callable[[int], int]]) -> int:
    """Fetch so many ranges, each thread by a connection of its own; returns their bytes."""

    def loop(first: int) -> int:
        fetch = connection(url)
        return sum(fetch(number * _RANGE_BYTES % _FILE_BYTES) for number in range(first, ranges, _CONNECTIONS))

    with ThreadPoolExecutor(_CONNECTIONS) as threads:
        return sum(threads.map(loop, range(_CONNECTIONS)))


def _header(start: int) -> dict[str, str]:
    return {"Range": f"bytes={start}-{start + _RANGE_BYTES - 1}"}


def _received(buffers: Callable[[], Buffers]) -> Callable[[str, int], int]:
    """Return a loop over ``recv_into`` of Python's own client, which reads bodies without a copy in between."""

    def connection(url: str) -> Callable[[int], int]:
        parts, memory = urlsplit(url), buffers()
        client = http.client.HTTPConnection(parts.netloc)

        def fetch(start: int) -> int:
            client.request("GET", parts.path, headers=_header(start))
            answer, view, filled = client.getresponse(), memoryview(memory()), 0
            while count := answer.readinto(view[filled:]):
                filled += count
            answer.read()
            return filled

        return fetch

    return lambda url, ranges: _in_threads(url, ranges, connection)


def _one_buffer() -> Buffers:
    buffer = np.empty(_RANGE_BYTES, np.uint8)
    return lambda: buffer


def _new_buffers(advice: int) -> Buffers:
    """
    Memory that nobody had before, twice as much as is needed, so that a whole page of 2 MiB lies within.

    ``advice`` says whether the kernel should give it in such pages.
    """

    def buffer() -> memoryview:
        memory = mmap.mmap(-1, 2 * _RANGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(advice)
        start = -np.frombuffer(memory, np.uint8).ctypes.data % _RANGE_BYTES
        return memoryview(memory)[start : start + _RANGE_BYTES]

    return buffer


def _urllib3(url: str, ranges: int) -> int:
    import urllib3

    pool = urllib3.PoolManager(maxsize=_CONNECTIONS)
    return _in_threads(
        url, ranges, lambda url: lambda start: len(pool.request("GET", url, headers=_header(start)).data)
    )


def _httpx2(url: str, ranges: int) -> int:
    import httpx2

    def connection(url: str) -> Callable[[int], int]:
        client = httpx2.Client()
        return lambda start: len(client.get(url, headers=_header(start)).content)

    return _in_threads(url, ranges, connection)


def _obstore(held_bytes: int) -> Callable[[str, int], int]:
    """Return a loop that keeps the last answers, up to ``held_bytes``, as windows that are decoded are."""

    def loop(url: str, ranges: int) -> int:
        return asyncio.run(_obstore_loop(url, ranges, held_bytes // _RANGE_BYTES))

    return loop


async def _obstore_loop(url: str, ranges: int, held: int) -> int:
    import obstore
    from obstore.store import HTTPStore

    root, name = url.rsplit("/", 1)
    store = HTTPStore.from_url(root, client_options={"allow_http": True})
    answers: deque[Any] = deque(maxlen=max(1, held))

    async def fetch(first: int) -> int:
        total = 0
        for number in range(first, ranges, _CONNECTIONS):
            start = number * _RANGE_BYTES % _FILE_BYTES
            data = await obstore.get_range_async(store, name, start=start, end=start + _RANGE_BYTES)
            answers.append(data)
            total += len(data)
        return total

    return sum(await asyncio.gather(*map(fetch, range(_CONNECTIONS))))


LOOPS: dict[str, Callable[[str, int], int]] = {
    "recv_into one buffer": _received(_one_buffer),
    "recv_into a new buffer each": _received(lambda: _new_buffers(mmap.MADV_NOHUGEPAGE)),
    "the same in pages of 2 MiB": _received(lambda: _new_buffers(mmap.MADV_HUGEPAGE)),
    "urllib3": _urllib3,
    "httpx2": _httpx2,
    "obstore": _obstore(0),
    "obstore, 700 MB of answers held": _obstore(_HELD_BYTES),
}


@click.command(help=__doc__)
@click.option("--gigabytes", default=1.0, show_default=True, help="GiB that each loop fetches.")
@click.option("--rounds", default=3, show_default=True, help="Interleaved rounds.")
@click.option("--only", multiple=True, help="Only the loops whose name contains this text; several add up.")
@click.option("--loop", "one", hidden=True, help="Run one loop here: its name.")
@click.option("--url", hidden=True, help="What it fetches.")
def main(gigabytes: float, rounds: int, only: tuple[str, ...], one: str | None, url: str | None) -> None:
    """Run each loop in turn, and print medians."""
    ranges = max(1, round(gigabytes * (1 << 30) / _RANGE_BYTES))
    if one is not None and url is not None:
        print(json.dumps(_measured(one, url, ranges)))
        return
    if reason := why_no_nginx():
        raise click.ClickException(reason)
    home = DATA / "floor"
    _make_file(home / _NAME)
    names = [name for name in LOOPS if not only or any(text.lower() in name.lower() for text in only)]
    with FaultServer(home) as server:
        command = [sys.executable, "-m", "benchmarks.remote.floor", "--gigabytes", str(gigabytes)]
        command += ["--url", f"{server.url}/{_NAME}"]
        results = interleaved(names, lambda name: run_process([*command, "--loop", name]), rounds=rounds)
    table = Table("loop", "CPU-s/GiB", "lowest to highest", "page faults/GiB", title=f"{ranges} ranges of 2 MiB")
    for name, runs in results.runs.items():
        cpu = sorted(run["cpu_s_per_gib"] for run in runs)
        faults = median(run["faults_per_gib"] for run in runs)
        table.add_row(name, f"{median(cpu):.2f}", f"{cpu[0]:.2f}-{cpu[-1]:.2f}", f"{faults:,.0f}")
    Console(width=120).print(table)
    for name, reason in results.failed.items():
        click.echo(f"{name}: {reason}")


def _measured(name: str, url: str, ranges: int) -> dict[str, float]:
    """Run a loop: once over one range for each connection, for imports and connections, then over all."""
    LOOPS[name](url, _CONNECTIONS)
    before, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    received = LOOPS[name](url, ranges)
    wall_s, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
    if received != ranges * _RANGE_BYTES:
        raise ValueError(f"{name}: expected {ranges * _RANGE_BYTES} bytes, got {received}")
    gib = received / (1 << 30)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "cpu_s_per_gib": cpu_s / gib,
        "faults_per_gib": (after.ru_minflt - before.ru_minflt) / gib,
        "wall_s": wall_s,
    }


def _make_file(path: Path) -> None:
    """Write random bytes, once."""
    if path.exists() and path.stat().st_size == _FILE_BYTES:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    with path.open("wb") as file:
        for _ in range(_FILE_BYTES // _RANGE_BYTES):
            file.write(random.bytes(_RANGE_BYTES))


if __name__ == "__main__":
    main()
