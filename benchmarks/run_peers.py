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

from benchmarks.peer_report import tables
from benchmarks.peers.catalogue import TASKS, Entry
from benchmarks.peers.environments import interpreter, process_environment, versions
from benchmarks.peers.photo_set import photo_suite
from benchmarks.peers.suite import Suite
from benchmarks.peers.work import Work, to_json
from benchmarks.report import result_path, write_result
from benchmarks.rounds import CaseError, Results, interleaved, run_process

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
    suite = photo_suite(DATA, photos=photos).part(task, only)
    if not suite.entries:
        raise click.UsageError(f"--only {only!r}: in the name of no peer; benchmarks/peers/catalogue.py has them all")
    packed, failed = _pack_all(suite, threads=threads)
    cases = {f"{task}: {entry.name}": (task, entry) for task in suite.tasks for entry in suite.entries}

    def measure(name: str) -> dict[str, Any]:
        task, entry = cases[name]
        if entry.name in failed:
            raise CaseError(failed[entry.name])
        work = suite.work(entry, task, workers=threads)
        return _run(entry, "load", work, seconds, suite.expected, timeout_s=RUN_TIMEOUT_S + seconds)

    results = interleaved(cases, measure, rounds=rounds)
    settings = {"rounds": rounds, "seconds": seconds, "threads": threads, **suite.settings}
    report = _report(suite, packed, results, settings)
    for table in tables(report):
        Console(width=170).print(table)
    if write:
        path = result_path("peers", only, "" if task == "all" else task)
        write_result(path, report)
        click.echo(f"written: {path.relative_to(HERE.parent)}")


def _pack_all(suite: Suite, *, threads: int) -> tuple[dict[str, Any], dict[str, str]]:
    """Environments and packed forms of all peers: what packing took by name, and why a peer cannot take part."""
    packed, failed = {}, {}
    for entry in suite.entries:
        try:
            packed[entry.name] = _pack(suite, entry, threads=threads)
        except CaseError as exc:
            failed[entry.name] = str(exc)
    return packed, failed


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


def _report(suite: Suite, packed: dict[str, Any], results: Results, settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "settings": settings,
        "tasks": {task: TASKS[task] for task in suite.tasks},
        "peers": {
            entry.name: {**asdict(entry), "packing": packed.get(entry.name), "versions": versions(entry.environment)}
            for entry in suite.entries
        },
        "runs": results.runs,
        "failed": results.failed,
    }


if __name__ == "__main__":
    main()
