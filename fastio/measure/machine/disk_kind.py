"""What kind of disk lies under a path, as the kernel tells it: an NVMe drive, another flash drive, a rotating disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

__all__ = ["DiskKind", "disk_kind", "file_system", "kind_in_words", "kind_of_device", "mounted_from"]

_DEVICES = Path("/sys/dev/block")
_MOUNTS = Path("/proc/self/mountinfo")

DiskKind = Literal["nvme", "flash", "rotating"]

_WORDS: dict[DiskKind | None, str] = {
    "nvme": "an NVMe drive",
    "flash": "a flash drive without NVMe",
    "rotating": "a rotating disk",
    None: "of a kind that the kernel does not tell",
}
# What a machine in a cloud, or a hypervisor, calls a disk whose medium lies elsewhere.
_ELSEWHERE = (
    "Amazon Elastic Block Store",
    "Google",
    "MSFT NVMe Accelerator",
    "Msft",
    "QEMU",
    "VBOX",
    "VMware",
    "nvme_card-pd",
)


def disk_kind(path: str | Path) -> DiskKind | None:
    """
    The kind of the disk that ``path`` lies on; None where the kernel does not tell, or tells of a virtual one.

    Partitions, LVM, RAID and encryption are followed to the disks below, which must be of one kind. None for network
    file systems, memory, virtio and other disks of virtual machines, NVMe over a network, and network volumes that
    clouds attach as NVMe drives: what their medium is stands nowhere.
    """
    try:
        number = Path(path).stat().st_dev
        if os.major(number) == 0:  # a file system without a device of its own: btrfs, network, memory
            found = Path(mounted_from(Path(path).resolve(), _MOUNTS.read_text())).stat()
            number = found.st_rdev if stat.S_ISBLK(found.st_mode) else 0
        return kind_of_device(number, _DEVICES)
    except OSError:  # no such folder on this kernel, or not shown to this container
        return None


def mounted_from(place: Path, mounts: str) -> str:
    """What the file system over ``place`` was mounted from, by the text of a ``mountinfo``; the last one counts."""
    return _mount(place, mounts)[1]


def file_system(path: str | Path) -> str | None:
    """The type of the file system that ``path`` lies on ("ext4", "tmpfs"), with its links; None where nobody tells."""
    try:
        return _mount(Path(path).resolve(), _MOUNTS.read_text())[0] or None
    except OSError:
        return None


def _mount(place: Path, mounts: str) -> tuple[str, str]:
    """The type of the file system over ``place``, and what it was mounted from."""
    longest, kind, source = -1, "", ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        mounted = Path(before.split(" ")[4].replace("\\040", " "))
        if place.is_relative_to(mounted) and len(mounted.parts) >= longest:
            longest, (kind, source) = len(mounted.parts), after.split(" ")[:2]
    return kind, source


def kind_of_device(number: int, devices: Path) -> DiskKind | None:
    """The same by the number of a block device; ``devices`` is the kernel's folder of them. OSError without it."""
    folder = (devices / f"{os.major(number)}:{os.minor(number)}").resolve(strict=True)
    kinds = {_kind(disk) for disk in _disks(folder)}
    return kinds.pop() if len(kinds) == 1 else None


def kind_in_words(kind: DiskKind | None) -> str:
    """
    For a sentence.

    >>> kind_in_words("nvme")
    'an NVMe drive'
    """
    return _WORDS[kind]


def _disks(folder: Path) -> Iterator[Path]:
    """The disks that a device consists of: itself, the disk of a partition, or what lies below LVM and RAID."""
    if (folder / "partition").exists():
        folder = folder.parent
    below = list((folder / "slaves").iterdir()) if (folder / "slaves").is_dir() else []
    if not below:
        yield folder
    for each in below:
        yield from _disks(each.resolve())


def _kind(disk: Path) -> DiskKind | None:
    device = disk / "device"
    if not device.exists():  # loop, zram: made by the kernel
        return None
    if any(_text(device / name).startswith(_ELSEWHERE) for name in ("vendor", "model")):
        return None
    if disk.name.startswith("nvme"):
        return "nvme" if _text(device / "transport") in ("", "pcie") else None
    if disk.name.startswith("sd"):
        return "rotating" if _text(disk / "queue" / "rotational") == "1" else "flash"
    return None


def _text(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""
