"""Memory that this process may use, and how much of it is free, by machine and cgroup."""

from __future__ import annotations

from pathlib import Path

from fastio.machine.cgroups import ROOT, cgroup_folders, read_text

__all__ = ["available_memory", "usable_memory"]


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
