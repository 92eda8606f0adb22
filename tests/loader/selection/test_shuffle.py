"""FastLoader(shuffle=True): trains on a sorted store, goes on from any state, reads windows ahead."""

from __future__ import annotations

import json
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fastio import FastDataset, FastLoader, _native
from fastio.loader.producer.chunks import READ_ALONE
from fastio.samplers.order import block_order
from fastio.types.schema import RAW, Field
from fastio.types.spans import Spans
from tests.conftest import write_store

COUNT, BYTES = 2400, 4096
LANES_MEMORY = "4500kB"  # of 9.8 MB of samples
IN_CLASSES = np.arange(COUNT) // 240


@pytest.fixture(scope="module")
def sorted_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten classes one after the other: sample i begins with its index, then points of its class under noise."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(10, 8)).astype(np.float32)
    rows = np.zeros((COUNT, BYTES // 4), np.float32)
    rows[:, 1:9] = centres[IN_CLASSES] + rng.normal(size=(COUNT, 8))
    values = rows.view(np.int32)
    values[:, 0] = np.arange(COUNT)
    path = tmp_path_factory.mktemp("sorted") / "a.h5"
    field = Field("x", RAW, "<f4", (BYTES // 4,))
    return write_store(path, [row.tobytes() for row in values], IN_CLASSES, field=field)


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page cache holds less than half of the store."""
    monkeypatch.setenv("FASTIO_SHUFFLE_MEMORY", LANES_MEMORY)


def indices_of(batches: Any) -> list[list[int]]:
    """The samples of each batch."""
    return [values[:, 0].contiguous().view(torch.int32).tolist() for values, _ in batches]


def accuracy(batches: list[tuple[NDArray[np.float32], NDArray[np.int64]]]) -> float:
    """What a linear classifier learns from one pass over these batches, by plain gradient steps."""
    weights = np.zeros((9, 10))
    for points, labels in batches:
        inputs = np.column_stack([points, np.ones(len(points))])
        scores = np.exp(inputs @ weights - (inputs @ weights).max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
        scores[np.arange(len(labels)), labels] -= 1
        weights -= 1.5 * inputs.T @ scores / len(labels)
    every, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    guess = (np.column_stack([every, np.ones(len(every))]) @ weights).argmax(axis=1)
    return float((guess == labels).mean())


def points_of(loader: FastLoader) -> list[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """The batches of an epoch."""
    return [(values[:, 1:9].numpy().copy(), labels.numpy().copy()) for values, labels in loader]


@pytest.mark.parametrize("memory", ["1GB", LANES_MEMORY], ids=["held", "lanes"])
def test_a_sorted_store_trains_as_well_as_a_full_shuffle(
    sorted_store: Path, monkeypatch: pytest.MonkeyPatch, memory: str
) -> None:
    """A classifier trained for one epoch with shuffle=True is as good as with 'full'; blocks leave it far behind."""
    monkeypatch.setenv("FASTIO_SHUFFLE_MEMORY", memory)
    with FastLoader(sorted_store, 32, shuffle=True, threads=1) as loader:
        ours = accuracy(points_of(loader))
        assert loader.stats.shuffle is not None
        assert loader.stats.shuffle.kind == ("full" if memory == "1GB" else "lanes")
    with FastLoader(sorted_store, 32, shuffle="full", threads=1) as loader:
        batches = points_of(loader)
        full = accuracy(batches)
    points, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    stored = np.argsort(labels, kind="stable")  # classes in order, as the store has them
    blocks = stored[block_order(np.full(COUNT, BYTES), seed=0, epoch=0, block_bytes=1 << 20, window_blocks=1)]
    old = accuracy([(points[part], labels[part]) for part in np.split(blocks, COUNT // 32)])

    assert ours > full - 0.05
    assert old < full - 0.15


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("read", ["map", "pread"])
@pytest.mark.parametrize("step", [0, 1, 40, 74])
def test_lanes_resume_at_any_batch(sorted_store: Path, monkeypatch: pytest.MonkeyPatch, read: Any, step: int) -> None:
    """What is left after a state is what was left when it was saved, on a machine with another memory too."""
    dataset = FastDataset(sorted_store, read=read)
    with FastLoader(dataset, 32, shuffle=True) as loader:
        batches = iter(loader)
        had = indices_of(islice(batches, step))
        state = json.loads(json.dumps(loader.state_dict()))
        rest, following = indices_of(batches), indices_of(loader)
    monkeypatch.setenv("FASTIO_SHUFFLE_MEMORY", "1TB")
    with FastLoader(dataset, 32, shuffle=True) as resumed:
        resumed.load_state_dict(state)
        assert state == resumed.state_dict()
        assert rest == indices_of(resumed)
        assert following == indices_of(resumed)

    assert state["order"]["kind"] == "lanes"
    assert list(range(COUNT)) == sorted(chain(*had, *rest)) == sorted(chain(*following))


@pytest.mark.usefixtures("little_memory")
def test_ranks_share_the_steps_of_lanes(sorted_store: Path) -> None:
    """Four ranks together have in each step the samples that one rank has with four times the batch."""
    dataset, order = FastDataset(sorted_store), {"kind": "lanes", "lanes": 64, "rounds": 5, "window": 2}
    parts = []
    for rank in range(4):
        with FastLoader(dataset, 8, shuffle=True, rank=rank, world_size=4) as loader:
            loader.load_state_dict({**loader.state_dict(), "order": order})
            parts.append(indices_of(loader))
    with FastLoader(dataset, 32, shuffle=True) as loader:
        loader.load_state_dict({**loader.state_dict(), "order": order})
        whole = indices_of(loader)

    assert [sorted(step) for step in whole] == [sorted(chain(*step)) for step in zip(*parts, strict=True)]


def state_of_version_1(loader: FastLoader, **change: int) -> dict[str, Any]:
    """The state of a loader as it was before there were lanes."""
    state = loader.state_dict()
    left_out = ("order", "consumed")
    known = {name: value for name, value in state.items() if name not in left_out}
    return {**known, **known.pop("division"), "version": 1, **change}


def test_a_state_of_version_1_goes_on_in_blocks(sorted_store: Path) -> None:
    """Before there were lanes, shuffle=True was the block shuffle: such a state gives exactly the rest of it."""
    sizes = np.full(COUNT, BYTES, np.int64)
    orders = [block_order(sizes, seed=5, epoch=epoch).reshape(-1, 32).tolist() for epoch in (2, 3)]
    with FastLoader(sorted_store, 32, shuffle=True, seed=5) as loader:
        state = state_of_version_1(loader, epoch=2, batch=7)
        loader.load_state_dict(state)
        assert 7 * 32 == loader.state_dict()["consumed"]
        assert {"kind": "blocks"} == loader.state_dict()["order"]
        assert orders[0][7:] == indices_of(loader)
        assert orders[1] == indices_of(loader)
        assert loader.stats.shuffle is not None
        assert loader.stats.shuffle.kind == "blocks"


@pytest.mark.parametrize("shuffle", [False, "full"])
def test_other_states_of_version_1_go_on(sorted_store: Path, shuffle: Any) -> None:
    """These orders are what they were."""
    with FastLoader(sorted_store, 32, shuffle=shuffle) as loader:
        expected = indices_of(loader)
        loader.load_state_dict(state_of_version_1(loader, epoch=0, batch=3))
        assert expected[3:] == indices_of(loader)
        assert loader.stats.shuffle is None


def test_a_full_shuffle_is_another_configuration(sorted_store: Path) -> None:
    """A state of shuffle=True is refused by a loader with shuffle='full', and the difference is named."""
    with FastLoader(sorted_store, 32, shuffle=True) as loader:
        state = loader.state_dict()
    with (
        FastLoader(sorted_store, 32, shuffle="full") as loader,
        pytest.raises(ValueError, match="shuffle is True in the state and 'full' here"),
    ):
        loader.load_state_dict(state)
    with (
        FastLoader(sorted_store, 32, shuffle=True) as loader,
        pytest.raises(ValueError, match="order=None in the state"),
    ):
        loader.load_state_dict({**state, "order": None})


def test_a_closed_loader_knows_its_order(sorted_store: Path) -> None:
    """A state and the statistics may be asked for after close(), also where the loader opened the store itself."""
    with FastLoader(sorted_store, 32, shuffle=True) as loader:
        pass

    assert {"kind": "full"} == loader.state_dict()["order"]
    assert loader.stats.shuffle is not None


@pytest.mark.parametrize("read", ["map", "pread"])
@pytest.mark.parametrize("memory", ["1GB", LANES_MEMORY], ids=["held", "lanes"])
def test_all_is_read_ahead_before_it_is_needed(
    sorted_store: Path, monkeypatch: pytest.MonkeyPatch, read: Any, memory: str
) -> None:
    """
    Whole windows are asked for, every sample once; of mapped files and of those read by pread. The first batches come
    before them, sample by sample: by pread that needs no advice.
    """
    monkeypatch.setenv("FASTIO_SHUFFLE_MEMORY", memory)
    name = "read_ahead" if read == "map" else "read_files_ahead"
    real, asked = getattr(_native, name), []

    def read_ahead(spans: Spans, *rest: Any) -> Any:
        asked.extend(zip(spans.starts.tolist(), (spans.starts + spans.sizes).tolist(), strict=True))
        return real(spans, *rest)

    dataset = FastDataset(sorted_store, read=read)
    starts = dataset.store.spans("x", np.arange(COUNT)).starts
    monkeypatch.setattr(_native, name, read_ahead)
    with FastLoader(dataset, 32, shuffle=True) as loader:
        loader.set_epoch(1)
        had = list(chain(*indices_of(loader)))
    covered = np.concatenate([np.arange(start, stop, BYTES) for start, stop in asked])

    assert list(range(COUNT)) == sorted(had)
    alone = had[: READ_ALONE * 32] if read == "map" else []
    assert covered[: len(alone)].tolist() == starts[alone].tolist()
    assert sorted(starts.tolist()) == sorted(covered[len(alone) :].tolist())


@pytest.mark.usefixtures("little_memory")
def test_a_subclass_with_samples_of_its_own_is_shuffled_fully(sorted_store: Path) -> None:
    """Nobody knows what its samples read, so they come in the order of a full shuffle."""

    class Half(FastDataset):
        def __len__(self) -> int:
            return COUNT // 2

        def __getitem__(self, index: int) -> Any:
            return torch.tensor(index), 0

        def __getitems__(self, indices: Any) -> Any:
            return [self[index] for index in indices]

    with FastLoader(Half(sorted_store), 32, shuffle=True) as loader:
        had = torch.cat([samples for samples, _ in loader]).tolist()
        assert {"kind": "full"} == loader.state_dict()["order"]

    assert list(range(COUNT // 2)) == sorted(had)
    assert list(range(COUNT // 2)) != had


@pytest.mark.usefixtures("little_memory")
def test_a_cached_store_is_shuffled_fully(sorted_store: Path) -> None:
    """What the loader itself keeps in memory is not read again, however little the page cache holds."""
    with FastLoader(sorted_store, 32, shuffle=True, cache="ram") as loader:
        assert {"kind": "full"} == loader.state_dict()["order"]


def test_a_wrong_variable_is_named_at_once(sorted_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in the first epoch, when all else is built."""
    monkeypatch.setenv("FASTIO_SHUFFLE_MEMORY", "lots")
    with pytest.raises(ValueError, match="FASTIO_SHUFFLE_MEMORY='lots'"):
        FastLoader(sorted_store, 32, shuffle=True)


@pytest.mark.parametrize("memory", ["1GB", LANES_MEMORY], ids=["held", "lanes"])
def test_a_part_is_shuffled_and_read_as_it_lies(
    sorted_store: Path, monkeypatch: pytest.MonkeyPatch, memory: str
) -> None:
    """Half of the samples, listed in any order: each comes once, ranks resume, and all are read ahead as they lie."""
    monkeypatch.setenv("FASTIO_SHUFFLE_MEMORY", memory)
    listed = np.random.default_rng(1).permutation(COUNT)[: COUNT // 2]
    dataset = FastDataset(sorted_store)
    starts = dataset.store.spans("x", np.sort(listed)).starts
    real, asked = _native.read_ahead, []

    def read_ahead(spans: Spans, *rest: Any) -> Any:
        asked.extend(zip(spans.starts.tolist(), (spans.starts + spans.sizes).tolist(), strict=True))
        return real(spans, *rest)

    monkeypatch.setattr(_native, "read_ahead", read_ahead)
    options: dict[str, Any] = {"indices": listed, "shuffle": True, "seed": 2}
    with FastLoader(dataset, 32, **options) as loader:
        assert sorted(listed.tolist()) == sorted(chain(*indices_of(loader)))
        assert loader.stats.shuffle is not None
        assert loader.stats.shuffle.kind == ("full" if memory == "1GB" else "lanes")
    covered = np.concatenate([np.arange(start, stop, BYTES) for start, stop in asked])
    assert set(starts.tolist()) <= set(covered.tolist())
    assert len(covered) <= COUNT + READ_ALONE * 32
    for rank in range(2):
        with FastLoader(dataset, 16, rank=rank, world_size=2, **options) as loader:
            batches = iter(loader)
            list(islice(batches, 7))
            state = json.loads(json.dumps(loader.state_dict()))
            rest = indices_of(batches)
        with FastLoader(dataset, 16, rank=rank, world_size=2, **options) as resumed:
            resumed.load_state_dict(state)
            assert rest == indices_of(resumed)
