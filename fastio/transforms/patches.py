"""Pictures as patches within a budget: ResizeToTokens, SmartResize, Patchify; how many patches each picture has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from numbers import Real
from typing import Any, Literal, NoReturn, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from fastio.lazy import is_tensor, torch
from fastio.samplers.position import as_array, whole
from fastio.transforms.arguments import Interpolation, as_kernel, check_antialias
from fastio.transforms.canvas import Canvas, Ints, RefusedPicturesError
from fastio.transforms.compiled import Compiled
from fastio.transforms.compose import Compose
from fastio.transforms.plan import Plan
from fastio.transforms.transform import LoaderTransform, Transform
from fastio.types.options import brief_repr, explains_fields, explains_names
from fastio.types.schema import Field

__all__ = ["Patchify", "ResizeToTokens", "SmartResize", "patches_of"]

_MOST_PATCH = 1024  # pixels of a side
_MOST_PATCHES = 1 << 20
_MOST_PIXELS = 1 << 40


# Resizing to a number of patches.

_ACCURACY = 1e-5  # of the factor that timm searches for
_MOST_FACTOR = 100.0


@explains_fields
@dataclass(frozen=True, repr=False)
class ResizeToTokens(Transform):
    """
    Resize a picture, proportions kept, so that it becomes as many patches of ``patch`` x ``patch`` pixels as fit into
    ``max_tokens``, and both sides are multiples of ``patch``.

    This is the rule of NaFlex models, and gives the sizes of timm's ``ResizeToSequence``: the largest factor is
    searched for, then sides are rounded up, so proportions change by less than a patch. Small pictures are enlarged,
    by at most ``max_ratio`` (None: without a limit). ``interpolation`` as in Resize; bicubic, as there.
    """

    max_tokens: int
    patch: int = 16
    interpolation: Interpolation = "bicubic"
    max_ratio: float | None = None
    antialias: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_tokens", _as_count("max_tokens", self.max_tokens, "patches"))
        object.__setattr__(self, "patch", _as_patch(self.patch))
        object.__setattr__(self, "interpolation", as_kernel(self.interpolation))
        check_antialias(self.antialias)
        if self.max_ratio is not None:
            if not isinstance(self.max_ratio, Real) or isinstance(self.max_ratio, bool) or not self.max_ratio > 0:
                raise ValueError(f"max_ratio={self.max_ratio!r}: expected a number above 0, or None")
            object.__setattr__(self, "max_ratio", float(self.max_ratio))

    def __repr__(self) -> str:
        """Leave out what is as by default."""
        return brief_repr(self, newer=("max_ratio", "antialias"))

    @property
    def draws(self) -> int:
        return 0

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Resample once."""
        height, width = self._sides(*np.broadcast_arrays(canvas.height, canvas.width))
        canvas.resize(width, height, kernel=self.interpolation)

    def _sides(self, height: Ints, width: Ints) -> tuple[Ints, Ints]:
        """Return the new sides, by timm's search for the factor: the same halvings, so the same factor."""
        low, high = np.full(len(height), _ACCURACY / 10.0), np.full(len(height), _MOST_FACTOR)
        while (is_open := high - low >= _ACCURACY).any():
            factor = (low + high) / 2.0
            tall, wide = self._scaled(height, width, factor)
            fits = (tall // self.patch) * (wide // self.patch) <= self.max_tokens
            low, high = np.where(is_open & fits, factor, low), np.where(is_open & ~fits, factor, high)
        return self._scaled(height, width, low if self.max_ratio is None else np.minimum(low, self.max_ratio))

    def _scaled(self, height: Ints, width: Ints, factor: NDArray[np.float64]) -> tuple[Ints, Ints]:
        tall, wide = (np.ceil(side * factor / self.patch).astype(np.int64) for side in (height, width))
        return np.maximum(tall, 1) * self.patch, np.maximum(wide, 1) * self.patch


_MOST_PROPORTION = 200  # long side by short side, as in transformers


@explains_fields
@dataclass(frozen=True, repr=False)
class SmartResize(Transform):
    """
    Resize a picture so that both sides are multiples of ``factor``, with ``min_pixels`` to ``max_pixels`` pixels.

    This is the rule of Qwen2-VL and its successors, ``smart_resize`` in transformers: within those limits, sides are
    rounded to the nearest multiple; otherwise they are scaled together, and rounded inwards. ``factor`` is twice the
    side of a patch: 28 for patches of 14 pixels (Qwen2-VL, Qwen2.5-VL), 32 for those of 16 (Qwen3-VL).
    ``interpolation`` as in Resize; bicubic, as there. Pictures whose long side is more than 200 times the short one are
    refused, as in transformers: they are bad samples of a loader, and SchemaError elsewhere.
    """

    factor: int = 28
    min_pixels: int = 56 * 56
    max_pixels: int = 28 * 28 * 1280
    interpolation: Interpolation = "bicubic"
    antialias: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", whole("factor", self.factor, "1 to 65535 pixels", least=1, below=65536))
        for name in ("min_pixels", "max_pixels"):
            value = whole(name, getattr(self, name), "1 to 2**40 pixels", least=1, below=_MOST_PIXELS + 1)
            object.__setattr__(self, name, value)
        if self.min_pixels > self.max_pixels or self.max_pixels < self.factor * self.factor:
            raise ValueError(
                f"min_pixels={self.min_pixels}, max_pixels={self.max_pixels}: expected the smaller one first, and at "
                f"least factor squared, {self.factor * self.factor}, for the larger"
            )
        object.__setattr__(self, "interpolation", as_kernel(self.interpolation))
        check_antialias(self.antialias)

    def __repr__(self) -> str:
        """Leave out what is as by default."""
        return brief_repr(self, newer=("antialias",))

    @property
    def draws(self) -> int:
        return 0

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Resample once. Raises RefusedPicturesError for pictures that are too long."""
        height, width = np.broadcast_arrays(canvas.height, canvas.width)
        is_long = np.maximum(height, width) > _MOST_PROPORTION * np.minimum(height, width)
        if is_long.any():
            at = int(is_long.argmax())
            reason = (
                f"one side is more than {_MOST_PROPORTION} times the other: crop such pictures first, or leave them "
                f'out by dataset.where("width <= {_MOST_PROPORTION} * height and height <= {_MOST_PROPORTION} * width")'
            )
            raise RefusedPicturesError(
                f"{self}: a picture of {height[at]}x{width[at]} (height x width): {reason}",
                reason=f"{self}: {reason}",
                refused=is_long,
            )
        tall, wide = self._sides(height, width)
        canvas.resize(wide, tall, kernel=self.interpolation)

    def _sides(self, height: Ints, width: Ints) -> tuple[Ints, Ints]:
        factor, area = self.factor, (height * width).astype(np.float64)
        sides = [np.rint(side / factor).astype(np.int64) * factor for side in (height, width)]
        pixels = sides[0] * sides[1]
        shrink, grow = np.sqrt(area / self.max_pixels), np.sqrt(self.min_pixels / area)
        for place, side in enumerate((height, width)):
            smaller = np.maximum(factor, np.floor(side / shrink / factor).astype(np.int64) * factor)
            larger = np.ceil(side * grow / factor).astype(np.int64) * factor
            own = np.where(pixels < self.min_pixels, larger, sides[place])
            sides[place] = np.where(pixels > self.max_pixels, smaller, own)
        return sides[0], sides[1]


def _as_count(name: str, count: int, unit: str) -> int:
    return whole(name, count, f"1 to {_MOST_PATCHES} {unit}", least=1, below=_MOST_PATCHES + 1)


def _as_patch(patch: int) -> int:
    return whole("patch", patch, f"1 to {_MOST_PATCH} pixels", least=1, below=_MOST_PATCH + 1)


# Patchify: the pictures of a batch as patches.

Order = Literal["raster", "qwen"]

# Patches along the side of a block that a model merges, how often each has its pixels, and whether those are planar.
_LAYOUTS: Mapping[str, tuple[int, int, bool]] = {"raster": (1, 1, False), "qwen": (2, 2, True)}


@explains_fields
@dataclass(frozen=True, repr=False)
class Patchify(LoaderTransform):
    """
    Cut pictures into patches of ``patch`` x ``patch`` pixels: behind crops, flips and colours, before Normalize::

        transforms = [RandomHorizontalFlip(), ResizeToTokens(1024, 16), Patchify(16, 1024), Normalize(mean, std)]

    In the place of its pictures, a batch then has a dict. D is ``patch * patch * 3`` for colour pictures:

    * ``patches`` ``(B, N, D)``, uint8 unless Normalize or ToDtype follow. N is ``max_patches``; with None, the number
      of the picture of the batch that has most. Slots beyond a picture's patches are 0 before Normalize
    * ``patch_coord`` int64 ``(B, N, 2)``: row and column of each patch; 0 in slots beyond them
    * ``patch_valid`` bool ``(B, N)``: which patches there are
    * ``grid_thw`` int64 ``(B, 3)``: 1, and how many rows and columns of patches a picture has

    Or, ``packed``, without padding, the patches of one picture behind those of the other, ``T`` in all: ``patches``
    ``(T, D)``, ``patch_coord`` ``(T, 2)``, ``grid_thw``, and for variable-length attention ``cu_seqlens`` int32
    ``(B + 1,)``, where each picture begins and the last one ends, and ``max_seqlen``, the patches of the largest, an
    int. ``PackSampler(patches_of(dataset.sizes(), transforms), max_tokens=16384)`` makes batches of as many. A batch
    that has more raises SchemaError: the sampler was planned with other transforms. (Not where samples have text or
    token ids, too, which lengths may count.)

    ``order="raster"`` gives patches line by line, each as (row, column, channel): that of timm's NaFlex models.
    ``order="qwen"`` gives those of transformers' Qwen2VLImageProcessor and its successors: block by block of 2 x 2
    patches, each as (channel, 2 frames, row, column) with every pixel twice, so D is ``patch * patch * 6``.

    A picture whose sides are no multiples of a patch (of a block) gets edges of 0 on the right and below. One with more
    than ``max_patches`` patches is refused: it is a bad sample of a loader, and SchemaError elsewhere. Bad samples have
    one patch (block) of zeros, if their size is unknown or was refused and ``on_error="zero"`` keeps them. Behind it,
    only Normalize, ToDtype and functions of batches can follow.

    Called on one picture, a PIL image or a uint8 tensor ``(C, H, W)``, it returns such a dict with ``patches`` ``(N,
    D)``, ``patch_coord``, ``patch_valid`` and ``grid_thw``, without padding.
    """

    patch: int
    max_patches: int | None = None
    order: Order = "raster"
    packed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "patch", _as_patch(self.patch))
        if self.max_patches is not None:
            object.__setattr__(self, "max_patches", _as_count("max_patches", self.max_patches, "patches, or None"))
        if self.order not in get_args(Order):
            raise ValueError(f"order={self.order!r}: expected one of {', '.join(map(repr, get_args(Order)))}")

    def __repr__(self) -> str:
        """Leave out what is as by default."""
        return brief_repr(self, newer=("max_patches", "order", "packed"))

    @property
    def draws(self) -> int:
        return 0

    @property
    def amounts(self) -> tuple[int, int, int, int]:
        """The amounts of a step of programs: side, patches along a block, frames, whether pixels are planar."""
        merge, frames, is_planar = _LAYOUTS[self.order]
        return self.patch, merge, frames, int(is_planar)

    @property
    def merged(self) -> int:
        """How many patches on each side a model merges into one token: 2 with ``order="qwen"``, otherwise 1."""
        return _LAYOUTS[self.order][0]

    @property
    def pixels(self) -> int:
        """The pixels of a patch, those of all its frames."""
        return self.patch * self.patch * _LAYOUTS[self.order][1]

    def for_fields(self, fields: Iterable[Field]) -> NoReturn:
        """Raise TypeError: samples of FastDataset are pictures."""
        raise self.refusal()

    def refusal(self) -> TypeError:
        """Return the error to raise where it is passed to anything but a loader."""
        return TypeError(
            f"{self!r} makes batches of patches: pass it to FastLoader(..., transforms=[...]), or call it on a picture"
        )

    def __call__(self, picture: Image.Image | torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the patches of one picture."""
        pixels = picture.permute(1, 2, 0).numpy() if is_tensor(picture) else np.array(picture)
        pixels = pixels.reshape(*pixels.shape[:2], -1)
        if pixels.dtype != np.uint8 or 0 in pixels.shape:
            raise ValueError(f"expected a PIL image or a uint8 tensor (C, H, W), got {pixels.dtype} {pixels.shape}")
        lines, grids = self.cut(pixels), self.grids(np.array([pixels.shape[:2]]))
        self.check(grids, np.array([pixels.shape[:2]]))
        made = {
            "patches": lines.reshape(len(lines), -1),
            "patch_coord": self._places(grids)[0].copy(),
            "patch_valid": np.ones(len(lines), np.bool_),
            "grid_thw": _thw(grids)[0],
        }
        return {name: torch.from_numpy(values) for name, values in made.items()}

    def grids(self, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return rows and columns of patches, ``(n, 2)``, of pictures of these sizes; one block for sizes of 0."""
        merge = _LAYOUTS[self.order][0]
        return np.maximum(-(-sizes // (self.patch * merge)), 1) * merge

    def check(self, grids: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        """Raise RefusedPicturesError for pictures, of these sizes, that have more patches than there is room for."""
        if self.max_patches is None or not len(grids):
            return
        counts = grids.prod(axis=1)
        at = int(counts.argmax())
        if counts[at] > self.max_patches:
            reason = (
                f"patches, more than max_patches={self.max_patches}: put ResizeToTokens({self.max_patches}, "
                f"{self.patch}) before it, or raise max_patches"
            )
            raise RefusedPicturesError(
                f"{self}: a picture of {sizes[at, 0]}x{sizes[at, 1]} pixels (height x width) becomes {counts[at]} "
                f"{reason}",
                reason=f"{self}: the picture has too many {reason}",
                refused=counts > self.max_patches,
            )

    def places(self, grids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where the patches of each picture begin among those of the batch, and the last ones end, (n + 1,)."""
        counts = grids.prod(axis=1)
        if self.packed:
            return np.append(0, np.cumsum(counts))
        return np.arange(len(grids) + 1, dtype=np.int64) * self._longest(counts)

    def _longest(self, counts: NDArray[np.int64]) -> int:
        """Return the slots of a picture in a padded batch."""
        return self.max_patches or int(counts.max(initial=1))

    def cut(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the patches of one picture ``(H, W, C)``, ``(N, pixels, C)`` in memory: the plain path."""
        merge, frames, is_planar = _LAYOUTS[self.order]
        side, channels = self.patch, pixels.shape[2]
        rows, columns = self.grids(np.array([pixels.shape[:2]]))[0].tolist()
        padded = np.zeros((rows * side, columns * side, channels), np.uint8)
        padded[: pixels.shape[0], : pixels.shape[1]] = pixels
        blocks = padded.reshape(rows // merge, merge, side, columns // merge, merge, side, channels)
        blocks = blocks.transpose(0, 3, 1, 4, 6, 2, 5) if is_planar else blocks.transpose(0, 3, 1, 4, 2, 5, 6)
        patches = blocks.reshape(rows * columns, *blocks.shape[4:])
        if is_planar:
            patches = np.repeat(patches[:, :, None], frames, axis=2)
        return np.ascontiguousarray(patches).reshape(rows * columns, self.pixels, channels)

    def batch(self, lines: Any, grids: NDArray[np.int64], output: Any) -> dict[str, Any]:
        """
        Return what a batch has of pictures with these ``grids``, ``(B, 2)``: ``lines`` are their patches, each at its
        place, and ``output`` makes values of arrays.
        """
        counts, places = grids.prod(axis=1), self.places(grids)
        patches = lines.reshape(len(lines), math.prod(lines.shape[1:]))
        if self.packed:
            return {
                "patches": patches,
                "patch_coord": output.of(np.concatenate([_NOWHERE, *self._places(grids)])),
                "grid_thw": output.of(_thw(grids)),
                "cu_seqlens": output.of(places.astype(np.int32)),
                "max_seqlen": int(counts.max(initial=0)),
            }
        longest = self._longest(counts)
        is_valid = np.arange(longest) < counts[:, None]
        coordinates = np.zeros((len(grids), longest, 2), np.int64)
        for row, own in zip(coordinates, self._places(grids), strict=True):
            row[: len(own)] = own
        return {
            "patches": patches.reshape(len(grids), longest, patches.shape[1]),
            "patch_coord": output.of(coordinates),
            "patch_valid": output.of(is_valid),
            "grid_thw": output.of(_thw(grids)),
        }

    def _places(self, grids: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return row and column of each patch, ``(N, 2)``, of each picture."""
        merge = _LAYOUTS[self.order][0]
        return [_coordinates(rows, columns, merge) for rows, columns in grids.tolist()]

    def as_pictures(self, patches: Any) -> Any:
        """
        Return patches ``(..., D)``, a tensor or an array, as pictures ``(n, C, H, W)``, a view, for what works on
        channels.
        """
        side, frames = self.patch, _LAYOUTS[self.order][1]
        channels = patches.shape[-1] // self.pixels
        if _LAYOUTS[self.order][2]:
            return patches.reshape(-1, channels, frames * side, side)
        rows = patches.reshape(-1, frames * side, side, channels)
        return rows.transpose(0, 3, 1, 2) if isinstance(rows, np.ndarray) else rows.permute(0, 3, 1, 2)

    def as_patches(self, pictures: Any, shape: Sequence[int]) -> Any:
        """Return what ``as_pictures`` made as patches of this shape."""
        if not _LAYOUTS[self.order][2]:
            is_array = isinstance(pictures, np.ndarray)
            pictures = pictures.transpose(0, 2, 3, 1) if is_array else pictures.permute(0, 2, 3, 1)
        return pictures.reshape(tuple(shape))


_NOWHERE = np.empty((0, 2), np.int64)


@lru_cache(maxsize=1024)  # pictures of a data set have few grids
def _coordinates(rows: int, columns: int, merge: int) -> NDArray[np.int64]:
    """Return row and column of each patch of one picture, block by block."""
    block, within = np.divmod(np.arange(rows * columns, dtype=np.int64), merge * merge)
    down, across = np.divmod(block, columns // merge)
    row, column = np.divmod(within, merge)
    places = np.stack((down * merge + row, across * merge + column), axis=1)
    places.flags.writeable = False
    return places


def _thw(grids: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.column_stack((np.ones(len(grids), np.int64), grids))


# patches_of: how many patches pictures become, for samplers.


@explains_names()
def patches_of(sizes: ArrayLike, transforms: Iterable[Any]) -> NDArray[np.int32]:
    """
    Return how many patches pictures of these sizes become by a loader's ``transforms``, int32 ``(n,)``::

        counts = patches_of(dataset.sizes(), transforms)
        FastLoader(dataset, batch_sampler=PackSampler(counts, max_tokens=16384), transforms=transforms)

    ``sizes`` are heights and widths ``(n, 2)``; zeros are pictures with bad headers. These have one patch (block), and
    so have pictures that a transform refuses, the other bad samples of a loader. Raises ValueError for transforms
    without a Patchify, and where chance decides how large a picture is when it is cut.
    """
    steps = list(transforms)
    patchify = next((step for step in steps if isinstance(step, Patchify)), None)
    if patchify is None:
        raise ValueError(f"transforms={steps!r}: expected a Patchify among them")
    array = as_array(sizes)
    if array.ndim != 2 or array.shape[1] != 2 or (array.dtype.kind not in "iu" and array.size):
        raise ValueError(
            f"sizes are {array.dtype} {array.shape}: expected integers (n, 2), the height and the width of each "
            "picture, as dataset.sizes() gives them"
        )
    every = array.astype(np.int64)
    both = every[:, 0] << 32 | every[:, 1]  # equal sizes are planned once
    kinds, which = np.unique(both, return_inverse=True)
    own = np.column_stack((kinds >> 32, kinds & 0xFFFFFFFF))
    moving = Compose([step for step in takewhile(lambda step: step is not patchify, steps) if _moves(step)])
    final = np.zeros_like(own)
    is_known = np.asarray(own.all(axis=1))
    while is_known.any():
        try:
            final[is_known] = _final_sizes(own[is_known], moving)
            break
        except RefusedPicturesError as exc:
            is_known = is_known & ~exc.spread(is_known, len(own)).refused
    grids = patchify.grids(final)
    try:
        patchify.check(grids, final)
    except RefusedPicturesError as exc:
        grids[exc.refused] = patchify.merged
    counts: NDArray[np.int32] = grids.prod(axis=1).astype(np.int32)[which.reshape(-1)]
    return counts


def _moves(step: object) -> bool:
    return isinstance(step, Transform) and not isinstance(step, Compiled)


_TRIED = (0.0, 0.5, 1 - 2**-53)  # numbers in place of random ones


def _final_sizes(sizes: NDArray[np.int64], transforms: Compose) -> NDArray[np.int64]:
    """Return the sizes after the transforms. Raises ValueError where they depend on random numbers."""
    made = []
    for number in _TRIED if transforms.draws else _TRIED[:1]:
        plan = Plan(sizes[:, 0], sizes[:, 1])
        if len(sizes):
            transforms.run(plan, np.full((len(sizes), transforms.draws), number))
        made.append(np.column_stack([np.broadcast_to(side, len(sizes)) for side in (plan.height, plan.width)]))
    if any((each != made[0]).any() for each in made[1:]):
        raise ValueError(
            f"{transforms}: chance decides how large pictures are when they are cut, so nobody knows beforehand how "
            "many patches they have: leave it out, or pass batch_size= instead of a sampler"
        )
    return made[0]
