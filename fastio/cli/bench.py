"""``fastio bench``: how fast a store can be read here."""

from __future__ import annotations

import json

import click

from fastio.cli.screen import counted, number, size

__all__ = ["bench"]


@click.group()
def bench() -> None:
    """
    Measure on this machine.

    \b
    Example:
      fastio bench io train.lmdb --shuffle --threads 4
    """


@bench.command(name="io")
@click.argument("path")
@click.option("--batch-size", type=click.IntRange(min=1), default=256, show_default=True, help="Samples a batch.")
@click.option("--threads", type=click.IntRange(min=1), help="Native threads.  [default: the CPUs at hand]")
@click.option("--shuffle", is_flag=True, help="Block shuffle, as in training.")
@click.option("--crop", type=click.IntRange(min=1), help="Resize each picture and crop its centre to this size.")
@click.option("--epochs", type=click.IntRange(min=1), default=3, show_default=True, help="Passes over the store.")
@click.option("--json", "as_json", is_flag=True, help="The result for machines.")
def io(
    path: str,
    *,
    batch_size: int,
    threads: int | None,
    shuffle: bool,
    crop: int | None,
    epochs: int,
    as_json: bool,
) -> None:
    """
    Read the store PATH into batches and throw them away: the limit that I/O and decoding set.

    Pictures of different sizes need --crop: they do not fit into one batch as they are.

    \b
    Example:
      fastio bench io train.lmdb --batch-size 256 --epochs 5
      fastio bench io photos.lmdb --crop 224
    """
    from fastio import FastDataset, FastLoader, MockTrainer
    from fastio.converters.describe import store_bytes
    from fastio.transforms import CenterCrop, Resize

    dataset = FastDataset(path)
    transforms = [] if crop is None else [Resize(crop), CenterCrop(crop)]
    loader = FastLoader(dataset, batch_size, shuffle=shuffle, threads=threads or 0, transforms=transforms)
    result = MockTrainer().run(loader, epochs=epochs)
    stored = store_bytes(dataset.store) * epochs
    if as_json:
        numbers = {
            "path": path,
            "samples": result.samples,
            "batches": result.batches,
            "seconds": result.seconds,
            "cpu_seconds": result.cpu_seconds,
            "first_batch_s": result.first_batch_s,
            "samples_per_s": result.samples_per_s,
        }
        click.echo(json.dumps(numbers, indent=2))
        return
    click.echo(
        f"{path}: {number(result.samples_per_s // 1)} samples/s, {size(stored / result.seconds)}/s of the store; "
        f"{counted(result.samples, 'sample')} in {result.seconds:.2f} s, {result.cpu_seconds:.2f} s of CPU; "
        f"first batch after {result.first_batch_s * 1e3:.1f} ms"
    )
