"""Which rank runs on which node, by the variables of srun."""

from __future__ import annotations

import pytest

from fastio.machine import nodes_of_ranks


def srun(tasks: str, distribution: str, *, rank: int, node: int, count: int, **more: str) -> dict[str, str]:
    """The variables of one task."""
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_NODEID": str(node),
        "SLURM_STEP_NUM_TASKS": str(count),
        "SLURM_STEP_TASKS_PER_NODE": tasks,
        "SLURM_DISTRIBUTION": distribution,
        **more,
    }


@pytest.mark.parametrize(
    ("tasks", "distribution", "nodes"),
    [
        ("4(x2)", "cyclic", [0, 1, 0, 1, 0, 1, 0, 1]),
        ("4(x2)", "cyclic:block,NoPack", [0, 1, 0, 1, 0, 1, 0, 1]),
        ("3,1", "cyclic", [0, 1, 0, 0]),
        ("1,3(x2)", "cyclic", [0, 1, 2, 1, 2, 1, 2]),
        ("4(x2)", "plane=2", [0, 0, 1, 1, 0, 0, 1, 1]),
    ],
)
def test_tasks_in_turn(tasks: str, distribution: str, nodes: list[int]) -> None:
    """One at a time or a plane of them; nodes that are full are passed over."""
    for rank, node in enumerate(nodes):
        environ = srun(tasks, distribution, rank=rank, node=node, count=len(nodes))
        assert nodes == nodes_of_ranks(len(nodes), environ=environ)


def test_the_size_of_planes_may_stand_alone() -> None:
    """Older srun names it in a variable of its own."""
    environ = srun("4(x2)", "plane", rank=2, node=1, count=8, SLURM_DIST_PLANESIZE="2")

    assert [0, 0, 1, 1, 0, 0, 1, 1] == nodes_of_ranks(8, environ=environ)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"RANK": "1", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "GROUP_RANK": "0"},
        srun("4(x2)", "block", rank=1, node=0, count=8),
        srun("4(x2)", "arbitrary", rank=1, node=1, count=8),
        srun("4(x2)", "plane=4", rank=1, node=0, count=8),
        srun("1(x8)", "cyclic", rank=1, node=1, count=8),
        srun("8", "cyclic", rank=1, node=0, count=8),
        srun("4(x2)", "cyclic", rank=1, node=0, count=8),
        srun("4(x2)", "cyclic", rank=1, node=1, count=4),
        srun("4(x", "cyclic", rank=1, node=1, count=8),
        srun("4(x2)", "plane=x", rank=1, node=0, count=8),
        srun("4(x2)", "cyclic", rank=1, node=1, count=8, RANK="3"),
    ],
)
def test_when_in_doubt_nothing_is_said(environ: dict[str, str]) -> None:
    """Torchrun, blocks, one task or node, nodes that do not fit, ranks of another launcher within the step."""
    assert nodes_of_ranks(8, environ=environ) is None
