"""A producer is one file and one entry of PRODUCERS, as fastio/loader/README.md says."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastio import DevicePrefetcher, FastDataset, FastLoader, SampleError
from fastio.loader.forks import PerProcess
from fastio.loader.producer import PRODUCERS, FinishedBatch, PendingBatch, ProducerContext
from fastio.loader.producer.producer import RestartedBatch
from fastio.samplers.batches import Batches
from fastio.types.metrics import PictureCounts
from fastio.types.placement import Placement, Stage
from fastio.types.schema import BYTES, Field
from tests.conftest import write_store
from tests.forking import answer_of_fork

COUNT = 23


class LengthProducer:
    """Of each value of bytes its length, in a thread; empty values are bad."""

    reads_samples = False
    reads_whole = False
    pool = None
    threads = 1
    buffer_bytes = 0
    placement = Placement({"text": [Stage("a thread", ("length",))]})
    pictures = PictureCounts()

    def __init__(self, context: ProducerContext) -> None:
        self._context = context
        self._executor = PerProcess(partial(ThreadPoolExecutor, 1))

    @staticmethod
    def accepts(context: ProducerContext) -> bool:
        return context.dataset.is_as_stored and context.dataset.reader.field.codec == BYTES

    def submit(self, batches: Batches, *, epoch: int) -> Iterator[PendingBatch]:
        for part in batches.slices():
            yield RestartedBatch(partial(self._start, batches.indices[part]))

    def _start(self, indices: Any) -> Future[FinishedBatch]:
        return self._executor.here().submit(self._make, indices)

    def _make(self, indices: Any) -> FinishedBatch:
        reader = self._context.dataset.reader
        spans = reader.store.spans(reader.field.name, indices)
        bad = np.flatnonzero(spans.sizes == 0)
        errors = [reader.error(indices, spans, int(position), "it is empty") for position in bad]
        if errors and self._context.options.on_error == "raise":
            raise errors[0]
        lengths = torch.from_numpy(spans.sizes[spans.sizes > 0])
        return FinishedBatch(lengths, len(lengths), lengths.nbytes, errors)

    def estimated_bytes(self, batch_bytes: int, *, depth: int) -> int:
        return (depth + 2) * batch_bytes

    def close(self) -> None:
        executor = self._executor.own
        if executor is not None:
            executor.shutdown()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("fastio.loader.producer.registry.PRODUCERS", [LengthProducer, *PRODUCERS])
    values = [b"x" * (0 if index == 7 else index + 1) for index in range(COUNT)]
    return write_store(tmp_path / "a.lmdb", values, None, field=Field("text", BYTES, "|u1", (None,)))


def test_one_file_and_one_entry(store: Path) -> None:
    """Order, position, counters, policies and devices go with a producer that knows nothing of them."""
    good = [index + 1 for index in range(COUNT) if index != 7]
    with FastLoader(store, 4, on_error="skip", shuffle="full") as loader:
        batches = iter(loader)
        first = next(batches).tolist()
        state = loader.state_dict()
        assert good == sorted([*first, *(size for batch in batches for size in batch.tolist())])
        assert [7] == [error.index for error in loader.skipped]
        assert len(good) == loader.stats.samples
        assert ["text: a thread (length)"] == loader.placement.lines

        loader.load_state_dict(state)
        assert good == sorted([*first, *(size for batch in DevicePrefetcher(loader, "cpu") for size in batch.tolist())])


def test_its_errors(store: Path) -> None:
    """A bad sample is raised at its batch, and what it does not accept goes to the next of PRODUCERS."""
    with FastLoader(store, 4) as loader, pytest.raises(SampleError, match=r"\[7\].*it is empty"):
        list(loader)
    with FastLoader(FastDataset(store, len), 1) as loader:
        assert [0, 1] == sorted(batch.item() for batch in loader)[:2]


def test_a_forked_child_goes_on(store: Path) -> None:
    """A child begins anew what its parent's thread had under way."""
    with FastLoader(store, 4, on_error="skip") as loader:
        batches = iter(loader)
        next(batches)
        expected = [index + 1 for index in range(4, COUNT) if index != 7]
        assert expected == answer_of_fork(lambda: [size for batch in batches for size in batch.tolist()])
        assert expected == [size for batch in batches for size in batch.tolist()]
