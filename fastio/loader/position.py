"""Where a loader stands: the epoch and batch that come next, and the states that name them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastio.loader.proof.account import Account, joined, unique_parts
from fastio.loader.proof.ledger import EpochLedger, RankShare
from fastio.loader.selection.selection import Selection
from fastio.samplers.batches import Batches, OrderSampler
from fastio.samplers.position import GIVEN_UP, as_state, check_state, value_in, whole, whole_epoch
from fastio.types.receipt import ReceiptPart

__all__ = ["Cursor", "LoaderPosition", "Place"]

log = logging.getLogger(__name__)

# Version 1 knew only the block shuffle, and its states had no order; versions 1 and 2 counted the batches of one rank.
_STATE_VERSION = 3
_SINCE_0_2 = ("batch_transforms", "fields", "mode", "transform")  # states of 0.1.0 say nothing about these

Place = tuple[int, Any, int]


@dataclass(slots=True)
class Cursor:
    """
    Where one iteration stands: the next batch that its consumer gets, once it has begun.

    That is number ``batch`` of what was left of ``epoch`` when ``consumed`` of it had been consumed (None: nothing;
    see ``ElasticSampler``).
    """

    epoch: int
    consumed: Any = None
    batch: int = 0
    has_begun: bool = False

    @property
    def place(self) -> Place:
        """Epoch, what had been consumed of it, and batch, to keep while the position moves on."""
        return self.epoch, self.consumed, self.batch

    def move(self, place: Place) -> None:
        """Stand at this epoch and batch."""
        self.epoch, self.consumed, self.batch = place

    def end_epoch(self) -> None:
        """Stand at the beginning of the next epoch."""
        self.move((self.epoch + 1, None, 0))


class LoaderPosition:
    """
    Counts the epochs of a loader, follows its latest iteration, and saves and loads states.

    ``values`` is what a state says about the values of samples; it must be equal for the state to be loaded.
    Iterations of several threads that begin at once get an epoch each.
    """

    def __init__(self, selection: Selection, values: Mapping[str, Any]) -> None:
        self._beginning = threading.Lock()
        self._selection = selection
        self._store = selection.base.store.identity  # kept: a state is asked for after close() too
        self._path = selection.base.store.path
        self._values = dict(values)
        self._next = Cursor(0)  # where the next iteration starts
        self._latest = self._next  # where the consumer of the latest iteration stands
        self._saved = self._next  # the same, unless an epoch was set or a state loaded since
        self._ledger: tuple[Cursor, EpochLedger] | None = None  # of the latest iteration
        self._earlier: tuple[int, tuple[ReceiptPart, ...]] = 0, ()  # parts of an epoch given before it, by any rank
        self._others: tuple[ReceiptPart, ...] = ()  # parts of it that other ranks have told

    @property
    def next_epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._next.epoch

    @property
    def next_whole_epoch(self) -> int:
        """The next epoch that begins: not one that goes on in the middle, as after a loaded state."""
        return self._next.epoch + (1 if self._next.batch or self._next.consumed else 0)

    def iterate(self) -> Cursor:
        """The cursor of a new iteration, which counts as an epoch when ``begin`` is called for it."""
        self._saved = self._latest = replace(self._next)
        return self._saved

    def begin(self, ahead: Cursor, consumer: Cursor) -> None:
        """
        Give an iteration the next epoch, whatever has been set or loaded since ``iterate``; the one after it is next.

        ``ahead`` is where batches are asked for and ``consumer`` where they arrive: one cursor, or two.
        """
        with self._beginning:
            for cursor in (ahead, consumer):
                cursor.move(self._next.place)
            consumer.has_begun = True
            if consumer is self._latest:
                self._saved = consumer
            self._next = Cursor(ahead.epoch + 1)

    def withdraw(self, consumer: Cursor) -> None:
        """Let the next iteration be the one that ``begin`` gave this consumer, but that could not be planned."""
        with self._beginning:
            if self._next.place == Cursor(consumer.epoch + 1).place:  # nothing else was set meanwhile
                self._next = Cursor(*consumer.place)

    def open_ledger(self, consumer: Cursor, fields: tuple[str, ...], samples: int, batches: Batches) -> EpochLedger:
        """
        Return what sums up the samples of an iteration that begins now with the last ``samples`` of ``batches``.

        It belongs to the receipt of the loader if the iteration is the latest.
        """
        share, epoch, first = self._selection.plan.share, consumer.epoch, consumer.batch
        start, padding = self._consumed(consumer), batches.padding_within(samples)
        dealt = RankShare(
            share.rank, share.world_size, fields, epoch, start, samples, padding=padding, dropped=batches.dropped
        )
        ledger = EpochLedger(dealt, lambda: consumer.batch - first if consumer.epoch == epoch else None)
        if consumer is self._latest:
            self._earlier, self._others = (epoch, self._parts(epoch)), ()
            self._ledger = consumer, ledger
        return ledger

    def _consumed(self, cursor: Cursor) -> Any:
        """Return what has been consumed of the epoch where a cursor stands."""
        if not cursor.batch:
            return cursor.consumed
        return self._selection.sampler.advanced(cursor.epoch, cursor.consumed, cursor.batch)

    def _parts(self, epoch: int) -> tuple[ReceiptPart, ...]:
        """Return the parts of the receipt of an epoch that are known: those on the way to the latest position."""
        known = self._earlier[1] if self._earlier[0] == epoch else ()
        if self._ledger is None or self._ledger[1].share.epoch != epoch or self._ledger[1].has_ended:
            return known
        cursor, ledger = self._ledger
        latest, share = ledger.part(self._consumed(cursor)), ledger.share
        others = [part for part in self._others if part.stop == latest.stop]
        return joined([latest, *others], known, start=share.start, world_size=share.world_size)[0]

    def learn(self, accounts: Sequence[Account]) -> None:
        """Remember what other ranks have told: a state saved now, of any rank, has the parts of all of them."""
        epoch, rank = accounts[0].epoch, self._selection.plan.share.rank
        self._earlier = epoch, unique_parts(part for account in accounts for part in account.earlier)
        self._others = tuple(
            account.latest for account in accounts if account.latest is not None and account.rank != rank
        )

    def account(self) -> Account:
        """Return what is known of the epoch that the latest iteration gives, or that goes on after a loaded state."""
        share = self._selection.plan.share
        rank, world_size = share.rank, share.world_size
        if self._ledger is None:
            epoch, start = self._next.epoch, self._consumed(self._next)
            known = self._earlier[1] if self._earlier[0] == epoch else ()
            dropped = self._selection.sampler.plan(epoch, start).dropped
            return Account(rank, world_size, epoch, start, None, known, dropped, has_ended=False, is_known=True)
        cursor, ledger = self._ledger
        dealt, has_ended = ledger.share, ledger.has_ended
        latest = ledger.part("end" if has_ended else self._consumed(cursor))
        known = self._earlier[1] if self._earlier[0] == dealt.epoch else ()
        return Account(
            rank, world_size, dealt.epoch, dealt.start, latest, known, dealt.dropped, has_ended, ledger.is_known
        )

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be this epoch: see FastLoader.set_epoch."""
        epoch = whole_epoch(epoch)
        if epoch != self._next.epoch:
            if self._next.batch or self._next.consumed:
                log.warning(GIVEN_UP, self._path, epoch, self._next.epoch)
            self._next = self._saved = Cursor(epoch)

    def skip_to(self, place: Place) -> None:
        """Let the next iteration begin there."""
        self._next = self._saved = Cursor(*place)

    @property
    def place(self) -> Place:
        """Where the next iteration begins."""
        return self._next.place

    @property
    def reached(self) -> tuple[int, Any]:
        """The epoch of the latest iteration, and what the consumers on all ranks have had of it."""
        cursor = self._saved if self._saved.has_begun else self._next
        return cursor.epoch, self._consumed(cursor)

    def state_dict(self) -> dict[str, Any]:
        """What the consumer of the latest iteration has had of its epoch, in plain values."""
        epoch, consumed = self.reached
        sampler = self._selection.sampler
        proof = self._selection.proof(epoch) if consumed else {}
        if consumed:
            proof["receipt"] = [part.to_json() for part in self._parts(epoch)]
        division = {"division": sampler.division_options()}
        place = {"version": _STATE_VERSION, "epoch": epoch, "consumed": consumed}
        return place | self._configuration() | self._selection.weights_of(epoch) | division | proof

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """
        Let the next iteration go on there; ValueError, naming what differs, for other samples or another order, or for
        states of several ranks that were saved at different positions. TypeError for what is neither a state nor a list
        of them.
        """
        several = state if isinstance(state, Sequence) and not isinstance(state, str) else [state]
        states = [as_state(one, owner="loader", newest=_STATE_VERSION) for one in several]
        if not states:
            raise ValueError("load_state_dict([]): expected a state, or those of several ranks")
        epoch, consumed, order = self._checked(states[0])
        for number, other in enumerate(states[1:], 1):
            if self._checked(other)[:2] != (epoch, consumed):
                raise ValueError(
                    f"states of different positions: epoch {epoch}, consumed={consumed!r} in the first one, epoch "
                    f"{other.get('epoch')}, consumed={other.get('consumed')!r} in number {number}: load states of one "
                    "checkpoint"
                )
        parts = unique_parts(part for one in states for part in _receipt(one))
        if self._selection.plan.order is not None:
            self._selection.plan.order.adopt(order)
        self._selection.adopt_weights(states[0], epoch)
        self._ledger, self._earlier, self._others = None, (epoch, parts), ()
        self._next = self._saved = Cursor(epoch, consumed or None)

    def _checked(self, state: Mapping[str, Any]) -> tuple[int, Any, Any]:
        """
        Return the epoch of a state, what had been consumed of it, and the order that ``shuffle=True`` had chosen.

        Raises ValueError if the state is not of this loader.
        """
        selection, plan = self._selection, self._selection.plan
        expected = {"version": _STATE_VERSION, **self._configuration()}
        counts_batches = state["version"] in (1, 2)
        known = {**state, "version": _STATE_VERSION} if counts_batches else state
        if state["version"] == 1 and "order" in expected:
            known = {**known, "order": {"kind": "blocks"}}
        for name in _SINCE_0_2:
            if name not in state:
                expected.pop(name, None)
        for name in ("mixture", "picks"):  # which only some loaders have
            if name in state:
                expected.setdefault(name, None)
        order, own = known.get("order"), expected.pop("order", None)
        check_state(known, expected, owner="loader")  # first: the order of another loader is not a damaged one
        if own is not None:
            adopted = own if plan.order is None else plan.order.checked_order(order)
            check_state(known, {"order": adopted}, owner="loader")
        epoch = whole_epoch(value_in(state, "epoch"))
        if counts_batches:
            batch = whole("batch", value_in(state, "batch"), "0 or more in the state", least=0)
            consumed = selection.sampler.from_batches(state, epoch, batch) if batch else None
        else:
            consumed = selection.sampler.checked(epoch, value_in(state, "consumed"))
        selection.check_proof(state)
        return epoch, consumed, order

    def options(self) -> dict[str, Any]:
        """Return what must be equal on all ranks for them to have each sample once: plain values."""
        order = self._selection.plan.order
        by_node = {"slices": order.slices} if isinstance(order, OrderSampler) and order.slices is not None else {}
        return self._configuration() | self._selection.sampler.division_options() | by_node

    def start(self, place: Place) -> dict[str, Any]:
        """Return what must be equal on all ranks about an iteration that began there: plain values."""
        epoch, consumed, batch = place
        options = self._selection.sampler.configuration()
        begun: dict[str, Any] = {"consumed": consumed or None, "batch": batch}
        begun |= self._selection.weights_of(epoch)
        foreign = self._selection.plan.foreign
        if foreign is not None:
            return begun if self._selection.plan.is_own_share else begun | {"order_crc32": foreign.order_crc32(epoch)}
        # Without random numbers, all epochs are alike: a rank that has begun one alone loses no sample.
        is_random = options.get("shuffle", "seed" in options)
        return ({"epoch": epoch} if is_random else {}) | begun

    def _configuration(self) -> dict[str, Any]:
        """Return what must be equal for a position to mean the same samples."""
        return {"store": self._store, **self._selection.sampler.configuration(), **self._values}


def _receipt(state: Mapping[str, Any]) -> Sequence[ReceiptPart]:
    """Return the parts of the receipt in a state. Raises ValueError if they are damaged."""
    parts = state.get("receipt", [])
    if not isinstance(parts, (list, tuple)):
        raise ValueError(f"receipt={parts!r}: expected a list of parts in the state: it is damaged")
    return [ReceiptPart.from_json(part) for part in parts]
