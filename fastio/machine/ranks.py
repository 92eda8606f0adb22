"""This process's rank in a distributed job, by torch.distributed, torchrun or SLURM."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from numbers import Integral

__all__ = ["process_group_ranks", "rank_and_world"]

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
