"""Translates a dataset's transform into fastio's, from the attributes of its steps; torchvision is not imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

from fastio.errors import FastioError
from fastio.transforms import (
    AugMix,
    AutoAugment,
    BatchTransform,
    CenterCrop,
    ColorJitter,
    Compose,
    GaussianBlur,
    GaussianNoise,
    Grayscale,
    KeepBoxes,
    KeepPoints,
    Normalize,
    OneOf,
    Pad,
    RandAugment,
    RandomAdjustSharpness,
    RandomAffine,
    RandomApply,
    RandomAutocontrast,
    RandomChannelPermutation,
    RandomCrop,
    RandomEqualize,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomInvert,
    RandomIoUCrop,
    RandomPerspective,
    RandomPhotometricDistort,
    RandomPosterize,
    RandomResize,
    RandomResizedCrop,
    RandomRotation,
    RandomShortestSize,
    RandomSolarize,
    RandomVerticalFlip,
    RandomZoomOut,
    Resize,
    ScaleJitter,
    ToDtype,
    Transform,
    TrivialAugmentWide,
)
from fastio.transforms.arguments import as_kernel
from fastio.transforms.batch.functions import PerSample
from fastio.transforms.batch.program import PixelTransform
from fastio.transforms.batch.recipe import Recipe, split
from fastio.transforms.transform import KeepsSize

__all__ = [
    "code_of",
    "is_of_pixels",
    "is_torchvision",
    "output_dtype",
    "output_sizes",
    "recipe_of",
]


_TORCHVISION = "torchvision.transforms."
_FROM_BYTES = ToDtype(torch.float32, scale=True)  # what ToTensor does to values


def recipe_of(steps: Iterable[Any]) -> tuple[tuple[Any, ...] | None, tuple[Any, ...]]:
    """
    Return the transforms of ``fastio.transforms`` that do what these steps do, and the steps without an equivalent.

    Returns None instead of transforms if a step has no equivalent, or if FastLoader refuses their order. Steps are
    those of torchvision, v1 and v2, and fastio's own. Values become float32 as ToTensor makes them; Normalize does
    that too.
    """
    transforms: list[Any] = []
    unknown = []
    for step in steps:
        try:
            ours = [step] if isinstance(step, (Transform, BatchTransform)) else _equal_to(step)
        except (AttributeError, TypeError, ValueError):  # attributes of another torchvision, or unsupported values
            ours = None
        if ours is None:
            unknown.append(step)
        else:
            transforms += ours
    if unknown:
        return None, tuple(unknown)
    transforms = _without_needless(transforms)
    geometry, behind = split(transforms, resident=False)
    try:
        Recipe(behind, seed=0)
        Compose(geometry)(Image.new("RGB", (300, 200)))
    except (FastioError, TypeError, ValueError):
        return None, ()
    return tuple(transforms), ()


def is_torchvision(step: Any) -> bool:
    """Return whether its class is torchvision's own: a user's subclass may do anything."""
    return type(step).__module__.startswith(_TORCHVISION)


def is_of_pixels(step: Any) -> bool:
    """
    Return whether a step needs a picture's pixels for more than another type: what only crops, resizes, flips or
    normalises is put off until then by FastDataset's pictures, or ends a recipe.
    """
    transforms, _ = recipe_of([step])
    if transforms is None:
        return True
    return any(
        isinstance(transform, (PixelTransform, PerSample))
        or (isinstance(transform, KeepsSize) and not transform.takes_alpha)
        for transform in transforms
    )


def output_dtype(transforms: Sequence[Any]) -> str:
    """
    Return the dtype of the pixels of a batch.

    >>> output_dtype([RandomHorizontalFlip()]), output_dtype([Normalize([0.5], [0.5])])
    ('uint8', 'float32')
    """
    dtype = "uint8"
    for transform in transforms:
        if isinstance(transform, ToDtype):
            dtype = str(transform.dtype).removeprefix("torch.")
        elif isinstance(transform, Normalize) and dtype == "uint8":
            dtype = "float32"
    return dtype


def output_sizes(transforms: Sequence[Any], sizes: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return heights and widths of the results for black pictures of these widths and heights."""
    compose = Compose([transform for transform in transforms if isinstance(transform, Transform)])
    made = {compose(Image.new("RGB", size)).size for size in set(sizes)}
    return {(height, width) for width, height in made}


def code_of(value: Any) -> str:
    """
    Return Python code for the value; arguments of transforms appear only if they differ from the default.

    >>> code_of([RandomResizedCrop(224), RandomHorizontalFlip()])
    '[RandomResizedCrop(224), RandomHorizontalFlip()]'
    """
    if isinstance(value, (list, tuple)):
        inside = ", ".join(map(code_of, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
    if isinstance(value, torch.dtype):
        return str(value)
    if not is_dataclass(value) or isinstance(value, type):
        return repr(value)
    arguments: list[str] = []
    is_optional = all(field.default is not MISSING for field in fields(value))
    plain = type(value)() if is_optional else None  # which keeps its defaults in the form of what is held
    for number, field in enumerate(fields(value)):
        held, default = getattr(value, field.name), field.default
        if default is not MISSING and _as_written(held) in (_as_written(default), getattr(plain, field.name, default)):
            continue
        is_for_all_sides = field.name in ("size", "padding") and not isinstance(value, Resize)
        is_one = is_for_all_sides and isinstance(held, tuple) and len(set(held)) == 1
        text = code_of(held[0] if is_one else held)
        is_named = isinstance(held, bool) or number != len(arguments)
        arguments.append(f"{field.name}={text}" if is_named else text)
    return f"{type(value).__name__}({', '.join(arguments)})"


def _as_written(value: Any) -> Any:
    """
    Return a sequence as a tuple, and a sequence of one number as the number: fastio's classes keep values in one
    form.
    """
    if isinstance(value, (list, tuple)):
        return tuple(value) if len(value) != 1 else value[0]
    return value


def _equal_to(step: Any) -> list[Any] | None:
    """Return fastio's transforms for one step of torchvision; none for a step that only changes the type."""
    make = _EQUALS.get(type(step).__name__) if is_torchvision(step) else None
    return None if make is None else make(step)


def _resized_crop(step: Any) -> list[Any]:
    _check_antialias(step)
    return [RandomResizedCrop(step.size, tuple(step.scale), tuple(step.ratio), step.interpolation)]


def _resize(step: Any) -> list[Any]:
    _check_antialias(step)
    return [Resize(step.size, step.interpolation, getattr(step, "max_size", None))]


def _kernel(step: Any) -> Any:
    _check_antialias(step)
    return step.interpolation


def _check_antialias(step: Any) -> None:
    if getattr(step, "antialias", True) is False:
        raise ValueError("antialias=False: fastio always resizes with antialiasing")


def _random_crop(step: Any) -> list[Any]:
    padding = step.padding
    if padding is not None and type(step).__module__.startswith(f"{_TORCHVISION}v2."):
        left, right, top, bottom = padding  # as v2 keeps it, whatever its user wrote
        padding = (left, top, right, bottom)
    fill, mask_fill = _edges(step)
    return [RandomCrop(step.size, padding, step.pad_if_needed, fill, step.padding_mode, mask_fill)]


def _pad(step: Any) -> list[Any]:
    fill, mask_fill = _edges(step)
    return [Pad(step.padding, fill, step.padding_mode, mask_fill)]


def _fills(fill: Any) -> tuple[Any, int]:
    """Return the fill of pictures and that of masks, of which torchvision v2 keeps a dict by types."""
    if not isinstance(fill, dict):
        return fill, 0
    by_name = {getattr(kind, "__name__", kind): value for kind, value in fill.items()}
    mask = by_name.pop("Mask", 0)
    others = next(iter(by_name.values()), None)
    return by_name.get("Image", by_name.get("others", others)), int(mask or 0)


def _edges(step: Any) -> tuple[Any, int]:
    """Return the two fills of a step that adds edges, where none means black."""
    fill, mask_fill = _fills(step.fill)
    return 0 if fill is None else fill, mask_fill


def _zoom_out(step: Any) -> list[Any]:
    fill, mask_fill = _edges(step)
    return [RandomZoomOut(fill, tuple(step.side_range), float(step.p), mask_fill)]


def _to_dtype(step: Any) -> list[Any]:
    dtype = step.dtype
    if dtype == torch.uint8:
        return []
    return [ToDtype(dtype, scale=bool(getattr(step, "scale", True)))]


def _jitter(step: Any) -> list[Any]:
    names = ("brightness", "contrast", "saturation", "hue")
    return [ColorJitter(*(0 if getattr(step, name) is None else getattr(step, name) for name in names))]


def _photometric(step: Any) -> list[Any]:
    ranges = tuple(step.brightness), tuple(step.contrast), tuple(step.saturation), tuple(step.hue)
    return [RandomPhotometricDistort(*ranges, float(step.p))]


def _rand_augment(step: Any) -> list[Any]:
    return [RandAugment(step.num_ops, step.magnitude, step.num_magnitude_bins, *_look(step))]


def _trivial_augment(step: Any) -> list[Any]:
    return [TrivialAugmentWide(step.num_magnitude_bins, *_look(step))]


def _auto_augment(step: Any) -> list[Any]:
    return [AutoAugment(step.policy.value, *_look(step))]


def _aug_mix(step: Any) -> list[Any]:
    own = (step.severity, step.mixture_width, step.chain_depth, float(step.alpha), bool(step.all_ops))
    return [AugMix(*own, *_look(step))]


def _rotation(step: Any) -> list[Any]:
    kernel, fill = _look(step)
    own = (tuple(step.degrees), kernel, bool(step.expand), step.center)
    return [RandomRotation(*own, fill, _fills(step.fill)[1])]


def _affine(step: Any) -> list[Any]:
    shear = None if step.shear is None else tuple(step.shear)
    kernel, fill = _look(step)
    own = (tuple(step.degrees), step.translate, step.scale, shear, kernel, fill, step.center)
    return [RandomAffine(*own, _fills(step.fill)[1])]


def _perspective(step: Any) -> list[Any]:
    own = (float(step.distortion_scale), float(step.p), *_look(step))
    return [RandomPerspective(*own, _fills(step.fill)[1])]


def _iou_crop(step: Any) -> list[Any]:
    scales = float(step.min_scale), float(step.max_scale)
    ratios = float(step.min_aspect_ratio), float(step.max_aspect_ratio)
    return [RandomIoUCrop(*scales, *ratios, tuple(step.options), step.trials)]


def _look(step: Any) -> tuple[Any, Any]:
    """Return how a step reads pixels that it moves: interpolation and fill."""
    return as_kernel(step.interpolation), _fills(step.fill)[0]


def _blur(step: Any) -> list[Any]:
    sizes, sigma = tuple(step.kernel_size), tuple(step.sigma)
    return [GaussianBlur(sizes[0] if len(set(sizes)) == 1 else sizes, sigma[0] if len(set(sigma)) == 1 else sigma)]


def _apply(step: Any) -> list[Any]:
    return [RandomApply(_inner(step), float(step.p))]


def _one_of(step: Any) -> list[Any]:
    inner = [transforms[0] for transforms in map(_known, step.transforms) if len(transforms) == 1]
    if len(inner) != len(step.transforms):
        raise ValueError("a choice that is none of single transforms")
    weights = getattr(step, "p", None)
    return [OneOf(inner, None if weights is None or len(set(weights)) == 1 else tuple(map(float, weights)))]


def _inner(step: Any) -> list[Any]:
    """Return fastio's transforms for those that a step of torchvision applies."""
    return [transform for inner in step.transforms for transform in _known(inner)]


def _known(step: Any) -> list[Any]:
    transforms = _equal_to(step)
    if transforms is None:
        raise ValueError(f"{type(step).__name__} has no equivalent")
    return transforms


def _erasing(step: Any) -> list[Any]:
    return [RandomErasing(float(step.p), tuple(step.scale), tuple(step.ratio), step.value)]


_EQUALS: dict[str, Callable[[Any], list[Any]]] = {
    "AugMix": _aug_mix,
    "AutoAugment": _auto_augment,
    "CenterCrop": lambda step: [CenterCrop(step.size)],
    "ClampBoundingBoxes": lambda step: [],
    "ClampKeyPoints": lambda step: [KeepPoints("clip")],
    "ColorJitter": _jitter,
    "ConvertImageDtype": _to_dtype,
    "GaussianBlur": _blur,
    "GaussianNoise": lambda step: [GaussianNoise(float(step.mean), float(step.sigma), bool(step.clip))],
    "Grayscale": lambda step: [Grayscale(step.num_output_channels)],
    "Normalize": lambda step: [Normalize(_numbers(step.mean), _numbers(step.std))],
    "PILToTensor": lambda step: [],
    "Pad": _pad,
    "RandAugment": _rand_augment,
    "RandomAdjustSharpness": lambda step: [RandomAdjustSharpness(step.sharpness_factor, float(step.p))],
    "RandomAffine": _affine,
    "RandomApply": _apply,
    "RandomAutocontrast": lambda step: [RandomAutocontrast(float(step.p))],
    "RandomChannelPermutation": lambda step: [RandomChannelPermutation()],
    "RandomChoice": _one_of,
    "RandomCrop": _random_crop,
    "RandomEqualize": lambda step: [RandomEqualize(float(step.p))],
    "RandomErasing": _erasing,
    "RandomGrayscale": lambda step: [RandomGrayscale(float(step.p))],
    "RandomHorizontalFlip": lambda step: [RandomHorizontalFlip(float(step.p))],
    "RandomInvert": lambda step: [RandomInvert(float(step.p))],
    "RandomIoUCrop": _iou_crop,
    "RandomPerspective": _perspective,
    "RandomPhotometricDistort": _photometric,
    "RandomPosterize": lambda step: [RandomPosterize(step.bits, float(step.p))],
    "RandomResize": lambda step: [RandomResize(step.min_size, step.max_size, _kernel(step))],
    "RandomResizedCrop": _resized_crop,
    "RandomRotation": _rotation,
    "RandomShortestSize": lambda step: [RandomShortestSize(tuple(step.min_size), step.max_size, _kernel(step))],
    "RandomSolarize": lambda step: [RandomSolarize(step.threshold, float(step.p))],
    "RandomVerticalFlip": lambda step: [RandomVerticalFlip(float(step.p))],
    "RandomZoomOut": _zoom_out,
    "Resize": _resize,
    "SanitizeBoundingBoxes": lambda step: [KeepBoxes(step.min_size, step.min_area)],
    "SanitizeKeyPoints": lambda step: [KeepPoints("drop")],
    "ScaleJitter": lambda step: [ScaleJitter(tuple(step.target_size), tuple(step.scale_range), _kernel(step))],
    "ToDtype": _to_dtype,
    "ToImage": lambda step: [],
    "ToPureTensor": lambda step: [],
    "ToTensor": lambda step: [_FROM_BYTES],
    "TrivialAugmentWide": _trivial_augment,
}


def _numbers(values: Any) -> list[float]:
    return [float(value) for value in np.asarray(values).reshape(-1)]


def _without_needless(transforms: Sequence[Any]) -> list[Any]:
    """Move ToTensor after crops, resizes and flips, which work on bytes, and drop it before Normalize."""
    needed: list[Any] = []
    is_pending = False
    for transform in transforms:
        if transform == _FROM_BYTES:
            is_pending = True
            continue
        if is_pending and not isinstance(transform, Transform):
            needed += [] if isinstance(transform, Normalize) else [_FROM_BYTES]
            is_pending = False
        needed.append(transform)
    return [*needed, _FROM_BYTES] if is_pending else needed
