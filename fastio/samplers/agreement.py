"""Agreement: whether all ranks go through the same samples in the same order, compared when an iteration is under way.

Each rank computes the order for itself. With another seed, store, batch size or epoch on one rank, samples would come
twice or never, and the training would go on. So the ranks compare what they go through, in the key-value store of their
process group: the first to come writes it down, and the others compare theirs with that, one request each. Nobody waits
for another rank.

    key                             value
    fastio/world/loader/2           the rank that first went through its loader 2, and its options
    fastio/world/loader/2/<rank>    the digest of the values of this rank's loader 2
    fastio/world/loader/is/<digest> a number that a loader of these values has on some rank
    fastio/world/start/<digest>/1/3 the rank that first began its third iteration of its first such loader, and where

``world`` are all processes; those of a mesh have keys of their own. Loaders are numbered as they are first compared. A
rank that goes through them in another order finds the first rank's loader among its own. An iteration is compared once
it has given ``SURE_AFTER`` batches, or all: a rank that looks at one batch alone tells nobody.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, Protocol
from weakref import WeakMethod, WeakSet, ref

from fastio.errors import StoreError
from fastio.lazy import data_worker
from fastio.machine import process_group_ranks
from fastio.samplers.share import Share

__all__ = ["SURE_AFTER", "Agreement", "Notes"]

log = logging.getLogger(__name__)

SURE_AFTER = 2

# Later starts are no longer compared: a short loop that runs for weeks would fill the key-value store.
_MOST_STARTS = 1000

_OPTIONS = (
    "build it alike on all ranks, and loaders in the same order; one that only some ranks use needs rank=0, "
    "world_size=1"
)
_ONE_START = (
    "load the same state and call the same set_epoch() on all ranks (a rank that has taken a batch alone has begun an "
    "epoch alone)"
)


class KeyValueStore(Protocol):
    """What is used of torch's ``Store``."""

    def compare_set(self, key: str, expected: str, desired: str) -> bytes: ...
    def set(self, key: str, value: str) -> None: ...
    def check(self, keys: list[str]) -> bool: ...
    def get(self, key: str) -> bytes: ...


class Notes:
    """The loaders of this process for one group of ranks."""

    def __init__(self) -> None:
        self.waiting: WeakSet[Agreement] = WeakSet()  # built, and not yet compared
        self._store: Callable[[], object] = lambda: None  # where they are compared; not kept alive
        self.compared = 0
        self.numbers: defaultdict[str, set[int]] = defaultdict(set)  # of those compared, by the digest of their options

    def compare_in(self, store: KeyValueStore) -> None:
        """Forget what was compared in another store: in a new process group, all ranks count their loaders from 1."""
        if self._store() is not store:
            self._store, self.compared = ref(store), 0
            self.numbers.clear()


_NOTES: defaultdict[str, Notes] = defaultdict(Notes)


class Agreement:
    """
    Compares what one loader, named ``owner`` in errors, gives with what the other ranks' loaders give.

    ``options`` returns what must be equal on all ranks, as plain values for JSON; of a method, its object is not kept
    alive. The other ranks are all processes of
    the process group, or of the mesh that gave ``share``. Where there is no process group, or the ranks passed by hand
    are not its own, there is nobody to ask. ``notes`` and ``ask`` replace this process's own and the store of the
    process group.
    """

    def __init__(
        self,
        share: Share,
        owner: str,
        options: Callable[[], Mapping[str, Any]],
        *,
        notes: Notes | None = None,
        ask: Callable[[], KeyValueStore] | None = None,
    ) -> None:
        self._share = share
        self._owner = owner
        # A sampler that holds this object and is dropped must not wait for the garbage collector among the others.
        self._options = WeakMethod(options) if isinstance(options, MethodType) else lambda: options
        self._group = f"fastio/{'.'.join(map(str, share.members)) or 'world'}"
        self._own_notes = notes
        self._ask = ask
        self._pid = os.getpid()
        self._store: Callable[[], object] = lambda: None  # in which they have been compared
        self._key: str | None = None  # that of the starts, once the options have been compared
        self._starts: set[str] = set()
        self._is_over = False
        if share.processes > 1:
            self._notes.waiting.add(self)

    @property
    def _notes(self) -> Notes:
        return _NOTES[self._group] if self._own_notes is None else self._own_notes

    def close(self) -> None:
        """The loader will not be iterated any more."""
        self._notes.waiting.discard(self)

    @property
    def is_open(self) -> bool:
        """Whether there are other ranks to ask."""
        if self._share.processes == 1 or self._is_over or len(self._starts) >= _MOST_STARTS:
            return False
        if self._pid != os.getpid() or data_worker() is not None:  # a forked child would talk over its parent's socket
            return False
        return self._process is not None

    @property
    def _process(self) -> int | None:
        """This process's rank among all; None if the process group does not have the ranks of the share."""
        if self._ask is not None:
            return self._share.process[0]
        known = process_group_ranks()
        if known is None or (known[0] not in self._share.members and known != self._share.process):
            return None
        return known[0]

    def compare(self, start: Mapping[str, Any]) -> None:
        """
        Compare the options of the loader (once) and the ``start`` of an iteration: plain values for JSON.

        Raises ValueError, naming the ranks and what differs, unless the first rank that came here has the same.
        """
        try:
            store = self._ask() if self._ask is not None else _group_store()
            self._notes.compare_in(store)
            if self._store() is not store:
                self._store, self._key, self._starts = ref(store), None, set()
            if self._key is None:
                self._key = self._compare_options(store)
            self._compare_start(store, self._key, _plain(start))
        except RuntimeError as exc:
            # The rank that keeps the store has ended, as ranks may that have nothing left to do.
            log.info("%s: ranks are no longer compared: %s", self._owner, exc)
            self._is_over = True

    def _compare_options(self, store: KeyValueStore) -> str:
        """Return the key of the starts if the first rank has the same options, or another order of loaders."""
        notes, mine = self._notes, self._values() or {}
        notes.waiting.discard(self)
        notes.compared += 1
        digest, key = _digest(mine), f"{self._group}/loader/{notes.compared}"
        first = self._first(store, key, mine)
        if first["values"] != mine and not self._is_reordered(store, digest, first):
            raise ValueError(self._difference(mine, first, _OPTIONS))
        if first["rank"] == self._process or first["values"] != mine:
            store.set(f"{self._group}/loader/is/{digest}", str(notes.compared))
        store.set(f"{key}/{self._process}", digest)
        notes.numbers[digest].add(notes.compared)
        return f"{self._group}/start/{digest}/{len(notes.numbers[digest])}"

    def _compare_start(self, store: KeyValueStore, key: str, mine: Mapping[str, Any]) -> None:
        """Compare a start that this loader has not had yet; which one it is by number must be equal on all ranks."""
        digest = _digest(mine)
        if digest not in self._starts:
            first = self._first(store, f"{key}/{len(self._starts) + 1}", mine)
            if first["values"] != mine:
                raise ValueError(self._difference(mine, first, _ONE_START))
            self._starts.add(digest)

    def _first(self, store: KeyValueStore, key: str, mine: Mapping[str, Any]) -> dict[str, Any]:
        """Return rank and values of the first rank that has asked for this key: perhaps this one."""
        text = store.compare_set(key, "", json.dumps({"rank": self._process, "values": mine}))
        first: dict[str, Any] = json.loads(text)
        return first

    def _is_reordered(self, store: KeyValueStore, mine: str, first: Mapping[str, Any]) -> bool:
        """
        Whether the ranks only go through their loaders in different orders.

        So it is if this process has a loader with the first rank's values, which it has not come to yet, or had under
        another number than that rank; or if some rank had one with these values when this process had others.
        """
        theirs, key = _digest(first["values"]), f"{self._group}/loader"
        for number in self._notes.numbers[theirs]:
            held = f"{key}/{number}/{first['rank']}"
            if not store.check([held]) or store.get(held).decode() != theirs:
                return True
        if store.check([f"{key}/is/{mine}"]) and int(store.get(f"{key}/is/{mine}")) not in self._notes.numbers[mine]:
            return True
        return any(other.digest() == theirs for other in list(self._notes.waiting))

    def digest(self) -> str | None:
        """Return the digest of the options; None if the loader was dropped or its store closed."""
        try:
            values = self._values()
        except StoreError:
            return None
        return None if values is None else _digest(values)

    def _values(self) -> dict[str, Any] | None:
        options = self._options()
        return None if options is None else _plain(options())

    def _difference(self, mine: Mapping[str, Any], first: Mapping[str, Any], advice: str) -> str:
        """Return one line that names what differs from the first rank."""
        theirs = first["values"]
        names = [name for name in {**theirs, **mine} if mine.get(name) != theirs.get(name)]

        def listed(values: Mapping[str, Any]) -> str:
            return ", ".join(f"{name}={values.get(name)!r}" for name in names)

        return (
            f"{self._owner}: rank {self._process} has {listed(mine)}, but rank {first['rank']} has "
            f"{listed(theirs)}: samples would come twice or never: {advice}"
        )


def _group_store() -> Any:
    # Not imported here: a program with a process group has imported torch, and one without does not need it.
    return sys.modules["torch.distributed.distributed_c10d"]._get_default_store()


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as JSON gives them back; objects, and where functions lie in memory, differ between processes."""
    text = json.dumps(values, default=lambda value: type(value).__name__)
    plain: dict[str, Any] = json.loads(re.sub(r" at 0x[0-9a-f]+", "", text))
    return plain


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
