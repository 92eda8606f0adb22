"""
Rows of 64 token ids, or PNGs of 32x32, from a server 30 ms away, 60 MB/s a connection: ``python -m
benchmarks.remote.small [--pictures]``.

Each library reads its own format, with two threads or workers, in batches of 256, shuffled as it shuffles; an epoch is
checked for giving each sample once. Then ``--readers`` ranks, one after the other in one process, open the set, take a
batch of 32 and leave; each has an empty folder to keep things in, but those "with one cache".
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
from PIL import Image
from rich.console import Console

from benchmarks.peers.environments import versions
from benchmarks.remote.photo_set import SampleSet
from benchmarks.remote.run import DATA, Case, measured, packed_set
from benchmarks.remote.tables import row_table
from benchmarks.remote.work import ROW_IDS, SIDE
from benchmarks.report import result_path, write_result
from benchmarks.rounds import interleaved
from tests.servers.fault_server import FaultServer, why_no_nginx

__all__ = ["cases", "main"]

_SHARDS = 16  # of an epoch; readers get one each

_PEERS = {
    "Streaming": Case("of_streaming", "streaming", shards=_SHARDS),
    "LitData": Case("of_litdata", "litdata", shards=_SHARDS),
    "WebDataset": Case("of_webdataset", "webdataset", shards=_SHARDS),
    "HF datasets": Case("of_hf_datasets", "hf_datasets", shards=_SHARDS),
}
_FASTIO = Case("of_fastio", shards=1)


def cases(readers: int, *, pictures: bool = False) -> dict[str, Case]:
    """All cases."""
    each = {"epoch: fastio": _FASTIO, "epoch: fastio, full": replace(_FASTIO, full=True)}
    each |= {f"epoch: {name}": case for name, case in _PEERS.items()}
    each["readers: fastio"] = replace(_FASTIO, readers=readers)
    each["readers: fastio, with one cache"] = replace(_FASTIO, readers=readers, cache=1.0)
    each |= {f"readers: {name}": replace(case, readers=readers, shards=readers) for name, case in _PEERS.items()}
    return {name: replace(case, pictures=pictures) for name, case in each.items()}


@click.command(help=__doc__)
@click.option("--pictures", is_flag=True, help="PNGs instead of rows.")
@click.option("--samples", default=1_000_000, show_default=True, help="Rows or PNGs.")
@click.option("--readers", default=256, show_default=True, help="Ranks that take a batch each.")
@click.option("--rounds", default=1, show_default=True, help="Interleaved rounds.")
@click.option("--only", multiple=True, help="Only the cases whose name contains this text; several add up.")
@click.option("--write/--no-write", default=True, show_default=True, help="Keep the result in benchmarks/results.")
def main(pictures: bool, samples: int, readers: int, rounds: int, only: tuple[str, ...], write: bool) -> None:
    """Pack, read, print."""
    if reason := why_no_nginx():
        raise click.ClickException(reason)
    chosen = {
        name: case
        for name, case in cases(readers, pictures=pictures).items()
        if not only or any(text.lower() in name.lower() for text in only)
    }
    source = _picture_set(DATA, samples) if pictures else _row_set(DATA, samples)
    packed = {case.folder: packed_set(case, source, 2) for case in chosen.values()}
    with FaultServer(source.home) as server:
        results = interleaved(chosen, lambda name: measured(chosen[name], source, packed, server, 2), rounds=rounds)
    settings = {"samples": samples, "pictures": pictures, "size_bytes": source.size_bytes, "readers": readers}
    settings |= {"rounds": rounds, "threads": 2}
    environments = {case.module: versions(case.environment) for case in chosen.values()}
    report = {"settings": settings, "packed": packed, "versions": environments}
    report |= {"runs": results.runs, "failed": results.failed}
    Console(width=160).print(row_table(report))
    if write:
        write_result(result_path("remote", "small", *(["pictures"] if pictures else []), *only), report)


def _row_set(root: Path, samples: int) -> SampleSet:
    """Random rows, made once."""
    home = root / f"rows-{samples}"
    path = home / "rows.npy"
    if not path.exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        rows = np.random.default_rng(0).integers(0, 1 << 16, (samples, ROW_IDS), dtype=np.uint16)
        rows[:, :2] = np.arange(samples, dtype=np.uint32).view(np.uint16).reshape(-1, 2)
        np.save(home / "new.npy", rows)
        (home / "new.npy").rename(path)
    return SampleSet(home, path, samples, samples * 2 * ROW_IDS, samples)


def _picture_set(root: Path, samples: int) -> SampleSet:
    """PNGs of 32x32, coarse colours and some noise, made once."""
    home = root / f"pictures-{samples}"
    path = home / "pictures.npy"
    if not path.exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        random, ends = np.random.default_rng(0), [0]
        with path.with_suffix(".bin").open("wb") as file:
            for number in range(samples):
                coarse = random.integers(0, 224, (8, 8, 3), dtype=np.uint8).repeat(4, axis=0).repeat(4, axis=1)
                pixels = coarse + random.integers(0, 32, (SIDE, SIDE, 3), dtype=np.uint8)
                pixels.reshape(-1)[:4] = np.array([number], np.uint32).view(np.uint8)
                Image.fromarray(pixels).save(file, "png")
                ends.append(file.tell())
        np.save(home / "new.npy", np.array(ends, np.int64))
        (home / "new.npy").rename(path)
    size = int(np.load(path)[-1])
    return SampleSet(home, path, samples, size, samples)


if __name__ == "__main__":
    main()
