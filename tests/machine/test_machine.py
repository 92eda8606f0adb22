"""CPUs by affinity, cgroup and SLURM; rank and world size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch.distributed

from fastio.machine import available_cpus, available_memory, rank_and_world, usable_memory

CPUS = len(os.sched_getaffinity(0))


def machine(tmp_path: Path, files: dict[str, str]) -> Path:
    """A root folder with these files."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_affinity_is_a_limit(tmp_path: Path) -> None:
    """Without a quota, the CPUs of the affinity mask count."""
    assert available_cpus(root=tmp_path, environ={}) == CPUS


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "50000 100000\n"}, id="v2"),
        pytest.param({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "100000 100000\n"}, id="v2 parent"),
        pytest.param({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100000 100000\n"}, id="v2 container"),
        pytest.param(
            {
                "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/j\n0::/\n",
                "sys/fs/cgroup/cpu,cpuacct/j/cpu.cfs_quota_us": "100000\n",
                "sys/fs/cgroup/cpu,cpuacct/j/cpu.cfs_period_us": "100000\n",
            },
            id="v1",
        ),
    ],
)
def test_cgroup_quota_is_a_limit(tmp_path: Path, files: dict[str, str]) -> None:
    """A quota of up to one CPU, on this cgroup or above it, gives one."""
    assert available_cpus(root=machine(tmp_path, files), environ={}) == 1


@pytest.mark.parametrize("text", ["max 100000\n", "", "nonsense\n", "100000 0\n"])
def test_no_quota_is_no_limit(tmp_path: Path, text: str) -> None:
    """What sets no quota leaves affinity alone."""
    root = machine(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": text})

    assert available_cpus(root=root, environ={}) == CPUS


def test_half_a_cpu_more_is_a_cpu(tmp_path: Path) -> None:
    """A quota of 1.5 CPUs counts as 2, where there are 2."""
    root = machine(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"})

    assert available_cpus(root=root, environ={}) == min(2, CPUS)


def test_slurm_allotment_is_a_limit(tmp_path: Path) -> None:
    """SLURM_CPUS_PER_TASK binds also where SLURM does not bind by affinity; other text does not."""
    assert available_cpus(root=tmp_path, environ={"SLURM_CPUS_PER_TASK": "1"}) == 1
    assert available_cpus(root=tmp_path, environ={"SLURM_CPUS_PER_TASK": "x"}) == CPUS


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


def test_free_memory_is_the_machines(tmp_path: Path) -> None:
    """Without a cgroup, what the kernel calls available."""
    assert available_memory(root=machine(tmp_path, {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:  8 kB\n"})) == 8192


def test_usable_memory_is_the_machines(tmp_path: Path) -> None:
    """Without a cgroup, all memory of the machine, free or not; 0 where nobody says."""
    assert usable_memory(root=tmp_path) == 0
    assert usable_memory(root=machine(tmp_path, {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:  8 kB\n"})) == 9216


@pytest.mark.parametrize(
    "files",
    [
        {"sys/fs/cgroup/a/memory.max": "5000\n", "sys/fs/cgroup/a/b/memory.max": "max\n"},
        {"sys/fs/cgroup/a/memory.max": "9000\n", "sys/fs/cgroup/a/b/memory.max": "5000\n"},
        {"proc/self/cgroup": "4:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "5000\n"},
    ],
    ids=["v2 parent", "v2", "v1"],
)
def test_a_cgroups_limit_is_usable_memory(tmp_path: Path, files: dict[str, str]) -> None:
    """The tightest limit on the way up counts, whatever is in use below it."""
    base = {"proc/meminfo": "MemTotal: 100 kB\n", "proc/self/cgroup": "0::/a/b\n"}

    assert usable_memory(root=machine(tmp_path, {**base, **files})) == 5000


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": "5000\n",
                "sys/fs/cgroup/a/memory.current": "4000\n",
                "sys/fs/cgroup/a/memory.stat": "anon 3000\ninactive_file 500\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/b/memory.current": "10\n",
            },
            id="v2 parent",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "5:memory:/x\n4:cpu:/j\n",
                "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "5000\n",
                "sys/fs/cgroup/memory/x/memory.usage_in_bytes": "4000\n",
                "sys/fs/cgroup/memory/x/memory.stat": "total_inactive_file 500\n",
            },
            id="v1",
        ),
    ],
)
def test_a_cgroup_limits_memory(tmp_path: Path, files: dict[str, str]) -> None:
    """What is left below the limit, where pages of files that can be dropped count as free."""
    root = machine(tmp_path, {"proc/meminfo": "MemAvailable: 1000 kB\n", **files})

    assert available_memory(root=root) == 1500


def test_nothing_said_is_nothing_free(tmp_path: Path) -> None:
    """Where the kernel does not say, zero; never less."""
    assert available_memory(root=tmp_path) == 0
    assert available_memory() > 0
