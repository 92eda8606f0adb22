"""CPUs by affinity, cgroup and SLURM."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastio.machine import available_cpus
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
