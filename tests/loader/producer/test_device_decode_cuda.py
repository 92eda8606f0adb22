"""decode="device" on a GPU, by the real package: runs where there are both."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fastio import FastLoader
from fastio.transforms import Normalize, RandomHorizontalFlip, RandomResizedCrop, ToDtype
from tests.conftest import encode, write_store

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

COUNT = 192


def photo(index: int) -> Any:
    height, width = 120 + 13 * (index % 7), 150 + 17 * (index % 5)
    y, x = np.mgrid[:height, :width]
    planes = [128 + 100 * np.sin(x / 19 + index + phase) * np.cos(y / 17 + phase) for phase in range(3)]
    return np.stack(planes, 2).clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """192 smooth photos; every eighth a PNG, every twelfth a progressive JPEG, three samplings of chroma."""
    pytest.importorskip("nvidia.nvimgcodec")
    values = []
    for index in range(COUNT):
        if index % 8 == 7:
            values.append(encode(photo(index)))
            continue
        file = io.BytesIO()
        Image.fromarray(photo(index)).save(file, "JPEG", quality=95, subsampling=index % 3, progressive=index % 12 == 5)
        values.append(file.getvalue())
    return write_store(tmp_path_factory.mktemp("gpu") / "photos.lmdb", values, np.arange(COUNT))


def test_as_on_the_cpu(store: Path) -> None:
    """Samples, crops and flips of the CPU's loader; of smooth photos no pixel differs by more than some levels."""
    options: dict[str, Any] = {
        "transforms": [RandomResizedCrop(64), RandomHorizontalFlip()], "shuffle": "full", "device": "cuda"
    }  # fmt: skip
    with FastLoader(store, 32, **options) as plain, FastLoader(store, 32, decode="device", **options) as loader:
        for (images, labels), (others, own) in zip(plain, loader, strict=True):
            assert torch.equal(labels, own)
            assert others.is_contiguous(memory_format=torch.channels_last)
            difference = (images.int() - others.int()).abs()
            assert difference.max() <= 24
            assert difference.float().mean() < 2
        for_gpu = sum(index % 8 != 7 and index % 12 != 5 for index in range(COUNT))
        assert for_gpu == loader.stats.decoded_on_device


def test_a_late_consumer(store: Path) -> None:
    """Batches that are dropped at once are whole when the consumer's stream comes to them."""
    transforms = [RandomResizedCrop(48), Normalize((0.5,) * 3, (0.5,) * 3), ToDtype(torch.float16)]
    sums: list[list[torch.Tensor]] = []
    for late in (False, True):
        loader = FastLoader(store, 16, device="cuda", decode="device", transforms=transforms)
        own = []
        for images, labels in loader:
            if late:
                torch.cuda._sleep(3_000_000)
            own.append(images.double().sum() + labels.sum())
            del images, labels
        torch.cuda.synchronize()
        sums.append(own)
        loader.close()

    assert torch.equal(torch.stack(sums[0]), torch.stack(sums[1]))


def test_a_dropped_iterator_gives_memory_back(store: Path) -> None:
    """What was under way when the loop broke off is given back."""
    torch.cuda.synchronize()
    begin = torch.cuda.memory_allocated()
    with FastLoader(store, 16, device="cuda", decode="device", transforms=[RandomResizedCrop(48)]) as loader:
        iterator = iter(loader)
        next(iterator)
        del iterator
    del loader
    torch.cuda.synchronize()

    assert begin == torch.cuda.memory_allocated()
