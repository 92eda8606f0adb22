"""What loaders report: samples, waits and bytes, and what members of a mixture gave."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fastio._native import BatchCounts
from fastio.types.placement import Placement
from fastio.types.rows_report import RowsReport
from fastio.types.shuffle_report import ShuffleReport
from fastio.types.units import counted, size

__all__ = [
    "MUCH",
    "HeldReads",
    "LoaderStats",
    "Opens",
    "OpensGain",
    "PictureCounts",
    "Requests",
    "SourceReport",
    "Staged",
]


MUCH = 0.05  # of the time waited for files, from which on packing is advised


@dataclass(frozen=True, slots=True)
class HeldReads:
    """
    What one rank reads of a store behind a URL in an epoch, by arithmetic: ``requests`` for ``size_bytes`` in all, of
    which at most ``memory_bytes`` are in memory at a time.
    """

    requests: int
    size_bytes: int
    memory_bytes: int

    def __str__(self) -> str:
        return (
            f"an epoch takes {counted(self.requests, 'request')} for {size(self.size_bytes)}, of which at most "
            f"{size(self.memory_bytes)} are in memory"
        )


@dataclass(frozen=True, slots=True)
class PictureCounts:
    """Pictures and masks that a loader has decoded: in ``native`` threads or on a device, and by Pillow, by kind."""

    native: int = 0
    by_pillow: Mapping[str, int] = field(default_factory=dict)

    @property
    def lines(self) -> list[str]:
        """
        One line on the pictures that Pillow decoded, if it has decoded any.

        >>> PictureCounts(264, {"AVIF": 36}).lines
        ['Pillow in Python threads: 12% of the 300 pictures so far (36 AVIF)']
        """
        if not self.by_pillow:
            return []
        count = sum(self.by_pillow.values())
        total = self.native + count
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in sorted(self.by_pillow.items()))
        return [f"Pillow in Python threads: {count / total:.0%} of the {total:,} pictures so far ({kinds})"]


@dataclass(frozen=True, slots=True)
class SourceReport:
    """
    What a member of a mixture has given on all ranks together.

    ``samples`` counts from the first epoch on, ``epochs`` is the same in epochs of its ``size`` samples, and
    ``samples_of_epoch`` counts those of the epoch under way, or of the one that has just ended. What is repeated so
    that ranks get equal batches does not count.
    """

    samples: int
    epochs: float
    samples_of_epoch: int
    size: int


@dataclass(frozen=True, slots=True)
class OpensGain:
    """
    What files cost while they were read in place: how many a second could be opened and read (``possible_per_s``), how
    many were (``needed_per_s``), and the ``share`` of the time in which a loader waited for them.
    """

    possible_per_s: float
    needed_per_s: float
    share: float

    @property
    def is_much(self) -> bool:
        """Whether packing is worth its while."""
        return self.share >= MUCH

    def words(self) -> str:
        """
        Say what was measured.

        >>> OpensGain(840.2, 790.6, 0.61).words()
        'files are opened and read at up to 840/s here, and 791/s were; 61% of the time was spent waiting for them'
        """
        return (
            f"files are opened and read at up to {self.possible_per_s:,.0f}/s here, and {self.needed_per_s:,.0f}/s "
            "were; "
            f"{self.share:.0%} of the time was spent waiting for them"
        )


@dataclass(slots=True)
class Requests:
    """
    What the requests of one epoch for samples behind a URL took: ``answered`` brought what was asked for; ``repeated``
    were sent again after one that failed, ``hedged`` beside one that was slow, and ``damaged`` samples, or pieces of
    an index, were fetched again because they did not match their checksum. ``failed`` ranges could not be had.

    ``most`` is how many may be repeated (None: any number); the next one that fails is not.
    """

    most: int | None = None
    answered: int = 0
    repeated: int = 0
    hedged: int = 0
    damaged: int = 0
    failed: int = 0

    def begin_epoch(self) -> None:
        """Count from 0 again."""
        self.answered = self.repeated = self.hedged = self.damaged = self.failed = 0

    def may_repeat(self) -> bool:
        """Return whether the epoch may repeat one more request, and count it."""
        if self.most is not None and self.repeated >= self.most:
            return False
        self.repeated += 1
        return True


@dataclass(frozen=True, slots=True)
class Staged:
    """
    How much of a store behind a URL lies on this machine by ``stage=``: ``there_bytes`` of the ``size_bytes`` of its
    files, whichever process has brought them.
    """

    there_bytes: int
    size_bytes: int

    def __str__(self) -> str:
        return f"{size(self.there_bytes)} of {size(self.size_bytes)} are on this machine"


@dataclass(slots=True)
class Opens:
    """How many files in place were read so far, the time that threads took for it, and how long somebody waited."""

    threads: int  # that read
    files: int = 0
    spent_s: float = 0.0
    waited_s: float = 0.0
    begun_s: float = field(default_factory=time.perf_counter)  # when the first was read

    def add(self, files: int, spent_s: float, waited_s: float) -> None:
        """Count more of them. Without a lock, which a fork could leave locked: these are figures to be looked at."""
        if not self.files:
            self.begun_s = time.perf_counter() - waited_s
        self.files += files
        self.spent_s += spent_s
        self.waited_s += waited_s

    def since(self, before: Opens) -> Opens:
        """Return what was counted after ``before``, a copy."""
        spent_s, waited_s = self.spent_s - before.spent_s, self.waited_s - before.waited_s
        return Opens(self.threads, self.files - before.files, spent_s, waited_s)

    def gain(self, elapsed_s: float) -> OpensGain:
        """Return what of ``elapsed_s`` seconds packing would save at most."""
        rate = self.threads * self.files / self.spent_s if self.spent_s > 0 else 0.0
        return OpensGain(rate, self.files / elapsed_s, min(1.0, self.waited_s / elapsed_s))


_SHOWN = (
    "batches", "samples", "loading_s", "first_batch_s", "batch_bytes", "buffer_bytes", "estimated_bytes", "threads",
    "tokens", "slots", "decoded_natively", "decoded_by_pillow", "decoded_on_device", "shuffle", "held", "requests",
    "staged", "placement", "opens",
)  # fmt: skip


@dataclass(slots=True, repr=False)
class LoaderStats:
    """
    Counters of one loader since it was built; ``loader.stats`` is the live object. Its loop writes into ``counts``.

    ``loading_s`` is the time that the training loop waited in ``next()``. ``first_batch_s`` is the wait for the first
    batch of the latest epoch, when nothing could have been prepared yet; it is part of ``loading_s`` but not of
    ``stalls``. ``batch_bytes`` is the size of the largest batch so far, ``buffer_bytes`` the memory of batch buffers
    now (in progress, handed out and free), ``estimated_bytes`` what they take if the loop keeps one batch. ``threads``
    is the number that decode now (see ``thread_tuner``). For token ids, ``tokens`` and the ``slots`` of batches that
    hold them are counted. Of pictures and masks, native threads decoded ``decoded_natively`` and Pillow
    ``decoded_by_pillow``, by kind (``{"AVIF": 36}``); with ``decode="device"``, a GPU decoded ``decoded_on_device``.
    Those that a dataset with a transform of its own decodes are not counted. ``placement`` says for each field of a
    batch where it is made (see ``Placement``). ``shuffle`` describes the order of ``shuffle=True`` and its price; None
    otherwise. ``held`` is what the latest epoch reads of a store behind a URL; None for other stores, and where each
    sample is a request of its own; ``requests`` is what became of its requests, and ``staged`` how much of it
    ``stage=`` has brought to this machine by now; None without. ``opens`` counts files that are read in place; None for
    packed stores.
    """

    counts: BatchCounts = field(default_factory=BatchCounts)
    buffer_bytes: int = 0
    estimated_bytes: int = 0
    threads: int = 0
    shuffle: ShuffleReport | None = None
    held: HeldReads | None = None
    requests: Requests | None = None
    placement: Placement | None = None
    pictures: PictureCounts = field(default_factory=PictureCounts)
    packing_of: Callable[[], RowsReport] | None = None
    staged_of: Callable[[], Staged | None] | None = None
    opens: Opens | None = None

    def __repr__(self) -> str:
        return f"LoaderStats({', '.join(f'{name}={getattr(self, name)!r}' for name in _SHOWN)})"

    def count(self, samples: int, nbytes: int, *, waited_s: float, first: bool) -> None:
        """Count one batch handed to the training loop after ``waited_s`` seconds."""
        self.counts.count(samples, nbytes, waited_s=waited_s, first=first)

    @property
    def batches(self) -> int:
        """Batches handed to the loop."""
        return self.counts.batches

    @property
    def samples(self) -> int:
        """Samples in those batches."""
        return self.counts.samples

    @property
    def loading_s(self) -> float:
        """Seconds that the loop waited in ``next()``."""
        return self.counts.loading_s

    @property
    def first_batch_s(self) -> float:
        """Seconds that the loop waited for the first batch of the latest epoch."""
        return self.counts.first_batch_s

    @property
    def batch_bytes(self) -> int:
        """Bytes of the largest batch so far."""
        return self.counts.batch_bytes

    @property
    def staged(self) -> Staged | None:
        """What ``stage=`` has brought to this machine by now; None without."""
        return None if self.staged_of is None else self.staged_of()

    @property
    def tokens(self) -> int:
        """Tokens in all batches; 0 for other samples."""
        return self.counts.tokens

    @property
    def slots(self) -> int:
        """Places for tokens in all batches, with padding."""
        return self.counts.slots

    @property
    def decoded_natively(self) -> int:
        """Pictures and masks that native threads decoded."""
        return max(0, self.pictures.native - self.decoded_on_device)

    @property
    def decoded_by_pillow(self) -> dict[str, int]:
        """Pictures and masks that Pillow decoded in Python threads, by kind."""
        return dict(self.pictures.by_pillow)

    @property
    def decoded_on_device(self) -> int:
        """Samples that a GPU decoded."""
        return self.counts.decoded_on_device

    @property
    def padding(self) -> float:
        """
        The share of slots that hold no token: at 0.25, a quarter of the work is wasted; 0 without tokens.

        >>> stats = LoaderStats()
        >>> stats.counts.tokens, stats.counts.slots = 96, 128
        >>> stats.padding
        0.25
        """
        return 1 - self.tokens / self.slots if self.slots else 0.0

    @property
    def packing(self) -> RowsReport | None:
        """What the rows of a PackSampler are like in the latest epoch, planned again for that; None without one."""
        return None if self.packing_of is None else self.packing_of()

    @property
    def stalls(self) -> dict[float, int]:
        """
        Histogram of waits: how often the loop waited, by upper bound in seconds (a power of two of microseconds).

        >>> stats = LoaderStats()
        >>> stats.count(256, 786432, waited_s=0.000003, first=False)
        >>> stats.stalls
        {4e-06: 1}
        """
        return {(1 << k) / 1e6: count for k, count in enumerate(self.counts.waits) if count}
