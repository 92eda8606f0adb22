"""
What people write: files, Pillow, torchvision's transforms v2, torch's DataLoader.

Two ways to write colours: transforms of Pillow's pictures, and of uint8 tensors made right after the crop.
"""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2

from benchmarks.trainings.work import (
    CLASSES,
    CROPS,
    FRAMES,
    IGNORED,
    MEAN,
    PATCH,
    PATCHES,
    STD,
    STRIDE,
    TRAININGS,
    Batch,
    Epochs,
    Work,
    arrays_of,
    nearest_shape,
    patches_of,
    photos_of,
    scenes_of,
    videos_of,
)

__all__ = ["LOADERS"]

_TO_TENSOR = v2.PILToTensor()


class _Items(Dataset[Any]):
    """A function of each item of a list."""

    def __init__(self, items: Sequence[Any], read: Callable[[Any], Any]) -> None:
        self._items, self._read = items, read

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> Any:
        return self._read(self._items[index])


def _open(path: Any) -> Image.Image:
    with Image.open(path) as file:
        return file.convert("RGB")


def _loader(items: Sequence[Any], read: Callable[[Any], Any], work: Work, training: str, **options: Any) -> Any:
    size = TRAININGS[training].batch or work.batch_size
    return DataLoader(_Items(items, read), size, shuffle=True, num_workers=work.workers, **options)


def _crop(side: int, scale: tuple[float, float], interpolation: InterpolationMode = InterpolationMode.BILINEAR) -> Any:
    return [v2.RandomResizedCrop(side, scale=scale, interpolation=interpolation), v2.RandomHorizontalFlip()]


def _views(training: str, steps: Sequence[Callable[[Any], Any]], work: Work) -> Epochs:
    """Photos, each step one view."""

    def read(item: Any) -> Any:
        picture = _open(item[0])
        return [step(picture) for step in steps], item[1]

    return arrays_of(_loader(photos_of(work), read, work, training), lambda batch: (batch[0], len(batch[1])))


def _crops(training: str, work: Work) -> Epochs:
    steps = [
        v2.Compose([*_crop(crop.side, crop.scale), _TO_TENSOR]) for crop in CROPS[training] for _ in range(crop.count)
    ]
    return _views(training, steps, work)


def _chain(crop: Sequence[Any], colours: Sequence[Any], end: Sequence[Any], *, tensors: bool) -> Any:
    """Colours of Pillow's pictures, or of tensors."""
    middle = [_TO_TENSOR, *colours] if tensors else [*colours, _TO_TENSOR]
    return v2.Compose([*crop, *middle, *end])


def _dinov2(work: Work, *, tensors: bool) -> Epochs:
    jitter = v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8)
    colours = [jitter, v2.RandomGrayscale(0.2)]
    blur, solarize = v2.GaussianBlur(9, (0.1, 2.0)), v2.RandomSolarize(128, 0.2)
    end = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    bicubic = InterpolationMode.BICUBIC
    large, small = _crop(224, (0.32, 1.0), bicubic), _crop(96, (0.05, 0.32), bicubic)
    first = _chain(large, [*colours, blur], end, tensors=tensors)
    second = _chain(large, [*colours, v2.RandomApply([blur], p=0.1), solarize], end, tensors=tensors)
    local = _chain(small, [*colours, v2.RandomApply([blur], p=0.5)], end, tensors=tensors)
    return _views("dinov2", [first, second, *[local] * 8], work)


def _simclr_colours(work: Work, *, tensors: bool) -> Epochs:
    colours = [v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8), v2.RandomGrayscale(0.2)]
    return _views("simclr-colours", [_chain(_crop(224, (0.08, 1.0)), colours, [], tensors=tensors)] * 2, work)


def _randaugment(work: Work, *, tensors: bool) -> Epochs:
    return _views("randaugment", [_chain(_crop(224, (0.08, 1.0)), [v2.RandAugment()], [], tensors=tensors)], work)


def _repeats(work: Work) -> Epochs:
    """Each photo three times in an epoch, decoded each time, as timm's sampler does it."""
    step = v2.Compose([*_crop(224, (0.08, 1.0)), _TO_TENSOR])
    loader = _loader(photos_of(work) * 3, lambda item: (step(_open(item[0])), item[1]), work, "repeats")
    return arrays_of(loader, lambda batch: ([batch[0]], len(batch[1])))


class _Buckets:
    """A batch_sampler: pictures of one shape together, batches in random order."""

    def __init__(self, shapes: Sequence[tuple[int, int]], batch_size: int) -> None:
        self._members: dict[tuple[int, int], list[int]] = defaultdict(list)
        for index, shape in enumerate(shapes):
            self._members[shape].append(index)
        self._size = batch_size

    def __iter__(self) -> Iterator[list[int]]:
        batches = []
        for members in self._members.values():
            mixed = random.sample(members, len(members))
            batches += [mixed[start : start + self._size] for start in range(0, len(mixed), self._size)]
        yield from random.sample(batches, len(batches))


def _buckets(work: Work) -> Epochs:
    photos = photos_of(work)
    shapes = []
    for path, _ in photos:
        with Image.open(path) as file:
            shapes.append(nearest_shape(*file.size))

    def read(item: Any) -> torch.Tensor:
        (path, _), (height, width) = item
        picture = _open(path)
        scale = max(height / picture.height, width / picture.width)
        size = [max(height, round(picture.height * scale)), max(width, round(picture.width * scale))]
        picture = v2.functional.center_crop(v2.functional.resize(picture, size), [height, width])
        return _TO_TENSOR(picture)  # type: ignore[no-any-return]

    items = _Items(list(zip(photos, shapes, strict=True)), read)
    loader = DataLoader(items, batch_sampler=_Buckets(shapes, work.batch_size), num_workers=work.workers)
    return arrays_of(loader, lambda batch: ([batch], len(batch)))


def _size_for(width: int, height: int) -> tuple[int, int]:
    """Height and width of as many patches as fit, proportions kept: halved until the factor is known."""
    low, high = 0.0, 100.0
    while high - low >= 1e-5:
        factor = (low + high) / 2
        count = math.ceil(height * factor / PATCH) * math.ceil(width * factor / PATCH)
        low, high = (factor, high) if count <= PATCHES else (low, factor)
    return math.ceil(height * low / PATCH) * PATCH, math.ceil(width * low / PATCH) * PATCH


def _naflex(work: Work) -> Epochs:
    """Patches cut by reshape, padded by the collate."""
    end = v2.Compose([v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    normalize = v2.Normalize(MEAN, STD)

    def read(item: Any) -> tuple[torch.Tensor, torch.Tensor, int]:
        picture = _open(item[0])
        height, width = _size_for(*picture.size)
        picture = normalize(end(picture.resize((width, height), Image.Resampling.BICUBIC)))
        rows, columns = height // PATCH, width // PATCH
        patches = picture.reshape(3, rows, PATCH, columns, PATCH).permute(1, 3, 2, 4, 0).reshape(rows * columns, -1)
        return patches, torch.cartesian_prod(torch.arange(rows), torch.arange(columns)), item[1]

    def collate(samples: Any) -> Any:
        patches = torch.zeros(len(samples), PATCHES, 3 * PATCH * PATCH)
        places = torch.zeros(len(samples), PATCHES, 2, dtype=torch.int64)
        valid = torch.zeros(len(samples), PATCHES, dtype=torch.bool)
        for row, (own, at, _) in enumerate(samples):
            patches[row, : len(own)], places[row, : len(own)], valid[row, : len(own)] = own, at, True
        named = {"patches": patches, "patch_coord": places, "patch_valid": valid}
        return named, torch.tensor([label for _, _, label in samples])

    return arrays_of(_loader(photos_of(work), read, work, "naflex", collate_fn=collate), patches_of)


def _scenes(training: str, work: Work) -> Epochs:
    fill = {tv_tensors.Image: 128, tv_tensors.Mask: IGNORED}
    crop = [v2.RandomCrop(512, pad_if_needed=True, fill=fill), v2.RandomHorizontalFlip()]
    turn = v2.RandomRotation(10, interpolation=InterpolationMode.BILINEAR, fill=fill)
    steps = v2.Compose([*crop, turn] if training == "rotation" else crop)

    def read(paths: Any) -> tuple[torch.Tensor, torch.Tensor]:
        with Image.open(paths[1]) as mask:
            classes = tv_tensors.Mask(np.array(mask))
        picture, classes = steps(tv_tensors.Image(_TO_TENSOR(_open(paths[0]))), classes)
        return picture.as_subclass(torch.Tensor), classes.as_subclass(torch.Tensor)

    return arrays_of(_loader(scenes_of(work), read, work, training), lambda batch: (batch, len(batch[0])))


def _mosaic(work: Work) -> Epochs:
    """Four photos around a random centre, as YOLO's loaders make them, with their boxes clipped."""
    side = 640
    boxes = json.loads(work.boxes.read_text())
    photos = [path for path, _ in photos_of(work)]
    items = [(path, np.array(boxes[path.relative_to(work.photos).as_posix()], np.float32)) for path in photos]

    def read(item: Any) -> tuple[torch.Tensor, torch.Tensor]:
        canvas, found = Image.new("RGB", (side, side), (114, 114, 114)), []
        x, y = (round(random.uniform(0.25, 0.75) * side) for _ in range(2))
        for place, (path, corners) in enumerate([item, *random.choices(items, k=3)]):
            picture = _open(path)
            scale = side / max(picture.size)
            picture = picture.resize((round(picture.width * scale), round(picture.height * scale)))
            # The square that the photo fits into touches the centre with a corner; the photo is in its middle.
            left = (x - side if place % 2 == 0 else x) + (side - picture.width) // 2
            top = (y - side if place < 2 else y) + (side - picture.height) // 2
            canvas.paste(picture, (left, top))
            least = [0 if place % 2 == 0 else x, 0 if place < 2 else y]
            most = [x if place % 2 == 0 else side, y if place < 2 else side]
            moved = (corners * scale + np.array([left, top, left, top], np.float32)).clip(least * 2, most * 2)
            found.append(moved[((moved[:, 2:] - moved[:, :2]) >= 1).all(1)])
        return _TO_TENSOR(canvas), torch.from_numpy(np.concatenate(found).astype(np.float32))

    def collate(samples: Any) -> Any:
        pictures, corners = zip(*samples, strict=True)
        return torch.stack(pictures), torch.tensor([len(rows) for rows in corners]), torch.cat(corners)

    loader = _loader(items, read, work, "mosaic", collate_fn=collate)
    return arrays_of(loader, lambda batch: (batch, len(batch[0])))


def _clips(work: Work) -> Epochs:
    step = v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()])

    def read(paths: Sequence[Any]) -> torch.Tensor:
        start = random.randrange(len(paths) - (FRAMES - 1) * STRIDE)
        frames = [_open(path) for path in paths[start : start + FRAMES * STRIDE : STRIDE]]
        return torch.stack([_TO_TENSOR(frame) for frame in step(frames)])

    loader = _loader(videos_of(work), read, work, "clips")
    return arrays_of(loader, lambda batch: ([batch], len(batch)))


def _mix(work: Work) -> Epochs:
    mix = v2.RandomChoice([v2.MixUp(alpha=0.8, num_classes=CLASSES), v2.CutMix(alpha=1.0, num_classes=CLASSES)])
    end = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    step = v2.Compose([*_crop(224, (0.08, 1.0)), _TO_TENSOR, *end])
    loader = _loader(photos_of(work), lambda item: (step(_open(item[0])), item[1]), work, "mix")

    def mixed(batch: Any) -> Batch:
        pictures, labels = mix(*batch)
        return [pictures, labels], len(pictures)

    return arrays_of(loader, mixed)


LOADERS: dict[str, dict[str, Callable[[Work], Iterable[Batch]]]] = {
    "plain": {
        "dinov2-crops": partial(_crops, "dinov2-crops"),
        "dinov2": partial(_dinov2, tensors=False),
        "simclr": partial(_crops, "simclr"),
        "simclr-colours": partial(_simclr_colours, tensors=False),
        "randaugment": partial(_randaugment, tensors=False),
        "buckets": _buckets,
        "naflex": _naflex,
        "segmentation": partial(_scenes, "segmentation"),
        "rotation": partial(_scenes, "rotation"),
        "mosaic": _mosaic,
        "clips": _clips,
        "mix": _mix,
        "repeats": _repeats,
    },
    "plain, colours of tensors": {
        "dinov2": partial(_dinov2, tensors=True),
        "simclr-colours": partial(_simclr_colours, tensors=True),
        "randaugment": partial(_randaugment, tensors=True),
    },
}
