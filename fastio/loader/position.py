"""Where a loader stands: the epoch and batch that come next, and the states that name them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fastio.loader.selection import Chosen
from fastio.samplers.choice import Choice
from fastio.samplers.position import GIVEN_UP, check_state, whole, whole_epoch

__all__ = ["Cursor", "LoaderPosition"]

log = logging.getLogger(__name__)

_STATE_VERSION = 2  # version 1 knew only the block shuffle, and its states had no order


@dataclass(slots=True)
class Cursor:
    """Where one iteration stands: ``batch`` of ``epoch`` is the next that its consumer gets, once it has begun."""

    epoch: int
    batch: int
    has_begun: bool = False

    @property
    def place(self) -> tuple[int, int]:
        """Epoch and batch, to keep while the position moves on."""
        return self.epoch, self.batch

    def move(self, place: tuple[int, int]) -> None:
        """Stand at this epoch and batch."""
        self.epoch, self.batch = place


class LoaderPosition:
    """
    Counts the epochs of a loader, follows its latest iteration, and saves and loads states.

    ``pixels`` is what a state says about the values of samples; it must be equal for the state to be loaded.
    """

    def __init__(self, selection: Chosen, pixels: Mapping[str, Any]) -> None:
        self._selection = selection
        self._store = selection.base.store.identity  # kept: a state is asked for after close() too
        self._path = selection.base.store.path
        self._pixels = dict(pixels)
        self._next = Cursor(0, 0)  # where the next iteration starts
        self._latest = self._next  # where the consumer of the latest iteration stands
        self._saved = self._next  # the same, unless an epoch was set or a state loaded since

    @property
    def next_epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._next.epoch

    def iterate(self) -> Cursor:
        """The cursor of a new iteration, which counts as an epoch when ``begin`` is called for it."""
        self._saved = self._latest = replace(self._next)
        return self._saved

    def begin(self, ahead: Cursor, consumer: Cursor) -> None:
        """
        Give an iteration the next epoch, whatever has been set or loaded since ``iterate``; the one after it is next.

        ``ahead`` is where batches are asked for and ``consumer`` where they arrive: one cursor, or two.
        """
        for cursor in (ahead, consumer):
            cursor.move(self._next.place)
        consumer.has_begun = True
        if consumer is self._latest:
            self._saved = consumer
        self._next = Cursor(ahead.epoch + 1, 0)

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be this epoch: see FastLoader.set_epoch."""
        epoch = whole_epoch(epoch)
        if epoch != self._next.epoch:
            if self._next.batch:
                log.warning(GIVEN_UP, self._path, epoch, self._next.batch, self._next.epoch)
            self._next = self._saved = Cursor(epoch, 0)

    def state_dict(self) -> dict[str, Any]:
        """The next batch that the consumer of the latest iteration has not had, in plain numbers."""
        epoch, batch = (self._saved if self._saved.has_begun else self._next).place
        proof = self._selection.proof(epoch) if batch else {}
        return {"version": _STATE_VERSION, "epoch": epoch, "batch": batch, **self._configuration(), **proof}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on at that batch; ValueError, naming what differs, for another configuration."""
        selection, plan = self._selection, self._selection.plan
        expected = {"version": _STATE_VERSION, **self._configuration()}
        if state.get("version") == 1:
            state = {**state, "version": _STATE_VERSION}
            if "order" in expected:
                state["order"] = {"kind": "blocks"}
        order = state.get("order")
        if "order" in expected and state.get("shuffle") is True:
            expected["order"] = Choice.from_json(order, samples=len(selection)).to_json()
        check_state(state, expected, owner="loader")
        epoch = whole_epoch(state.get("epoch", -1))
        count = selection.sampler.count(epoch)
        batch = whole("batch", state.get("batch", -1), f"0 to {count} in the state", least=0, below=count + 1)
        selection.check_proof(state)
        if plan.order is not None and order is not None:
            plan.order.adopt(order)
        self._next = self._saved = Cursor(epoch, batch)

    def _configuration(self) -> dict[str, Any]:
        """Return what must be equal for a position to mean the same samples."""
        return {"store": self._store, **self._selection.sampler.configuration(), **self._pixels}
