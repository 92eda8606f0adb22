"""Keeps LitData's ``optimize`` away from folders that are not its own."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["own_caches"]


def own_caches(packed: Path) -> None:
    """
    Name cache folders beside the folder that is packed into; call it before ``optimize``.

    ``optimize`` deletes its two cache folders when it starts, by default ``chunks`` and ``data`` in the folder for
    temporary files, whoever's they are. It may also delete files that its inputs name: give it numbers.
    """
    caches = packed.with_name(f"{packed.name}-caches")
    os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = str(caches / "chunks")
    os.environ["DATA_OPTIMIZER_DATA_CACHE_FOLDER"] = str(caches / "data")
