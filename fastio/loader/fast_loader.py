"""FastLoader: batches of a packed store, decoded ahead of the training loop by native threads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NoReturn, Self

import torch
from torch.utils.data import Dataset

from fastio.dataset.token_collate import TokenCollate
from fastio.errors import SampleError
from fastio.loader.device import Numbered
from fastio.loader.iteration import BatchIteration
from fastio.loader.options import (
    Cache,
    CollateName,
    Decode,
    Layout,
    LoaderOptions,
    OnError,
    OrderOptions,
    PixelOptions,
    Quality,
    SampleOptions,
    WorkOptions,
)
from fastio.loader.position import Cursor, LoaderPosition
from fastio.loader.wiring import wire
from fastio.samplers.batches import BatchSampler
from fastio.samplers.epoch import ClosedBatchSampler, EpochSampler
from fastio.samplers.order import Shuffle, Uneven
from fastio.transforms.batch.recipe import AnyTransform
from fastio.types.metrics import LoaderStats

__all__ = ["FastLoader"]


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
        options = LoaderOptions(
            SampleOptions(indices, sampler, batch_sampler, weights, samples_per_epoch),
            OrderOptions(batch_size, shuffle, seed, drop_last, rank, world_size, uneven),
            PixelOptions(transforms, collate, quality, layout, device, cache, decode),
            WorkOptions(threads, prefetch_batches, on_error, verify, pin_memory),
        )
        self._wiring = wiring = wire(dataset, options)
        self._selection, self._delivery = wiring.selection, wiring.delivery
        self._position = LoaderPosition(wiring.selection, {"transforms": wiring.transforms, "quality": quality})
        self._iteration = BatchIteration(wiring, self._position, is_tuned=options.work.threads == 0)
        self.base, self.division = wiring.selection.base, wiring.selection.plan.division
        self.rank, self.world_size = wiring.selection.plan.share.rank, wiring.selection.plan.share.world_size
        self.drop_last, self.quality, self.pin_memory = drop_last, quality, wiring.options.pin_memory

    def __len__(self) -> int:
        """Batches in an epoch, the same on every rank."""
        return self._selection.sampler.count(self._position.next_epoch)

    def __iter__(self) -> Iterator[Any]:
        cursor = self._begin()
        if self._delivery is None:
            return self._iteration.run(cursor, cursor, is_numbered=False)
        ahead = replace(cursor)  # of the copies; the consumer's own moves when a batch reaches it
        numbered = self._iteration.run(ahead, cursor, is_numbered=True)
        return self._delivery.run(numbered, place=lambda: ahead.place, arrive=cursor.move)

    def numbered(self) -> Iterator[Numbered]:
        """As ``iter``, each batch with its epoch and the indices of its samples; always on the CPU."""
        cursor = self._begin()
        return self._iteration.run(cursor, cursor, is_numbered=True)

    def _begin(self) -> Cursor:
        """The cursor of a new iteration; ValueError if it would not give what the loader was built for."""
        self._iteration.check_open()
        self._selection.plan.share.check_ranks(f"{self.base.store.path}: this FastLoader")
        self._selection.check_unchanged(reads_samples=self._wiring.producer.reads_samples)
        return self._position.iterate()

    def set_epoch(self, epoch: int) -> None:
        """
        Let the next iteration be this epoch.

        After ``load_state_dict``, naming the epoch of the state keeps the position within it, so that the usual
        ``for epoch in range(...): loader.set_epoch(epoch)`` resumes too; another epoch begins at its beginning, and a
        warning is logged.
        """
        self._position.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """
        Where the latest iteration stands, in plain numbers: the next batch that its consumer has not had.

        What is decoded ahead does not count. The same on every rank.
        """
        return self._position.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """
        Let the next iteration go on at that batch. ValueError, naming what differs, for another configuration.

        The order that ``shuffle=True`` was when the state was saved is kept, on this machine too.
        """
        self._position.load_state_dict(state)

    @property
    def dataset(self) -> Any:
        """
        What was passed, as in torch; with ``indices`` a FastSubset of it, of a path its FastDataset.

        Another one needs another loader. ``base`` is the FastDataset that holds its samples.
        """
        return self._selection.dataset

    @property
    def batch_size(self) -> int | None:
        """Samples of a batch of one rank; None where the batch_sampler decides. As in torch, it cannot be set."""
        return self._selection.plan.batch_size

    @property
    def sampler(self) -> EpochSampler:
        """For ``loader.sampler.set_epoch(epoch)``, as loops written for a DistributedSampler have it."""
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
        """For trainers that look for one; TypeError where it is iterated."""
        return ClosedBatchSampler(self.sampler)

    @property
    def stats(self) -> LoaderStats:
        """Counters since the loader was made: see LoaderStats."""
        return self._iteration.report()

    @property
    def skipped(self) -> list[SampleError]:
        """The bad samples met so far, each once, that ``on_error`` "skip" left out or "zero" blackened."""
        return list(self._iteration.skipped.values())

    def __repr__(self) -> str:
        batches = f"{len(self)} batches" + ("" if self.batch_size is None else f" of {self.batch_size}")
        return f"FastLoader({self.base.store.path!r}): {batches}, {len(self._selection)} samples"

    def close(self) -> None:
        """End the threads, and the dataset if this loader opened it; twice does no harm. Batches stay valid."""
        order = self._selection.plan.order
        if self._selection.is_opened and order is not None and not self._iteration.is_closed:
            order.settle()  # a state is asked for after close() too
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
        raise TypeError("a FastLoader holds threads and cannot be pickled; pass the FastDataset and build it there")
