"""What training scripts do with a DataLoader, done with a FastLoader: it works, or one clear error says why not."""

from __future__ import annotations

import copy
import io
import pickle
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Sampler, WeightedRandomSampler
from tqdm import tqdm

from fastio import FastDataset, FastLoader, LengthBucketSampler
from fastio.samplers.batches import OrderSampler
from tests.conftest import encode, pictures, write_store
from tests.numbered import COUNT, loader_of, taken, write_numbers


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> FastDataset:
    """Samples that are their own index, with the index as label too."""
    return write_numbers(tmp_path_factory.mktemp("dropin") / "a.h5")


def epochs_of(dataset: FastDataset, count: int) -> list[list[list[int]]]:
    """The batches of the first epochs."""
    with loader_of(dataset) as loader:
        return [taken(loader) for _ in range(count)]


def test_what_scripts_ask_a_loader(dataset: FastDataset) -> None:
    """Lengths, data set and sizes, by torch's names."""
    with loader_of(dataset, drop_last=True, pin_memory=False) as loader:
        assert len(loader) == 5
        assert loader.dataset is dataset
        assert len(loader.dataset) == COUNT
        assert (4, True, False, 0, None) == (
            loader.batch_size,
            loader.drop_last,
            loader.pin_memory,
            loader.num_workers,
            loader.prefetch_factor,
        )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "weights",
            r"weights of a FastLoader cannot be set: call set_weights\(w\), .* or pass weights=f, ",
        ),
        ("transforms", "transforms of .*: a loader keeps what it was built with: build another one"),
        ("batch_size", "batch_size of .*: build another one with batch_size="),
        ("drop_last", "drop_last of .*: build another one with drop_last="),
        ("dataset", "dataset of .*: it can only be read: build another loader"),
        ("stats", "stats of .*: it can only be read"),
        ("epoch", r"epoch of .*: call set_epoch\(n\)"),
        ("num_workers", "num_workers of .*: pass threads=N"),
        ("wieghts", "^FastLoader has no attribute wieghts: did you mean weights?"),
        ("temperature", "^FastLoader has no attribute temperature: nothing would read it"),
    ],
)
def test_what_cannot_be_changed_says_so(dataset: FastDataset, name: str, words: str) -> None:
    """Setting an attribute that would change nothing is an error with what to do."""
    with loader_of(dataset) as loader, pytest.raises(AttributeError, match=words):
        setattr(loader, name, 8)


def test_what_others_set_stays_possible(dataset: FastDataset) -> None:
    """Private marks of frameworks, methods that are replaced, and attributes of subclasses."""

    class Mine(FastLoader):
        def __init__(self, *args: Any, **options: Any) -> None:
            self.weights = 3
            super().__init__(*args, **options)
            self.temperature = 4

    with loader_of(dataset) as loader, Mine(dataset, 4) as mine:
        loader._is_prepared = True  # type: ignore[attr-defined] # what is tested
        loader.state_dict = lambda: {"mine": True}  # type: ignore[method-assign] # likewise
        assert {"mine": True} == loader.state_dict()
        assert (mine.weights, mine.temperature) == (3, 4)


def test_weights_that_change_between_epochs(dataset: FastDataset) -> None:
    """One loader draws by the weights that its sampler has when an epoch begins."""
    sampler = WeightedRandomSampler([1.0] * COUNT, COUNT)
    with loader_of(dataset, sampler=sampler, shuffle=False) as loader:
        first = {label for _, labels in loader for label in labels.tolist()}
        sampler.weights = torch.tensor([0.0] * 3 + [1.0] + [0.0] * (COUNT - 4))
        second = {label for _, labels in loader for label in labels.tolist()}

    assert len(first) > 1 == len(second)


def test_enumerate_and_a_progress_bar(dataset: FastDataset) -> None:
    """Steps are numbered, and the bar knows its end."""
    with loader_of(dataset) as loader:
        bar = tqdm(loader, file=io.StringIO())
        numbers = [number for number, _ in enumerate(bar, 1)]

    assert list(range(1, 7)) == numbers
    assert bar.total == 6


def test_a_look_at_the_first_batch(dataset: FastDataset) -> None:
    """``next(iter(loader))`` is a batch of the coming epoch, which then counts as begun."""
    first, second, third = epochs_of(dataset, 3)
    with loader_of(dataset) as loader:
        assert next(iter(loader))[0].tolist() == first[0]
        assert next(iter(loader))[0].tolist() == second[0]
        assert taken(loader) == third


def test_an_iterator_that_is_not_used_counts_for_nothing(dataset: FastDataset) -> None:
    """``iter`` alone, to see whether it works, takes no epoch away, and the epoch may be set behind it."""
    first, second, third = epochs_of(dataset, 3)
    with loader_of(dataset) as loader:
        iter(loader)
        batches = iter(loader)
        assert loader.state_dict()["epoch"] == 0
        assert taken(batches) == first
        batches = iter(loader)
        loader.set_epoch(2)
        assert taken(islice(batches, 2)) == third[:2]
        assert (2, 8) == (loader.state_dict()["epoch"], loader.state_dict()["consumed"])
        loader.set_epoch(1)
        assert taken(loader) == second


def test_a_state_loaded_behind_iter(dataset: FastDataset) -> None:
    """An iteration goes on where the state says, also if it was made before."""
    (first,) = epochs_of(dataset, 1)
    with loader_of(dataset) as loader:
        batches = iter(loader)
        loader.load_state_dict({**loader.state_dict(), "consumed": 16})
        assert taken(batches) == first[4:]


def test_leaving_early(dataset: FastDataset) -> None:
    """islice and break leave the rest; the next loop is the next epoch."""
    first, second = epochs_of(dataset, 2)
    with loader_of(dataset) as loader:
        assert taken(islice(loader, 2)) == first[:2]
        assert taken(loader) == second


def test_nested_loops_and_zip(dataset: FastDataset) -> None:
    """Each iteration goes through an epoch of its own."""
    epochs = epochs_of(dataset, 7)
    with loader_of(dataset) as loader:
        inner = [taken(loader) for _ in loader]
    assert epochs[1:] == inner
    with loader_of(dataset) as one, loader_of(dataset, batch_size=8, shuffle=False) as other:
        pairs = list(zip(one, other, strict=False))
    assert epochs[0][:3] == taken(pair[0] for pair in pairs)
    assert list(range(COUNT)) == list(chain(*taken(pair[1] for pair in pairs)))


def test_endless_training(dataset: FastDataset) -> None:
    """The loop by steps: a new iterator where one ends."""
    expected = list(chain(*epochs_of(dataset, 3)))[:15]
    seen = []
    with loader_of(dataset) as loader:
        batches = iter(loader)
        while len(seen) < 15:
            try:
                batch = next(batches)
            except StopIteration:
                batches = iter(loader)
                batch = next(batches)
            seen.append(batch[0].tolist())

    assert expected == seen


def test_batches_that_are_kept(dataset: FastDataset) -> None:
    """A list of all batches holds all of them, beyond the loader's end too."""
    loader = loader_of(dataset)
    batches = list(loader)
    del loader

    assert list(range(COUNT)) == torch.cat([values for values, _ in batches]).sort().values.tolist()


def test_the_epoch_by_the_sampler(dataset: FastDataset) -> None:
    """``loader.sampler.set_epoch`` as with a DistributedSampler; the sampler tells the order without taking it."""
    epochs = epochs_of(dataset, 3)
    with loader_of(dataset) as loader:
        assert isinstance(loader.sampler, Sampler)
        for epoch in (2, 0, 1):
            loader.sampler.set_epoch(epoch)
            assert list(loader.sampler) == list(chain(*epochs[epoch]))
            assert len(loader.sampler) == COUNT
            assert taken(loader) == epochs[epoch]
        loader.batch_sampler.set_epoch(2)
        assert taken(loader) == epochs[2]
        with pytest.raises(TypeError, match="cannot be iterated or put into another loader"):
            iter(loader.batch_sampler)


def test_the_length_of_the_sampler_costs_no_plan(dataset: FastDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many samples an epoch has is known without putting them in order."""
    with FastLoader(dataset, 2, shuffle=True, rank=1, world_size=3, uneven="repeat") as loader:
        expected = len(list(loader.sampler))
        monkeypatch.setattr(OrderSampler, "plan", None)
        assert expected == len(loader.sampler)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_loader_is_not_copied(dataset: FastDataset, duplicate: Any) -> None:
    """Threads cannot be copied: one line says what can."""
    with (
        loader_of(dataset) as loader,
        pytest.raises(TypeError, match="pass the FastDataset, and build the loader there"),
    ):
        duplicate(loader)


def test_ranks_beside_a_batch_sampler_are_compared(dataset: FastDataset) -> None:
    """The same ones are welcome, others would lose samples."""
    sampler = LengthBucketSampler(dataset.lengths, batch_size=4, rank=1, world_size=2)
    with FastLoader(dataset, batch_sampler=sampler, rank=1, world_size=2) as loader:
        assert loader.batch_size is None
    for ranks in ({"rank": 0, "world_size": 2}, {"rank": 0, "world_size": 1}, {"rank": 1}):
        with pytest.raises(ValueError, match="the batch_sampler plans for rank 1 of 2: give it the same"):
            FastLoader(dataset, batch_sampler=sampler, **ranks)


def test_a_store_is_opened_by_its_path(dataset: FastDataset) -> None:
    """``FastLoader(path, 4)`` opens and closes it."""
    with FastLoader(Path(dataset.store.path), 4) as loader:
        assert len(loader.dataset.targets) == COUNT


@pytest.mark.parametrize(("batch_size", "labels", "count"), [(2, None, 1), (3, None, 0), (2, np.arange(8), 0)])
def test_two_pictures_without_labels_are_not_taken_apart_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, batch_size: int, labels: Any, count: int
) -> None:
    """As of a DataLoader a batch is one tensor; that two pictures unpack as images and labels is said once."""
    store = write_store(tmp_path / "a.h5", [encode(pixels) for pixels in pictures(8)], labels)
    with FastLoader(store, batch_size) as loader:
        for _ in range(2):
            assert len(next(iter(loader))) == (2 if labels is not None else batch_size)

    assert count == sum("`for images, labels in loader` would take" in message for message in caplog.messages)
