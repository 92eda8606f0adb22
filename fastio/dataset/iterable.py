"""Iterates over a dataset from first to last, split over ranks and DataLoader workers; resumes within an epoch."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fastio.lazy import data_worker, torch_base
from fastio.samplers.agreement import Agreement
from fastio.samplers.position import check_state, whole
from fastio.samplers.share import Share
from fastio.store.files import Prefetch
from fastio.store.files.fetch import joined_spans
from fastio.store.protocol import SampleStore, value_spans
from fastio.types.spans import Spans

if TYPE_CHECKING:
    from torch.utils.data import IterableDataset
else:
    IterableDataset = torch_base("utils.data.IterableDataset")

__all__ = [
    "SequentialDataset",
    "chunks_ahead",
]


# Samples per native call: enough to make the call cheap, few enough to keep memory small.
_CHUNK = 64
_STATE_VERSION = 1


class BatchReadable(Protocol):
    """
    A map-style dataset of a store that returns several samples per call.

    Its samples are read from the fields of ``readers``, unless it ``makes_samples`` of its own.
    """

    @property
    def store(self) -> SampleStore: ...

    @property
    def readers(self) -> Mapping[str, Any]: ...

    @property
    def makes_samples(self) -> bool: ...

    def __len__(self) -> int: ...

    def __getitems__(self, indices: list[int]) -> list[Any]: ...


@dataclass(slots=True)
class _Position:
    """
    Where one iteration stands: its reader has taken ``samples`` of its present piece.

    ``history`` has what was read before, with other numbers of ranks. ``reader`` is the DataLoader worker and the
    number of workers, (0, 1) without worker processes; None if nothing was read.
    """

    history: list[Entry] = field(default_factory=list)
    samples: int = 0
    reader: tuple[int, int] | None = None


class SequentialDataset(IterableDataset[Any]):
    """
    Yields what ``dataset[i]`` returns, in storage order.

    Every rank, and every DataLoader worker within it, takes one contiguous piece; together they yield every sample
    exactly once. Pieces differ by one sample at most, so ranks may differ by a batch (after a resume on other ranks,
    by one for each worker); training in step needs the equal batches of FastLoader. There is no ``len``: torch would
    compare it with the batches of all workers, each of which may end with a short one.

    ``state_dict`` and ``load_state_dict`` continue an epoch with the next sample, also on another number of ranks
    and in batches of another size: all ranks then load the same state, saved after as many batches on each. With
    worker processes, torchdata's StatefulDataLoader saves and loads the state of each worker; their number must stay.
    Leave its ``snapshot_every_n_steps`` at 1: it repeats the batches since the last snapshot to skip them, and on
    other ranks these are other samples.
    """

    def __init__(self, dataset: BatchReadable, share: Share) -> None:
        super().__init__()
        self.dataset = dataset
        self._share = share
        self.rank, self.world_size = share.rank, share.world_size
        self._agreement: Agreement | None = Agreement(share, "this iterable()", self._options)
        self._next = _Position()  # where the next iteration starts
        self._latest = self._next  # where the latest iteration stands, unless a state was loaded since

    def __iter__(self) -> Iterator[Any]:
        self._latest = replace(self._next)
        return self._run(self._latest)

    def _run(self, position: _Position) -> Iterator[Any]:
        self._check_share()
        start, reader = self._next, _reader()
        _check_reader(start, reader)
        # A loaded position belongs to the first iteration that begins, which need not be the first iter().
        position.history, position.samples, position.reader = start.history, start.samples, reader
        self._next = _Position()
        agreement, begun = self._agreement, position.samples
        is_compared = agreement is None or not agreement.is_open
        column = self._pieces(position.history, reader)
        with closing(self._chunks(cut(column[self.rank], position.samples), reader)) as chunks:
            for chunk in chunks:
                if not is_compared and position.samples > begun:
                    is_compared = self._compare(position)
                for sample in self.dataset.__getitems__(list(chunk)):
                    position.samples += 1
                    yield sample
        if not is_compared:
            self._compare(position)
        if data_worker() is None:
            # A worker stays at its end instead: it must not start over when the other workers' epoch is continued.
            position.history, position.samples, position.reader = [], 0, None
        else:
            # Its last batch was short, or none: that of a rank whose piece is longer by one has the last sample, too.
            position.samples = max(sum(map(len, piece)) for piece in column)

    def _chunks(self, runs: Runs, reader: tuple[int, int]) -> Generator[range]:
        """Yield the runs in pieces for one native call each; what follows each one is asked for meanwhile."""
        chunks = (run[start : start + _CHUNK] for run in runs for start in range(0, len(run), _CHUNK))
        # Of a subclass that makes its own samples, nobody knows what it reads.
        fields = () if self.dataset.makes_samples else tuple(self.dataset.readers)
        return chunks_ahead(self.dataset.store, fields, chunks, share=reader[1])

    def _compare(self, position: _Position) -> bool:
        """Raise ValueError if another rank reads another dataset, or continues another epoch; True otherwise."""
        assert self._agreement is not None
        self._agreement.compare({"consumed": position.history or None})
        return True

    def _options(self) -> dict[str, Any]:
        return {"world_size": self.world_size, **self._configuration()}

    def _pieces(self, history: list[Entry], reader: tuple[int, int]) -> list[Runs]:
        """Return the samples of this reader on each rank, without those of the history."""
        worker, workers = reader
        return pieces(len(self.dataset), history, world_size=self.world_size, workers=workers, worker=worker)

    def state_dict(self) -> dict[str, Any]:
        """
        Return what the latest iteration has yielded of its epoch, in plain values for JSON, equal on all ranks.

        ``consumed`` says how many samples each rank has had, one entry for each number of ranks; None is nothing.
        """
        position = self._latest
        worker, workers = position.reader or _reader()
        consumed = list(position.history)
        # Of several workers, one that has read nothing still belongs to an epoch that was divided among these ranks.
        if position.samples or workers > 1:
            consumed.append({"world_size": self.world_size, "samples": position.samples})
        place = {"consumed": consumed or None, "worker": worker, "workers": workers}
        return {"version": _STATE_VERSION, **place, **self._configuration()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """
        Let the next iteration continue after the samples of a state.

        Raises ValueError, naming what differs, for the state of another dataset, worker or number of workers, and
        where ranks that run several workers change a second time within an epoch.
        """
        check_state(state, {"version": _STATE_VERSION, **self._configuration()}, owner="iterable()")
        workers = whole("workers", state.get("workers"), "1 or more in the state", least=1)
        worker = whole("worker", state.get("worker"), f"0 to {workers - 1} in the state", least=0, below=workers)
        history, samples = checked_history(state.get("consumed"), len(self.dataset)), 0
        if history and history[-1]["world_size"] == self.world_size:
            samples = history.pop()["samples"]
        if workers > 1 and len(history) > 1:
            before = history[-1]["world_size"]
            raise ValueError(
                f"the state is of an epoch that {before} ranks have continued after {history[-2]['world_size']}, now "
                f"there are {self.world_size}: with {workers} workers, ranks may change once within an epoch; "
                f"continue on {before} ranks until it ends, or use a FastLoader"
            )
        position = _Position(history, samples, (worker, workers) if history or samples else None)
        if data_worker() is not None:
            _check_reader(position, _reader())
        self._next = self._latest = position

    def _configuration(self) -> dict[str, Any]:
        """Return what must be equal for the same numbers to mean the same samples."""
        return {"samples": len(self.dataset), "store": self.dataset.store.identity}

    def __getstate__(self) -> dict[str, Any]:
        """Return everything, including the rank: a spawned worker could no longer detect it, and asks no ranks."""
        self._check_share()
        return {**self.__dict__, "_agreement": None}

    def _check_share(self) -> None:
        self._share.check_ranks("this iterable()")
        self._share.check_shared_once(self, "make it by iterable(rank=0, world_size=1)")


def _reader() -> tuple[int, int]:
    """Return the DataLoader worker that this process is, and the number of workers; (0, 1) if it is none."""
    worker = data_worker()
    return (0, 1) if worker is None else (worker.id, worker.num_workers)


def _check_reader(position: _Position, reader: tuple[int, int]) -> None:
    """Raise ValueError if another worker has read the samples of a position: it has read other pieces."""
    if position.reader not in (None, reader):
        worker, workers = position.reader
        raise ValueError(
            f"the state is that of worker {worker} of {workers} of an iterable(), and this is worker {reader[0]} of "
            f"{reader[1]}: continue the epoch with the num_workers of the state, by a StatefulDataLoader if there are "
            "several"
        )


# Asks for the samples of contiguous runs before they are read, from files that no page cache keeps.

_UNIT_BYTES = 4 << 20  # of neighbouring samples that are asked for together
_LEAST_UNITS = 2  # that are asked for at any time: one is on its way while another is read


@dataclass(frozen=True, slots=True)
class _RunAhead:
    """Neighbouring chunks whose bytes were asked for together, and are held while ``handle`` lives."""

    chunks: list[range]
    handle: Prefetch
    nbytes: int


def chunks_ahead(store: SampleStore, fields: Sequence[str], chunks: Iterator[range], *, share: int) -> Generator[range]:
    """
    Yield the chunks, ranges of samples; before each one, these fields of it and of what follows are asked for.

    Neighbouring chunks are asked for together, about 4 MiB at once, and their bytes are held until all of them were
    taken. ``share`` readers divide the bytes that these files may be asked for ahead. Files that the page cache keeps
    are left to the kernel.
    """
    if not store.files.holds or not fields:
        yield from chunks
        return
    most_bytes = store.files.ahead_bytes // share
    units: deque[_RunAhead] = deque()
    try:
        while True:
            while len(units) < _LEAST_UNITS or sum(unit.nbytes for unit in units) < most_bytes:
                unit = _next_unit(store, fields, chunks)
                if unit is None:
                    break
                units.append(unit)
            if not units:
                return
            yield from units[0].chunks
            units.popleft()
    finally:
        for unit in units:
            unit.handle.cancel()


def _next_unit(store: SampleStore, fields: Sequence[str], chunks: Iterator[range]) -> _RunAhead | None:
    """Take chunks until they have enough bytes, and ask for these; None at the end."""
    taken: list[range] = []
    every: list[Spans] = []
    nbytes = 0
    while nbytes < _UNIT_BYTES and (chunk := next(chunks, None)) is not None:
        samples = np.arange(chunk.start, chunk.stop)
        for name in fields:
            every.append(value_spans(store, name, samples, checksums=False)[0])
            nbytes += int(every[-1].sizes.sum())
        taken.append(chunk)
    return _RunAhead(taken, store.files.read_ahead(joined_spans(every)), nbytes) if taken else None


# The contiguous pieces of a store that ranks and worker processes read in order, also after the ranks have changed.
#
# A rank reads one range, of which each worker takes a part. When the number of ranks changes within an epoch, worker w
# of the new ranks takes what worker w of the old ranks has left: the state of a worker knows only its own progress.

Runs = list[range]  # ascending or not, without overlap: the samples of one piece, in the order in which they are read
Entry = dict[str, int]  # {"world_size": ..., "samples": ...}: so many ranks have had so many samples each


def pieces(count: int, history: Sequence[Entry], *, world_size: int, workers: int, worker: int) -> list[Runs]:
    """
    Return what is left of ``count`` samples for one worker of every rank, one list of runs per rank.

    ``history`` says what this worker of all ranks has read in the epoch, one entry for each number of ranks there has
    been; a rank whose piece is shorter than ``samples`` has read all of it. Sizes differ by one sample at most.
    """
    column = _first(count, history[0]["world_size"] if history else world_size, workers, worker)
    for number, entry in enumerate(history):
        rest = list(chain.from_iterable(cut(piece, entry["samples"]) for piece in column))
        next_ranks = history[number + 1]["world_size"] if number + 1 < len(history) else world_size
        total = sum(map(len, rest))
        bounds = [total * rank // next_ranks for rank in range(next_ranks + 1)]
        column = [cut(rest, start, stop) for start, stop in pairwise(bounds)]
    return column


def cut(runs: Runs, start: int, stop: int | None = None) -> Runs:
    """Return the samples ``start`` to ``stop`` of several runs, counted from the first run's beginning."""
    parts = []
    for run in runs:
        part = run[max(0, start) : None if stop is None else max(0, stop)]
        if part:
            parts.append(part)
        start -= len(run)
        stop = None if stop is None else stop - len(run)
    return parts


def checked_history(consumed: Any, count: int) -> list[Entry]:
    """Return the history of a state; None is an empty one. Raises ValueError if it is damaged."""
    entries = [] if consumed is None else consumed
    if not isinstance(entries, Sequence) or not all(isinstance(entry, Mapping) for entry in entries):
        raise ValueError(f"consumed={consumed!r}: expected a list of world_size and samples in the state")
    return [
        {
            "world_size": whole("world_size", entry.get("world_size"), "1 or more in the state", least=1),
            "samples": whole("samples", entry.get("samples"), f"0 to {count} in the state", least=0, below=count + 1),
        }
        for entry in entries
    ]


def _first(count: int, world_size: int, workers: int, worker: int) -> list[Runs]:
    """
    Return the piece of one worker of every rank at the beginning of an epoch.

    All workers but the last have pieces of equal size on every rank, so ranks in step run out of batches only at the
    last worker, and a worker's progress is the same on all of them until then.
    """
    least, extra = divmod(count, world_size * workers)
    equal = [least + (number < extra // world_size) for number in range(workers - 1)]
    last = count - world_size * sum(equal)
    column = []
    for rank in range(world_size):
        start = rank * sum(equal) + last * rank // world_size + sum(equal[:worker])
        size = equal[worker] if worker < workers - 1 else last * (rank + 1) // world_size - last * rank // world_size
        column.append([range(start, start + size)])
    return column
