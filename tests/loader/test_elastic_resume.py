"""An epoch of a FastLoader goes on with other numbers of ranks, in batches of another size, again and again."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from itertools import chain, islice
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio import FastDataset, FastLoader
from tests.numbered import COUNT, loader_of, write_numbers

# What a loader may read, and how often each sample then comes in an epoch.
SOURCES: dict[str, tuple[dict[str, Any], Counter[int]]] = {
    "stored order": ({"shuffle": False}, Counter(range(COUNT))),
    "full shuffle": ({"shuffle": "full"}, Counter(range(COUNT))),
    "chosen order": ({"shuffle": True}, Counter(range(COUNT))),
    "part of the store": ({"shuffle": True, "indices": [3, 1, 4, 1, 5, 9, 2, 6]}, Counter([3, 1, 4, 1, 5, 9, 2, 6])),
    "user's order": ({"shuffle": False, "sampler": list(range(0, COUNT, 2))}, Counter(range(0, COUNT, 2))),
}


class Start(NamedTuple):
    """One start of a training, and after how many steps it is stopped; past the last one, with the epoch."""

    world_size: int
    batch_size: int
    steps: int


starts = st.builds(Start, st.integers(1, 5), st.integers(1, 6), st.integers(0, 7))


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> FastDataset:
    """Samples that are their own index, of 4 bytes."""
    return write_numbers(tmp_path_factory.mktemp("numbered") / "a.h5")


def ranks_of(dataset: FastDataset, start: Start, state: dict[str, Any] | None, **options: Any) -> list[FastLoader]:
    """The loaders of all ranks; each has loaded the same state."""
    shape = {"batch_size": start.batch_size, "world_size": start.world_size}
    loaders = [loader_of(dataset, rank=rank, **shape, **options) for rank in range(start.world_size)]
    for loader in loaders:
        if state is not None:
            loader.load_state_dict(state)
    return loaders


def steps_of(iterators: list[Any], stop: int | None) -> list[list[list[int]]]:
    """The labels of each step, rank by rank; all ranks must have equal batches."""
    batches = [[labels.tolist() for _, labels in islice(batches, stop)] for batches in iterators]
    shapes = {tuple(map(len, own)) for own in batches}
    assert len(shapes) == 1, shapes
    return [list(step) for step in zip(*batches, strict=True)]


@pytest.mark.parametrize("source", SOURCES)
@settings(max_examples=12)
@given(history=st.lists(starts, min_size=1, max_size=4), epoch=st.integers(0, 2), saver=st.integers(0, 4))
def test_resumed_three_times_in_a_row(
    numbered: FastDataset, source: str, history: list[Start], epoch: int, saver: int
) -> None:
    """Every sample comes once, whichever rank's state all ranks load; only the last step may repeat samples."""
    options, expected = SOURCES[source]
    state: dict[str, Any] | None = None
    steps: list[list[list[int]]] = []
    for number, start in enumerate(history):
        with ExitStack() as stack:
            loaders = ranks_of(numbered, start, state, **options)
            for loader in loaders:
                stack.enter_context(loader)
                loader.set_epoch(epoch)  # keeps the position of a loaded state
            stop = None if number == len(history) - 1 else start.steps
            steps += steps_of([iter(loader) for loader in loaders], stop)
            states = [loader.state_dict() for loader in loaders]
            assert all(states[0] == state for state in states)
            state = json.loads(json.dumps(states[saver % start.world_size]))
            if state["epoch"] > epoch:  # the epoch has ended, not only its last step
                following = list(chain(*chain(*steps_of([iter(loader) for loader in loaders], None))))
                break

    once = Counter(chain(*chain(*steps[:-1])))
    whole = once + Counter(chain(*steps[-1]))
    most = max(start.world_size for start in history)
    assert once <= expected <= whole
    assert whole.total() - expected.total() < most
    assert expected <= Counter(following)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_weights_are_drawn_once_for_all_divisions(numbered: FastDataset, steps: int) -> None:
    """The samples of an epoch that weights have drawn stay drawn, with all their repetitions, on other ranks."""
    options = {"weights": [1 + index % 3 for index in range(COUNT)], "shuffle": False}
    with loader_of(numbered, **options) as alone:
        expected = Counter(chain(*(labels.tolist() for _, labels in alone)))
    before, after = Start(3, 2, steps), Start(2, 3, steps)
    first = ranks_of(numbered, before, None, **options)
    taken = steps_of([iter(loader) for loader in first], steps)
    second = ranks_of(numbered, after, first[-1].state_dict(), **options)
    rest = steps_of([iter(loader) for loader in second], None)

    came = Counter(chain(*chain(*taken, *rest)))
    assert expected <= came
    assert came.total() - expected.total() < after.world_size
    for loader in first + second:
        loader.close()
