"""The end of a recipe: normalise, dtype and memory format, as one multiplication and one addition per channel."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastio.errors import SchemaError
from fastio.lazy import torch
from fastio.transforms.batch.batch_transform import BatchTransform, Parameters, Pictures
from fastio.transforms.batch.values import dtype_like
from fastio.types.options import explains_fields

_FLOATING = ("float16", "bfloat16", "float32")

__all__ = ["ChannelsLast", "Contiguous", "Finish", "Finishing", "Normalize", "ToDtype"]


@dataclass(frozen=True)
class Finish:
    """
    ``images * scale + bias`` per channel, computed in float32 and rounded once, to ``dtype``.

    A single number applies to all channels. ``channels_last`` asks for that memory format; without it, the format
    stays. ``dtype`` is of the library, torch or NumPy, that the images are of.
    """

    dtype: Any
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

    def run(self, images: Any) -> Any:
        """Finish the images with operations of their library, torch or NumPy."""
        self.check(images.shape[1])
        if isinstance(images, np.ndarray):
            return self._of_arrays(images)
        layout = torch.channels_last if self.channels_last else torch.preserve_format
        if self.is_plain:
            return images.to(self.dtype, memory_format=layout)
        scale, bias = (_column(values, images.device) for values in (self.scale, self.bias))
        return torch.addcmul(bias, images.to(torch.float32, memory_format=layout), scale).to(self.dtype)

    def _of_arrays(self, images: NDArray[Any]) -> NDArray[Any]:
        if self.channels_last:
            images = np.ascontiguousarray(images.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        if not self.is_plain:
            images = self.float32_of(images)
        dtype: np.dtype[Any] = self.dtype
        with np.errstate(over="ignore"):  # of float16: infinite, as torch's
            return images.astype(dtype, order="K")

    def float32_of(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """
        Return ``values * scale + bias`` for arrays (B, C, H, W), rounded once: as torch computes it on a CPU that
        multiplies and adds in one step.
        """
        scale, bias = (np.array(each, np.float32).reshape(1, -1, 1, 1) for each in (self.scale, self.bias))
        exact = values.astype(np.float64, order="K") * scale + bias
        with np.errstate(over="ignore"):
            return exact.astype(np.float32, order="K")


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
@dataclass(frozen=True, repr=False)
class ToDtype(_Finisher):
    """
    Convert to float16, bfloat16 or float32; with ``scale``, uint8 values are divided by 255.

    ``dtype`` is one of torch's, or where torch need not be installed, one of NumPy's or a name: ``"float32"``.
    """

    dtype: torch.dtype | DTypeLike
    scale: bool = False

    def __post_init__(self) -> None:
        if self.name not in _FLOATING:
            floating = ", ".join(f"torch.{name}" for name in _FLOATING)
            raise ValueError(f"dtype={self.dtype!r}: expected one of {floating}, or one of NumPy's or a name")

    def __repr__(self) -> str:
        """Return the same, whatever named the dtype: states know transforms so."""
        return f"ToDtype(dtype=torch.{self.name}, scale={self.scale})"

    @property
    def name(self) -> str:
        """The name of the dtype."""
        if isinstance(self.dtype, (type, np.dtype)):
            return np.dtype(self.dtype).name
        return str(self.dtype).removeprefix("torch.")

    def after(self, finish: Finish) -> Finish:
        divisor = 255.0 if self.scale and not _is_floating(finish.dtype) else 1.0
        return replace(
            finish,
            dtype=dtype_like(self.name, finish.dtype),
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
        if not _is_floating(finish.dtype):
            finish = ToDtype("float32", scale=True).after(finish)
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
        images = pictures.images
        done = np.ascontiguousarray(images) if isinstance(images, np.ndarray) else images.contiguous()
        return Pictures(done, pictures.labels)


def _is_floating(dtype: torch.dtype | np.dtype[Any]) -> bool:
    return dtype.kind == "f" if isinstance(dtype, np.dtype) else dtype.is_floating_point


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
