"""Share: this process's part of all samples, by rank, mesh and node; and what ranks repeat or leave out."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fastio.machine import nodes_of_ranks, process_group_ranks, rank_and_world
from fastio.samplers.batches import Batches, ElasticSampler
from fastio.types.options import explains_fields

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

__all__ = [
    "Ranks",
    "Share",
    "check_resumed_epoch",
    "mesh_ranks",
    "say_uneven",
    "slices_by_node",
]


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


@explains_fields
@dataclass(frozen=True, slots=True)
class Ranks:
    """
    Which share of the samples a process gets::

        FastLoader("train.lmdb", 256, shuffle=True, ranks=Ranks(mesh=mesh))

    * ``rank`` and ``world_size``: by default those of ``torch.distributed``, torchrun or srun; else 0 of 1.
    * ``mesh``: a DeviceMesh that gives both: processes that differ only in dimensions such as "tp" get the same
      samples.
    * ``replication``: so many processes in a row get the same samples.

    More: "Ranks, nodes and meshes" in fastio/guide/loading.md.
    """

    rank: int | None = None
    world_size: int | None = None
    mesh: DeviceMesh | None = None
    replication: int = 1

    @classmethod
    def of(cls, ranks: Ranks | None, rank: int | None, world_size: int | None) -> Ranks:
        """Return ``ranks`` with what was passed beside it. Raises ValueError if both say it."""
        if ranks is None:
            return cls(rank, world_size)
        if not isinstance(ranks, Ranks):
            raise TypeError(f"ranks={ranks!r}: expected fastio.Ranks, such as Ranks(rank=0, world_size=1)")
        if rank is None and world_size is None:
            return ranks
        if ranks.rank is not None or ranks.world_size is not None:
            raise ValueError(f"rank={rank!r}, world_size={world_size!r}: ranks= says that too: drop it here")
        return replace(ranks, rank=rank, world_size=world_size)

    def share(self) -> Share:
        """Return the share that they mean. Raises ValueError if they contradict each other."""
        return Share.of(self.rank, self.world_size, mesh=self.mesh, replication=self.replication)

    def check_own(self, own: tuple[int, int], sampler: str, advice: str) -> None:
        """Raise ValueError if they mean another rank than the user's ``sampler``, which knows its ``own``."""
        if self == Ranks():
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


# Which part of the samples a process of a DeviceMesh gets: that of its place along the dimensions of data.

# Dimensions along which processes take different samples, as torch, torchtitan, accelerate and Lightning name them.
_DATA = (
    *("dp", "ddp", "fsdp", "hsdp", "data", "data_parallel", "batch", "dp_replicate", "dp_shard"),
    *("replicate", "shard", "dp_shard_mod_ep", "dp_shard_in_ep"),
)
# Dimensions along which they take the same samples.
_MODEL = (
    *("tp", "tensor", "tensor_parallel", "mp", "model", "model_parallel", "cp", "context", "context_parallel"),
    *("sp", "sequence", "sequence_parallel", "pp", "pipe", "pipeline", "pipeline_parallel", "stage"),
)


def mesh_ranks(mesh: DeviceMesh) -> tuple[int, int]:
    """
    Return this process's rank along the dimensions of data of a mesh, and the number of such ranks.

    A mesh of one dimension is one of data unless its name says otherwise; of several, those are that are named like
    "dp", "data", "fsdp", "dp_replicate" and "dp_shard". Processes that differ only along other dimensions, such as
    tensor-parallel neighbours, get equal ranks. Raises TypeError for what is no mesh, and ValueError if no dimension is
    one of data, or this process is not part of the mesh.
    """
    if not hasattr(mesh, "mesh_dim_names") or not hasattr(mesh, "get_coordinate"):
        raise TypeError(f"mesh={mesh!r}: expected a DeviceMesh, as torch.distributed.init_device_mesh returns it")
    names: tuple[str, ...] | None = mesh.mesh_dim_names
    sizes = tuple(mesh.shape)
    place = mesh.get_coordinate()
    if place is None:
        raise ValueError(f"mesh={_drawn(names, sizes)}: this process is not part of it: build the loader where it is")
    known = [dim for dim, name in enumerate(names or ()) if name in _DATA]
    if not known and len(sizes) == 1 and (names is None or names[0] not in _MODEL):
        known = [0]
    if not known:
        listed = "dimensions without names" if names is None else f"only {', '.join(map(repr, names))}"
        raise ValueError(
            f"mesh={_drawn(names, sizes)} has {listed}: which of them take different samples? Name one 'dp', pass that "
            "one alone (mesh['dp']), or pass replication= instead"
        )
    rank, world_size = 0, 1
    for dim in known:
        rank, world_size = rank * sizes[dim] + place[dim], world_size * sizes[dim]
    return int(rank), int(world_size)


def mesh_members(mesh: DeviceMesh) -> tuple[int, ...]:
    """Return the ranks, among all processes, of those that are part of a mesh."""
    members: Any = mesh.mesh
    return tuple(sorted(members.flatten().tolist()))


def _drawn(names: tuple[str, ...] | None, sizes: tuple[int, ...]) -> str:
    """Return a mesh as (dp=2, tp=4)."""
    parts = [str(size) for size in sizes] if names is None else [f"{n}={s}" for n, s in zip(names, sizes, strict=True)]
    return f"({', '.join(parts)})"


# Which slice of a step a rank takes: ranks of one node take neighbouring slices, which lie in the same blocks.

_KEY = "fastio/slices"


def slices_by_node(share: Share) -> list[int] | None:
    """
    Return the number of the slice that each rank takes; None if each takes its own.

    Two ranks must never take the same slice. So the first rank that asks decides for all, through the key-value store
    of the process group; without one, and for ranks that are not the process group's, each takes its own.
    """
    if share.processes == 1 or share.members or share.replication > 1 or process_group_ranks() != share.process:
        return None
    # Not imported here: a program with a process group has imported torch, and one without does not need it.
    store: Any = sys.modules["torch.distributed.distributed_c10d"]._get_default_store()
    own = json.dumps(_slices(nodes_of_ranks(share.world_size)))
    slices: list[int] | None = json.loads(store.compare_set(_KEY, "", own))
    return slices


def _slices(nodes: list[int] | None) -> list[int] | None:
    """Return the place of each rank when they are sorted by node, and by rank within a node."""
    if nodes is None:
        return None
    slices = np.empty(len(nodes), np.int64)
    slices[np.argsort(nodes, kind="stable")] = np.arange(len(nodes))
    return [int(number) for number in slices]


# Says once what an epoch repeats or leaves out so that all ranks get equal batches.

log = logging.getLogger(__name__)

_said: set[str] = set()  # per process: a loader that is rebuilt for each epoch does not repeat it


def say_uneven(path: str, planned: Batches, sampler: ElasticSampler, *, is_rest: bool = False) -> None:
    """
    Log on rank 0 how many samples an epoch repeats or leaves out.

    ``planned`` is the whole epoch, or with ``is_rest`` what is left of it after a resume. Logged as a warning, which
    Python prints by default, once per configuration. If ``drop_last`` leaves out a short batch of a single process,
    that is only INFO: it was asked for. An epoch without any batch is always a warning.
    """
    rules = sampler.configuration() | sampler.division_options()
    samples = rules.get("samples", 0)
    is_empty = len(planned) == 0 and samples > 0 and not is_rest
    if sampler.rank != 0 or not (planned.repeated or planned.dropped or is_empty):
        return
    parts = [f"repeats {planned.repeated}"] if planned.repeated else []
    parts += [f"leaves out {planned.dropped}"] if planned.dropped else []
    options = ", ".join(f"{name}={rules[name]!r}" for name in ("batch_size", "uneven", "drop_last") if name in rules)
    ranks = "1 rank" if sampler.world_size == 1 else f"{sampler.world_size} ranks"
    message = f"{path}: {samples} samples for {ranks} ({options}): "
    period = "the rest of this epoch" if is_rest else "each epoch"
    message += "the epoch has no batch at all" if is_empty else f"{period} {' and '.join(parts)} of them"
    as_asked = sampler.world_size == 1 and not planned.repeated and not is_empty
    if message not in _said:
        _said.add(message)
        log.log(logging.INFO if as_asked else logging.WARNING, "%s", message)
