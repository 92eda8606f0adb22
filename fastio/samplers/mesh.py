"""Which part of the samples a process of a DeviceMesh gets: that of its place along the dimensions of data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["mesh_members", "mesh_ranks"]

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
