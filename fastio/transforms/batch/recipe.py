"""A recipe: transforms of batches in order, what they draw for each sample, and which of them run together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import takewhile
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SampleError, SchemaError
from fastio.lazy import torch
from fastio.samplers.batches import split_ids
from fastio.transforms.batch.batch_transform import BatchTransform, Parameters, Pictures
from fastio.transforms.batch.choice import mixes_of
from fastio.transforms.batch.finish import Finish, Finishing
from fastio.transforms.batch.functions import FailedSamplesError, PerBatch, PerSample
from fastio.transforms.batch.geometry import RenderTarget, grey, resample
from fastio.transforms.batch.one_pass import HostPass, one_pass
from fastio.transforms.batch.program import PixelTransform, grouped, program_for, run_program
from fastio.transforms.batch.values import is_floating, shown
from fastio.transforms.canvas import RefusedPicturesError, Rule
from fastio.transforms.compiled import Called, Compiled
from fastio.transforms.compose import Compose
from fastio.transforms.fused import uniform
from fastio.transforms.iou_crop import looking_at_boxes
from fastio.transforms.patches import Patchify
from fastio.transforms.plan import Plan
from fastio.transforms.program import COLUMNS, Program, check_channels, joined
from fastio.transforms.transform import BaseTransform, KeepsSize, LoaderTransform, Transform
from fastio.transforms.views import view_seed

__all__ = ["AnyTransform", "Colours", "Recipe", "as_list", "is_geometry", "split"]

AnyTransform = BaseTransform | Callable[[Any], Any]

_BARE = (
    "A function at the end of transforms gets the whole batch: write PerSample(function) for one that gets a picture, "
    "or pass a function of samples to FastDataset(path, transform=...)."
)


class Recipe:
    """
    Transforms for the pictures of a batch, and among them the user's own functions for the whole batch.

    A recipe ends with the first of those functions that follow each other, ``own``; what stands behind them is the
    recipe ``next``, whose random numbers go on with the next place in the list.

    The pictures are the first four-dimensional tensor of a batch; the labels are the first tensor of integers (B,) or
    of floating numbers (B, classes). Adjacent crops, resizes and flips become one plan, as in the native core.
    Adjacent Normalize, ToDtype and ChannelsLast become one pass, together with a plan just before them if it does not
    resample. Only one of them may mix samples (ValueError otherwise). Random numbers depend on ``seed``, epoch, the
    sample's index and the transform's position in the recipe.

    The first ``native`` transforms have been done by the decoders, with the numbers that they have here: see Colours.
    With ``repeats``, a batch has so many views of its samples, one behind the other, which draw numbers of their own.
    Where pictures were cut into ``patches``, these are the first tensor of a batch, and have no random numbers.
    """

    def __init__(
        self,
        transforms: Sequence[AnyTransform],
        *,
        seed: int,
        native: int = 0,
        repeats: int = 1,
        first: int = 0,
        named: Callable[[int], SampleError] | None = None,
        patches: Patchify | None = None,
    ) -> None:
        misplaced = next((transform for transform in transforms if isinstance(transform, LoaderTransform)), None)
        if misplaced is not None:
            raise misplaced.refusal()
        looking = next((step for transform in transforms for step in looking_at_boxes(transform)), None)
        if looking is not None:
            raise ValueError(
                f"{looking!r} looks at boxes, which are known only where pictures are decoded: put it before "
                f"{transforms[0]!r}, with FastLoader"
            )
        ours = [isinstance(transform, (Transform, BatchTransform)) for transform in transforms]
        count = ours.index(False) if False in ours else len(ours)
        stop = count + ours[count:].index(True) if any(ours[count:]) else len(ours)
        bare = next((function for function in transforms[count:stop] if not isinstance(function, PerBatch)), None)
        if stop < len(ours) and bare is not None:
            raise TypeError(
                f"{transforms[stop]!r} behind {bare!r}: a bare function gets batches, and comes last: write "
                "PerSample(function), which gets one picture, or PerBatch(function), which gets the batch: these may "
                "stand anywhere"
            )
        mixing = [transform for transform in transforms if mixes_of(transform)]
        if len(mixing) > 1:
            raise ValueError(
                f"{mixing[0]!r} and {mixing[1]!r} in one list: both would mix every batch, but a batch can be mixed "
                f"only once: keep one, or write OneOf([{mixing[0]!r}, {mixing[1]!r}]), which draws one per batch"
            )
        for transform in transforms[count:stop]:
            if not callable(transform):
                raise TypeError(f"{transform!r}: expected one of fastio.transforms, or a callable from batch to batch")
        stages = _stages(transforms[:count], first=first)
        self._stages = _left(stages, native)
        self.transforms: Sequence[Any] = transforms[native:count]  # that are left to this recipe
        self.own: Sequence[Any] = transforms[count:stop]  # callables of the user's
        self._seeds = [view_seed(seed, view) for view in range(repeats)]
        self._named = named
        self._patches = patches
        self.next: Recipe | None = None
        self.end = first + len(stages)  # the number of the stage that would follow
        if stop < len(ours):
            self.next = Recipe(
                transforms[stop:], seed=seed, repeats=repeats, first=self.end, named=named, patches=patches
            )
            self.end = self.next.end

    def __bool__(self) -> bool:
        return bool(self._stages or self.own)

    @property
    def is_fixed(self) -> bool:
        """
        Whether it does the same to each picture, whatever its sample: without random numbers, mixes or functions of
        single pictures.
        """
        stages = self._stages.values()
        is_mixing = any(isinstance(stage, _Single) and mixes_of(stage.transform) for stage in stages)
        has_functions = any(isinstance(transform, PerSample) for transform in self.transforms)
        is_random = is_mixing or has_functions or any(stage.draws for stage in stages)
        return not is_random and (self.next is None or self.next.is_fixed)

    def draw(
        self, parts: Sequence[torch.Tensor], indices: NDArray[np.int64], epoch: int, blanks: Collection[int] = ()
    ) -> list[Parameters]:
        """
        Decide what each stage does with these samples; ``parts`` are the tensors of their batch. Functions of single
        pictures are not called for the samples at the places ``blanks``, and make zeros of them.

        All tensors in the result are on the host.
        """
        if not self._stages or self._patches is not None:
            return [{}] * len(self._stages)
        pictures = parts[_pictures(parts)]
        shape = pictures.shape
        if len(indices) * len(self._seeds) != shape[0]:
            if not self.is_fixed:
                raise SchemaError(f"{shape[0]} pictures in a batch of {len(indices)} samples")
            indices = np.zeros(
                shape[0] // len(self._seeds), np.int64
            )  # pictures of lists in batches of somebody else's
        channels, size = shape[1], (shape[2], shape[3])
        samples = np.tile(split_ids(indices)[0], len(self._seeds))
        are_blank = np.tile(np.isin(np.arange(len(indices)), list(blanks)), len(self._seeds))
        self._check_labels(parts)
        drawn = []
        for number, stage in self._stages.items():
            seeds = [_stage_seed(seed, number) for seed in self._seeds]
            numbers = np.concatenate([uniform(indices, stage.draws, seed=seed, epoch=epoch) for seed in seeds])
            parameters, channels, size = stage.draw(numbers, channels, size, _Rows(samples, are_blank))
            is_mix = isinstance(stage, _Single) and mixes_of(stage.transform)
            drawn.append(_travelling(parameters) if is_mix and not isinstance(pictures, np.ndarray) else parameters)
        return drawn

    def blanked(self, parts: Sequence[torch.Tensor], count: int, blanks: Collection[int]) -> list[torch.Tensor]:
        """Return the tensors of a batch of ``count`` samples with zeros for the pictures of those at ``blanks``."""
        done, place = list(parts), None if self._patches is not None else _find_pictures(parts)
        if place is not None and blanks:
            pictures = parts[place]
            done[place] = pictures.copy("K") if isinstance(pictures, np.ndarray) else pictures.clone()
            for view in range(len(self._seeds)):
                done[place][[view * count + blank for blank in blanks]] = 0
        return done

    def _check_labels(self, parts: Sequence[torch.Tensor]) -> None:
        """
        Raise SchemaError for a label outside the classes: on the device, it would silently become a label of zeros.
        """
        position = _labels(parts)
        for stage in self._stages.values():
            for mix in mixes_of(stage.transform) if isinstance(stage, _Single) else ():
                if mix.num_classes is None or position is None:
                    continue
                labels = parts[position]
                is_host = isinstance(labels, np.ndarray) or labels.device.type == "cpu"
                if labels.ndim == 1 and is_host and len(labels):
                    least, most = int(labels.min()), int(labels.max())
                    if least < 0 or most >= mix.num_classes:
                        raise SchemaError(
                            f"{mix}: the batch has labels from {least} to {most}, expected 0 to {mix.num_classes - 1}: "
                            "pass the number of all classes"
                        )

    def run(self, parts: Sequence[torch.Tensor], drawn: Sequence[Parameters]) -> list[torch.Tensor]:
        """
        Return the tensors of a batch after all stages; ``drawn`` is on their device.

        Runs outside autocast: these products do not belong to the network, and the pixels must not depend on it.
        """
        done = list(parts)
        if self._stages and self._patches is not None:
            images = self._patches.as_pictures(parts[0])
            with _without_autocast(images):
                for stage in self._stages.values():
                    images = stage.run(Pictures(images), {}).images
            done[0] = self._patches.as_patches(images, parts[0].shape)
        elif self._stages:
            position, labels = _pictures(parts), _labels(parts)
            pictures = Pictures(parts[position], None if labels is None else parts[labels])
            with _without_autocast(pictures.images):
                for stage, parameters in zip(self._stages.values(), drawn, strict=True):
                    pictures = self._run(stage, pictures, parameters)
            done[position] = pictures.images
            if labels is not None:
                assert pictures.labels is not None
                done[labels] = pictures.labels
        return done

    def _run(self, stage: _Stage, pictures: Pictures, parameters: Parameters) -> Pictures:
        """
        Run a stage. Raises FailedSamplesError, by place among the samples, with the names that the loader knows, for
        those that a function of the user's fails for.
        """
        try:
            return stage.run(pictures, parameters)
        except FailedSamplesError as failed:
            count = len(pictures.images) // len(self._seeds)
            errors: dict[int, SampleError] = {}
            for row, error in failed.errors.items():
                errors.setdefault(row % count, self._in_words(error))
            raise FailedSamplesError(errors) from None

    def _in_words(self, error: SampleError) -> SampleError:
        if self._named is None:
            return error
        named = self._named(error.index)
        named.args = (f"{named}{str(error).removeprefix(f'[{error.index}]')}",)
        named.__cause__ = error.__cause__
        return named

    def finish(self, batch: Any) -> Any:
        """Apply the user's own callables to the batch."""
        for function in self.own:
            try:
                batch = function(batch)
            except Exception as exc:
                if not isinstance(function, PerBatch):
                    exc.add_note(_BARE)
                raise
        return batch


class Colours:
    """
    The leading transforms of a recipe that native threads run where they decode: those of colours, flips, warps and
    compiled functions.

    Their random numbers are those that a Recipe of the whole list draws for them. Raises SchemaError, when programs
    are made, for pictures that a transform cannot take.
    """

    def __init__(self, transforms: Sequence[Any], *, seed: int) -> None:
        self.transforms = tuple(transforms)
        self._stages = _stages(transforms)
        self._seed = seed

    @staticmethod
    def leading(transforms: Sequence[AnyTransform]) -> int:
        """Return how many of these transforms, behind those of the decoders, are such."""
        kinds = (PixelTransform, KeepsSize, Compiled)
        return len(list(takewhile(lambda step: isinstance(step, kinds) and not mixes_of(step), transforms)))

    def program(self, indices: NDArray[np.int64], shapes: NDArray[np.int64], *, epoch: int) -> Program:
        """As Programs.program."""
        sizes, kinds = np.unique(shapes, axis=0, return_inverse=True)
        steps = []
        for number, stage in self._stages.items():
            numbers = uniform(indices, stage.draws, seed=_stage_seed(self._seed, number), epoch=epoch)
            parts = [
                (np.flatnonzero(kinds.reshape(-1) == kind), tuple(size.tolist()))
                for kind, size in enumerate(sizes)
                if size[:2].all()
            ]
            programs = []
            for which, shape in parts:
                try:
                    programs.append((which, self._stage_program(stage, numbers[which], shape)))
                except RefusedPicturesError as exc:
                    raise exc.spread(which, len(indices)) from None
            most = max((program.shape[1] for _, program in programs), default=0)
            step = np.zeros((len(indices), most, COLUMNS))
            for which, program in programs:
                step[which, : program.shape[1]] = program
            steps.append(step)
        return joined(steps, len(indices))

    def _stage_program(self, stage: _Stage, numbers: NDArray[np.float64], shape: tuple[int, ...]) -> Program:
        height, width, channels = shape
        if isinstance(stage, _Single):
            check_channels(channels, stage.transform)
            assert isinstance(stage.transform, PixelTransform)
            return program_for(stage.transform, numbers, (height, width))
        assert isinstance(stage, _Pass)
        for transform in stage.compose.transforms:
            check_channels(channels, transform)
        return program_for(stage.compose, numbers, (height, width))


def as_list(transforms: Sequence[AnyTransform] | AnyTransform | None) -> list[AnyTransform]:
    """Return a list of transforms from several, one or none."""
    if transforms is None:
        return []
    return list(transforms) if isinstance(transforms, Sequence) else [transforms]


def is_geometry(transform: object) -> bool:
    """Whether a transform moves pixels as plans say: crops, resizes, edges and flips, and rules for what follows."""
    return isinstance(transform, Transform) and not isinstance(transform, Compiled)


def split(transforms: Sequence[AnyTransform], *, resident: bool) -> tuple[list[Any], list[AnyTransform]]:
    """
    Split transforms into those of the native decoders and those for batches on a device.

    Decoders get all crops, resizes and flips before the first other transform, or none if samples are stored on the
    device (``resident``). Rules, such as KeepBoxes, go with the decoders wherever they stand; samples on the device
    have nothing that they are for.
    """
    count = 0 if resident else len(list(takewhile(is_geometry, transforms)))
    rules = [transform for transform in transforms[count:] if isinstance(transform, Rule)]
    later = [transform for transform in transforms[count:] if not isinstance(transform, Rule)]
    return [] if resident else [*transforms[:count], *rules], later


@dataclass(frozen=True, slots=True)
class _Rows:
    """Which ``samples`` the rows of a batch show, ``(n,)``, by index, and which of them ``are_blank``."""

    samples: NDArray[np.int64]
    are_blank: NDArray[np.bool_]


class _Stage(Protocol):
    """Transforms that run in one go."""

    @property
    def draws(self) -> int: ...

    def draw(
        self, numbers: NDArray[np.float64], channels: int, size: tuple[int, int], rows: _Rows
    ) -> tuple[Parameters, int, tuple[int, int]]:
        """Return the parameters for these samples with these numbers, and the resulting channels and size."""
        ...

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures: ...


@dataclass(frozen=True)
class _Single:
    """A single transform of batches."""

    transform: BatchTransform

    @property
    def draws(self) -> int:
        return self.transform.draws

    def draw(
        self, numbers: NDArray[np.float64], channels: int, size: tuple[int, int], rows: _Rows
    ) -> tuple[Parameters, int, tuple[int, int]]:
        transform = self.transform
        if mixes_of(transform):
            mixing: Any = transform  # a Mix, or a OneOf of such
            return mixing.mixed(numbers, size, rows.samples), channels, size
        if isinstance(transform, PerSample):
            return transform.parameters_of(numbers, rows.samples, rows.are_blank), channels, size
        return transform.parameters(numbers, size), channels, size

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures:
        return self.transform.run(pictures, parameters)


@dataclass(frozen=True)
class _Pass:
    """Crops and flips as one plan, then Normalize, ToDtype and ChannelsLast; either part may be missing."""

    compose: Compose
    finishing: tuple[Finishing, ...]
    host: HostPass = field(default_factory=HostPass, compare=False, repr=False)

    @property
    def draws(self) -> int:
        return self.compose.draws

    def draw(
        self, numbers: NDArray[np.float64], channels: int, size: tuple[int, int], rows: _Rows
    ) -> tuple[Parameters, int, tuple[int, int]]:
        if not self.compose.transforms:
            return {}, channels, size
        plan = Plan(np.array([size[0]]), np.array([size[1]]))
        self.compose.run(plan, numbers)
        if plan.is_grey_first and channels > 1:
            raise SchemaError(
                "Grayscale before resampling cannot be done in one pass; put it last, which is also faster"
            )
        if (plan.height != plan.height[0]).any() or (plan.width != plan.width[0]).any():
            raise SchemaError(f"{self.compose}: makes pictures of different sizes, which cannot form a batch")
        if plan.warper is not None:
            check_channels(plan.channels or channels, plan.warper)
        stages: list[Parameters] = []
        for stage in plan.stages(len(numbers)):
            target = RenderTarget(int(stage.height[0]), int(stage.width[0]), stage.fill, stage.kernel)
            drawn: dict[str, Any] = {"rows": torch.from_numpy(stage.rows), "target": target}
            drawn["channels"] = None if stages else plan.channels
            if stage.program is not None:
                drawn["warps"] = grouped(stage.program)
            stages.append(drawn)
        return {"stages": stages}, plan.channels or channels, (target.height, target.width)

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures:
        images, rows, target = pictures.images, None, None
        finish = reduce(lambda before, each: each.after(before), self.finishing, Finish(images.dtype))
        for stage in parameters.get("stages", ()):
            images = images if rows is None else one_pass(images, Finish(images.dtype), rows, target)
            rows, target = stage["rows"], stage["target"]
            if target.kernel is not None:
                images, rows, target = resample(images, rows, target), None, None
            if stage["channels"]:
                images, rows = images if rows is None else one_pass(images, Finish(images.dtype), rows, target), None
                images = grey(images, stage["channels"])
            if stage.get("warps"):
                images, rows = images if rows is None else one_pass(images, Finish(images.dtype), rows, target), None
                images = run_program(images, stage["warps"])
        if rows is None and self.finishing and self.host.takes(images, finish):
            images = self.host.run(images, finish)
        elif rows is not None or self.finishing:
            images = one_pass(images, finish, rows, target)
        return Pictures(images, pictures.labels)


def _stages(transforms: Sequence[Any], *, first: int = 0) -> dict[int, _Stage]:
    """Group neighbours that run together; each stage has its number, which random numbers depend on."""
    stages: list[_Stage] = []
    start = 0
    while start < len(transforms):
        geometry = list(takewhile(is_geometry, transforms[start:]))
        finishing = list(takewhile(lambda step: isinstance(step, Finishing), transforms[start + len(geometry) :]))
        if geometry or finishing:
            stages.append(_Pass(Compose(geometry), tuple(finishing)))
            start += len(geometry) + len(finishing)
        else:
            step = transforms[start]
            stages.append(_Single(Called(step) if isinstance(step, Compiled) else step))
            start += 1
    return dict(enumerate(stages, first))


def _left(stages: Mapping[int, _Stage], done: int) -> dict[int, _Stage]:
    """Return the stages without their first ``done`` transforms; the others keep their numbers."""
    left: dict[int, _Stage] = {}
    for number, stage in stages.items():
        if done <= 0:
            left[number] = stage
        elif isinstance(stage, _Pass):
            done -= len(stage.compose.transforms)
            if stage.finishing:
                left[number] = replace(stage, compose=Compose([]))
        else:
            done -= 1
    return left


def _stage_seed(seed: int, number: int) -> int:
    """
    Return a seed of its own for each stage, so that no stage shares numbers with another or with native transforms.
    """
    return (seed + (number + 1) * 0x9E3779B97F4A7C15) % (1 << 64)


def _without_autocast(images: Any) -> AbstractContextManager[object]:
    if isinstance(images, np.ndarray):
        return nullcontext()
    return torch.autocast(images.device.type, enabled=False)


def _travelling(parameters: Any) -> Any:
    """Return what a mix has drawn as tensors, which go to the device with a batch."""
    if isinstance(parameters, Mapping):
        return {name: _travelling(value) for name, value in parameters.items()}
    return torch.from_numpy(parameters) if isinstance(parameters, np.ndarray) else parameters


def _find_pictures(parts: Sequence[torch.Tensor]) -> int | None:
    for place, part in enumerate(parts):
        if part.ndim == 4 and (str(part.dtype).removeprefix("torch.") == "uint8" or is_floating(part)):
            return place
    return None


def _pictures(parts: Sequence[torch.Tensor]) -> int:
    place = _find_pictures(parts)
    if place is not None:
        return place
    shapes = ", ".join(map(shown, parts))
    raise SchemaError(f"no pictures in the batch: expected a tensor (B, C, H, W), uint8 or floating, got {shapes}")


def _labels(parts: Sequence[torch.Tensor]) -> int | None:
    for place, part in enumerate(parts):
        if (part.ndim == 1 and not is_floating(part)) or (part.ndim == 2 and is_floating(part)):
            return place
    return None
