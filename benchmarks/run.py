"""Measure all cases side by side: fresh processes, interleaved rounds, medians and spread; keep the result as JSON.

python -m benchmarks.run [--rounds 5] [--seconds 2] [--threads 2] [--only TEXT] [--pngs DIR --labels FILE]
"""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.cases import LOADING, OPENING, PACKING, Data, prepare
from benchmarks.report import result_path, summary, write_result
from benchmarks.rounds import interleaved, run_process

HERE = Path(__file__).parent
PACKAGES = ("torch", "numpy", "pillow", "lmdb", "h5py", "webdataset")
BARE_JPEG = "jpeg bare libjpeg-turbo loop"
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Interleaved rounds.")
@click.option("--seconds", default=2.0, show_default=True, help="Seconds per case and round.")
@click.option("--threads", default=2, show_default=True, help="Native threads of fastio.")
@click.option("--only", default="", help="Only the cases whose name contains this text.")
@click.option("--pngs", type=_FOLDER, help="A flat folder of equal-sized PNGs instead of made ones.")
@click.option("--labels", type=_FILE, help="The pickle of labels that belongs to --pngs.")
@click.option("--write/--no-write", default=True, show_default=True, help="Keep the result in benchmarks/results.")
def main(
    rounds: int, seconds: float, threads: int, only: str, pngs: Path | None, labels: Path | None, write: bool
) -> None:
    """Run every case ROUNDS times, in turn, and print medians."""
    names = [name for name in (*LOADING, BARE_JPEG, *PACKING, *OPENING) if only in name]
    if not names:
        raise click.UsageError(f"--only {only!r}: in the name of no case; benchmarks/cases.py has them all")
    if (pngs is None) != (labels is None):
        raise click.UsageError("--pngs and --labels belong together")
    # Folders apart: stores packed from other pictures must not be mistaken for these.
    data = prepare(HERE / ".data" / ("given" if pngs else "made"), pngs=pngs, labels=labels)
    results = interleaved(names, lambda name: _measure(name, data, threads=threads, seconds=seconds), rounds=rounds)
    console = Console()
    console.width = max(console.width, 120)
    console.print(table(results.runs))
    if results.failed:
        raise click.ClickException("\n".join(f"case {name!r}: {why}" for name, why in results.failed.items()))
    if write:
        settings = {"rounds": rounds, "seconds": seconds, "threads": threads, "data": "given" if pngs else "made"}
        versions = {name: importlib.metadata.version(name) for name in (*PACKAGES, "fastio")}
        path = result_path(only)
        write_result(path, {"versions": versions, "settings": settings, "runs": results.runs})
        click.echo(f"written: {path.relative_to(HERE.parent)}")


def _measure(name: str, data: Data, *, threads: int, seconds: float) -> dict[str, Any]:
    if name == BARE_JPEG:
        return _bare_jpeg(data, seconds=seconds)
    places = [str(p) for p in (data.pngs, data.labels, data.photos, data.packed)]
    return run_process([sys.executable, "-m", "benchmarks.measure_case", name, *places, str(threads), str(seconds)])


def _bare_jpeg(data: Data, *, seconds: float) -> dict[str, Any]:
    """libjpeg-turbo alone on the same photos: the rate that a JPEG path can at most have without tricks."""
    program = data.packed / "bare_jpeg"
    if not program.exists():
        source = HERE.parent / "native" / "bench" / "bare_jpeg.cpp"
        archive = next(Path("/usr/lib").rglob("libjpeg.a"))
        subprocess.run(["c++", "-O3", "-std=c++20", source, archive, "-o", program], check=True)
    files = "\n".join(str(p) for p in sorted(data.photos.rglob("*.jpg")))
    done = subprocess.run([program, str(seconds)], input=files, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    return {**result, "wall_s": result["cpu_s"]}  # one busy thread


def table(results: dict[str, list[dict[str, Any]]]) -> Table:
    """Medians per case, with the spread of the rate per CPU-second."""
    out = Table(title="samples per second (median of rounds)")
    for heading in ("case", "per CPU-second", "min - max", "wall", "us CPU / sample", "first batch ms"):
        out.add_column(heading, justify="left" if heading == "case" else "right", no_wrap=heading == "case")
    for name, runs in results.items():
        case = summary(runs)
        out.add_row(
            name,
            f"{case.per_cpu_second:,.0f}",
            f"{case.slowest:,.0f} - {case.fastest:,.0f}",
            f"{case.per_second:,.0f}",
            f"{case.cpu_us:,.2f}",
            "" if case.first_batch_s is None else f"{case.first_batch_s * 1e3:.1f}",
        )
    return out


if __name__ == "__main__":
    if shutil.which("c++") is None:
        raise SystemExit("the benchmark of the bare libjpeg-turbo loop needs a C++ compiler")
    main()
