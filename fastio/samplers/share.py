"""Share: the part of all samples that is this process's, if that still holds and nobody shares it out once more."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from fastio.machine import process_group_ranks, rank_and_world

__all__ = ["Share", "check_resumed_epoch"]

_DEEPEST = 8  # wrappers around a sampler or a data set; one may lead back to itself


@dataclass(frozen=True, slots=True)
class Share:
    """
    The part of ``rank`` of ``world_size``.

    ``is_found``: nobody has named them, they were found when their owner was built (see ``rank_and_world``).
    """

    rank: int
    world_size: int
    is_found: bool

    @classmethod
    def of(cls, rank: int | None, world_size: int | None) -> Self:
        """What is passed, or what is found."""
        is_found = rank is None and world_size is None
        return cls(*rank_and_world(rank, world_size), is_found)

    def check_ranks(self, owner: str) -> None:
        """
        ValueError where ranks that were found have become others: samples would come on several ranks, or on none.

        That is so where something is built before ``torch.distributed`` begins, and the environment says nothing.
        """
        now = process_group_ranks()
        if self.is_found and now not in (None, (self.rank, self.world_size)):
            assert now is not None
            raise ValueError(
                f"{owner} was built for rank {self.rank} of {self.world_size}, but this process is rank {now[0]} of "
                f"{now[1]} since torch.distributed has begun: build it after that, or pass rank= and world_size="
            )

    def check_shared_once(self, owner: object, hint: str) -> None:
        """
        ValueError where accelerate, whose loader is about to read ``owner``, shares out again what is a share already.

        The other ranks' parts of it would be lost. accelerate's own state says which of its loaders has begun last.
        """
        if self.world_size == 1:
            return
        loader, parts = _reader_of(owner)
        processes = [getattr(part, "num_processes", 1) for part in parts]
        if parts and hasattr(loader, "slice_fn"):  # a dispatcher: one process reads for all
            processes.append(loader.state.num_processes)
        if max(processes, default=1) > 1:
            raise ValueError(
                f"{type(owner).__name__} gives rank {self.rank} of {self.world_size} its share, and accelerate would "
                f"share that out among {max(processes)} processes again, so that samples are lost: {hint}"
            )


def check_resumed_epoch(owner: object, epoch: int) -> None:
    """
    ValueError where accelerate is about to skip batches of another epoch than ``owner`` would begin.

    Its loader knows the epoch in which a training goes on, and does not tell a sampler within other samplers. What is
    skipped in another order is not what was had: samples would come twice, and others never.
    """
    loader, parts = _reader_of(owner)
    named = getattr(loader, "iteration", epoch)
    if named != epoch and any(getattr(part, "skip_batches", 0) for part in parts):
        raise ValueError(
            f"accelerate goes on within epoch {named}, and this {type(owner).__name__} would begin epoch {epoch}, "
            f"whose order is another: call its set_epoch({named}) before, or take a loader from fastio.integrations"
        )


def _reader_of(owner: object) -> tuple[Any, list[object]]:
    """The loader of accelerate that has begun last, and its parts; nothing where ``owner`` is none of them."""
    accelerate = sys.modules.get("accelerate.state")
    loader: Any = None if accelerate is None else getattr(accelerate.GradientState(), "active_dataloader", None)
    parts = list(_parts(loader))
    return (loader, parts) if any(part is owner for part in parts) else (None, [])


def _parts(loader: Any) -> Iterator[object]:
    """A DataLoader's samplers and data sets, from the outermost inwards."""
    for names in (("batch_sampler", "sampler"), ("dataset",)):
        part = loader
        for _ in range(_DEEPEST):
            part = next((getattr(part, name) for name in names if getattr(part, name, None) is not None), None)
            if part is None:
                break
            yield part
