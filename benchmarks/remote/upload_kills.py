"""Kill ``fastio pack ... s3://`` at random moments of its uploads: what is there under a final name must be whole.

python -m benchmarks.remote.upload_kills [--kills 20] [--seed 0]

After each kill, every object under a final name must be one of a whole pack, to the byte, and a set object may be there
only next to all shards. Then the pack goes on with ``--resume`` and must end with exactly the objects of a whole pack.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
import numpy as np
from PIL import Image

from fastio import FastDataset
from fastio.store.files.remote.client import Client
from fastio.store.files.remote.clients import client_of
from fastio.store.files.remote_options import Remote
from tests.servers.fault_server import Fault, FaultServer
from tests.servers.object_server import ObjectServer, why_no_seaweedfs

__all__ = ["main"]

_PICTURES, _SIDE = 64, 800  # noise, 1.9 MB each
_SHARD = "40MB"  # three shards of 40 MB, each uploaded in three parts
_SLOW = (Fault(kind="delay", seconds=0.3, method="PUT"), Fault(kind="delay", seconds=0.3, method="POST"))


@click.command()
@click.option("--kills", default=20, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(kills: int, seed: int) -> None:
    """Exit status 1 if anything was there that is not whole."""
    if reason := why_no_seaweedfs():
        raise click.ClickException(reason)
    rng, wrong, outcome = random.Random(seed), 0, Counter[str]()
    with tempfile.TemporaryDirectory() as folder, ObjectServer() as objects:
        source = _source(Path(folder) / "source")
        with FaultServer(upstream=objects.endpoint) as server:
            server.set_faults(*_SLOW)
            environment = {**os.environ, **objects.environment(), "AWS_ENDPOINT_URL": server.url}
            whole, length_s = _whole(objects, source, environment)
            for number in range(kills):
                url = objects.make_bucket(f"killed-{number}")
                packing = subprocess.Popen(_command(source, url), env=environment, stdout=subprocess.DEVNULL)
                try:
                    packing.wait(rng.uniform(0.3, 1.0) * length_s)
                except subprocess.TimeoutExpired:
                    packing.kill()
                packing.wait()
                there = _objects(objects, url)
                wrong += _is_wrong(there, whole)
                outcome[_state(there, whole)] += 1
                resumed = subprocess.run(
                    [*_command(source, url), "--resume"], env=environment, capture_output=True, text=True, check=False
                )
                there = _objects(objects, url)
                outcome["hidden objects left"] += sum(name.startswith(".") for name in there)
                if _visible(there) != whole:
                    wrong += 1
                    click.echo(f"kill {number}: {resumed.stderr[-500:]} {sorted(there)}")
                objects.remove_bucket(url.removeprefix("s3://"))
    click.echo(f"{kills} kills, {wrong} wrong; {dict(outcome)}")
    sys.exit(bool(wrong))


def _source(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    for number in range(_PICTURES):
        path = folder / f"class-{number % 2}" / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (_SIDE, _SIDE, 3), np.uint8)).save(path, compress_level=0)
    return folder


def _command(source: Path, url: str) -> list[str]:
    fastio = Path(sys.executable).with_name("fastio")
    return [str(fastio), "pack", str(source), f"{url}/x-%06d.tar", "--shard-size", _SHARD]


def _whole(objects: ObjectServer, source: Path, environment: dict[str, str]) -> tuple[dict[str, bytes], float]:
    """Pack undisturbed; return the objects and how long it took."""
    url, began = objects.make_bucket("whole"), time.monotonic()
    subprocess.run(_command(source, url), env=environment, check=True, stdout=subprocess.DEVNULL)
    length_s = time.monotonic() - began
    with FastDataset(f"{url}/x-%06d.tar", remote=Remote(objects.storage_options())) as dataset:
        assert len(dataset) == _PICTURES
    return _objects(objects, url), length_s


def _objects(objects: ObjectServer, url: str) -> dict[str, bytes]:
    """Return every object of a bucket with its content."""
    options = Remote(objects.storage_options())
    client: Client
    client, _ = client_of(f"{url}/", options)
    entries: list[Any] = client.entries("")
    return {entry.name: bytes(client.get(entry.name, 0, entry.size).data) for entry in entries}


def _visible(there: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in there.items() if not name.startswith(".")}


def _is_wrong(there: dict[str, bytes], whole: dict[str, bytes]) -> bool:
    """Whether an object differs from the whole pack's, or the set object came before a shard."""
    visible = _visible(there)
    is_set = any(name.endswith("fastio-set") for name in visible)
    return any(whole.get(name) != data for name, data in visible.items()) or (is_set and visible != whole)


def _state(there: dict[str, bytes], whole: dict[str, bytes]) -> str:
    visible = _visible(there)
    return f"killed with {len(visible)} of {len(whole)} objects"


if __name__ == "__main__":
    main()
