"""Names of files that tables give, keys of rows, and templates of names on keys."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.labels.filters import RowFilter, ValuesOf
from fastio.converters.sources.listed import Indices
from fastio.errors import SourceError
from fastio.store.kinds.names import plain_name
from fastio.store.kinds.scan import Problem, is_utf8, shown
from fastio.types.picture_kinds import kind_by_name

__all__ = [
    "FileStates",
    "RowKeys",
    "Stems",
    "describe_names",
    "file_name",
    "file_states",
    "passing",
    "safe_name",
    "unique_keys",
]


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


class Stems:
    """The pictures below the folder ``root`` by their paths without extensions; folders are listed when needed."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._by_folder: dict[str, dict[str, list[str]]] = {}

    def files(self, stem: str) -> list[str]:
        """Return the names of the pictures of this stem, sorted."""
        folder, _, base = stem.rpartition("/")
        known = self._by_folder.get(folder)
        if known is None:
            known = self._by_folder[folder] = {}
            try:
                names = sorted(os.listdir(os.path.join(self._root, folder)))  # noqa: PTH118, PTH208 - never raises ValueError
            except (OSError, ValueError):
                names = []
            for name in filter(kind_by_name, names):
                known.setdefault(name.rpartition(".")[0], []).append(name)
        return [f"{folder}/{name}" if folder else name for name in known.get(base, ())]

    def name(self, value: object) -> tuple[str, str]:
        """
        Return the picture that a value of a row means, and "", or "" and one sentence on what is wrong with it.

        The value is the picture's name without extension, as text or as a whole number.
        """
        stem, problem = safe_name(str(value) if type(value) is int else value, self._root)
        if problem:
            return "", problem
        found = self.files(stem)
        if len(found) == 1:
            return found[0], ""
        if not found:
            return "", f"is {shown(stem)!r}, but there is no picture of that name in {shown(self._root)}"
        return "", f"is {shown(stem)!r}, which {' and '.join(map(shown, found))} are called: remove one"


class FileStates:
    """
    What is under some names: ``sizes`` (n,) in bytes, ``disk_bytes``, and what is wrong, by position.

    ``missing`` is the number of names under which there is nothing.
    """

    def __init__(self, sizes: NDArray[np.int64], disk_bytes: int, problems: dict[int, str], missing: int) -> None:
        self.sizes, self.disk_bytes, self.problems, self.missing = sizes, disk_bytes, problems, missing


def file_states(root: str, names: Sequence[str]) -> FileStates:
    """Look at the files of these names below ``root``, links followed; those called "" are passed over."""
    states = np.zeros((len(names), 5), np.int64)  # errno, mode, bytes, blocks, mtime
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


# Keys of samples that are rows or records of files, and the rows that filters and keys leave.


@dataclass(frozen=True, slots=True)
class RowKeys:
    """The name of a row's file and the row's position in it: ``train-00000-of-00005/0012``."""

    stems: Sequence[str]
    file_rows: NDArray[np.int64]

    @classmethod
    def of(cls, names: Sequence[str], file_rows: NDArray[np.int64], suffixes: Sequence[str] = ()) -> RowKeys:
        """Return the keys for files of these names, without these suffixes unless they alone tell files apart."""
        stems = [shown(_without(plain_name(name), suffixes)) for name in names]
        return cls(stems if len(set(stems)) == len(stems) else [shown(name) for name in names], file_rows)

    def at(self, indices: Indices) -> list[str]:
        """Return the keys of rows, counted over all files."""
        widths = [len(str(max(count - 1, 0))) for count in self.file_rows.tolist()]
        starts = np.cumsum(self.file_rows) - self.file_rows
        files = np.searchsorted(starts, indices, side="right") - 1
        positions = zip(files.tolist(), (indices - starts[files]).tolist(), strict=True)
        return [f"{self.stems[file]}/{row:0{widths[file]}d}" for file, row in positions]


def passing(keys: RowKeys, row_filter: RowFilter, values_of: ValuesOf, *, where: str) -> tuple[Indices, list[Problem]]:
    """Return the rows that pass the filters, and the others; ``where`` is what has the columns, for errors."""
    passes = row_filter.mask(int(keys.file_rows.sum()), values_of, where=f"{where}: ")
    sentence = f"does not pass the filter {row_filter}"
    return np.flatnonzero(passes), [Problem(key, sentence) for key in keys.at(np.flatnonzero(~passes))]


def unique_keys(keys: RowKeys, column: str, rows: Indices, values_of: ValuesOf) -> tuple[list[str], list[Problem]]:
    """
    Return the values of a column as keys, "" for those of ``rows`` that have none or that of an earlier one.

    These are problems, under the key that they would have without the column.
    """
    found: list[str] = []
    problems: list[Problem] = []
    firsts: dict[str, int] = {}
    wanted = np.zeros(int(keys.file_rows.sum()), bool)
    wanted[rows] = True
    for i, value in enumerate(values_of(column)):
        key = "" if value is None else str(value)
        first = firsts.setdefault(key, i) if key and wanted[i] else i
        if wanted[i] and (not key or first != i or "\0" in key or not is_utf8(key)):
            own, other = keys.at(np.array([i, first], np.int64))
            again = f"has the key {key!r:.80}, which {other} has already"
            problems.append(Problem(own, again if first != i else f"has the key {value!r:.80} in {column!r}"))
            key = ""
        found.append(key)
    return found, problems


def _without(name: str, suffixes: Sequence[str]) -> str:
    return next((name[: -len(suffix)] for suffix in suffixes if name.lower().endswith(suffix)), name) or name


# Names of further files as a template on the samples' keys, so that a million of them take one line of metadata.


def parts_of_key(key: str) -> dict[str, str]:
    """
    Return the parts of a key that templates name.

    >>> parts_of_key("images/town/a.png")
    {'path': 'images/town/a', 'below': 'town/a', 'stem': 'a'}
    """
    folder, slash, name = key.rpartition("/")
    stem = name.rpartition(".")[0] or name
    path = folder + slash + stem
    return {"path": path, "below": path.partition("/")[2] or path, "stem": stem}


def describe_names(keys: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """
    Return JSON that ``file_name`` makes these names of, ``names[i]`` from ``keys[i]``.

    It is ``{"template": "masks/{stem}.png"}``, and ``"names": {key: name}`` for those that do not follow it.

    >>> describe_names(["images/a.jpg", "images/b.jpg"], ["masks/a.png", "masks/b.png"])
    {'template': 'masks/{stem}.png'}
    """
    best: dict[str, Any] | None = None
    for part in ("stem", "below", "path"):
        if not keys:
            break
        value = parts_of_key(keys[0])[part]
        before, found, after = names[0].rpartition(value)
        if not found:
            continue
        template = f"{before}{{{part}}}{after}"
        others = {
            key: name for key, name in zip(keys, names, strict=True) if file_name({"template": template}, key) != name
        }
        if best is None or len(others) < len(best.get("names", ())):
            best = {"template": template, **({"names": others} if others else {})}
        if not others:
            break
    return best or {"template": "", "names": dict(zip(keys, names, strict=True))}


def file_name(described: Mapping[str, Any], key: str) -> str:
    """Return the name of the file that belongs to a key, by what ``describe_names`` returned."""
    names = described.get("names")
    if isinstance(names, Mapping) and key in names:
        return str(names[key])
    name = str(described.get("template", ""))
    for part, value in parts_of_key(key).items():
        if f"{{{part}}}" in name:
            return name.replace(f"{{{part}}}", value)
    return name
