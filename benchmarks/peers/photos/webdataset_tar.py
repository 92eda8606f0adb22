"""webdataset: tar shards, a shuffle buffer, its WebLoader; decoded by OpenCV or by Pillow."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import webdataset
from PIL import Image
from torch.utils.data import default_collate

from benchmarks.peers import files_pil, opencv
from benchmarks.peers.collate import channels_first
from benchmarks.peers.normalize import to_floats
from benchmarks.peers.work import Work, names_and_numbers

__all__ = ["loader", "pack"]


def pack(work: Work) -> None:
    """Four shards, so that both workers have some."""
    numbers = names_and_numbers(work)
    pattern = str(work.packed / "train-%06d.tar")
    with webdataset.ShardWriter(pattern, maxcount=-(-len(numbers) // 4), verbose=0) as sink:
        for name, number in numbers.items():
            data = (work.source / name).read_bytes()
            sink.write({"__key__": f"{number:08d}", Path(name).suffix[1:]: data, "cls": str(number)})


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, 3, 224, 224) and numbers."""
    shuffled = work.is_random
    shards = sorted(str(path) for path in work.packed.glob("*.tar"))
    floats = work.task == "floats_224"
    decode = _pillow(work.task) if work.variant == "pillow" else opencv.transform("random_224" if floats else work.task)
    tensor = to_floats if floats else torch.from_numpy
    dataset = webdataset.WebDataset(shards, shardshuffle=len(shards) if shuffled else False)
    if shuffled:
        dataset = dataset.shuffle(1000)
    dataset = dataset.to_tuple("jpg;webp", "cls").map_tuple(lambda data: tensor(decode(data)), int)
    batches = dataset.batched(work.batch_size, collation_fn=default_collate if floats else channels_first)
    return webdataset.WebLoader(batches, batch_size=None, num_workers=work.workers, persistent_workers=True)


def _pillow(task: str) -> Callable[[bytes], Any]:
    transform = getattr(files_pil, task)
    return lambda data: np.array(transform(Image.open(io.BytesIO(data)).convert("RGB")))
