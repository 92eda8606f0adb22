"""Measure fastio and its peers at the same work, every peer in an environment of its own; keep JSON and charts.

python -m benchmarks.run_peers [--task random_224 ...] [--photos DIR] [--rounds 3] [--seconds 2] [--only TEXT]
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
from benchmarks.peers.catalogue import TASKS, Entry, Task
from benchmarks.peers.environments import interpreter, process_environment, versions
from benchmarks.peers.photo_set import photo_suite
from benchmarks.peers.suite import Suite
from benchmarks.peers.work import Work, to_json
from benchmarks.report import result_path, write_result
from benchmarks.rounds import CaseError, interleaved, run_process
from benchmarks.standings import peer_standings, standings_table

HERE = Path(__file__).parent
DATA = HERE / ".data"
RUN_TIMEOUT_S = 180.0
PACK_TIMEOUT_S = 600.0
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.option("--task", "names", type=click.Choice([*TASKS]), multiple=True, help="Which work; several add up.")
@click.option("--photos", type=_FOLDER, help="A folder of JPEGs instead of made ones; classes do not matter.")
@click.option("--rounds", default=3, show_default=True, help="Interleaved rounds.")
@click.option("--seconds", default=2.0, show_default=True, help="Seconds per case and round, at least one epoch.")
@click.option("--threads", default=2, show_default=True, help="Native threads or worker processes.")
@click.option("--only", default="", help="Only the peers whose name contains this text.")
@click.option("--write/--no-write", default=True, show_default=True, help="Keep the result in benchmarks/results.")
def main(
    names: tuple[str, ...], photos: Path | None, rounds: int, seconds: float, threads: int, only: str, write: bool
) -> None:
    """Set up, pack, then run every peer ROUNDS times, in turn; print medians and where fastio is not first."""
    tasks = {name: task for name, task in TASKS.items() if not names or name in names}
    cases = {
        case_name(name, entry.name): (task, entry)
        for name, task in tasks.items()
        for entry in task.peers
        if only.lower() in entry.name.lower()
    }
    if not cases:
        raise click.UsageError(f"--only {only!r}: in the name of no peer; benchmarks/peers/catalogue.py has them all")
    kinds = {task.pictures for task, _ in cases.values()}
    suites = {kind: photo_suite(DATA, photos=photos, pictures=kind) for kind in kinds}
    packed: dict[Path, dict[str, Any]] = {}
    for task, entry in cases.values():
        work = suites[task.pictures].work(entry, task, workers=threads)
        if work.packed not in packed:
            packed[work.packed] = _packed(entry, work)

    def measure(name: str) -> dict[str, Any]:
        task, entry = cases[name]
        suite = suites[task.pictures]
        work = suite.work(entry, task, workers=threads)
        if "failed" in packed[work.packed]:
            raise CaseError(packed[work.packed]["failed"])
        return _run(entry, "load", work, seconds, suite.expected, timeout_s=RUN_TIMEOUT_S + seconds)

    results = interleaved(cases, measure, rounds=rounds)
    report = {
        "settings": {"rounds": rounds, "seconds": seconds, "threads": threads},
        "sets": {kind: suite.settings for kind, suite in suites.items()},
        "tasks": {
            name: _task(task, [peer for other, peer in cases.values() if other is task], suites[task.pictures], packed)
            for name, task in tasks.items()
        },
        "runs": results.runs,
        "failed": results.failed,
    }
    console = Console(width=170)
    for table in tables(report):
        console.print(table)
    console.print(standings_table(peer_standings(report)))
    if write:
        path = result_path("peers", only, *names)
        report = write_result(path, report)
        # The README shows the charts of a run of all peers at all tasks.
        charts = [] if only or names else draw_charts(report, path.parent)
        for written in (path, *charts):
            click.echo(f"written: {written.relative_to(HERE.parent)}")


def _task(task: Task, entries: list[Entry], suite: Suite, packed: dict[Path, dict[str, Any]]) -> dict[str, Any]:
    """What the result says of a task besides its runs."""
    peers = {}
    for entry in entries:
        packing = packed[suite.packed / entry.packed_name]
        peers[entry.name] = {**asdict(entry), "packing": packing, "versions": versions(entry.environment)}
    return {"title": task.title, "batch_size": task.batch_size, "pictures": task.pictures, "peers": peers}


def _packed(entry: Entry, work: Work) -> dict[str, Any]:
    """What packing took, now or when it was done; ``{"failed": why}`` where environment or packing fail."""
    done = work.packed.with_name(f"{work.packed.name}.json")
    try:
        interpreter(entry.environment)
        if not done.exists():
            shutil.rmtree(work.packed, ignore_errors=True)
            done.write_text(json.dumps(_run(entry, "pack", work, timeout_s=PACK_TIMEOUT_S)))
    except CaseError as exc:
        return {"failed": str(exc)}
    return dict(json.loads(done.read_text()))


def _run(entry: Entry, action: str, work: Work, *arguments: object, timeout_s: float) -> dict[str, Any]:
    command = [interpreter(entry.environment), "-m", "benchmarks.peers.measure", action, entry.module]
    return run_process(
        [*command, json.dumps(to_json(work)), *map(str, arguments)],
        environment=process_environment(entry.environment),
        timeout_s=timeout_s,
    )


if __name__ == "__main__":
    main()
