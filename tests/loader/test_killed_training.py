"""Processes trained by gloo, killed and started again in other numbers: what counts has every sample once an epoch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path

import pytest

from tests.loader.elastic_training import BATCH, EPOCHS, STEPS_PER_CHECKPOINT
from tests.numbered import write_numbers

TOP = Path(__file__).parents[2]
COUNT = 101
# Numbers of processes; all starts but the last are killed. FASTIO_KILL_SEEDS=1,2,3 runs other moments.
STARTS = (2, 2, 3, 3, 2, 2)
SEEDS = [int(seed) for seed in os.environ.get("FASTIO_KILL_SEEDS", "14").split(",")]


@dataclass
class Step:
    """What was logged of a step of one start: by rank, as far as the ranks came before they were killed."""

    epoch: int = -1
    samples: dict[int, list[int]] = field(default_factory=dict)
    losses: dict[int, str] = field(default_factory=dict)


Start = dict[int, Step]


def read_log(folder: Path, start: int, world_size: int) -> Start:
    """The steps of a start by their numbers; a line that a kill has cut short ends a rank's log."""
    steps: Start = defaultdict(Step)
    for rank in range(world_size):
        path = folder / f"{start}-{rank}.jsonl"
        for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
            if not line.endswith("\n"):
                break
            entry = json.loads(line)
            if "receipt" in entry:
                continue
            step = steps[entry["step"]]
            if "loss" in entry:
                step.losses[rank] = entry["loss"]
            else:
                step.epoch, step.samples[rank] = entry["epoch"], entry["samples"]
    return dict(steps)


@pytest.fixture(scope="module", params=SEEDS)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the logs of one training in several starts."""
    folder = tmp_path_factory.mktemp("killed")
    with write_numbers(folder / "numbers.h5", COUNT).store as store:
        path = store.path
    command = [sys.executable, "-m", "tests.loader.elastic_training", path, folder, request.param, *STARTS]
    hidden = ("SLURM_", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    environment = kept | {"PYTHONPATH": str(TOP), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def starts(trained: Path) -> list[Start]:
    """The logs of one training in several starts."""
    return [read_log(trained, number, size) for number, size in enumerate(STARTS)]


def counting(starts: list[Start]) -> dict[int, tuple[int, Step]]:
    """The steps that no later start took back, with the number of processes: a start goes on behind a checkpoint."""
    steps: dict[int, tuple[int, Step]] = {}
    for size, start in zip(STARTS, starts, strict=True):
        begun = min(start, default=max(steps, default=0) + 1)
        steps = {number: step for number, step in steps.items() if number < begun}
        steps |= {number: (size, step) for number, step in start.items()}
    return steps


def test_every_sample_once_an_epoch(starts: list[Start]) -> None:
    """Over all starts, nothing is missing, and only the last step of an epoch repeats samples: fewer than ranks."""
    steps = counting(starts)
    assert list(range(1, len(steps) + 1)) == sorted(steps)
    for epoch in range(EPOCHS):
        own = [steps[number] for number in sorted(steps) if steps[number][1].epoch == epoch]
        assert all(len(step.samples) == size for size, step in own)
        samples = [list(chain(*step.samples.values())) for _, step in own]
        once = Counter(chain(*samples[:-1]))
        whole = once + Counter(samples[-1])

        assert once <= Counter(range(COUNT)) <= whole
        assert whole.total() - COUNT < own[-1][0]


def test_ranks_always_have_equal_batches(starts: list[Start]) -> None:
    """In every step of every start, whether it counts or not."""
    for size, start in zip(STARTS, starts, strict=True):
        for number, step in start.items():
            lengths = {len(samples) for samples in step.samples.values()}
            assert len(lengths) == 1, (number, step)
            assert lengths.pop() <= BATCH[size]


def test_what_comes_again_is_the_same(starts: list[Start]) -> None:
    """Steps after the last checkpoint come again on as many processes with the same samples, and losses to the bit."""
    repeated = 0
    for (before, earlier), (after, later) in pairwise(zip(STARTS, starts, strict=True)):
        for number in earlier.keys() & later.keys() if before == after else ():
            for rank in earlier[number].samples.keys() & later[number].samples.keys():
                assert earlier[number].samples[rank] == later[number].samples[rank]
            for rank in earlier[number].losses.keys() & later[number].losses.keys():
                assert earlier[number].losses[rank] == later[number].losses[rank]
                repeated += 1
    assert repeated > 0 or len(SEEDS) > 1


def test_starts_go_on_behind_a_checkpoint(starts: list[Start]) -> None:
    """No start begins anywhere else, and the kills came at different moments of the work."""
    begun = [min(start) for start in starts if start]

    assert {0} == {(step - 1) % STEPS_PER_CHECKPOINT for step in begun}
    assert begun == sorted(begun)


def test_every_epoch_has_an_exact_receipt(trained: Path) -> None:
    """What counts was given once: the parts of all starts and ranks add up to the store's number."""
    lines = [line for path in sorted(trained.glob("*.jsonl")) for line in path.read_text().splitlines(keepends=True)]
    entries = [json.loads(line) for line in lines if line.endswith("\n")]
    receipts = [entry["receipt"] for entry in entries if "receipt" in entry]

    assert set(range(EPOCHS)) == {receipt["epoch"] for receipt in receipts}
    assert all(receipt["is_exact"] and receipt["is_whole_store"] for receipt in receipts)
    assert {COUNT} == {receipt["samples"] for receipt in receipts}
    assert max(len(receipt["parts"]) for receipt in receipts) > max(STARTS)
