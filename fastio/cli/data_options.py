"""The options that every command has which opens DATA as a loader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fastio.measure.loop.data import DataOptions

__all__ = ["DATA_NAMES", "data_options"]

_Option = Callable[[Callable[..., None]], Callable[..., None]]
DATA_NAMES = ("batch_size", "threads", "workers", "shuffle", "crop", "augment")

_OPTIONS = (
    click.option(
        "--threads",
        type=click.IntRange(min=1),
        metavar="N",
        help="A store's native threads.  [default: the CPUs at hand]",
    ),
    click.option(
        "--workers", type=click.IntRange(min=0), metavar="N", help="A folder's processes.  [default: the CPUs at hand]"
    ),
    click.option("--shuffle", is_flag=True, help="Shuffled, as in training."),
    click.option(
        "--crop", type=click.IntRange(min=1), metavar="N", help="Resize each picture and crop its centre to this size."
    ),
    click.option("--augment", is_flag=True, help="Mirror pictures at random; with --crop, cut a random part out."),
)


def data_options(batch_default: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options, as one argument ``options``; ``batch_default`` is how help names the default."""
    batch_size = click.option(
        "--batch-size",
        type=click.IntRange(min=1),
        metavar="N",
        default=256,
        help=f"Samples a batch.  [default: {batch_default}]",
    )
    return lambda command: _with_options(command, (batch_size, *_OPTIONS))


def _with_options(command: Callable[..., None], options: Sequence[_Option]) -> Callable[..., None]:
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

    given: Callable[..., None] = with_options
    for option in reversed(options):
        given = option(given)
    return given


def _packed(
    batch_size: int, threads: int | None, workers: int | None, *, shuffle: bool, crop: int | None, augment: bool
) -> DataOptions:
    from fastio.measure.loop.data import DataOptions

    return DataOptions(
        batch_size=batch_size, threads=threads, workers=workers, shuffle=shuffle, crop=crop, augment=augment
    )
