"""Slices of a step by node: what they save, and that no sample comes twice or never."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch.distributed

from fastio.samplers import by_node
from fastio.samplers.batches import OrderSampler
from fastio.samplers.by_node import slices_by_node
from fastio.samplers.lanes import LaneOrder, Lanes
from fastio.samplers.order import Division
from fastio.samplers.share import Share

CYCLIC = {
    "SLURM_PROCID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_DISTRIBUTION": "cyclic",
}


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Asks as one of four ranks, which share a key-value store."""
    store = torch.distributed.HashStore()
    module = SimpleNamespace(_get_default_store=lambda: store)
    monkeypatch.setitem(by_node.sys.modules, "torch.distributed.distributed_c10d", module)

    def asked(rank: int, environ: dict[str, str], share: Share | None = None) -> list[int] | None:
        monkeypatch.setattr(by_node, "process_group_ranks", lambda: (rank, 4))
        for name in CYCLIC:
            monkeypatch.delenv(name, raising=False)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        return slices_by_node(share or Share(rank, 4, is_found=True))

    return asked


def test_ranks_of_a_node_are_neighbours(ask: Any) -> None:
    """Ranks 0 and 2 are on one node, 1 and 3 on the other; whatever a later rank may be told, the first decides."""
    assert [0, 2, 1, 3] == ask(1, CYCLIC)
    assert [0, 2, 1, 3] == ask(0, {})


def test_the_first_rank_decides_for_its_own_slice_too(ask: Any) -> None:
    """Two ranks that saw different variables would take the same samples."""
    assert ask(0, {}) is None
    assert ask(1, CYCLIC) is None


@pytest.mark.parametrize(
    "share",
    [Share(1, 8, is_found=False), Share(0, 2, is_found=True, replication=2), Share(1, 4, False, members=(1, 3))],
)
def test_other_ranks_take_their_own(ask: Any, share: Share) -> None:
    """Those passed by hand, of a mesh, or that are shared."""
    assert ask(1, CYCLIC, share) is None


@pytest.mark.parametrize("consumed", [None, 37])
def test_each_sample_comes_once(consumed: int | None) -> None:
    """The ranks together have what they have without; the last step, with its repetitions, goes by rank."""

    def plans(slices: list[int] | None) -> list[Any]:
        planned = []
        for rank in range(4):
            sampler = OrderSampler(
                Division(1000, 7, 4), rank=rank, shuffle=True, seed=3, sizes=lambda: np.full(1000, 1 << 16)
            )
            sampler.adopt({"kind": "lanes", "lanes": 4, "rounds": 8, "window": 2})
            sampler.slices = slices
            planned.append(sampler.plan(1, consumed))
        return planned

    own, by_node = plans(None), plans([0, 2, 1, 3])
    full = len(own[0].indices) // 7 * 7

    assert [plan.indices[:full].tolist() for plan in by_node] == [own[n].indices[:full].tolist() for n in (0, 2, 1, 3)]
    assert [plan.indices[full:].tolist() for plan in by_node] == [plan.indices[full:].tolist() for plan in own]
    assert [plan.padding for plan in by_node] == [plan.padding for plan in own]


def test_a_node_reads_fewer_blocks() -> None:
    """128 ranks in 64 lanes on 16 nodes, tasks in turn: a block is read by 2.3 nodes, or by 1.2."""
    division, nodes = Division(50_000, 8, 128), np.arange(128) % 16
    order = LaneOrder(Lanes(64, 20), 50_000, seed=0, epoch=0)
    by_node = np.empty(128, np.int64)
    by_node[np.argsort(nodes, kind="stable")] = np.arange(128)
    shares, full = order.shares(division, range(128)), division.full_steps * division.batch_size

    def reads(slices: Any) -> float:
        taken = np.concatenate((shares[slices, :full], shares[:, full:]), axis=1)  # the last step goes by rank
        blocks = np.searchsorted(order.edges, order.order[taken], side="right")
        return sum(len(np.unique(blocks[nodes == node])) for node in range(16)) / (len(order.edges) - 1)

    assert 2.3 == pytest.approx(reads(np.arange(128)), abs=0.05)
    assert 1.2 == pytest.approx(reads(by_node), abs=0.05)
