"""Lists of pictures: what they cost beside samples of one picture, and beside Energon with an encoder of its own.

python -m benchmarks.picture_lists PHOTOS [--energon PYTHON] [--folder DIR] [--rows 300] [--rounds 5]

Rows are those of a vision-language set: a conversation and none to four photos of the folder PHOTOS, drawn from a seed.
They are packed as an LMDB store with a field of lists, the same photos as one of one picture each, and as tar shards
for Energon, which runs in an environment of its own (``pip install megatron-energon``). All give RandomResizedCrop(224)
and a flip, uint8, in batches of 32 rows, flat with counts; one thread, no workers, by turns: photos a second of CPU
time, median and range of the rounds.
"""

from __future__ import annotations

import io
import json
import platform
import statistics
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from fastio import FastLoader, Writer
from fastio.transforms import RandomHorizontalFlip, RandomResizedCrop

__all__ = ["main"]

_MOST = 4  # photos a row
_BATCH = 32
_MEAN = _MOST / 2  # photos a row, in the mean
_SECONDS = 4.0  # of CPU time a turn, at least
_ENERGON = Path(__file__).with_name("energon_lists.py")


@click.command()
@click.argument("photos", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--energon", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Its Python.")
@click.option("--folder", type=click.Path(path_type=Path), help="For the stores.  [default: a temporary one]")
@click.option("--rows", default=300, show_default=True)
@click.option("--rounds", default=5, show_default=True)
def main(*, photos: Path, energon: Path | None, folder: Path | None, rows: int, rounds: int) -> None:
    """Print photos a second of CPU time, and the ratios by rounds."""
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        lists, single, shards = _packed(photos, Path(inside), rows)
        rates: dict[str, list[float]] = {"lists": [], "one picture a sample": [], "Energon": []}
        for _ in range(rounds):
            rates["lists"].append(_rate(lists, _BATCH))
            rates["one picture a sample"].append(_rate(single, int(_BATCH * _MEAN)))
            if energon is not None:
                rates["Energon"].append(_energon_rate(energon, shards))
    click.echo(f"{platform.processor() or platform.machine()}, {rows} rows, {rounds} rounds\n")
    for name, found in rates.items():
        if found:
            click.echo(f"{name}: {_spread(found, '{:,.0f}')} photos a second of CPU time")
    for name in ("one picture a sample", "Energon"):
        if rates[name]:
            ratios = [ours / other for ours, other in zip(rates["lists"], rates[name], strict=True)]
            click.echo(f"lists / {name}: {_spread(ratios, '{:.3f}')}")


def _packed(photos: Path, folder: Path, rows: int) -> tuple[Path, Path, Path]:
    """Write the rows as a store of lists, the photos as one of one picture a sample, and both as tar shards."""
    files = sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    rng = np.random.default_rng(0)
    chosen = [[files[i] for i in rng.integers(len(files), size=rng.integers(_MOST + 1))] for _ in range(rows)]
    talks = [[{"from": "human", "value": f"<image> {len(each)}?"}, {"from": "gpt", "value": "."}] for each in chosen]
    lists, single, shards = folder / "lists.lmdb", folder / "single.lmdb", folder / "shards"
    with Writer(lists, {"images": "image[*]", "talk": "json"}) as out:
        for i, (paths, talk) in enumerate(zip(chosen, talks, strict=True)):
            out.write({"images": paths, "talk": talk}, key=f"{i:06d}")
    with Writer(single, {"image": "image", "talk": "json"}) as out:
        for i, (paths, talk) in enumerate(zip(chosen, talks, strict=True)):
            for j, path in enumerate(paths):
                out.write({"image": path, "talk": talk}, key=f"{i:06d}.{j}")
    shards.mkdir()
    with tarfile.open(shards / "rows-000000.tar", "w") as tar:
        for i, (paths, talk) in enumerate(zip(chosen, talks, strict=True)):
            members = {f"{i:06d}.{j}.jpg": path.read_bytes() for j, path in enumerate(paths)}
            members[f"{i:06d}.json"] = json.dumps(talk).encode()
            for name, data in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return lists, single, shards


def _rate(store: Path, batch_size: int) -> float:
    """Return the photos a second of CPU time of whole epochs, after one that is not counted."""
    steps = [RandomResizedCrop(224), RandomHorizontalFlip()]
    with FastLoader(store, batch_size, shuffle=True, transforms=steps, threads=1) as loader:
        photos, start = 0, 0.0
        for epoch in range(1 << 30):
            if epoch == 1:
                start = time.process_time()
            elif epoch > 1 and time.process_time() - start > _SECONDS:
                break
            for batch in loader:
                photos += len(batch["images" if "images" in batch else "image"]) if epoch else 0
        return photos / (time.process_time() - start)


def _energon_rate(python: Path, shards: Path) -> float:
    """Return the same of Energon, in a process of its own."""
    words = [str(python), str(_ENERGON), str(shards), str(_BATCH), str(_SECONDS)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def _spread(values: Sequence[float], form: str) -> str:
    low, median, high = min(values), statistics.median(values), max(values)
    return f"{form.format(median)} ({form.format(low)}-{form.format(high)})"


if __name__ == "__main__":
    main()
