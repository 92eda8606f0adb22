"""How long it takes to plan what a large training will read: seconds of CPU and of waiting for all ranks' epochs.

python -m benchmarks.plan_epochs [--count 10000000] [--world 8 8] [--epochs 90] [--out FILE]

The samples exist as an index alone: 100 kB each, of 1000 classes in random order, in a file that is never read. Opening
a store is not part of it.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import resource
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import click
import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.dataset.fast_dataset import FastDataset
from fastio.machine import available_cpus
from fastio.measure.plan import EpochPlan, PlanOptions, TrainingPlan
from fastio.types.spans import Spans

__all__ = ["main"]

_SAMPLE_BYTES = 100_000
_CLASSES = 1000


@dataclass
class IndexAlone:
    """What planning asks of a dataset: one field of pictures, one file, labels."""

    count: int
    readers: dict[str, None] = field(default_factory=lambda: {"image": None})
    token_reader: None = None
    makes_samples: bool = False
    verify: bool = True

    def __post_init__(self) -> None:
        self.labels = np.random.default_rng(0).integers(0, _CLASSES, self.count)
        self._buffers = _native.Buffers([self.count * _SAMPLE_BYTES])
        self.store = self
        self.files = SimpleNamespace(threads=1)
        self.schema = SimpleNamespace(payload=["image"])

    def __len__(self) -> int:
        return self.count

    def spans(self, name: str, indices: NDArray[np.int64], *, checksums: bool = True) -> Spans:
        """Samples one after the other."""
        shard, sizes = np.zeros(len(indices), np.int32), np.full(len(indices), _SAMPLE_BYTES, np.int64)
        return Spans(self._buffers, shard, indices * _SAMPLE_BYTES, sizes)

    def value_bytes(self, name: str) -> NDArray[np.int64]:
        """All of one size."""
        return np.full(self.count, _SAMPLE_BYTES, np.int64)

    def total_bytes(self, name: str) -> int:
        """Of all of them."""
        return self.count * _SAMPLE_BYTES


@click.command()
@click.option("--count", default=10_000_000, show_default=True)
@click.option("--world", nargs=2, default=(8, 8), show_default=True, help="Nodes, and ranks of each.")
@click.option("--batch", default=256, show_default=True, help="Of a rank.")
@click.option("--epochs", default=90, show_default=True)
@click.option("--memory-gb", default=64.0, show_default=True)
@click.option("--full", is_flag=True, help="A full shuffle instead of lanes.")
@click.option("--out", type=click.Path(path_type=Path), help="Also write the result to this JSON file.")
def main(
    *,
    count: int,
    world: tuple[int, int],
    batch: int,
    epochs: int,
    memory_gb: float,
    full: bool,
    out: Path | None,
) -> None:
    """Print what was planned, and the seconds that it took."""
    options = PlanOptions(
        nodes=world[0],
        ranks=world[1],
        batch_size=batch,
        shuffle="full" if full else True,
        memory_bytes=int(memory_gb * 1e9),
    )
    began, began_cpu = time.perf_counter(), time.process_time()
    training = TrainingPlan(cast(FastDataset, IndexAlone(count)), options)
    order = str(training.shuffle or "a full shuffle")
    chosen_cpu_s = time.process_time() - began_cpu
    plans: list[EpochPlan] = []
    for plan in training.epochs(epochs):
        plans.append(plan)
        click.echo(f"epoch {plan.epoch}: {time.perf_counter() - began:.1f} s", err=True)
    result = {
        "samples": count,
        "world": f"{world[0]}x{world[1]}",
        "batch_size": batch,
        "epochs": epochs,
        "order": order,
        "choosing_cpu_s": round(chosen_cpu_s, 2),
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_s": round(time.process_time() - began_cpu, 1),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "reads": sum(node.reads for plan in plans for node in plan.nodes),
        "asked_bytes": sum(node.asked_bytes for plan in plans for node in plan.nodes),
        "last_epoch": dataclasses.asdict(plans[-1]),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cpus": available_cpus(),
    }
    text = json.dumps(result, indent=2)
    click.echo(text)
    if out is not None:
        out.write_text(text + "\n")


if __name__ == "__main__":
    main()
