"""Batches on a GPU: runs where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from fastio import DevicePrefetcher, FastLoader
from fastio.types.schema import RAW, Field
from tests.conftest import write_store

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

COUNT = 2048
SIDE = 64


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,048 raw pictures 64x64, each filled with its index modulo 251, labelled with the index."""
    values = [bytes([index % 251]) * (SIDE * SIDE * 3) for index in range(COUNT)]
    path = tmp_path_factory.mktemp("cuda") / "a.h5"
    return write_store(path, values, np.arange(COUNT), field=Field("image", RAW, "|u1", (SIDE, SIDE, 3)))


def pageable() -> Any:
    """The same samples as pageable tensors."""
    labels = torch.arange(COUNT)
    return TensorDataset((labels % 251).to(torch.uint8)[:, None, None, None].repeat(1, 3, SIDE, SIDE), labels)


def batches_of(kind: str, store: Path) -> Any:
    """Each way to a GPU: a loader with its own device, a prefetcher, and foreign batches, pinned and not."""
    if kind == "short":
        return FastLoader(store, 64, device="cuda", shuffle="full")
    if kind == "cached":
        return FastLoader(store, 64, device="cuda", cache="device", shuffle="full")
    if kind == "long":
        return DevicePrefetcher(FastLoader(store, 64, shuffle="full"), "cuda")
    return DevicePrefetcher(DataLoader(pageable(), 64, pin_memory=kind == "pinned"), "cuda", depth=3)


@pytest.mark.filterwarnings("ignore:.*pin_memory.*:DeprecationWarning")
@pytest.mark.parametrize("kind", ["short", "cached", "long", "pinned", "pageable"])
def test_batches_arrive_undamaged_on_a_late_consumer(kind: str, store: Path) -> None:
    """Each sample arrives once and whole, although the consumer's stream is far behind and drops batches at once."""
    sums = []
    for images, labels in batches_of(kind, store):
        assert images.device.type == labels.device.type == "cuda"
        torch.cuda._sleep(2_000_000)  # the step begins late: neither memory may be used again before
        expected = (labels % 251).to(torch.uint8)[:, None, None, None]
        sums.append(torch.stack([(images != expected).sum(), labels.sum()]))
        del images, labels
    wrong, total = torch.stack(sums).sum(0).tolist()

    assert wrong == 0
    assert COUNT * (COUNT - 1) // 2 == total


def test_batches_that_are_kept_stay(store: Path) -> None:
    """All batches of an epoch, kept, hold their own samples at its end."""
    for images, labels in list(FastLoader(store, 64, device="cuda")):
        expected = (labels % 251).to(torch.uint8)[:, None, None, None].expand_as(images)
        assert torch.equal(expected, images)


def test_memory_is_bounded(store: Path) -> None:
    """A consumer that never looks at the GPU does not pile up batches there."""
    size = 64 * SIDE * SIDE * 3
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    # Active memory: what has died but may still be read by a stream counts too.
    begin = torch.cuda.memory_stats()["active_bytes.all.current"]
    for images, _ in FastLoader(store, 64, device="cuda"):
        torch.cuda._sleep(5_000_000)
        images.sum()
        del images
    torch.cuda.synchronize()

    assert torch.cuda.memory_stats()["active_bytes.all.peak"] - begin < 10 * size


def test_transforms_run_on_the_side_stream(store: Path) -> None:
    """A transform sees the copied batch, on a stream that is not the consumer's."""
    streams = []

    def halve(batch: Any) -> Any:
        streams.append(torch.cuda.current_stream())
        return [batch[0].float() / 2, batch[1]]

    for images, labels in DevicePrefetcher(FastLoader(store, 64), "cuda", transforms=[halve]):
        assert torch.equal((labels % 251) / 2, images[:, 0, 0, 0])
    assert torch.cuda.current_stream() not in streams


def test_the_layout_is_kept(store: Path) -> None:
    """channels_last arrives as channels_last, by one copy."""
    images, _ = next(iter(FastLoader(store, 64, device="cuda", layout="channels_last")))

    assert images.is_contiguous(memory_format=torch.channels_last)


def test_batches_made_on_the_device_are_left_there() -> None:
    """What is on the device is not copied, and transforms wait for what made it."""

    def source() -> Iterator[Any]:
        for number in range(5):
            torch.cuda._sleep(2_000_000)
            yield torch.full((1000,), float(number), device="cuda")

    got = [float(batch.unique()) for batch in DevicePrefetcher(source(), "cuda", transforms=[lambda batch: batch + 1])]

    assert got == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_leaving_early(store: Path) -> None:
    """A loop that is left early leaves nothing allocated."""
    torch.cuda.synchronize()
    begin = torch.cuda.memory_allocated()
    for _ in range(5):
        iterator = iter(FastLoader(store, 64, device="cuda"))
        next(iterator)
        del iterator
    torch.cuda.synchronize()

    assert begin == torch.cuda.memory_allocated()
