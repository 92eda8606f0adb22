"""Delivery and staging over the real CudaLane: what they rely on, they ask for; what is left out shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio.loader.batch_steps import Numbered
from fastio.loader.device.delivery import Delivery, Staging
from fastio.loader.device.lane import CudaLane, _CudaMark
from tests.loader.device.race_detector import Card, RacedLane

BATCHES = 7
KINDS = ("pinned", "pageable", "refilled", "mixed", "on_device", "made_there")


def source(card: Card, kind: str, fails_at: int | None = None) -> Iterator[Numbered]:
    """Batches of two tensors that all hold their number; the last one is smaller."""
    same = torch.zeros(4, 3, 2, 2, dtype=torch.uint8)
    for number in range(BATCHES):
        if number == fails_at:
            raise ValueError("bad batch")
        count = 4 if number < BATCHES - 1 else 3
        images = (
            same[:count].fill_(number) if kind == "refilled" else torch.full((count, 3, 2, 2), number).to(torch.uint8)
        )
        labels = torch.full((count,), number)
        if kind in ("pinned", "mixed"):
            card.pin(images)
        if kind == "pinned":
            card.pin(labels)
        batch = [images, labels]
        if kind in ("on_device", "made_there"):
            batch = [
                each + 0 for each in [card.to_device(each) for each in batch]
            ]  # both copies first: they make the host wait
        yield Numbered(batch, 0, np.arange(count))
        del images, labels, batch


def transformed(batch: Any) -> Any:
    """A user's own step, with memory that dies in it and a tensor that stays."""
    images, labels = batch
    return [(images.float() / 2) * 2, labels]


def delivered(card: Card, lane: RacedLane, kind: str, depth: int, **options: Any) -> Iterator[Any]:
    fails_at = options.pop("fails_at", None)
    delivery = Delivery(lane, depth=depth, is_made_there=kind == "made_there", **options)
    return delivery.run(source(card, kind, fails_at), place=lambda: None, arrive=lambda _: None)


def train(card: Card, batch: list[torch.Tensor], number: int) -> torch.Tensor:
    """A step that reads and writes its batch; True, on the device, where the batch is right."""
    images, labels = batch
    right = (images == number).all() & (labels == number).all()
    images.mul_(0)
    return right


@settings(deadline=None, max_examples=80)
@given(
    kind=st.sampled_from(KINDS),
    depth=st.integers(1, 4),
    own=st.booleans(),
    leaves_at=st.integers(1, BATCHES + 1),
    fails_at=st.none() | st.integers(0, BATCHES),
    keeps=st.booleans(),
    asks=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_no_race(
    kind: str, depth: int, own: bool, leaves_at: int, fails_at: int | None, keeps: bool, asks: bool, seed: int
) -> None:
    """Of whatever batches, at whatever depth, left early or broken off, by a consumer that waits or runs ahead."""
    card, kept, right = Card(seed), [], []
    with card.simulated():
        options = {"transforms": [transformed] if own else [], "fails_at": fails_at}
        iterator = delivered(card, RacedLane(card), kind, depth, **options)
        with suppress(ValueError):
            for number, batch in enumerate(iterator):
                right.append(train(card, batch, number))
                if asks:
                    assert bool(right[-1])
                if keeps:
                    kept.append(batch)
                del batch
                if number + 1 == leaves_at:
                    break
        del iterator
        kept.clear()
        assert all(bool(each) for each in right)
        right.clear()
        assert card.live() == 0

    assert card.races == []


@settings(deadline=None, max_examples=80)
@given(kinds=st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)), seed=st.integers(0, 1000))
def test_two_at_once_on_streams_of_the_users(kinds: tuple[str, str], seed: int) -> None:
    """Two deliveries side by side, each read by a stream of its own, and by both in turn."""
    card = Card(seed)
    with card.simulated():
        streams = [card.new_stream(), card.new_stream()]
        iterators = [delivered(card, RacedLane(card), kind, 2) for kind in kinds]
        for number in range(BATCHES):
            for place in (0, 1):
                with card.on(streams[(place + number) % 2]):
                    train(card, next(iterators[place]), number)

    assert card.races == []


@pytest.mark.parametrize("kind", KINDS)
def test_two_iterators_of_one_delivery(kind: str) -> None:
    """They share stream and staging."""
    card = Card()
    with card.simulated():
        delivery = Delivery(RacedLane(card), depth=2, is_made_there=kind == "made_there")
        both = [delivery.run(source(card, kind), place=lambda: None, arrive=lambda _: None) for _ in range(2)]
        for number, pair in enumerate(zip(*both, strict=True)):
            assert all(bool(train(card, batch, number)) for batch in pair)

    assert card.races == []


def test_inference_and_training_in_turn() -> None:
    """Staging that was allocated in inference mode is filled again outside of it."""
    card = Card()
    with card.simulated():
        delivery = Delivery(RacedLane(card), depth=1)
        for mode in (torch.inference_mode(), nullcontext(), torch.inference_mode()):
            with mode:
                iterator = delivery.run(source(card, "pageable"), place=lambda: None, arrive=lambda _: None)
                assert BATCHES == len(list(iterator))

    assert card.races == []


class Bag:
    """A user's own kind of batch, of which nobody knows the form."""

    def __init__(self, batch: list[torch.Tensor]) -> None:
        self.parts = {"batch": transformed(batch)}


def test_a_batch_of_a_users_own_kind() -> None:
    """Its tensors too are kept from the next batch until the consumer's stream has done with them."""
    card = Card()
    with card.simulated():
        for number, bag in enumerate(delivered(card, RacedLane(card), "pageable", 2, transforms=[Bag])):
            train(card, bag.parts["batch"], number)
            del bag

    assert card.races == []


def races(kind: str, *, seed: int = 0, **options: Any) -> list[str]:
    """Of a consumer that asks for nothing and keeps nothing."""
    card = Card(seed)
    with card.simulated():
        iterator = delivered(card, RacedLane(card), kind, 2, **options)
        for number, batch in enumerate(iterator):
            train(card, batch, number)
            del batch
    return card.races


LEFT_OUT = {
    "a batch is read before it has come": (_CudaMark, "__init__", lambda mark, stream: _empty_event(mark)),
    "memory is given away under its reader": (CudaLane, "_note_use", lambda lane, tensor, stream: None),
    "staging is filled under a copy": (Staging, "give_back", lambda staging, slot: staging._free.append(slot)),
}


def _empty_event(mark: _CudaMark) -> None:
    mark.event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call] # torch's


@pytest.mark.parametrize("what", LEFT_OUT)
def test_what_is_left_out_shows(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The detector finds each order that CudaLane or Staging no longer asks for."""
    assert races("pageable", transforms=[transformed]) == []
    monkeypatch.setattr(*LEFT_OUT[what])

    assert races("pageable", transforms=[transformed]) != []


def test_pinned_memory_that_dies_too_soon_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that the user pinned is kept until it is copied; the detector sees where it is not."""
    monkeypatch.setattr(_CudaMark, "is_passed", lambda mark: True)

    assert races("pinned") != []


def test_a_batch_of_the_devices_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transforms of batches that were made on the consumer's stream run behind it; the detector sees where not."""
    card = Card()
    with card.simulated():
        lane = RacedLane(card)
        monkeypatch.setattr(type(lane._stream), "wait_stream", lambda stream, other: None)
        list(delivered(card, lane, "on_device", 2, transforms=[transformed]))

    assert card.races != []
