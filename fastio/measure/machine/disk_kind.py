"""The kind of disk under a path, from the kernel, and how fast its files are read in order past the page cache."""

from __future__ import annotations

import errno
import mmap
import os
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Literal

from fastio.machine.system import open_uncached

__all__ = [
    "LEAST_BYTES",
    "DiskKind",
    "UncachedRead",
    "disk_kind",
    "file_system",
    "kind_in_words",
    "kind_of_device",
    "mounted_from",
    "read_uncached",
]


_DEVICES = Path("/sys/dev/block")
_MOUNTS = Path("/proc/self/mountinfo")

DiskKind = Literal["nvme", "flash", "rotating"]

_WORDS: dict[DiskKind | None, str] = {
    "nvme": "an NVMe drive",
    "flash": "a flash drive without NVMe",
    "rotating": "a rotating disk",
    None: "of unknown kind",
}
# What clouds and hypervisors call a disk whose medium is elsewhere.
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
    Return the kind of disk under ``path``; None if the kernel does not tell, or if the disk is virtual.

    Partitions, LVM, RAID and encryption are followed to the disks below, which must be of one kind. None for network
    file systems, memory, virtio and other disks of virtual machines, NVMe over a network, and network volumes that
    clouds attach as NVMe drives: nothing tells what their medium is.
    """
    try:
        number = Path(path).stat().st_dev
        if os.major(number) == 0:  # a file system without its own device: btrfs, network, memory
            device = Path(mounted_from(Path(path).resolve(), _MOUNTS.read_text())).stat()
            number = device.st_rdev if stat.S_ISBLK(device.st_mode) else 0
        return kind_of_device(number, _DEVICES)
    except OSError:  # no such folder in this kernel, or hidden from this container
        return None


def mounted_from(path: Path, mounts: str) -> str:
    """
    Return what the file system at ``place`` was mounted from, by the text of a ``mountinfo``; the last entry counts.
    """
    return _mount(path, mounts)[1]


def file_system(path: str | Path) -> str | None:
    """Return the type of the file system of ``path`` ("ext4", "tmpfs"), with links followed; None if unknown."""
    try:
        return _mount(Path(path).resolve(), _MOUNTS.read_text())[0] or None
    except OSError:
        return None


def _mount(path: Path, mounts: str) -> tuple[str, str]:
    """Return the type of the file system at ``place``, and what it was mounted from."""
    longest, kind, source = -1, "", ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        mounted = Path(before.split(" ")[4].replace("\\040", " "))
        if path.is_relative_to(mounted) and len(mounted.parts) >= longest:
            longest, (kind, source) = len(mounted.parts), after.split(" ")[:2]
    return kind, source


def kind_of_device(number: int, devices: Path) -> DiskKind | None:
    """
    Return the kind of a block device by its number; ``devices`` is the kernel's folder. Raises OSError without it.
    """
    folder = (devices / f"{os.major(number)}:{os.minor(number)}").resolve(strict=True)
    kinds = {_kind(disk) for disk in _disks(folder)}
    return kinds.pop() if len(kinds) == 1 else None


def kind_in_words(kind: DiskKind | None) -> str:
    """
    Return the kind in words, for a sentence.

    >>> kind_in_words("nvme")
    'an NVMe drive'
    """
    return _WORDS[kind]


def _disks(folder: Path) -> Iterator[Path]:
    """Yield the disks of a device: itself, the disk of a partition, or what is below LVM and RAID."""
    if (folder / "partition").exists():
        folder = folder.parent
    below = list((folder / "slaves").iterdir()) if (folder / "slaves").is_dir() else []
    if not below:
        yield folder
    for device in below:
        yield from _disks(device.resolve())


def _kind(disk: Path) -> DiskKind | None:
    device = disk / "device"
    if not device.exists():  # loop, zram: created by the kernel
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


# Measures quickly how fast files can be read in order past the page cache: the rate of a cold epoch.

LEAST_BYTES = 4 << 20  # with less, only the first read's latency would be measured

_PIECE = 1 << 20  # a multiple of any device's sector
_THREADS = 4  # concurrent pieces, as a kernel that reads ahead has them
_MOST_BYTES = 1 << 30
_IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs", "zfs")  # on these, O_DIRECT reads from memory, such as ZFS's own cache
_REFUSED = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EACCES)


@dataclass(frozen=True, slots=True)
class UncachedRead:
    """How many bytes were read past the page cache, and how long that took."""

    size_bytes: int
    seconds: float

    @property
    def bytes_per_s(self) -> float:
        """The rate."""
        return self.size_bytes / self.seconds


def read_uncached(paths: Sequence[str | Path], *, seconds: float = 0.3) -> UncachedRead | None:
    """
    Read files from their beginning, one after the other, by O_DIRECT, for ``seconds`` or up to 1 GiB.

    The page cache is neither used nor changed; a drive's or a host's own cache may be. Returns None if the file
    system cannot read this way or is in memory, or if there are less than 4 MiB.
    """
    if any(file_system(folder) in _IN_MEMORY for folder in {Path(path).parent for path in paths}):
        return None
    if all(total < LEAST_BYTES for total in accumulate(Path(path).stat().st_size for path in paths)):
        return None
    try:
        return _timed(paths, seconds)
    except OSError as exc:
        if exc.errno in _REFUSED:
            return None
        raise


def _timed(paths: Sequence[str | Path], seconds: float) -> UncachedRead:
    """Read pieces in order with several threads until the time is up; each opens its own, of any number of files."""
    from concurrent.futures import ThreadPoolExecutor

    pieces, lock = _pieces(paths), threading.Lock()
    begun = time.perf_counter()

    def work(_: int) -> int:
        done = 0
        with mmap.mmap(-1, _PIECE) as memory:  # anonymous memory is page-aligned, as O_DIRECT requires
            while done == 0 or time.perf_counter() - begun < seconds:  # at least one piece: there must be a rate
                with lock:
                    piece = next(pieces, None)
                if piece is None:
                    break
                descriptor = open_uncached(piece[0])
                try:
                    done += os.preadv(descriptor, [memory], piece[1])
                finally:
                    os.close(descriptor)
        return done

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="fastio") as threads:
        size_bytes = sum(threads.map(work, range(_THREADS)))
    return UncachedRead(size_bytes, max(time.perf_counter() - begun, 1e-9))


def _pieces(paths: Sequence[str | Path]) -> Iterator[tuple[str | Path, int]]:
    """Yield file and position of each piece."""
    left = _MOST_BYTES
    for path in paths:
        for start in range(0, min(Path(path).stat().st_size, left), _PIECE):
            left -= _PIECE
            yield path, start
