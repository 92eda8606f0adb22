"""What this process may use of its machine, CPUs and memory, and which rank of a distributed job it is."""

from fastio.machine.ranks import nodes_of_ranks, process_group_ranks, rank_and_world
from fastio.machine.resources import available_cpus, available_memory, usable_memory

__all__ = [
    "available_cpus",
    "available_memory",
    "nodes_of_ranks",
    "process_group_ranks",
    "rank_and_world",
    "usable_memory",
]
