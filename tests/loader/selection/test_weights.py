"""FastLoader(weights=...): samples drawn by weight, by seed and epoch, the same on all ranks."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.utils.data import Subset, WeightedRandomSampler

from fastio import FastDataset, FastLoader
from fastio.samplers.draws import WeightedDraw
from tests.numbered import COUNT, taken, write_numbers

BY_SAMPLE = np.arange(COUNT) % 4


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> FastDataset:
    """Samples that are their own index, with the index as label too."""
    return write_numbers(tmp_path_factory.mktemp("weights") / "a.h5")


def drawn(dataset: Any, **options: Any) -> list[int]:
    """The samples of an epoch; their labels are their own."""
    with FastLoader(dataset, **{"batch_size": 4, "threads": 1, **options}) as loader:
        pairs = [(values.tolist(), labels.tolist()) for values, labels in loader]
    assert all(values == labels for values, labels in pairs)
    return [value for values, _ in pairs for value in values]


@settings(max_examples=30, deadline=None)
@given(world_size=st.integers(1, 4), samples=st.integers(1, 60), seed=st.integers(0, 3), epoch=st.integers(0, 2))
def test_ranks_share_what_is_drawn(numbered: FastDataset, world_size: int, samples: int, seed: int, epoch: int) -> None:
    """All ranks together have the order that seed and epoch draw, in the order of steps, none of weight 0."""
    weights = BY_SAMPLE.astype(np.float64)
    expected = WeightedDraw(weights, samples_per_epoch=samples, seed=seed).order(epoch).tolist()
    ranks = []
    for rank in range(world_size):
        options: dict[str, Any] = {"weights": weights, "samples_per_epoch": samples, "seed": seed, "threads": 1}
        with FastLoader(numbered, 3, rank=rank, world_size=world_size, **options) as loader:
            loader.set_epoch(epoch)
            ranks.append(taken(loader))
    got = [index for step in zip(*ranks, strict=True) for values in step for index in values]

    assert [*expected, *(expected * world_size)][: len(got)] == got
    assert len(expected) <= len(got) < len(expected) + world_size
    assert all(BY_SAMPLE[index] > 0 for index in got)


@pytest.mark.parametrize("form", ["list", "array", "tensor", "ints"])
def test_forms_of_weights(numbered: FastDataset, form: str) -> None:
    """A number a sample, in whatever form: the same draw."""
    forms: dict[str, Any] = {
        "list": BY_SAMPLE.astype(float).tolist(),
        "array": BY_SAMPLE.astype(np.float32),
        "tensor": torch.from_numpy(BY_SAMPLE).double(),
        "ints": BY_SAMPLE.tolist(),
    }
    assert drawn(numbered, weights=BY_SAMPLE.astype(float)) == drawn(numbered, weights=forms[form])


def test_as_often_as_torch_draws_them() -> None:
    """Frequencies are those of the weights, within what torch's own sampler shows."""
    weights, samples = np.array([0.0, 1, 2, 5, 0, 8, 0.0]), 200_000
    expected = samples * weights / weights.sum()
    theirs = np.bincount(list(WeightedRandomSampler(weights.tolist(), samples)), minlength=7)
    ours = np.bincount(WeightedDraw(weights, samples_per_epoch=samples, seed=1).order(3), minlength=7)

    bound = 6 * np.sqrt(np.maximum(expected, 1e-12))
    assert (np.abs(theirs - expected) <= bound).all()
    assert (np.abs(ours - expected) <= bound).all()


def test_orders_differ_by_seed_and_epoch() -> None:
    """Another seed or epoch draws another order; the same ones draw the same, in every version."""
    weights = np.ones(1000)
    orders = {
        (seed, epoch): tuple(WeightedDraw(weights, samples_per_epoch=50, seed=seed).order(epoch).tolist())
        for seed in (0, 1, 2**64 - 1)
        for epoch in (0, 1)
    }
    assert len(set(orders.values())) == 6
    assert orders[0, 1][:5] == (813, 751, 671, 483, 705)


def test_by_class_of_a_part(png_stores: dict[str, Path]) -> None:
    """Weights by class name or label are those of each sample of the class, in a Subset of one's own too."""
    dataset = FastDataset(png_stores["h5"])
    part = Subset(dataset, list(range(40, 10, -1)))
    labels = np.array(dataset.targets)[part.indices]
    options: dict[str, Any] = {"samples_per_epoch": 64, "seed": 2}

    def classes(**more: Any) -> list[list[int]]:
        with FastLoader(part, 16, **options, **more) as loader:
            return [batch.tolist() for _, batch in loader]

    by_sample = classes(weights=np.array([1.0, 0.0, 3.0])[labels])
    assert by_sample == classes(weights={"bee": 1, "cat": 0, "dog": 3})
    assert by_sample == classes(weights={0: 1, np.int64(1): 0.0, "dog": 3})
    assert {0, 2} == {label for batch in by_sample for label in batch}


@settings(max_examples=15, deadline=None)
@given(step=st.integers(0, 8), rank=st.integers(0, 1))
def test_resume_at_every_batch(numbered: FastDataset, step: int, rank: int) -> None:
    """What is left after a state is loaded is what was left when it was taken; other weights are refused."""
    options: dict[str, Any] = {"samples_per_epoch": 31, "rank": rank, "world_size": 2, "threads": 1}
    with FastLoader(numbered, 2, weights=BY_SAMPLE, **options) as loader:
        batches = iter(loader)
        taken(islice(batches, min(step, len(loader))))
        state = json.loads(json.dumps(loader.state_dict()))
        rest = taken(batches)
    with FastLoader(numbered, 2, weights=BY_SAMPLE, **options) as resumed:
        resumed.load_state_dict(state)
        assert rest == taken(resumed)
    with FastLoader(numbered, 2, weights=BY_SAMPLE + 1, **options) as other:
        if step:
            with pytest.raises(ValueError, match="weights_crc32"):
                other.load_state_dict(state)
        else:  # of an epoch that had not begun, weights may still be set before its first batch
            other.load_state_dict(state)
            with pytest.raises(ValueError, match="weights_crc32"):
                next(iter(other))


def test_a_device_and_a_cache(numbered: FastDataset) -> None:
    """What is drawn does not depend on where it is delivered and kept."""
    expected = drawn(numbered, weights=BY_SAMPLE)
    for more in ({"device": "cpu"}, {"cache": "ram"}, {"cache": "device", "device": "cpu"}):
        assert expected == drawn(numbered, weights=BY_SAMPLE, **more)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"weights": [1.0, 2.0]}, ValueError, f"2 weights for {COUNT} samples"),
        ({"weights": np.zeros(COUNT)}, ValueError, "all 23 are 0"),
        ({"weights": np.where(np.arange(COUNT) == 4, -1, 1)}, ValueError, r"weights\[4\] is -1"),
        ({"weights": np.where(np.arange(COUNT) == 4, np.nan, 1)}, ValueError, r"weights\[4\] is nan"),
        ({"weights": ["a"] * COUNT}, TypeError, "expected one number per sample"),
        ({"weights": np.ones((COUNT, 2))}, TypeError, "expected one number per sample"),
        ({"weights": {COUNT: 1.0}}, ValueError, f"no class {COUNT} among 0, 1, 2, 3, 4, ..."),
        ({"weights": lambda epoch: [1.0, epoch]}, ValueError, f"2 weights for {COUNT} samples"),
        ({"weights": {0: None}}, ValueError, "class 0 has None: expected a number"),
        ({"weights": [[1.0], [1.0, 2.0]]}, TypeError, "expected one number per sample"),
        ({"weights": {"horse": 1.0}}, ValueError, "no class 'horse' among 0, 1, 2, 3, 4, ..."),
        ({"weights": {0: 1.0, "0": 1.0}}, ValueError, "class 0 comes twice"),
        ({"weights": np.ones(COUNT), "samples_per_epoch": 0}, ValueError, "samples_per_epoch=0"),
    ],
)
def test_what_is_no_weight(
    numbered: FastDataset, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    """One line says what was expected."""
    with pytest.raises(error, match=message):
        FastLoader(numbered, 4, **options)


def test_three_weights_for_three_classes(png_stores: dict[str, Path]) -> None:
    """A list of one weight a class is answered with the form that means it."""
    with pytest.raises(ValueError, match=r"3 weights for 50 samples; for one weight per class, pass \{class: weight\}"):
        FastLoader(png_stores["tar"], 4, weights=[1, 2, 3])


# Weights that change with the epoch.


def by_epoch(epoch: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Of epoch k, the samples whose number leaves k when divided by 4."""
    return (BY_SAMPLE == epoch % 4).astype(np.float64)


def epochs(loader: FastLoader, count: int) -> list[list[int]]:
    """The samples of the next epochs."""
    return [[value for values in taken(loader) for value in values] for _ in range(count)]


def test_classes_without_a_weight_have_one(numbered: FastDataset) -> None:
    """A weight for one class leaves the others at 1."""
    every = dict.fromkeys(range(COUNT), 1.0)

    assert drawn(numbered, weights={**every, 3: 5.0}) == drawn(numbered, weights={3: 5})


@pytest.mark.parametrize("form", ["array", "classes"])
def test_a_function_of_the_epoch(numbered: FastDataset, form: str) -> None:
    """Each epoch draws by what the function returns for it, as a loader of these weights alone draws."""
    forms: dict[str, Any] = {"array": by_epoch, "classes": lambda epoch: dict(enumerate(by_epoch(epoch).tolist()))}
    with FastLoader(numbered, 4, weights=forms[form], threads=1) as loader:
        got = epochs(loader, 3)
    expected = []
    for epoch in range(3):
        with FastLoader(numbered, 4, weights=by_epoch(epoch), threads=1) as alone:
            alone.set_epoch(epoch)
            expected += epochs(alone, 1)

    assert expected == got
    assert [{0}, {1}, {2}] == [set(BY_SAMPLE[values].tolist()) for values in got]


@pytest.mark.parametrize("more", [{}, {"device": "cpu"}, {"indices": np.arange(COUNT)[::-1]}])
def test_set_weights_holds_from_the_next_epoch_on(numbered: FastDataset, more: dict[str, Any]) -> None:
    """The epoch under way keeps its weights; the next ones have the new, until others are set."""
    by_position = by_epoch if "indices" not in more else lambda epoch: by_epoch(epoch)[::-1]
    with FastLoader(numbered, 4, weights=by_position(0), threads=1, **more) as loader:
        batches = iter(loader)
        first = next(batches)[0].tolist()
        loader.set_weights(by_position(1))
        rest = [value for values in taken(batches) for value in values]
        second, third = epochs(loader, 2)
        loader.set_weights({3: 1.0, **{label: 0.0 for label in range(COUNT) if label != 3}})
        fourth = epochs(loader, 1)[0]
        receipt = loader.receipt()

    assert {0} == set(BY_SAMPLE[[*first, *rest]].tolist())
    assert {1} == set(BY_SAMPLE[[*second, *third]].tolist())
    assert {3} == set(fourth)
    assert receipt.is_exact
    assert second != third


@settings(max_examples=12, deadline=None)
@given(step=st.integers(0, 5), world_size=st.integers(1, 3))
def test_resume_with_weights_that_were_set(numbered: FastDataset, step: int, world_size: int) -> None:
    """A loader to which the same weights are set goes on as if nothing had been, in another number of ranks too."""
    options: dict[str, Any] = {"samples_per_epoch": 24, "threads": 1}
    with FastLoader(numbered, 4, weights=by_epoch(0), **options) as loader:
        epochs(loader, 1)
        loader.set_weights(by_epoch(1))
        batches = iter(loader)
        taken(islice(batches, step))
        loader.set_weights(by_epoch(2))
        state = json.loads(json.dumps(loader.state_dict()))
        rest, after = [value for values in taken(batches) for value in values], epochs(loader, 1)[0]
    got_rest, got_after = [], []
    for rank in range(world_size):
        ranks: dict[str, Any] = {"rank": rank, "world_size": world_size, "uneven": "pad"}
        with FastLoader(numbered, 4, weights=by_epoch(1 if step else 2), **options, **ranks) as resumed:
            resumed.load_state_dict(state)
            if step:
                got_rest += epochs(resumed, 1)[0]
                resumed.set_weights(by_epoch(2))
            else:
                rest = []
                resumed.set_epoch(2)
            got_after += epochs(resumed, 1)[0]

    assert set(rest) == set(got_rest)
    assert set(after) == set(got_after)


def test_a_state_of_other_weights(numbered: FastDataset) -> None:
    """Within an epoch it is refused, naming both; for an epoch to come, by the first batch, unless weights are set."""
    with FastLoader(numbered, 4, weights=by_epoch(0), threads=1) as loader:
        next(iter(loader))
        begun = loader.state_dict()
        loader.set_weights(by_epoch(1))
        pending = loader.state_dict()
    named = r"weights of epoch 0 .* weights_crc32 is \d+ in the state and \d+ here"
    with FastLoader(numbered, 4, weights=by_epoch(1), threads=1) as other, pytest.raises(ValueError, match=named):
        other.load_state_dict(begun)
    with FastLoader(numbered, 4, weights=by_epoch(0), threads=1) as same:
        same.load_state_dict(pending)
        epochs(same, 1)
        with pytest.raises(ValueError, match=r"weights from epoch 1 on .* call set_weights"):
            next(iter(same))
    with FastLoader(numbered, 4, weights=by_epoch(0), threads=1) as told:
        told.load_state_dict(pending)
        told.set_weights(by_epoch(1))
        epochs(told, 1)

        assert {1} == set(BY_SAMPLE[epochs(told, 1)[0]].tolist())


def test_a_refused_epoch_is_not_passed_over(numbered: FastDataset) -> None:
    """After weights that were refused, or a function that failed, the epoch comes as soon as it has its weights."""
    calls = []

    def fails_once(epoch: int) -> NDArray[np.float64]:
        calls.append(epoch)
        if calls == [0, 1]:
            raise OSError("no weights yet")
        return by_epoch(epoch)

    with FastLoader(numbered, 4, weights=fails_once, threads=1) as loader:
        expected = epochs(loader, 1)
        with pytest.raises(OSError, match="no weights yet"):
            list(loader)
        state = loader.state_dict()
        expected += epochs(loader, 1)
    with FastLoader(numbered, 4, weights=by_epoch(0), threads=1) as told:
        batches = iter(told)
        next(batches)
        told.set_weights(by_epoch(1))
        pending = told.state_dict()
    with FastLoader(numbered, 4, weights=by_epoch(0), threads=1) as told:
        told.load_state_dict(pending)
        epochs(told, 1)
        with pytest.raises(ValueError, match="call set_weights"):
            list(told)
        told.set_weights(by_epoch(1))
        found = epochs(told, 1)[0]

    assert 1 == state["epoch"]
    assert expected[1] == found


def test_weights_long_gone(numbered: FastDataset) -> None:
    """Of weights that were replaced, the latest are kept; an epoch of earlier ones is refused."""
    with FastLoader(numbered, 4, weights=by_epoch(0), threads=1) as loader:
        for epoch in range(4):
            loader.set_weights(by_epoch(epoch))
            epochs(loader, 1)
        loader.set_epoch(0)
        with pytest.raises(ValueError, match="weights of epoch 0 have been let go"):
            next(iter(loader))


def test_set_weights_needs_weights(numbered: FastDataset) -> None:
    """A loader that draws by no weights says what to build; an assignment names set_weights."""
    with FastLoader(numbered, 4, shuffle=True) as loader:
        with pytest.raises(ValueError, match="was built without weights="):
            loader.set_weights(by_epoch(0))
        with pytest.raises(AttributeError, match=r"call set_weights\(w\)"):
            loader.weights = by_epoch(0)  # type: ignore[attr-defined]
