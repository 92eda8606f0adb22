"""Read a set again and again through faults: memory, threads and sockets must stay flat, no sample may be wrong.

Afterwards threads, sockets and files must go back to what they were before the first request.

python -m benchmarks.remote.soak [--minutes 60] [--megabytes 64] [--chance 0.03] [--out FILE]
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

import click
import psutil

from benchmarks.remote.known_set import Epoch, KnownSet, make_known_set
from tests.servers.fault_server import Fault, FaultServer, Kind, why_no_nginx

__all__ = ["Reading", "Soak", "soak"]

# Those that retries mend: an object that changes ends an epoch, as it should.
KINDS: tuple[Kind, ...] = tuple(kind for kind in get_args(Kind) if kind not in ("delay", "pace", "lost", "etag"))
_SIDE = 96
_GROWTH = 1.1  # of memory, from the first third of the time to the last
_SPARE_THREADS = 4  # tokio looks up names in threads that end after 10 s of idleness
_WORKERS = os.cpu_count() or 1  # of tokio's runtime, which lives as long as the process
_RUNTIME_FILES = 3  # epoll, twice, and an eventfd of the runtime
_CLOSING_S = 120.0  # connections are kept for the next dataset, and closed after 90 s of idleness


@dataclass(frozen=True, slots=True)
class Reading:
    """What this process holds after an epoch."""

    minute: float
    rss_mb: float
    threads: int
    sockets: int
    files: int


@dataclass(slots=True)
class Soak:
    """What came of it."""

    epochs: int = 0
    samples: int = 0
    complete: int = 0  # epochs that gave every sample
    wrong: int = 0  # samples with other pixels, and epochs short without an error
    errors: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    readings: list[Reading] = field(default_factory=list)
    before: Reading | None = None  # the first request
    after: Reading | None = None  # everything was closed

    def add(self, epoch: Epoch) -> None:
        """Count an epoch."""
        self.epochs += 1
        self.samples += len(epoch.numbers)
        self.complete += epoch.complete
        self.wrong += len(epoch.wrong) + (epoch.error is None and not epoch.complete)
        if epoch.error is not None:
            self.errors[f"{type(epoch.error).__name__}: {epoch.error}"] += 1

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        values = {name: getattr(self, name) for name in ("epochs", "samples", "complete", "wrong")}
        counts = {"errors": dict(self.errors), "faults": dict(self.faults)}
        ends = {name: value and asdict(value) for name, value in (("before", self.before), ("after", self.after))}
        return {**values, **counts, **ends, "readings": [asdict(reading) for reading in self.readings]}

    def left(self) -> list[str]:
        """Return what was there after everything was closed and not before, but for the threads of the runtime."""
        if self.before is None or self.after is None:
            return []
        spare = {"threads": _WORKERS, "sockets": 0, "files": _RUNTIME_FILES}
        ends = [(name, getattr(self.before, name), getattr(self.after, name)) for name in spare]
        return [f"{name}: {before} -> {after}" for name, before, after in ends if after > before + spare[name]]

    def third(self, number: int, value: Callable[[Reading], float]) -> float:
        """Return the median of a value over the first (0), middle or last (2) third of the readings."""
        length = max(1, len(self.readings) // 3)
        part = self.readings[number * length : (number + 1) * length] or self.readings
        return statistics.median(value(reading) for reading in part)

    def growing(self) -> list[str]:
        """Return what was more in the last third: memory than in the first, all else than in the second."""
        first, last = self.third(0, _rss), self.third(2, _rss)
        lines = [f"memory: {first:.0f} -> {last:.0f} MB"] if last > _GROWTH * first else []
        for name in ("threads", "sockets", "files"):
            before = self.third(1, lambda reading, name=name: getattr(reading, name))  # type: ignore[misc]
            after = self.third(2, lambda reading, name=name: getattr(reading, name))  # type: ignore[misc]
            if after > before + (_SPARE_THREADS if name == "threads" else 0):
                lines.append(f"{name}: {before:g} -> {after:g}")
        return lines


def _rss(reading: Reading) -> float:
    return reading.rss_mb


def soak(server: FaultServer, sets: Sequence[tuple[str, KnownSet]], *, minutes: float, chance: float) -> Soak:
    """Read epochs of ``sets``, URLs and what they hold, while any request fails with this chance in any way."""
    result, begun = Soak(before=_reading(0)), time.monotonic()
    while (minute := (time.monotonic() - begun) / 60) < minutes:
        url, known = sets[result.epochs % len(sets)]
        server.clear()
        share = chance / len(KINDS)
        server.set_faults(*(Fault(kind=kind, seconds=3.0, chance=share, path=known.prefix) for kind in KINDS))
        result.add(known.epoch(url, result.epochs, download_retry=8, download_timeout=2.0))
        server.set_faults()
        result.faults.update(request.fault for request in server.requests() if request.fault)
        result.readings.append(_reading(minute))
    result.after = _closed(result, begun)
    return result


def _closed(result: Soak, begun: float) -> Reading:
    """Return the reading when all is back to where it was, or after two minutes."""
    latest = time.monotonic() + _CLOSING_S
    while True:
        gc.collect()
        result.after = _reading((time.monotonic() - begun) / 60)
        if not result.left() or time.monotonic() > latest:
            return result.after
        time.sleep(1)


def _reading(minute: float) -> Reading:
    process = psutil.Process()
    sockets = sum(connection.status != psutil.CONN_LISTEN for connection in process.net_connections())
    return Reading(
        round(minute, 2), round(process.memory_info().rss / 2**20, 1), process.num_threads(), sockets, process.num_fds()
    )


@click.command()
@click.option("--minutes", default=60.0, show_default=True)
@click.option("--megabytes", default=64, show_default=True, help="Of each of the two sets.")
@click.option("--chance", default=0.03, show_default=True, help="Of a fault, for each request.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Keep all readings here, as JSON.")
def main(minutes: float, megabytes: int, chance: float, out: Path | None) -> None:
    """Read sets of JPEGs and of raw pictures; the exit status is 1 if anything grew or was wrong."""
    if reason := why_no_nginx():
        raise click.ClickException(reason)
    with tempfile.TemporaryDirectory() as scratch, FaultServer(Path(scratch)) as server:
        count = megabytes * 1_000_000 // (_SIDE * _SIDE * 3)
        sets = [
            (f"{server.url}/{name}", make_known_set(Path(scratch) / name, count=count, side=_SIDE, shards=8, raw=raw))
            for name, raw in (("jpeg", False), ("raw", True))
        ]
        result = soak(server, sets, minutes=minutes, chance=chance)
    click.echo(
        f"{minutes:g} minutes: {result.epochs} epochs, {result.complete} of them whole, {result.samples:,} samples, "
        f"{result.faults.total()} faults, {result.wrong} wrong"
    )
    for name in ("rss_mb", "threads", "sockets", "files"):
        values = [f"{result.third(number, lambda one, name=name: getattr(one, name)):g}" for number in range(3)]  # type: ignore[misc]
        click.echo(f"{name}, medians of thirds: {' '.join(values)}")
    for message, times in result.errors.most_common():
        click.echo(f"{times:6} {message}")
    if out is not None:
        out.write_text(json.dumps(result.to_json(), indent=1) + "\n")
    grown, left = result.growing(), result.left()
    click.echo(f"grew: {', '.join(grown) or 'nothing'}")
    click.echo(f"left after closing, besides tokio's {_WORKERS} workers: {', '.join(left) or 'nothing'}")
    sys.exit(bool(result.wrong or grown or left))


if __name__ == "__main__":
    main()
