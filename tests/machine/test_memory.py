"""Usable and free memory, by machine and cgroup."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastio.machine import available_memory, usable_memory
from tests.machine.root_folder import written_root


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
