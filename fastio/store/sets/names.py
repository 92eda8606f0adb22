"""The grammar of names: the numbers of shards, how set objects are named after them, and how they name the shards."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from fastio.errors import StoreError
from fastio.store.files.local import is_local

__all__ = ["SET_SUFFIX", "SIDECAR_SUFFIX", "NumberedName", "listed_name", "numbered_paths", "set_path"]

SET_SUFFIX = ".fastio-set"
SIDECAR_SUFFIX = ".fastio-index"  # what is known of a file or folder, kept beside it

_NUMBER = re.compile(r"%(?:0(\d+))?d")  # %06d or %d
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_MAX_RANGE = 1_000_000
_ANY_NUMBER = re.compile(r"[-._]?(?:%(?:0\d+)?d|\{\d+\.\.\d+\}|\*)")


@dataclass(frozen=True, slots=True)
class NumberedName:
    """A name with ``%06d`` or ``%d``, which stands for all shards of a set: their numbers have at least ``digits``."""

    before: str
    digits: int
    after: str

    @classmethod
    def parse(cls, name: str) -> NumberedName | None:
        """Return the parts of a name; None if it has no number."""
        found = _NUMBER.search(name)
        return found and cls(name[: found.start()], int(found[1] or 0), name[found.end() :])

    def of(self, number: int) -> str:
        """
        Return the name of one shard.

        >>> NumberedName("in-", 6, ".tar").of(12)
        'in-000012.tar'
        """
        return f"{self.before}{number:0{self.digits or 1}d}{self.after}"

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches the names of shards; its group is the number."""
        digits = rf"(\d{{{self.digits},}})" if self.digits else r"(0|[1-9]\d*)"
        return re.compile(re.escape(self.before) + digits + re.escape(self.after))


def numbered_paths(path: str) -> list[str] | None:
    """
    Return the paths that a range of numbers in braces stands for; None without one.

    >>> numbered_paths("s3://bucket/in-{08..10}.tar")
    ['s3://bucket/in-08.tar', 's3://bucket/in-09.tar', 's3://bucket/in-10.tar']
    """
    braces = _RANGE.search(path)
    if braces is None:
        return None
    first, last = int(braces[1]), int(braces[2])
    if not 0 <= last - first < _MAX_RANGE:
        raise StoreError(f"{path}: expected an ascending range of at most {_MAX_RANGE} shards, got {braces[0]}")
    width = len(braces[1])
    return [f"{path[: braces.start()]}{i:0{width}d}{path[braces.end() :]}" for i in range(first, last + 1)]


def set_path(path: str) -> str:
    """
    Return the path of the set object for shards named by a pattern; a set object's own path stays.

    >>> set_path("s3://bucket/in-%06d.tar"), set_path("data/%06d.tar"), set_path("in.fastio-set")
    ('s3://bucket/in.fastio-set', 'data/shards.fastio-set', 'in.fastio-set')
    """
    if path.endswith(SET_SUFFIX):
        return path
    folder, slash, name = path.rpartition("/")
    stem = _ANY_NUMBER.sub("", name, count=1).rpartition(".")[0]
    return f"{folder}{slash}{stem or 'shards'}{SET_SUFFIX}"


def listed_name(path: str, out: str) -> str:
    """Return how the set ``out`` lists the shard at this path or URL: by name in its own folder, else by all of it."""
    folder, _, name = path.rpartition("/")
    out_folder = out.rpartition("/")[0]
    if not is_local(path):
        return name if folder == out_folder else path
    if not is_local(out):
        raise StoreError(f"{path}: lies on this machine, where nobody who reads {out} finds it: copy the shards first")
    if os.path.realpath(folder or ".") == os.path.realpath(out_folder or "."):
        return name
    return os.path.abspath(path)  # noqa: PTH100 - a link stays one
