"""Orders of very many samples, computed where they are needed: as complete, resumable and shared as others."""

from __future__ import annotations

import json
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest

from fastio import FastDataset, FastLoader, Mixture
from tests.numbered import COUNT, loader_of, taken, write_numbers

SHUFFLES: list[Any] = [False, True, "full"]


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> FastDataset:
    """Samples that are their own index."""
    return write_numbers(tmp_path_factory.mktemp("numbered") / "a.h5")


def hold_few(patch: pytest.MonkeyPatch) -> None:
    """Take stores of more than four samples for very large ones."""
    for module in ("batches", "choice"):
        patch.setattr(f"fastio.samplers.{module}.MOST_HELD", 4)


@pytest.fixture
def few_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """No order is held."""
    hold_few(monkeypatch)


@pytest.mark.usefixtures("few_held")
@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_ranks_have_all_samples_once(numbered: FastDataset, shuffle: Any, world_size: int) -> None:
    """Each epoch, in another order if it is shuffled, and each receipt says so."""
    epochs = []
    for epoch in range(2):
        got: list[int] = []
        for rank in range(world_size):
            options = {"rank": rank, "world_size": world_size, "shuffle": shuffle, "uneven": "drop"}
            with loader_of(numbered, batch_size=1, **options) as loader:
                loader.set_epoch(epoch)
                got += chain(*taken(loader))
        assert len(set(got)) == len(got) == COUNT // world_size * world_size
        epochs.append(got)

    assert (epochs[0] == epochs[1]) == (shuffle is False)
    with loader_of(numbered, shuffle=shuffle) as loader:
        taken(loader)
        assert loader.receipt().is_exact


@pytest.mark.usefixtures("few_held")
@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("step", range(4))
def test_the_rest_of_an_epoch_goes_to_other_ranks(numbered: FastDataset, shuffle: Any, step: int) -> None:
    """Two ranks begin it, three end it, through JSON: every sample comes once."""
    had: list[int] = []
    for rank in range(2):
        with loader_of(numbered, rank=rank, world_size=2, batch_size=2, shuffle=shuffle) as loader:
            batches = iter(loader)
            had += chain(*taken(islice(batches, step)))
            state = json.loads(json.dumps(loader.state_dict()))
            rest = taken(batches)
        with loader_of(numbered, rank=rank, world_size=2, batch_size=2, shuffle=shuffle) as loader:
            loader.load_state_dict(state)
            assert rest == taken(loader)
    for rank in range(3):
        options = {"rank": rank, "world_size": 3, "shuffle": shuffle, "uneven": "drop"}
        with loader_of(numbered, batch_size=1, **options) as loader:
            loader.load_state_dict(state)
            had += chain(*taken(loader))

    left = COUNT - 4 * step
    assert len(set(had)) == len(had) == 4 * step + left // 3 * 3


def mixture(numbered: FastDataset, shuffle: Any) -> FastLoader:
    """A loader of two members, of which the first comes more than once an epoch."""
    members = {"a": numbered, "b": FastDataset(numbered.store.path)}
    return FastLoader(Mixture(members, weights={"a": 3, "b": 1}), 4, shuffle=shuffle, seed=5)


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("kind", ["one store", "mixture"])
def test_states_of_held_orders_go_on(
    numbered: FastDataset, shuffle: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state that was saved when the order of so many samples was held still means that order, also saved again."""

    def loader() -> FastLoader:
        return loader_of(numbered, shuffle=shuffle) if kind == "one store" else mixture(numbered, shuffle)

    with loader() as old:
        batches = iter(old)
        next(batches)
        state = old.state_dict()
        rest = taken(batches)
    hold_few(monkeypatch)
    with loader() as new:
        new.load_state_dict(state)
        batches = iter(new)
        assert rest[:1] == taken(islice(batches, 1))
        again = new.state_dict()
    with loader() as last:
        assert shuffle is False or rest != taken(last)[1:]
        last.load_state_dict(again)
        assert rest[1:] == taken(last)


@pytest.mark.usefixtures("few_held")
@pytest.mark.parametrize("kind", ["one store", "mixture"])
def test_states_of_computed_orders_go_on(numbered: FastDataset, kind: str) -> None:
    """At every batch, also in a loader that had another order before."""
    for step in range(4):
        for shuffle in SHUFFLES:
            loaders = [
                loader_of(numbered, shuffle=shuffle) if kind == "one store" else mixture(numbered, shuffle)
                for _ in range(2)
            ]
            with loaders[0] as loader, loaders[1] as other:
                batches = iter(loader)
                taken(islice(batches, step))
                other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
                assert taken(batches) == taken(other)


@pytest.mark.usefixtures("few_held")
def test_a_damaged_order_is_refused(numbered: FastDataset) -> None:
    """A kind that there is not."""
    with loader_of(numbered, shuffle="full") as loader:
        next(iter(loader))
        state = loader.state_dict()
        assert state["order"] == {"kind": "keyed"}
        for kind in ("sorted", "lanes", "full", "blocks"):
            with pytest.raises(ValueError, match=rf"order=.*'{kind}'.*expected the kind keyed: the state is damaged"):
                loader.load_state_dict({**state, "order": {"kind": kind}})


@pytest.mark.usefixtures("few_held")
def test_a_subset_follows_a_computed_order(numbered: FastDataset, tmp_path: Path) -> None:
    """Its samples come once each."""
    chosen = list(range(1, COUNT, 2))
    with FastLoader(numbered, 3, indices=chosen, shuffle="full", seed=1) as loader:
        assert sorted(chain(*taken(loader))) == chosen
