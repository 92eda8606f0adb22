"""Blocks of copies, brought by threads."""

from __future__ import annotations

from concurrent.futures import wait
from typing import Any, cast

import pytest

from fastio.store.staging import movers
from fastio.store.staging.file_copy import FileCopy
from fastio.store.staging.movers import ThreadMover


class CopyOfOneBlock:
    """A copy whose block is there at once."""

    blocks = ((0, 1),)

    def copy(self, block: int) -> None:
        """Bring it."""


def test_copies_are_finished_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if several are whole at once: one that is slow to finish must not keep back those before it."""
    monkeypatch.setattr(movers, "wait", lambda blocks, **_: wait(blocks))
    copies = [cast(FileCopy, CopyOfOneBlock()) for _ in range(32)]
    finished: list[Any] = []
    ThreadMover(jobs=16).move(copies, finished.append, lambda _: None)

    assert copies == finished
