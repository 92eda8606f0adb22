"""What reading remote files costs: counted, and bounded by arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from fastio.store.files.remote.in_flight import MOST
from fastio.store.files.remote.request_plan import MOST_BYTES

__all__ = ["RemoteBounds", "RemoteStats", "remote_bounds"]


@dataclass(frozen=True, slots=True)
class RemoteStats:
    """Requests sent so far, those repeated or sent twice included; the bytes that arrived, and were asked for twice."""

    requests: int
    arrived_bytes: int
    hedged_bytes: int
    in_flight: int  # requests that may run at once by now


@dataclass(frozen=True, slots=True)
class RemoteBounds:
    """What reading takes at most: requests at once, and bytes of memory."""

    requests: int
    memory_bytes: int


def remote_bounds(ahead_bytes: int, live_bytes: int) -> RemoteBounds:
    """
    Return the bounds of a loader that asks for ``ahead_bytes`` before they are needed and uses windows of
    ``live_bytes`` at a time.

    A request holds what arrived of it until all of it is one piece: for a moment twice its bytes. Neighbouring windows
    that share a request stay while one of them is needed.

    >>> remote_bounds(128 << 20, 32 << 20).memory_bytes >> 20
    304
    """
    arriving = min(MOST * MOST_BYTES, ahead_bytes)
    return RemoteBounds(MOST, live_bytes + ahead_bytes + arriving + MOST_BYTES)
