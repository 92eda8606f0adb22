"""Running a training: which loop is looked at, how it ends, and that it is left as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, dataloader

from fastio import FastLoader
from fastio.errors import FastioError
from fastio.measure.doctor import session
from fastio.measure.doctor.gather import facts_of
from fastio.measure.doctor.session import Observation, ObservationPlan, observe
from fastio.measure.doctor.watch import Watcher
from tests.measure.doctor.planted import PLAN, Burn, Samples, Training, examine

PROFILED = ObservationPlan(seconds=0.5, profiled=2)


class Clock:
    """A clock that nothing but the test puts forward, so that no other process changes what fits into a time."""

    def __init__(self, *, tick_s: float = 0.0) -> None:
        self.now_s = 1000.0
        self.tick_s = tick_s

    def perf_counter(self) -> float:
        """Return the time, like ``time.perf_counter``, ``tick_s`` later than at the last call."""
        self.now_s += self.tick_s
        return self.now_s


@pytest.fixture(autouse=True)
def _time_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the seconds of a plan pass with the session's looks at its clock, a millisecond each."""
    monkeypatch.setattr("fastio.measure.doctor.session.time", Clock(tick_s=0.001))


def batches(**settings: Any) -> DataLoader[torch.Tensor]:
    """Two samples each, made in no time."""
    return DataLoader(Samples(), batch_size=2, **settings)


def seen_of(training: Any, plan: ObservationPlan = PLAN) -> Observation:
    """What a run has shown."""
    return observe(training, plan, lambda seen: seen)


def test_steps_are_timed_and_profiled() -> None:
    """The training ends by itself when both are done."""
    training = Training(batches())
    facts = examine(training, PROFILED)
    assert facts.step is not None
    assert facts.step.steps is not None
    assert facts.trace is not None
    assert facts.trace.loading is not None

    assert 5 <= facts.step.steps < len(training.seen)
    assert facts.step.samples_per_step == 2
    assert facts.unknown == ("launching and synchronising: nothing ran on a GPU",)
    assert facts.model is not None
    assert ("cpu", "float32") == (facts.model.device, facts.model.dtype)


class SlowSamples(Samples):
    """Samples that put a clock forward."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        super().__init__()
        self.clock = clock
        self.seconds = seconds

    def __getitem__(self, index: int) -> torch.Tensor:
        self.clock.now_s += self.seconds
        return super().__getitem__(index)


@pytest.mark.parametrize("profiled", [0, 5])
@pytest.mark.parametrize("step_s", [0.3, 0.9, 3.0, 7.0, 30.0])
def test_seconds_are_a_bound(monkeypatch: pytest.MonkeyPatch, step_s: float, profiled: int) -> None:
    """From the end of the first step, a training is looked at for so many seconds, and one more step at most."""
    clock = Clock()
    monkeypatch.setattr("fastio.measure.doctor.session.time", clock)
    training = Training(DataLoader(SlowSamples(clock, step_s / 2), batch_size=2))
    found = seen_of(training, ObservationPlan(seconds=10.0, profiled=profiled))
    assert found.summary is not None

    assert clock.now_s - 1000 - step_s <= 10 + step_s
    assert found.summary.steps >= 2
    assert (found.trace is not None) == (profiled > 0 and step_s <= 1)


def test_batches_are_those_of_the_loader() -> None:
    """Neither values nor order change under the doctor."""
    training = Training(batches(num_workers=2))
    seen_of(training)

    expected = [torch.full((4,), float(2 * n)) for n in range(len(training.seen))]
    assert all(torch.equal(batch[0], first) for batch, first in zip(training.seen, expected, strict=True))


def test_everything_is_left_as_it_was() -> None:
    """Classes of torch and of the user, and the loader, after a run that was ended."""
    kinds = (DataLoader, dataloader._BaseDataLoaderIter, dataloader._DatasetKind, FastLoader, Burn)
    before = [str(sorted(vars(kind).items())) for kind in kinds]
    loader: DataLoader[torch.Tensor] = DataLoader(Samples(transform=Burn(0)), batch_size=2, num_workers=1)
    own, clear = dict(vars(loader)), torch.clear_autocast_cache
    seen_of(Training(loader))
    seen_of(Training(DataLoader(Samples(transform=Burn(0)), batch_size=2)))

    assert before == [str(sorted(vars(kind).items())) for kind in kinds]
    assert (own, clear) == (dict(vars(loader)), torch.clear_autocast_cache)


def test_the_loop_with_an_optimizer_is_the_training() -> None:
    """A pass over another loader before, for statistics, and one in between, for validation, are not."""
    train, other = batches(), DataLoader(TensorDataset(torch.zeros(6, 4)), batch_size=2)

    def training(watcher: Watcher) -> None:
        for _ in other:
            pass
        Training(train)(watcher)

    found = seen_of(training)
    assert found.watch is not None

    assert found.watch.loader is train
    assert [0, 1] == [watch.number for watch in found.watcher.watches]


def test_epochs() -> None:
    """Waits for first batches are told apart, and an epoch's length is known."""
    loader = DataLoader(TensorDataset(torch.zeros(6, 4)), batch_size=2)

    def training(watcher: Watcher) -> None:
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters())
        while True:
            for (batch,) in loader:
                model(batch).sum().backward()
                optimizer.step()

    facts = examine(training)
    assert facts.step is not None

    assert facts.step.steps_per_epoch == 3
    assert facts.step.epoch_start_s is not None
    assert facts.step.epoch_start_s > 0


def test_a_loop_without_a_loader() -> None:
    """Steps are then those of the optimizer, and waiting is not known."""

    def training(watcher: Watcher) -> None:
        del watcher
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters())
        batch = next(iter(batches()))
        while True:
            model(batch).sum().backward()
            optimizer.step()

    facts = examine(training, PROFILED)

    assert facts.step is None
    assert facts.trace is not None
    assert facts.trace.loading is None
    assert "DataLoader" in facts.unknown[0]


def test_a_loop_without_an_optimizer() -> None:
    """Of inference, the loop over the loader is told of when it has ended."""

    def training(watcher: Watcher) -> None:
        del watcher
        for number, _ in enumerate(batches()):
            if number == 9:
                return

    facts = examine(training)
    assert facts.step is not None

    assert facts.step.steps == 9
    assert "no torch optimizer" in facts.unknown[0]


def test_a_training_that_ends_early() -> None:
    """What could be seen is told, and what could not."""
    facts = examine(Training(batches(num_workers=1), steps=3))
    assert facts.step is not None

    assert facts.step.steps == 3
    assert facts.machine is not None
    assert "it ended after 3 steps" in facts.unknown[0]


@pytest.mark.parametrize(
    ("step_s", "profiled", "words"),
    [
        (0.3, 0, ["the parts of a step: --profiled 0 asks for none"]),
        (3.0, 5, ["the parts of a step: --seconds 10 left no time to profile 2 steps; --seconds 60 would"]),
        (7.0, 5, ["a steady loop: --seconds 10 ended after 2 steps, ", "--seconds 140 would"]),
    ],
)
def test_what_did_not_fit_into_the_seconds(
    monkeypatch: pytest.MonkeyPatch, step_s: float, profiled: int, words: list[str]
) -> None:
    """It is the doctor that stopped a training of slow steps: it says so, and how much longer to watch."""
    clock = Clock()
    monkeypatch.setattr("fastio.measure.doctor.session.time", clock)
    monkeypatch.setattr("fastio.measure.loop.step_timer.perf_counter", clock.perf_counter)
    training = Training(DataLoader(SlowSamples(clock, step_s / 2), batch_size=2))
    unknown = examine(training, ObservationPlan(seconds=10.0, profiled=profiled)).unknown

    assert len(words) == len(unknown)
    assert [word for word, line in zip(words, unknown, strict=True) if word not in line] == []


class Stumble(Training):
    """Fails in the middle."""

    def __init__(self, error: BaseException, *, after: int) -> None:
        super().__init__(batches(), steps=after)
        self.error = error

    def __call__(self, watcher: Watcher) -> None:
        """What the doctor runs."""
        super().__call__(watcher)
        raise self.error


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (RuntimeError("out of memory"), 1, "RuntimeError: out of memory"),
        (SystemExit(3), 3, "sys.exit(3)"),
        (SystemExit("no data"), 1, "sys.exit('no data')"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (FastioError("a.lmdb: damaged"), 1, "fastio.errors.FastioError: a.lmdb: damaged"),
    ],
)
def test_failures_are_the_users(error: BaseException, code: int, message: str) -> None:
    """Exit code and message of the training, with what was seen before."""
    found = seen_of(Stumble(error, after=4))
    assert found.failure is not None
    facts = facts_of(found)

    assert (code, message) == (found.failure.code, found.failure.message)
    assert facts.step is not None
    assert facts.step.steps is not None
    assert facts.step.steps >= 2


def test_ending_well_is_no_failure() -> None:
    """sys.exit() and sys.exit(0) at the end of a script."""
    assert seen_of(Stumble(SystemExit(0), after=2)).failure is None
    assert seen_of(Stumble(SystemExit(None), after=2)).failure is None


def test_our_own_errors_before_a_loop_go_on() -> None:
    """A script that is not there is one line, no failure of a training."""

    def training(watcher: Watcher) -> None:
        del watcher
        raise FastioError("no such script")

    with pytest.raises(FastioError, match="no such script"):
        seen_of(training)


def test_except_exception_does_not_stop_the_end() -> None:
    """A training loop that survives every error is ended all the same."""

    def training(watcher: Watcher) -> None:
        while True:
            try:
                Training(batches())(watcher)
            except Exception:
                sys.exit("the doctor's end was caught")

    assert seen_of(training).failure is None


@pytest.mark.parametrize("is_enabled", [True, False])
def test_what_is_in_use_already(is_enabled: bool) -> None:
    """Autocast, channels_last and half precision are seen without a hook on the model."""

    def training(watcher: Watcher) -> None:
        del watcher
        model = nn.Conv2d(1, 1, 2).to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters())
        for batch in batches():
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_enabled):
                loss = model(batch.reshape(2, 1, 2, 2)).sum()
            loss.backward()
            optimizer.step()

    facts = examine(training)
    assert facts.model is not None

    assert is_enabled == facts.model.is_autocast
    assert facts.model.has_convolutions
    assert facts.model.is_channels_last
    assert not facts.model.is_compiled


def test_where_the_data_lies(tmp_path: Path) -> None:
    """A folder or files that the dataset names are what there is to pack."""

    class Files(Samples):
        def __init__(self, paths: list[tuple[str, int]]) -> None:
            super().__init__()
            self.samples = paths

    (tmp_path / "a.png").touch()
    subset = torch.utils.data.Subset(Files([(str(tmp_path / "a.png"), 0)]), range(1000))
    facts = examine(Training(DataLoader(subset, batch_size=2)))
    assert facts.loader is not None

    assert ("Files", str(tmp_path)) == (facts.loader.dataset, facts.loader.data_path)


def test_the_size_of_batches_is_the_loaders() -> None:
    """An epoch's last, smaller batch does not change what advice says to write."""
    loader = DataLoader(TensorDataset(torch.zeros(9, 4)), batch_size=2)
    facts = examine(Training(loader))

    assert facts.batch_size == 2


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.parametrize("workers", [0, 1])
def test_loaders_with_an_iter_of_their_own(workers: int) -> None:
    """Subclasses of DataLoader that make their iterators themselves: torchdata's, made after the watcher."""

    def training(watcher: Watcher) -> None:
        from torchdata.stateful_dataloader import StatefulDataLoader

        Training(StatefulDataLoader(Samples(), batch_size=2, num_workers=workers))(watcher)

    facts = examine(training)
    assert facts.loader is not None
    assert facts.step is not None

    assert ("DataLoader", "StatefulDataLoader", workers) == (
        facts.loader.kind,
        facts.loader.name,
        facts.loader.workers,
    )
    assert facts.loader.making is not None
    assert facts.step.loading_s is not None


class Repeated(DataLoader[torch.Tensor]):
    """A user's own, on top of torch's iterator."""

    def __iter__(self) -> Any:
        return super().__iter__()


def test_an_epoch_is_counted_once() -> None:
    """An __iter__ that calls the one it replaces begins one epoch."""
    found = seen_of(Training(Repeated(Samples(), batch_size=2)))
    assert found.watch is not None
    summary = found.watch.timer.summary()

    assert type(found.watch.loader) is Repeated
    assert [found.watch] == found.watcher.watches
    assert 1 >= summary.epochs
    assert vars(DataLoader).get("__init_subclass__") is None


def test_an_optimizer_that_is_not_torchs() -> None:
    """A loop in which no optimizer of torch works is ended too, when none has worked for long."""
    steps = 0

    def training(watcher: Watcher) -> None:
        nonlocal steps
        del watcher
        for batch in batches():
            steps += 1
            batch.sum()

    facts = examine(training)
    assert facts.step is not None

    assert steps < 50_000
    assert facts.unknown[0].startswith("training: no torch optimizer ran")


# What is said of a training whose process is gone.


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="is what is taken away")
def test_a_python_without_pidfd(tmp_path: Path) -> None:
    """Built with old headers, as conda's: the end of the pipe tells."""
    folder = tmp_path / "folder"
    folder.mkdir()
    code = f"import os; del os.pidfd_open\n{session._WATCH}"
    command = [sys.executable, "-c", code, str(os.getpid()), str(folder), "is gone"]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60, check=False)

    assert (0, "is gone\n") == (done.returncode, done.stderr)
    assert not folder.exists()
