"""An epoch of a FastLoader goes on with other numbers of ranks, in batches of another size, again and again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Subset

from fastio import FastDataset, FastLoader, LengthBucketSampler, Mixture, PackSampler
from tests.numbered import COUNT, loader_of, write_numbers


class Start(NamedTuple):
    """One start of a training, and after how many steps it is stopped; past the last one, with the epoch."""

    world_size: int
    batch_size: int
    steps: int


def in_order(dataset: FastDataset, start: Start, rank: int, **options: Any) -> FastLoader:
    """A loader of samples in one order."""
    ranks = {"rank": rank, "world_size": start.world_size}
    return loader_of(dataset, batch_size=start.batch_size, **ranks, **options)


def in_batches(dataset: FastDataset, start: Start, rank: int, *, kind: Any, **options: Any) -> FastLoader:
    """A loader with one of fastio's batch samplers, whose lengths are 1 to 5."""
    lengths = [1 + index % 5 for index in range(COUNT)]
    sampler = kind(lengths, rank=rank, world_size=start.world_size, **options)
    return FastLoader(dataset, batch_sampler=sampler, threads=1)


def in_buckets(dataset: FastDataset, start: Start, rank: int) -> FastLoader:
    """A loader of batches of similar length."""
    return in_batches(dataset, start, rank, kind=LengthBucketSampler, batch_size=start.batch_size, window=11)


def in_packs(dataset: FastDataset, start: Start, rank: int) -> FastLoader:
    """A loader of batches that fill a budget of tokens."""
    return in_batches(dataset, start, rank, kind=PackSampler, max_tokens=5 * start.batch_size)


def mixed(dataset: FastDataset, start: Start, rank: int) -> FastLoader:
    """A loader of a mixture, whose epoch has every sample of both members once."""
    members = {"few": Subset(dataset, range(7)), "many": Subset(dataset, range(7, COUNT))}
    mixture = Mixture(members, {"few": 7, "many": COUNT - 7}, batching="stratified")
    ranks = {"rank": rank, "world_size": start.world_size}
    return FastLoader(mixture, start.batch_size, shuffle=True, threads=1, **ranks)


# How a loader is built, how often each sample comes in an epoch, whether all batches of a step are equally long.
ALL = Counter(range(COUNT))
SOME = [3, 1, 4, 1, 5, 9, 2, 6]
SOURCES: dict[str, tuple[Callable[[FastDataset, Start, int], FastLoader], Counter[int], bool]] = {
    "stored order": (partial(in_order, shuffle=False), ALL, True),
    "full shuffle": (partial(in_order, shuffle="full"), ALL, True),
    "chosen order": (partial(in_order, shuffle=True), ALL, True),
    "part of the store": (partial(in_order, shuffle=True, indices=SOME), Counter(SOME), True),
    "user's order": (partial(in_order, shuffle=False, sampler=SOME), Counter(SOME), True),
    "mixture": (mixed, ALL, True),
    "buckets": (in_buckets, ALL, True),
    "packs": (in_packs, ALL, False),
}

starts = st.builds(Start, st.integers(1, 5), st.integers(1, 6), st.integers(0, 7))


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> FastDataset:
    """Samples that are their own index, of 4 bytes."""
    return write_numbers(tmp_path_factory.mktemp("numbered") / "a.h5")


def ranks_of(source: str, dataset: FastDataset, start: Start, state: dict[str, Any] | None) -> list[FastLoader]:
    """The loaders of all ranks; each has loaded the same state."""
    loaders = [SOURCES[source][0](dataset, start, rank) for rank in range(start.world_size)]
    for loader in loaders:
        if state is not None:
            loader.load_state_dict(state)
    return loaders


def steps_of(iterators: list[Any], stop: int | None, *, even: bool) -> list[list[list[int]]]:
    """The labels of each step, rank by rank; all ranks must have as many batches, and ``even`` ones if so."""
    batches = [[labels.tolist() for _, labels in islice(batches, stop)] for batches in iterators]
    shapes = {tuple(map(len, own)) if even else len(own) for own in batches}
    assert len(shapes) == 1, shapes
    return [list(step) for step in zip(*batches, strict=True)]


@pytest.mark.parametrize("source", SOURCES)
@settings(max_examples=8)
@given(history=st.lists(starts, min_size=1, max_size=4), epoch=st.integers(0, 2), saver=st.integers(0, 4))
def test_resumed_three_times_in_a_row(
    numbered: FastDataset, source: str, history: list[Start], epoch: int, saver: int
) -> None:
    """Every sample comes once, whichever rank's state all ranks load; only the last step may repeat samples."""
    _, expected, even = SOURCES[source]
    state: dict[str, Any] | None = None
    steps: list[list[list[int]]] = []
    for number, start in enumerate(history):
        with ExitStack() as stack:
            loaders = ranks_of(source, numbered, start, state)
            for loader in loaders:
                stack.enter_context(loader)
                loader.set_epoch(epoch)  # keeps the position of a loaded state
            stop = None if number == len(history) - 1 else start.steps
            steps += steps_of([iter(loader) for loader in loaders], stop, even=even)
            states = [loader.state_dict() for loader in loaders]
            assert all({**states[0], "receipt": []} == {**own, "receipt": []} for own in states)
            state = json.loads(json.dumps(states[saver % start.world_size]))
            if state["epoch"] > epoch:  # the epoch has ended, not only its last step
                following = list(chain(*chain(*steps_of([iter(loader) for loader in loaders], None, even=even))))
                break

    once = Counter(chain(*chain(*steps[:-1])))
    whole = once + Counter(chain(*steps[-1]))
    assert once <= expected <= whole
    assert whole.total() - expected.total() < max(start.world_size for start in history) or not even
    assert expected <= Counter(following)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_weights_are_drawn_once_for_all_divisions(numbered: FastDataset, steps: int) -> None:
    """The samples of an epoch that weights have drawn stay drawn, with all their repetitions, on other ranks."""
    build = partial(in_order, shuffle=False, weights=[1 + index % 3 for index in range(COUNT)])
    with build(numbered, Start(1, 4, 0), 0) as alone:
        expected = Counter(chain(*(labels.tolist() for _, labels in alone)))
    first = [build(numbered, Start(3, 2, steps), rank) for rank in range(3)]
    taken = steps_of([iter(loader) for loader in first], steps, even=True)
    second = [build(numbered, Start(2, 3, 0), rank) for rank in range(2)]
    for loader in second:
        loader.load_state_dict(first[-1].state_dict())
    rest = steps_of([iter(loader) for loader in second], None, even=True)

    came = Counter(chain(*chain(*taken, *rest)))
    assert expected <= came
    assert came.total() - expected.total() < len(second)
    for loader in first + second:
        loader.close()
