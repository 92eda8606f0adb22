"""What this process may use: CPUs by affinity, cgroup and SLURM; memory; its rank in a distributed job."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["available_cpus", "available_memory", "process_group_ranks", "rank_and_world", "usable_memory"]

_ROOT = Path("/")

# Where each launcher says who we are: torchrun, then SLURM's srun. A batch script has SLURM_PROCID=0 and SLURM_NTASKS
# too, although it runs alone: only srun's steps have a number of their own tasks.
_LAUNCHERS = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"))


def available_cpus(*, root: Path = _ROOT, environ: Mapping[str, str] = os.environ) -> int:
    """
    CPUs this process may really use: the least of affinity, cgroup quota and SLURM's allotment.

    ``os.cpu_count()`` names the CPUs of the machine, and a pool of that size inside a container or
    a SLURM step is throttled. A quota of 1.5 CPUs counts as 2. Never less than 1.
    """
    limits = [len(os.sched_getaffinity(0))]
    quota = _cgroup_cpus(root)
    if quota is not None:
        limits.append(math.ceil(quota))
    allotted = environ.get("SLURM_CPUS_PER_TASK", "")
    if allotted.isdecimal():
        limits.append(int(allotted))
    return max(1, min(limits))


def available_memory(*, root: Path = _ROOT) -> int:
    """
    Bytes that this process may still take: the least of what the machine has free and what its cgroups leave.

    Page cache counts as free, in the machine's figure as in the cgroups'. 0 where ``/proc/meminfo`` does not say.
    """
    limits = [_meminfo(root, "MemAvailable")]
    for folder in _cgroup_folders(root, "memory"):
        limits += _memory_left(folder)
    return max(0, min(limits))


def usable_memory(*, root: Path = _ROOT) -> int:
    """
    Bytes that this process may use at most, free or not: the least of the machine's memory and its cgroups' limits.

    The same whatever else runs. 0 where ``/proc/meminfo`` does not say.
    """
    limits = [_meminfo(root, "MemTotal")]
    for folder in _cgroup_folders(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _text(folder / name).strip()
            limits += [int(limit)] if limit.isdecimal() else []
    return min(limits)


def rank_and_world(
    rank: int | None = None, world_size: int | None = None, *, environ: Mapping[str, str] = os.environ
) -> tuple[int, int]:
    """
    This process's rank and the number of ranks.

    What is passed wins; then ``torch.distributed`` where the program has initialised it; then RANK
    and WORLD_SIZE (torchrun); then SLURM_PROCID and SLURM_STEP_NUM_TASKS (srun); otherwise 0 of 1. ValueError where
    the two do not make sense together.
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
    """Rank and number of ranks by ``torch.distributed``; None where the program has not initialised it."""
    # Importing torch.distributed here would cost what a program without it does not need.
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank()), int(distributed.get_world_size())


def _number(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError as exc:
        raise ValueError(
            f"environment {where}: expected whole numbers; correct them or pass rank= and world_size="
        ) from exc


def _checked(rank: int | None, world_size: int | None, where: str) -> tuple[int, int]:
    if rank is None or world_size is None:
        raise ValueError(f"{where}: pass both or neither, got rank={rank}, world_size={world_size}")
    if world_size < 1 or not 0 <= rank < world_size:
        raise ValueError(f"{where}: expected 0 <= rank < world_size, got rank {rank} of {world_size}")
    return rank, world_size


def _cgroup_cpus(root: Path) -> float | None:
    """The tightest CPU quota between this process's cgroup and the topmost one, or None."""
    quotas = [_quota(folder) for folder in _cgroup_folders(root, "cpu")]
    return min((quota for quota in quotas if quota is not None), default=None)


def _meminfo(root: Path, name: str) -> int:
    """Bytes of a line of ``/proc/meminfo``; 0 where there is none."""
    words = dict(line.split(":", 1) for line in _text(root / "proc/meminfo").splitlines() if ":" in line)
    return int(words.get(name, "0 kB").split()[0]) * 1024


def _cgroup_folders(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's cgroups and of those above them, which may limit this."""
    for base, group in _cgroups(root, controller):
        place = base / group
        for folder in (place, *place.parents):
            yield folder
            if folder == base:
                break


def _cgroups(root: Path, controller: str) -> list[tuple[Path, str]]:
    """Mount point and relative path of every cgroup of this process that may limit this, versions 1 and 2."""
    mounts = root / "sys/fs/cgroup"
    found = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:  # version 2 has one line, "0::/path"
            found.append((mounts, group.lstrip("/")))
        elif controller in controllers.split(","):
            # The folder bears the name of all controllers of the line or, by a link, of each one.
            found += [(mounts / name, group.lstrip("/")) for name in {controller, controllers}]
    return found


def _quota(folder: Path) -> float | None:
    """CPUs by ``cpu.max`` ("150000 100000" or "max 100000") or by ``cpu.cfs_quota_us`` (-1: unlimited)."""
    words = _text(folder / "cpu.max").split()
    if not words:
        words = [_text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]) > 0:
        return int(words[0]) / int(words[1])
    return None


def _memory_left(folder: Path) -> list[int]:
    """Bytes below the folder's limit, if it has one; file pages that can be dropped are not counted as used."""
    names = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
    for limit_name, used_name in names:
        limit, used = _text(folder / limit_name).strip(), _text(folder / used_name).strip()
        if limit.isdecimal() and used.isdecimal():
            counters = dict(line.split(" ", 1) for line in _text(folder / "memory.stat").splitlines() if " " in line)
            droppable = int(counters.get("inactive_file", counters.get("total_inactive_file", "0")))
            return [int(limit) - int(used) + droppable]
    return []


def _text(path: Path) -> str:
    """The file's text; nothing where it is missing or not ours to read, which means that it sets no limit."""
    try:
        return path.read_text()
    except OSError:
        return ""
