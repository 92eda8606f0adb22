"""Two writers of one set, of whatever kind, step by step in any order: nothing is lost, and what they say is true."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.converters.packing import interleave
from tests.converters.packing.interleave import (
    KILLED,
    PAIRS,
    WRITERS,
    Trial,
    at_random,
    counted,
    make_sources,
    stopped_at,
    trial,
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sources that are packed, and in time the sets that trials begin with."""
    folder = tmp_path_factory.mktemp("interleave")
    make_sources(folder)
    return folder


@pytest.mark.parametrize("first", WRITERS)
def test_one_is_stopped_or_killed_while_the_other_runs(root: Path, first: str) -> None:
    """Each pair at one step: the whole is `python -m tests.converters.packing.interleave --all`."""
    for number, names in enumerate(pair for pair in PAIRS if pair[0] == first):
        step = random.Random(f"{names}").randrange(counted(root, names))
        done = trial(root, names, stopped_at(step, kill=number % 2 == 1))
        assert [] == done.problems, (names, step, done.messages)


@pytest.mark.parametrize("names", [("overwrite", "overwrite"), ("append", "overwrite")])
def test_a_second_packer_is_refused(root: Path, names: tuple[str, str]) -> None:
    """While the first one makes its shards, the second changes nothing and says why; later it may come behind it."""
    trials = [trial(root, names, stopped_at(step, kill=False)) for step in range(counted(root, names))]
    refused = ["another process is packing this set" in done.messages[1] for done in trials]

    assert [] == [done.problems for done in trials if done.problems]
    assert all(bool(done.messages[1]) == each for done, each in zip(trials, refused, strict=True))
    assert all(refused[1 : len(refused) // 2])


def test_any_order(root: Path) -> None:
    """A few of the orders that `python -m tests.converters.packing.interleave --random 300` makes."""
    for seed in range(12):
        draw = random.Random(seed)
        done = trial(root, draw.choice(PAIRS), at_random(draw))
        assert [] == done.problems, (seed, done.names, done.messages)


def test_a_trial_that_lost_something_is_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of these tests fails for a set whose shards another packer took."""

    def lost(place: interleave.Place) -> None:
        min(place.folder.glob("x-*.tar")).unlink()

    monkeypatch.setitem(WRITERS, "lose", interleave.Writer(lost, [lambda there: there]))  # type: ignore[arg-type]
    done: Trial = trial(root, ["append", "lose"], stopped_at(1, kill=True))

    assert [KILLED, ""] == done.messages
    assert len(done.problems) == 1
