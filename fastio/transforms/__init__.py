"""Crops, resizes and flips as data: planned for a whole batch and executed in the decoder, or called on one picture.

Names, arguments, defaults and sampling rules follow ``torchvision.transforms.v2``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

from fastio.transforms.batch import (
    BatchTransform,
    ChannelsLast,
    ColorJitter,
    CutMix,
    MixUp,
    Normalize,
    NormalizeLayer,
    RandAugment,
    RandomErasing,
    ToDtype,
    TrivialAugmentWide,
)
from fastio.transforms.compiled import Compiled
from fastio.transforms.compose import Compose, KeepBoxes, KeepGeometry, KeepPoints
from fastio.transforms.crop import CenterCrop, RandomCrop, RandomResizedCrop
from fastio.transforms.flip import Grayscale, RandomHorizontalFlip
from fastio.transforms.frames import invert_geometry, move_boxes
from fastio.transforms.resize import Letterbox, Pad, Resize
from fastio.transforms.transform import BaseTransform, Transform

__all__ = [
    "BaseTransform",
    "BatchTransform",
    "CenterCrop",
    "ChannelsLast",
    "ColorJitter",
    "Compiled",
    "Compose",
    "CutMix",
    "Grayscale",
    "KeepBoxes",
    "KeepGeometry",
    "KeepPoints",
    "Letterbox",
    "MixUp",
    "Normalize",
    "NormalizeLayer",
    "Pad",
    "RandAugment",
    "RandomCrop",
    "RandomErasing",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "Resize",
    "ToDtype",
    "Transform",
    "TrivialAugmentWide",
    "invert_geometry",
    "move_boxes",
]

_FLOATS = "leave it out before Normalize, and write ToDtype(torch.float32, scale=True) where nothing else makes floats"
_NEEDLESS = {
    "ToTensor": _FLOATS,
    "ConvertImageDtype": _FLOATS,
    "PILToTensor": "leave it out",
    "ToImage": "leave it out",
}

# Further names of torchvision.transforms and its v2.
_OF_TORCHVISION = (
    "AugMix", "AutoAugment", "ClampBoundingBoxes", "ClampKeyPoints", "ConvertBoundingBoxFormat", "ElasticTransform",
    "FiveCrop", "GaussianBlur", "GaussianNoise", "Identity", "JPEG", "Lambda", "LinearTransformation", "RGB",
    "RandomAdjustSharpness", "RandomAffine", "RandomApply", "RandomAutocontrast", "RandomChannelPermutation",
    "RandomChoice", "RandomEqualize", "RandomGrayscale", "RandomInvert", "RandomIoUCrop", "RandomOrder",
    "RandomPerspective", "RandomPhotometricDistort", "RandomPosterize", "RandomResize", "RandomRotation",
    "RandomShortestSize", "RandomSolarize", "RandomVerticalFlip", "RandomZoomOut", "SanitizeBoundingBoxes",
    "SanitizeKeyPoints", "ScaleJitter", "SetClampingMode", "TenCrop", "ToPILImage", "ToPureTensor",
    "UniformTemporalSubsample",
)  # fmt: skip
_ELSEWHERE = (
    "FastDataset(path, transform=...) takes torchvision's; a function on pixels of your own runs natively as "
    "Compiled(function)"
)

if not TYPE_CHECKING:  # type checkers would take every name for one of this module

    def __getattr__(name: str) -> NoReturn:
        """
        Explain torchvision's names of what needs no transform here, or has none.

        Raises ImportError in ``from fastio.transforms import ToTensor``, which would drop the text of an
        AttributeError, and that anywhere else.
        """
        is_import = sys._getframe(1).f_code.co_name == "_handle_fromlist"
        error = ImportError if is_import else AttributeError
        if name in _NEEDLESS:
            raise error(f"fastio.transforms has no {name}: batches are tensors already: {_NEEDLESS[name]}")
        if name in _OF_TORCHVISION:
            raise error(f"fastio.transforms has no {name}: {_ELSEWHERE}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
