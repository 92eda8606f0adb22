"""The files of a table: a single one, or all of one kind in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fastio.converters.scan import Folder, Wanted, scan_root, shown
from fastio.converters.source import Problem
from fastio.converters.streams import COMPRESSED, plain_name
from fastio.errors import SourceError

__all__ = ["TextFiles", "drop_twins"]


@dataclass(frozen=True, slots=True)
class TextFiles:
    """Files below a folder, sorted by name; or one file, in its own folder."""

    path: str  # as the user named it
    folder: str
    names: Sequence[str]
    size_bytes: int
    disk_bytes: int
    problems: Sequence[Problem] = ()

    @classmethod
    def below(cls, path: str, suffixes: tuple[str, ...]) -> TextFiles:
        """Return ``path`` itself if it is a file, or the files with these suffixes in it, including compressed ones."""
        if Path(path).is_file():
            status = Path(path).stat()
            return cls(path, str(Path(path).parent), [Path(path).name], status.st_size, status.st_blocks * 512)

        def kind_of(name: str) -> int:
            return int(plain_name(name).lower().endswith(suffixes) and not name.startswith("."))

        extensions = ", ".join(each + more for each in suffixes for more in ("", *COMPRESSED))
        found = scan_root(path, Wanted(kind_of, f"a {suffixes[0].removeprefix('.')} file", extensions))
        drop_twins(found)
        problems = [Problem(shown(name), "is a folder beside the files of a table") for name in found.folders]
        if not found.keys:
            raise SourceError(f"{path}: expected files with one of the extensions {extensions}, found none")
        return cls(path, path, found.keys, sum(found.sizes), found.disk_bytes, [*found.problems, *problems])

    @property
    def shown_name(self) -> str:
        """The last part of the path, without the suffix of a compression."""
        return plain_name(Path(self.path).resolve().name)

    def place(self, name: str) -> str:
        """Return the path of a file."""
        return str(Path(self.folder) / name)

    def key(self, name: str) -> str:
        """Return the beginning of the keys of a file's rows."""
        return shown(plain_name(name))


def drop_twins(found: Folder) -> list[bool]:
    """
    Turn files that exist both plain and compressed into problems, except the first; returns whether each file stays.
    """
    taken: set[str] = set()
    stays = []
    for name in found.keys:
        stays.append(plain_name(name) not in taken)
        taken.add(plain_name(name))
        if not stays[-1]:
            problem = "exists both plain and compressed, or compressed twice: remove one"
            found.problems.append(Problem(shown(name), problem))
    found.keep(stays)
    return stays
