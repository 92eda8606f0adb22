"""Forked processes, in which the client of an object store would hang."""

from __future__ import annotations

import os

from fastio.errors import StoreError

__all__ = ["claim_process"]

_owner: int | None = None


def claim_process() -> None:
    """
    Remember that this process uses object stores.

    Raises StoreError in a process forked from one that did: threads of the client are missing there.
    """
    global _owner  # noqa: PLW0603 - the client's threads belong to the process too
    if _owner is None:
        _owner = os.getpid()
    elif _owner != os.getpid():
        raise StoreError(
            "object stores cannot be read in a forked process: use FastLoader, which needs no worker processes, or "
            'DataLoader(..., multiprocessing_context="spawn")'
        )
