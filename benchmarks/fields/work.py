"""The loaders that are compared, by name; each imports only what its own environment has."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

__all__ = ["CAPTIONS", "SCENES", "Work", "captions_of"]

_CROP = 256
_SIDE = 224


@dataclass(frozen=True, slots=True)
class Work:
    """
    What a loader reads: ``files``, a folder of scenes or photos; ``packed``, the store or shards made of them.

    An epoch goes over the samples ``passes`` times in batches of ``batch_size``.
    """

    files: Path
    packed: Path
    passes: int
    batch_size: int
    workers: int


class _Files(Dataset[Any]):
    """One picture file and one mask file a sample."""

    def __init__(self, folder: Path, read: Callable[[Path, Path], Any]) -> None:
        rows = [json.loads(line) for line in (folder / "metadata.jsonl").read_text().splitlines()]
        self._pairs = [(folder / row["file_name"], folder / row["mask_file_name"]) for row in rows]
        self._read = read

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, index: int) -> Any:
        return self._read(*self._pairs[index])


def _loader(dataset: Dataset[Any], work: Work) -> DataLoader[Any]:
    count = len(dataset)  # type: ignore[arg-type]
    order = np.random.default_rng(0).permuted(np.tile(np.arange(count), (work.passes, 1)), axis=1).ravel().tolist()
    return DataLoader(dataset, work.batch_size, sampler=order, num_workers=work.workers, persistent_workers=True)


def _corner(height: int, width: int) -> tuple[int, int, bool]:
    """Top and left of a random crop, and whether to flip it."""
    return random.randint(0, height - _CROP), random.randint(0, width - _CROP), random.random() < 0.5


def _files_pillow(work: Work) -> Iterable[Any]:
    def read(image_path: Path, mask_path: Path) -> tuple[torch.Tensor, torch.Tensor]:
        with Image.open(image_path) as image, Image.open(mask_path) as mask:
            top, left, is_flipped = _corner(image.height, image.width)
            box = (left, top, left + _CROP, top + _CROP)
            both = [image.convert("RGB").crop(box), mask.crop(box)]
        if is_flipped:
            both = [part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for part in both]
        pixels, classes = (torch.from_numpy(np.array(part)) for part in both)
        return pixels.permute(2, 0, 1), classes

    return _loader(_Files(work.files, read), work)


def _files_opencv(work: Work) -> Iterable[Any]:
    import cv2

    cv2.setNumThreads(0)

    def read(image_path: Path, mask_path: Path) -> tuple[torch.Tensor, torch.Tensor]:
        image = cv2.imread(str(image_path), cv2.IMREAD_COLOR)
        with Image.open(mask_path) as file:  # OpenCV turns the numbers of a palette into colours
            mask = np.array(file)
        top, left, is_flipped = _corner(*mask.shape)
        image = cv2.cvtColor(image[top : top + _CROP, left : left + _CROP], cv2.COLOR_BGR2RGB)
        mask = mask[top : top + _CROP, left : left + _CROP]
        if is_flipped:
            image, mask = cv2.flip(image, 1), cv2.flip(mask, 1)
        return torch.from_numpy(image).permute(2, 0, 1), torch.from_numpy(np.ascontiguousarray(mask))

    return _loader(_Files(work.files, read), work)


def _files_torchvision(work: Work) -> Iterable[Any]:
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    crop = v2.Compose([v2.RandomCrop(_CROP), v2.RandomHorizontalFlip()])

    def read(image_path: Path, mask_path: Path) -> tuple[torch.Tensor, torch.Tensor]:
        with Image.open(image_path) as image, Image.open(mask_path) as mask:
            picture, classes = crop(image.convert("RGB"), tv_tensors.Mask(np.array(mask)))
        return v2.functional.pil_to_tensor(picture), classes.as_subclass(torch.Tensor)

    return _loader(_Files(work.files, read), work)


def _fastio_scenes(work: Work) -> Iterable[Any]:
    from fastio import FastDataset, FastLoader
    from fastio.transforms import RandomCrop, RandomHorizontalFlip

    dataset = FastDataset(work.packed, fields=("image", "mask"))
    return FastLoader(
        dataset,
        work.batch_size,
        indices=np.tile(np.arange(len(dataset)), work.passes),
        shuffle="full",
        threads=work.workers,
        transforms=[RandomCrop(_CROP), RandomHorizontalFlip()],
    )


def captions_of(photos: Path) -> dict[str, str]:
    """A caption for each photo in class folders, by its path in them."""
    names = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.*") if path.is_file())
    return {name: f"Photo {number} of {name.partition('/')[0]}." for number, name in enumerate(names)}


def _webdataset_opencv(work: Work) -> Iterable[Any]:
    import cv2

    from benchmarks.peers.opencv import random_224

    cv2.setNumThreads(0)
    return _webdataset(work, random_224)


def _webdataset_pillow(work: Work) -> Iterable[Any]:
    from benchmarks.peers.files_pil import random_224

    return _webdataset(work, lambda data: np.array(random_224(Image.open(io.BytesIO(data)).convert("RGB"))))


def _webdataset(work: Work, crop: Callable[[bytes], Any]) -> Iterable[Any]:
    """Pictures cropped by ``crop``, which returns ``(224, 224, 3)``, and their captions."""
    import webdataset

    shards = sorted(str(path) for path in work.packed.glob("*.tar"))
    dataset = webdataset.WebDataset(shards * work.passes, shardshuffle=len(shards) * work.passes).shuffle(1000)
    dataset = dataset.to_tuple("jpg", "txt")
    dataset = dataset.map_tuple(lambda data: torch.from_numpy(crop(data)).permute(2, 0, 1), bytes.decode)
    batches = dataset.batched(work.batch_size, collation_fn=_with_captions)
    return webdataset.WebLoader(batches, batch_size=None, num_workers=work.workers, persistent_workers=True)


def _with_captions(samples: Sequence[tuple[torch.Tensor, str]]) -> tuple[torch.Tensor, list[str]]:
    pictures, captions = zip(*samples, strict=True)
    return torch.stack(pictures), list(captions)


def _fastio_captions(work: Work) -> Iterable[Any]:
    from fastio import FastDataset, FastLoader
    from fastio.transforms import RandomHorizontalFlip, RandomResizedCrop

    dataset = FastDataset(work.packed, fields=("image", "caption"))
    return FastLoader(
        dataset,
        work.batch_size,
        indices=np.tile(np.arange(len(dataset)), work.passes),
        shuffle="full",
        threads=work.workers,
        transforms=[RandomResizedCrop(_SIDE), RandomHorizontalFlip()],
    )


# Name of a case -> its loader; ``run`` knows which environment each needs.
SCENES: dict[str, Callable[[Work], Iterable[Any]]] = {
    "files, Pillow": _files_pillow,
    "files, OpenCV": _files_opencv,
    "files, torchvision": _files_torchvision,
    "fastio": _fastio_scenes,
}
CAPTIONS: dict[str, Callable[[Work], Iterable[Any]]] = {
    "webdataset, OpenCV": _webdataset_opencv,
    "webdataset, Pillow": _webdataset_pillow,
    "fastio": _fastio_captions,
}
