"""FastLoader: batches of a packed store, decoded ahead of the training loop by native threads."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
import torch
from numpy.typing import NDArray

from fastio.dataset import FastDataset
from fastio.device import Delivery, Numbered
from fastio.device.lane import lane_to
from fastio.errors import SampleError
from fastio.loader_options import check_choices, check_decode, check_sampler, check_subclass
from fastio.machine import available_cpus
from fastio.metrics import LoaderStats
from fastio.producer import Cache, Made, Means, NativeProducer, OnError, check_cache, in_ram
from fastio.producer.choose import CollateName, Decode, Layout, Quality, collate_of, fused_of, is_native, producer_of
from fastio.producer.read_ahead import WindowReader
from fastio.ranges import WAIT, named_range
from fastio.samplers.batches import Batches, BatchSampler, OrderSampler
from fastio.samplers.choice import Choice
from fastio.samplers.epoch import ClosedBatchSampler, EpochSampler
from fastio.samplers.order import Division, Shuffle, Uneven
from fastio.samplers.position import GIVEN_UP, check_state, whole, whole_epoch
from fastio.samplers.share import Share
from fastio.text_collate import TokenCollate
from fastio.thread_tuner import ThreadTuner
from fastio.transforms.batch.recipe import AnyTransform, as_list, split
from fastio.verification import resolve_verify

__all__ = ["FastLoader"]

log = logging.getLogger(__name__)

_STATE_VERSION = 2  # 1: shuffle=True was the block shuffle, and no state had an order
_DEPTH = 2  # batches copied ahead to the device


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
    ``(B, C, H, W)`` (in channels_last memory), ``labels`` int64 ``(B,)``; without labels, the images alone. Rows are
    decoded by native threads without the GIL straight into the memory of the tensor, which goes back to a bounded
    ring when the tensor dies. Pictures of one batch must have one size, after ``transforms``. A dataset with a
    ``transform``, or a subclass with its own ``__getitem__``, takes the plain path: its samples, made in Python
    threads, through torch's default collate.

    Batches of token ids are dicts: see ``PadCollate`` (``collate="pad"``, their default), ``PackCollate`` ("pack") and
    ``ChunkCollate``; ``stats.padding`` is the share of their slots that holds no token.

    * ``batch_sampler``: LengthBucketSampler, PackSampler or another ``BatchSampler``, in the place of ``batch_size``,
      ``shuffle``, ``drop_last`` and ``uneven``; ``rank`` and ``world_size`` are its own.
    * ``shuffle``: False, True or "full"; ``seed`` and epoch name the order. True trains as "full" does, and reads whole
      blocks where the store is larger than memory (see ``samplers.choice``); ``stats.shuffle`` says what was taken.
    * Each iteration is an epoch of its own: the counter moves on when its first batch is asked for, ``set_epoch``
      (or ``sampler.set_epoch``) sets it. Several iterators may run at once, each in its own epoch.
    * ``rank`` and ``world_size`` as in ``rank_and_world``; ``uneven`` as in ``Division``: all ranks get equal batches.
    * ``threads=0``: as many as ``available_cpus``, or after a second the fewer that the loop needs (``stats.threads``,
      see ``thread_tuner``); a number is kept. ``prefetch_batches`` are decoded ahead; memory is that of
      ``prefetch_batches + 2`` batches and of what the loop keeps (``stats.estimated_bytes``, ``stats.buffer_bytes``).
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
    * ``layout``: "channels_last", or "contiguous" for (B, C, H, W) in memory too.
    * ``pin_memory``: pinned batches, by default where there is a CUDA device.
    * ``device``: batches are copied there ahead, as by ``DevicePrefetcher(loader, device)``; None: left on the CPU.
      ``transforms`` may then go on with those of batches (Normalize, ColorJitter, ...): what stands before the first of
      these is done by the native threads, the rest on the device.
    * ``decode``: "device" lets a GPU (``device="cuda"``, ``fastio[gpu-decode]``) decode, crop and resize JPEGs; those
      that it cannot do, and other pictures, are decoded here (``stats.decoded_on_device``). Same samples, same crops,
      other pixels by little: see fastio/guide/loading.md.
    * ``cache``: "ram" keeps all samples decoded in memory, "device" on the device, and does all ``transforms`` there.
      They are read when the loader is built, before which MemoryError says if they do not fit; each rank keeps all.

    Use it as a context manager or drop it: threads end with it. A forked child that goes on with an inherited
    loader gets threads of its own. Iterate in a thread that is joined before the program ends: CPython before 3.14
    kills daemon threads inside native calls, and C++ ends the process ("terminate called").
    """

    # As of a DataLoader without worker processes, for those who ask.
    num_workers: ClassVar[int] = 0
    prefetch_factor: ClassVar[int | None] = None

    def __init__(  # noqa: PLR0913 - torch's DataLoader is called like this, and its users are ours
        self,
        dataset: FastDataset | str | Path,
        batch_size: int | None = None,
        *,
        batch_sampler: BatchSampler | None = None,
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
        layout: Layout = "channels_last",
        device: torch.device | str | int | None = None,
        cache: Cache | None = None,
        decode: Decode = "cpu",
    ) -> None:
        check_choices(dataset, shuffle=shuffle, on_error=on_error)
        threads = whole("threads", threads, "0 (as many as available) or more", least=0)
        prefetch_batches = whole("prefetch_batches", prefetch_batches, "1 or more", least=1)
        self._owns_dataset = not isinstance(dataset, FastDataset)
        self._dataset = (
            dataset if isinstance(dataset, FastDataset) else FastDataset(dataset, verify=verify is not False)
        )
        # The identity is kept, for a state is asked for after close() too.
        self._opened, self._store = self.dataset.store, self.dataset.store.identity
        seed = whole("seed", seed, "0 <= seed < 2**64", least=0, below=1 << 64)
        self.division: Division | None = None
        if batch_sampler is None:
            batch_size = whole("batch_size", batch_size, "a whole number from 1", least=1)
            self._share = Share.of(rank, world_size)
            self.rank, self.world_size = self._share.rank, self._share.world_size
            self.division = Division(len(self.dataset), batch_size, self.world_size, uneven, drop_last)
            self._sampler: BatchSampler = OrderSampler(
                self.division,
                rank=self.rank,
                shuffle=shuffle,
                seed=seed,
                sizes=partial(_sample_bytes, self.dataset, cache),
                labels=partial(getattr, self.dataset, "labels"),
            )
        else:
            given = {"batch_size": batch_size, "shuffle": shuffle or None, "drop_last": drop_last or None}
            check_sampler(self.dataset, batch_sampler, given, rank=rank, world_size=world_size)
            self._sampler = batch_sampler
            self.rank, self.world_size = batch_sampler.rank, batch_sampler.world_size
            self._share = Share(self.rank, self.world_size, is_found=False)  # the sampler looks after its own
        check_subclass(self.dataset, on_error=on_error)
        self._batch_size = batch_size
        self.drop_last = drop_last
        self.pin_memory = torch.cuda.is_available() if pin_memory is None else pin_memory
        self._depth = prefetch_batches
        self._on_error = on_error
        check_decode(decode, device=device, cache=cache)
        check_cache(self.dataset, cache, device=device, on_error=on_error, is_native=is_native(self.dataset))
        native, behind = split(as_list(transforms), on_device=device is not None, resident=cache == "device")
        self._delivery = None
        if device is not None:
            is_made_there = cache == "device" or decode == "device"
            self._delivery = Delivery(
                lane_to(device), depth=_DEPTH, transforms=behind, seed=seed, is_made_there=is_made_there
            )
        means = Means(
            threads=threads or available_cpus(),
            depth=prefetch_batches,
            on_error=on_error,
            verify=resolve_verify(verify, dataset_verify=self.dataset.verify),
            pin_memory=self.pin_memory,
        )
        source = self.dataset
        if cache == "ram":
            source = in_ram(source, threads=means.threads, verify=means.verify)
        self._fused = fused_of(source, native, quality=quality, layout=layout, seed=seed)
        self.quality = quality
        where = None if self._delivery is None else self._delivery.device
        self._producer = producer_of(
            source,
            resident=where if cache == "device" else None,
            decodes_on=where if decode == "device" else None,
            fused=self._fused,
            collate=collate_of(self.dataset, collate, batch_sampler),
            is_planar=layout == "contiguous",
            means=means,
        )
        self._ahead = WindowReader(self.dataset)
        self._tuner = ThreadTuner() if threads == 0 and isinstance(self._producer, NativeProducer) else None
        self._closed = False
        self._stats = LoaderStats()
        self._skipped: dict[int, SampleError] = {}
        self._next = _Position(0, 0)  # where the next iteration begins
        self._latest = self._next  # where the consumer of the latest one stands
        self._seen = self._next  # the same, unless an epoch has been set or a state loaded since
        self._log_uneven()

    def _log_uneven(self) -> None:
        division = self.division
        if division is not None and (division.repeated or division.dropped):
            log.info(
                "%s: every epoch repeats %d and drops %d of %d samples (%s)",
                self.dataset.store.path,
                division.repeated,
                division.dropped,
                division.count,
                self._configuration(),
            )

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
        self._share.check_ranks(f"{self.dataset.store.path}: this FastLoader")
        if self.dataset.store is not self._opened:
            raise ValueError(
                f"{self.dataset.store.path}: dataset.samples was assigned after this FastLoader was built, which still "
                f"reads the samples from before; assign it first, or build the loader anew"
            )
        if self.dataset.transform is not None and isinstance(self._producer, NativeProducer):
            raise ValueError(
                f"{self.dataset.store.path}: the dataset got its transform after this FastLoader was built, which "
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
                        ready = [_numbered(made, left.indices[part], position.epoch)]
                position.batch += 1
                del made
                if ready:
                    # Nothing here may hold the batch while the loop works with it, or its memory would come back late.
                    yield ready.pop()
            position.epoch, position.batch = position.epoch + 1, 0
        finally:
            for batch in under_way:
                batch.cancel()

    def _checked(self, made: Made) -> list[Any]:
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
        is_held = isinstance(self._sampler, OrderSampler) and self._sampler.is_held
        return self._ahead.with_windows(batches.part(position.batch, len(batches)), is_held=is_held)

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
                log.warning(GIVEN_UP, self.dataset.store.path, epoch, self._next.batch, self._next.epoch)
            self._next = self._seen = _Position(epoch, 0)

    def state_dict(self) -> dict[str, Any]:
        """
        Where the latest iteration stands, in plain numbers: the next batch that its consumer has not had.

        What is decoded ahead does not count. The same on every rank.
        """
        epoch, batch = (self._seen if self._seen.has_begun else self._next).place
        return {"version": _STATE_VERSION, "epoch": epoch, "batch": batch, **self._configuration()}

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
            expected["order"] = Choice.from_json(order, samples=len(self.dataset)).to_json()
        check_state(state, expected, owner="loader")
        epoch = whole_epoch(state.get("epoch", -1))
        count = self._sampler.count(epoch)
        batch = whole("batch", state.get("batch", -1), f"0 to {count} in the state", least=0, below=count + 1)
        if isinstance(self._sampler, OrderSampler) and order is not None:
            self._sampler.adopt(order)
        self._next = self._seen = _Position(epoch, batch)

    def _configuration(self) -> dict[str, Any]:
        """What must be equal for a position to mean the same samples."""
        return {
            "store": self._store,
            **self._sampler.configuration(),
            "transforms": repr(self._fused.transforms) if self._fused and self._fused.transforms.transforms else None,
            "quality": self.quality,
        }

    @property
    def dataset(self) -> FastDataset:
        """What is read; another one needs another loader."""
        return self._dataset

    @property
    def batch_size(self) -> int | None:
        """Samples of a batch of one rank; None where the batch_sampler decides. As in torch, it cannot be set."""
        return self._batch_size

    @property
    def sampler(self) -> EpochSampler:
        """For ``loader.sampler.set_epoch(epoch)``, as loops written for a DistributedSampler have it."""
        return EpochSampler(self.dataset, self._share, lambda: self._sampler.plan(self._next.epoch), self.set_epoch)

    @property
    def batch_sampler(self) -> ClosedBatchSampler:
        """For trainers that look for one; TypeError where it is iterated."""
        return ClosedBatchSampler(self.sampler)

    @property
    def stats(self) -> LoaderStats:
        """Counters since the loader was made: see LoaderStats."""
        self._stats.buffer_bytes = self._producer.buffer_bytes
        self._stats.threads = self._producer.threads
        if isinstance(self._sampler, OrderSampler):
            self._stats.shuffle = self._sampler.report()
        self._stats.estimated_bytes = (self._depth + 2) * self._stats.batch_bytes
        return self._stats

    @property
    def skipped(self) -> list[SampleError]:
        """The bad samples met so far, each once, that ``on_error`` "skip" left out or "zero" blackened."""
        return list(self._skipped.values())

    def __repr__(self) -> str:
        batches = f"{len(self)} batches" + ("" if self.batch_size is None else f" of {self.batch_size}")
        return f"FastLoader({self.dataset.store.path!r}): {batches}, {len(self.dataset)} samples"

    def close(self) -> None:
        """End the threads, and the dataset if this loader opened it; twice does no harm. Batches stay valid."""
        if self._owns_dataset and not self._closed and isinstance(self._sampler, OrderSampler):
            self._sampler.settle()  # a state is asked for after close() too
        self._closed = True
        self._producer.close()
        if self._owns_dataset:
            self.dataset.close()

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
            raise ValueError(f"{self.dataset.store.path}: this FastLoader is closed")


def _sample_bytes(dataset: FastDataset, cache: Cache | None) -> NDArray[np.int64]:
    """The bytes that each sample reads from the store; 0 for what is cached, and for samples of a subclass's own."""
    if cache is not None or len(dataset) != len(dataset.store):
        return np.zeros(len(dataset), np.int64)
    return dataset.store.spans(dataset.reader.field.name, np.arange(len(dataset), dtype=np.int64)).sizes


def _numbered(made: Made, indices: NDArray[np.int64], epoch: int) -> Numbered:
    """A batch with its samples; those that were skipped are not among them."""
    if made.samples < len(indices):
        indices = indices[~np.isin(indices, [error.index for error in made.errors])]
    return Numbered(made.batch, epoch, indices)
