"""What the usual libraries do to a PIL image, by the same Pillow calls: equal to the last bit."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps

from fastio import FastDataset
from tests.conftest import write_store
from tests.dataset.picture.chains import files

FILE = files(120, 90, seed=1)["jpeg"]
BILINEAR = Image.Resampling.BILINEAR


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> FastDataset:
    """One photo of 120 x 90."""
    return FastDataset(write_store(tmp_path_factory.mktemp("scripts") / "a.lmdb", [FILE]))


def to_tensor(picture: Image.Image) -> torch.Tensor:
    """torchvision's ToTensor."""
    pixels = torch.from_numpy(np.array(picture, np.uint8, copy=True))
    pixels = pixels.view(picture.size[1], picture.size[0], len(picture.getbands())).permute(2, 0, 1).contiguous()
    return pixels.to(torch.float32).div(255)


def pil_to_tensor(picture: Image.Image) -> torch.Tensor:
    """torchvision's PILToTensor, and ToImage of v2."""
    pixels = torch.as_tensor(np.array(picture, copy=True))
    return pixels.view(picture.size[1], picture.size[0], len(picture.getbands())).permute(2, 0, 1)


def adjust_hue(picture: Image.Image) -> Image.Image:
    """torchvision's ColorJitter(hue=...)."""
    hue, saturation, value = picture.convert("HSV").split()
    shifted: NDArray[np.uint8] = np.array(hue, dtype=np.uint8) + np.uint8(77)
    return Image.merge("HSV", (Image.fromarray(shifted, "L"), saturation, value)).convert(picture.mode)


def grayscale_3(picture: Image.Image) -> Image.Image:
    """torchvision's Grayscale(3)."""
    grey = np.array(picture.convert("L"), dtype=np.uint8)
    return Image.fromarray(np.dstack([grey, grey, grey]), "RGB")


def five_crop(picture: Image.Image) -> Image.Image:
    """torchvision's FiveCrop, the last one flipped as TenCrop does."""
    boxes = [(0, 0, 50, 40), (70, 0, 120, 40), (0, 50, 50, 90), (70, 50, 120, 90), (35, 25, 85, 65)]
    crops = [picture.crop(box) for box in boxes]
    crops[4] = crops[4].transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return Image.fromarray(np.concatenate([np.asarray(crop) for crop in crops]))


def rand_augment(picture: Image.Image) -> Image.Image:
    """Some of timm's RandAugment: shear, translation, rotation, and changes of colour."""
    picture = picture.transform(
        picture.size, Image.Transform.AFFINE, (1, 0.2, 0, 0, 1, 0), BILINEAR, fillcolor=(9, 9, 9)
    )
    picture = picture.rotate(12.5, resample=BILINEAR, fillcolor=(1, 2, 3))
    picture = ImageOps.solarize(ImageOps.equalize(ImageOps.posterize(picture, 4)), 100)
    return ImageEnhance.Sharpness(ImageEnhance.Contrast(picture).enhance(1.3)).enhance(0.6)


STEPS: dict[str, Callable[[Image.Image], Any]] = {
    "RandomResizedCrop, flip": lambda each: (
        each.crop((5, 6, 100, 77)).resize((64, 64), BILINEAR).transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    ),
    "Resize, CenterCrop": lambda each: each.resize((85, 64), BILINEAR).crop((14, 4, 70, 60)),
    "RandomCrop, padded": lambda each: ImageOps.expand(each, border=4, fill=0).crop((3, 1, 67, 65)),
    "RandomCrop, reflected": lambda each: Image.fromarray(
        np.pad(np.asarray(each), ((4, 4), (4, 4), (0, 0)), "reflect")
    ),
    "ColorJitter": lambda each: adjust_hue(
        ImageEnhance.Color(ImageEnhance.Contrast(ImageEnhance.Brightness(each).enhance(0.7)).enhance(1.2)).enhance(0.4)
    ),
    "Grayscale": lambda each: each.convert("L"),
    "Grayscale(3)": grayscale_3,
    "FiveCrop": five_crop,
    "RandAugment": rand_augment,
    "RandomVerticalFlip, rotation by 90": lambda each: each.transpose(Image.Transpose.FLIP_TOP_BOTTOM).rotate(
        90, expand=True
    ),
    "convert again": lambda each: each.convert("RGB"),
}


@pytest.mark.parametrize("tensor", [to_tensor, pil_to_tensor, np.asarray, np.array])
@pytest.mark.parametrize("steps", list(STEPS.values()), ids=list(STEPS))
def test_transforms_of_libraries(
    dataset: FastDataset, steps: Callable[[Any], Any], tensor: Callable[[Any], Any]
) -> None:
    """Each transform, and each way to a tensor or an array, gives what it gives for the opened file."""
    with Image.open(io.BytesIO(FILE)) as opened:
        expected = tensor(steps(opened.convert("RGB")))
    result = tensor(steps(dataset[0]))

    assert np.array_equal(np.asarray(expected), np.asarray(result))
    assert expected.dtype == result.dtype
