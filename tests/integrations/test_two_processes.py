"""Two real processes with gloo under each trainer: together they have each sample once an epoch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.conftest import COUNT
from tests.integrations.elastic_runs import BEGINS, CONTINUES, all_trainers

TOP = Path(__file__).parents[2]


# Three libraries are imported, beside whatever else the machine does.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the processes write."""
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def begun(store: Path, folder: Path) -> dict[str, list[int]]:
    """What this process has seen of trainings that the two processes continue."""
    return all_trainers(BEGINS, store, folder / "begun", 1)


@pytest.fixture(scope="module")
def seen(store: Path, folder: Path, begun: dict[str, list[int]]) -> list[dict[str, Any]]:
    """What each of the two processes saw, which have the environment that torchrun gives."""
    environment = {**os.environ, "PYTHONPATH": str(TOP), "OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "test"}
    command = [sys.executable, "-m", "tests.integrations.one_of_two", store, folder / "begun", folder]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=TOP, stdout=log, stderr=log, start_new_session=True)
    try:
        ended = process.wait(timeout=280)
        assert ended == 0, (folder / "log").read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return [json.loads((folder / str(rank)).read_text()) for rank in range(2)]


@pytest.mark.parametrize("trainer", ["lightning", "accelerate", "transformers"])
def test_each_sample_once_an_epoch(seen: list[dict[str, Any]], trainer: str) -> None:
    """No sample comes on both, none is lost but the one of 23 that two ranks cannot share."""
    first, second = ([process[trainer]["epochs"][epoch] for process in seen] for epoch in range(2))
    for epoch in (first, second):
        assert len(epoch[0]) == len(epoch[1]) == COUNT // 2
        assert len(set(chain(*epoch))) == COUNT - 1
    assert first != second


@pytest.mark.parametrize(("trainer", "what"), [("accelerate", "gathered"), ("transformers", "evaluated")])
def test_what_is_gathered_has_every_sample_once(seen: list[dict[str, Any]], trainer: str, what: str) -> None:
    """The sample that is repeated for even batches is left out again."""
    for process in seen:
        assert list(range(COUNT)) == sorted(process[trainer][what])


@pytest.mark.parametrize("trainer", ["lightning", "accelerate", "transformers"])
def test_resumed_on_both_at_the_next_batch(seen: list[dict[str, Any]], trainer: str) -> None:
    """Three epochs with an interruption within the second have the batches of an uninterrupted training, on each."""
    for process in seen:
        whole, in_parts = process["resumed"][trainer]
        assert whole == in_parts
        assert len(whole) == 9


@pytest.mark.parametrize("trainer", BEGINS)
def test_two_continue_what_one_began(begun: dict[str, list[int]], seen: list[dict[str, Any]], trainer: str) -> None:
    """Three epochs have each sample three times; the last two end with one repetition, as 15 and 23 are odd."""
    counts = Counter(chain(begun[trainer], *(process["continued"][trainer] for process in seen)))
    assert {3} == {min(3, counts[sample]) for sample in range(COUNT)}
    assert 3 * COUNT + 2 == counts.total()


@pytest.mark.parametrize("trainer", BEGINS)
def test_one_continues_what_two_began(store: Path, folder: Path, seen: list[dict[str, Any]], trainer: str) -> None:
    """Only the first epoch, which two processes ended, has a repetition."""
    rest = all_trainers({trainer: CONTINUES[trainer]}, store, folder / "out" / "begun", 1)
    counts = Counter(chain(rest[trainer], *(process["begun"][trainer] for process in seen)))
    assert {3} == {min(3, counts[sample]) for sample in range(COUNT)}
    assert 3 * COUNT + 1 == counts.total()


def test_what_would_lose_or_double_samples_is_refused(seen: list[dict[str, Any]]) -> None:
    """A sampler's share that accelerate would share out again, and a loader that was built before there were ranks."""
    for rank, process in enumerate(seen):
        assert f"LengthBucketSampler gives rank {rank} of 2 its share" in process["refused"]["prepared"]
        assert f"rank 0 of 1, but this process is rank {rank} of 2" in process["refused"]["early"]
