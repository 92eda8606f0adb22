"""Delivery by a device that is as late as it may be: nothing is read too early, written too early, or lost."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from fastio.loader.batch_steps import Numbered
from fastio.loader.device.delivery import Delivery, Staging
from fastio.loader.device.lane import HostLane
from tests.loader.device.slow_lane import SlowLane, pin

BATCHES = 9


def batches(kind: str) -> Iterator[Any]:
    """Nine batches: pinned ones, pageable ones, or always the same pageable memory filled anew."""
    same = torch.zeros(4, 3, 2, 2, dtype=torch.uint8)
    for number in range(BATCHES):
        labels = torch.arange(4) + 4 * number
        if kind == "refilled":
            same.fill_(number)
            yield [same, labels]
        elif kind == "channels_last":
            yield [torch.full((4, 3, 2, 2), number, dtype=torch.uint8).to(memory_format=torch.channels_last), labels]
        else:
            images = torch.full((4, 3, 2, 2), number, dtype=torch.uint8)
            yield [pin(images), pin(labels)] if kind == "pinned" else [images, labels]


def numbered(source: Iterator[Any]) -> Iterator[Numbered]:
    for batch in source:
        yield Numbered(batch, 0, np.arange(4))


def run(lane: SlowLane, source: Iterator[Any], depth: int = 2, **options: Any) -> Iterator[Any]:
    return Delivery(lane, depth=depth, **options).run(numbered(source), place=lambda: None, arrive=lambda _: None)


KINDS = ("pinned", "pageable", "refilled", "channels_last")


@pytest.mark.parametrize("depth", [1, 2, 5, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_the_consumer_gets_what_the_source_made(kind: str, depth: int) -> None:
    """All batches arrive undamaged though each copy and each step runs as late as it may, and batches die at once."""
    lane = SlowLane()
    got: list[tuple[int, list[int]]] = []
    for batch in run(lane, batches(kind), depth):
        lane.train(batch, lambda step: got.append((int(step[0].unique()), step[1].tolist())))
        del batch
    lane.consumer.finish()

    assert [(number, list(range(4 * number, 4 * number + 4))) for number in range(BATCHES)] == got
    assert lane.alive == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_is_kept_stays(kind: str) -> None:
    """Batches that the loop keeps are not overwritten by later ones."""
    lane = SlowLane()
    kept = list(run(lane, batches(kind)))
    lane.consumer.finish()

    assert list(range(BATCHES)) == [int(images.unique()) for images, _ in kept]


def test_the_layout_is_kept() -> None:
    """channels_last stays channels_last, by way of staging too."""
    images, _ = next(run(SlowLane(), batches("channels_last")))

    assert images.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("depth", [1, 3])
def test_memory_is_bounded(depth: int) -> None:
    """However far the consumer could run ahead, the device holds 2 * depth + 3 batches, and staging depth + 1."""
    lane = SlowLane()
    source = (torch.full((100,), number) for number in range(50))
    for batch in run(lane, source, depth):
        lane.train(batch, lambda step: None)
        del batch

    assert lane.most_alive <= 2 * depth + 3
    assert len(lane.pinned_sizes) == depth + 1


def test_pinned_batches_are_not_staged() -> None:
    """What is pinned already is copied once, from where it lies."""
    lane = SlowLane()
    list(run(lane, batches("pinned")))

    assert lane.pinned_sizes == []
    assert 2 * BATCHES == lane.copied


def test_staging_grows_with_the_batches() -> None:
    """A larger batch than before gets larger memory, a smaller one uses what is there."""
    lane = SlowLane()
    sizes = [10, 1000, 10, 1000, 500]
    got = list(run(lane, (torch.full((size,), float(size)) for size in sizes), 1))
    lane.consumer.finish()

    assert [[size] * size for size in sizes] == [batch.tolist() for batch in got]
    assert len(lane.pinned_sizes) <= 4


def test_a_pinned_batch_that_is_filled_anew_is_refused() -> None:
    """An iterator that writes into pinned memory under a running copy is an error, not a falsified batch."""

    def source() -> Iterator[Any]:
        same = pin(torch.zeros(4))
        for number in range(4):
            same.fill_(number)
            yield same

    with pytest.raises(RuntimeError, match="refilled"):
        list(run(SlowLane(checks_sources=False), source()))


def test_one_pinned_batch_may_come_again() -> None:
    """A mock loader that hands out the same batch for ever is no refilling."""
    lane = SlowLane()
    same = pin(torch.ones(4))

    assert BATCHES == len(list(run(lane, iter([same] * BATCHES))))


@pytest.mark.parametrize("place", [0, 1, 4])
def test_an_error_comes_in_its_turn(place: int) -> None:
    """The batches before a bad one arrive; then its error is raised; then the iterator is over."""

    def source() -> Iterator[Any]:
        for number in range(place):
            yield torch.tensor([number])
        raise ValueError("bad batch")

    lane = SlowLane()
    iterator = run(lane, source())
    got = [next(iterator) for _ in range(place)]
    with pytest.raises(ValueError, match="bad batch"):
        next(iterator)
    assert list(iterator) == []
    lane.consumer.finish()

    assert list(range(place)) == [int(batch) for batch in got]


def test_an_error_of_a_transform_comes_in_its_turn() -> None:
    """A transform that fails for the third batch leaves the first two alone."""

    def fail_at_two(batch: torch.Tensor) -> torch.Tensor:
        if batch[0] == 2:
            raise ValueError("bad transform")
        return batch + 1

    lane = SlowLane()
    iterator = run(lane, (torch.tensor([number]) for number in range(5)), transforms=[fail_at_two])
    got = [int(next(iterator)) for _ in range(2)]
    with pytest.raises(ValueError, match="bad transform"):
        next(iterator)

    assert got == [1, 2]


def test_leaving_early_closes_the_source_and_waits_for_its_copies() -> None:
    """Nobody reads from host memory any more when a loop that was left early has cleaned up."""
    closed = []

    def source() -> Iterator[Any]:
        try:
            yield from batches("pinned")
        finally:
            closed.append(True)

    lane = SlowLane()
    iterator = run(lane, source())
    next(iterator)
    del iterator

    assert closed == [True]
    assert lane.stream.mark().is_passed()


def test_the_place_is_that_of_the_consumer() -> None:
    """The place moves as batches are handed over, and to the end when the consumer sees the end."""
    made = 0
    places: list[int] = []

    def source() -> Iterator[Numbered]:
        nonlocal made
        for made in range(1, 6):
            yield Numbered(torch.tensor([made]), 0, np.arange(1))
        made = -1

    iterator = Delivery(SlowLane(), depth=3).run(source(), place=lambda: made, arrive=places.append)
    next(iterator)
    assert places == [1]
    list(iterator)

    assert [1, 2, 3, 4, 5, -1] == places


@pytest.mark.parametrize("kind", ["pinned", "pageable"])
def test_nothing_holds_a_batch_that_the_loop_has_dropped(kind: str) -> None:
    """A batch dies with the loop's last reference to it, not at the next step."""
    iterator = run(SlowLane(), batches(kind))
    batch = next(iterator)
    alive = weakref.ref(batch[0])
    del batch

    assert alive() is None


def test_an_error_ahead_keeps_no_batch_alive() -> None:
    """Memory comes back with the loop that was left, not with Python's gc, also where a later batch has failed."""

    def source() -> Iterator[Any]:
        yield from (torch.tensor([number]) for number in range(2))
        raise ValueError("bad batch")

    lane = SlowLane()
    gc.disable()
    try:
        iterator = run(lane, source())
        next(iterator)
        del iterator
        lane.consumer.finish()
        assert lane.alive == 0
    finally:
        gc.enable()


def test_a_tensor_with_a_gradient_leaves_staging_without_one() -> None:
    """No batch hangs on the one before by way of staging."""
    source = (torch.full((4,), float(number), requires_grad=True) for number in range(BATCHES))
    got = list(run(SlowLane(), source, 1))

    assert not any(batch.requires_grad for batch in got)


# Pinned memory that batches are copied through.


@pytest.mark.parametrize("before", [[], [1]], ids=["the first memory", "larger memory"])
def test_memory_taken_in_inference_mode_is_filled_outside_of_it(before: list[int]) -> None:
    """A tensor made in inference mode could not be: an evaluation would break the training that follows it."""
    staging = Staging(HostLane(), 1)
    for count in before:
        with staging.take([torch.zeros(count)]):
            pass
    with torch.inference_mode(), staging.take([torch.ones(1000)]) as staged:
        assert [[1] * 1000] == [copy.tolist() for copy in staged.copies]
    with staging.take([torch.full((1000,), 2.0)]) as staged:
        assert not any(copy.is_inference() for copy in staged.copies)
        assert [[2] * 1000] == [copy.tolist() for copy in staged.copies]


def test_another_thread_takes_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that see one free piece of memory get one each."""

    class Taken(deque[Any]):
        def __bool__(self) -> bool:
            return True

    staging = Staging(HostLane(), 0)
    monkeypatch.setattr(staging, "_free", Taken())

    with staging.take([torch.ones(3)]) as staged:
        assert [[1] * 3] == [copy.tolist() for copy in staged.copies]
