"""The kind of a disk, from made-up folders like those in which the kernel tells of its devices."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastio.measure.machine.disk import EXPECTED_DISK, EXPECTED_NVME, expected_rate
from fastio.measure.machine.disk_kind import DiskKind, disk_kind, kind_of_device, mounted_from


class Devices:
    """A folder of block devices."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.numbers = root / "dev" / "block"
        self.numbers.mkdir(parents=True)
        self._next = 1

    def disk(self, name: str, *, bus: str = "pci0000:00", is_real: bool = True, **told: str) -> Path:
        """A whole disk; ``told`` are the texts below its ``device``, and ``rotational``."""
        folder = self.root / "devices" / bus / name
        (folder / "queue").mkdir(parents=True)
        (folder / "queue" / "rotational").write_text(told.pop("rotational", "0") + "\n")
        if is_real:
            (folder / "device").mkdir()
            for file, text in told.items():
                (folder / "device" / file).write_text(text + "\n")
        return folder

    def over(self, name: str, *below: Path) -> Path:
        """A device of LVM, RAID or encryption."""
        folder = self.root / "devices" / "virtual" / name
        (folder / "slaves").mkdir(parents=True)
        for each in below:
            (folder / "slaves" / each.name).symlink_to(each)
        return folder

    def part(self, disk: Path, name: str) -> Path:
        """A partition."""
        (disk / name).mkdir()
        (disk / name / "partition").write_text("1\n")
        return disk / name

    def kind(self, folder: Path) -> DiskKind | None:
        """What is said of this device by its number."""
        number = os.makedev(259, self._next)
        self._next += 1
        (self.numbers / f"259:{os.minor(number)}").symlink_to(folder)
        return kind_of_device(number, self.numbers)


@pytest.fixture
def devices(tmp_path: Path) -> Devices:
    return Devices(tmp_path)


DISKS: list[tuple[DiskKind | None, str, dict[str, str]]] = [
    ("nvme", "nvme0n1", {"model": "SAMSUNG MZQL21T9HCJR-00A07", "transport": "pcie"}),
    ("nvme", "nvme1n1", {"model": "Amazon EC2 NVMe Instance Storage", "transport": "pcie"}),
    ("nvme", "nvme2n1", {"model": "a drive with several paths"}),
    (None, "nvme3n1", {"model": "Amazon Elastic Block Store", "transport": "pcie"}),
    (None, "nvme4n1", {"model": "nvme_card-pd", "transport": "pcie"}),
    (None, "nvme5n1", {"model": "Linux", "transport": "tcp"}),
    ("flash", "sda", {"vendor": "ATA", "model": "Samsung SSD 870", "rotational": "0"}),
    ("rotating", "sdb", {"vendor": "ATA", "model": "ST8000NM0055", "rotational": "1"}),
    (None, "sdc", {"vendor": "QEMU", "model": "QEMU HARDDISK", "rotational": "1"}),
    (None, "sdd", {"vendor": "Google", "model": "PersistentDisk", "rotational": "0"}),
    (None, "vda", {"vendor": "0x1af4", "rotational": "1"}),
]


@pytest.mark.parametrize(("kind", "name", "told"), DISKS, ids=[name for _, name, _ in DISKS])
def test_kinds(devices: Devices, kind: DiskKind | None, name: str, told: dict[str, str]) -> None:
    """A disk by its name, vendor, model and transport, as a whole and by a partition."""
    disk = devices.disk(name, **told)

    assert kind == devices.kind(disk)
    assert kind == devices.kind(devices.part(disk, f"{name}p1"))


def test_disks_below_others(devices: Devices) -> None:
    """Encryption over RAID over partitions is what the disks are; of two kinds, none."""
    first, second = (devices.disk(f"nvme{i}n1", transport="pcie") for i in range(2))
    raid = devices.over("md0", devices.part(first, "nvme0n1p2"), devices.part(second, "nvme1n1p2"))
    mixed = devices.over("dm-1", raid, devices.disk("sda", rotational="1"))

    assert "nvme" == devices.kind(devices.over("dm-0", raid))
    assert devices.kind(mixed) is None


def test_made_by_the_kernel(devices: Devices) -> None:
    """Loop devices and memory have no hardware."""
    assert devices.kind(devices.disk("loop0", bus="virtual", is_real=False, rotational="1")) is None


def test_not_told(tmp_path: Path) -> None:
    """A device that is not shown, a path that is not there, and memory have no kind."""
    with pytest.raises(FileNotFoundError):
        kind_of_device(os.makedev(8, 0), tmp_path)
    assert disk_kind(tmp_path / "missing") is None
    assert disk_kind("/proc") is None


def test_mounts() -> None:
    """The longest mount point over a path counts, and of those upon one another the last; names may have spaces."""
    mounts = (
        "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
        "28 27 0:40 /data /mnt/my\\040data rw - btrfs /dev/nvme0n1p2 rw\n"
        "29 27 0:41 / /mnt rw shared:1 - nfs4 server:/export rw\n"
        "30 27 0:42 / /mnt rw - btrfs /dev/sda1 rw\n"
    )

    assert "/dev/nvme0n1p2" == mounted_from(Path("/mnt/my data/x"), mounts)
    assert "/dev/sda1" == mounted_from(Path("/mnt/x"), mounts)
    assert "/dev/vda" == mounted_from(Path("/mntx"), mounts)


def test_yardsticks() -> None:
    """The course's figures: NVMe drives have their own; where the kind is not known there is none."""
    assert [EXPECTED_NVME, EXPECTED_DISK, EXPECTED_DISK, None] == [
        expected_rate(kind) for kind in ("nvme", "flash", "rotating", None)
    ]
