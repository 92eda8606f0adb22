"""The options that every command has which opens DATA as a loader."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fastio.measure.data import DataOptions

__all__ = ["data_options"]

_OPTIONS = (
    click.option("--batch-size", type=click.IntRange(min=1), default=256, show_default=True, help="Samples a batch."),
    click.option(
        "--threads", type=click.IntRange(min=1), help="A store's native threads.  [default: the CPUs at hand]"
    ),
    click.option("--workers", type=click.IntRange(min=0), help="A folder's processes.  [default: the CPUs at hand]"),
    click.option("--shuffle", is_flag=True, help="Shuffled, as in training."),
    click.option("--crop", type=click.IntRange(min=1), help="Resize each picture and crop its centre to this size."),
    click.option("--augment", is_flag=True, help="Mirror pictures at random; with --crop, cut a random part out."),
)


def data_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options, as one argument ``options``."""

    @wraps(command)
    def with_options(
        *args: Any,
        batch_size: int,
        threads: int | None,
        workers: int | None,
        shuffle: bool,
        crop: int | None,
        augment: bool,
        **rest: Any,
    ) -> None:
        command(
            *args, options=_packed(batch_size, threads, workers, shuffle=shuffle, crop=crop, augment=augment), **rest
        )

    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options


def _packed(
    batch_size: int, threads: int | None, workers: int | None, *, shuffle: bool, crop: int | None, augment: bool
) -> DataOptions:
    from fastio.measure.data import DataOptions

    return DataOptions(
        batch_size=batch_size, threads=threads, workers=workers, shuffle=shuffle, crop=crop, augment=augment
    )
