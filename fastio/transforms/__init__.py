"""Crops, resizes and flips as data: planned for a whole batch and executed in the decoder, or called on one picture.

Names, arguments, defaults and sampling rules follow ``torchvision.transforms.v2``.
"""

from __future__ import annotations

import sys
from typing import Any

from fastio.lazy import attach_stub

_public, __dir__, __all__ = attach_stub(__name__)

_FLOATS = "leave it out before Normalize, and write ToDtype(torch.float32, scale=True) where nothing else makes floats"
_NEEDLESS = {
    "ToTensor": _FLOATS,
    "ConvertImageDtype": _FLOATS,
    "PILToTensor": "leave it out",
    "ToImage": "leave it out",
}

# Further names of torchvision.transforms and its v2.
_OF_TORCHVISION = (
    "ClampBoundingBoxes", "ClampKeyPoints", "ConvertBoundingBoxFormat", "ElasticTransform",
    "FiveCrop", "GaussianNoise", "Identity", "JPEG", "Lambda", "LinearTransformation", "RGB",
    "RandomChannelPermutation",
    "RandomIoUCrop", "RandomOrder",
    "RandomPhotometricDistort", "RandomResize",
    "RandomShortestSize", "RandomZoomOut", "SanitizeBoundingBoxes",
    "SanitizeKeyPoints", "ScaleJitter", "SetClampingMode", "TenCrop", "ToPILImage", "ToPureTensor",
    "UniformTemporalSubsample",
)  # fmt: skip
# What stands in for names of torchvision, and for those of its functions.
_INSTEAD = {
    "RandomChoice": "OneOf([...], p) is the same",
    "Solarize": "RandomSolarize(threshold, p=1.0) always solarizes",
    "Posterize": "RandomPosterize(bits, p=1.0) always posterizes",
    "AutoContrast": "RandomAutocontrast(p=1.0) always stretches contrast",
    "Equalize": "RandomEqualize(p=1.0) always equalizes",
    "Sharpness": "RandomAdjustSharpness(factor, p=1.0) always sharpens",
    "Invert": "RandomInvert(p=1.0) always inverts",
}
_ELSEWHERE = (
    "FastDataset(path, transform=...) takes torchvision's; a function on pixels of your own runs natively as "
    "Compiled(function)"
)


def __getattr__(name: str) -> Any:
    """
    Import a public name when it is first used; explain torchvision's names of what needs no transform, or has none.

    Raises ImportError in ``from fastio.transforms import ToTensor``, which would drop the text of an AttributeError,
    and that anywhere else.
    """
    is_import = sys._getframe(1).f_code.co_name == "_handle_fromlist"
    error = ImportError if is_import else AttributeError
    if name in _NEEDLESS:
        raise error(f"fastio.transforms has no {name}: batches are tensors already: {_NEEDLESS[name]}")
    if name in _INSTEAD:
        raise error(f"fastio.transforms has no {name}: {_INSTEAD[name]}")
    if name in _OF_TORCHVISION:
        raise error(f"fastio.transforms has no {name}: {_ELSEWHERE}")
    return _public(name)
