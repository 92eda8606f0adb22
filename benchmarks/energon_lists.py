"""Energon over rows with lists of photos: ``picture_lists.py`` runs this in an environment with megatron-energon.

PYTHON energon_lists.py SHARDS BATCH SECONDS

Prints photos a second of CPU time: a cooker makes samples of its crude rows, its decoder opens photos by Pillow, and
the encoder crops each by one call of Pillow, which decodes and resizes the part that it needs, and flips it.
"""

from __future__ import annotations

import math
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from megatron.energon import (
    Cooker,
    CrudeSample,
    DefaultTaskEncoder,
    InterleavedSample,
    SampleDecoder,
    WorkerConfig,
    basic_sample_keys,
    get_loader,
    get_train_dataset,
    stateless,
)
from megatron.energon.flavors import BaseWebdatasetFactory
from PIL import Image

_SIDE = 224


@stateless
def cook(sample: CrudeSample) -> InterleavedSample:
    """Return the photos of a row and its conversation."""
    names = sorted(name for name in sample if name.endswith("jpg"))
    return InterleavedSample(**basic_sample_keys(sample), sequence=[*(sample[name] for name in names), sample["json"]])


class Encoder(DefaultTaskEncoder[Any, Any, Any, Any]):
    """Crops and flips each photo of a sample; a batch has all photos, how many each row has, and the conversations."""

    cookers = [Cooker(cook)]  # noqa: RUF012 - as Energon documents it
    decoder = SampleDecoder(image_decode="pilrgb")

    @stateless(restore_seeds=True)
    def encode_sample(self, sample: InterleavedSample) -> dict[str, Any]:
        *photos, talk = sample.sequence
        return {"photos": list(map(_cropped, photos)), "talk": talk}

    def batch(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        photos = [photo for sample in samples for photo in sample["photos"]]
        counts = torch.tensor([len(sample["photos"]) for sample in samples])
        return {"images": torch.stack(photos), "images_counts": counts, "talk": [sample["talk"] for sample in samples]}

    def encode_batch(self, batch: dict[str, Any]) -> dict[str, Any]:
        return batch


def _cropped(photo: Image.Image) -> torch.Tensor:
    """Return a part of a photo as RandomResizedCrop draws it, (3, side, side) uint8."""
    width, height = photo.size
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            break
    else:
        w = h = min(width, height)
    left, top = random.randint(0, width - w), random.randint(0, height - h)
    cropped = photo.resize((_SIDE, _SIDE), Image.Resampling.BILINEAR, box=(left, top, left + w, top + h))
    if random.random() < 0.5:
        cropped = cropped.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(cropped).transpose(2, 0, 1).copy())


def main(shards: Path, batch_size: int, seconds: float) -> None:
    """Print the rate, without the first epoch."""
    torch.set_num_threads(1)
    if not (shards / ".nv-meta" / "dataset.yaml").exists():
        names = sorted(path.name for path in shards.glob("*.tar"))
        BaseWebdatasetFactory.prepare_dataset(shards, names, split_parts_ratio=[("train", 1.0)], workers=1)
        settings = {"__module__": "megatron.energon", "__class__": "CrudeWebdataset"}
        (shards / ".nv-meta" / "dataset.yaml").write_text(yaml.safe_dump(settings))
    workers = WorkerConfig(rank=0, world_size=1, num_workers=0)
    dataset = get_train_dataset(
        shards,
        worker_config=workers,
        batch_size=batch_size,
        shuffle_buffer_size=100,
        max_samples_per_sequence=100,
        task_encoder=Encoder(),
    )
    batches = iter(get_loader(dataset))
    for _ in range(10):
        next(batches)
    photos, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        batch = next(batches)
        assert batch["images"].shape[1:] == (3, _SIDE, _SIDE)
        assert len(batch["images"]) == batch["images_counts"].sum()
        photos += len(batch["images"])
    print(photos / (time.process_time() - start))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
