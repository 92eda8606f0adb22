"""The grid: its points, their loaders, early stops, code to paste."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from fastio import FastLoader
from fastio.errors import FastioError
from fastio.measure.loop.data import DataOptions
from fastio.measure.settings import grid, points
from fastio.measure.settings.grid import Repeat, measure_point, run_grid
from fastio.measure.settings.points import GridData, Point
from tests.conftest import encode, pictures


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Seven PNGs."""
    for number, pixels in enumerate(pictures(7)):
        (tmp_path / f"{number}.png").write_bytes(encode(pixels))
    return tmp_path


@pytest.fixture
def store(png_stores: dict[str, Path]) -> Iterator[GridData]:
    """A store of fifty PNGs, as the grid sees it."""
    data = GridData(str(png_stores["lmdb"]), DataOptions(batch_size=10))
    yield data
    data.close()


@pytest.fixture(autouse=True)
def two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same grid on every machine."""
    monkeypatch.setattr(points, "available_cpus", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_points_of_a_store(store: GridData) -> None:
    """Threads up to the CPUs, batches ahead, shuffle: every combination once."""
    found = store.points(store.values())

    assert len(found) == len(set(found)) == 2 * 3 * 2
    assert {point.get("threads", 0) for point in found} == {1, 2}


def test_points_of_a_folder(folder: Path) -> None:
    """Without workers there is nothing to persist or to prefetch; pinning needs CUDA."""
    data = GridData(str(folder), DataOptions(batch_size=4))
    found = data.points(data.values())

    assert len(found) == 2 + 2 * 2 * 2 * 2
    assert all("prefetch_factor" not in dict(point.settings) for point in found if point.get("num_workers", 0) == 0)
    assert "pin_memory" not in data.values()


def test_with_cuda_there_is_more_to_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pinned memory and asynchronous copies join the course's grid."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    assert {"pin_memory", "non_blocking"} <= set(GridData(str(folder), DataOptions()).values())


def test_never_more_than_the_cpus(store: GridData) -> None:
    """A grid beyond the CPUs of this process is refused."""
    with pytest.raises(FastioError, match="may use only 2 CPUs"):
        store.points({"threads": (1, 3)})


def test_memory_is_a_limit(store: GridData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points whose batches ahead would fill a quarter of the free memory are left out; none left is an error."""
    monkeypatch.setattr(points, "available_memory", lambda: 5 * 4 * store.batch_bytes)
    found = store.points({"threads": (1,), "prefetch_batches": (2, 4, 8)})
    assert [2, 4] == [point.get("prefetch_batches", 0) for point in found]

    monkeypatch.setattr(points, "available_memory", lambda: 0)
    with pytest.raises(FastioError, match="--batch-size"):
        store.points({"threads": (1,)})


def test_an_epoch_without_a_batch_is_no_point(folder: Path) -> None:
    """drop_last over fewer samples than a batch would load nothing at all."""
    data = GridData(str(folder), DataOptions(batch_size=8))

    assert all(not point.get("drop_last", False) for point in data.points(data.values()))


def test_a_point_becomes_its_loader(store: GridData, folder: Path) -> None:
    """The loader has the settings."""
    ours = Point(store.name, (("threads", 1), ("prefetch_batches", 2), ("shuffle", True)))
    with store.loader(ours) as loader:
        assert isinstance(loader, FastLoader)
        assert loader.state_dict()["shuffle"] is True

    files = GridData(str(folder), DataOptions(batch_size=4, shuffle=True))
    with files.loader(Point(files.name, (("num_workers", 0), ("drop_last", True)))) as loader:
        assert isinstance(loader, DataLoader)
        assert loader.drop_last


def built(code: str) -> Any:
    """What running the code calls ``loader``."""
    names: dict[str, Any] = {}
    exec(code, names)
    return names["loader"]


@pytest.mark.parametrize("crop", [None, 4])
def test_the_code_runs_as_it_is(crop: int | None, png_stores: dict[str, Path], folder: Path) -> None:
    """Imports and all, it makes a loader with the settings, which gives batches of that size."""
    data = GridData(str(png_stores["lmdb"]), DataOptions(batch_size=10, shuffle=True, crop=crop))
    with built(data.code(Point(data.name, (("threads", 1), ("prefetch_batches", 2))))) as loader:
        state = loader.state_dict()
        (images, _) = next(iter(loader))
    data.close()
    assert (state["division"]["batch_size"], state["shuffle"], len(images)) == (10, True, 10)
    assert crop is None or images.shape[-2:] == (4, 4) or images.shape[1:3] == (4, 4)

    files = GridData(str(folder), DataOptions(batch_size=3, crop=crop))
    loader = built(files.code(Point(files.name, (("num_workers", 0), ("drop_last", True)))))
    assert [3, 3] == [len(images) for images, _ in loader]


def test_a_dataset_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, png_stores: dict[str, Path]) -> None:
    """A function returns the dataset whose loader is looked for; a loader is refused."""
    script = "from fastio import FastDataset\ndef dataset(): return list.__new__(L)\n"
    script += "class L(list):\n    def __len__(self): return 8\n    def __getitem__(self, i): return i\n"
    script += "class D:\n    __len__ = L.__len__\n    __getitem__ = L.__getitem__\ndef made(): return D()\n"
    (tmp_path / "user_grid.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    data = GridData("user_grid:made", DataOptions(batch_size=3))
    with data.loader(Point(data.name, (("num_workers", 0),))) as loader:
        assert [[0, 1, 2], [3, 4, 5], [6, 7]] == [batch.tolist() for batch in loader]
    assert data.batches == 3
    for name in ("user_grid:made", f"{tmp_path}/user_grid.py:made"):
        code = GridData(name, DataOptions(batch_size=3)).code(Point(name, (("num_workers", 0),)))
        assert [3, 3, 2] == [len(batch) for batch in built(code)]
    with pytest.raises(FastioError, match="expected a dataset"):
        GridData("user_grid:dataset", DataOptions())


def test_a_point_is_measured(store: GridData) -> None:
    """Times of two epochs, and a rate that follows from them."""
    steps: list[Any] = []
    seen = measure_point(store, Point(store.name, (("threads", 1),)), seconds=0.0, step=steps.append)

    assert len(steps) == 2 * 5
    assert seen.step_s == seen.loading_s + seen.training_s
    assert seen.samples_per_s == pytest.approx(10 / seen.step_s)
    assert seen.start_s > 0


def test_rows_are_sorted_and_hopeless_ones_stop(store: GridData, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that takes twice the best one's step is measured once; the others as often as asked for."""
    planned = {1: 2.0, 2: 1.0, 3: 1.4}
    monkeypatch.setattr(grid, "measure_point", lambda data, point, **_: _repeat(planned[point.get("threads", 0)]))
    chosen = [(store, Point(store.name, (("threads", threads),))) for threads in planned]
    done: list[tuple[int, int]] = []
    rows = run_grid(chosen, repeats=3, seconds=0, step=lambda _: None, progress=lambda *counts: done.append(counts))

    assert [2, 3, 1] == [row.point.get("threads", 0) for row in rows]
    assert [3, 3, 1] == [len(row.repeats) for row in rows]
    assert [False, False, True] == [row.stopped_early for row in rows]
    assert done[-1] == (9, 9)
    assert rows[0].spread("loading_s") == (1.0, 1.0)


def _repeat(step_s: float) -> Repeat:
    return Repeat(step_s, 0.0, 0.0, samples_per_s=10 / step_s)
