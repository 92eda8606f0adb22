"""Read photos from a server 30 ms away, 60 MB/s a connection: fastio compared with LitData and WebDataset.

python -m benchmarks.remote.run [--photos DIR] [--gigabytes 2] [--rounds 3] [--threads 2] [--only TEXT]
                                [--distances] [--no-write]
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
from rich.console import Console

from benchmarks.peers.environments import interpreter, process_environment, versions
from benchmarks.remote.photo_set import SampleSet, photo_set
from benchmarks.remote.tables import LOCAL, table
from benchmarks.remote.work import BATCH_SIZE, RemoteWork
from benchmarks.report import result_path, write_result
from benchmarks.rounds import CaseError, interleaved, run_process
from tests.servers.fault_server import Fault, FaultServer, Request, why_no_nginx

__all__ = ["CASES", "DATA", "DISTANCES", "FAR", "Case", "counted", "main", "measured", "packed_set"]

DATA = Path(__file__).parent.parent / ".data"
FAR = (Fault(kind="delay", seconds=0.03), Fault(kind="pace", rate=60_000_000))
SLOW_TAILS = (*FAR, Fault(kind="delay", seconds=2, chance=0.03, method="GET"))
PACK_TIMEOUT_S, RUN_TIMEOUT_S = 1200.0, 900.0


@dataclass(frozen=True, slots=True)
class Case:
    """
    A peer, the server's faults, and how much of the set may be kept (``cache``: a share of it, with two epochs).

    With ``tls`` it is read over https. ``container`` is that of fastio's stores of photos. ``shards``, ``pictures``,
    ``full`` and ``readers`` are for small samples: see ``RemoteWork``.
    """

    module: str
    environment: str = ""
    faults: tuple[Fault, ...] = FAR
    is_remote: bool = True
    tls: bool = False
    cache: float = 0.0
    container: str = "tar"
    shards: int = 0
    pictures: bool = False
    full: bool = False
    readers: int = 0

    @property
    def folder(self) -> str:
        """Where the set of this case lies, in the home of its samples."""
        if self.shards:
            return f"{self.module}-{self.shards}"
        return self.module if self.container == "tar" else f"{self.module}-{self.container}"

    def work(self, source: SampleSet, threads: int) -> RemoteWork:
        """What its peer is asked to do, before anything lies behind a URL."""
        return RemoteWork(
            source.path, source.home / self.folder, source.samples, threads, self.container,
            shards=self.shards, pictures=self.pictures, full=self.full, readers=self.readers,
        )  # fmt: skip


CASES = {
    "far: fastio": Case("of_fastio"),
    "far: LitData": Case("of_litdata", "litdata"),
    "far: WebDataset": Case("of_webdataset", "webdataset"),
    LOCAL: Case("of_fastio", is_remote=False),
    "3 % late: fastio": Case("of_fastio", faults=SLOW_TAILS),
    "3 % late: LitData": Case("of_litdata", "litdata", faults=SLOW_TAILS),
    "3 % late: WebDataset": Case("of_webdataset", "webdataset", faults=SLOW_TAILS),
    "half kept: fastio": Case("of_fastio", cache=0.5),
    "far, HDF5: fastio": Case("of_fastio", container="h5"),
    "far, LMDB: fastio": Case("of_fastio", container="lmdb"),
    "far, TLS: fastio": Case("of_fastio", tls=True),
    "far, TLS: WebDataset": Case("of_webdataset", "webdataset", tls=True),
}
DISTANCES = {
    f"{latency} ms, {rate} MB/s: fastio": Case(
        "of_fastio", faults=(Fault(kind="delay", seconds=latency / 1000), Fault(kind="pace", rate=rate * 1_000_000))
    )
    for latency in (5, 30, 100)
    for rate in (20, 60, 200)
} | {LOCAL: CASES[LOCAL]}


@click.command()
@click.option("--photos", type=click.Path(exists=True, file_okay=False, path_type=Path), help="JPEGs to repeat.")
@click.option("--gigabytes", default=2.0, show_default=True, help="Of photos.")
@click.option("--rounds", default=3, show_default=True, help="Interleaved rounds.")
@click.option("--threads", default=2, show_default=True, help="Native threads or worker processes.")
@click.option("--only", multiple=True, help="Only the cases whose name contains this text; several add up.")
@click.option("--distances", is_flag=True, help="fastio alone, over nine distances: latency and rate of a connection.")
@click.option("--write/--no-write", default=True, show_default=True, help="Keep the result in benchmarks/results.")
def main(
    photos: Path | None,
    gigabytes: float,
    rounds: int,
    threads: int,
    only: tuple[str, ...],
    distances: bool,
    write: bool,
) -> None:
    """Pack for every peer, then read with each ROUNDS times, in turn, and print medians."""
    cases = {
        name: case
        for name, case in (DISTANCES if distances else CASES).items()
        if not only or any(text.lower() in name.lower() for text in only)
    }
    if reason := why_no_nginx():
        raise click.ClickException(reason)
    source = photo_set(DATA, photos=photos, gigabytes=gigabytes)
    packed = {case.folder: packed_set(case, source, threads) for case in cases.values()}
    with FaultServer(source.home, tls=any(case.tls for case in cases.values())) as server:
        results = interleaved(cases, lambda name: measured(cases[name], source, packed, server, threads), rounds=rounds)
    settings = {
        "photos": "given" if photos else "made", "distinct": source.distinct, "samples": source.samples,
        "photo_bytes": source.size_bytes, "batch_size": BATCH_SIZE, "rounds": rounds, "threads": threads,
        "faults": {name: [fault.line() for fault in case.faults] for name, case in cases.items() if case.is_remote},
    }  # fmt: skip
    environments = {case.module: versions(case.environment) for case in cases.values()}
    report = {"settings": settings, "packed": packed, "versions": environments}
    report |= {"runs": results.runs, "failed": results.failed}
    Console(width=200).print(table(report))
    if write:
        path = result_path("remote", *(["distances"] if distances else []), *only)
        write_result(path, report)
        click.echo(f"written: {path.relative_to(DATA.parent.parent)}")


def packed_set(case: Case, source: SampleSet, threads: int) -> dict[str, Any]:
    """What packing took, now or when it was done; ``{"failed": why}`` where it cannot be done."""
    folder = source.home / case.folder
    done = folder.with_suffix(".json")
    try:
        interpreter(case.environment)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            done.write_text(json.dumps(_run(case, "pack", case.work(source, threads), timeout_s=PACK_TIMEOUT_S)))
    except CaseError as exc:
        return {"failed": str(exc)}
    return dict(json.loads(done.read_text()))


def measured(
    case: Case, source: SampleSet, packed: dict[str, dict[str, Any]], server: FaultServer, threads: int
) -> dict[str, Any]:
    """A run in a fresh process, and what the server saw of it."""
    if "failed" in packed[case.folder]:
        raise CaseError(packed[case.folder]["failed"])
    server.clear()
    server.set_faults(*case.faults)
    with tempfile.TemporaryDirectory(dir=source.home) as scratch:
        work = case.work(source, threads).reading(
            f"{server.secure_url if case.tls else server.url}/{case.folder}" if case.is_remote else "",
            Path(scratch),
            cache_bytes=int(case.cache * packed[case.folder]["size_bytes"]),
            epochs=2 if case.cache else 1,
        )
        trusted = {"SSL_CERT_FILE": str(server.authority)} if case.tls else {}
        result = _run(case, "load", work, timeout_s=RUN_TIMEOUT_S, more=trusted)
    return {**result, "requests": counted(server.requests())}


def counted(requests: list[Request]) -> dict[str, int]:
    """
    What the server saw.

    A block is a range that was asked for: ``gets`` more than ``blocks`` were asked for again, by retries or hedges.
    """
    gets = [request for request in requests if request.method == "GET"]
    statuses = Counter(request.status for request in requests)
    return {
        "gets": len(gets),
        "blocks": len({(request.path, request.range) for request in gets}),
        "sent_bytes": sum(request.sent for request in requests),
        "others": len(requests) - len(gets),
        "unfinished": statuses[499],
    }


def _run(
    case: Case, action: str, work: RemoteWork, *, timeout_s: float, more: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    command = [interpreter(case.environment), "-m", "benchmarks.remote.measure", action, case.module]
    return run_process(
        [*command, json.dumps(work.to_json())],
        environment={**process_environment(case.environment), **more},
        timeout_s=timeout_s,
    )


if __name__ == "__main__":
    main()
