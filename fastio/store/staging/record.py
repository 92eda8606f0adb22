"""
What is written beside a copy: what was copied, from where.

It tells a copy of ours, which a newer one may replace, from files that the user put there; and a whole copy that nobody
has touched, so that staging it again needs one request.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fastio.store.write.atomic import writing

__all__ = [
    "RECORD_SUFFIX",
    "StageRecord",
    "mending_command",
    "stamps",
]

RECORD_SUFFIX = ".staged"


@dataclass(frozen=True, slots=True)
class StageRecord:
    """``files`` are names with size and mtime_ns; size and mtime are 0 until the copy is whole."""

    source: str
    content: int
    is_whole: bool
    files: Sequence[tuple[str, int, int]]

    @classmethod
    def read(cls, folder: Path, name: str) -> StageRecord | None:
        """Return the record of a copy; None without one, or if it is not readable."""
        try:
            parsed = json.loads((folder / f".{name}{RECORD_SUFFIX}").read_text("utf-8", "surrogateescape"))
            files = [(str(each), int(size), int(mtime_ns)) for each, size, mtime_ns in parsed["files"]]
            return cls(str(parsed["source"]), int(parsed["content"]), bool(parsed["is_whole"]), files)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, folder: Path, name: str) -> None:
        """Write the record at once. Raises StoreError."""
        path = folder / f".{name}{RECORD_SUFFIX}"
        hidden = folder / f".{name}{RECORD_SUFFIX}.new"  # there is one writer, by the lock of the folder
        with writing(str(folder / name)):
            hidden.write_text(json.dumps(asdict(self)), "utf-8", "surrogateescape")
            hidden.rename(path)

    @property
    def names(self) -> frozenset[str]:
        """The files that belong to the copy."""
        return frozenset(name for name, _, _ in self.files)

    def holds(self, folder: Path) -> bool:
        """Whether the copy is whole, and its files are as they were left."""
        return self.is_whole and list(self.files) == stamps(folder, [name for name, _, _ in self.files])


def stamps(folder: Path, names: Sequence[str]) -> list[tuple[str, int, int]]:
    """Size and mtime_ns of each file; zeros for one that is not there."""
    found = []
    for name in names:
        try:
            status = (folder / name).stat()
            found.append((name, status.st_size, status.st_mtime_ns))
        except OSError:
            found.append((name, 0, 0))
    return found


def mending_command(path: str) -> str | None:
    """
    Return the command that compares the copy to which a file belongs, and mends it; None for a file that ``stage`` did
    not copy.
    """
    file = Path(path).absolute()
    for record_path in file.parent.glob(f".*{RECORD_SUFFIX}"):
        result = record_path.name.removeprefix(".").removesuffix(RECORD_SUFFIX)
        record = StageRecord.read(file.parent, result)
        if record is not None and file.name in record.names:
            return shlex.join(["fastio", "stage", "--check", record.source, str(file.parent)])
    return None
