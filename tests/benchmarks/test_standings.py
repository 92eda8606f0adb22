"""Where fastio stands among its peers: who is compared, and what is said when it is not first."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.standings import peer_standings, remote_standings


def peer(environment: str, *, keeps_pixels: bool = True) -> dict[str, Any]:
    """What a report keeps of a peer."""
    packing = {"size_bytes": 1_000_000}
    return {"environment": environment, "remark": "as it is", "keeps_pixels": keeps_pixels, "packing": packing}


def run(samples: int, wall_s: float = 1.0) -> dict[str, Any]:
    """One round of ``samples`` in one second of one CPU."""
    return {"samples": samples, "cpu_s": 1.0, "wall_s": wall_s}


def report(**rates: int) -> dict[str, Any]:
    """One task; "ours" and "small" are fastio's, "raw" and "small" have other pixels."""
    peers = {
        name: peer("" if name in ("ours", "small") else "other", keeps_pixels=name not in ("raw", "small"))
        for name in rates
    }
    return {
        "tasks": {"crops": {"title": "crops", "batch_size": 8, "peers": peers}},
        "runs": {f"crops: {name}": [run(rate)] for name, rate in rates.items()},
        "failed": {},
    }


def test_equal_work_is_compared() -> None:
    """Neither side may win by rows whose pixels were changed when packing."""
    (standing,) = peer_standings(report(ours=20, small=90, slow=5, best=10, raw=15))

    assert ("ours", "best", 2.0, "") == (standing.ours, standing.peer, standing.ratio, standing.changed)


def test_a_peer_that_is_faster_with_other_pictures_is_named() -> None:
    """With its rate and what it did to them."""
    (standing,) = peer_standings(report(ours=20, best=10, raw=30))

    assert standing.changed == "raw: 30 (as it is)"


def test_a_task_without_peers_has_no_standing() -> None:
    """Nobody is first alone."""
    assert [] == list(peer_standings(report(ours=20)))


def test_remote_rates_are_by_the_clock() -> None:
    """The best peer of each way in which the server was slow."""
    runs = {
        "far: fastio": [run(30, wall_s=2.0)],
        "far: LitData": [run(5)],
        "far: WebDataset": [run(10)],
        "local files: fastio": [run(50)],
    }
    (standing,) = remote_standings({"runs": runs})

    assert ("WebDataset", pytest.approx(1.5)) == (standing.peer, standing.ratio)
