"""
Bytes that one process fetched, left for another one that copies the store to a folder of the same node.

Each is a file in a hidden folder, which is there while somebody copies:

    .fastio-stage.arrived/4194304-8388608-1a2b3c4d-in-000001.tar    start, stop, CRC-32 of the shard, its name
    .fastio-stage.arrived/.4711-139872                              on its way, named by process and thread

The file is the bytes alone. Whoever copies takes it and removes it.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fastio.store.atomic import pwrite_all
from fastio.store.staging.stage_plan import CopyContent

__all__ = ["Handed", "accept_handed", "hand_over", "handed_over", "refuse_handed"]

_NAME = ".fastio-stage.arrived"
_LEAST_BYTES = 1 << 20  # a file for less would cost more than a request
_MOST_WAITING = 256  # files; blocks of an order have up to 4 MiB
_SPARE_BYTES = 1 << 30  # which these files take at most
_ENTRY = re.compile(r"(?s)(?P<start>\d+)-(?P<stop>\d+)-(?P<crc>[0-9a-f]{8})-(?P<name>.+)")


class Handed(NamedTuple):
    """Bytes of the file ``name`` from ``start`` on, whose whole content has this CRC-32."""

    name: str
    file_crc: int
    start: int
    data: bytes


def hand_over(folder: Path, content: CopyContent, start: int, data: Any) -> None:
    """
    Leave bytes of a file for whoever copies it to ``folder``.

    Nothing is left if nobody copies, if there are few bytes or many that wait, or if the disk refuses them: then they
    are fetched once more. Files of other tools have no checksum that tells one version from another, and are left out.
    """
    view = memoryview(data)
    if len(view) < _LEAST_BYTES or content.seal_at is None:
        return
    arrived = folder / _NAME
    partial = arrived / f".{os.getpid()}-{threading.get_ident()}"
    try:
        if len(os.listdir(arrived)) >= _MOST_WAITING:  # noqa: PTH208 - names are enough
            return
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            pwrite_all(fd, view, 0)
        finally:
            os.close(fd)
        partial.rename(arrived / f"{start}-{start + len(view)}-{content.file_crc:08x}-{content.name}")
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def accept_handed(folder: Path, spare_bytes: int) -> None:
    """Let other processes hand over bytes from now on if the disk has room for them. Raises OSError."""
    if spare_bytes >= _SPARE_BYTES:
        (folder / _NAME).mkdir(exist_ok=True)


def handed_over(folder: Path) -> Iterator[Handed]:
    """Yield what was handed over, and remove it."""
    try:
        names = os.listdir(folder / _NAME)  # noqa: PTH208
    except OSError:  # nobody may hand over anything, or the folder cannot be read
        return
    for match in filter(None, map(_ENTRY.fullmatch, names)):
        path = folder / _NAME / match[0]
        try:
            data = path.read_bytes()
            path.unlink()
        except OSError:  # these bytes are fetched
            continue
        start, stop = int(match["start"]), int(match["stop"])
        if len(data) == stop - start:
            yield Handed(match["name"], int(match["crc"], 16), start, data)


def refuse_handed(folder: Path) -> None:
    """Remove the folder with all that waits in it: no process can hand over anything from then on."""
    arrived, removed = folder / _NAME, folder / f"{_NAME}.old"
    shutil.rmtree(removed, ignore_errors=True)
    with suppress(OSError):
        arrived.rename(removed)  # in one step: who writes to it meanwhile finds no folder
    shutil.rmtree(removed, ignore_errors=True)
