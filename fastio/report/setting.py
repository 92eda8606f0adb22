"""What a report was made with: the command, the machine, the versions."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import psutil

from fastio.machine import available_cpus
from fastio.types.units import counted, size

__all__ = ["machine", "versions"]

_PACKAGES = ("fastio", "torch", "numpy", "pillow", "h5py")


def machine() -> Sequence[tuple[str, str]]:
    """Return name and value of what it runs on, and when."""
    allowed, all_cpus = available_cpus(), psutil.cpu_count() or 1
    of = "" if allowed == all_cpus else f" of {all_cpus}"
    return [
        ("CPU", f"{_cpu_model()}, {counted(allowed, 'logical CPU')}{of} for this process"),
        ("memory", size(psutil.virtual_memory().total)),
        *_gpus(),
        ("system", f"{_system()}, kernel {platform.release()}, {platform.machine()}"),
        ("time", time.strftime("%Y-%m-%d %H:%M %z")),
    ]


def versions() -> Sequence[tuple[str, str]]:
    """Return packages and versions, Python first."""
    versions = [("Python", platform.python_version())]
    for name in _PACKAGES:
        try:
            versions.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            versions.append((name, "not installed"))
    return versions


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:  # a container without /etc/os-release
        return "Linux"


def _gpus() -> Sequence[tuple[str, str]]:
    """Return the GPUs that torch sees, if the command has used CUDA already: asking would initialise it."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    return [(f"GPU {i}", torch.cuda.get_device_name(i)) for i in range(torch.cuda.device_count())]
