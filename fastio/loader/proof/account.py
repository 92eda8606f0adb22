"""Account: what one rank knows of the receipt of an epoch; and the receipt of one or all ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from fastio.loader.proof.expected import Expected
from fastio.loader.proof.trajectory import joined
from fastio.types.receipt import Receipt, ReceiptPart

__all__ = ["Account", "receipt_of"]


@dataclass(frozen=True, slots=True)
class Account:
    """
    The parts of an epoch that a rank knows of.

    ``latest`` is its own since ``start``, None before an iteration has begun; ``earlier`` are those of any rank up to
    there. ``dropped`` samples of the rest do not come. ``is_known``: every batch said which samples it has.
    """

    rank: int
    world_size: int
    epoch: int
    start: Any
    latest: ReceiptPart | None
    earlier: tuple[ReceiptPart, ...]
    dropped: int
    has_ended: bool
    is_known: bool

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for the other ranks."""
        names = ("rank", "world_size", "epoch", "start", "dropped", "has_ended", "is_known")
        return {
            **{name: getattr(self, name) for name in names},
            "latest": None if self.latest is None else self.latest.to_json(),
            "earlier": [part.to_json() for part in self.earlier],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the account of ``to_json``."""
        latest = None if values["latest"] is None else ReceiptPart.from_json(values["latest"])
        earlier = tuple(map(ReceiptPart.from_json, values["earlier"]))
        return cls(**{**values, "latest": latest, "earlier": earlier})


def receipt_of(accounts: Sequence[Account], expected: Expected, *, unverified: str | None) -> Receipt:
    """
    Join the accounts of some or all ranks, which must be of one iteration. ``unverified`` says why bytes are not
    compared, if they are not.
    """
    first = accounts[0]
    latest = [account.latest for account in accounts if account.latest is not None]
    earlier = [part for account in accounts for part in account.earlier]
    parts, missing = joined(latest, earlier, start=first.start, world_size=first.world_size)
    if not all(account.is_known for account in accounts):
        missing += ("batches of a producer that does not say which samples they have",)
    return Receipt(
        epoch=first.epoch,
        parts=parts,
        expected=expected.number,
        expected_indices=expected.indices,
        expected_samples=expected.samples,
        distinct=expected.distinct,
        times=expected.times,
        dropped=first.dropped,
        has_ended=all(account.has_ended for account in accounts),
        is_whole_store=expected.is_whole_store,
        unverified=unverified,
        missing=missing,
    )
