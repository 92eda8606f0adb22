"""FastLoader: batches of a packed store, decoded ahead of the training loop by native threads."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
import torch
from torch.utils.data import Dataset

from fastio.dataset.token_collate import TokenCollate
from fastio.errors import SampleError
from fastio.loader.device import Numbered
from fastio.loader.options import check_choices, check_subclass
from fastio.loader.pipeline import PixelOptions, build_pipeline
from fastio.loader.producer import Cache, FinishedBatch, NativeProducer, OnError, ProducerOptions
from fastio.loader.producer.choose import CollateName, Decode, Layout, Quality, has_rows
from fastio.loader.producer.read_ahead import WindowReader
from fastio.loader.ranges import WAIT, named_range
from fastio.loader.selection import Wish, choose
from fastio.loader.thread_tuner import ThreadTuner
from fastio.machine import available_cpus
from fastio.samplers.batches import Batches, BatchSampler
from fastio.samplers.choice import Choice
from fastio.samplers.epoch import ClosedBatchSampler, EpochSampler
from fastio.samplers.order import Shuffle, Uneven
from fastio.samplers.position import GIVEN_UP, check_state, whole, whole_epoch
from fastio.samplers.uneven import say_uneven
from fastio.transforms.batch.recipe import AnyTransform
from fastio.types.metrics import LoaderStats
from fastio.types.verification import resolve_verify

__all__ = ["FastLoader"]

log = logging.getLogger(__name__)

_STATE_VERSION = 2  # 1: shuffle=True was the block shuffle, and no state had an order


@dataclass(slots=True)
class _Position:
    """Where an iteration stands, as its consumer sees it: ``batch`` is the next one to come, once it has begun."""

    epoch: int
    batch: int
    has_begun: bool = False

    @property
    def place(self) -> tuple[int, int]:
        """Epoch and batch, to be kept while the position moves on."""
        return self.epoch, self.batch

    def move(self, place: tuple[int, int]) -> None:
        """Stand there."""
        self.epoch, self.batch = place


class FastLoader:
    """
    ``for images, labels in FastLoader(dataset, 256, shuffle=True)``, without worker processes.

    A batch has the values that a DataLoader makes with ``transform=PILToTensor()``: ``images`` is uint8
    ``(B, C, H, W)``, ``labels`` int64 ``(B,)``; without labels, the images alone. Rows are decoded by native threads
    without the GIL straight into the memory of the tensor, which goes back to a bounded ring when the tensor dies.
    Pictures of one batch must have one size, after ``transforms``. A dataset with a
    ``transform``, or a subclass with its own ``__getitem__``, takes the plain path: its samples, made in Python
    threads, through torch's default collate.

    Batches of token ids are dicts: see ``PadCollate`` (``collate="pad"``, their default), ``PackCollate`` ("pack") and
    ``ChunkCollate``; ``stats.padding`` is the share of their slots that holds no token.

    * ``dataset``: a FastDataset, the path of a store, or torch's Subset or ConcatDataset of FastDatasets.
    * ``indices``: a part of it: whole numbers, repeated or negative too, or a mask of booleans.
    * ``weights``: draw ``samples_per_epoch`` samples (by default as many as there are) with replacement, by a weight
      for each sample, or ``{class: weight}`` by label or name.
    * ``sampler``: any iterable of indices, torch's samplers among them. It draws while the global generators are seeded
      by ``seed`` and epoch, and is shared out among the ranks unless it is a DistributedSampler.
    * ``batch_sampler``: any iterable of lists of indices, whose batches ranks take in turn; or LengthBucketSampler,
      PackSampler or another ``BatchSampler``, whose ``rank`` and ``world_size`` are its own. It decides on
      ``batch_size``, ``shuffle`` and ``drop_last``. fastio/guide/loading.md has an example of each.
    * ``shuffle``: False, True or "full"; ``seed`` and epoch name the order. True trains as "full" does, and reads whole
      blocks where the store is larger than memory (see ``samplers.choice``); ``stats.shuffle`` says what was taken.
    * Each iteration is an epoch of its own: the counter moves on when its first batch is asked for, ``set_epoch``
      (or ``sampler.set_epoch``) sets it. Several iterators may run at once, each in its own epoch.
    * ``rank`` and ``world_size`` as in ``rank_and_world``; ``uneven`` as in ``Division``: all ranks get equal batches.
    * ``threads=0``: as many as ``available_cpus``, or after a second the fewer that the loop needs (``stats.threads``,
      see ``thread_tuner``); a number is kept. ``prefetch_batches`` are decoded ahead; memory is that of
      ``prefetch_batches + 2`` batches and of what the loop keeps (``stats.estimated_bytes``, ``stats.buffer_bytes``).
      Batches of token ids are made in chunks of about 4 MiB (16 by pread), two or more at a time: a smaller
      ``prefetch_batches`` does not make these smaller.
    * ``on_error``: "raise" SampleError; "skip" leaves bad samples out of their (then shorter) batch; "zero" puts a
      black picture, or no tokens, under the sample's own label (a subclass with samples of its own says by ``blank``
      what that is). ``skipped`` names them.
    * ``verify``: True compares every sample with its checksum as it is read, False compares none; None does as the
      dataset (``FastDataset(verify=True)``, its default). On the plain path the dataset alone decides.
    * ``transforms``: those of ``fastio.transforms``, done by the native threads in the pass that decodes. Their random
      numbers are a function of seed, epoch and sample: the same whatever the threads, ranks, batches or resumes.
      Of a JPEG only the rows needed are decoded: damage behind them is seen by the checksum (``verify``) alone.
    * ``quality``: "exact", or "fast", which lets JPEGs be shrunk to a half, a quarter or an eighth while they are
      decoded wherever ``transforms`` make them at least four times smaller on both sides: other pixels than Pillow's,
      by little (measured in fastio/guide/transforms.md). Nothing else changes, and the plain path has no fast mode.
    * ``layout``: "contiguous", (B, C, H, W) in memory too, as a DataLoader's batches; or "channels_last", which Tensor
      Cores are faster with. There ``view`` of what convolutions return fails: use ``reshape`` or ``flatten``.
    * ``pin_memory``: pinned batches, by default where there is a CUDA device.
    * ``device``: batches are copied there ahead, as by ``DevicePrefetcher(loader, device)``; None: left on the CPU.
      ``transforms`` may go on with those of batches (Normalize, ColorJitter, ...): what stands before the first of
      these is done by the native threads, the rest on the device, or on the CPU where there is none.
    * ``decode``: "device" lets a GPU (``device="cuda"``, ``fastio[gpu-decode]``) decode, crop and resize JPEGs; those
      that it cannot do, and other pictures, are decoded here (``stats.decoded_on_device``). Same samples, same crops,
      other pixels by little: see fastio/guide/loading.md.
    * ``cache``: "ram" keeps all samples decoded in memory, "device" on the device, and does all ``transforms`` there.
      They are read when the loader is built, before which MemoryError says if they do not fit; each rank keeps all.
      Pictures of different sizes are kept as the first ``transforms`` that are not random leave them.

    Use it as a context manager or drop it: threads end with it. A forked child that goes on with an inherited
    loader gets threads of its own. Iterate in a thread that is joined before the program ends: CPython before 3.14
    kills daemon threads inside native calls, and C++ ends the process ("terminate called").
    """

    # As of a DataLoader without worker processes, for those who ask.
    num_workers: ClassVar[int] = 0
    prefetch_factor: ClassVar[int | None] = None

    def __init__(  # noqa: PLR0913 - torch's DataLoader is called like this, and its users are ours
        self,
        dataset: Dataset[Any] | str | Path,
        batch_size: int | None = None,
        *,
        indices: Any = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: BatchSampler | Iterable[Any] | None = None,
        weights: Any = None,
        samples_per_epoch: int | None = None,
        collate: TokenCollate | CollateName | None = None,
        shuffle: Shuffle = False,
        seed: int = 0,
        drop_last: bool = False,
        threads: int = 0,
        prefetch_batches: int = 4,
        rank: int | None = None,
        world_size: int | None = None,
        uneven: Uneven = "pad",
        on_error: OnError = "raise",
        verify: bool | None = None,
        pin_memory: bool | None = None,
        transforms: Sequence[AnyTransform] | AnyTransform | None = None,
        quality: Quality = "exact",
        layout: Layout = "contiguous",
        device: torch.device | str | int | None = None,
        cache: Cache | None = None,
        decode: Decode = "cpu",
    ) -> None:
        check_choices(shuffle=shuffle, on_error=on_error)
        threads = whole("threads", threads, "0 (as many as available) or more", least=0)
        prefetch_batches = whole("prefetch_batches", prefetch_batches, "1 or more", least=1)
        seed = whole("seed", seed, "0 <= seed < 2**64", least=0, below=1 << 64)
        self._chosen = chosen = choose(
            dataset,
            Wish(
                batch_size=batch_size,
                indices=indices,
                sampler=sampler,
                batch_sampler=batch_sampler,
                weights=weights,
                samples_per_epoch=samples_per_epoch,
                shuffle=shuffle,
                seed=seed,
                drop_last=drop_last,
                rank=rank,
                world_size=world_size,
                uneven=uneven,
                is_cached=cache is not None,
                verify=verify,
            ),
        )
        self.base, self._sampler, self._share = chosen.base, chosen.sampler, chosen.plan.share
        self.rank, self.world_size, self.division = self._share.rank, self._share.world_size, chosen.plan.division
        self._path = self.base.store.path
        self._store = self.base.store.identity  # kept, for a state is asked for after close() too
        self._opened = [each.store for each in chosen.datasets]
        check_subclass(self.base, on_error=on_error)
        self.drop_last = drop_last
        self.pin_memory = torch.cuda.is_available() if pin_memory is None else pin_memory
        self._depth = prefetch_batches
        self._on_error = on_error
        means = ProducerOptions(
            threads=threads or available_cpus(),
            depth=prefetch_batches,
            on_error=on_error,
            verify=resolve_verify(verify, dataset_verify=self.base.verify),
            pin_memory=self.pin_memory,
        )
        pixels = PixelOptions(transforms, collate, quality, layout, device, cache, decode, seed)
        pipeline = build_pipeline(self.base, chosen.indices, pixels, means, batch_sampler=batch_sampler)
        self._producer, self._delivery, self._native = pipeline.producer, pipeline.delivery, pipeline.transforms
        self.quality = quality
        self._ahead = WindowReader(self.base, chosen.indices)
        self._tuner = ThreadTuner() if threads == 0 and isinstance(self._producer, NativeProducer) else None
        self._closed = False
        self._may_be_unpacked = has_rows(self.base) and self.rank == 0
        self._stats = LoaderStats()
        self._skipped: dict[int, SampleError] = {}
        self._next = _Position(0, 0)  # where the next iteration begins
        self._latest = self._next  # where the consumer of the latest one stands
        self._seen = self._next  # the same, unless an epoch has been set or a state loaded since

    def __len__(self) -> int:
        """Batches in an epoch, the same on every rank."""
        return self._sampler.count(self._next.epoch)

    def __iter__(self) -> Iterator[Any]:
        position = self._begin()
        if self._delivery is None:
            return self._batches(position, is_numbered=False)
        ahead = replace(position)  # of the copies; the consumer's own moves when a batch reaches it
        numbered = self._batches(ahead, is_numbered=True, consumer=position)
        return self._delivery.run(numbered, place=lambda: ahead.place, arrive=position.move)

    def numbered(self) -> Iterator[Numbered]:
        """As ``iter``, each batch with its epoch and the indices of its samples; always on the CPU."""
        return self._batches(self._begin(), is_numbered=True)

    def _begin(self) -> _Position:
        """The position of a new iteration, which counts as an epoch when its first batch is asked for."""
        self._check_open()
        self._share.check_ranks(f"{self._path}: this FastLoader")
        for dataset, store in zip(self._chosen.datasets, self._opened, strict=True):
            if dataset.store is not store:
                raise ValueError(
                    f"{dataset.store.path}: dataset.samples was assigned after this FastLoader was built, which still "
                    f"reads the samples from before; assign it first, or build the loader anew"
                )
        is_native = isinstance(self._producer, NativeProducer)
        if any(each.transform is not (None if is_native else self.base.transform) for each in self._chosen.datasets):
            raise ValueError(
                f"{self._path}: the dataset got its transform after this FastLoader was built, which "
                f"decodes without one; set it before, or build the loader anew"
            )
        self._seen = self._latest = replace(self._next)
        return self._seen

    def _start(self, position: _Position, consumer: _Position) -> None:
        """Take the next epoch, whatever has been set or loaded since ``iter``; the one after it is next then."""
        for each in (position, consumer):
            each.move(self._next.place)
        consumer.has_begun = True
        if consumer is self._latest:
            self._seen = consumer
        self._next = _Position(position.epoch + 1, 0)

    def _batches(self, position: _Position, *, is_numbered: bool, consumer: _Position | None = None) -> Iterator[Any]:
        """One epoch from ``position`` on, which moves with the consumer; each batch alone, or as Numbered."""
        self._check_open()
        self._start(position, consumer or position)
        left = self._left(position)
        parts = left.slices()
        submitted, stats = self._ahead.run(left, self._producer.submit(left, epoch=position.epoch)), self._stats
        under_way = deque(islice(submitted, self._depth))
        first = True
        try:
            while under_way:
                if self._closed:
                    self._check_open()
                begun = perf_counter()
                with named_range(WAIT):
                    under_way.extend(islice(submitted, 1))
                    made = under_way.popleft().result()
                stats.count(made.samples, made.nbytes, waited_s=perf_counter() - begun, first=first)
                stats.decoded_on_device += made.on_device
                if made.slots:
                    stats.count_tokens(made.tokens, made.slots)
                if self._tuner is not None:
                    self._tune(self._tuner, first=first)
                first = False
                ready = [made.batch] if made.samples and not made.errors else self._checked(made)
                if is_numbered:
                    part = next(parts)
                    if ready:
                        ready = [_numbered(made, left, part, position.epoch)]
                position.batch += 1
                del made
                if ready:
                    # Nothing here may hold the batch while the loop works with it, or its memory would come back late.
                    yield ready.pop()
            position.epoch, position.batch = position.epoch + 1, 0
        finally:
            for batch in under_way:
                batch.cancel()

    def _checked(self, made: FinishedBatch) -> list[Any]:
        """The batch, or nothing where all its samples were skipped; the bad ones go to the ledger."""
        for error in made.errors:
            if error.index not in self._skipped:
                self._skipped[error.index] = error
                log.warning("%s: %s", "skipped" if self._on_error == "skip" else "zeroed", error)
        if made.samples:
            return [made.batch]
        if self.world_size > 1:
            # Going on would leave this rank a batch short, and the others waiting for it for ever.
            raise made.errors[0]
        return []

    def _tune(self, tuner: ThreadTuner, *, first: bool) -> None:
        """Let fewer threads decode where that is enough; the first batch of an iteration is no measure."""
        if first:
            tuner.restart()
        stats = self._stats
        assert isinstance(self._producer, NativeProducer)
        tuner.look(self._producer.pool, now_s=perf_counter(), loading_s=stats.loading_s, batches=stats.batches)

    def _left(self, position: _Position) -> Batches:
        """What is left of an epoch."""
        batches = self._sampler.plan(position.epoch)
        say_uneven(self._path, batches, self._sampler)
        self._say_unlabelled(batches)
        order = self._chosen.plan.order
        return self._ahead.with_windows(
            batches.part(position.batch, len(batches)), is_held=order is not None and order.is_held
        )

    def _say_unlabelled(self, batches: Batches) -> None:
        """Warn, once, where a batch is one tensor that ``images, labels = batch`` would take apart without an error."""
        if self._may_be_unpacked and len(batches) and batches.cuts[1] == 2 and self.base.labels is None:
            self._may_be_unpacked = False
            log.warning(
                "%s: has no labels, so a batch is one tensor of two pictures; `for images, labels in loader` would "
                "take the second one for labels: write `for images in loader`, or pack with labels",
                self._path,
            )

    def set_epoch(self, epoch: int) -> None:
        """
        Let the next iteration be this epoch.

        After ``load_state_dict``, naming the epoch of the state keeps the position within it, so that the usual
        ``for epoch in range(...): loader.set_epoch(epoch)`` resumes too; another epoch begins at its beginning, and a
        warning is logged.
        """
        epoch = whole_epoch(epoch)
        if epoch != self._next.epoch:
            if self._next.batch:
                log.warning(GIVEN_UP, self._path, epoch, self._next.batch, self._next.epoch)
            self._next = self._seen = _Position(epoch, 0)

    def state_dict(self) -> dict[str, Any]:
        """
        Where the latest iteration stands, in plain numbers: the next batch that its consumer has not had.

        What is decoded ahead does not count. The same on every rank.
        """
        epoch, batch = (self._seen if self._seen.has_begun else self._next).place
        proof = self._chosen.proof(epoch) if batch else {}
        return {"version": _STATE_VERSION, "epoch": epoch, "batch": batch, **self._configuration(), **proof}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """
        Let the next iteration go on at that batch. ValueError, naming what differs, for another configuration.

        The order that ``shuffle=True`` was when the state was saved is kept, on this machine too.
        """
        expected = {"version": _STATE_VERSION, **self._configuration()}
        if state.get("version") == 1:
            state = {**state, "version": _STATE_VERSION}
            if "order" in expected:
                state["order"] = {"kind": "blocks"}
        order = state.get("order")
        if "order" in expected and state.get("shuffle") is True:
            expected["order"] = Choice.from_json(order, samples=len(self._chosen)).to_json()
        check_state(state, expected, owner="loader")
        epoch = whole_epoch(state.get("epoch", -1))
        count = self._sampler.count(epoch)
        batch = whole("batch", state.get("batch", -1), f"0 to {count} in the state", least=0, below=count + 1)
        self._chosen.check_proof(state)
        if self._chosen.plan.order is not None and order is not None:
            self._chosen.plan.order.adopt(order)
        self._next = self._seen = _Position(epoch, batch)

    def _configuration(self) -> dict[str, Any]:
        """What must be equal for a position to mean the same samples."""
        return {
            "store": self._store,
            **self._sampler.configuration(),
            "transforms": self._native,
            "quality": self.quality,
        }

    @property
    def dataset(self) -> Any:
        """
        What was passed, as in torch; with ``indices`` a FastSubset of it, of a path its FastDataset.

        Another one needs another loader. ``base`` is the FastDataset that holds its samples.
        """
        return self._chosen.dataset

    @property
    def batch_size(self) -> int | None:
        """Samples of a batch of one rank; None where the batch_sampler decides. As in torch, it cannot be set."""
        return self._chosen.plan.batch_size

    @property
    def sampler(self) -> EpochSampler:
        """For ``loader.sampler.set_epoch(epoch)``, as loops written for a DistributedSampler have it."""
        plan, count = self._chosen.plan.sampler.plan, None if self.division is None else self.division.samples
        return EpochSampler(self.dataset, self._share, lambda: plan(self._next.epoch), self.set_epoch, count=count)

    @property
    def batch_sampler(self) -> ClosedBatchSampler:
        """For trainers that look for one; TypeError where it is iterated."""
        return ClosedBatchSampler(self.sampler)

    @property
    def stats(self) -> LoaderStats:
        """Counters since the loader was made: see LoaderStats."""
        self._stats.buffer_bytes = self._producer.buffer_bytes
        self._stats.threads = self._producer.threads
        if self._chosen.plan.order is not None:
            self._stats.shuffle = self._chosen.plan.order.report()
        self._stats.estimated_bytes = self._producer.estimated_bytes(self._stats.batch_bytes, depth=self._depth)
        return self._stats

    @property
    def skipped(self) -> list[SampleError]:
        """The bad samples met so far, each once, that ``on_error`` "skip" left out or "zero" blackened."""
        return list(self._skipped.values())

    def __repr__(self) -> str:
        batches = f"{len(self)} batches" + ("" if self.batch_size is None else f" of {self.batch_size}")
        return f"FastLoader({self._path!r}): {batches}, {len(self._chosen)} samples"

    def close(self) -> None:
        """End the threads, and the dataset if this loader opened it; twice does no harm. Batches stay valid."""
        if self._chosen.is_opened and not self._closed and self._chosen.plan.order is not None:
            self._chosen.plan.order.settle()  # a state is asked for after close() too
        self._closed = True
        self._producer.close()
        if self._chosen.is_opened:
            self.base.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> NoReturn:
        raise TypeError("a FastLoader holds threads and cannot be pickled; pass the FastDataset and build it there")

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"{self._path}: this FastLoader is closed")


def _numbered(made: FinishedBatch, batches: Batches, part: slice, epoch: int) -> Numbered:
    """A batch with what its samples' random numbers go by; those that were skipped are not among them."""
    ids = batches.ids[part]
    if made.samples < len(ids):
        ids = ids[~np.isin(batches.indices[part], [error.index for error in made.errors])]
    return Numbered(made.batch, epoch, ids)
