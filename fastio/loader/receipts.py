"""LoaderReceipts: the receipts of a loader's epochs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastio.loader.position import LoaderPosition
from fastio.loader.proof import Account, ExpectedNumber, exchanged, receipt_of
from fastio.loader.wiring import Wiring
from fastio.machine import process_group_ranks
from fastio.types.receipt import Receipt

__all__ = ["LoaderReceipts"]


class LoaderReceipts:
    """Joins what a loader has handed out with what it should hand out."""

    def __init__(self, wiring: Wiring, position: LoaderPosition) -> None:
        self._base = wiring.selection.base
        self._position = position
        self._verify = wiring.options.verify
        self._expected = ExpectedNumber(wiring.selection, tuple(self._base.readers))

    def own(self) -> Receipt:
        """Return the receipt of this rank alone."""
        return self._of([self._position.account()])

    def joined(self, *, timeout_s: float) -> Receipt:
        """Return the receipt of all ranks, if a process group joins them, otherwise of this one."""
        account = self._position.account()
        if account.world_size == 1 or process_group_ranks() is None:
            return self._of([account])
        owner = f"{self._base.store.path}: this FastLoader"
        accounts = exchanged(account, self._position.options(), owner=owner, timeout_s=timeout_s)
        self._position.learn(accounts)
        return self._of(accounts)

    def _of(self, accounts: Sequence[Account]) -> Receipt:
        expected = self._expected.of(accounts[0].epoch, accounts[0].dropped)
        return receipt_of(accounts, expected, unverified=self._unverified())

    def _unverified(self) -> str | None:
        """Return why bytes are not compared with their checksums; None if they are."""
        if self._base.makes_samples:
            return f"samples are made by {type(self._base).__name__}"
        if not self._verify:
            return "verify=False"
        return None if self._has_checksums() else "the store has no checksums"

    def _has_checksums(self) -> bool:
        store = self._base.store
        some = np.arange(min(1, len(store)), dtype=np.int64)
        return all(store.spans(name, some).checksums is not None for name in self._base.readers)
