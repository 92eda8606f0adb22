"""Pinned batches and asynchronous copies: runs where there is a GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(scope="module")
def raw_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 4,096 raw 64x64 pictures, each filled with its own index."""
    from fastio._native import Buffers
    from fastio.store import SampleBatch, create_store
    from fastio.types.schema import COLUMN, RAW, Field, Schema
    from fastio.types.spans import Spans

    count, size = 4096, 64 * 64 * 3
    path = tmp_path_factory.mktemp("cuda") / "raw.h5"
    pixels = np.repeat((np.arange(count) % 251).astype(np.uint8), size)
    starts = np.arange(count, dtype=np.int64) * size
    spans = Spans(Buffers([pixels]), np.zeros(count, np.int32), starts, np.full(count, size, np.int64))
    schema = Schema((Field("image", RAW, "|u1", (64, 64, 3)), Field("label", COLUMN, "<i8", ())))
    with create_store(path, schema) as writer:
        keys = [f"{i:06d}" for i in range(count)]
        writer.append(SampleBatch(keys, {"image": spans}, {"label": np.arange(count, dtype=np.int64)}))
    return path


def test_batches_are_pinned(raw_store: Path) -> None:
    """With a GPU the images of a batch lie in pinned memory without a copy."""
    from fastio import FastDataset, FastLoader

    with FastLoader(FastDataset(raw_store), 64) as loader:
        images, _ = next(iter(loader))

    assert images.is_pinned()


def test_memory_is_not_reused_under_a_running_copy(raw_store: Path) -> None:
    """Batches dropped right after a non_blocking copy has begun arrive undamaged, while the stream is far behind."""
    from fastio import FastDataset, FastLoader

    stream = torch.cuda.Stream()
    arrived = []
    with FastLoader(FastDataset(raw_store), 64, prefetch_batches=2, shuffle="full") as loader:
        for _ in range(4):
            for images, labels in loader:
                with torch.cuda.stream(stream):
                    torch.cuda._sleep(2_000_000)  # the copy waits; the loader meanwhile decodes on
                    arrived.append((images.to("cuda", non_blocking=True), labels))
    stream.synchronize()

    for images, labels in arrived:
        expected = (labels % 251).to(torch.uint8)[:, None, None, None].expand(-1, 3, 64, 64)
        assert torch.equal(expected, images.cpu())
