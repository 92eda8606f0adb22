"""CPUs and memory that this process may use, by machine, affinity, cgroup, SLURM and the ranks on its node."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from fastio.machine.system import cpus_of

__all__ = [
    "available_cpus",
    "available_memory",
    "usable_memory",
]


# This process's cgroups, versions 1 and 2: the folders whose files limit CPUs and memory.

ROOT = Path("/")


def cgroup_folders(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's cgroups and of those above them, any of which may limit ``controller``."""
    for base, group in _cgroups(root, controller):
        own = base / group
        for folder in (own, *own.parents):
            yield folder
            if folder == base:
                break


def read_text(path: Path) -> str:
    """Return the file's text, or "" if it is missing or may not be read: then it sets no limit."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _cgroups(root: Path, controller: str) -> list[tuple[Path, str]]:
    """Return the mount point and relative path of each cgroup of this process that has this controller."""
    mounts = root / "sys/fs/cgroup"
    groups = []
    for line in read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:  # version 2 has one line, "0::/path"
            groups.append((mounts, group.lstrip("/")))
        elif controller in controllers.split(","):
            # The folder is named after all controllers of the line, or a link after each of them.
            groups += [(mounts / name, group.lstrip("/")) for name in {controller, controllers}]
    return groups


def available_cpus(*, root: Path = ROOT, environ: Mapping[str, str] = os.environ) -> int:
    """
    Return how many CPUs this process may really use: the least of affinity, cgroup quota and SLURM's allotment.

    ``os.cpu_count()`` counts the CPUs of the machine; a pool of that size is throttled inside a container or a SLURM
    step. A quota of 1.5 CPUs counts as 2. Ranks that torchrun has started on one node (LOCAL_WORLD_SIZE) share quota,
    allotment and the CPUs of their launcher equally. Never less than 1.
    """
    own = cpus_of(0) or os.cpu_count() or 1
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
        return cpus_of(os.getppid())
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


# Memory that this process may use, and how much of it is free, by machine and cgroup.


def available_memory(*, root: Path = ROOT) -> int:
    """
    Return how many bytes this process may still take: the least of what the machine has free and its cgroups leave.

    Page cache counts as free, in the machine's figure and in the cgroups'. Returns 0 if ``/proc/meminfo`` does not
    tell.
    """
    limits = [_meminfo(root, "MemAvailable")]
    for folder in cgroup_folders(root, "memory"):
        limits += _memory_left(folder)
    return max(0, min(limits))


def usable_memory(*, root: Path = ROOT) -> int:
    """
    Return the most bytes this process may use, free or not: the least of the machine's memory and its cgroups'
    limits.

    The number does not depend on what else runs. Returns 0 if ``/proc/meminfo`` does not tell.
    """
    limits = [_meminfo(root, "MemTotal")]
    for folder in cgroup_folders(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = read_text(folder / name).strip()
            limits += [int(limit)] if limit.isdecimal() else []
    return min(limits)


def _meminfo(root: Path, name: str) -> int:
    """Return the bytes in a line of ``/proc/meminfo``; 0 if there is no such line."""
    words = dict(line.split(":", 1) for line in read_text(root / "proc/meminfo").splitlines() if ":" in line)
    return int(words.get(name, "0 kB").split()[0]) * 1024


def _memory_left(folder: Path) -> list[int]:
    """
    Return the bytes left below the folder's limit, if it has one; file pages that can be dropped do not count as
    used.
    """
    names = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
    for limit_name, used_name in names:
        limit, used = read_text(folder / limit_name).strip(), read_text(folder / used_name).strip()
        if limit.isdecimal() and used.isdecimal():
            lines = read_text(folder / "memory.stat").splitlines()
            counters = dict(line.split(" ", 1) for line in lines if " " in line)
            droppable = int(counters.get("inactive_file", counters.get("total_inactive_file", "0")))
            return [int(limit) - int(used) + droppable]
    return []
