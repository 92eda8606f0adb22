"""Faults of a server while a set is read: nothing wrong, nothing that hangs, every error by name."""

from __future__ import annotations

import os

import pytest

from benchmarks.remote.known_set import make_known_set
from benchmarks.remote.soak import Reading, Soak
from benchmarks.remote.storm import KINDS, storm
from tests.servers.fixtures import Served

SLOW = ("hang", "stall", "tail")  # they last as long as a request may take


@pytest.mark.parametrize("raw", [False, True], ids=["jpeg", "raw"])
def test_small_storm(served: Served, raw: bool) -> None:
    """Thirty faults, at the opening and later, that pass or stay: right samples, or an error with a name."""
    known = make_known_set(served.root / "set", count=64, side=24, shards=3, raw=raw)
    kinds = [kind for kind in KINDS if kind not in SLOW]
    result = storm(served.server, [(f"{served.url}/set", known)], faults=30, seed=int(raw), kinds=kinds)

    assert ([], [], [], []) == (result.wrong, result.hangs, result.foreign, result.nameless)
    assert result.mended > 0
    assert result.faults.total() >= 30


def test_damage_that_stays(served: Served) -> None:
    """A server that flips bits in every answer gives no wrong sample of raw pictures."""
    known = make_known_set(served.root / "set", count=32, side=24, shards=2, raw=True)
    result = storm(served.server, [(f"{served.url}/set", known)], faults=10, seed=1, kinds=["flip"])

    assert ([], []) == (result.wrong, result.foreign)


def test_growth_is_noticed() -> None:
    """Memory, threads or sockets that grow until the last third are named."""
    soak = Soak(readings=[Reading(minute, 100 + 10 * minute, 8, 4 + minute // 6, 20) for minute in range(9)])

    assert ["memory: 110 -> 170 MB", "sockets: 4 -> 5"] == soak.growing()


def test_what_is_left_after_closing() -> None:
    """The threads and files of tokio's runtime may stay; anything more is named."""
    workers = os.cpu_count() or 1
    soak = Soak(before=Reading(0, 100, 8, 2, 20), after=Reading(9, 130, 8 + workers, 2, 23))
    assert [] == soak.left()

    soak.after = Reading(9, 130, 9 + workers, 3, 24)
    assert [f"threads: 8 -> {9 + workers}", "sockets: 2 -> 3", "files: 20 -> 24"] == soak.left()
