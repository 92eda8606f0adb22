"""RemoteFiles: the objects of a store, whose ranges are fetched into memory and held there."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.errors import StoreError
from fastio.store.files.byte_source import Fetched, Prefetch
from fastio.store.files.pread import PreadFiles, PreadSource
from fastio.store.files.remote.client import RequestFailed
from fastio.store.files.remote.loaders import DiskLoader, RangeLoader, joined_ranges
from fastio.store.files.remote.local_copy import WantedRanges
from fastio.store.files.remote.remote_source import RemoteSource
from fastio.store.files.remote.request_threads import ByteRange, Download, DownloadThread, InFlight, Need
from fastio.types.metrics import Requests, Staged
from fastio.types.spans import Spans

__all__ = [
    "HeldRanges",
    "RemoteFiles",
]


_DAMAGED = "it came so twice: put the shard there again (fastio repair)"
_COPIER_WAIT_S = 1.0  # for who copies: he may wait for others himself before he writes a block
_MOST_FAILURES = 10_000  # samples that could not be read, whose reasons are remembered


class RemoteFiles:
    """
    The objects of a store; see StoreFiles.

    ``read_ahead`` begins a request for each span, or one for several that lie side by side, and what it returns holds
    the bytes in memory. ``fetch`` finds spans there, without a copy, and sends requests of its own for the others.
    Once all objects have a finished copy on this machine, both read that.
    """

    in_place = False
    threads = 1  # that compare checksums
    holds = True
    ahead_bytes = 128 << 20
    chunk_bytes = 8 << 20

    def __init__(self, sources: Sequence[RemoteSource]) -> None:
        self._sources = sources
        self._sizes = np.array([source.size for source in sources], np.int64)
        self._in_flight = InFlight()
        self._loader = RangeLoader(sources, self._in_flight)
        self._cached = DiskLoader(sources, self._loader.load, lambda source: source.cached)
        self._copied = DiskLoader(
            sources, self._cached.load, lambda source: source.local_copy, most_wait_s=_COPIER_WAIT_S
        )
        self._copies = WholeCopies(sources)
        self._thread = DownloadThread(self._copied.load, self._in_flight)
        self._held = HeldRanges()
        # On their way into copies, ahead of the loader.
        self._ahead = weakref.WeakValueDictionary[ByteRange, Download]()
        self._failures: dict[tuple[int, int], str] = {}
        self.buffers = _native.Buffers([source.size for source in sources])
        self._close = weakref.finalize(self, self._thread.close)
        self._close.atexit = False  # the thread itself sees to that

    @property
    def requests(self) -> Requests:
        """What became of an epoch's requests, and how many may be repeated. Those for an index count there, too."""
        return self._loader.requests

    @requests.setter
    def requests(self, requests: Requests) -> None:
        self._loader.requests = requests

    def fetch(
        self,
        spans: Spans,
        *,
        pool: _native.ThreadPool | None = None,
        ring: _native.BufferRing | None = None,
        is_near: bool = False,
    ) -> Fetched:
        """
        Find the spans in what is held, and begin to fetch the others. Neither pool nor ring is needed.

        A span whose range cannot be had gets IO_ERROR; ``failure`` tells why.
        """
        self._check(spans)
        copies = self._copies.files()
        if copies is not None:
            try:
                return _Copied(self, spans, copies.fetch(spans, pool=pool, ring=ring, is_near=is_near))
            except StoreError as exc:
                self._copies.give_up(exc)
        downloads, block = self._held.find(spans)
        missing = np.flatnonzero((block < 0) & (spans.sizes > 0))
        if len(missing):
            begun, number = self.begin_again(spans.at(missing))
            block[missing] = number + len(downloads)
            downloads += begun
        return _Arriving(self, spans, downloads, block)

    def read_ahead(
        self, spans: Spans, *, pool: _native.ThreadPool | None = None, comes_again: bool = False
    ) -> Prefetch:
        """Begin to fetch the spans; what is returned holds them until it is dropped."""
        self._check(spans)
        copies = self._copies.files()
        if copies is not None:
            try:
                return copies.read_ahead(spans, pool=pool)
            except StoreError as exc:
                self._copies.give_up(exc)
        return self.hold(spans, comes_again=comes_again)

    def hold(self, spans: Spans, *, comes_again: bool = False) -> HeldWindows:
        """Do the same as ``read_ahead``, but hold the bytes also where finished copies are on this machine."""
        ranges, _ = joined_ranges(spans.at(np.flatnonzero(spans.sizes)), most_bytes=self._loader.request_bytes)
        if comes_again:
            ranges = [replace(wanted, is_kept=False) for wanted in ranges]
        return HeldWindows([self._begun_ahead(wanted) or self._begin(wanted, Need.SOON) for wanted in ranges])

    def bring_first(self, spans: Spans) -> WantedRanges | None:
        """
        Have copies that are made of these objects bring these spans before all else, in this order, each a range that
        ``read_ahead`` will be asked for; None where nobody copies.
        """
        copies = [source.local_copy for source in self._sources if source.local_copy is not None]
        stages = {copy.stage for copy in copies if copy.stage is not None}
        if not stages or self._copies.files() is not None:
            return None
        wanted = WantedRanges(spans, lambda shard: self._sources[shard].local_copy, self._begin_ahead)
        for stage in stages:
            stage.bring_first(wanted)
        return wanted

    def staged(self) -> Staged | None:
        """Return how much of the objects lies in copies on this machine; None without a stage."""
        copies = [(source.size, source.local_copy) for source in self._sources if source.local_copy is not None]
        if not copies:
            return None
        missing = [(size, copy.missing(0, size)) for size, copy in copies]
        size_bytes = sum(size for size, _ in missing)
        return Staged(size_bytes - sum(size if lacks is None else lacks for size, lacks in missing), size_bytes)

    def arrived(self, spans: Spans) -> Spans | None:
        """Return the spans over memory as far as they are held, without waiting: empty if not; None if none is."""
        downloads, block = self._held.find(spans)
        has_arrived = np.array([download.has_arrived for download in downloads] + [False])
        block[~has_arrived[block]] = -1
        return _placed(spans, downloads, block)[0] if (block >= 0).any() else None

    def failure(self, spans: Spans) -> str | None:
        """See StoreFiles."""
        for place in zip(spans.shard.tolist(), spans.starts.tolist(), strict=True):
            if place in self._failures:
                return self._failures[place]
        return None

    def close(self) -> None:
        """End the thread. What is under way fails; spans in memory stay."""
        self._close()
        self._copies.close()

    def note_failures(self, spans: Spans, reasons: Mapping[int, str]) -> None:
        """Remember why the spans at these positions could not be read, and forget it of those that now could."""
        if not reasons and not self._failures:
            return
        for position, place in enumerate(zip(spans.shard.tolist(), spans.starts.tolist(), strict=True)):
            if position not in reasons:
                self._failures.pop(place, None)
            elif len(self._failures) < _MOST_FAILURES:
                self._failures[place] = reasons[position]

    def begin_again(self, spans: Spans, *, are_damaged: bool = False) -> tuple[list[Download], NDArray[np.int64]]:
        """
        Begin to fetch these spans, whatever is held of them; returns the download of each, too.

        Spans that ``are_damaged`` come from the objects themselves, and go from the cache directory.
        """
        ranges, number = joined_ranges(spans)
        if are_damaged:
            self.requests.damaged += len(spans)
            self._copied.drop(spans)
            self._cached.drop(spans)
            ranges = [replace(wanted, is_fresh=True) for wanted in ranges]
        return [self._begin(wanted, Need.NOW) for wanted in ranges], number

    def mend(self, spans: Spans, values: Sequence[NDArray[np.uint8]]) -> None:
        """Put the right values of spans into copies on this machine, where they were damaged."""
        for shard, start, value in zip(spans.shard.tolist(), spans.starts.tolist(), values, strict=True):
            copy = self._sources[shard].local_copy
            if copy is not None:
                copy.mend(start, value)

    def _begin(self, wanted: ByteRange, need: Need) -> Download:
        download = self._thread.begin(wanted, need)
        self._held.add(download)
        return download

    def _begin_ahead(self, wanted: ByteRange) -> Download:
        self._ahead[wanted] = download = self._thread.begin(wanted, Need.LATER)
        return download

    def _begun_ahead(self, wanted: ByteRange) -> Download | None:
        """Return the range if it is on its way into a copy, from now on held, too."""
        download = self._ahead.pop(wanted, None)
        if download is None or (download.done and not download.has_arrived):
            return None
        download.hurry()
        self._held.add(download)
        return download

    def _check(self, spans: Spans) -> None:
        """Raise IndexError for a span that leaves its object."""
        inside = (spans.shard >= 0) & (spans.shard < len(self._sizes)) & (spans.starts >= 0) & (spans.sizes >= 0)
        if inside.all():
            if len(spans) == 0 or (spans.starts + spans.sizes <= self._sizes[spans.shard]).all():
                return
            inside = spans.starts + spans.sizes <= self._sizes[spans.shard]
        at = int(np.flatnonzero(~inside)[0])
        raise IndexError(f"{spans.sizes[at]} bytes from {spans.starts[at]} of file {spans.shard[at]}")


class HeldWindows:
    """Ranges on their way into memory, which stay there while this lives; see Prefetch."""

    def __init__(self, downloads: list[Download]) -> None:
        self._downloads = downloads

    @property
    def done(self) -> bool:
        """Whether all ranges are there, or will never be."""
        return all(download.done for download in self._downloads)

    @property
    def nbytes(self) -> int:
        """Bytes that are held, or will be."""
        return sum(download.range.size for download in self._downloads)

    def wait(self, timeout_s: float = -1.0) -> bool:
        """Wait for all ranges. Whether they could be had is seen when they are fetched."""
        return all(download.wait(None if timeout_s < 0 else timeout_s) for download in self._downloads)

    def cancel(self) -> None:
        """Let go of the ranges."""
        self._downloads = []


@dataclass(frozen=True, slots=True)
class _Arriving:
    """Spans on their way; see Fetched. ``block`` is the download of each span, -1 for an empty one."""

    files: RemoteFiles
    spans: Spans
    downloads: list[Download]
    block: NDArray[np.int64]

    def wait(self) -> tuple[Spans, NDArray[np.int32] | None]:
        """
        Wait for the spans, over the memory in which they arrived.

        Spans that do not match their checksum are fetched once more; what comes then is final. Raises StoreError if an
        object was replaced, or may not be read.
        """
        arrived, reasons = _placed(self.spans, self.downloads, self.block)
        damaged = _damaged(arrived)
        if len(damaged):
            fresh, number = self.files.begin_again(self.spans.at(damaged), are_damaged=True)
            block = self.block.copy()
            block[damaged] = number + len(self.downloads)
            arrived, reasons = _placed(self.spans, [*self.downloads, *fresh], block)
            before, damaged = damaged, damaged[_damaged(arrived.at(damaged))]
            right = np.setdiff1d(before, [*damaged.tolist(), *reasons])
            self.files.mend(self.spans.at(right), arrived.at(right).views())
        self.files.note_failures(self.spans, {**dict.fromkeys(damaged.tolist(), _DAMAGED), **reasons})
        if not reasons:
            return arrived, None
        status = np.full(len(arrived), _native.OK, np.int32)
        status[list(reasons)] = _native.IO_ERROR
        return arrived, status


@dataclass(frozen=True, slots=True)
class _Copied:
    """Spans on their way from copies on this machine; see Fetched."""

    files: RemoteFiles
    spans: Spans
    fetched: Fetched

    def wait(self) -> tuple[Spans, NDArray[np.int32] | None]:
        """
        Wait for the spans. Those that cannot be read, or do not match their checksum, are fetched from their objects,
        and copies that were damaged are mended. Raises StoreError if an object was replaced, or may not be read.
        """
        copied, status = self.fetched.wait()
        unread = np.empty(0, np.int64) if status is None else np.flatnonzero(status)
        wrong = np.union1d(unread, _damaged(copied))
        if not len(wrong):
            return copied, None
        downloads, number = self.files.begin_again(self.spans.at(wrong), are_damaged=True)
        fresh, reasons = _placed(self.spans.at(wrong), downloads, number)
        damaged = _damaged(fresh).tolist()
        values, fetched = copied.views(), fresh.views()
        for position, value in zip(wrong.tolist(), fetched, strict=True):
            values[position] = value
        right = np.setdiff1d(np.arange(len(wrong)), [*damaged, *reasons])
        self.files.mend(self.spans.at(wrong[right]), [fetched[i] for i in right.tolist()])
        at = wrong.tolist()
        failed = {at[i]: reason for i, reason in reasons.items()}
        self.files.note_failures(self.spans, {**dict.fromkeys((at[i] for i in damaged), _DAMAGED), **failed})
        joined = Spans.joined(np.concatenate(values), np.array([len(value) for value in values], np.int64))
        final = replace(joined, checksums=self.spans.checksums, intervals=self.spans.intervals)
        if not failed:
            return final, None
        unreadable = np.full(len(final), _native.OK, np.int32)
        unreadable[list(failed)] = _native.IO_ERROR
        return final, unreadable


def _placed(spans: Spans, downloads: list[Download], block: NDArray[np.int64]) -> tuple[Spans, dict[int, str]]:
    """Wait, and return the spans over memory; and why some have none, whose sizes then are 0, by position."""
    memory: list[NDArray[np.uint8]] = [np.empty(0, np.uint8)]
    firsts, reasons = [0], dict[int, str]()
    for number, download in enumerate(downloads):
        result = download.result()
        if isinstance(result, RequestFailed):
            reasons[number], result = f"{result.reason}: {result.advice}", memory[0]
        memory.append(result)
        firsts.append(download.range.start)
    is_bad = (block < 0) | np.isin(block, list(reasons))
    placed = replace(
        spans,
        buffers=_native.Buffers(memory),
        shard=(block + 1).astype(np.int32),
        starts=np.where(is_bad, 0, spans.starts - np.array(firsts, np.int64)[block + 1]),
        sizes=np.where(is_bad, 0, spans.sizes),
    )
    bad = np.flatnonzero(is_bad & (block >= 0)).tolist() if reasons else []
    return placed, {position: reasons[int(block[position])] for position in bad}


def _damaged(spans: Spans) -> NDArray[np.int64]:
    """Return the positions of the values that are there and do not match their checksum."""
    if spans.checksums is None:
        return np.empty(0, np.int64)
    sums = np.empty(len(spans), np.uint32)
    _native.checksum(spans, sums).wait()
    return np.flatnonzero((sums != spans.checksums) & (spans.sizes > 0))


# HeldRanges: the ranges that are in memory or on their way, and which of them holds a span.

# Shard and start as one number, to search for both at once: a sixteenth of an exabyte over 2**19 objects.
_SHARD_BITS = 44


class HeldRanges:
    """Downloads that somebody holds. Safe to share between threads."""

    def __init__(self) -> None:
        # No WeakSet: its iteration may not meet another thread's ``add``.
        self._downloads: dict[int, weakref.ref[Download]] = {}

    def add(self, download: Download) -> None:
        """Let spans be found in a download while somebody else holds it."""
        number, downloads = id(download), self._downloads
        downloads[number] = weakref.ref(download, lambda _: downloads.pop(number, None))

    def find(self, spans: Spans) -> tuple[list[Download], NDArray[np.int64]]:
        """Return the downloads that hold spans, and of each span the position of its download in them, or -1."""
        block = np.full(len(spans), -1, np.int64)
        alive = [download for ref in list(self._downloads.values()) if (download := ref()) is not None]
        # Of ranges that begin at the same byte the shortest is looked at first, of equal ones that which was begun
        # first: it may be there already. (A block of one sample is the range that a first batch asked for.)
        alive.reverse()
        held = sorted(alive, key=lambda download: (download.range.shard, download.range.start, -download.range.stop))
        if not held or not len(spans):
            return [], block
        shards = np.array([download.range.shard for download in held], np.int64)
        starts = np.array([download.range.start for download in held], np.int64)
        stops = np.array([download.range.stop for download in held], np.int64)
        wanted = spans.shard.astype(np.int64)
        # The last range that begins at or before a span holds it, unless ranges overlap: then an earlier one may.
        last = np.searchsorted((shards << _SHARD_BITS) + starts, (wanted << _SHARD_BITS) + spans.starts, "right") - 1
        left = np.flatnonzero((last >= 0) & (spans.sizes > 0))
        for step in range(len(held)):
            at = last[left] - step
            left, at = left[at >= 0], at[at >= 0]
            is_near = shards[at] == wanted[left]
            is_inside = is_near & (stops[at] >= spans.starts[left] + spans.sizes[left])
            block[left[is_inside]] = at[is_inside]
            left = left[is_near & ~is_inside]
            if not len(left):
                break
        used, numbers = np.unique(block, return_inverse=True)
        first = int(len(used) > 0 and used[0] == -1)
        return [held[number] for number in used[first:].tolist()], numbers.reshape(-1) - first


# WholeCopies: reads a store from this machine alone, once all its objects were copied.

_LOG = logging.getLogger(__name__)


class WholeCopies:
    """The files of a store whose objects all have a finished copy; safe to share between threads, and over a fork."""

    def __init__(self, sources: Sequence[RemoteSource]) -> None:
        self._sources = sources
        self._finished: list[PreadSource] = []  # of the first objects
        self._files: PreadFiles | None = None
        self._is_given_up = not sources
        self._lock = threading.Lock()

    def files(self) -> PreadFiles | None:
        """Return the files, or None while a copy is not finished."""
        if self._files is not None or self._is_given_up or not self._lock.acquire(blocking=False):
            return self._files  # nobody waits for the lock: one who forked may have had it
        try:
            self._look()
        except StoreError as exc:
            self._give_up(exc)
        finally:
            self._lock.release()
        return self._files

    def give_up(self, error: StoreError) -> None:
        """Go back to the objects: a copy can no longer be read."""
        self._give_up(error)

    def close(self) -> None:
        """Close the files that nobody reads."""
        files = self._files
        if files is not None:
            files.close()

    def _look(self) -> None:
        while len(self._finished) < len(self._sources):
            copy = self._sources[len(self._finished)].local_copy
            path = None if copy is None else copy.whole()
            if path is None:
                return
            source = PreadSource.open(path)
            source.release()
            self._finished.append(source)
        self._files = PreadFiles(self._finished)

    def _give_up(self, error: StoreError) -> None:
        if not self._is_given_up:
            _LOG.warning("%s: from now on, samples are fetched again", error)
        self._is_given_up, self._files = True, None
