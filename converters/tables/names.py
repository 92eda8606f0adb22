"""Names of files as tables have them: made paths below a folder, or refused."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.scan import is_utf8, shown
from fastio.errors import SourceError

__all__ = ["FileStates", "file_states", "safe_name"]

_TYPE_BITS, _REGULAR, _FOLDER = 0o170000, 0o100000, 0o040000


def safe_name(name: object, root: str) -> tuple[str, str]:
    """
    Return the path below ``root`` that a table means, and "", or "" and one sentence on what is wrong with it.

    ``./a.png`` is ``a.png``, and an absolute path below ``root`` is the rest of it.

    >>> safe_name("./in//a.png", "/data"), safe_name("/data/a.png", "/data"), safe_name("../a.png", "/data")[1]
    (('in/a.png', ''), ('a.png', ''), "leads out of the folder ('../a.png')")
    """
    if not isinstance(name, str):
        return "", "is missing" if name is None else f"is {name!r:.60}, expected the name of a file"
    if not name:
        return "", "is empty"
    if "\0" in name:
        return "", f"holds a NUL ({name!r:.60})"
    if not is_utf8(name):
        return "", f"is not UTF-8 ({shown(name)!r:.60})"
    path = posixpath.normpath(name)
    if path.startswith("/"):
        if not path.startswith(f"{root}/"):
            return "", f"is a path elsewhere ({name!r:.80}); name the folder of the files with --root"
        path = path[len(root) + 1 :]
    if ".." in name.split("/") or path == ".":
        return "", f"leads out of the folder ({name!r:.80})"
    return path, ""


class FileStates:
    """
    What is under some names: ``sizes`` (n,) in bytes, ``disk_bytes``, and what is wrong, by position.

    ``missing`` is the number of names under which there is nothing.
    """

    def __init__(self, sizes: NDArray[np.int64], disk_bytes: int, problems: dict[int, str], missing: int) -> None:
        self.sizes, self.disk_bytes, self.problems, self.missing = sizes, disk_bytes, problems, missing


def file_states(root: str, names: Sequence[str]) -> FileStates:
    """Look at the files of these names below ``root``, links followed; those called "" are passed over."""
    states = np.zeros((len(names), 4), np.int64)  # errno, mode, bytes, blocks
    try:
        handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise SourceError(f"{root}: the folder of the files cannot be opened: {exc.strerror or exc}") from exc
    try:
        _native.stat_files(handle, names, states)
    finally:
        os.close(handle)
    problems: dict[int, str] = {}
    kinds = states[:, 1] & _TYPE_BITS
    for i in np.flatnonzero((states[:, 0] != 0) | (kinds != _REGULAR) | (states[:, 2] == 0)).tolist():
        if names[i]:
            problems[i] = _sentence(names[i], int(states[i, 0]), int(kinds[i]))
    sizes = np.where(kinds == _REGULAR, states[:, 2], 0)
    missing = sum(bool(name) for name, error in zip(names, states[:, 0].tolist(), strict=True) if error == errno.ENOENT)
    return FileStates(sizes, int(states[kinds == _REGULAR, 3].sum()) * 512, problems, missing)


def _sentence(name: str, error: int, kind: int) -> str:
    name = shown(name)
    if error == errno.ENOENT:
        return f"is {name!r}, but there is no such file"
    if error:
        return f"is {name!r}: {os.strerror(error)}"
    if kind == _FOLDER:
        return f"is {name!r}, which is a folder"
    return f"is {name!r}, which is empty (0 bytes)" if kind == _REGULAR else f"is {name!r}, which is not a regular file"
