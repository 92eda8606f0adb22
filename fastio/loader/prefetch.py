"""DevicePrefetcher: copies the batches of any loader to the device ahead of the training loop."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fastio.lazy import torch
from fastio.loader.batch_steps import Numbered
from fastio.loader.device.delivery import Delivery, NumberedBatches
from fastio.loader.device.lane import lane_to
from fastio.loader.device.nested import sample_count
from fastio.loader.iteration import EpochIterator
from fastio.machine import rank_and_world
from fastio.samplers.position import whole
from fastio.transforms.batch.recipe import AnyTransform
from fastio.types.options import explains_names
from fastio.types.placement import Placement
from fastio.types.receipt import Receipt

__all__ = ["DevicePrefetcher"]

_STATE_VERSION = 1
_beginning = threading.Lock()  # of iterations, of which each thread gets an epoch of its own


class DevicePrefetcher:
    """
    Copies the batches of any loader to a device ahead of the training loop, which stays as it is::

        for images, labels in DevicePrefetcher(loader, "cuda"):

    ``batches`` is a FastLoader, a torch DataLoader or any iterable of batches: tensors in nested lists, tuples,
    namedtuples, mappings and dataclasses; everything that is not a tensor is passed on unchanged. ``depth`` batches are
    copied ahead on a side stream, ordered by events: there is no thread, and the GPU waits only for the copy of its own
    batch. ``device`` is a name, number or ``torch.device``. Pinned tensors, such as FastLoader's, are copied directly;
    others go through pinned staging memory, allocated once. On "cpu", everything is the same, without copies. Raises
    ValueError for a FastLoader with ``output="numpy"``.

    * ``transforms``: those of ``fastio.transforms``, with your functions in PerSample and PerBatch; they run on the
      device after the copy. Random numbers depend on ``seed``, epoch and sample: by its index for a
      FastLoader, for other loaders by the count of samples in the epoch, over all ranks.
    * A batch belongs to the consumer and its current stream for as long as it is kept.
    * An error in a batch is raised in its turn, after the batches before it.
    * ``state_dict`` is the consumer's position, not that of the copies: for a FastLoader, exactly the loader's own
      state; for another loader with ``state_dict``, a state around that one, taken at each batch.
    * ``set_epoch`` is passed to the loader, or to its sampler if that has one, as in a DataLoader with a
      DistributedSampler.

    An iterator must not write to a pinned batch that it has handed out: writing by torch is noticed and refused with
    RuntimeError; writing by NumPy cannot be noticed. The device holds at most ``2 * depth + 3`` batches besides those
    that the consumer keeps.
    """

    @explains_names()
    def __init__(
        self,
        batches: Iterable[Any],
        device: torch.device | str | int = "cuda",
        depth: int = 2,
        *,
        transforms: Sequence[AnyTransform] = (),
        seed: int = 0,
    ) -> None:
        if getattr(batches, "output", "torch") == "numpy":
            raise ValueError("DevicePrefetcher takes tensors, but this loader has output='numpy': drop that")
        self.batches = batches
        self.depth = whole("depth", depth, "a number of batches, at least 1", least=1)
        lane = lane_to(device)
        self.device = lane.device
        self._delivery = Delivery(lane, depth=self.depth, transforms=transforms, seed=seed)
        self._epoch = 0  # the epoch of the next iteration, if the loader does not tell
        self._done = 0  # samples of that epoch that are already done
        self._seen: _Seen | None = None

    def __repr__(self) -> str:
        """Return what is copied where, and what is done to its pictures there."""
        about = f"DevicePrefetcher({type(self.batches).__name__}, {str(self.device)!r}, depth={self.depth})"
        placed = self._delivery.placed(Placement({"pictures": ()}), pictures=["pictures"], label="")
        done = [*placed.fields["pictures"], *placed.batch]
        return "\n  ".join([about, *(placed.lines if any(stage.steps for stage in done) else ())])

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return len(self.batches)  # type: ignore[arg-type] # without a length, Python's own TypeError is right

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.batches, NumberedBatches):
            numbered, position, arrive = self.batches.ahead()
            return EpochIterator(self._delivery.run(numbered, place=position, arrive=arrive))
        batches = iter(self.batches)
        with _beginning:
            counted = _Counted(batches, epoch=self._epoch, samples=self._done)
            self._epoch, self._done = self._epoch + 1, 0
        place = partial(_place, self.batches, counted)
        self._seen = seen = _Seen(place())
        return EpochIterator(self._delivery.run(counted, place=place, arrive=partial(self._arrive, seen)))

    def _arrive(self, seen: _Seen, place: dict[str, Any] | None) -> None:
        """
        Note that the consumer has had everything before ``place``; its first batch makes its iteration the latest.
        """
        if not seen.has_begun:
            self._seen, seen.has_begun = seen, True
        seen.place = place

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, in the loader (or its samplers) and for random numbers."""
        owners: list[Any] = [self.batches, getattr(self.batches, "sampler", None)]
        for owner in (*owners, getattr(self.batches, "batch_sampler", None)):
            if hasattr(owner, "set_epoch"):
                owner.set_epoch(epoch)
        if epoch != self._epoch:
            self._epoch, self._done = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the latest iteration's consumer; batches copied ahead do not count."""
        if not hasattr(self.batches, "state_dict"):
            raise TypeError(
                f"{type(self.batches).__name__} has no state_dict, so its position is unknown: use a FastLoader, or "
                "a loader that has one"
            )
        if isinstance(self.batches, NumberedBatches):
            return self.batches.state_dict()
        if self._seen is not None:
            return dict(self._seen.place)
        return _state(self.batches, epoch=self._epoch, samples=self._done)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue at this position."""
        if not hasattr(self.batches, "load_state_dict"):
            raise TypeError(f"{type(self.batches).__name__} has no load_state_dict: use a loader that has one")
        if isinstance(self.batches, NumberedBatches):
            self.batches.load_state_dict(state)
        else:
            if state.get("version") != _STATE_VERSION or not {"epoch", "samples", "loader"} <= state.keys():
                raise ValueError(
                    f"expected a state of a DevicePrefetcher around a {type(self.batches).__name__}, with version "
                    f"{_STATE_VERSION}, epoch, samples and loader; got {', '.join(map(str, state)) or 'nothing'}"
                )
            self.batches.load_state_dict(state["loader"])
            self._epoch, self._done = state["epoch"], state["samples"]
        self._seen = None

    def receipt(self, *, own: bool = False, timeout_s: float = 60) -> Receipt:
        """
        Return the receipt of the FastLoader for what this prefetcher has handed out: see ``FastLoader.receipt``.
        Batches copied ahead do not count. Raises TypeError for other loaders.
        """
        if not isinstance(self.batches, NumberedBatches):
            raise TypeError(f"{type(self.batches).__name__} has no receipt: use a FastLoader")
        return self.batches.receipt(own=own, timeout_s=timeout_s)


class _Counted:
    """Batches of any iterator, their samples numbered in order: all ranks' first ones, all ranks' second ones, ..."""

    def __init__(self, batches: Iterator[Any], *, epoch: int, samples: int) -> None:
        self._batches = batches
        self._rank, self._world_size = rank_and_world()
        self.epoch, self.samples = epoch, samples

    def __iter__(self) -> Iterator[Numbered]:
        return self

    def __next__(self) -> Numbered:
        try:
            batch = next(self._batches)
        except StopIteration:
            self.epoch, self.samples = self.epoch + 1, 0
            raise
        count = sample_count(batch)
        places = np.arange(self.samples, self.samples + count, dtype=np.int64)
        self.samples += count
        return Numbered(batch, self.epoch, places * self._world_size + self._rank)


@dataclass(slots=True)
class _Seen:
    """
    The position of an iteration, as its consumer sees it: ``batch`` is the next one, once the iteration has begun.
    """

    place: Any
    has_begun: bool = False


def _place(loader: Any, counted: _Counted) -> dict[str, Any] | None:
    return _state(loader, epoch=counted.epoch, samples=counted.samples) if hasattr(loader, "state_dict") else None


def _state(loader: Any, *, epoch: int, samples: int) -> dict[str, Any]:
    return {"version": _STATE_VERSION, "epoch": epoch, "samples": samples, "loader": loader.state_dict()}
