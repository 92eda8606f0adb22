"""Virtual environments of the peers: one each, from the pinned versions in ``requirements``; made once."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from benchmarks.rounds import CaseError, reason_in

__all__ = ["HOME", "interpreter", "process_environment", "versions"]

REQUIREMENTS = Path(__file__).parent / "requirements"
HOME = Path(__file__).parent.parent / ".peers"

# What a peer needs besides Python packages, as Debian calls it.
DEBIAN = {
    "ffcv": ("g++", "pkg-config", "libopencv-dev", "libturbojpeg0-dev"),
    "spdl": ("libavcodec59", "libavdevice59", "libavfilter8", "libavformat59"),
    "pillow_simd": ("gcc", "libc6-dev", "libjpeg62-turbo-dev", "zlib1g-dev"),
}

# Built here rather than taken from a wheel, which is for the oldest processors.
COMPILED = {"pillow_simd": {"CC": "cc -mavx2"}}


@cache
def interpreter(name: str) -> Path:
    """
    The Python of an environment, made where it is missing or its requirements have changed.

    "" is the running one. CaseError says why one could not be made; its log lies beside it.
    """
    if not name:
        return Path(sys.executable)
    wanted = (REQUIREMENTS / f"{name}.txt").read_text()
    folder = HOME / name
    installed = folder / "installed.txt"
    if not installed.exists() or installed.read_text() != wanted:
        print(f"setting up {name} ...", file=sys.stderr, flush=True)
        _install_debian(DEBIAN.get(name, ()))
        shutil.rmtree(folder, ignore_errors=True)
        log = HOME / f"{name}.log"
        _run([sys.executable, "-m", "venv", folder], log=log)
        pip = [folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        if name in COMPILED:
            pip.append("--no-cache-dir")  # pip keeps the wheels that it builds, however they were built
        _run([*pip, "-r", REQUIREMENTS / f"{name}.txt"], log=log, variables=COMPILED.get(name))
        installed.write_text(wanted)
    return folder / "bin" / "python"


def process_environment(name: str) -> dict[str, str]:
    """
    Environment variables for a peer's processes: home, caches and temporary files in folders of the peer's own.

    Some empty what they take for their cache: LitData deletes ``chunks`` and ``data`` below the temporary folder.
    """
    folder = HOME / "homes" / (name or "fastio")
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    return {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / ".cache"), "TMPDIR": str(folder / "tmp")}


def versions(name: str) -> list[str]:
    """What is pinned for an environment; for "" what is installed with fastio."""
    if not name:
        names = ("fastio", "torch", "numpy", "pillow")
        return [f"{package}=={importlib.metadata.version(package)}" for package in names]
    return [line for line in (REQUIREMENTS / f"{name}.txt").read_text().splitlines() if "==" in line]


def _install_debian(packages: tuple[str, ...]) -> None:
    """Install what is missing, where this user may; on a system without apt the peer's own installer will complain."""
    if not packages or shutil.which("apt-get") is None:
        return
    known = _capture(["dpkg-query", "-W", "-f", "${Package} ${Status}\n", *packages]).stdout.splitlines()
    missing = sorted(set(packages) - {line.split()[0] for line in known if line.endswith("ok installed")})
    if missing and os.geteuid() != 0:
        raise CaseError(f"needs Debian packages; install with: sudo apt-get install {' '.join(missing)}")
    if missing:
        done = _capture(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing])
        if done.returncode != 0:
            raise CaseError(f"apt-get: {reason_in(done.stderr, status=done.returncode)}")


def _capture(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def _run(command: list[str | Path], *, log: Path, variables: dict[str, str] | None = None) -> None:
    log.parent.mkdir(exist_ok=True)
    with log.open("a") as file:
        environment = {**os.environ, **(variables or {})}
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=environment, check=False)
    if done.returncode != 0:
        reason = reason_in(log.read_text(), status=done.returncode)
        raise CaseError(f"could not be installed: {reason} (log: {log.relative_to(HOME.parent.parent)})")
