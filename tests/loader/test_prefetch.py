"""DevicePrefetcher and FastLoader(device=...): the loop sees the same batches, positions and errors as without."""

from __future__ import annotations

import gc
import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

from fastio import DevicePrefetcher, FastDataset, FastLoader, SampleError
from fastio.loader import prefetch
from fastio.measure import MockTrainer
from fastio.transforms import ChannelsLast, Normalize, RandomCrop, RandomHorizontalFlip, ToDtype
from fastio.transforms.batch import Recipe
from fastio.types.schema import RAW, Field
from tests.at_once import at_once
from tests.conftest import encode, pictures, write_store
from tests.loader.device.slow_lane import SlowLane

COUNT = 60


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 raw pictures 4x4, each filled with its index, which is its label too."""
    values = [bytes([index]) * 48 for index in range(COUNT)]
    path = tmp_path_factory.mktemp("prefetch") / "a.h5"
    return write_store(path, values, np.arange(COUNT), field=Field("image", RAW, "|u1", (4, 4, 3)))


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowLane:
    """The device of all prefetchers of a test."""
    lane = SlowLane()
    monkeypatch.setattr("fastio.loader.prefetch.lane_to", lambda device: lane)
    monkeypatch.setattr("fastio.loader.wiring.lane_to", lambda device: lane)
    return lane


def long_form(store: Path, **options: Any) -> Any:
    return DevicePrefetcher(FastLoader(store, 8, threads=1, **options), "cpu")


def short_form(store: Path, **options: Any) -> Any:
    return FastLoader(store, 8, threads=1, device="cpu", **options)


FORMS = pytest.mark.parametrize("form", [long_form, short_form])


def labels_of(batches: Any, lane: SlowLane) -> list[int]:
    """Labels of an iteration whose steps are late, after a look at the pixels."""
    got: list[int] = []

    def step(batch: Any) -> None:
        images, labels = batch
        assert torch.equal(images[:, 0, 0, 0].long(), labels)
        got.extend(labels.tolist())

    for batch in batches:
        lane.train(batch, step)
        del batch
    lane.consumer.finish()
    return got


@FORMS
@pytest.mark.parametrize("shuffle", [False, "full"])
def test_each_sample_once(form: Callable[..., Any], shuffle: Any, store: Path, slow: SlowLane) -> None:
    """By a slow device come the samples of the loader alone, epoch after epoch in its order."""
    with FastLoader(store, 8, shuffle=shuffle) as plain:
        expected = [[int(label) for _, labels in plain for label in labels] for _ in range(3)]
    batches = form(store, shuffle=shuffle)

    assert expected == [labels_of(batches, slow) for _ in range(3)]
    assert len(batches) == 8
    assert slow.alive == 0


@FORMS
def test_on_the_cpu_batches_are_the_loaders_own(form: Callable[..., Any], store: Path) -> None:
    """Without a device nothing is copied, and nothing is asked for before its turn."""
    batches = form(store)
    images, labels = next(iter(batches))

    assert images.is_contiguous()
    assert list(range(8)) == labels.tolist()
    assert batches.state_dict()["consumed"] == 8


@FORMS
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(had=st.integers(0, 8), epoch=st.integers(0, 2))
def test_resume_is_exact(form: Callable[..., Any], store: Path, slow: SlowLane, had: int, epoch: int) -> None:
    """What the consumer has had and what comes after a resume are together an epoch; prefetched batches come again."""
    whole = form(store, shuffle="full", seed=3)
    whole.set_epoch(epoch)
    expected = labels_of(whole, slow)
    first, second = form(store, shuffle="full", seed=3), form(store, shuffle="full", seed=3)
    first.set_epoch(epoch)
    iterator = iter(first)
    before = labels_of(islice(iterator, had), slow)
    state = first.state_dict()
    second.load_state_dict(state)

    assert (epoch, min(8 * had, COUNT) or None) == (state["epoch"], state["consumed"])
    assert state == second.state_dict()
    assert expected == before + labels_of(second, slow)


@FORMS
def test_an_epoch_set_behind_iter(form: Callable[..., Any], store: Path, slow: SlowLane) -> None:
    """An iteration takes the epoch that is set when its first batch is asked for, and its state is the consumer's."""
    batches = form(store, shuffle="full")
    batches.set_epoch(3)
    expected = labels_of(batches, slow)
    again = form(store, shuffle="full")
    iterator = iter(again)
    again.set_epoch(3)
    before = labels_of(islice(iterator, 2), slow)

    assert (3, 16) == (again.state_dict()["epoch"], again.state_dict()["consumed"])
    assert expected == before + labels_of(iterator, slow)


@FORMS
def test_the_position_at_the_end(form: Callable[..., Any], store: Path, slow: SlowLane) -> None:
    """After a whole epoch the position is the beginning of the next one, and before the first batch that of none."""
    batches = form(store)
    assert (0, None) == (batches.state_dict()["epoch"], batches.state_dict()["consumed"])
    labels_of(batches, slow)
    assert (1, None) == (batches.state_dict()["epoch"], batches.state_dict()["consumed"])
    iter(batches)
    assert (1, None) == (batches.state_dict()["epoch"], batches.state_dict()["consumed"])
    batches.set_epoch(5)
    assert (5, None) == (batches.state_dict()["epoch"], batches.state_dict()["consumed"])


def test_states_of_both_forms_are_the_loaders(store: Path, slow: SlowLane) -> None:
    """A state goes from a loader into a prefetcher around one, and back."""
    prefetcher, loader = long_form(store), FastLoader(store, 8)
    next(iter(prefetcher))
    loader.load_state_dict(prefetcher.state_dict())

    assert loader.state_dict() == prefetcher.state_dict()
    assert 8 == int(next(iter(loader))[1][0])


class Rows(Dataset[Any]):
    """Ten samples that are dicts; the seventh may be bad."""

    def __init__(self, bad: int = -1) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.bad:
            raise OSError("cannot read")
        return {"pixels": torch.full((2,), float(index)), "name": f"n{index}"}


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.parametrize("workers", [0, 1])
def test_a_torch_loader(workers: int, slow: SlowLane) -> None:
    """Batches of a DataLoader keep their form; what is no tensor comes along; epochs follow each other."""
    prefetcher = DevicePrefetcher(DataLoader(Rows(), 4, num_workers=workers), "cpu")
    for _ in range(2):
        kept = list(prefetcher)
        slow.consumer.finish()
        assert [[0.0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] == [batch["pixels"][:, 0].tolist() for batch in kept]
        assert ["n8", "n9"] == kept[-1]["name"]
    assert len(prefetcher) == 3


def test_the_error_of_a_torch_loader_comes_in_its_turn(slow: SlowLane) -> None:
    """A bad sample in the third batch leaves two good batches."""
    iterator = iter(DevicePrefetcher(DataLoader(Rows(bad=9), 4), "cpu"))
    assert len([next(iterator) for _ in range(2)]) == 2
    with pytest.raises(OSError, match="cannot read"):
        next(iterator)


@FORMS
def test_a_bad_sample_comes_in_its_turn(form: Callable[..., Any], tmp_path: Path, slow: SlowLane) -> None:
    """SampleError is raised behind the batches before it, and the position stays there."""
    values = [encode(pixels) for pixels in pictures(24)]
    values[20] = values[20][:40]
    batches = form(write_store(tmp_path / "a.h5", values, np.arange(24)))
    iterator = iter(batches)
    assert len([next(iterator) for _ in range(2)]) == 2
    with pytest.raises(SampleError, match=r"\[20\]"):
        next(iterator)
    assert batches.state_dict()["consumed"] == 16


def test_numbered_batches_name_their_samples(tmp_path: Path) -> None:
    """Indices are those of the samples that are in the batch: without those that on_error='skip' left out."""
    values = [encode(pixels) for pixels in pictures(20)]
    values[3] = values[3][:40]
    with FastLoader(
        write_store(tmp_path / "a.h5", values, np.arange(20)), 6, shuffle="full", on_error="skip"
    ) as loader:
        loader.set_epoch(4)
        for numbered in loader.numbered():
            assert numbered.epoch == 4
            assert numbered.indices.tolist() == numbered.batch[1].tolist()


def test_set_epoch_reaches_a_sampler(slow: SlowLane) -> None:
    """A DataLoader has no set_epoch, but its DistributedSampler has."""
    data = TensorDataset(torch.arange(20))
    sampler = DistributedSampler(data, num_replicas=2, rank=0)
    prefetcher = DevicePrefetcher(DataLoader(data, 5, sampler=sampler), "cpu")
    orders = []
    for epoch in range(2):
        prefetcher.set_epoch(epoch)
        kept = list(prefetcher)
        slow.consumer.finish()
        orders.append([int(value) for (values,) in kept for value in values])
        assert epoch == sampler.epoch

    assert orders[0] != orders[1]


class Stateful:
    """A loader as StatefulDataLoader is one: its state is where its latest iterator stands."""

    def __init__(self) -> None:
        self.place = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        while self.place < 6:
            self.place += 1
            yield torch.full((2,), self.place - 1)
        self.place = 0

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


@pytest.mark.parametrize("had", [0, 1, 3, 6])
def test_another_loaders_state_is_that_of_the_consumer(had: int, slow: SlowLane) -> None:
    """The state of a loader with state_dict is taken at each batch, and the count of samples with it."""
    first, second = DevicePrefetcher(Stateful(), "cpu"), DevicePrefetcher(Stateful(), "cpu")
    list(islice(iter(first), had))
    state = first.state_dict()
    second.load_state_dict(state)
    kept = list(second)
    slow.consumer.finish()

    assert {"version": 1, "epoch": 0, "samples": 2 * had, "loader": {"place": had}} == state
    assert list(range(had, 6)) == [int(batch[0]) for batch in kept]
    assert {"version": 1, "epoch": 1, "samples": 0, "loader": {"place": 0}} == second.state_dict()


def test_a_loader_without_a_state_is_named() -> None:
    """Nobody is given a position that means nothing."""
    prefetcher = DevicePrefetcher(DataLoader(Rows(), 4), "cpu")
    with pytest.raises(TypeError, match="DataLoader has no state_dict"):
        prefetcher.state_dict()
    with pytest.raises(TypeError, match="DataLoader has no load_state_dict"):
        prefetcher.load_state_dict({})
    with pytest.raises(ValueError, match="expected a state of a DevicePrefetcher around a Stateful"):
        DevicePrefetcher(Stateful(), "cpu").load_state_dict({"place": 3})


def test_two_prefetchers_and_two_iterators(store: Path, slow: SlowLane) -> None:
    """Iterations that run at once do not touch each other's batches."""
    prefetcher = DevicePrefetcher(DataLoader(FastDataset(store, torch_row), 8), "cpu")
    other = long_form(store)
    got: list[list[int]] = [[], [], []]
    for batches in zip(prefetcher, prefetcher, other, strict=True):
        for place, batch in enumerate(batches):
            slow.train(batch, lambda step, place=place: got[place].extend(step[1].tolist()))  # type: ignore[misc]
        del batch, batches
    slow.consumer.finish()

    assert [list(range(COUNT))] * 3 == got


def torch_row(picture: np.ndarray[Any, Any]) -> torch.Tensor:
    return torch.from_numpy(np.array(picture))


def test_no_thread_is_started(slow: SlowLane) -> None:
    """The prefetcher runs in the loop's own thread."""
    before = threading.active_count()
    iterator = iter(DevicePrefetcher(DataLoader(Rows(), 2), "cpu"))
    next(iterator)

    assert threading.active_count() <= before


@FORMS
def test_left_early_and_dropped(form: Callable[..., Any], store: Path, slow: SlowLane) -> None:
    """A loop that is left leaves nothing under way, and the next one is the next epoch."""
    batches = form(store)
    for batch in batches:
        slow.train(batch, lambda step: None)
        break
    del batch
    gc.collect()
    slow.consumer.finish()

    assert slow.alive == 0
    assert COUNT == len(labels_of(batches, slow))
    assert batches.state_dict()["epoch"] == 2


def in_child(iterator: Any, results: Any) -> None:
    results.put([int(labels[0]) for _, labels in iterator])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@FORMS
def test_a_fork_afterwards(form: Callable[..., Any], store: Path) -> None:
    """A forked child on the CPU goes on with an inherited iterator, and so does its parent."""
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    iterator = iter(form(store))
    next(iterator)
    child = context.Process(target=in_child, args=(iterator, results))
    child.start()
    expected = [int(labels[0]) for _, labels in iterator]
    got = results.get(timeout=60)
    child.join()

    assert list(range(8, COUNT, 8)) == expected == got


def test_transforms_run_on_the_batch(store: Path) -> None:
    """Any callable from batch to batch, one after the other."""
    prefetcher = DevicePrefetcher(
        FastLoader(store, 8), "cpu", transforms=[lambda batch: batch[0].float(), lambda images: images / 2]
    )

    assert [0.0, 0.5, 1.0] == next(iter(prefetcher))[:3, 0, 0, 0].tolist()


@FORMS
def test_recipes(form: Callable[..., Any], store: Path, slow: SlowLane) -> None:
    """What a recipe draws travels with its batch, and belongs to the sample."""
    recipe = [RandomCrop(4, padding=2, fill=255), RandomHorizontalFlip(), ToDtype(torch.float32)]
    options: dict[str, Any] = {"shuffle": "full", "seed": 3}
    if form is short_form:
        options["transforms"] = [ChannelsLast(), *recipe]
        batches = form(store, **options)
    else:
        batches = DevicePrefetcher(FastLoader(store, 8, **options), "cpu", transforms=[ChannelsLast(), *recipe], seed=3)
    kept = [batch for _, batch in zip(range(3), batches, strict=False)]
    slow.consumer.finish()
    by_hand = Recipe([ChannelsLast(), *recipe], seed=3)
    for images, labels in kept:
        plain = [torch.stack([torch.full((3, 4, 4), int(label), dtype=torch.uint8) for label in labels]), labels]
        expected = by_hand.run(plain, by_hand.draw(plain, labels.numpy(), 0))[0]
        assert torch.equal(expected, images)
        assert len(images.unique()) > 8


def test_a_foreign_loader_counts_its_samples() -> None:
    """Without indices, random numbers go by the place in the epoch, and by the epoch."""
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (10, 3, 8, 8), np.uint8))
    prefetcher = DevicePrefetcher(DataLoader(TensorDataset(images), 4), "cpu", transforms=[RandomCrop(3)], seed=5)
    got = [torch.cat([batch for (batch,) in prefetcher]) for _ in range(2)]
    recipe = Recipe([RandomCrop(3)], seed=5)
    for epoch in range(2):
        assert torch.equal(recipe.run([images], recipe.draw([images], np.arange(10), epoch))[0], got[epoch])


def test_native_and_device_transforms_of_one_list(store: Path) -> None:
    """What stands before the first transform of batches is done natively, the rest behind the copy."""
    native = [RandomCrop(3), RandomHorizontalFlip()]
    with FastLoader(store, 8, transforms=native, seed=1) as loader:
        expected = [images.float() / 255 for images, _ in loader]
    with FastLoader(store, 8, transforms=[*native, ToDtype(torch.float32, scale=True)], device="cpu", seed=1) as loader:
        assert all(torch.allclose(*pair) for pair in zip(expected, [images for images, _ in loader], strict=True))


def test_a_prefetcher_leaves_no_transform_out(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that a loader does on the host are done before the copy; with a device of its own, they are refused."""
    steps = [RandomCrop(3), ToDtype(torch.float32, scale=True), lambda batch: [batch[0] * 2, *batch[1:]]]
    with FastLoader(store, 8, transforms=steps, seed=1) as loader:
        expected = [images for images, _ in loader]
        loader.set_epoch(0)
        found = [images for images, _ in DevicePrefetcher(loader, "cpu")]
    assert torch.float32 == found[0].dtype
    assert all(torch.equal(*pair) for pair in zip(expected, found, strict=True))
    monkeypatch.setattr("fastio.loader.wiring.lane_to", lambda device: SlowLane())
    with (
        FastLoader(store, 8, transforms=steps, device="cpu") as loader,
        pytest.raises(ValueError, match=r"does transforms on cpu, which a DevicePrefetcher would leave out"),
    ):
        iter(DevicePrefetcher(loader, "cpu"))
    with FastLoader(store, 8, device="cpu") as loader:
        assert 8 == len(next(iter(DevicePrefetcher(loader, "cpu")))[1])


def test_transforms_of_batches_without_a_device_run_on_the_cpu(store: Path) -> None:
    """Normalize and the like need no device: without one, batches are those of device="cpu", to the bit."""
    recipe = [RandomCrop(3), Normalize((0.5,), (0.2,)), lambda batch: [batch[0] * 2, *batch[1:]]]
    with (
        FastLoader(store, 8, transforms=recipe, seed=1) as alone,
        FastLoader(store, 8, transforms=recipe, seed=1, device="cpu") as delivered,
    ):
        for expected, got in zip(delivered, alone, strict=True):
            assert all(torch.equal(*pair) for pair in zip(expected, got, strict=True))
            assert got[0].dtype == torch.float32


def test_the_mock_trainer_takes_a_prefetcher(store: Path) -> None:
    """It is an iterable of batches as any other."""
    assert 2 * COUNT == MockTrainer().run(long_form(store), epochs=2).samples


@pytest.mark.parametrize("device", ["cuda:99", "nonsense", "meta"])
def test_a_device_that_is_not_there(device: str, store: Path) -> None:
    """One line says which devices there are."""
    with pytest.raises(ValueError, match=f"device='{device}'"):
        FastLoader(store, 8, device=device)


@pytest.mark.parametrize("depth", [0, -1, 1.5, "2"])
def test_a_depth_that_is_none(depth: Any) -> None:
    """Depth is a number of batches."""
    with pytest.raises(ValueError, match="expected a number of batches, at least 1"):
        DevicePrefetcher([], "cpu", depth)


def test_threads_begin_an_epoch_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterations that several threads begin at once have different epochs, and so different random numbers."""
    epochs, counted = list[int](), prefetch._Counted
    prefetcher = DevicePrefetcher([torch.zeros(1)], "cpu")

    def noted(batches: Iterator[Any], *, epoch: int, samples: int) -> prefetch._Counted:
        epochs.append(epoch)
        return counted(batches, epoch=epoch, samples=samples)

    monkeypatch.setattr(prefetch, "_Counted", noted)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        at_once(lambda _: [iter(prefetcher) for _ in range(1000)])
    finally:
        sys.setswitchinterval(before)

    assert list(range(4000)) == sorted(epochs)
