"""Our transforms as torchvision's own, with the random numbers of ours: what users' recipes did before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from fastio.transforms import (
    CenterCrop,
    Letterbox,
    OneOf,
    Pad,
    RandomAffine,
    RandomApply,
    RandomCrop,
    RandomHorizontalFlip,
    RandomPerspective,
    RandomResize,
    RandomResizedCrop,
    RandomRotation,
    RandomShortestSize,
    RandomVerticalFlip,
    RandomZoomOut,
    Resize,
    ScaleJitter,
    Transform,
)
from fastio.transforms.warp import Warping
from tests.transforms.reference import random_resized_crop

__all__ = ["apply_torchvision", "as_tv_tensors"]

Sample = dict[str, Any]


def as_tv_tensors(sample: Sample, *, role: str) -> Sample:
    """A PIL image, and everything else as torchvision wants it."""
    import torch
    from torchvision import tv_tensors

    size = (sample["image"].height, sample["image"].width)
    return {
        "image": sample["image"],
        "mask": tv_tensors.Mask(torch.from_numpy(np.array(sample["mask"]).astype(np.int32))),
        "boxes": tv_tensors.BoundingBoxes(
            torch.tensor(sample["boxes"], dtype=torch.float32).reshape(-1, 4), format=role.upper(), canvas_size=size
        ),
        "points": tv_tensors.KeyPoints(
            torch.tensor(sample["points"], dtype=torch.float32).reshape(-1, 2), canvas_size=size
        ),
        "kinds": torch.tensor(sample["kinds"]),
    }


def apply_torchvision(
    chain: Sequence[Transform], numbers: NDArray[np.float64], sample: Sample, *, is_sanitized: bool = True
) -> Sample:
    """Run torchvision's transforms of the same names, one after the other, then its clamping and sanitizing."""
    from torchvision.transforms import v2

    first = 0
    for transform in chain:
        own = numbers[first : first + transform.draws].tolist()
        first += transform.draws
        sample = _apply(transform, own, sample)
    if not is_sanitized:
        return sample
    finish = v2.Compose([v2.ClampBoundingBoxes(), v2.SanitizeBoundingBoxes(labels_getter=lambda each: each["kinds"])])
    # Without the mask: if there are as many boxes as it has rows, torchvision takes it for one mask per box.
    boxes: Sample = finish({name: sample[name] for name in ("boxes", "kinds")})
    return {**sample, **boxes}


def _apply(transform: Transform, numbers: list[float], sample: Sample) -> Sample:
    import torchvision.transforms.v2 as v2  # noqa: PLR0402 - as its users write it

    theirs: Any
    if isinstance(transform, RandomCrop):
        theirs = v2.RandomCrop(
            transform.size, _sides(transform.padding), transform.pad_if_needed, _fill(transform), "constant"
        )
        return _with_parameters(theirs, sample, _crop_parameters(theirs, sample, numbers))
    if isinstance(transform, RandomResizedCrop):
        theirs = v2.RandomResizedCrop(transform.size, transform.scale, transform.ratio, _kernel(transform))
        size = (sample["image"].height, sample["image"].width)
        left, top, width, height = random_resized_crop(*size, numbers, scale=transform.scale, ratio=transform.ratio)
        return _with_parameters(theirs, sample, {"top": top, "left": left, "height": height, "width": width})
    if isinstance(transform, (RandomResize, RandomShortestSize, ScaleJitter, RandomZoomOut)):
        return _scaled(transform, numbers, sample)
    if isinstance(transform, RandomHorizontalFlip):
        theirs = v2.RandomHorizontalFlip(1.0 if numbers[0] < transform.p else 0.0)
    elif isinstance(transform, Resize):
        size = list(transform.size) if isinstance(transform.size, tuple) else transform.size
        theirs = v2.Resize(size, _kernel(transform), transform.max_size)
    elif isinstance(transform, Letterbox):
        theirs = _letterbox(transform, sample["image"].height, sample["image"].width)
    elif isinstance(transform, RandomVerticalFlip):
        theirs = v2.RandomVerticalFlip(1.0 if numbers[0] < transform.p else 0.0)
    elif isinstance(transform, Warping):
        return _warped(transform, numbers, sample)
    elif isinstance(transform, (RandomApply, OneOf)):
        return _chosen(transform, numbers, sample)
    elif isinstance(transform, CenterCrop):
        theirs = v2.CenterCrop(transform.size)
    else:
        assert isinstance(transform, Pad)
        theirs = v2.Pad(_sides(transform.padding), _fill(transform))
    result: Sample = theirs(sample)
    return result


def _chosen(transform: RandomApply | OneOf, numbers: list[float], sample: Sample) -> Sample:
    """All of its transforms, one or none, as its first number says."""
    inner: list[Any] = list(transform.transforms)
    ends = np.cumsum([1, *(each.draws for each in inner)])
    which = range(len(inner)) if isinstance(transform, RandomApply) else [int(numbers[0] * len(inner))]
    if isinstance(transform, RandomApply) and numbers[0] >= transform.p:
        which = []
    for place in which:
        sample = _apply(inner[place], numbers[ends[place] : ends[place + 1]], sample)
    return sample


def _warped(transform: Warping, numbers: list[float], sample: Sample) -> Sample:
    """What its functionals do with the same amounts; the picture as a tensor, for Pillow's pixels are others."""
    import torch
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.v2 import functional
    from torchvision.tv_tensors import Mask

    height, width = sample["image"].height, sample["image"].width
    name, arguments = _amounts(transform, numbers, height, width)
    if name is None:
        return sample
    arguments["interpolation"] = InterpolationMode(transform.interpolation)  # type: ignore[attr-defined] # of each

    def moved(value: Any) -> Any:
        fill = transform.mask_fill if isinstance(value, Mask) else list(_colour(transform.fill))  # type: ignore[attr-defined]
        return getattr(functional, name)(value, **arguments, fill=fill)

    boxes = sample["boxes"]
    sides = functional.convert_bounding_box_format(boxes, new_format="XYXY").as_subclass(torch.Tensor)
    shown = (sides[:, 2] > sides[:, 0]) & (sides[:, 3] > sides[:, 1])  # of others, a line would become a box again
    picture = moved(torch.from_numpy(np.array(sample["image"])).permute(2, 0, 1))
    return {
        "image": PIL.Image.fromarray(picture.permute(1, 2, 0).numpy()),
        "mask": moved(sample["mask"]),
        "boxes": moved(_like(boxes[shown], boxes)),
        "points": moved(sample["points"]),
        "kinds": sample["kinds"][shown],
    }


def _like(values: Any, boxes: Any) -> Any:
    from torchvision.tv_tensors import wrap

    return wrap(values, like=boxes)


def _colour(fill: Any) -> tuple[float, ...]:
    return tuple(map(float, fill)) if isinstance(fill, tuple) else (float(fill),) * 3


def _amounts(
    transform: Warping, numbers: Sequence[float], height: int, width: int
) -> tuple[str | None, dict[str, Any]]:
    """The name of the functional, and what it is called with; None where nothing is done."""
    q = list(numbers)
    if isinstance(transform, RandomRotation):
        low, high = transform.degrees  # type: ignore[misc] # a range, once it is built
        center = None if transform.center is None else list(transform.center)
        return "rotate", {"angle": low + (high - low) * q[0], "center": center}
    if isinstance(transform, RandomAffine):
        low, high = transform.degrees  # type: ignore[misc]
        across, down = transform.translate or (0, 0)
        least, most = transform.scale or (1, 1)
        shear = [*(transform.shear or (0, 0)), 0, 0][:4]  # type: ignore[misc]
        return "affine", {
            "angle": low + (high - low) * q[0],
            "translate": [round(across * width * (2 * q[1] - 1)), round(down * height * (2 * q[2] - 1))],
            "scale": least + (most - least) * q[3],
            "shear": [shear[0] + (shear[1] - shear[0]) * q[4], shear[2] + (shear[3] - shear[2]) * q[5]],
        }
    assert isinstance(transform, RandomPerspective)
    if q[0] >= transform.p:
        return None, {}
    sides = np.array([width, height])
    bounds = (transform.distortion_scale * (sides // 2)).astype(int) + 1
    starts = np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * (sides - 1)
    first = np.where(starts > 0, sides - bounds, 0)
    ends = first + (np.reshape(q[1:], (4, 2)) * bounds).astype(int)
    return "perspective", {"startpoints": starts.tolist(), "endpoints": ends.tolist()}


def _scaled(
    transform: RandomResize | RandomShortestSize | ScaleJitter | RandomZoomOut, numbers: list[float], sample: Sample
) -> Sample:
    """Its own parameters, of our numbers in place of torch's generator; no side vanishes."""
    import torch
    from torchvision.transforms import v2

    theirs: Any
    if isinstance(transform, RandomZoomOut):
        if numbers[0] >= transform.p:
            return sample
        numbers = numbers[1:]
        theirs = v2.RandomZoomOut(_fill(transform), transform.side_range, 1.0)
    elif isinstance(transform, RandomResize):
        theirs = v2.RandomResize(transform.min_size, transform.max_size, _kernel(transform))
    elif isinstance(transform, RandomShortestSize):
        sizes = transform.min_size
        theirs = v2.RandomShortestSize(sizes, transform.max_size, _kernel(transform))
    else:
        theirs = v2.ScaleJitter(transform.target_size, transform.scale_range, _kernel(transform))
    left = iter(numbers)

    def rand(count: Any) -> Any:
        return torch.tensor([next(left) for _ in range(count)], dtype=torch.float64)

    def randint(*limits: Any) -> int:
        least, most = limits[:-1] if len(limits) == 3 else (0, limits[0])
        return int(least + math.floor(next(left) * (most - least)))

    with mock.patch.object(torch, "rand", rand), mock.patch.object(torch, "randint", randint):
        parameters = theirs.make_params([sample["image"]])
    if len(parameters.get("size", ())) == 2:
        parameters = {"size": [max(1, side) for side in parameters["size"]]}
    return _with_parameters(theirs, sample, parameters)


def _letterbox(transform: Letterbox, height: int, width: int) -> Any:
    """What its users write: the size that fits, then what is missing."""
    from torchvision.transforms import v2

    assert isinstance(transform.size, tuple)
    scale = min(transform.size[0] / height, transform.size[1] / width)
    scale = scale if transform.upscale else min(scale, 1.0)
    h, w = max(round(height * scale), 1), max(round(width * scale), 1)
    spare_x, spare_y = transform.size[1] - w, transform.size[0] - h
    left, top = (spare_x // 2, spare_y // 2) if transform.position == "center" else (0, 0)
    pad = v2.Pad([left, top, spare_x - left, spare_y - top], _fill(transform))
    return v2.Compose([v2.Resize((h, w), _kernel(transform)), pad])


def _with_parameters(theirs: Any, sample: Sample, parameters: dict[str, Any]) -> Sample:
    return {name: value if name == "kinds" else theirs.transform(value, parameters) for name, value in sample.items()}


def _crop_parameters(theirs: Any, sample: Sample, numbers: list[float]) -> dict[str, Any]:
    """Its own padding, at our position."""
    parameters: dict[str, Any] = theirs.make_params([sample["image"]])
    left, top, right, bottom = parameters["padding"]
    spare_y = sample["image"].height + top + bottom - parameters["height"]
    spare_x = sample["image"].width + left + right - parameters["width"]
    place = {"top": math.floor(numbers[0] * (spare_y + 1)), "left": math.floor(numbers[1] * (spare_x + 1))}
    return {**parameters, **place, "needs_crop": bool(spare_x or spare_y)}


def _sides(padding: Any) -> list[int] | None:
    return None if padding is None else list(padding)


def _fill(transform: Any) -> dict[Any, Any]:
    """The colour for pictures, and the number for masks."""
    from torchvision.tv_tensors import Mask

    fill = transform.fill
    return {PIL.Image.Image: list(fill) if len(fill) > 1 else fill[0], Mask: transform.mask_fill, "others": 0}


def _kernel(transform: Any) -> Any:
    from torchvision.transforms import InterpolationMode

    return InterpolationMode(transform.interpolation)
