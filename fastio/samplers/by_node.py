"""Which slice of a step a rank takes: ranks of one node take neighbouring slices, which lie in the same blocks."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from fastio.machine import nodes_of_ranks, process_group_ranks
from fastio.samplers.share import Share

__all__ = ["slices_by_node"]

_KEY = "fastio/slices"


def slices_by_node(share: Share) -> list[int] | None:
    """
    Return the number of the slice that each rank takes; None if each takes its own.

    Two ranks must never take the same slice. So the first rank that asks decides for all, through the key-value store
    of the process group; without one, and for ranks that are not the process group's, each takes its own.
    """
    if share.processes == 1 or share.members or share.replication > 1 or process_group_ranks() != share.process:
        return None
    # Not imported here: a program with a process group has imported torch, and one without does not need it.
    store: Any = sys.modules["torch.distributed.distributed_c10d"]._get_default_store()
    own = json.dumps(_slices(nodes_of_ranks(share.world_size)))
    slices: list[int] | None = json.loads(store.compare_set(_KEY, "", own))
    return slices


def _slices(nodes: list[int] | None) -> list[int] | None:
    """Return the place of each rank when they are sorted by node, and by rank within a node."""
    if nodes is None:
        return None
    slices = np.empty(len(nodes), np.int64)
    slices[np.argsort(nodes, kind="stable")] = np.arange(len(nodes))
    return [int(number) for number in slices]
