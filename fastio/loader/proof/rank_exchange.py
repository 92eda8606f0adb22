"""
Exchange: what every rank tells the others for a receipt, through the key-value store of their process group, or by a
function of the user's.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from fastio.loader.proof.account import Account

__all__ = [
    "exchanged",
    "gathered",
]


_LONGEST_PAUSE_S = 0.05
# How often all ranks have come together, by their process group and the loaders' options.
_calls: WeakKeyDictionary[Any, defaultdict[str, int]] = WeakKeyDictionary()


class _KeyValues(Protocol):
    """What is used of torch's ``Store``."""

    def set(self, key: str, value: str) -> None: ...
    def check(self, keys: list[str]) -> bool: ...
    def get(self, key: str) -> bytes: ...
    def delete_key(self, key: str) -> bool: ...


def exchanged(
    account: Account,
    options: Mapping[str, Any],
    *,
    owner: str,
    timeout_s: float,
    store: _KeyValues | None = None,
    calls: defaultdict[str, int] | None = None,
) -> list[Account]:
    """
    Return the accounts of all ranks, each of which calls this, in the same order for loaders of equal ``options``.

    Raises TimeoutError, naming the ranks that have not come, and ValueError if ranks iterate other epochs. ``store``
    is the process group's if it is None; ``calls`` counts how often the ranks of this process have come together in it.
    """
    store = _group_store() if store is None else store
    calls = _calls.setdefault(store, defaultdict(int)) if calls is None else calls
    digest = hashlib.sha256(json.dumps(options, sort_keys=True, default=str).encode()).hexdigest()[:16]
    call = calls[digest]
    keys = [_key(digest, call, rank) for rank in range(account.world_size)]
    store.set(keys[account.rank], json.dumps(account.to_json()))
    try:
        _wait(store, keys, account, owner=owner, timeout_s=timeout_s)
    except TimeoutError:
        with suppress(RuntimeError):  # who comes later must not take this account for that of another call
            store.delete_key(keys[account.rank])
        raise
    accounts = [Account.from_json(json.loads(store.get(key))) for key in keys]
    calls[digest] = call + 1
    if call:
        with suppress(RuntimeError):  # not every kind of store can delete; everybody has read the ones before
            store.delete_key(_key(digest, call - 1, account.rank))
    _check_alike(accounts, owner)
    return accounts


def gathered(account: Account, gather: Callable[[str], Sequence[str]], *, owner: str) -> list[Account]:
    """
    Return the accounts of all ranks by ``gather``, which takes this rank's text and returns those of all.

    Raises ValueError if it returns others, or if ranks iterate other epochs.
    """
    texts = gather(json.dumps(account.to_json()))
    accounts = sorted((Account.from_json(json.loads(text)) for text in texts), key=lambda each: each.rank)
    ranks = [each.rank for each in accounts]
    if ranks != list(range(account.world_size)):
        raise ValueError(
            f"{owner}: receipt(gather=...) of rank {account.rank} has gathered the texts of ranks {ranks}: expected "
            f"one of each of {account.world_size} ranks"
        )
    _check_alike(accounts, owner)
    return accounts


def _key(digest: str, call: int, rank: int) -> str:
    return f"fastio/receipt/{digest}/{call}/{rank}"


def _wait(store: _KeyValues, keys: list[str], account: Account, *, owner: str, timeout_s: float) -> None:
    # Not by the store's own wait: it would keep other threads of this process, such as NCCL's, from asking.
    end, pause = time.monotonic() + timeout_s, 0.001
    while not store.check(keys):
        if time.monotonic() > end:
            absent = [str(rank) for rank, key in enumerate(keys) if not store.check([key])]
            raise TimeoutError(
                f"{owner}: receipt() of rank {account.rank} has waited {timeout_s:g} s for rank"
                f"{'s' if len(absent) > 1 else ''} {', '.join(absent)}: call it on all ranks, or receipt(own=True) for "
                "this rank's part"
            )
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def _check_alike(accounts: list[Account], owner: str) -> None:
    first = accounts[0]
    for account in accounts:
        if (account.epoch, account.start) != (first.epoch, first.start):
            raise ValueError(
                f"{owner}: rank {first.rank} is in epoch {first.epoch}, begun at {first.start!r}, but rank "
                f"{account.rank} in epoch {account.epoch}, begun at {account.start!r}: call receipt() on all ranks "
                "after the same number of batches"
            )


def _group_store() -> Any:
    # Not imported here: a program with a process group has imported torch.distributed.
    return sys.modules["torch.distributed.distributed_c10d"]._get_default_store()
