"""How long commands take to start: ``python -m benchmarks.import_time [--python VENV/bin/python ...] [--out FILE]``.

Every case is a fresh process, on a store or folder so small that nearly all of its time is starting. Rounds are
interleaved, also of several environments, and bytecode is kept in a folder of the benchmark's own, whatever
PYTHONDONTWRITEBYTECODE says. The time of ``python -c pass`` of the same environment is what Python takes alone. CPU
time is user and system time of the process, as the kernel counts it. An editable install looks for each module a second
time: measure installed wheels with ``--python``.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

from fastio.converters import open_source, pack

__all__ = ["main"]

_PICTURES = 8


@click.command()
@click.option("--python", "pythons", multiple=True, default=[sys.executable], help="An environment that has fastio.")
@click.option("--rounds", type=click.IntRange(min=1), default=21, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write all rounds as JSON.")
def main(pythons: tuple[str, ...], rounds: int, out: Path | None) -> None:
    """Start each case once a round, and print medians with their ranges."""
    with tempfile.TemporaryDirectory() as folder:
        _make_data(Path(folder))
        cases = {(python, name): command for python in pythons for name, command in _cases(python).items()}
        runs: dict[tuple[str, str], list[dict[str, float]]] = {case: [] for case in cases}
        for round_number in range(rounds + 1):
            for case, command in cases.items():
                figures = _run(command, folder)
                if round_number:  # the first one writes bytecode and fills the page cache
                    runs[case].append(figures)
    named = {python: {name: runs[python, name] for name in _cases(python)} for python in pythons}
    _print(named)
    if out is not None:
        report = {"machine": platform.platform(), "unit": "milliseconds", "runs": named}
        out.write_text(json.dumps(report, indent=2) + "\n")


def _cases(python: str) -> dict[str, list[str]]:
    """Return the commands by name; they run in the folder of ``_make_data``."""
    fastio = str(Path(python).with_name("fastio"))
    return {
        "python -c pass": [python, "-c", "pass"],
        "import numpy": [python, "-c", "import numpy"],
        "import fastio": [python, "-c", "import fastio"],
        "fastio.open_store(STORE)": [python, "-c", "import fastio; fastio.open_store('s.lmdb')"],
        "fastio --help": [fastio, "--help"],
        "fastio info STORE": [fastio, "info", "s.lmdb"],
        "fastio ls STORE": [fastio, "ls", "s.lmdb"],
        "fastio verify STORE": [fastio, "verify", "s.lmdb"],
        "fastio pack FOLDER": [fastio, "pack", "pngs", "new.lmdb", "--overwrite"],
    }


def _make_data(folder: Path) -> None:
    """Write a few PNGs, and pack them."""
    pngs = folder / "pngs"
    pngs.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (_PICTURES, 32, 32, 3), np.uint8)
    for number in range(_PICTURES):
        Image.fromarray(pixels[number]).save(pngs / f"{number}.png")
    pack(open_source(pngs), folder / "s.lmdb")


def _run(command: list[str], folder: str) -> dict[str, float]:
    """Return CPU and wall time of a process in milliseconds; it runs in a folder that holds no fastio."""
    begun = time.perf_counter()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, env=environment
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise click.ClickException(f"{' '.join(command)}: ended with status {process.returncode}")
    return {"cpu": round(1000 * (usage.ru_utime + usage.ru_stime), 1), "wall": round(1000 * wall, 1)}


def _print(named: dict[str, dict[str, list[dict[str, float]]]]) -> None:
    console = Console(width=120)
    for python, runs in named.items():
        table = Table("", "CPU", "wall", title=f"milliseconds: {python}")
        for name, rounds in runs.items():
            table.add_row(name, *(_spread([figures[which] for figures in rounds]) for which in ("cpu", "wall")))
        console.print(table)


def _spread(values: list[float]) -> str:
    """Return the median with the range."""
    return f"{statistics.median(values):.0f} ({min(values):.0f}-{max(values):.0f})"


if __name__ == "__main__":
    main()
