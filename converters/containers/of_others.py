"""Whether a file is a container that another program wrote, by its first bytes and the lack of our seal."""

from __future__ import annotations

from pathlib import Path

from fastio.errors import StoreError
from fastio.store.formats import content_of
from fastio.store.seal import read_seal

__all__ = ["is_of_others"]


def is_of_others(path: str, name: str) -> bool:
    """Whether the file begins as those of a container in FORMATS do, and fastio has not packed it."""
    if not Path(path).is_file():
        return False
    try:
        form = content_of(path)
        return form is not None and form.name == name and read_seal(path, form.seal_at) is None
    except (OSError, StoreError):
        return False
