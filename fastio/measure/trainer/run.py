"""Trains for a number of steps and times them, on a store, a folder, the user's loader, or random batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch

from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.form import LABEL, Form
from fastio.errors import FastioError
from fastio.loader.options import Layout
from fastio.loader.prefetch import DevicePrefetcher
from fastio.measure.loop.data import (
    Data,
    DataOptions,
    FolderDataset,
    is_function,
    is_picture_folder,
    open_data,
    refuse_options,
)
from fastio.measure.loop.mock import MockLoader
from fastio.measure.loop.step_timer import StepSummary, StepTimer, Timeline
from fastio.measure.trainer.distributed import mean_over_ranks
from fastio.measure.trainer.pictures import CIFAR10CNN, RESNET50, Classification
from fastio.measure.trainer.step import StepOptions, TrainStep, Workload
from fastio.measure.trainer.text import TRANSFORMER, NextToken
from fastio.store import open_store

__all__ = [
    "MODELS",
    "SYNTHETIC",
    "TrainResult",
    "accuracy",
    "classes_of",
    "feed",
    "fitted",
    "open_test",
    "open_training",
    "synthetic",
    "train",
]


MODELS = {workload.name: workload for workload in (CIFAR10CNN, RESNET50, TRANSFORMER)}

_WARM_UP = 3  # steps in which torch allocates, chooses kernels and compiles
_LOOK_EVERY = 50  # steps between reads of the loss: each waits for the device


@dataclass(frozen=True, slots=True)
class TrainResult:
    """
    The result of a training.

    ``losses`` are those of all steps, averaged over ranks; ``summary`` and ``timeline`` leave out the first
    ``warm_up`` steps. If epochs end in between, the wait for the next one's first batch counts as loading.
    ``peak_bytes`` is the most memory that torch had allocated on a CUDA device, None elsewhere.
    """

    losses: list[float]
    warm_up: int
    summary: StepSummary
    timeline: Timeline
    peak_bytes: int | None

    @property
    def first_loss(self) -> float:
        """Mean of the first tenth of the steps."""
        return math.fsum(self.losses[: self._tenth]) / self._tenth

    @property
    def last_loss(self) -> float:
        """Mean of the last tenth of the steps."""
        return math.fsum(self.losses[-self._tenth :]) / self._tenth

    @property
    def _tenth(self) -> int:
        return -(-len(self.losses) // 10)


def train(data: Data, step: TrainStep, steps: int, *, on_step: Callable[[int, int], None] | None = None) -> TrainResult:
    """
    Train for ``steps`` steps, over as many epochs as that takes; ``on_step`` gets the steps done and their total.

    Raises FastioError if an epoch is empty, a loss is not finite, or a CUDA device runs out of memory.
    """
    warm_up = min(_WARM_UP, steps // 2)
    log = _Losses(data.name)
    timer = StepTimer()
    device = step.options.device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with closing(_endless(data)) as batches:
        try:
            for batch in islice(batches, warm_up):
                log.add(step(batch))
            _synchronize(device)
            for batch in timer(islice(batches, steps - warm_up)):
                log.add(step(batch))
                if on_step is not None:
                    on_step(warm_up + timer.steps + 1, steps)
        except torch.cuda.OutOfMemoryError as exc:
            raise FastioError(f"{device}: out of memory: try a smaller --batch-size, or --amp bf16") from exc
    losses = mean_over_ranks(log.finished())
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    return TrainResult(losses, warm_up, timer.summary(), timer.timeline(), peak)


def accuracy(step: TrainStep, batches: Iterable[Any]) -> float:
    """Return the share, 0 to 1, of all pictures in ``batches`` that the network classifies correctly."""
    network, options = step.network, step.options
    classes_of(step.workload)
    network.eval()
    right = torch.zeros((), dtype=torch.int64, device=options.device)
    count = 0
    with torch.no_grad(), options.autocast():
        for batch in batches:
            images, labels = step.prepared(batch)
            right += (network(images).argmax(1) == labels).sum()
            count += len(labels)
    network.train()
    return int(right) / count if count else math.nan


def _endless(data: Data) -> Generator[Any]:
    """
    Yield one epoch after the other, each with its number. No batch is kept: its memory belongs to the loader's ring.
    """
    epoch = 0
    while True:
        if hasattr(data.loader, "set_epoch"):
            data.loader.set_epoch(epoch)
        is_empty = True
        for held in map(_in_a_list, data.loader):
            is_empty = False
            yield held.pop()
        if is_empty:
            again = " when it was iterated again: return one that starts over each time" if epoch else ""
            raise FastioError(f"{data.name}: the loader gave no batch{again}")
        epoch += 1


def _in_a_list(batch: Any) -> list[Any]:
    return [batch]


class _Losses:
    """Losses, read from the device now and then. Raises FastioError for one that is not finite."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._read: list[float] = []
        self._waiting: list[torch.Tensor] = []

    def add(self, loss: torch.Tensor) -> None:
        self._waiting.append(loss)
        if len(self._waiting) == _LOOK_EVERY:
            self._look()

    def finished(self) -> list[float]:
        """Return all of them."""
        self._look()
        return self._read

    def _look(self) -> None:
        if not self._waiting:
            return
        losses = torch.stack(self._waiting).tolist()
        self._waiting.clear()
        for step, loss in enumerate(losses, len(self._read)):
            if not math.isfinite(loss):
                raise FastioError(
                    f"{self._name}: the loss of step {step} is {loss}: check the data (`fastio verify`), or train in "
                    "another precision (--amp bf16 or off)"
                )
        self._read += losses


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# Brings batches for a workload to the device: from a store, a folder, the user's loader, or random ones.

SYNTHETIC = "synthetic"


@contextmanager
def open_training(
    name: str, workload: Workload, options: DataOptions, *, settings: StepOptions
) -> Iterator[tuple[Data, Workload]]:
    """
    Open data as ``open_data`` does, for ``feed``, or "synthetic" data; returns them with the workload for them.

    Raises FastioError if the data do not fit the model, or if an option has no effect.
    """
    if name == SYNTHETIC:
        unfit = ("threads", "workers", "shuffle", "crop", "augment", "fields", "window", "dtype")
        refuse_options(name, "because random data are made to fit the model", options, unfit)
        yield synthetic(workload, options.batch_size, settings), workload
        return
    refuse_options(name, "because networks of fastio are trained on samples", options, ("window", "dtype"))
    layout: Layout = "channels_last" if settings.channels_last else "contiguous"
    # A batch of another size would be compiled again, which takes longer than hundreds of steps.
    fields = options.fields or _trained_fields(name, workload)
    chosen = replace(options, fields=fields, layout=layout, drop_last=settings.compiled)
    with open_data(name, chosen) as data:
        fit = fitted(workload, data)
        feed(data, fit, settings)
        yield data, fit


@contextmanager
def open_test(
    name: str, workload: Workload, options: DataOptions, *, settings: StepOptions, trained_on: Data
) -> Iterator[Data]:
    """
    Open a store or a folder for measuring accuracy, as ``open_training`` opens it.

    Raises FastioError if the model does not classify, or if a number is known to mean another class than in training.
    """
    classes_of(workload)
    if name == SYNTHETIC or is_function(name):
        raise FastioError(f"--test {name}: expected a store or a folder of pictures")
    with open_training(name, workload, options, settings=settings) as (data, _):
        if data.samples == 0:
            raise FastioError(f"--test {name}: no samples in it, so there is no accuracy")
        for number, names in enumerate(zip(_class_names(trained_on), _class_names(data), strict=False)):
            if names[0] != names[1]:
                raise FastioError(
                    f"--test {name}: class {number} is {names[1]!r}, but {names[0]!r} in the training data; both must "
                    "have the same classes in the same order"
                )
        yield data


def classes_of(workload: Workload) -> Classification:
    """Return the task of a workload that classifies. Raises FastioError for others."""
    if not isinstance(workload.task, Classification):
        raise FastioError(f"{workload.name} does not classify, so there is no accuracy")
    return workload.task


def _trained_fields(name: str, workload: Workload) -> tuple[str, ...] | None:
    """Return the fields that a model of ours takes from a store of many; None for other data, or if it takes none."""
    if is_function(name) or is_picture_folder(name):
        return None
    with open_store(name) as store:
        if Form.of(store, None).kind != "dict":
            return None
        schema = store.schema
        if isinstance(workload.task, Classification):
            raw = (field for field in schema.payload if field.is_raw_picture)
            taken = schema.picture or next(raw, None)
        else:
            taken = next((field for field in schema.payload if field.traits.is_tokens), None)
        if taken is None:
            return None
        is_labelled = LABEL in schema and schema[LABEL].is_column
        return (taken.name, LABEL) if is_labelled else (taken.name,)


def _class_names(data: Data) -> list[str]:
    """Return the classes' names in the order of their numbers; none if they have no names."""
    loader = data.loader.batches if isinstance(data.loader, DevicePrefetcher) else data.loader
    source = getattr(loader, "dataset", None)
    if isinstance(source, FastDataset):
        return source.classes if source.store.metadata.get("classes") is not None else []
    return source.classes if isinstance(source, FolderDataset) else []


def fitted(workload: Workload, data: Data) -> Workload:
    """
    Return the workload for these data: a text model gets the vocabulary of the store.

    Raises FastioError, before anything is read, if the data are known not to fit the model.
    """
    source = getattr(data.loader, "dataset", None)
    if isinstance(workload.task, Classification):
        if data.kind != "function":  # whose labels may differ from those of the dataset behind its loader
            _check_classes(workload.task, source, f"{data.name}: {workload.name}")
        return workload
    if isinstance(workload.task, NextToken) and isinstance(source, FastDataset):
        if source.token_reader is None:
            raise FastioError(
                f"{data.name}: {workload.name} takes token ids, but the store has {source.reader.field}; pack text "
                f"with --tokenizer, or choose another --model"
            )
        vocabulary = source.token_reader.vocabulary
        if not vocabulary:
            raise FastioError(f"{data.name}: the number of token ids is unknown: pack with --vocab-size")
        return replace(workload, task=replace(workload.task, outputs=vocabulary))
    if isinstance(source, FolderDataset):
        raise FastioError(f"{data.name}: {workload.name} takes token ids, but the folder has pictures")
    return workload


def feed(data: Data, workload: Workload, options: StepOptions) -> None:
    """
    Bring the batches of a store or folder to the device ahead of the step, in the form that the model takes.

    A user's loader stays as it is: its batches may already be on the device, or normalised. The step takes care of
    them.
    """
    if data.kind != "function":
        transforms = workload.task.transforms(options.dtype, channels_last=options.channels_last)
        data.loader = DevicePrefetcher(data.loader, options.device, transforms=transforms)
    data.device = options.device


def synthetic(workload: Workload, batch_size: int, options: StepOptions) -> Data:
    """Repeat one random batch on the device for ever: the limit of training."""
    batch = workload.task.random_batch(batch_size, torch.Generator().manual_seed(options.seed))
    on_device = MockLoader(batch, options.device).batch
    batches = MockLoader(workload.task.prepared(on_device, options.layout), options.device)
    return Data(SYNTHETIC, "synthetic", batches, device=options.device)


def _check_classes(task: Classification, source: object, where: str) -> None:
    """Raise FastioError if a store or folder has no pictures, no classes, or more classes than the model."""
    labels = source.labels if isinstance(source, (FastDataset, FolderDataset)) else None
    if isinstance(source, FastDataset):
        if not source.reader.is_picture:
            raise FastioError(
                f"{where} takes pictures, but the store has {source.reader.field}; choose another --model"
            )
        if labels is None:
            raise FastioError(f"{where} learns classes, but the store has no labels: pack with --labels")
    if labels is not None and labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer) and len(labels):
        task.check_labels(int(labels.min()), int(labels.max()), where)
