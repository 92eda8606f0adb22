"""The end of a recipe: normalise, dtype and memory format, as one multiplication and one addition per channel."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError
from fastio.lazy import torch
from fastio.transforms.batch.batch_transform import BatchTransform, Parameters, Pictures
from fastio.types.options import explains_fields

__all__ = ["ChannelsLast", "Contiguous", "Finish", "Finishing", "Normalize", "ToDtype"]


@dataclass(frozen=True)
class Finish:
    """
    ``images * scale + bias`` per channel, computed in float32 and rounded once, to ``dtype``.

    A single number applies to all channels. ``channels_last`` asks for that memory format; without it, the format
    stays.
    """

    dtype: torch.dtype
    scale: tuple[float, ...] = (1.0,)
    bias: tuple[float, ...] = (0.0,)
    channels_last: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether values stay the same, apart from their dtype."""
        return self.scale == (1.0,) and self.bias == (0.0,)

    def check(self, channels: int) -> None:
        """Raise SchemaError if the numbers are for a different count of channels."""
        if len(self.scale) not in (1, channels):
            raise SchemaError(f"Normalize has numbers for {len(self.scale)} channels, but pictures have {channels}")

    def run(self, images: torch.Tensor) -> torch.Tensor:
        """Finish the images with torch's own operations."""
        self.check(images.shape[1])
        layout = torch.channels_last if self.channels_last else torch.preserve_format
        if self.is_plain:
            return images.to(self.dtype, memory_format=layout)
        scale, bias = (_column(values, images.device) for values in (self.scale, self.bias))
        return torch.addcmul(bias, images.to(torch.float32, memory_format=layout), scale).to(self.dtype)


@runtime_checkable
class Finishing(Protocol):
    """A transform that only changes a Finish."""

    def after(self, finish: Finish) -> Finish:
        """Return one Finish that does ``finish`` and then this transform."""
        ...


class _Finisher(BatchTransform):
    """Makes a BatchTransform of a Finishing: nothing random, one Finish."""

    @property
    def draws(self) -> int:
        return 0

    def parameters(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Parameters:
        return {}

    def run(self: Finishing, pictures: Pictures, parameters: Parameters) -> Pictures:
        images = pictures.images
        return Pictures(self.after(Finish(images.dtype)).run(images), pictures.labels)


@explains_fields
@dataclass(frozen=True)
class ToDtype(_Finisher):
    """Convert to float16, bfloat16 or float32; with ``scale``, uint8 values are divided by 255."""

    dtype: torch.dtype
    scale: bool = False

    def __post_init__(self) -> None:
        floating = torch.float16, torch.bfloat16, torch.float32
        if self.dtype not in floating:
            raise ValueError(f"dtype={self.dtype!r}: expected one of {', '.join(map(str, floating))}")

    def after(self, finish: Finish) -> Finish:
        divisor = 255.0 if self.scale and not finish.dtype.is_floating_point else 1.0
        return replace(
            finish,
            dtype=self.dtype,
            scale=tuple(value / divisor for value in finish.scale),
            bias=tuple(value / divisor for value in finish.bias),
        )


@explains_fields
@dataclass(frozen=True)
class Normalize(_Finisher):
    """
    ``(value - mean) / std`` per channel, for values from 0 to 1.

    uint8 pictures are divided by 255 and become float32, so no ToDtype is needed before (torchvision requires one).
    ``mean`` and ``std`` have one number per channel, or one for all.
    """

    mean: Sequence[float]
    std: Sequence[float]

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            numbers = getattr(self, name)
            if isinstance(numbers, (int, float, str)):
                raise TypeError(f"{name}={numbers!r}: expected one number per channel, such as ({numbers},)")
            object.__setattr__(self, name, tuple(float(value) for value in numbers))
        if not self.mean or len(self.mean) != len(self.std):
            raise ValueError(f"mean={self.mean!r}, std={self.std!r}: expected one number of each per channel")
        if not all(value > 0 for value in self.std):
            raise ValueError(f"std={self.std!r}: expected numbers above 0")

    def after(self, finish: Finish) -> Finish:
        if not finish.dtype.is_floating_point:
            finish = ToDtype(torch.float32, scale=True).after(finish)
        channels = max(len(finish.scale), len(self.mean))
        scale, bias, mean, std = (
            values * channels if len(values) == 1 else values
            for values in (finish.scale, finish.bias, tuple(self.mean), tuple(self.std))
        )
        return replace(
            finish,
            scale=tuple(value / deviation for value, deviation in zip(scale, std, strict=True)),
            bias=tuple((value - centre) / deviation for value, centre, deviation in zip(bias, mean, std, strict=True)),
        )


@explains_fields
@dataclass(frozen=True)
class ChannelsLast(_Finisher):
    """Put (B, C, H, W) into channels_last memory format, for Tensor Cores."""

    def after(self, finish: Finish) -> Finish:
        return replace(finish, channels_last=True)


@dataclass(frozen=True)
class Contiguous(BatchTransform):
    """Make (B, C, H, W) contiguous, whatever earlier transforms left; no copy if it already is."""

    draws: ClassVar[int] = 0

    def parameters(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Parameters:
        return {}

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures:
        return Pictures(pictures.images.contiguous(), pictures.labels)


def _column(values: tuple[float, ...], device: torch.device) -> torch.Tensor:
    """Return (1, C, 1, 1) in float32, without a copy from pageable memory, which would wait for the stream."""
    column = torch.empty(len(values), dtype=torch.float32, device=device)
    for place, value in enumerate(values):
        column[place].fill_(value)
    return column.reshape(1, -1, 1, 1)


def __getattr__(name: str) -> Any:
    if name != "NormalizeLayer":  # which was here in 0.1: pickled networks name this module
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        f"{__name__}.NormalizeLayer: write from fastio.transforms import NormalizeLayer instead; a network that was "
        "pickled with it: save it again",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(import_module("fastio.transforms.batch.layer"), name)
