"""The options that all commands share which open DATA as a loader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from fastio.cli.remote_options import remote_options

if TYPE_CHECKING:
    from fastio.measure.loop.data import DataOptions
    from fastio.store.files.remote_options import RemoteOptions

__all__ = ["DATA_NAMES", "data_options", "split_fields"]

_Option = Callable[[Callable[..., None]], Callable[..., None]]
DATA_NAMES = ("batch_size", "threads", "workers", "shuffle", "crop", "augment", "fields")

_OPTIONS = (
    click.option(
        "--threads",
        type=click.IntRange(min=1),
        metavar="N",
        help="Native threads that read a store.  [default: all available CPUs]",
    ),
    click.option(
        "--workers",
        type=click.IntRange(min=0),
        metavar="N",
        help="Worker processes that read a folder.  [default: all available CPUs]",
    ),
    click.option("--shuffle", is_flag=True, help="Shuffle, as in training."),
    click.option(
        "--crop", type=click.IntRange(min=1), metavar="N", help="Resize each picture and crop its centre to N pixels."
    ),
    click.option("--augment", is_flag=True, help="Flip pictures at random; with --crop, crop at random too."),
    click.option("--fields", metavar="NAME,...", help="Read only these fields of a store.  [default: all]"),
)


def data_options(batch_default: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """
    Add these options to a command, which gets them as one argument ``options``.

    ``batch_default`` is the text that the help shows as the default batch size.
    """
    batch_size = click.option(
        "--batch-size",
        type=click.IntRange(min=1),
        metavar="N",
        default=256,
        help=f"Samples per batch.  [default: {batch_default}]",
    )
    return lambda command: _with_options(command, (batch_size, *_OPTIONS))


def _with_options(command: Callable[..., None], options: Sequence[_Option]) -> Callable[..., None]:
    @remote_options
    @wraps(command)
    def with_options(
        *args: Any,
        batch_size: int,
        threads: int | None,
        workers: int | None,
        shuffle: bool,
        crop: int | None,
        augment: bool,
        fields: str | None,
        remote: RemoteOptions,
        **rest: Any,
    ) -> None:
        names = split_fields(fields)
        made = {"shuffle": shuffle, "crop": crop, "augment": augment, "fields": names, "remote": remote}
        options = _packed(batch_size, threads, workers, **made)
        command(*args, options=options, **rest)

    given: Callable[..., None] = with_options
    for option in reversed(options):
        given = option(given)
    return given


def split_fields(text: str | None) -> tuple[str, ...] | None:
    """
    Return the names in what was given as --fields.

    >>> split_fields("image, mask"), split_fields(None)
    (('image', 'mask'), None)
    """
    return None if text is None else tuple(name.strip() for name in text.split(","))


def _packed(batch_size: int, threads: int | None, workers: int | None, **others: Any) -> DataOptions:
    from fastio.measure.loop.data import DataOptions

    return DataOptions(batch_size=batch_size, threads=threads, workers=workers, **others)
