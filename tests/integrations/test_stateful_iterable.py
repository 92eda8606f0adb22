"""iterable() within torchdata's StatefulDataLoader, with worker processes and without, on other ranks too."""

from __future__ import annotations

import gc
import json
import pickle
from collections.abc import Callable
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

from fastio import FastDataset
from tests.integrations.conftest import COUNT

# torchdata 0.11 calls what torch 2.13 keeps for it alone; three workers may be more than there are CPUs.
pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes:UserWarning"),
]

Copied = Callable[[Any], Any]
COPIES: dict[str, Copied] = {
    "json": lambda state: json.loads(json.dumps(state)),
    "pickle": lambda state: pickle.loads(pickle.dumps(state)),
}


def loader_of(store: Path, rank: int = 0, world_size: int = 1, *, batch_size: int = 2, **options: Any) -> Any:
    """The StatefulDataLoader of one rank."""
    dataset = FastDataset(store).iterable(rank=rank, world_size=world_size)
    return StatefulDataLoader(dataset, batch_size=batch_size, **options)


def labels_of(batches: Any, most: int | None = None) -> list[list[int]]:
    """The samples of the next batches."""
    return [labels.tolist() for _, labels in islice(batches, most)]


@pytest.mark.parametrize(
    ("workers", "copy", "had"),
    [(0, "json", 0), (0, "pickle", 5), (0, "json", 12), (1, "json", 5), (3, "json", 1), (3, "pickle", 11)],
)
def test_it_continues_with_the_next_batch(store: Path, workers: int, copy: str, had: int) -> None:
    """The batches of an epoch without an interruption, then whole epochs."""
    loader = loader_of(store, num_workers=workers)
    running = iter(loader)
    first = labels_of(running, had)
    state = COPIES[copy](loader.state_dict())
    rest, whole = labels_of(running), labels_of(loader)
    resumed = loader_of(store, num_workers=workers)
    resumed.load_state_dict(state)

    assert rest == labels_of(resumed)
    assert whole == first + rest == labels_of(resumed)
    assert list(range(COUNT)) == sorted(chain(*whole))


@pytest.mark.parametrize(("workers", "before", "after"), [(0, 3, 1), (1, 1, 2), (3, 2, 1)])
def test_other_ranks_continue(store: Path, workers: int, before: int, after: int) -> None:
    """Every rank has two batches; then other ranks, in batches of another size, have what is left."""
    seen, state = [], None
    for rank in range(before):
        loader = loader_of(store, rank, before, num_workers=workers)
        seen += labels_of(iter(loader), 2)
        state = loader.state_dict()
    for rank in range(after):
        loader = loader_of(store, rank, after, batch_size=3, num_workers=workers)
        loader.load_state_dict(state)
        seen += labels_of(loader)

    assert list(range(COUNT)) == sorted(chain(*seen))


def test_persistent_workers_begin_every_epoch(store: Path) -> None:
    """A state of the second epoch, of which not every worker has had a batch, and one from the end of an epoch."""
    options: dict[str, Any] = {"num_workers": 2, "persistent_workers": True}
    loader = loader_of(store, **options)
    whole = labels_of(loader)
    ended = loader.state_dict()
    assert whole[:1] == labels_of(iter(loader), 1)
    for state, expected in ((loader.state_dict(), whole[1:]), (ended, whole)):
        resumed = loader_of(store, **options)
        resumed.load_state_dict(state)
        assert expected == labels_of(resumed)
        assert whole == labels_of(resumed)


def test_another_number_of_workers_is_refused(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pieces would be others."""
    # How long torchdata waits for workers that failed at their start, when their loader is collected.
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.1)
    loader = loader_of(store, num_workers=3)
    labels_of(iter(loader), 1)
    other = loader_of(store, num_workers=1)
    other.load_state_dict(loader.state_dict())

    with pytest.raises(ValueError, match=r"worker 0 of 3 of an iterable.*, and this is worker 0 of 1") as error:
        iter(other)
    del error, other
    gc.collect()
