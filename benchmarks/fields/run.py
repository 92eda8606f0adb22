"""Samples of many fields, compared with what people write for them: ``python -m benchmarks.fields.run``.

* picture and mask, RandomCrop(256) and flip of both alike: PNG files in a DataLoader against a store
* picture and caption, RandomResizedCrop(224) and flip of JPEGs: webdataset against a store

Every run is a fresh process, rounds are interleaved, rates are samples per CPU-second of the process and its workers.
Scenes and photos are made from a seed unless folders are given. OpenCV and webdataset run in an environment of their
own (see ``benchmarks/peers``); torchvision needs one that has it, named by ``--torchvision``.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.fields.scenes import make_scenes
from benchmarks.fields.work import CAPTIONS, SCENES, Work, captions_of
from benchmarks.peers.environments import interpreter, process_environment
from benchmarks.rounds import Results, interleaved, run_process
from benchmarks.synthetic import make_photos
from fastio import Writer
from fastio.converters import open_source, pack

__all__ = ["main"]

_DATA = Path(__file__).parent.parent / ".data"
_RESULTS = Path(__file__).parent.parent / "results"
_PEER = "webdataset"  # the environment with OpenCV, Pillow, torch and webdataset


def _pack_captions(photos: Path, store: Path) -> None:
    """Photos and captions into a store."""
    with Writer(store, fields={"image": "image", "caption": "text"}, overwrite=True) as out:
        for name, caption in captions_of(photos).items():
            out.write({"image": photos / name, "caption": caption}, key=name)


_SHARDS = """
import json, sys, webdataset
from pathlib import Path
captions, photos, folder = json.loads(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
folder.mkdir(parents=True, exist_ok=True)
with webdataset.ShardWriter(str(folder / "photos-%06d.tar"), maxcount=-(-len(captions) // 4), verbose=0) as sink:
    for number, (name, text) in enumerate(captions.items()):
        sink.write({"__key__": f"{number:08d}", "jpg": (photos / name).read_bytes(), "txt": text})
"""


def _python(name: str, torchvision: str | None) -> Path:
    """The Python that a case runs in."""
    if "torchvision" in name:
        return Path(torchvision or sys.executable)
    return interpreter("" if name == "fastio" or ("Pillow" in name and "files" in name) else _PEER)


def _measure(task: str, works: Mapping[str, Work], name: str, *, seconds: float, torchvision: str | None) -> Any:
    work = json.dumps(dataclasses.asdict(works[name]), default=str)
    command: Sequence[str | Path] = [
        _python(name, torchvision), "-m", "benchmarks.fields.measure", task, name, work, str(seconds)
    ]  # fmt: skip
    environment = {} if name == "fastio" else process_environment(_PEER)
    return run_process(command, environment=environment)


def _table(title: str, results: Results) -> Table:
    """Medians and spread, and fastio's rate over each other's by rounds."""
    table = Table("loader", "samples per CPU-second", "samples/s", "fastio is", title=title)
    rates = {name: [run["samples"] / run["cpu_s"] for run in runs] for name, runs in results.runs.items()}
    for name, runs in results.runs.items():
        cpu = rates[name]
        wall = statistics.median(run["samples"] / run["wall_s"] for run in runs)
        ratios = [ours / theirs for ours, theirs in zip(rates["fastio"], cpu, strict=True)]
        gain = "" if name == "fastio" else f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        table.add_row(name, f"{statistics.median(cpu):,.0f} ({min(cpu):,.0f}-{max(cpu):,.0f})", f"{wall:,.0f}", gain)
    for name, reason in results.failed.items():
        table.add_row(name, reason, "", "")
    return table


@click.command(help=__doc__)
@click.option("--scenes", type=click.Path(exists=True, path_type=Path), help="images/, masks/ and metadata.jsonl.")
@click.option("--photos", type=click.Path(exists=True, path_type=Path), help="JPEGs in class folders.")
@click.option("--torchvision", metavar="PYTHON", help="A Python that has torch and torchvision.")
@click.option("--rounds", default=5, show_default=True, help="Interleaved rounds.")
@click.option("--seconds", default=2.0, show_default=True, help="Seconds of each run after its first epoch.")
@click.option("--workers", default=2, show_default=True, help="Worker processes, or native threads.")
def main(
    scenes: Path | None, photos: Path | None, torchvision: str | None, rounds: int, seconds: float, workers: int
) -> None:
    """Pack, measure, print, and keep all runs."""
    scenes, photos = scenes or make_scenes(_DATA / "scenes"), photos or make_photos(_DATA / "photos")
    packed = _DATA / "fields"
    packed.mkdir(parents=True, exist_ok=True)
    pack(open_source(scenes), packed / "scenes.lmdb", overwrite=True)
    _pack_captions(photos, packed / "captions.lmdb")
    command = [interpreter(_PEER), "-c", _SHARDS, json.dumps(captions_of(photos)), photos, packed / "shards"]
    subprocess.run(command, check=True)
    of_scenes = Work(scenes, packed / "scenes.lmdb", passes=8, batch_size=16, workers=workers)
    of_captions = Work(photos, packed / "captions.lmdb", passes=4, batch_size=64, workers=workers)
    of_shards = dataclasses.replace(of_captions, packed=packed / "shards")
    tasks = {
        "scenes": {name: of_scenes for name in SCENES if torchvision or "torchvision" not in name},
        "captions": {name: of_captions if name == "fastio" else of_shards for name in CAPTIONS},
    }
    titles = {
        "scenes": "picture and mask, RandomCrop(256) and flip",
        "captions": "picture and caption, RandomResizedCrop(224) and flip",
    }
    kept: dict[str, Any] = {"machine": platform.processor() or platform.machine(), "python": platform.python_version()}
    for task, works in tasks.items():
        measure = partial(_measure, task, works, seconds=seconds, torchvision=torchvision)
        results = interleaved(works, measure, rounds=rounds)
        Console().print(_table(titles[task], results))
        kept[task] = {"runs": results.runs, "failed": results.failed}
    file = _RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{platform.node()}-fields.json"
    file.write_text(json.dumps(kept, indent=1) + "\n")
    Console().print(f"all runs: {file}")


if __name__ == "__main__":
    main()
