"""This process's rank in a distributed job, by torch.distributed, torchrun or SLURM, and the node of each rank."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from numbers import Integral

__all__ = [
    "nodes_of_ranks",
    "process_group_ranks",
    "rank_and_world",
]


# The variables of each launcher: torchrun, then SLURM's srun. A batch script has SLURM_PROCID=0 and SLURM_NTASKS too,
# although it runs alone: only steps of srun have SLURM_STEP_NUM_TASKS.
_LAUNCHERS = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"))


def rank_and_world(
    rank: int | None = None, world_size: int | None = None, *, environ: Mapping[str, str] = os.environ
) -> tuple[int, int]:
    """
    Return this process's rank and the number of ranks.

    Taken from the arguments; else from ``torch.distributed``, if the program has initialised it; else from RANK and
    WORLD_SIZE (torchrun); else from SLURM_PROCID and SLURM_STEP_NUM_TASKS (srun); else 0 of 1. Raises ValueError if
    the two contradict each other.
    """
    if rank is not None or world_size is not None:
        return _checked(rank, world_size, "rank= and world_size=")
    known = process_group_ranks()
    if known is not None:
        return known
    for rank_name, world_name in _LAUNCHERS:
        if rank_name in environ and world_name in environ:
            where = f"{rank_name}={environ[rank_name]!r}, {world_name}={environ[world_name]!r}"
            return _checked(_number(environ[rank_name], where), _number(environ[world_name], where), where)
    return 0, 1


def process_group_ranks() -> tuple[int, int] | None:
    """Return rank and number of ranks from ``torch.distributed``; None if the program has not initialised it."""
    # Not imported here: programs that do not use torch.distributed should not pay for it.
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank()), int(distributed.get_world_size())


def _number(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError as exc:
        raise ValueError(
            f"environment {where}: expected whole numbers: correct them, or pass rank= and world_size="
        ) from exc


def _checked(rank: int | None, world_size: int | None, where: str) -> tuple[int, int]:
    if rank is None or world_size is None:
        raise ValueError(f"{where}: pass both or neither, got rank={rank}, world_size={world_size}")
    if not (isinstance(rank, Integral) and isinstance(world_size, Integral)):
        raise ValueError(f"{where}: expected whole numbers, got rank={rank!r}, world_size={world_size!r}")
    if world_size < 1 or not 0 <= rank < world_size:
        raise ValueError(f"{where}: expected 0 <= rank < world_size, got rank {rank} of {world_size}")
    return rank, world_size


# The node of each rank of an srun step, by SLURM's variables.


def nodes_of_ranks(world_size: int, *, environ: Mapping[str, str] = os.environ) -> list[int] | None:
    """
    Return the number of the node on which each of ``world_size`` ranks runs; None if neighbours in rank run on one.

    They do under torchrun, and under srun unless it was told to distribute tasks "cyclic" (one on each node in turn)
    or "plane=n" (n at a time). None also for other distributions, for ranks that are not srun's tasks, and where the
    variables contradict each other or this process's own node.
    """
    tasks = _tasks_per_node(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    if tasks is None or sum(tasks) != world_size or environ.get("SLURM_STEP_NUM_TASKS") != str(world_size):
        return None
    if environ.get("RANK", environ.get("SLURM_PROCID")) != environ.get("SLURM_PROCID"):
        return None
    at_a_time = _at_a_time(environ)
    if at_a_time is None:
        return None
    nodes: list[int] = []
    left = list(tasks)
    while len(nodes) < world_size:
        for node, free in enumerate(left):
            nodes += [node] * min(at_a_time, free)
            left[node] -= min(at_a_time, free)
    own = environ.get("SLURM_PROCID", ""), environ.get("SLURM_NODEID", "")
    is_right = own[0].isdigit() and int(own[0]) < world_size and str(nodes[int(own[0])]) == own[1]
    return nodes if is_right and nodes != sorted(nodes) else None


def _at_a_time(environ: Mapping[str, str]) -> int | None:
    """Return how many tasks srun puts on a node before it goes to the next; None for other distributions."""
    # "cyclic:block,NoPack": what follows a colon is about sockets and cores.
    kind, _, size = re.split("[:,]", environ.get("SLURM_DISTRIBUTION", ""), maxsplit=1)[0].lower().partition("=")
    if kind == "cyclic":
        return 1
    size = size or environ.get("SLURM_DIST_PLANESIZE", "")
    return int(size) if kind == "plane" and size.isdigit() and int(size) > 0 else None


def _tasks_per_node(text: str) -> list[int] | None:
    """Return the number of tasks of each node from SLURM's form, such as "4(x2),3"."""
    tasks: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match is None:
            return None
        tasks += [int(match[1])] * int(match[2] or 1)
    return tasks
