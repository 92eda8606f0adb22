"""CPUs that this process may use, by affinity, cgroup, SLURM and the ranks on its node."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path

from fastio.machine.cgroups import ROOT, cgroup_folders, read_text

__all__ = ["available_cpus"]


def available_cpus(*, root: Path = ROOT, environ: Mapping[str, str] = os.environ) -> int:
    """
    Return how many CPUs this process may really use: the least of affinity, cgroup quota and SLURM's allotment.

    ``os.cpu_count()`` counts the CPUs of the machine; a pool of that size is throttled inside a container or a SLURM
    step. A quota of 1.5 CPUs counts as 2. Ranks that torchrun has started on one node (LOCAL_WORLD_SIZE) share quota,
    allotment and the CPUs of their launcher equally. Never less than 1.
    """
    own = len(os.sched_getaffinity(0))
    shared = [own]
    quota = _cgroup_cpus(root)
    if quota is not None:
        shared.append(math.ceil(quota))
    allotted = environ.get("SLURM_CPUS_PER_TASK", "")
    if allotted.isdecimal():
        shared.append(int(allotted))
    ranks = environ.get("LOCAL_WORLD_SIZE", "")
    if ranks.isdecimal() and int(ranks) > 1 and not _are_tasks(ranks, environ):
        shared[0] = _cpus_of_parent() or own  # own: the launcher may have bound each rank to its part already
        return max(1, min(own, min(shared) // int(ranks)))
    return max(1, min(shared))


def _are_tasks(ranks: str, environ: Mapping[str, str]) -> bool:
    """Return whether srun has started the ranks of a node, as a task each: SLURM gives CPUs to each task."""
    return ranks in re.sub(r"\(x\d+\)", "", environ.get("SLURM_STEP_TASKS_PER_NODE", "")).split(",")


def _cpus_of_parent() -> int | None:
    """Return how many CPUs the parent of this process may use; None if it cannot be asked."""
    try:
        return len(os.sched_getaffinity(os.getppid()))
    except OSError:
        return None


def _cgroup_cpus(root: Path) -> float | None:
    """Return the tightest CPU quota between this process's cgroup and the topmost one, or None."""
    quotas = [_quota(folder) for folder in cgroup_folders(root, "cpu")]
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota(folder: Path) -> float | None:
    """Return the CPUs of ``cpu.max`` ("150000 100000" or "max 100000") or ``cpu.cfs_quota_us`` (-1: unlimited)."""
    words = read_text(folder / "cpu.max").split()
    if not words:
        words = [read_text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]) > 0:
        return int(words[0]) / int(words[1])
    return None
