"""How long fastio takes to start, beside Python alone: ``python -m benchmarks.import_time [--python VENV/bin/python]``.

Every case is a fresh process, rounds are interleaved, and bytecode is kept in a folder of the benchmark's own, whatever
PYTHONDONTWRITEBYTECODE says. A case's time less that of ``python -c
pass`` of the same round is what fastio adds. CPU time is user and system time of the process, as the kernel counts it.
An editable install looks for each module a second time: measure an installed wheel with ``--python``.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from fastio.store import SampleBatch, create_store
from fastio.types.schema import BYTES, Field, Schema
from fastio.types.spans import Spans

__all__ = ["main"]

ALONE = "python -c pass"
Seconds = tuple[float, float]  # of CPU, of wall


@click.command()
@click.option("--python", default=sys.executable, help="The interpreter of an environment that has fastio.")
@click.option("--rounds", type=click.IntRange(min=1), default=21, show_default=True)
def main(python: str, rounds: int) -> None:
    """Start each case once a round, and print medians with their ranges."""
    with tempfile.TemporaryDirectory() as folder:
        store = _store(Path(folder))
        runs: dict[str, list[Seconds]] = {name: [] for name in _cases(python, store)}
        for round_number in range(rounds + 1):
            for name, command in _cases(python, store).items():
                seconds = _run(command, folder)
                if round_number:  # the first one writes bytecode and fills the page cache
                    runs[name].append(seconds)
    _print(runs)


def _cases(python: str, store: Path) -> dict[str, list[str]]:
    fastio = str(Path(python).with_name("fastio"))
    return {
        ALONE: [python, "-c", "pass"],
        "import fastio": [python, "-c", "import fastio"],
        "fastio --help": [fastio, "--help"],
        "fastio info STORE": [fastio, "info", str(store)],
        "fastio ls STORE": [fastio, "ls", str(store)],
        "import numpy": [python, "-c", "import numpy"],
    }


def _store(folder: Path) -> Path:
    """A store of a thousand values."""
    count = 1000
    values = Spans.joined(np.zeros(8 * count, np.uint8), np.full(count, 8, np.int64))
    with create_store(folder / "values.lmdb", Schema((Field("value", BYTES, "|u1", (None,)),))) as writer:
        writer.append(SampleBatch([f"{number:04d}" for number in range(count)], {"value": values}))
    return folder / "values.lmdb"


def _run(command: list[str], folder: str) -> Seconds:
    """CPU and wall time of a process; it runs in a folder that holds no fastio."""
    begun = time.perf_counter()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=folder, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise click.ClickException(f"{' '.join(command)}: ended with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime, seconds


def _print(runs: dict[str, list[Seconds]]) -> None:
    table = Table("", "CPU", "more than Python alone", "wall", "more than Python alone", title="milliseconds")
    for name, rounds in runs.items():
        cells = []
        for which in (0, 1):
            own = [seconds[which] for seconds in rounds]
            more = [seconds[which] - alone[which] for seconds, alone in zip(rounds, runs[ALONE], strict=True)]
            cells += [_spread(own), _spread(more)]
        table.add_row(name, *cells)
    Console().print(table)


def _spread(seconds: list[float]) -> str:
    """The median with the range, in milliseconds."""
    low, middle, high = (1000 * value for value in (min(seconds), statistics.median(seconds), max(seconds)))
    return f"{middle:.0f} ({low:.0f}-{high:.0f})"


if __name__ == "__main__":
    main()
