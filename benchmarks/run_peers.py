"""Measure fastio and its peers at the same work, every peer in an environment of its own; keep JSON and a chart.

python -m benchmarks.run_peers [--task random_224] [--photos DIR] [--rounds 3] [--seconds 2] [--threads 2] [--only TEXT]
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks.chart import draw_charts
from benchmarks.peer_report import case_name, tables
from benchmarks.peers.catalogue import TASKS, Entry
from benchmarks.peers.environments import interpreter, process_environment, versions
from benchmarks.peers.photo_set import photo_suite
from benchmarks.peers.suite import Suite
from benchmarks.peers.text_set import text_suite
from benchmarks.peers.work import Work, to_json
from benchmarks.report import result_path, write_result
from benchmarks.rounds import CaseError, interleaved, run_process

HERE = Path(__file__).parent
DATA = HERE / ".data"
RUN_TIMEOUT_S = 180.0
PACK_TIMEOUT_S = 600.0
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.option("--task", type=click.Choice([*TASKS, "all"]), default="all", show_default=True, help="Which work.")
@click.option("--photos", type=_FOLDER, help="A folder of JPEGs instead of made ones; classes do not matter.")
@click.option("--rounds", default=3, show_default=True, help="Interleaved rounds.")
@click.option("--seconds", default=2.0, show_default=True, help="Seconds per case and round, at least one epoch.")
@click.option("--threads", default=2, show_default=True, help="Native threads or worker processes.")
@click.option("--only", default="", help="Only the peers whose name contains this text.")
@click.option("--write/--no-write", default=True, show_default=True, help="Keep the result in benchmarks/results.")
def main(task: str, photos: Path | None, rounds: int, seconds: float, threads: int, only: str, write: bool) -> None:
    """Set up, pack, then run every peer ROUNDS times, in turn, and print medians."""
    suites = [photo_suite(DATA, photos=photos).part(task, only), text_suite(DATA).part(task, only)]
    suites = [suite for suite in suites if suite.tasks and suite.entries]
    if not suites:
        raise click.UsageError(f"--only {only!r}: in the name of no peer; benchmarks/peers/catalogue.py has them all")
    cases = {
        case_name(name, entry.name): (suite, name, entry)
        for suite in suites
        for name in suite.tasks
        for entry in suite.entries
    }
    packed = {suite.packed / entry.packed_name: _packed(suite, entry, threads) for suite, _, entry in cases.values()}

    def measure(name: str) -> dict[str, Any]:
        suite, task, entry = cases[name]
        work = suite.work(entry, task, workers=threads)
        if "failed" in packed[work.packed]:
            raise CaseError(packed[work.packed]["failed"])
        return _run(entry, "load", work, seconds, suite.expected, timeout_s=RUN_TIMEOUT_S + seconds)

    results = interleaved(cases, measure, rounds=rounds)
    settings = {"rounds": rounds, "seconds": seconds, "threads": threads}
    report = {
        "settings": settings | {name: value for suite in suites for name, value in suite.settings.items()},
        "tasks": {name: _task(suite, name, packed) for suite in suites for name in suite.tasks},
        "runs": results.runs,
        "failed": results.failed,
    }
    for table in tables(report):
        Console(width=170).print(table)
    if write:
        path = result_path("peers", only, "" if task == "all" else task)
        report = write_result(path, report)
        # The README shows the charts of a run of all peers at all tasks.
        charts = [] if only or task != "all" else draw_charts(report, path.parent)
        for written in (path, *charts):
            click.echo(f"written: {written.relative_to(HERE.parent)}")


def _task(suite: Suite, task: str, packed: dict[Path, dict[str, Any]]) -> dict[str, Any]:
    """What the result says of a task beside its runs."""
    peers = {}
    for entry in suite.entries:
        packing = packed[suite.packed / entry.packed_name]
        peers[entry.name] = {**asdict(entry), "packing": packing, "versions": versions(entry.environment)}
    return {"title": TASKS[task], "batch_size": suite.batch_size, "peers": peers}


def _packed(suite: Suite, entry: Entry, threads: int) -> dict[str, Any]:
    """What packing took, or ``{"failed": why}`` where environment or packing fail."""
    try:
        return _pack(suite, entry, threads=threads)
    except CaseError as exc:
        return {"failed": str(exc)}


def _pack(suite: Suite, entry: Entry, *, threads: int) -> dict[str, Any]:
    """What packing took, now or when it was done."""
    interpreter(entry.environment)
    done = suite.packed / f"{entry.packed_name}.json"
    if not done.exists():
        work = suite.work(entry, suite.tasks[0], workers=threads)
        shutil.rmtree(work.packed, ignore_errors=True)
        done.write_text(json.dumps(_run(entry, "pack", work, timeout_s=PACK_TIMEOUT_S)))
    return json.loads(done.read_text())


def _run(entry: Entry, action: str, work: Work, *arguments: object, timeout_s: float) -> dict[str, Any]:
    command = [interpreter(entry.environment), "-m", "benchmarks.peers.measure", action, entry.module]
    return run_process(
        [*command, json.dumps(to_json(work)), *map(str, arguments)],
        environment=process_environment(entry.environment),
        timeout_s=timeout_s,
    )


if __name__ == "__main__":
    main()
