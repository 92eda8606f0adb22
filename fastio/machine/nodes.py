"""The node of each rank of an srun step, by SLURM's variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

__all__ = ["nodes_of_ranks"]


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
