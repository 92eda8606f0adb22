"""tune: whom it lets race, what it measures, whom it chooses, and that it keeps its time."""

from __future__ import annotations

import itertools
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from fastio.cli import cli
from fastio.errors import FastioError
from fastio.measure.loop.data import DataOptions
from fastio.measure.settings import points, tune
from fastio.measure.settings.points import GridData, Point
from fastio.measure.settings.tune import Race, candidates, loading_rate
from fastio.store.files.remote_options import Remote
from tests.conftest import encode, pictures
from tests.servers.fixtures import Served


@pytest.fixture
def store(png_stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[GridData]:
    """A store of fifty PNGs, on two CPUs without CUDA."""
    monkeypatch.setattr(points, "available_cpus", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    data = GridData(str(png_stores["lmdb"]), DataOptions(batch_size=10))
    yield data
    data.close()


def rates(monkeypatch: pytest.MonkeyPatch, by_threads: dict[int, float]) -> None:
    """Points load at these rates."""
    monkeypatch.setattr(tune, "loading_rate", lambda data, point, **_: by_threads[point.get("threads", 0)])


def threads(store: GridData, *numbers: int) -> list[Point]:
    """Points with so many threads."""
    return [Point(store.name, (("threads", number),)) for number in numbers]


@pytest.mark.parametrize("best", [1, 2, 4, 8])
def test_the_best_is_found(best: int, store: GridData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the fastest point is, it is found, with its code; the others have left."""
    rates(monkeypatch, {number: 1000.0 if number == best else 700.0 for number in (1, 2, 4, 8)})
    done: list[tuple[int, int]] = []
    tuned = tune.tune(store, threads(store, 1, 2, 4, 8), seconds=60, progress=lambda *counts: done.append(counts))

    assert (tuned.point.get("threads", 0), tuned.samples_per_s) == (best, 1000.0)
    assert f"threads={best}" in tuned.code
    assert [best] == [each.point.get("threads", 0) for each in tuned.tried[:1]]
    assert len(tuned.tried) == 4
    assert tuned.is_complete
    assert done == [(number, 15) for number in range(1, len(done) + 1)]


def test_rates_are_comparable_though_rounds_differ(store: GridData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others slow the machine down to a tenth after the first round, in which the slower point has left."""
    calls: list[int] = []

    def rate(_: GridData, point: Point, **__: float) -> float:
        calls.append(0)
        return (1000.0 if point.get("threads", 0) == 2 else 250.0) / (1 if len(calls) <= 2 else 10)

    monkeypatch.setattr(tune, "loading_rate", rate)
    tuned = tune.tune(store, threads(store, 1, 2), seconds=60, progress=lambda *_: None)
    shown = {each.point.get("threads", 0): each.samples_per_s for each in tuned.tried}

    assert shown[1] == pytest.approx(shown[2] / 4)


def test_the_cheapest_of_equals(store: GridData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 3 %, fewer CPUs are worth more."""
    rates(monkeypatch, {2: 1000.0, 1: 980.0})

    assert tune.tune(store, threads(store, 2, 1), seconds=60, progress=lambda *_: None).point.get("threads", 0) == 1


def test_the_time_is_kept(store: GridData, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is over, one round has been run, and it is said that this is not enough."""
    rates(monkeypatch, {1: 1000.0, 2: 1000.0})
    tuned = tune.tune(store, candidates(store), seconds=0.0, progress=lambda *_: None)

    assert {1} == {each.rounds for each in tuned.tried}
    assert not tuned.is_complete


def test_a_round_that_would_not_end_in_time_is_not_begun(store: GridData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds that take longer than their slices are counted by what they took."""
    clock = [0.0]

    def slow(*_: object, **__: object) -> float:
        clock[0] += 4.0
        return 1000.0

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(tune, "loading_rate", slow)
    tuned = tune.tune(store, threads(store, 1, 2), seconds=20.0, progress=lambda *_: None)

    assert tuned.seconds == 16.0


def test_slow_batches_do_not_outlast_the_time(store: GridData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of points that take a minute each, those are tried that the time is enough for, and it is said."""
    clock = [0.0]

    def slow(*_: object, **__: object) -> float:
        clock[0] += 60.0
        return 1000.0

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(tune, "loading_rate", slow)
    tuned = tune.tune(store, threads(store, 1, 2, 4, 8), seconds=100.0, progress=lambda *_: None)

    assert (120.0, 2) == (tuned.seconds, len(tuned.tried))
    assert not tuned.is_complete


@pytest.mark.parametrize("number", [1, 2])
def test_one_batch_is_enough_when_time_is_over(number: int, store: GridData, monkeypatch: pytest.MonkeyPatch) -> None:
    """A point is not given more than the batch that is under way, and one to measure."""
    clock = [0.0]
    taken = 0

    def counted(batch: Any) -> int:
        nonlocal taken
        taken += 1
        return len(batch[0])

    def now() -> float:
        clock[0] += 30.0
        return clock[0]

    monkeypatch.setattr(tune, "sample_count", counted)
    monkeypatch.setattr(tune.time, "perf_counter", now)

    assert loading_rate(store, threads(store, number)[0], seconds=20.0, latest=25.0) == 10 / 60.0
    assert taken == 1


def test_rounds_go_to_and_fro(store: GridData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second one begins with the last point."""
    seen: list[int] = []

    def rate(_: GridData, point: Point, *, seconds: float, latest: float) -> float:
        seen.append(int(point.get("threads", 0)))
        return 1000.0

    monkeypatch.setattr(tune, "loading_rate", rate)
    tune.tune(store, threads(store, 1, 2), seconds=60, progress=lambda *_: None)

    assert [1, 2, 2, 1, 1, 2] == seen[:6]


@pytest.mark.parametrize(("number", "batches"), [(1, 9), (2, 10)])
def test_a_rate_is_measured(number: int, batches: int, store: GridData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of whole turns, over several epochs, by the clock: the first turn is not counted."""
    clock = itertools.count()  # a second later at each look, of which a batch has one and the end another
    monkeypatch.setattr(tune, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    rate = loading_rate(store, threads(store, number)[0], seconds=9)

    assert rate == 10 * batches / (batches + 1)


def test_no_batch_is_no_rate() -> None:
    """A loader that gives nothing would be asked for ever."""
    empty: DataLoader[Any] = DataLoader(TensorDataset(torch.zeros(3)), 4, drop_last=True)
    with pytest.raises(FastioError, match="no batch"):
        list(tune._endless(empty, "x"))


def test_candidates_change_no_sample(store: GridData, tmp_path: Path) -> None:
    """Neither shuffling nor the last batch is decided on; workers stay alive."""
    for number, pixels in enumerate(pictures(5)):
        (tmp_path / f"{number}.png").write_bytes(encode(pixels))
    files = candidates(GridData(str(tmp_path), DataOptions(batch_size=4)))

    assert all("shuffle" not in dict(point.settings) for point in candidates(store))
    assert all("drop_last" not in dict(point.settings) for point in files)
    assert all(point.get("persistent_workers", False) for point in files if point.get("num_workers", 0))


def test_a_batch_systems_cpus_are_the_most(png_stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """With one CPU from SLURM there is one thread, whatever the machine has."""
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
    data = GridData(str(png_stores["lmdb"]), DataOptions(batch_size=10))

    assert {1} == {point.get("threads", 0) for point in candidates(data)}
    data.close()


# The race: the fastest is found among noise and bursts, nobody leaves for one bad round.


def run(speeds: list[float], *, seed: int, rounds: int = 15) -> Race[int]:
    """Rounds with 10 % of noise; in every fifth run somebody takes half of the machine, and whole rounds vary too."""
    generator = np.random.default_rng(seed)
    race = Race(list(range(len(speeds))))
    while race.rounds < rounds and (len(race.left) > 1 or race.rounds == 0):
        machine = generator.uniform(0.4, 1.0)
        noise = generator.normal(1, 0.1, len(race.left)).clip(0.5)
        bursts = np.where(generator.random(len(race.left)) < 0.2, 0.5, 1.0)
        race.add((machine * noise * bursts * np.array(speeds)[race.left]).tolist())
    return race


@pytest.mark.parametrize("seed", range(20))
def test_the_winner_is_within_a_tenth_of_the_best(seed: int) -> None:
    """Of twelve runners at a hundred rates of the noisy machine, one within 10 % of the fastest is ahead."""
    speeds = np.random.default_rng(seed).uniform(20, 100, 12).tolist()
    race = run(speeds, seed=seed)
    winner = next(iter(race.ratios()))

    assert speeds[winner] >= 0.9 * max(speeds), f"seed {seed}"


def test_far_behind_leaves_at_once_and_close_stays() -> None:
    """A tenth of the leader's rate ends it; half of it may have been a bad moment, until three rounds said so."""
    race = Race(["best", "half", "tenth"])
    race.add([100, 55, 10])
    assert ["best", "half"] == race.left
    race.add([100, 55])
    assert ["best", "half"] == race.left
    race.add([100, 55])
    assert ["best"] == race.left


def test_one_slow_round_is_forgiven() -> None:
    """The best runner stays though it was the slowest in a round, and leads in the end."""
    race = Race(["best", "other"])
    for rates in ([40, 90], [100, 90], [100, 90], [100, 90]):
        race.add(rates)

    assert {"best": 1.0, "other": pytest.approx(0.9)} == race.ratios()


def test_slow_rounds_slow_everybody() -> None:
    """A machine that gets slower changes no ratio."""
    race = Race(["a", "b"])
    for speed in (1.0, 0.5, 0.1):
        race.add([speed * 100, speed * 95])

    assert race.ratios()["b"] == pytest.approx(0.95)
    assert race.rates() == {"a": [100, 50, 10], "b": [95, 47.5, 9.5]}


# The lines that tune prints are run: on photos of mixed sizes, in stores, folders and functions of the user.

SCRIPT = """
from fastio import FastDataset
from fastio.measure.loop.data import FolderDataset
from fastio.transforms import CenterCrop, Compose

def files():
    return FolderDataset({root!r} + "/photos", Compose([CenterCrop(16)]))

def packed():
    import numpy as np
    return FastDataset({root!r} + "/photos.lmdb", lambda image: np.asarray(image)[:16, :16].copy())
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Photos of mixed sizes, packed and not, and a script in another folder."""
    numbers = np.random.default_rng(0)
    for number in range(8):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        size = (40 + number, 60 - number, 3)
        Image.fromarray(numbers.integers(0, 256, size, np.uint8)).save(path)
    assert CliRunner().invoke(cli, ["pack", str(tmp_path / "photos"), str(tmp_path / "photos.lmdb")]).exit_code == 0
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "user_tuned.py").write_text(SCRIPT.format(root=str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "user_tuned", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("data", "options", "expected"),
    [
        ("photos.lmdb", DataOptions(batch_size=4, crop=16), "CenterCrop"),
        ("photos.lmdb", DataOptions(batch_size=4, crop=16, augment=True, shuffle=True), "RandomResizedCrop"),
        ("photos", DataOptions(batch_size=4, crop=16), "CenterCrop"),
        ("photos", DataOptions(batch_size=4, crop=16, augment=True, shuffle=True), "RandomResizedCrop"),
        ("code/user_tuned.py:files", DataOptions(batch_size=4, shuffle=True), "sys.path.insert(0, 'code')"),
        ("code/user_tuned.py:packed", DataOptions(batch_size=4), "DataLoader(packed(), batch_size=4, num_workers=0)"),
    ],
)
def test_lines_to_paste_run(data: str, options: DataOptions, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name is there, and batches come that have the size that was asked for."""
    opened = GridData(data, options)
    point = candidates(opened)[0]
    rate = loading_rate(opened, point, seconds=0.0)
    code = opened.code(point)
    opened.close()
    monkeypatch.setattr(sys, "path", [each for each in sys.path if not each.endswith("/code")])
    sys.modules.pop("user_tuned", None)
    names: dict[str, Any] = {}
    exec(code, names)
    images, labels = next(iter(names["loader"]))

    assert rate > 0
    assert expected in code
    assert (4, 16, 16) == (len(labels), *sorted(images.shape)[-2:])


def test_options_of_a_url(folder: Path, served: Served) -> None:
    """They are in the lines, which run; a secret is not."""
    shutil.copy(folder / "photos.lmdb", served.root)
    url = f"{served.url}/photos.lmdb"
    remote = Remote({"client_options": {"user_agent": "me"}}, cache_dir=folder / "cache", download_retry=7)
    code = _code(url, DataOptions(batch_size=4, crop=16, remote=remote))
    expected = (
        "remote=Remote(storage_options={'client_options': {'user_agent': 'me'}}, "
        f"cache_dir={str(folder / 'cache')!r}, download_retry=7))"
    )
    assert f"loader = FastLoader(FastDataset({url!r}, {expected}, batch_size=4" in code
    names: dict[str, Any] = {}
    exec(code, names)
    with names["loader"] as loader:
        assert (4, 3, 16, 16) == next(iter(loader))[0].shape
    names["loader"].dataset.close()

    hidden = Remote({"client_options": {"default_headers": {"Authorization": "Bearer 123"}}})
    code = _code(url, DataOptions(batch_size=4, crop=16, remote=hidden))
    assert "storage_options={'client_options': {'default_headers': {'Authorization': '***'}}}))" in code
    assert "'photos.lmdb', batch_size=4" in _code("photos.lmdb", DataOptions(batch_size=4, crop=16, remote=remote))


def _code(data: str, options: DataOptions) -> str:
    """The lines for the first candidate."""
    opened = GridData(data, options)
    point = candidates(opened)[0]
    opened.close()
    return opened.code(point)
