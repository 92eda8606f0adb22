"""What this process may use of its machine, CPUs and memory, and which rank of a distributed job it is."""

from fastio.machine.cpus import available_cpus
from fastio.machine.memory import available_memory, usable_memory
from fastio.machine.nodes import nodes_of_ranks
from fastio.machine.ranks import process_group_ranks, rank_and_world

__all__ = [
    "available_cpus",
    "available_memory",
    "nodes_of_ranks",
    "process_group_ranks",
    "rank_and_world",
    "usable_memory",
]
