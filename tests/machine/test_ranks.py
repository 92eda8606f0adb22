"""Rank and world size, by arguments, torch.distributed and launchers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed

from fastio.machine import nodes_of_ranks, rank_and_world


def test_alone_by_default() -> None:
    """Without a launcher a process is rank 0 of 1."""
    assert rank_and_world(environ={}) == (0, 1)


def test_arguments_win() -> None:
    """What is passed is not overruled by the environment."""
    assert rank_and_world(1, 4, environ={"RANK": "0", "WORLD_SIZE": "2"}) == (1, 4)


def test_torchrun_before_slurm() -> None:
    """Under torchrun in a SLURM step, torchrun's pair counts."""
    slurm = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "8"}

    assert rank_and_world(environ={**slurm, "RANK": "5", "WORLD_SIZE": "8"}) == (5, 8)
    assert rank_and_world(environ=slurm) == (1, 2)


def test_a_batch_script_is_alone() -> None:
    """Without srun a script runs once, however many tasks its job may have: it reads all samples, not its "share"."""
    assert rank_and_world(environ={"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}) == (0, 1)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        # 3 tasks on a node and 1 on the next: how many a node has says nothing about ranks
        ({"SLURM_PROCID": "3", "SLURM_LOCALID": "0", "SLURM_NODEID": "1", "SLURM_STEP_NUM_TASKS": "4"}, (3, 4)),
        # one task on each of two nodes
        (
            {"SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NTASKS_PER_NODE": "1", "SLURM_STEP_NUM_TASKS": "2"},
            (1, 2),
        ),
        # one job of an array, whose others train on their own
        ({"SLURM_PROCID": "0", "SLURM_ARRAY_TASK_ID": "5", "SLURM_STEP_NUM_TASKS": "1"}, (0, 1)),
        # a step of 2 tasks within an allocation of 8
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "2"}, (1, 2)),
        # torchrun on 2 nodes, started by one task of srun on each
        (
            {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "RANK": "9", "WORLD_SIZE": "12", "LOCAL_RANK": "1"},
            (9, 12),
        ),
    ],
)
def test_tasks_and_nodes_in_any_number(environ: dict[str, str], expected: tuple[int, int]) -> None:
    """Ranks are counted over the step, whatever runs where."""
    assert expected == rank_and_world(environ=environ)


def test_a_rank_outside_of_its_step_is_refused() -> None:
    """Several steps that count their tasks together, as those of a heterogeneous job."""
    with pytest.raises(ValueError, match="SLURM_PROCID='5', SLURM_STEP_NUM_TASKS='4': expected 0 <= rank < world_size"):
        rank_and_world(environ={"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "4"})


def test_initialised_process_group_counts(tmp_path: Path) -> None:
    """torch.distributed, once initialised, knows better than the environment."""
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    try:
        assert rank_and_world(environ={"RANK": "1", "WORLD_SIZE": "2"}) == (0, 1)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("rank", "world_size", "environ"),
    [
        (2, 2, {}),
        (-1, 2, {}),
        (0, 0, {}),
        (0, None, {}),
        (None, None, {"RANK": "2", "WORLD_SIZE": "2"}),
        (None, None, {"RANK": "a", "WORLD_SIZE": "2"}),
    ],
)
def test_nonsense_is_refused(rank: int | None, world_size: int | None, environ: dict[str, str]) -> None:
    """A rank outside its world is one clear error that says where it came from."""
    with pytest.raises(ValueError, match=r"RANK=|rank= and world_size="):
        rank_and_world(rank, world_size, environ=environ)


# Which rank runs on which node, by the variables of srun.


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
