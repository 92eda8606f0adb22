"""A loader over a set in an object store: the batches of the local files, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader
from fastio.errors import StoreError
from fastio.store import SampleBatch, create_store
from fastio.store.files.remote_options import RemoteOptions
from fastio.store.folders import folder_of
from fastio.transforms import RandomCrop
from fastio.types.schema import COLUMN, IMAGE, Field, Schema
from tests.conftest import as_spans, encode, pictures
from tests.servers.fixtures import Bucket


@pytest.fixture
def paths(bucket: Bucket, tmp_path: Path) -> tuple[str, str]:
    """A set of some shards by its pattern, as a URL and as files."""
    local = tmp_path / "in-%06d.tar"
    values = [encode(pixels) for pixels in pictures(300)]
    image = Field("image", IMAGE, "|u1", (None, None, None))
    label = np.arange(300, dtype=np.int64) % 3
    with create_store(local, Schema((image, Field("label", COLUMN, "<i8", ()))), shard_bytes=30_000) as writer:
        keys = [f"{number:04d}.png" for number in range(300)]
        writer.append(SampleBatch(keys, {"image": as_spans(values)}, {"label": label}, {}))
        writer.close({"classes": None})
    folder, _ = folder_of(f"{bucket.url}/", RemoteOptions(bucket.options))
    for path in sorted(tmp_path.iterdir()):
        folder.put(path.name, path)
    return f"{bucket.url}/in-%06d.tar", str(local)


@pytest.mark.parametrize("shuffle", [False, True, "full"])
def test_tensors_and_receipts_are_equal(bucket: Bucket, paths: tuple[str, str], shuffle: Any) -> None:
    """Crops, shuffle and two ranks: the same tensors and receipts, also after a resume."""
    url, local = paths
    options: dict[str, Any] = {"shuffle": shuffle, "seed": 5, "threads": 1, "transforms": [RandomCrop(8, padding=2)]}
    for rank in range(2):
        with (
            FastDataset(url, storage_options=bucket.options) as remote,
            FastLoader(remote, 16, rank=rank, world_size=2, **options) as ours,
            FastLoader(local, 16, rank=rank, world_size=2, **options) as plain,
        ):
            batches = iter(plain)
            for _ in range(3):
                next(batches)
            ours.load_state_dict(plain.state_dict())
            for (got, labels), (expected, expected_labels) in zip(ours, batches, strict=True):
                assert torch.equal(got, expected)
                assert torch.equal(labels, expected_labels)
            assert [images.sum() for images, _ in ours] == [images.sum() for images, _ in plain]
            assert ours.receipt(own=True) == plain.receipt(own=True)


def test_workers(bucket: Bucket, paths: tuple[str, str]) -> None:
    """Spawned workers of a DataLoader read it with the options of its parent; forked ones say what to do."""
    url, local = paths
    with FastDataset(url, ToShape(), storage_options=bucket.options) as dataset:
        expected = [tuple(sample) for sample in FastDataset(local, ToShape())]
        assert expected[7] == tuple(dataset[7])
        spawned = DataLoader(dataset, 150, num_workers=1, multiprocessing_context="spawn", collate_fn=list)
        assert expected == [tuple(sample) for batch in spawned for sample in batch]
        with pytest.raises(StoreError, match="spawn"):
            list(DataLoader(dataset, 150, num_workers=1, multiprocessing_context="fork", collate_fn=list))


class ToShape:
    """The size of a picture."""

    def __call__(self, picture: Any) -> Any:
        """Two numbers."""
        return picture.size
