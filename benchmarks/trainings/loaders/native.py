"""FastLoader: what an epoch needs is decoded, cropped and coloured in native threads."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

import fastio
from benchmarks.trainings.work import (
    CLASSES,
    CROPS,
    FRAMES,
    IGNORED,
    IMAGE,
    MEAN,
    MOST_PATCHES,
    MOST_PIXELS,
    MOST_TOKENS,
    PATCH,
    PATCHES,
    SHAPES,
    STD,
    STRIDE,
    TRAININGS,
    WORDS,
    Batch,
    Epochs,
    Work,
    arrays_of,
    chats_of,
    patches_of,
    photos_of,
)
from fastio import transforms as t
from fastio.converters import open_source
from fastio.converters import pack as pack_source

__all__ = ["LOADERS", "pack"]


def pack(work: Work) -> None:
    """A store of each source, as the guides say it."""
    for name in ("photos", "scenes", "videos"):
        pack_source(open_source(getattr(work, name)), work.packed / f"{name}.lmdb", overwrite=True)
    boxes = json.loads(work.boxes.read_text())
    with fastio.Writer(work.packed / "boxes.lmdb", fields={"image": "image", "boxes": "xyxy"}, overwrite=True) as out:
        for path, _ in photos_of(work):
            key = path.relative_to(work.photos).as_posix()
            out.write({"image": path, "boxes": boxes[key]}, key=key)
    number_of = {word: number for number, word in enumerate(WORDS)}
    fields = {"images": "image[*]", "tokens": "tokens16", "loss": "loss"}
    with fastio.Writer(work.packed / "chats.lmdb", fields=fields, overwrite=True) as out:
        for photos, text in chats_of(work):
            ids = [number_of[word] for word in text.split()]
            out.write({"images": photos, "tokens": ids, "loss": [0, len(ids)]})


def _loader(work: Work, training: str, source: Any = "photos.lmdb", **options: Any) -> fastio.FastLoader:
    size = None if "batch_sampler" in options else TRAININGS[training].batch or work.batch_size
    source = work.packed / source if isinstance(source, str) else source
    order = {} if "batch_sampler" in options else {"shuffle": True}
    seed = int.from_bytes(os.urandom(4))  # other draws in every process, as torch has them
    return fastio.FastLoader(source, size, **order, **options, seed=seed, threads=max(work.workers, 1))


def _crop(side: int, scale: tuple[float, float] = (0.08, 1.0), **options: Any) -> list[Any]:
    return [t.RandomResizedCrop(side, scale=scale, **options), t.RandomHorizontalFlip()]


def _views(work: Work, training: str, views: Sequence[tuple[int, list[Any]]]) -> Epochs:
    return arrays_of(_loader(work, training, views=views), lambda batch: (batch[0], len(batch[1])))


def _crops(training: str, work: Work) -> Epochs:
    return _views(work, training, [(crop.count, _crop(crop.side, crop.scale)) for crop in CROPS[training]])


def _dinov2(work: Work) -> Epochs:
    colours = [t.RandomApply([t.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8), t.RandomGrayscale(0.2)]
    blur, end = t.GaussianBlur(9, (0.1, 2.0)), t.Normalize(MEAN, STD)
    large, small = (_crop(s, scale, interpolation="bicubic") for s, scale in ((224, (0.32, 1.0)), (96, (0.05, 0.32))))
    first = [*large, *colours, blur, end]
    second = [*large, *colours, t.RandomApply([blur], p=0.1), t.RandomSolarize(128, 0.2), end]
    local = [*small, *colours, t.RandomApply([blur], p=0.5), end]
    return _views(work, "dinov2", [(1, first), (1, second), (8, local)])


def _simclr_colours(work: Work) -> Epochs:
    colours = [t.RandomApply([t.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8), t.RandomGrayscale(0.2)]
    return _views(work, "simclr-colours", [(2, [*_crop(224), *colours])])


def _pictures(batch: Any) -> Batch:
    return [batch[0]], len(batch[0])


def _randaugment(work: Work) -> Epochs:
    return arrays_of(_loader(work, "randaugment", transforms=[*_crop(224), t.RandAugment()]), _pictures)


def _repeats(work: Work) -> Epochs:
    return arrays_of(_loader(work, "repeats", transforms=_crop(224), repeats=3), _pictures)


def _buckets(work: Work) -> Epochs:
    dataset = fastio.FastDataset(work.packed / "photos.lmdb")
    sampler = fastio.ShapeBucketSampler(dataset.sizes(), shapes=SHAPES, batch_size=work.batch_size)
    loader = _loader(work, "buckets", dataset, batch_sampler=sampler, transforms=[t.ResizeToBucket(sampler)])
    return arrays_of(loader, _pictures)


def _naflex(work: Work) -> Epochs:
    steps = [t.RandomHorizontalFlip(), t.ResizeToTokens(PATCHES, PATCH), t.Patchify(PATCH, PATCHES)]
    return arrays_of(_loader(work, "naflex", transforms=[*steps, t.Normalize(MEAN, STD)]), patches_of)


def _pictured(work: Work) -> Epochs:
    dataset, resize = fastio.FastDataset(work.packed / "chats.lmdb"), t.SmartResize(28, max_pixels=MOST_PIXELS)
    steps = [resize, t.Patchify(14, order="qwen", packed=True), t.Normalize(MEAN, STD)]
    tokens, patches = t.vision_lengths(dataset, steps)
    packs = fastio.PackSampler(tokens, max_tokens=MOST_TOKENS, patches=patches, max_patches=MOST_PATCHES)
    collate = fastio.PackCollate(MOST_TOKENS, image_token=IMAGE)
    loader = _loader(work, "pictured", dataset, batch_sampler=packs, transforms=steps, collate=collate)
    names = ("input_ids", "labels", "position_ids", "cu_seqlens")

    def arrays(batch: Any) -> Batch:
        pictures = batch["images"]
        return [*map(batch.get, names), pictures["patches"], pictures["grid_thw"]], len(batch["lengths"])

    return arrays_of(loader, arrays)


def _scenes(training: str, work: Work) -> Epochs:
    crop = [t.RandomCrop(512, pad_if_needed=True, fill=128, mask_fill=IGNORED), t.RandomHorizontalFlip()]
    turn = [t.RandomRotation(10, "bilinear", fill=128, mask_fill=IGNORED)] if training == "rotation" else []
    dataset = fastio.FastDataset(work.packed / "scenes.lmdb", fields=("image", "mask"))
    loader = _loader(work, training, dataset, transforms=[*crop, *turn])
    return arrays_of(loader, lambda batch: (batch, len(batch[0])))


def _mosaic(work: Work) -> Epochs:
    loader = _loader(
        work, "mosaic", "boxes.lmdb", collate="list", transforms=[t.Letterbox(640, fill=114), t.Mosaic(640)]
    )
    return arrays_of(loader, _with_boxes)


def _with_boxes(batch: Any) -> Batch:
    """Pictures, the number of boxes of each, and all boxes."""
    boxes = batch["boxes"]
    return [batch["image"], np.array([len(rows) for rows in boxes]), np.concatenate(boxes)], len(boxes)


def _clips(work: Work) -> Epochs:
    dataset, size = fastio.FastDataset(work.packed / "videos.lmdb"), TRAININGS["clips"].batch
    options = {"frames": FRAMES, "stride": STRIDE, "clips_per_video": 1}
    sampler = fastio.ClipSampler(dataset, batch_size=size, **options)
    return arrays_of(_loader(work, "clips", dataset, batch_sampler=sampler, transforms=_crop(224)), _pictures)


def _mix(work: Work) -> Epochs:
    mix = t.OneOf([t.MixUp(0.8, num_classes=CLASSES), t.CutMix(1.0, num_classes=CLASSES)])
    loader = _loader(work, "mix", transforms=[*_crop(224), mix, t.Normalize(MEAN, STD)])
    return arrays_of(loader, lambda batch: (batch, len(batch[0])))


LOADERS: dict[str, dict[str, Callable[[Work], Iterable[Batch]]]] = {
    "fastio": {
        "dinov2-crops": partial(_crops, "dinov2-crops"),
        "dinov2": _dinov2,
        "simclr": partial(_crops, "simclr"),
        "simclr-colours": _simclr_colours,
        "randaugment": _randaugment,
        "buckets": _buckets,
        "naflex": _naflex,
        "pictured": _pictured,
        "segmentation": partial(_scenes, "segmentation"),
        "rotation": partial(_scenes, "rotation"),
        "mosaic": _mosaic,
        "clips": _clips,
        "mix": _mix,
        "repeats": _repeats,
    }
}
