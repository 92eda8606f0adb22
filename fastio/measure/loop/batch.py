"""Batches as measurements see them: how many samples they hold, copies on a device, loops that end in time."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

__all__ = [
    "keep",
    "limited",
    "move",
    "next_batch",
    "sample_count",
    "size_bytes",
]


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


# Cuts a loader off after some time: every measurement runs over that.


def limited(loader: Iterable[Any], *, ends: float, least: int = 1, latest: float = math.inf) -> Iterator[Any]:
    """
    Yield the loader's batches until ``time.perf_counter()`` reaches ``ends``, but at least ``least`` of them.

    From ``latest`` on, one batch is enough.

    No batch is kept here: its memory belongs to the loader's ring. Wrap this in the timer, not the timer in this: a
    step that is cut off must not count.
    """
    left = least
    for held in map(_in_a_list, loader):
        yield held.pop()
        left -= 1
        now = time.perf_counter()
        if (left <= 0 and now >= ends) or now >= latest:
            return


def _in_a_list(batch: Any) -> list[Any]:
    return [batch]
