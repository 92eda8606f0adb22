"""What FastLoader refuses before it starts: options that would only fail later, and elsewhere."""

from __future__ import annotations

from typing import get_args

from fastio.dataset.fast_dataset import FastDataset
from fastio.loader.producer import OnError

__all__ = ["check_choices", "check_subclass"]


def check_choices(*, shuffle: object, on_error: object) -> None:
    """ValueError for an argument that would only fail later, and elsewhere."""
    # By identity: 1 and numpy's True equal True and would be another configuration in a saved state.
    if not (shuffle is False or shuffle is True or (isinstance(shuffle, str) and shuffle == "full")):
        raise ValueError(f"shuffle={shuffle!r}: expected False, True or 'full'")
    if on_error not in get_args(OnError):
        raise ValueError(f"on_error={on_error!r}: expected one of {', '.join(map(repr, get_args(OnError)))}")


def check_subclass(dataset: FastDataset, *, on_error: OnError) -> None:
    """ValueError where the loader would take the store's samples for those that a subclass makes of them."""
    path, name = dataset.store.path, type(dataset).__name__
    if on_error == "zero" and dataset.makes_samples and not dataset.makes_blanks:
        raise ValueError(
            f"{path}: on_error='zero' cannot know the label of a sample that {name} makes itself; "
            f"use on_error='skip' or 'raise', or give {name} a blank(index) of its own"
        )
