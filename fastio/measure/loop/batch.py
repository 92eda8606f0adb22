"""Batches as measurements see them: how many samples they hold, and copies on a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

__all__ = ["keep", "move", "next_batch", "sample_count", "size_bytes"]


def sample_count(batch: Any) -> int:
    """
    Return the number of samples in a batch: the length of its first part, as in ``(images, labels)``.

    A packed batch of tokens, which is one sequence, has as many as its ``lengths``. Anything without a length counts
    as one sample.

    >>> sample_count(([1, 2, 3], [0, 0, 1])), sample_count({"text": ["a", "b"]})
    (3, 2)
    """
    part = batch
    if isinstance(batch, Mapping):
        part = batch["lengths"] if "lengths" in batch else next(iter(batch.values()), ())
    elif isinstance(batch, (tuple, list)) and batch and hasattr(batch[0], "__len__"):
        part = batch[0]
    try:
        return len(part)
    except TypeError:  # no length, or torch's scalar
        return 1


def next_batch(batches: Iterator[Any]) -> list[Any]:
    """
    Return the next batch, alone in a list; an empty list at the end.

    Take it out with ``pop``: whoever keeps a batch keeps its memory from the loader's ring. In stacks of a profile,
    this function marks everything above it as loading.
    """
    return list(islice(batches, 1))


def size_bytes(batch: Any) -> int:
    """
    Return the bytes of all tensors and arrays in a batch.

    >>> import numpy
    >>> size_bytes({"image": numpy.zeros((4, 3)), "more": [numpy.zeros(2, "u1"), "text"]})
    98
    """
    if isinstance(batch, Mapping):
        return sum(size_bytes(part) for part in batch.values())
    if isinstance(batch, (tuple, list)):
        return sum(size_bytes(part) for part in batch)
    return int(getattr(batch, "nbytes", 0))


def keep(batch: Any, device: Any) -> Any:
    """Return the batch with copies of its tensors on ``device``, in their memory format; the rest is unchanged."""
    from torch import device as device_of

    from fastio.loader.device.nested import map_tensors

    # Always a copy: a loader's buffer that is never returned would take a place in its ring.
    wanted = device_of(device)
    return map_tensors(lambda part: part.detach().clone() if part.device == wanted else part.detach().to(device), batch)


def move(batch: Any, device: Any, *, non_blocking: bool) -> Any:
    """Return the batch with its tensors on ``device``, as a training loop moves it."""
    from fastio.loader.device.nested import map_tensors

    return map_tensors(lambda part: part.detach().to(device, non_blocking=non_blocking), batch)
