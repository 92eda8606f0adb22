"""CPUs by affinity, cgroup, SLURM and ranks on the node."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from fastio.machine import available_cpus, available_memory, usable_memory
from tests.machine.root_folder import written_root

CPUS = len(os.sched_getaffinity(0))


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
    assert available_cpus(root=written_root(tmp_path, files), environ={}) == 1


@pytest.mark.parametrize("text", ["max 100000\n", "", "nonsense\n", "100000 0\n"])
def test_no_quota_is_no_limit(tmp_path: Path, text: str) -> None:
    """What sets no quota leaves affinity alone."""
    root = written_root(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": text})

    assert available_cpus(root=root, environ={}) == CPUS


def test_half_a_cpu_more_is_a_cpu(tmp_path: Path) -> None:
    """A quota of 1.5 CPUs counts as 2, where there are 2."""
    root = written_root(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"})

    assert available_cpus(root=root, environ={}) == min(2, CPUS)


def test_slurm_allotment_is_a_limit(tmp_path: Path) -> None:
    """SLURM_CPUS_PER_TASK binds also where SLURM does not bind by affinity; other text does not."""
    assert available_cpus(root=tmp_path, environ={"SLURM_CPUS_PER_TASK": "1"}) == 1
    assert available_cpus(root=tmp_path, environ={"SLURM_CPUS_PER_TASK": "x"}) == CPUS


@pytest.fixture
def affinity(monkeypatch: pytest.MonkeyPatch) -> dict[int, Iterable[int]]:
    """The CPUs of this process (0) and of its parent, 16 of each unless a test says otherwise."""
    by_process: dict[int, Iterable[int]] = {0: range(16), os.getppid(): range(16)}

    def cpus_of(process: int) -> set[int]:
        if process not in by_process:
            raise ProcessLookupError(process)
        return set(by_process[process])

    monkeypatch.setattr(os, "sched_getaffinity", cpus_of)
    return by_process


@pytest.mark.usefixtures("affinity")
@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"LOCAL_WORLD_SIZE": "1"}, 16),
        ({"LOCAL_WORLD_SIZE": "4"}, 4),
        ({"LOCAL_WORLD_SIZE": "3"}, 5),
        ({"LOCAL_WORLD_SIZE": "32"}, 1),
        ({"LOCAL_WORLD_SIZE": "many"}, 16),
        ({"LOCAL_WORLD_SIZE": "0"}, 16),
        ({"LOCAL_WORLD_SIZE": "4", "SLURM_CPUS_PER_TASK": "8"}, 2),
        ({"LOCAL_WORLD_SIZE": "4", "SLURM_CPUS_PER_TASK": "8", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}, 2),
        ({"LOCAL_WORLD_SIZE": "4", "SLURM_CPUS_PER_TASK": "8", "SLURM_STEP_TASKS_PER_NODE": "4(x2),3"}, 8),
    ],
)
def test_ranks_of_a_node_share_its_cpus(tmp_path: Path, environ: dict[str, str], expected: int) -> None:
    """Each rank that torchrun has started on a node gets an equal part of what srun's task has there."""
    assert expected == available_cpus(root=tmp_path, environ=environ)


def test_ranks_share_a_quota(tmp_path: Path, affinity: dict[int, Iterable[int]]) -> None:
    """A container's quota is for all ranks in it."""
    root = written_root(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "800000 100000\n"})

    assert len(set(affinity[0])) == 16
    assert 2 == available_cpus(root=root, environ={"LOCAL_WORLD_SIZE": "4"})


def test_a_rank_that_is_bound_to_its_cpus_keeps_them(tmp_path: Path, affinity: dict[int, Iterable[int]]) -> None:
    """What a launcher has divided by affinity is not divided again, unless several ranks share it."""
    environ = {"LOCAL_WORLD_SIZE": "4"}
    affinity[0] = range(4)
    assert 4 == available_cpus(root=tmp_path, environ=environ)
    affinity[0] = range(8)  # a NUMA node, of two ranks
    assert 4 == available_cpus(root=tmp_path, environ=environ)


def test_a_parent_that_has_ended_is_no_limit(tmp_path: Path, affinity: dict[int, Iterable[int]]) -> None:
    """Then the CPUs of this process are divided."""
    del affinity[os.getppid()]

    assert 4 == available_cpus(root=tmp_path, environ={"LOCAL_WORLD_SIZE": "4"})


# Usable and free memory, by machine and cgroup.


def test_free_memory_is_the_machines(tmp_path: Path) -> None:
    """Without a cgroup, what the kernel calls available."""
    root = written_root(tmp_path, {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:  8 kB\n"})

    assert available_memory(root=root) == 8192


def test_usable_memory_is_the_machines(tmp_path: Path) -> None:
    """Without a cgroup, all memory of the machine, free or not; 0 where nobody says."""
    assert usable_memory(root=tmp_path) == 0
    assert usable_memory(root=written_root(tmp_path, {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:  8 kB\n"})) == 9216


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

    assert usable_memory(root=written_root(tmp_path, {**base, **files})) == 5000


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
    root = written_root(tmp_path, {"proc/meminfo": "MemAvailable: 1000 kB\n", **files})

    assert available_memory(root=root) == 1500


def test_nothing_said_is_nothing_free(tmp_path: Path) -> None:
    """Where the kernel does not say, zero; never less."""
    assert available_memory(root=tmp_path) == 0
    assert available_memory() > 0
