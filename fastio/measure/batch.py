"""What a batch is to whoever measures: how many samples it holds, and how it is brought to a device and kept there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["keep", "sample_count"]


def sample_count(batch: Any) -> int:
    """
    Samples in a batch: the length of its first part, as in ``(images, labels)``, or of the images alone.

    What has no length counts as one sample.

    >>> sample_count(([1, 2, 3], [0, 0, 1])), sample_count({"text": ["a", "b"]})
    (3, 2)
    """
    part = batch
    if isinstance(batch, Mapping):
        part = next(iter(batch.values()), ())
    elif isinstance(batch, (tuple, list)) and batch and hasattr(batch[0], "__len__"):
        part = batch[0]
    try:
        return len(part)
    except TypeError:  # no length, or torch's scalar
        return 1


def keep(batch: Any, device: Any) -> Any:
    """The batch with copies of its tensors on ``device``, in the memory format they had; the rest as it is."""
    from torch import Tensor

    if isinstance(batch, Tensor):
        # A copy in any case: a loader's buffer that is never given back would take a place in its ring.
        return batch.detach().clone() if batch.device == _device(device) else batch.detach().to(device)
    if isinstance(batch, Mapping):
        return type(batch)({name: keep(part, device) for name, part in batch.items()})  # type: ignore[call-arg]
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(keep(part, device) for part in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(keep(part, device) for part in batch)
    return batch


def _device(device: Any) -> Any:
    from torch import device as device_of

    return device_of(device)
