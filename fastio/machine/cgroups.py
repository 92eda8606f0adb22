"""This process's cgroups, versions 1 and 2: the folders whose files limit CPUs and memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

__all__ = ["ROOT", "cgroup_folders", "read_text"]

ROOT = Path("/")


def cgroup_folders(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's cgroups and of those above them, any of which may limit ``controller``."""
    for base, group in _cgroups(root, controller):
        own = base / group
        for folder in (own, *own.parents):
            yield folder
            if folder == base:
                break


def read_text(path: Path) -> str:
    """Return the file's text, or "" if it is missing or may not be read: then it sets no limit."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _cgroups(root: Path, controller: str) -> list[tuple[Path, str]]:
    """Return the mount point and relative path of each cgroup of this process that has this controller."""
    mounts = root / "sys/fs/cgroup"
    groups = []
    for line in read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:  # version 2 has one line, "0::/path"
            groups.append((mounts, group.lstrip("/")))
        elif controller in controllers.split(","):
            # The folder is named after all controllers of the line, or a link after each of them.
            groups += [(mounts / name, group.lstrip("/")) for name in {controller, controllers}]
    return groups
