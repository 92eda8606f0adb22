"""Keys of samples as paths."""

from __future__ import annotations

__all__ = ["is_plain_path"]

_NOT_NAMES = frozenset(("", ".", ".."))


def is_plain_path(key: str) -> bool:
    """
    Return whether a key names a file below a folder, whatever the folder.

    That is not so if it is empty or absolute, holds NUL, or has an empty part, ``.`` or ``..`` in it.
    """
    return _NOT_NAMES.isdisjoint(key.split("/")) and "\0" not in key
