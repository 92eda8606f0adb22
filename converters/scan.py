"""Walks folders in an order that depends on names alone, and names whatever is not a file that can be packed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

from fastio.converters.base import Problem
from fastio.errors import SourceError

__all__ = ["Folder", "image_kind", "require_folder", "scan_folder", "scan_tree", "shown"]

# File name extensions that count as images, the set that torchvision's ImageFolder has, with the kind of content
# they promise, as fastio._native.probe_images numbers it.
_KINDS = {"jpg": 1, "jpeg": 1, "png": 2, "bmp": 4, "webp": 5, "tif": 6, "tiff": 6, "ppm": 7, "pgm": 7}

_SPECIAL = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


@dataclass(slots=True)
class Folder:
    """
    What lies in one folder, sorted by name.

    ``files`` are (key, size in bytes, content kind by extension), ``folders`` are keys. Keys
    are paths from the root of the source, with ``/`` between. ``problems`` are entries that cannot be packed.
    """

    files: list[tuple[str, int, int]] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    disk_bytes: int = 0


def image_kind(name: str) -> int:
    """The kind of content that a file name promises (as ``probe_images`` numbers it), 0 for no image."""
    tail = name.rpartition(".")[2]
    return _KINDS.get(tail) or (_KINDS.get(tail.lower(), 0) if "." in name else 0)


def shown(key: str) -> str:
    """A key as it can be stored and printed: bytes of a file name that are not UTF-8 become ``\\xNN``."""
    return os.fsencode(key).decode("utf-8", "backslashreplace") if not key.isascii() else key


def scan_folder(root: str, prefix: str = "") -> Folder:
    """One folder, ``root/prefix``, without those below it. An unreadable root raises SourceError."""
    found = Folder()
    files = []
    with os.scandir(f"{root}/{prefix}" if prefix else root) as entries:
        for entry in entries:
            key = f"{prefix}/{entry.name}" if prefix else entry.name
            try:
                status = entry.stat()
            except OSError as exc:
                found.problems.append(Problem(shown(key), _stat_problem(exc, link=entry.is_symlink())))
                continue
            if stat.S_ISREG(status.st_mode):
                files.append((key, status.st_size))
                found.disk_bytes += status.st_blocks * 512
            elif stat.S_ISDIR(status.st_mode):
                found.folders.append(key)
            else:
                what = _SPECIAL.get(stat.S_IFMT(status.st_mode), "no regular file")
                found.problems.append(Problem(shown(key), f"is {what}, expected a regular file"))
    files.sort(key=itemgetter(0))
    found.folders.sort()
    for key, size in files:
        problem, kind = _file_problem(key, size)
        if problem:
            found.problems.append(Problem(shown(key), problem))
        else:
            found.files.append((key, size, kind))
    found.problems.sort(key=lambda problem: problem.key)
    return found


def scan_tree(root: str, top: str) -> Folder:
    """
    Everything below the folder ``top`` of ``root``, folders in the order of their paths, files sorted in each.

    Links to folders are followed; a link that leads back to a folder above it is a problem.
    ``folders`` of the result is empty: all of them have been walked.
    """
    parts = []
    result = Folder()
    for key, part in _walk(root, top, (), result.problems):
        parts.append((key, part))
    for _, part in sorted(parts, key=itemgetter(0)):
        result.files += part.files
        result.problems += part.problems
        result.disk_bytes += part.disk_bytes
    result.problems.sort(key=lambda problem: problem.key)
    return result


def _walk(
    root: str, key: str, above: tuple[tuple[int, int], ...], problems: list[Problem]
) -> Iterator[tuple[str, Folder]]:
    try:
        status = Path(root, key).stat()
        here = (status.st_dev, status.st_ino)
        if here in above:
            problems.append(Problem(shown(key), "is a link that leads back to a folder above it"))
            return
        part = scan_folder(root, key)
    except OSError as exc:
        problems.append(Problem(shown(key), f"is a folder that cannot be listed: {exc.strerror or exc}"))
        return
    yield key, part
    for folder in part.folders:
        yield from _walk(root, folder, (*above, here), problems)


def require_folder(path: str) -> None:
    """SourceError where ``path`` is not a folder."""
    if not Path(path).is_dir():
        what = "a file" if Path(path).exists() else "nothing"
        raise SourceError(f"{path}: expected a folder of images, found {what}")


def _file_problem(key: str, size: int) -> tuple[str, int]:
    """One sentence on why a regular file cannot be packed (or ""), and its kind."""
    if not key.isascii():
        try:
            key.encode()
        except UnicodeEncodeError:
            return "has a name that is not UTF-8; rename it", 0
    kind = image_kind(key)
    if not kind:
        extension = Path(key).suffix
        what = f"has the extension {extension!r}" if extension else "has no extension"
        return f"{what}, which is none of an image ({', '.join('.' + name for name in _KINDS)})", 0
    return ("is empty (0 bytes)" if size == 0 else ""), kind


def _stat_problem(exc: OSError, *, link: bool) -> str:
    if link and isinstance(exc, FileNotFoundError):
        return "is a link that leads nowhere"
    if link:
        return f"is a link that cannot be followed: {exc.strerror or exc}"
    return f"cannot be looked at: {exc.strerror or exc}"
