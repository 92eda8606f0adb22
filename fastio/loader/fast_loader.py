"""FastLoader: batches of a packed store, decoded ahead of the training loop by native threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import numpy as np

from fastio.dataset.token_stream import TokenWindows
from fastio.errors import SampleError
from fastio.lazy import Dataset, torch
from fastio.loader.batch_steps import Numbered
from fastio.loader.device.delivery import Delivery, HostDelivery
from fastio.loader.iteration import BatchIteration, EpochIterator
from fastio.loader.options import (
    OPTIONS_ELSEWHERE,
    PREFETCH_BATCHES,
    TORCHS_WORDS,
    Cache,
    CollateWish,
    Decode,
    Layout,
    LoaderOptions,
    OnError,
    OrderOptions,
    PixelOptions,
    Quality,
    SampleOptions,
    TransformsWish,
    ViewsWish,
    WorkOptions,
    cannot_be_set,
)
from fastio.loader.output import OutputName
from fastio.loader.position import Cursor, LoaderPosition, Place
from fastio.loader.proof.account import Account, ExpectedNumber, receipt_of
from fastio.loader.proof.rank_exchange import exchanged, gathered
from fastio.loader.wiring import Wiring, wire
from fastio.machine import process_group_ranks
from fastio.samplers.batches import BatchSampler
from fastio.samplers.order import Division, Shuffle, Uneven
from fastio.samplers.pack import PackSampler
from fastio.samplers.share import Ranks
from fastio.samplers.wrappers import ClosedBatchSampler, EpochSampler
from fastio.store.beside.joined import BesideStore
from fastio.store.protocol import value_spans
from fastio.types.metrics import LoaderStats, SourceReport
from fastio.types.options import explains_names
from fastio.types.placement import Placement
from fastio.types.receipt import Receipt

__all__ = [
    "FastLoader",
]


class FastLoader:
    """
    Batches of a packed store, decoded ahead of the training loop by native threads, without worker processes::

        for images, labels in FastLoader("train.lmdb", 256, shuffle=True):

    ``images`` is uint8 ``(B, C, H, W)`` and ``labels`` int64 ``(B,)``: what a DataLoader gives with
    ``transform=PILToTensor()``. Stores without labels give images alone, token ids a dict with a mask, samples of many
    fields a dict of all of them. ``dataset`` is a path, a FastDataset, torch's Subset or ConcatDataset of these, a
    Mixture, or what ``fastio.beside`` returns. A dataset with a ``transform``, or a subclass with its own
    ``__getitem__``, takes the plain path: Python threads make its samples. Each iteration is one epoch.

    **Which samples, in which order**

    * ``batch_size``: samples in a batch, on each rank; ``batch_sampler`` says it otherwise.
    * ``indices``: a part of the samples: integers, which may repeat or be negative, or a mask of booleans.
    * ``weights``: draws ``samples_per_epoch`` samples by one weight per sample, by ``{class: weight}`` (1 for classes
      left out), or by what a function returns for the number of an epoch. ``set_weights`` changes them.
    * ``sampler``, ``batch_sampler``: torch's, your own, LengthBucketSampler or PackSampler.
    * ``shuffle``: False, True (trains as well as "full", and reads whole blocks if memory does not hold the store) or
      "full". ``seed`` and epoch determine the order; ``drop_last`` as in torch.
    * ``rank`` and ``world_size``: by default those of ``torch.distributed``, torchrun or srun; ``ranks=Ranks(...)``
      for a DeviceMesh or replication. ``uneven`` ("pad", "drop" or "repeat") gives all ranks equally many batches.
    * ``cost``: one number per sample, or the name of a column: each step's samples are dealt so that all ranks get
      equal sums, and the slowest rank hardly takes longer than the others.

    **What becomes of them**

    * ``transforms``: those of ``fastio.transforms``. Native threads run crops, resizes, flips and warps while they
      decode; transforms of batches run on the device. ``PerSample`` and ``PerBatch`` hold functions of your own;
      ``Pick`` draws one element of each list. A dict has lists for fields, and for those that move together: see
      ``ByField``.
    * ``views``: pairs ``[(2, [...]), (8, [...])]`` of a count and transforms, or how often to repeat ``transforms``: a
      batch's pictures become a list of tensors, one for each view, of photos that are decoded once. ``repeats=3`` puts
      three views of each sample into one tensor, with its label three times, one view behind the other.
    * ``collate`` (or ``collate_fn``): "pad", "pack", "list" or "nested" for values that differ in length, or "flat",
      "pad", "list" or "nested" for pictures of lists, which differ in number, for all or by field; "list", "pad" or
      "stack" for arrays of several free sizes; "preference" for prompts and answers. See ``PadCollate``,
      ``PackCollate``, ``ChunkCollate``, ``PreferenceCollate``, ``FieldCollate``.
    * ``layout`` (or ``memory_format``): "contiguous", or "channels_last", faster on Tensor Cores.
    * ``quality``: "exact", or "fast", which decodes large JPEGs at a half, a quarter or an eighth of their size if
      ``transforms`` shrink them that much; pixels then differ slightly.
    * ``on_error``: "raise" a SampleError, "skip" bad samples, or put "zero" in their place; ``skipped`` lists them.
    * ``verify``: whether samples are compared with their checksums; None: as the dataset says.

    **Where, and how far ahead**

    * ``device``: copies batches there ahead of the loop. ``decode="device"`` lets that GPU decode JPEGs.
    * ``cache``: "ram" or "device" keeps all samples there, decoded; MemoryError before reading if they do not fit.
    * ``threads``: 0 takes all CPUs that this process may use and drops those it does not need.
      ``prefetch_batches`` are decoded ahead: memory is that of ``prefetch_batches + 2`` batches.
    * ``pin_memory``: pinned batches; the default if there is a CUDA device.
    * ``output``: "torch", or "numpy" for arrays in the place of tensors, as JAX and Keras take them: torch need not be
      installed. Batches are on the CPU; crops and colours are for the native threads, so before other transforms.

    ``state_dict()`` resumes at the next batch, on any number of ranks; ``receipt()`` proves that an epoch gave each
    sample once; ``stats`` counts. All options, with examples: fastio/guide/loading.md.

    Raises, when built, TypeError for an option that does not exist (the message says which does), TypeError or
    ValueError for options that do not fit each other or the dataset, SchemaError for samples that cannot be in one
    batch, StoreNotFound, StoreIncomplete or StoreCorrupt for a path that does not open, and MemoryError for a
    ``cache`` that does not fit; when iterated, SampleError for a bad sample (``on_error="raise"``), SchemaError for
    pictures of several sizes, and ValueError if ranks differ in seed, store, order or position.

    Use it as a context manager or drop it: its threads end with it. A forked child that continues with an inherited
    loader gets threads of its own.
    """

    # Attributes of a DataLoader without worker processes, for code that reads them.
    num_workers: ClassVar[int] = 0
    prefetch_factor: ClassVar[int | None] = None

    @explains_names(OPTIONS_ELSEWHERE, example="shuffle=True", same=TORCHS_WORDS, groups={"ranks": Ranks})
    def __init__(  # noqa: PLR0913 - torch's DataLoader is called like this, and its users are ours
        self,
        dataset: Dataset[Any] | str | Path | BesideStore,
        batch_size: int | None = None,
        *,
        indices: Any = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: BatchSampler | Iterable[Any] | None = None,
        weights: Any = None,
        samples_per_epoch: int | None = None,
        cost: Any = None,
        collate: CollateWish = None,
        shuffle: Shuffle = False,
        seed: int = 0,
        drop_last: bool = False,
        threads: int = 0,
        prefetch_batches: int = PREFETCH_BATCHES,
        rank: int | None = None,
        world_size: int | None = None,
        ranks: Ranks | None = None,
        uneven: Uneven = "pad",
        on_error: OnError = "raise",
        verify: bool | None = None,
        pin_memory: bool | None = None,
        transforms: TransformsWish = None,
        views: ViewsWish = None,
        repeats: int = 1,
        quality: Quality = "exact",
        layout: Layout = "contiguous",
        device: torch.device | str | int | None = None,
        cache: Cache | None = None,
        decode: Decode = "cpu",
        output: OutputName = "torch",
    ) -> None:
        options = LoaderOptions(
            SampleOptions(indices, sampler, batch_sampler, weights, samples_per_epoch, cost),
            OrderOptions(batch_size, shuffle, seed, drop_last, uneven, Ranks.of(ranks, rank, world_size)),
            PixelOptions(transforms, collate, quality, layout, device, cache, decode, views, repeats),
            WorkOptions(threads, prefetch_batches, on_error, verify, pin_memory, output),
        )
        self._wiring = wiring = wire(dataset, options)
        self._selection, self._delivery = wiring.selection, wiring.delivery
        self._position = LoaderPosition(wiring.selection, wiring.values)
        self._iteration = BatchIteration(wiring, self._position, is_tuned=options.work.threads == 0)
        self._receipts = LoaderReceipts(wiring, self._position)
        self.base = wiring.selection.base
        self.drop_last, self.quality, self.output = drop_last, quality, output
        self.pin_memory = wiring.options.output.is_pinned
        self._is_built = True

    if not TYPE_CHECKING:  # type checkers would let any attribute be set

        def __setattr__(self, name: str, value: Any) -> None:
            """
            Raise AttributeError, with what to do, for a public attribute: setting it would change nothing.

            Names that begin with an underscore, methods and all attributes of a subclass may be set.
            """
            is_open = type(self) is not FastLoader or "_is_built" not in self.__dict__ or name.startswith("_")
            if not (is_open or callable(getattr(FastLoader, name, None))):
                raise AttributeError(cannot_be_set(name, FastLoader))
            super().__setattr__(name, value)

    def __len__(self) -> int:
        """Return the number of batches in an epoch, the same on every rank."""
        return self._selection.sampler.count(self._position.next_epoch)

    def __iter__(self) -> Iterator[Any]:
        if self._delivery is None:
            cursor = self._begin()
            return EpochIterator(self._iteration.run(cursor, cursor, is_numbered=False))
        numbered, place, arrive = self._ahead()
        return EpochIterator(self._delivery.run(numbered, place=place, arrive=arrive))

    def numbered(self) -> Iterator[Numbered]:
        """
        Like ``iter``, but each batch comes with its epoch and the indices of its samples; always on the CPU.

        Raises ValueError for a loader whose transforms run on another device.
        """
        cursor = self._begin()
        return self._on_host(self._iteration.run(cursor, cursor, is_numbered=True))

    def ahead(self) -> tuple[Iterator[Numbered], Callable[[], Place], Callable[[Place], None]]:
        """Like ``numbered``, for a consumer that gets the batches later: see NumberedBatches."""
        numbered, place, arrive = self._ahead()
        return self._on_host(numbered), place, arrive

    def _on_host(self, numbered: Iterator[Numbered]) -> Iterator[Numbered]:
        """Return batches for another consumer than this loader's own loop, after what is done to them on the host."""
        if isinstance(self._delivery, Delivery) and self._delivery.has_steps:
            raise ValueError(
                f"{self.base.store.path}: this FastLoader does transforms on {self._delivery.device}, which a "
                "DevicePrefetcher would leave out: iterate over the loader, or pass the transforms to the prefetcher"
            )
        return self._delivery.numbered(numbered) if isinstance(self._delivery, HostDelivery) else numbered

    def _ahead(self) -> tuple[Iterator[Numbered], Callable[[], Place], Callable[[Place], None]]:
        cursor = self._begin()
        ahead = replace(cursor)  # the position of the copies; the consumer's moves when a batch reaches it
        return self._iteration.run(ahead, cursor, is_numbered=True), lambda: ahead.place, cursor.move

    def _begin(self) -> Cursor:
        """The cursor of a new iteration; ValueError if it would not give what the loader was built for."""
        self._iteration.check_open()
        self._selection.plan.share.check_ranks(f"{self.base.store.path}: this FastLoader")
        self._selection.check_unchanged(reads_samples=self._wiring.producer.reads_samples)
        return self._position.iterate()

    def set_epoch(self, epoch: int) -> None:
        """
        Set the epoch of the next iteration.

        After ``load_state_dict``, setting the epoch of the state keeps the position within it, so the usual ``for
        epoch in range(...): loader.set_epoch(epoch)`` resumes too. Another epoch starts at its beginning, and logs a
        warning.
        """
        self._position.set_epoch(epoch)

    def set_ranks(self, rank: int | None = None, world_size: int | None = None, *, ranks: Ranks | None = None) -> None:
        """
        Go on as another rank, among more or fewer: processes join or leave within an epoch, and this one lives on::

            loader.set_ranks()                            # of the new process group, or rank=, world_size=
            loader.load_state_dict(states)                # one state, or those of all ranks, on every rank
            for images, labels in loader:

        The next iteration gives this rank's part of what is left. Store, threads, caches and counters stay, and batches
        that were decoded ahead are dropped. Leave the loop first: an iterator of before raises ValueError. Call it on
        all ranks, at the same position (see ``load_state_dict``); a process that joins builds its loader instead. A
        ``batch_sampler`` of fastio is replaced by one for the new ranks, here and not in your variable. After the end
        of an epoch, its ``receipt`` is no longer known.

        Raises ValueError for ranks that contradict each other, for a ``sampler`` that draws this rank's samples alone,
        and for a ``batch_sampler`` that has ranks of its own.
        """
        self._iteration.check_open()
        wanted = Ranks.of(ranks, rank, world_size)
        state = self._position.state_dict()
        self._selection.set_ranks(wanted)
        self._iteration.begin_anew()
        self._position.load_state_dict(state)

    def set_weights(self, weights: Any) -> None:
        """
        Draw by other weights from the next epoch on; an epoch under way, or half of one that a state continues, keeps
        its own::

            for epoch in range(90):
                loader.set_weights(hardness ** (epoch / 90))
                for images, labels in loader:

        ``weights`` are as for FastLoader: one number per sample, ``{class: weight}``, or a function that returns either
        for the number of an epoch. States have a checksum of the weights of their epoch; on several ranks, all set the
        same. Raises ValueError for a loader built without ``weights=``, and as there for weights that are none.
        """
        self._selection.set_weights(weights, epoch=self._position.next_whole_epoch)

    @property
    def remaining(self) -> int:
        """The number of batches of the next iteration: fewer than ``len`` after ``load_state_dict``."""
        epoch, consumed, batch = self._position.place
        return self._selection.sampler.count(epoch, consumed) - batch

    @property
    def place(self) -> Place:
        """Where the next iteration begins: see ``skip_to``."""
        return self._position.place

    def skip_to(self, place: Place) -> None:
        """
        Let the next iteration begin at a batch by number, as trainers do that count batches.

        ``place`` is the epoch, what had been consumed of it before (None: nothing; else as in a state), and the
        number of a batch among those that were left then.
        """
        self._position.skip_to(place)

    def state_dict(self) -> dict[str, Any]:
        """
        Return the position of the latest iteration in plain values: what its consumers on all ranks have had.

        Batches decoded ahead do not count. The state is the same on every rank, but for its ``receipt``: the part of
        this one.
        """
        return self._position.state_dict()

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """
        Continue the next iteration there, with any number of ranks and batches of any size: what is left of the
        epoch is divided anew.

        Raises ValueError, naming the differences, for other samples, another order, or other transforms, fields or mode
        (functions of your own are not compared).

        The states of several ranks, as a list, have the receipts of all of them; one state is enough for the position.

        The order that ``shuffle=True`` had when the state was saved is kept, also on a different machine.
        """
        self._position.load_state_dict(state)

    def receipt(
        self, *, own: bool = False, timeout_s: float = 60, gather: Callable[[str], Sequence[str]] | None = None
    ) -> Receipt:
        """
        Return the receipt of the epoch under way, or of the one that has just ended: whether each of its samples was
        given once, with bytes that were compared with their checksums (see ``Receipt``)::

            assert loader.receipt().is_exact

        It sums over the batches that reached the consumer of the latest iteration; what is decoded ahead does not
        count.

        In a process group, all ranks call it together, after the same number of batches: it waits for them for
        ``timeout_s`` seconds, then raises TimeoutError that names the ranks which have not come. ``own=True`` asks
        nobody and returns this rank's part. Where ranks have no process group of torch's, ``gather`` takes the text of
        this rank, some kB, and returns those of all in any order, as ``comm.allgather`` of mpi4py does; what it raises
        is raised, and other texts than those of all ranks are a ValueError.

        After a resume, the receipt has what the loaded states have: what is missing is named, and ``is_complete`` is
        then False. Raises StoreError after ``close``.
        """
        found = self._receipts.own() if own else self._receipts.joined(timeout_s=timeout_s, gather=gather)
        requests = self.stats.requests
        return found if requests is None else replace(found, requests=replace(requests), staged=self.stats.staged)

    @property
    def rank(self) -> int:
        """The rank whose samples this loader gives, from 0."""
        return self._selection.plan.share.rank

    @property
    def world_size(self) -> int:
        """The number of ranks that share the samples."""
        return self._selection.plan.share.world_size

    @property
    def division(self) -> Division | None:
        """How an epoch is cut into steps and shared out; None if that is not the same in each epoch."""
        return self._selection.plan.division

    @property
    def dataset(self) -> Any:
        """
        The dataset as passed, as in torch; with ``indices``, a FastSubset of it; for a path, its FastDataset.

        It cannot be replaced: build another loader. ``base`` is the FastDataset that holds the samples.
        """
        return self._selection.dataset

    @property
    def batch_size(self) -> int | None:
        """Samples per batch of one rank; None if the batch_sampler decides. As in torch, it cannot be set."""
        return self._selection.plan.batch_size

    @property
    def sampler(self) -> EpochSampler:
        """A sampler for ``loader.sampler.set_epoch(epoch)``, as loops written for a DistributedSampler call it."""
        plan, position = self._selection.plan, self._position
        count = None if plan.division is None else plan.division.samples
        return EpochSampler(
            self.dataset,
            plan.share,
            lambda: plan.sampler.plan(position.next_epoch),
            self.set_epoch,
            count=count,
        )

    @property
    def batch_sampler(self) -> ClosedBatchSampler:
        """A batch_sampler for trainers that expect one. Raises TypeError when it is iterated."""
        return ClosedBatchSampler(self.sampler)

    @property
    def placement(self) -> Placement:
        """Where each field of a batch is made: natively, in Python or on the device, and what forces that."""
        return self._wiring.placement

    @property
    def stats(self) -> LoaderStats:
        """Counters since the loader was built: see ``LoaderStats``."""
        stats = self._iteration.report()
        sampler = self._selection.plan.sampler
        stats.packing_of = sampler.report if isinstance(sampler, PackSampler) else None
        return stats

    def sources(self) -> dict[str, SourceReport]:
        """Return what each member of a Mixture has given so far, by name. Raises TypeError without a Mixture."""
        mixture = self._selection.mixture
        if mixture is None:
            raise TypeError(f"{self.base.store.path}: sources() is for loaders of a Mixture")
        return mixture.sources(*self._position.reached)

    @property
    def skipped(self) -> list[SampleError]:
        """The bad samples so far, each once, that ``on_error`` "skip" left out or "zero" replaced."""
        return list(self._iteration.skipped.values())

    def __repr__(self) -> str:
        batches = f"{len(self)} {'batch' if len(self) == 1 else 'batches'}"
        size = "" if self.batch_size is None else f" of {self.batch_size}"
        first = f"FastLoader({self.base.store.path!r}): {batches}{size}, {len(self._selection)} samples"
        return "\n  ".join([first, *self.placement.lines, *self._wiring.producer.pictures.lines])

    def close(self) -> None:
        """
        Stop the threads, and close the dataset if this loader opened it; calling it twice is harmless. Batches stay
        valid.
        """
        order = self._selection.plan.order
        if self._selection.is_opened and order is not None and not self._iteration.is_closed:
            order.settle()  # a state may be asked for after close()
        self._iteration.close()
        if self._selection.is_opened:
            self.base.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "a FastLoader holds threads and cannot be pickled: pass the FastDataset, and build the loader there"
        )


# LoaderReceipts: the receipts of a loader's epochs.


class LoaderReceipts:
    """Joins what a loader has handed out with what it should hand out."""

    def __init__(self, wiring: Wiring, position: LoaderPosition) -> None:
        self._base = wiring.selection.base
        self._position = position
        self._verify = wiring.options.verify
        self._views = 1 if wiring.views is None else wiring.views.count
        self._whole = wiring.whole
        self._expected = ExpectedNumber(wiring.selection, wiring.whole)

    def own(self) -> Receipt:
        """Return the receipt of this rank alone."""
        return self._of([self._position.account()])

    def joined(self, *, timeout_s: float, gather: Callable[[str], Sequence[str]] | None) -> Receipt:
        """Return the receipt of all ranks, if a process group or ``gather`` joins them, otherwise of this one."""
        account = self._position.account()
        if account.world_size == 1 or (gather is None and process_group_ranks() is None):
            return self._of([account])
        owner = f"{self._base.store.path}: this FastLoader"
        if gather is not None:
            accounts = gathered(account, gather, owner=owner)
        else:
            accounts = exchanged(account, self._position.options(), owner=owner, timeout_s=timeout_s)
        self._position.learn(accounts)
        return self._of(accounts)

    def _of(self, accounts: Sequence[Account]) -> Receipt:
        expected = self._expected.of(accounts[0].epoch, accounts[0].dropped)
        return receipt_of(accounts, expected, unverified=self._unverified(), views=self._views)

    def _unverified(self) -> str | None:
        """Return why bytes are not compared with their checksums; None if they are."""
        if self._base.makes_samples:
            return f"samples are made by {type(self._base).__name__}"
        if not self._verify:
            return "verify=False"
        if isinstance(self._base, TokenWindows):
            return self._base.unverified
        if self._base.readers and not self._whole:
            return "only elements that a Pick drew were read"
        return None if self._has_checksums() else "the store has no checksums"

    def _has_checksums(self) -> bool:
        store = self._base.store
        some = np.arange(min(1, len(store)), dtype=np.int64)
        return all(value_spans(store, name, some)[0].checksums is not None for name in self._whole)
