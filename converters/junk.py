"""Recognises files beside pictures in nearly every dataset that are not samples: named and counted, never packed."""

from __future__ import annotations

import re

__all__ = ["APPLE_DOUBLE", "is_hidden", "junk_reason"]

APPLE_DOUBLE = b"\x00\x05\x16\x07"  # how a file ._NAME begins in which macOS keeps what it knows of NAME

_OF_SYSTEMS = frozenset([".ds_store", "thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r"])
_ABOUT = re.compile(r"(?:readme|license|licence|copying|citation)(?:[._-].*)?\Z")
_TEXTS = (".txt", ".md", ".csv")
_ARCHIVE_FOLDER = "__MACOSX"  # what macOS puts into the zip files that it makes


def is_hidden(folder: str) -> bool:
    """Return whether a folder of this name is not the user's: ``.git``, ``.ipynb_checkpoints``, ``__MACOSX``."""
    return folder.startswith(".") or folder == _ARCHIVE_FOLDER


def junk_reason(name: str) -> str:
    """
    Return why a file of this name, which is not a picture, is left out without being a problem; "" if it is a
    problem.

    >>> junk_reason("Thumbs.db"), junk_reason("0001.npy")
    ('is a file of the operating system', '')
    """
    lower = name.lower()
    if lower in _OF_SYSTEMS:
        return "is a file of the operating system"
    if name.startswith("."):
        return "is a hidden file"
    if _ABOUT.match(lower):
        return "is a note about the data"
    return "is a text file next to the pictures" if lower.endswith(_TEXTS) else ""
