"""Share: this process's part of all samples; checks that it still holds and that nobody shares it out again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from fastio.machine import process_group_ranks, rank_and_world
from fastio.samplers.mesh import mesh_members, mesh_ranks

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["RankOptions", "Share", "check_resumed_epoch"]

_DEEPEST = 8  # wrappers around a sampler or a dataset, which may refer back to themselves


@dataclass(frozen=True, slots=True)
class Share:
    """
    The part of ``rank`` of ``world_size``.

    ``is_found`` means that nobody has passed the two: they were detected when the owner was built (see
    ``rank_and_world``). ``replication`` processes in a row have the same rank; this is the one number ``replica`` of
    them. ``members`` are the processes of a mesh that gave the rank, by their ranks among all.
    """

    rank: int
    world_size: int
    is_found: bool
    replication: int = 1
    replica: int = 0
    members: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, rank: int | None, world_size: int | None, *, mesh: DeviceMesh | None = None, replication: int = 1
    ) -> Self:
        """
        Return the share for the numbers passed, for a place in a mesh (see ``mesh_ranks``), or for those detected.

        ``replication`` processes in a row share a rank. Raises ValueError if it does not divide their number, or for
        a mesh together with others.
        """
        if mesh is not None:
            if (rank, world_size, replication) != (None, None, 1):
                raise ValueError("mesh= says which samples this process gets: drop rank=, world_size=, replication=")
            return cls(*mesh_ranks(mesh), is_found=False, members=mesh_members(mesh))
        is_found = rank is None and world_size is None
        process, processes = rank_and_world(rank, world_size)
        if isinstance(replication, bool) or not isinstance(replication, int) or replication < 1:
            raise ValueError(f"replication={replication!r}: expected 1 or more processes that get the same samples")
        if processes % replication:
            raise ValueError(
                f"replication={replication}: {processes} processes cannot be divided into groups of {replication}"
            )
        return cls(process // replication, processes // replication, is_found, replication, process % replication)

    @property
    def process(self) -> tuple[int, int]:
        """This process's number and the number of processes, of which ``replication`` in a row share a rank."""
        return self.rank * self.replication + self.replica, self.processes

    @property
    def processes(self) -> int:
        """The number of processes that must agree on the order."""
        return len(self.members) or self.world_size * self.replication

    def check_ranks(self, owner: str) -> None:
        """
        Raise ValueError if detected ranks have changed: samples would come on several ranks, or on none.

        This happens if the owner is built before ``torch.distributed`` starts and the environment does not name the
        rank.
        """
        now = process_group_ranks()
        if self.is_found and now not in (None, self.process):
            assert now is not None
            built = "rank {} of {}".format(*self.process)
            raise ValueError(
                f"{owner} was built for {built}, but this process is rank {now[0]} of {now[1]} since "
                "torch.distributed started: build it after that, or pass rank= and world_size="
            )

    def check_shared_once(self, owner: object, hint: str) -> None:
        """
        Raise ValueError if accelerate, whose loader is about to read ``owner``, would share out this share once more.

        The samples that it gives to other ranks would be lost. accelerate's own state says which of its loaders
        started last.
        """
        if self.world_size == 1:
            return
        loader, parts = _reader_of(owner)
        processes = [getattr(part, "num_processes", 1) for part in parts]
        if parts and hasattr(loader, "slice_fn"):  # a dispatcher: one process reads for all
            processes.append(loader.state.num_processes)
        if max(processes, default=1) > 1:
            raise ValueError(
                f"{type(owner).__name__} gives rank {self.rank} of {self.world_size} its share, but accelerate "
                f"would share that out again among {max(processes)} processes and lose samples: {hint}"
            )


@dataclass(frozen=True, slots=True)
class RankOptions:
    """What a user passes about ranks: see FastLoader."""

    rank: int | None = None
    world_size: int | None = None
    mesh: DeviceMesh | None = None
    replication: int = 1

    def share(self) -> Share:
        """Return the share that they mean. Raises ValueError if they contradict each other."""
        return Share.of(self.rank, self.world_size, mesh=self.mesh, replication=self.replication)

    def check_own(self, own: tuple[int, int], sampler: str, advice: str) -> None:
        """Raise ValueError if they mean another rank than the user's ``sampler``, which knows its ``own``."""
        if self == RankOptions():
            return
        meant: tuple[int | None, int | None] = self.rank, self.world_size
        if None not in meant or meant == (None, None):
            share = self.share()
            meant = share.rank, share.world_size
        if meant != own:
            raise ValueError(
                f"rank={meant[0]}, world_size={meant[1]}: {sampler} for rank {own[0]} of {own[1]}: {advice}"
            )


def check_resumed_epoch(owner: object, epoch: int) -> None:
    """
    Raise ValueError if accelerate is about to skip batches of another epoch than ``owner`` would start.

    accelerate's loader knows the epoch in which a training continues, but does not tell it to a sampler inside other
    samplers. Skipping in another order would skip the wrong samples: some would come twice, others never.
    """
    loader, parts = _reader_of(owner)
    named = getattr(loader, "iteration", epoch)
    if named != epoch and any(getattr(part, "skip_batches", 0) for part in parts):
        raise ValueError(
            f"accelerate continues within epoch {named}, but this {type(owner).__name__} would start epoch "
            f"{epoch}, whose order differs: call its set_epoch({named}) first, or take a loader from "
            "fastio.integrations"
        )


def _reader_of(owner: object) -> tuple[Any, list[object]]:
    """Return accelerate's loader that started last, with its parts; nothing if ``owner`` is not one of them."""
    accelerate = sys.modules.get("accelerate.state")
    loader: Any = None if accelerate is None else getattr(accelerate.GradientState(), "active_dataloader", None)
    parts = list(_parts(loader))
    return (loader, parts) if any(part is owner for part in parts) else (None, [])


def _parts(loader: Any) -> Iterator[object]:
    """Yield a DataLoader's samplers and datasets, from the outermost inwards."""
    for names in (("batch_sampler", "sampler"), ("dataset",)):
        part = loader
        for _ in range(_DEEPEST):
            part = next((getattr(part, name) for name in names if getattr(part, name, None) is not None), None)
            if part is None:
                break
            yield part
