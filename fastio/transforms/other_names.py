"""Names of torchvision.transforms that fastio.transforms does not have, and what to write instead of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["instead_of"]


def instead_of(name: str) -> str | None:
    """
    Return what to write instead of a class or function of ``torchvision.transforms``, its ``v2`` or their functionals.

    None for names that torchvision does not have either, and for those that ``fastio.transforms`` has.

    >>> instead_of("ToTensor")
    'batches are tensors already: leave it out before Normalize, and write ToDtype(torch.float32, scale=True) where \
nothing else makes floats'
    >>> instead_of("hflip_image") == instead_of("hflip"), instead_of("Resize")
    (True, None)
    """
    if name in _CLASSES:
        return _CLASSES[name]
    kind = next((kind for kind in _KINDS if name.endswith(kind) and name not in _FUNCTIONS), "")
    return _FUNCTIONS.get(name.removesuffix(kind))


_TENSORS = "batches are tensors already"
_FLOATS = (
    f"{_TENSORS}: leave it out before Normalize, and write ToDtype(torch.float32, scale=True) where nothing else "
    "makes floats"
)
_HELPER = "it is for writing transforms of torchvision: import it from torchvision.transforms.v2"
_ON_A_PICTURE = "each transform can be called on a picture or a tensor"


def _python(call: str) -> str:
    return f"FastDataset(path, transform=v2.{call}) runs torchvision's in Python"


def _compiled(call: str) -> str:
    return (
        "Compiled(function) runs a function of yours on pixels in native threads, PerSample(function) in Python, or "
        f"{_python(call)}"
    )


_CLASSES: Final[Mapping[str, str]] = {
    "AutoAugmentPolicy": 'pass its name: AutoAugment("imagenet"), "cifar10" or "svhn"',
    "AutoContrast": "RandomAutocontrast(p=1.0) always stretches contrast",
    "ClampBoundingBoxes": "boxes are clipped anyway: leave it out, or pass KeepBoxes(clip=False) to keep them whole",
    "ClampKeyPoints": 'KeepPoints("clip") is the same',
    "ConvertBoundingBoxFormat": "boxes come as they are stored (xyxy, xywh or cxcywh): torchvision.ops.box_convert "
    "converts those of a batch",
    "ConvertImageDtype": _FLOATS,
    "ElasticTransform": f"{_python('ElasticTransform(...)')}; RandomAffine(...) and RandomPerspective(...) are native",
    "Equalize": "RandomEqualize(p=1.0) always equalizes",
    "FiveCrop": "FastLoader(..., views=[(5, [RandomCrop(224)])]) gives five crops at random, natively; for the four "
    f"corners, {_python('FiveCrop(...)')}",
    "Identity": "leave it out",
    "InterpolationMode": 'pass its name: Resize(256, interpolation="bicubic"); values of torchvision\'s are taken, too',
    "Invert": "RandomInvert(p=1.0) always inverts",
    "JPEG": _python("JPEG(...)"),
    "Lambda": "PerSample(function) for one picture, PerBatch(function) for a whole batch, both anywhere in "
    "FastLoader(..., transforms=[...]); Compiled(function) runs one of pixels in native threads",
    "LinearTransformation": "PerBatch(function) behind Normalize(...) does it for all pictures at once: "
    "function = lambda batch: [(batch[0].flatten(1) - mean) @ matrix, *batch[1:]]",
    "PILToTensor": f"{_TENSORS}: leave it out",
    "Posterize": "RandomPosterize(bits, p=1.0) always posterizes",
    "RGB": 'leave it out: FastDataset(path, mode="RGB") is the default',
    "RandomChoice": "OneOf([...], p) is the same",
    "RandomOrder": f"{_python('RandomOrder([...])')}; ColorJitter(...) draws the order of its steps natively",
    "SanitizeBoundingBoxes": "boxes are dropped anyway that are too small: KeepBoxes(min_size, min_area) says from "
    "when on",
    "SanitizeKeyPoints": 'KeepPoints("drop") is the same',
    "SetClampingMode": "KeepBoxes(clip=False) keeps boxes whole, and without it they are clipped",
    "Sharpness": "RandomAdjustSharpness(factor, p=1.0) always sharpens",
    "Solarize": "RandomSolarize(threshold, p=1.0) always solarizes",
    "TenCrop": "FastLoader(..., views=[(10, [RandomCrop(224), RandomHorizontalFlip()])]) gives ten crops at random, "
    f"natively; for corners and their mirror images, {_python('TenCrop(...)')}",
    "ToImage": f"{_TENSORS}: leave it out",
    "ToPILImage": "leave it out: FastDataset(path) gives PIL images, and FastLoader tensors",
    "ToPureTensor": f"{_TENSORS}: leave it out",
    "ToTensor": _FLOATS,
    "UniformTemporalSubsample": "ClipSampler(dataset, frames=8, stride=2) makes clips of evenly spaced frames, which "
    "a store has as single pictures: FastLoader(dataset, batch_sampler=sampler)",
    **dict.fromkeys(
        (
            "check_type", "get_bounding_boxes", "get_keypoints", "has_all", "has_any", "is_pure_tensor",
            "query_chw", "query_size", "register_kernel",
        ),
        _HELPER,
    ),
    "functional": f"{_ON_A_PICTURE}: CenterCrop(224)(picture); for values of your own, "
    "torchvision.transforms.v2.functional works on them, too",
    "v2": "its names are here: from fastio.transforms import RandomResizedCrop",
}  # fmt: skip

_KINDS = ("_image", "_video", "_mask", "_bounding_boxes", "_keypoints")  # at the end of names of v2.functional


def _call(transform: str) -> str:
    return f"{_ON_A_PICTURE}: {transform}(picture)"


def _compose(transform: str) -> str:
    return f"a Compose can be called on a picture or a tensor: Compose([{transform}])(picture)"


def _functional(name: str) -> str:
    return f"torchvision.transforms.v2.functional.{name} works on what FastDataset(path) and FastLoader give"


_FUNCTIONS: Final[Mapping[str, str]] = {
    "adjust_brightness": _compose("ColorJitter(brightness=(factor, factor))"),
    "adjust_contrast": _compose("ColorJitter(contrast=(factor, factor))"),
    "adjust_gamma": _functional("adjust_gamma"),
    "adjust_hue": _compose("ColorJitter(hue=(factor, factor))"),
    "adjust_saturation": _compose("ColorJitter(saturation=(factor, factor))"),
    "adjust_sharpness": _compose("RandomAdjustSharpness(factor, p=1.0)"),
    "affine": _compose("RandomAffine((angle, angle), scale=(scale, scale))"),
    "autocontrast": _compose("RandomAutocontrast(p=1.0)"),
    "center_crop": _call("CenterCrop(size)"),
    "clamp_bounding_boxes": _CLASSES["ClampBoundingBoxes"],
    "clamp_keypoints": _CLASSES["ClampKeyPoints"],
    "convert_bounding_box_format": _CLASSES["ConvertBoundingBoxFormat"],
    "convert_image_dtype": _FLOATS,
    "crop": "picture.crop((left, top, right, bottom)) decodes that part of a picture of FastDataset(path) alone",
    "elastic": _CLASSES["ElasticTransform"],
    "elastic_transform": _CLASSES["ElasticTransform"],
    "equalize": _compose("RandomEqualize(p=1.0)"),
    "erase": _compose("RandomErasing(p=1.0)"),
    "five_crop": _CLASSES["FiveCrop"],
    "gaussian_blur": _compose("GaussianBlur(kernel_size, (sigma, sigma))"),
    "gaussian_noise": _compose("GaussianNoise(mean, sigma)"),
    "grayscale_to_rgb": _CLASSES["RGB"],
    "hflip": _call("RandomHorizontalFlip(p=1.0)"),
    "horizontal_flip": _call("RandomHorizontalFlip(p=1.0)"),
    "invert": _compose("RandomInvert(p=1.0)"),
    "jpeg": _CLASSES["JPEG"],
    "normalize": "Normalize(mean, std) in FastLoader(..., transforms=[...]) does it for batches, and "
    "NormalizeLayer(mean, std) in the model",
    "pad": _call("Pad(padding)"),
    "permute_channels": _functional("permute_channels"),
    "perspective": _functional("perspective"),
    "pil_to_tensor": _CLASSES["PILToTensor"],
    "posterize": _compose("RandomPosterize(bits, p=1.0)"),
    "resize": _call("Resize(size)"),
    "resized_crop": "picture.resize((width, height), box=(left, top, right, bottom)) decodes that part alone",
    "rgb_to_grayscale": _call("Grayscale(1)"),
    "rotate": _compose("RandomRotation((angle, angle))"),
    "sanitize_bounding_boxes": _CLASSES["SanitizeBoundingBoxes"],
    "sanitize_keypoints": _CLASSES["SanitizeKeyPoints"],
    "solarize": _compose("RandomSolarize(threshold, p=1.0)"),
    "ten_crop": _CLASSES["TenCrop"],
    "to_dtype": "ToDtype(torch.float32, scale=True) in FastLoader(..., transforms=[...]) does it for batches",
    "to_grayscale": _call("Grayscale(1)"),
    "to_image": _CLASSES["ToImage"],
    "to_pil_image": _CLASSES["ToPILImage"],
    "to_tensor": _FLOATS,
    "uniform_temporal_subsample": _CLASSES["UniformTemporalSubsample"],
    "vertical_flip": _compose("RandomVerticalFlip(p=1.0)"),
    "vflip": _compose("RandomVerticalFlip(p=1.0)"),
    **dict.fromkeys(
        (
            "get_dimensions", "get_image_num_channels", "get_image_size", "get_num_channels", "get_num_frames",
            "get_size",
        ),
        "a picture of FastDataset(path) has picture.size and picture.mode, without decoding it",
    ),
}  # fmt: skip
