"""The trainings: what a loader is asked for, and what its batches must be. Imports nothing that a peer lacks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

__all__ = [
    "CLASSES", "CROPS", "FRAMES", "IGNORED", "IGNORED_LABEL", "IMAGE", "MEAN", "MOST_PATCHES", "MOST_PIXELS",
    "MOST_TOKENS", "PATCH", "PATCHES", "SHAPES", "STD", "STRIDE", "TRAININGS", "WORDS",
    "Batch", "Check", "Crop", "Epochs", "OutputError", "Training", "Work", "arrays_of", "chats_of", "from_json",
    "nearest_shape", "patches_of", "photos_of", "scenes_of", "to_json", "videos_of",
]  # fmt: skip

# A list of arrays, and the number of samples in them.
Batch = tuple[Sequence[Any], int]
Check = Callable[[list[Any], int], float]

# What Normalize is told for ImageNet, of values between 0 and 1.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

# Height and width of buckets: those that datago makes for a square of 256 and sides that are multiples of 32.
SHAPES = ((256, 256), (224, 288), (288, 224), (192, 320), (320, 192), (160, 352), (352, 160))

FRAMES, STRIDE = 8, 2  # of a clip
PATCH, PATCHES = 16, 576  # the side of a patch, and how many a photo has at most
WORDS = (
    "[UNK]",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    *map("w{}".format, range(995)),
)
IMAGE = WORDS.index("<|image_pad|>")
MOST_TOKENS, MOST_PATCHES, MOST_PIXELS = 4096, 14336, 448 * 448  # of a row, and of a picture in it
CLASSES = 1000
IGNORED = 255  # a mask beyond the edges of its picture
IGNORED_LABEL = -100  # a token that does not count


class OutputError(Exception):
    """A loader gave other samples, shapes, types or values than it was asked for."""


@dataclass(frozen=True, slots=True)
class Work:
    """
    What a loader reads, and how: folders of files, and one for what is packed of them.

    ``photos`` are JPEGs in class folders, ``scenes`` pictures and masks with metadata.jsonl, ``videos`` a folder of
    JPEGs for each video. ``boxes`` has objects of the photos: {path in ``photos``: [[left, top, right, bottom]]}.
    """

    photos: Path
    scenes: Path
    videos: Path
    boxes: Path
    packed: Path
    batch_size: int
    workers: int


@dataclass(frozen=True, slots=True)
class Crop:
    """So many views of one kind: RandomResizedCrop of this side and share of the area, and a flip."""

    count: int
    side: int
    scale: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Training:
    """
    ``source`` names the files, ``per_source`` how many samples an epoch has of each; ``check`` gives a batch's mean.

    ``unit`` is what a sample is; ``batch`` the batch size if it is not Work's.
    """

    title: str
    check: Check
    source: str = "photos"
    unit: str = "photos"
    per_source: int = 1
    batch: int | None = None
    figures: ClassVar[tuple[str, ...]] = ()
    by_clock: ClassVar[bool] = False


def _views(crops: Sequence[tuple[int, int]], dtype: str = "uint8") -> Check:
    """Views of one kind each: (count, side)."""
    sides = [side for count, side in crops for _ in range(count)]

    def check(arrays: list[Any], samples: int) -> float:
        return _pictures(arrays, [(samples, 3, side, side) for side in sides], dtype)

    return check


def _pictures(arrays: list[Any], shapes: list[tuple[int, ...]], dtype: str) -> float:
    """The mean of arrays of channels before rows and columns, in levels of 255, also of normalised ones."""
    found = [(tuple(array.shape), str(array.dtype)) for array in arrays]
    if found != [(shape, dtype) for shape in shapes]:
        raise OutputError(f"a batch of {found}, expected {shapes} of {dtype}")
    means = []
    for array in arrays:
        channels = array.mean(axis=tuple(axis for axis in range(array.ndim) if axis != array.ndim - 3), dtype="float64")
        means.append(float((channels if dtype == "uint8" else 255 * (channels * STD + MEAN)).mean()))
    return sum(means) / len(means)


def _bucket(arrays: list[Any], samples: int) -> float:
    """One shape of SHAPES a batch; loaders without batches give pictures one by one."""
    (pictures,) = arrays
    if tuple(pictures.shape[-2:]) not in SHAPES:
        raise OutputError(f"pictures of {pictures.shape[-2:]}, expected one of {SHAPES}")
    return _pictures(arrays, [(samples, 3, *pictures.shape[-2:])], "uint8")


def _patched(arrays: list[Any], samples: int) -> float:
    """Normalised patches, row and column of each, and which there are: nearly as many as fit."""
    patches, places, valid = arrays
    found = [(array.shape, str(array.dtype)) for array in arrays]
    shape = (samples, PATCHES)
    if found != [((*shape, 3 * PATCH * PATCH), "float32"), ((*shape, 2), "int64"), (shape, "bool")]:
        raise OutputError(f"a batch of {found}, expected {PATCHES} patches of {PATCH} x {PATCH} a photo")
    if valid.mean() < 0.9 or (places[valid].max(0) < PATCHES**0.5 / 2).any():
        raise OutputError(f"{valid.mean():.0%} of the patches are there, at places up to {places[valid].max(0)}")
    channels = patches[valid].reshape(-1, PATCH * PATCH, 3).mean((0, 1), dtype="float64")
    return float((255 * (channels * STD + MEAN)).mean())


def _segmented(arrays: list[Any], samples: int) -> float:
    """Pictures and masks of 512 x 512, with edges around the smaller scenes."""
    pictures, masks = arrays
    if masks.shape != (samples, 512, 512) or masks.dtype != np.uint8:
        raise OutputError(f"masks of {masks.shape} {masks.dtype}, expected ({samples}, 512, 512) uint8")
    edges = float((masks == IGNORED).mean())
    kept = masks[masks != IGNORED]
    if not 0.3 < edges < 0.5 or kept.max() > 31:
        raise OutputError(f"{edges:.0%} of the masks are edges, and classes reach {kept.max()}")
    return _pictures([pictures], [(samples, 3, 512, 512)], "uint8")


def _mosaics(arrays: list[Any], samples: int) -> float:
    """Pictures of 640 x 640, the number of boxes of each, and all boxes."""
    pictures, counts, boxes = arrays
    if len(counts) != samples or boxes.shape != (counts.sum(), 4) or counts.mean() < 3:
        raise OutputError(f"{counts.sum()} boxes of {counts.mean():.1f} a mosaic, in an array of {boxes.shape}")
    if boxes.min() < 0 or boxes.max() > 640:
        raise OutputError(f"boxes from {boxes.min()} to {boxes.max()}, expected 0 to 640")
    return _pictures([pictures], [(samples, 3, 640, 640)], "uint8")


def _clips(arrays: list[Any], samples: int) -> float:
    return _pictures(arrays, [(samples, FRAMES, 3, 224, 224)], "uint8")


def _mixed(arrays: list[Any], samples: int) -> float:
    """Normalised pictures and soft labels."""
    pictures, labels = arrays
    if labels.shape != (samples, CLASSES) or not np.allclose(labels.sum(1), 1, atol=1e-3):
        raise OutputError(f"labels of {labels.shape} with sums of {labels.sum(1).min():g} to {labels.sum(1).max():g}")
    if not (np.count_nonzero(labels, axis=1) > 1).any():
        raise OutputError("no labels are mixed")
    return _pictures([pictures], [(samples, 3, 224, 224)], "float32")


def _pictured(arrays: list[Any], samples: int) -> float:
    """
    A row of ids, labels, positions and where chats begin, and the normalised patches of all pictures and their grids,
    as Qwen2-VL takes them.
    """
    ids, labels, positions, cuts, patches, grids = arrays
    found = [(array.shape, str(array.dtype)) for array in arrays]
    row, total, side = ((MOST_TOKENS,), "int64"), grids.prod(1).sum(), 2 * 3 * 14 * 14
    if found != [row, row, row, ((samples + 1,), "int32"), ((total, side), "float32"), ((len(grids), 3), "int64")]:
        raise OutputError(f"a batch of {found}, expected a row of {MOST_TOKENS} tokens and {total} patches")
    if 4 * (ids == IMAGE).sum() != total or total > MOST_PATCHES or (labels[ids == IMAGE] != IGNORED_LABEL).any():
        raise OutputError(f"{(ids == IMAGE).sum()} tokens of pictures for {total} patches, or labels for them")
    if (positions[cuts[:-1]] != 0).any() or (labels != IGNORED_LABEL).sum() < cuts[-1] / 10:
        raise OutputError("positions do not begin anew, or hardly anything counts")
    channels = patches.reshape(-1, 3, side // 3).mean((0, 2), dtype="float64")
    return float((255 * (channels * STD + MEAN)).mean())


_MULTI_CROP = ((2, 224), (8, 96))

TRAININGS = {
    "dinov2-crops": Training("DINOv2: 2 x 224 and 8 x 96, crops and flips", _views(_MULTI_CROP)),
    "dinov2": Training("DINOv2, the whole recipe", _views(_MULTI_CROP, "float32")),
    "simclr": Training("SimCLR: 2 x 224, crops and flips", _views([(2, 224)])),
    "simclr-colours": Training("SimCLR with ColorJitter and grey", _views([(2, 224)])),
    "randaugment": Training("crop, flip, RandAugment", _views([(1, 224)])),
    "buckets": Training("aspect-ratio buckets of 256 x 256 pixels", _bucket),
    "naflex": Training("NaFlex: 576 patches a photo, flip, Normalize", _patched),
    "pictured": Training("chats with 1 to 3 photos, packed for Qwen2-VL", _pictured, unit="chats"),
    "segmentation": Training("segmentation, edges 255", _segmented, "scenes", "scenes", batch=8),
    "rotation": Training("segmentation with rotation, edges 255", _segmented, "scenes", "scenes", batch=8),
    "mosaic": Training("Mosaic(640) with boxes", _mosaics, "photos", "mosaics"),
    "clips": Training("clips of 8 frames, one crop each", _clips, "videos", "clips", batch=4),
    "mix": Training("crop, flip, MixUp or CutMix, Normalize", _mixed),
    "repeats": Training("repeated augmentation, 3 crops a photo", _views([(1, 224)]), unit="pictures", per_source=3),
}

CROPS: dict[str, Sequence[Crop]] = {
    "dinov2-crops": (Crop(2, 224, (0.32, 1.0)), Crop(8, 96, (0.05, 0.32))),
    "simclr": (Crop(2, 224, (0.08, 1.0)),),
}


def photos_of(work: Work) -> list[tuple[Path, int]]:
    """The photos in order, and the number of each one's class."""
    classes = sorted(path.name for path in work.photos.iterdir() if path.is_dir())
    return [(path, number) for number, name in enumerate(classes) for path in sorted((work.photos / name).iterdir())]


def chats_of(work: Work) -> list[tuple[list[Path], str]]:
    """A chat for each photo: one to three photos, and words with a placeholder for each of them."""
    photos, draw = [path for path, _ in photos_of(work)], np.random.default_rng(0)
    chats = []
    for number in range(len(photos)):
        own = [photos[(number + place) % len(photos)] for place in range(1 + number % 3)]
        words = draw.choice(WORDS[5:], int(np.clip(draw.lognormal(4.5, 0.8), 16, 1024)))
        chats.append((own, " ".join(["<|vision_start|> <|image_pad|> <|vision_end|>"] * len(own) + words.tolist())))
    return chats


def scenes_of(work: Work) -> list[tuple[Path, Path]]:
    """Pictures and masks in order."""
    rows = [json.loads(line) for line in (work.scenes / "metadata.jsonl").read_text().splitlines()]
    return [(work.scenes / row["file_name"], work.scenes / row["mask_file_name"]) for row in rows]


def videos_of(work: Work) -> list[list[Path]]:
    """The frames of each video in order."""
    return [sorted(folder.iterdir()) for folder in sorted(work.videos.iterdir())]


def nearest_shape(width: int, height: int) -> tuple[int, int]:
    """The shape of SHAPES, height and width, whose proportions are nearest."""
    return min(SHAPES, key=lambda shape: abs(math.log(shape[1] / shape[0] * height / width)))


def to_json(work: Work) -> str:
    """``work`` as JSON."""
    return json.dumps(asdict(work), default=str)


def from_json(text: str) -> Work:
    """The reverse of ``to_json``."""
    values = json.loads(text)
    return Work(**{name: Path(value) if isinstance(value, str) else value for name, value in values.items()})


class Epochs:
    """Something that yields batches, again for each epoch."""

    def __init__(self, batches: Callable[[], Iterator[Batch]]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Batch]:
        return self._batches()


def arrays_of(loader: Iterable[Any], split: Callable[[Any], Batch]) -> Epochs:
    """A loader whose batches become arrays and a number of samples."""
    return Epochs(lambda: map(split, loader))


def patches_of(batch: Any) -> Batch:
    """The arrays of a batch of patches and labels, as timm names them."""
    patches, labels = batch
    return [patches[name] for name in ("patches", "patch_coord", "patch_valid")], len(labels)
