"""Epochs and resuming: a loader goes on at exactly the next batch that its consumer has not had."""

from __future__ import annotations

import json
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio import FastDataset, FastLoader, LengthBucketSampler, PackSampler
from tests.conftest import write_store
from tests.numbered import COUNT, loader_of, taken, write_numbers


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> FastDataset:
    """Samples that are their own index, of 4 bytes."""
    return write_numbers(tmp_path_factory.mktemp("numbered") / "a.h5")


def test_every_iteration_is_another_epoch(numbered: FastDataset) -> None:
    """A loop without set_epoch still reshuffles; set_epoch names an epoch again."""
    with loader_of(numbered) as loader:
        first, second = taken(loader), taken(loader)
        loader.set_epoch(0)
        again, after = taken(loader), taken(loader)

    assert first != second
    assert (first, second) == (again, after)
    assert list(range(COUNT)) == sorted(chain(*first))


def test_an_iteration_left_early_counts(numbered: FastDataset) -> None:
    """Leaving an epoch early does not repeat its order."""
    with loader_of(numbered) as loader:
        first = next(iter(loader))[0].tolist()
        assert loader.state_dict()["epoch"] == 0
        assert next(iter(loader))[0].tolist() != first
        assert loader.state_dict()["epoch"] == 1


def test_two_iterators_at_once(numbered: FastDataset) -> None:
    """Each goes through its own epoch undisturbed by the other."""
    with loader_of(numbered) as alone:
        expected = [taken(alone), taken(alone)]
    with loader_of(numbered) as loader:
        pairs = list(zip(loader, loader, strict=True))

    assert expected == [taken(pair[0] for pair in pairs), taken(pair[1] for pair in pairs)]


@settings(max_examples=30, deadline=None)
@given(
    step=st.integers(0, 6),
    epochs=st.integers(0, 2),
    prefetch_batches=st.integers(1, 4),
    rank=st.integers(0, 1),
    shuffle=st.sampled_from([False, True, "full"]),
)
def test_resume_at_every_batch(
    numbered: FastDataset, step: int, epochs: int, prefetch_batches: int, rank: int, shuffle: Any
) -> None:
    """What is left after a state is loaded is what was left when it was taken, on each rank, through JSON."""
    options = {"rank": rank, "world_size": 2, "shuffle": shuffle, "batch_size": 2}
    with loader_of(numbered, prefetch_batches=prefetch_batches, **options) as loader:
        loader.set_epoch(epochs)
        batches = iter(loader)
        assert len(taken(islice(batches, step))) == step
        state = json.loads(json.dumps(loader.state_dict()))
        rest, following = taken(batches), taken(loader)
    with loader_of(numbered, threads=2, **options) as resumed:
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        assert rest == taken(resumed)
        assert following == taken(resumed)


def test_a_finished_epoch_resumes_at_the_next(numbered: FastDataset) -> None:
    """After the last batch nothing of the epoch is left; after the loop the next epoch begins."""
    with loader_of(numbered) as loader:
        batches = iter(loader)
        taken(islice(batches, len(loader)))
        inside = loader.state_dict()
        assert taken(batches) == []
        after = loader.state_dict()
        following = taken(loader)

    assert (inside["epoch"], inside["consumed"]) == (0, COUNT)
    assert (after["epoch"], after["consumed"]) == (1, None)
    for state, expected in ((inside, [[], following]), (after, [following])):
        with loader_of(numbered) as resumed:
            resumed.load_state_dict(state)
            assert expected == [taken(resumed) for _ in expected]


def test_set_epoch_keeps_the_position_of_its_epoch(numbered: FastDataset) -> None:
    """``for epoch in range(...): set_epoch(epoch)`` resumes too; another epoch begins at its beginning."""
    with loader_of(numbered) as loader:
        loader.set_epoch(3)
        batches = iter(loader)
        next(batches)
        state, rest = loader.state_dict(), taken(batches)
    with loader_of(numbered) as resumed:
        resumed.load_state_dict(state)
        resumed.set_epoch(3)
        assert rest == taken(resumed)
        resumed.load_state_dict(state)
        resumed.set_epoch(4)
        assert len(taken(resumed)) == len(resumed)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"seed": 1}, "seed is 0"),
        ({"shuffle": True}, "shuffle is 'full'"),
    ],
)
def test_another_configuration_is_refused(numbered: FastDataset, options: dict[str, Any], named: str) -> None:
    """A state of another loader is refused, and the difference named."""
    with loader_of(numbered) as loader:
        state = loader.state_dict()
    with loader_of(numbered, **options) as other, pytest.raises(ValueError, match=named):
        other.load_state_dict(state)


def test_another_dataset_is_refused(numbered: FastDataset, tmp_path: Path) -> None:
    """A position means nothing in other samples, were they as many: the state knows its store, whatever its path."""
    values = [np.int32(index + 1).tobytes() for index in range(COUNT)]
    other = write_store(tmp_path / "a.h5", values, np.arange(COUNT), field=numbered.reader.field)
    moved = tmp_path / "b.h5"
    moved.write_bytes(Path(numbered.store.path).read_bytes())
    with loader_of(numbered) as loader:
        state = loader.state_dict()
    with loader_of(FastDataset(other)) as loader, pytest.raises(ValueError, match=r"store is \d+ in the state and \d+"):
        loader.load_state_dict(state)
    with loader_of(FastDataset(moved)) as loader:
        loader.load_state_dict(state)


def test_a_closed_loader_still_has_its_state(numbered: FastDataset) -> None:
    """A state may be asked for after the epoch's ``with``, also where the loader opened the store itself."""
    with FastLoader(numbered.store.path, 4) as loader:
        before = loader.state_dict()
    assert loader.state_dict() == before


@pytest.mark.parametrize(
    "change",
    [
        {"consumed": COUNT + 1},
        {"consumed": -1},
        {"consumed": 1.0},
        {"consumed": [1]},
        {"consumed": True},
        {"epoch": -1},
        {"epoch": True},
        {"epoch": 0.5},
        {"version": 4},
    ],
)
def test_a_position_that_cannot_be_is_refused(numbered: FastDataset, change: dict[str, Any]) -> None:
    """A damaged state does not become a silent start from the beginning."""
    with loader_of(numbered) as loader, pytest.raises(ValueError, match=r"consumed|epoch|version"):
        loader.load_state_dict({**loader.state_dict(), **change})


@pytest.mark.parametrize("kind", ["loader", "sampler", "bins"])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda state: None, TypeError, r"state: expected the dict that .* got NoneType$"),
        (lambda state: 5, TypeError, r"state: expected the dict that .* got int$"),
        (lambda state: json.dumps(state), TypeError, r"got str: pass json.loads\(...\) of it"),
        (lambda state: {"loader": state}, ValueError, "this is no state of a (loader|sampler): its keys are 'loader'"),
        (lambda state: {"version": 1, "epoch": 0, "samples": 8, "loader": state}, ValueError, "samples"),
        (lambda state: {}, ValueError, "this is no state of a (loader|sampler): its keys are none"),
        (lambda state: {**state, "version": 99}, ValueError, r"\(99; this one knows 1 to [23]\): update fastio"),
        (lambda state: {**state, "version": "3"}, ValueError, "version='3': expected 1 to"),
        (lambda state: without(state, "epoch"), ValueError, "^epoch is missing in the state"),
        (lambda state: without(state, "consumed"), ValueError, "^consumed is missing in the state"),
    ],
)
def test_what_is_no_state_is_refused(numbered: FastDataset, kind: str, change: Any, error: Any, message: str) -> None:
    """One line says what it is instead, and what to do."""
    resumed: Any = {
        "loader": lambda: loader_of(numbered),
        "sampler": lambda: LengthBucketSampler(numbered.lengths, batch_size=4),
        "bins": lambda: PackSampler(numbered.lengths, max_tokens=40),
    }[kind]()
    with pytest.raises(error, match=message):
        resumed.load_state_dict(change(resumed.state_dict()))


def test_a_list_of_no_states_is_refused(numbered: FastDataset) -> None:
    """A loader takes the states of several ranks, a sampler takes one."""
    sampler = LengthBucketSampler(numbered.lengths, batch_size=4)
    with loader_of(numbered) as loader, pytest.raises(TypeError, match="got NoneType"):
        loader.load_state_dict([None])  # type: ignore[list-item] # what is tested
    with pytest.raises(TypeError, match="got list"):
        sampler.load_state_dict([sampler.state_dict()])  # type: ignore[arg-type] # what is tested


def test_the_state_of_another_kind_is_named(numbered: FastDataset) -> None:
    """A sampler's state in a loader, and the reverse, is not called damaged."""
    sampler = LengthBucketSampler(numbered.lengths, batch_size=4)
    with loader_of(numbered) as loader:
        with pytest.raises(ValueError, match="that of a LengthBucketSampler, not of a loader"):
            loader.load_state_dict(sampler.state_dict())
        with pytest.raises(ValueError, match="that of a loader, not of a sampler"):
            sampler.load_state_dict(loader.state_dict())


def without(state: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key != name}


def state_of_version_2(loader: FastLoader, **change: Any) -> dict[str, Any]:
    """The state of a loader as it was when states counted batches."""
    state = loader.state_dict()
    return {**state, **state.pop("division"), "version": 2, "batch": 0, **change}


@pytest.mark.parametrize("change", [{"batch": 7}, {"batch": -1}, {"batch": 1.0}, {"batch": None}, {"batch_size": 0}])
def test_a_damaged_state_of_version_2_is_refused(numbered: FastDataset, change: dict[str, Any]) -> None:
    """Nor does a state that counts batches."""
    with loader_of(numbered) as loader, pytest.raises(ValueError, match="batch"):
        loader.load_state_dict(state_of_version_2(loader, **{"batch": 1, **change}))


@pytest.mark.parametrize("batch", [0, 1, 4, 6])
def test_a_state_of_version_2_goes_on(numbered: FastDataset, batch: int) -> None:
    """A state that counts batches means the same samples; other ranks and batches give the rest of them."""
    with loader_of(numbered) as loader:
        state = state_of_version_2(loader, epoch=1, batch=batch)
        loader.set_epoch(1)
        expected = taken(loader)[batch:]
    with loader_of(numbered) as loader:
        loader.load_state_dict(state)
        assert expected == taken(loader)
    with loader_of(numbered, batch_size=3) as loader:
        loader.load_state_dict(state)
        assert list(chain(*expected)) == list(chain(*taken(loader)))


def test_the_sharing_of_a_position_is_the_same_on_all_ranks(numbered: FastDataset) -> None:
    """The state of one rank serves all."""
    with loader_of(numbered, rank=0, world_size=2) as one, loader_of(numbered, rank=1, world_size=2) as other:
        next(iter(one))
        other.load_state_dict(one.state_dict())
        assert len(taken(other)) == len(other) - 1


def test_giving_up_a_loaded_position_is_said(numbered: FastDataset, caplog: pytest.LogCaptureFixture) -> None:
    """A loop that begins with epoch 0 again loses the rest of the loaded epoch: a warning, and none otherwise."""
    sampler = LengthBucketSampler(numbered.lengths, batch_size=4)
    with loader_of(numbered) as loader:
        history = [{**sampler.division_options(), "steps": 2}]
        path = str(numbered.store.path)
        for each, name, begun in ((loader, path, 8), (sampler, "LengthBucketSampler", history)):
            each.load_state_dict({**each.state_dict(), "epoch": 3, "consumed": begun})
            for epoch in (3, 3):
                each.set_epoch(epoch)
            assert caplog.messages == []
            each.set_epoch(0)
            assert len(caplog.messages) == 1
            assert f"{name}: set_epoch(0) drops the loaded position within epoch 3" in caplog.text
            caplog.clear()
            each.load_state_dict({**each.state_dict(), "epoch": 3, "consumed": None})
            each.set_epoch(0)
            each.load_state_dict({**each.state_dict(), "epoch": 3, "consumed": begun})
            assert len(list(each)) == 4
            each.set_epoch(0)
            assert caplog.messages == []
