"""Turns transforms into what the native core needs: a batch's plan, its other settings, and the part left to Pillow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio import _native
from fastio.codec.codec import Geometry
from fastio.dataset.row_reader import is_uniform
from fastio.errors import SchemaError
from fastio.samplers.batches import split_ids
from fastio.transforms.arguments import KERNELS, Fill, check_mask_fill
from fastio.transforms.batch.functions import PerSample
from fastio.transforms.batch.geometry import RenderTarget
from fastio.transforms.batch.program import PixelTransform, Programs
from fastio.transforms.canvas import BoxRule, PointRule, RefusedPicturesError, Rule
from fastio.transforms.compiled import Compiled
from fastio.transforms.compose import Compose
from fastio.transforms.frames import Frames, FramesByMember, Rows
from fastio.transforms.iou_crop import looking_at_boxes
from fastio.transforms.patches import Patchify
from fastio.transforms.plain import colour_of
from fastio.transforms.plan import BLANK, Plan, canvas_step
from fastio.transforms.plan import COLUMNS as COLUMNS_OF_PLAN
from fastio.transforms.program import COLUMNS, Program, Step, check_channels, joined, paint, program_of
from fastio.transforms.transform import Transform
from fastio.types.placement import called
from fastio.types.schema import Field
from fastio.types.spans import distinct

__all__ = [
    "Fused",
    "FusedByMember",
    "KnownBoxes",
    "PicturePass",
    "Planned",
    "uniform",
]


_FILTERS = {name: number for number, name in enumerate(KERNELS)}
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}

KnownBoxes = tuple[Field, Rows]  # a field of boxes, and its values for the samples of a plan

# A picture to try transforms on: larger than any crop, small enough that its area is a valid number.
_ANY_SIDE = np.array([1 << 20])


@dataclass(frozen=True, slots=True)
class Planned:
    """Samples and what to do with their pictures; each array is ``(n, ...)``."""

    indices: NDArray[np.int64]
    stored: NDArray[np.int64]  # (n, 3): height, width, channels before transforms; zeros if a header is bad
    rows: NDArray[np.int32]  # (n, 13), as Plan.rows
    shapes: NDArray[np.int64]  # (n, 3), after transforms; zeros if a header is bad
    fill: Fill
    mask_fill: int = 0
    colours: Program | None = None  # (n, steps, 14), for each finished picture
    moves: Program | None = None  # the same for masks: flips and warps, which ``colours`` begins with
    numbers: NDArray[np.float64] | None = None  # of transforms that looked at boxes to decide; None: as drawn
    grids: NDArray[np.int64] | None = None  # (n, 2): rows and columns of patches, which ``shapes`` count as heights
    is_other: NDArray[np.bool_] | None = None  # (n,): planned for another size than the stored one; None: none is

    def scaled(self, stored: NDArray[np.int64]) -> Planned:
        """
        Return the same for pictures or masks that are stored in these shapes, ``(n, 2)`` or ``(n, 3)``: each is cropped
        at the same fractions of its height and width, in whole pixels, and resized to the same size.
        """
        rows, sizes = self.rows.copy(), stored[:, :2]
        known = (sizes > 0).all(axis=1) & (self.stored[:, :2] > 0).all(axis=1)
        for axis, (start, size) in enumerate((("box_y", "box_h"), ("box_x", "box_w"))):
            first, count = COLUMNS_OF_PLAN.index(start), COLUMNS_OF_PLAN.index(size)
            factor = sizes[known, axis] / self.stored[known, axis]
            box = rows[known][:, [first, count]].astype(np.float64)
            edges = np.rint(np.stack((box[:, 0], box.sum(axis=1)), axis=1) * factor[:, None]).astype(np.int64)
            begin = np.minimum(edges[:, 0], sizes[known, axis] - 1)
            rows[known, first], rows[known, count] = begin, np.maximum(edges[:, 1] - begin, 1)
        rows[~known] = BLANK
        is_other = (sizes != self.stored[:, :2]).any(axis=1)
        return replace(self, stored=stored, rows=rows, is_other=is_other)

    @property
    def has_edges(self) -> bool:
        """Whether a picture does not fill its row."""
        width, height = (self.rows[:, COLUMNS_OF_PLAN.index(name)] for name in ("window_w", "window_h"))
        return bool(((width < self.shapes[:, 1]) | (height < self.shapes[:, 0])).any())

    def part(self, part: slice | NDArray[np.int64]) -> Planned:
        """Return some of them, by position."""
        colours, moves = (
            None if program is None else np.ascontiguousarray(program[part]) for program in (self.colours, self.moves)
        )
        return replace(
            self,
            numbers=None if self.numbers is None else self.numbers[part],
            grids=None if self.grids is None else self.grids[part],
            is_other=None if self.is_other is None else self.is_other[part],
            indices=self.indices[part],
            stored=self.stored[part],
            rows=self.rows[part],
            shapes=self.shapes[part],
            colours=colours,
            moves=moves,
        )


class PicturePass(Protocol):
    """What is done to pictures while they are decoded: the same to all, or to those of each member of a mixture."""

    def plan(
        self, indices: NDArray[np.int64], stored: NDArray[np.int64], *, epoch: int, boxes: KnownBoxes | None = None
    ) -> Planned:
        """
        Decide what to do with these samples, whose pictures have the shapes ``stored``, ``(n, 3)``, and these boxes,
        for transforms that look at them (``looks_at_boxes``).

        A sample with a bad header gets a plan that fits any row; decoding then reports what is wrong with it. Raises
        RefusedPicturesError for pictures, of those that are planned here, that a transform cannot take.
        """
        ...

    def frames(self, planned: Planned, *, epoch: int) -> Frames | FramesByMember:
        """
        Return where the pictures of ``planned`` end up, for ``move_targets`` and ``Frames.added``.

        A sample with a bad header gets an empty picture, in which no box is left.
        """
        ...

    def geometry(self, planned: Planned, *, channels: int, is_planar: bool) -> Geometry:
        """Return what the native core needs to fill a batch of rows with these channels."""
        ...

    def target(self, planned: Planned) -> RenderTarget:
        """Return what torch needs, besides the plan, to fill rows of pictures."""
        ...

    @property
    def steps(self) -> tuple[str, ...]:
        """What the transforms of this pass are called, in the order in which pictures go through them."""
        ...

    @property
    def rules(self) -> tuple[str, ...]:
        """What the transforms are called that say how boxes and points follow."""
        ...

    @property
    def looks_at_boxes(self) -> object:
        """The first transform that has to know boxes to decide what to do; None if none has."""
        ...

    @property
    def grey(self) -> int | None:
        """The channels that a Grayscale leaves after the plan; None without one."""
        ...

    @property
    def adds(self) -> tuple[str, ...]:
        """The fields that samples get: see KeepGeometry and KeepCrop. Raises SchemaError if they may have none."""
        ...

    def check_masks(self, *dtypes: np.dtype[Any]) -> None:
        """
        Raise SchemaError for transforms whose plan would not choose torchvision's pixels of a mask, or whose
        ``mask_fill`` masks of one of these dtypes cannot hold.
        """
        ...

    def check_on_device(self) -> None:
        """Raise SchemaError or ValueError for transforms that torch cannot run from a plan on a device."""
        ...

    def apply(self, planned: Planned, position: int, pixels: NDArray[np.uint8], *, epoch: int) -> NDArray[np.uint8]:
        """
        Take the plain path for one picture ``(H, W, C)``, with the numbers of its sample.

        Raises ValueError if a compiled function of the user's raises anything.
        """
        ...


class Fused:
    """
    A PicturePass that does the same to all pictures, by transforms that the native core runs together.

    Pictures have the ``mode`` (None: each the one that it is stored in).

    Raises SchemaError for two transforms that do not fit together, or that do not fit the kind of pictures.
    ``is_fast`` as in Geometry. ``colours`` makes programs that change the finished pictures, which ``patches`` then
    cuts.
    """

    def __init__(
        self,
        transforms: Iterable[Transform],
        *,
        seed: int,
        mode: str | None,
        is_raw: bool,
        is_fast: bool,
        colours: Programs | None = None,
        patches: Patchify | None = None,
    ) -> None:
        self.transforms = Compose(transforms)
        _check_flat(self.transforms)
        self._seed = seed
        self._mode = mode
        self._is_raw = is_raw
        self._is_fast = is_fast
        self._colours = colours
        self._patches = patches
        tried = Plan(_ANY_SIDE, _ANY_SIDE)
        self.transforms.run(tried, np.zeros((1, self.transforms.draws)))
        self._kernel = tried.first.kernel
        self._channels = tried.channels  # None: no Grayscale
        self._is_grey_first = tried.is_grey_first
        self._warper = tried.warper
        self._check_grey()
        if mode is not None:
            channels = next(number for number, name in _MODES.items() if name == mode)
            self._check_channels(channels)
            for stage in tried.stages(1):
                colour_of(stage.fill, self._channels or channels)

    def _check_grey(self) -> None:
        if self._channels is None:
            return
        is_grey_already = self._is_raw and self._mode == "L"
        if self._is_grey_first and (self._channels == 3 or self._is_raw) and not is_grey_already:
            raise SchemaError(
                "Grayscale before resampling cannot be done in one pass; put it last, which is also faster"
            )
        if self._channels == 3 and self._mode == "L" and not self._is_raw:
            raise SchemaError("Grayscale(3) of grey pictures: drop it, or pass FastDataset(mode='RGB')")

    def _check_channels(self, channels: int) -> None:
        if channels == 4 and self._channels is not None:
            raise SchemaError(
                "Grayscale of pictures with alpha cannot be done in one pass; pass FastDataset(mode='RGB')"
            )
        if self._warper is not None:
            check_channels(channels, self._warper)

    def plan(
        self, indices: NDArray[np.int64], stored: NDArray[np.int64], *, epoch: int, boxes: KnownBoxes | None = None
    ) -> Planned:
        """As PicturePass.plan."""
        planned = self._plan_all(indices, stored, boxes, epoch=epoch)
        if self._colours is not None:
            behind = self._colours.program(indices, planned.shapes, epoch=epoch)
            first = [] if planned.colours is None else [planned.colours]
            planned = replace(planned, colours=joined([*first, behind], len(indices)))
        return planned if self._patches is None else self._cut(planned, self._patches)

    def _cut(self, planned: Planned, patches: Patchify) -> Planned:
        """Let each picture's program end with its patches. Raises RefusedPicturesError for those that have too many."""
        sizes, count = planned.shapes[:, :2], len(planned.indices)
        grids = patches.grids(sizes)
        patches.check(grids, sizes)
        planned = _on_canvases(planned, self._kernel)
        cut = program_of(count, (Step.PATCHES, [patches.amounts]))
        cut[(sizes == 0).any(axis=1)] = 0  # a bad header: the plan fits any row
        assert planned.colours is not None
        shapes = np.column_stack((grids.prod(axis=1), np.full(count, patches.pixels), planned.shapes[:, 2]))
        return replace(planned, colours=joined([planned.colours, cut], count), shapes=shapes, grids=grids)

    def _plan_all(
        self, indices: NDArray[np.int64], stored: NDArray[np.int64], boxes: KnownBoxes | None, *, epoch: int
    ) -> Planned:
        # Shapes that all samples share are checked once: that is most of the cost for small raw pictures.
        sizes = stored[:1] if is_uniform(stored) else stored
        known = np.broadcast_to(sizes[:, :2].all(axis=1), len(stored))
        if known.all():
            try:
                return self._plan(indices, stored, sizes, boxes, epoch=epoch)
            except RefusedPicturesError as exc:
                raise exc.spread(known, len(indices)) from None
        of_known = None if boxes is None else (boxes[0], boxes[1].at(np.flatnonzero(known)))
        try:
            good = self._plan(indices[known], stored[known], stored[known], of_known, epoch=epoch)
        except RefusedPicturesError as exc:
            raise exc.spread(known, len(indices)) from None
        rows = np.tile(np.array(BLANK, np.int32), (len(indices), 1))
        shapes = np.zeros((len(indices), 3), np.int64)
        rows[known], shapes[known] = good.rows, good.shapes
        shapes[~known, 2] = self._channels or stored[~known, 2]
        colours, moves, numbers = (_spread(each, known) for each in (good.colours, good.moves, good.numbers))
        return Planned(indices, stored, rows, shapes, good.fill, good.mask_fill, colours, moves, numbers)

    def _plan(
        self,
        indices: NDArray[np.int64],
        stored: NDArray[np.int64],
        sizes: NDArray[np.int64],
        boxes: KnownBoxes | None,
        *,
        epoch: int,
    ) -> Planned:
        """Plan for good headers; ``sizes`` is ``stored``, or one row of it that stands for all."""
        for channels in distinct(sizes[:, 2]).tolist():
            self._check_channels(channels)
        plan, numbers = Plan(sizes[:, 0], sizes[:, 1]), self._drawn(indices, epoch)
        if boxes is not None:
            frames = Frames(sizes[:, 0], sizes[:, 1])
            frames.know(*boxes)
            self.transforms.run(frames, numbers)  # transforms that look at boxes write what they decide
        self.transforms.run(plan, numbers)
        columns = np.broadcast_arrays(plan.height, plan.width, self._channels or sizes[:, 2])
        shapes = np.broadcast_to(np.stack(columns, axis=1), (len(indices), 3))
        count, first = len(indices), plan.first
        colours, moves = plan.program(count), plan.program(count, of_masks=True)
        edges, decided = (first.fill or (0,), first.mask_fill), None if boxes is None else numbers
        return Planned(indices, stored, plan.rows(count), shapes, *edges, colours, moves, decided)

    def _drawn(self, indices: NDArray[np.int64], epoch: int) -> NDArray[np.float64]:
        return uniform(indices, self.transforms.draws, seed=self._seed, epoch=epoch)

    def frames(self, planned: Planned, *, epoch: int) -> Frames:
        """As PicturePass.frames."""
        stored = planned.stored
        sizes = stored[:1] if is_uniform(stored) else stored
        known = sizes[:, :2].all(axis=1)
        height, width = (np.where(known, side, _ANY_SIDE) for side in (sizes[:, 0], sizes[:, 1]))
        frames = Frames(height, width)
        numbers = self._drawn(planned.indices, epoch) if planned.numbers is None else planned.numbers
        frames.follow(self.transforms, numbers)
        if not known.all():
            frames.blank(np.broadcast_to(~known, len(stored)))
        return frames

    def geometry(self, planned: Planned, *, channels: int, is_planar: bool) -> Geometry:
        """As PicturePass.geometry."""
        height, width = planned.stored[0, :2].tolist()
        return Geometry(
            planned.rows,
            filter=_FILTERS[self._kernel or "bilinear"],
            fill=bytes(colour_of(planned.fill, channels)),
            is_planar=is_planar,
            is_grey=self._is_grey_last(),
            is_fast=self._is_fast,
            stored=(height, width) if self._is_raw else None,
            colours=planned.colours,
        )

    def target(self, planned: Planned) -> RenderTarget:
        """As PicturePass.target."""
        height, width, _ = planned.shapes[0].tolist()
        return RenderTarget(height, width, planned.fill, self._kernel)

    @property
    def kernel(self) -> str | None:
        """The filter of the resampling; None without one."""
        return self._kernel

    @property
    def looks_at_boxes(self) -> object:
        """As PicturePass.looks_at_boxes."""
        return next(looking_at_boxes(self.transforms), None)

    @property
    def grey_settings(self) -> tuple[int | None, bool]:
        """The channels that a Grayscale leaves, None without one, and whether it comes before the resampling."""
        return self._channels, self._is_grey_first

    @property
    def steps(self) -> tuple[str, ...]:
        """As PicturePass.steps."""
        colours = () if self._colours is None else self._colours.transforms
        moves = [step for step in _leaves(self.transforms) if not isinstance(step, Rule)]
        patches = () if self._patches is None else (self._patches,)
        return tuple(map(called, (*moves, *colours, *patches)))

    @property
    def rules(self) -> tuple[str, ...]:
        """As PicturePass.rules."""
        return tuple(called(step) for step in _leaves(self.transforms) if isinstance(step, (BoxRule, PointRule)))

    @property
    def grey(self) -> int | None:
        """As PicturePass.grey."""
        return self._channels

    @property
    def adds(self) -> tuple[str, ...]:
        """As PicturePass.adds."""
        frames = Frames(_ANY_SIDE, _ANY_SIDE)
        frames.follow(self.transforms, np.zeros((1, self.transforms.draws)))
        frames.added(1)
        return frames.adds

    def check_masks(self, *dtypes: np.dtype[Any]) -> None:
        """As PicturePass.check_masks."""
        self.transforms.run(Plan(_ANY_SIDE, _ANY_SIDE, has_masks=True), np.zeros((1, self.transforms.draws)))
        for transform in _leaves(self.transforms):
            for dtype in dtypes:
                check_mask_fill(getattr(transform, "mask_fill", 0), dtype, where=str(transform))

    def check_on_device(self) -> None:
        """As PicturePass.check_on_device."""
        if self._is_fast:
            raise ValueError("quality='fast' is an option of the CPU's decoder: drop it, or drop decode='device'")
        if self._is_grey_first:
            raise SchemaError(
                f"{self.transforms}: with decode='device', Grayscale must come after resampling: put it last, or "
                "drop decode='device'"
            )
        if any(self._has_stages(np.array([side])) for side in (1, int(_ANY_SIDE[0]))):  # edges may be of small ones
            raise SchemaError(
                f"{self.transforms}: crops and resizes behind a warp, and resizes behind edges, are done by the CPU's "
                "threads: put them before it, or drop decode='device'"
            )

    def _has_stages(self, side: NDArray[np.int64]) -> bool:
        """Return whether pictures of this height and width go through several plans."""
        plan = Plan(side, side)
        try:
            self.transforms.run(plan, np.zeros((1, self.transforms.draws)))
        except SchemaError:  # a picture smaller than its crop
            return False
        return plan.first is not plan

    def _is_grey_last(self) -> bool:
        """Return whether luma is computed from rows of colour; if not, pictures are decoded to the row's channels."""
        if self._channels is None:
            return False
        return self._channels == 3 if self._mode == "L" else not self._is_grey_first

    def apply(self, planned: Planned, position: int, pixels: NDArray[np.uint8], *, epoch: int) -> NDArray[np.uint8]:
        """As PicturePass.apply."""
        drawn = planned.numbers
        numbers = self._drawn(planned.indices[[position]], epoch) if drawn is None else drawn[[position]]
        picture = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
        result = np.array(self.transforms.apply(picture, numbers[0]))
        result = result.reshape(*result.shape[:2], -1)
        if planned.colours is not None:
            done = 0 if planned.moves is None else planned.moves.shape[1]  # by the transforms above
            result = np.ascontiguousarray(result)
            until = None if self._patches is None else -1
            paint(result[None], planned.colours[[position], done:until])
        return result if self._patches is None else self._patches.cut(result)


# A mixture whose members have transforms of their own.


class FusedByMember:
    """
    A PicturePass that does to each picture what its member of a mixture asks for.

    ``member_of`` is the member of each sample of the dataset; ``passes`` are those of the members, by name. One native
    job makes the rows of all: where resampling filters or edges differ, each picture gets a canvas with its own. Rows
    have one count of channels, and samples the same fields: raises SchemaError, naming both members, for a Grayscale,
    KeepGeometry or KeepCrop that another member lacks.
    """

    def __init__(self, passes: Mapping[str, Fused], member_of: NDArray[np.int16]) -> None:
        self._names, self._passes = list(passes), list(passes.values())
        self._member_of = member_of
        self._lead = next((each for each in self._passes if each.kernel is not None), self._passes[0])
        lead = self._names[self._passes.index(self._lead)]
        for name, each in passes.items():
            if each.looks_at_boxes is not None:
                raise SchemaError(
                    f"Mixture: {each.looks_at_boxes} of member {name!r} looks at boxes, which are not known where "
                    "lists differ by member: pass one list to FastLoader"
                )
            if each.grey_settings != self._lead.grey_settings:
                raise SchemaError(
                    f"Mixture: Grayscale is not the same for {name!r} and {lead!r}: give it to both, in the same place"
                )
            if set(each.adds) != set(self._lead.adds):
                more = sorted({*each.adds} ^ {*self._lead.adds})[0]
                raise SchemaError(
                    f"Mixture: of {name!r} and {lead!r}, the transforms of one add the field {more!r}, which samples "
                    "of the other would lack: give KeepGeometry or KeepCrop to both, or pass it to FastLoader"
                )

    def _members(self, ids: NDArray[np.int64]) -> NDArray[np.int16]:
        indices, _ = split_ids(ids)
        return self._member_of[indices]

    def plan(
        self, indices: NDArray[np.int64], stored: NDArray[np.int64], *, epoch: int, boxes: KnownBoxes | None = None
    ) -> Planned:
        """As PicturePass.plan; no transform of a member looks at boxes."""
        members = self._members(indices)
        kinds = distinct(members).tolist()
        places = [np.flatnonzero(members == kind) for kind in kinds]
        planned = []
        for kind, place in zip(kinds, places, strict=True):
            try:
                planned.append(self._passes[kind].plan(indices[place], stored[place], epoch=epoch))
            except RefusedPicturesError as exc:
                raise exc.spread(place, len(indices)) from None
        return self._joined(indices, stored, planned, places)

    def _joined(
        self,
        indices: NDArray[np.int64],
        stored: NDArray[np.int64],
        planned: Sequence[Planned],
        places: Sequence[NDArray[np.int64]],
    ) -> Planned:
        rows = np.tile(np.array(BLANK, np.int32), (len(indices), 1))
        shapes = np.zeros((len(indices), 3), np.int64)
        for each, place in zip(planned, places, strict=True):
            rows[place], shapes[place] = each.rows, each.shapes
        kinds = self._members(indices[[place[0] for place in places]]).tolist() if len(indices) else []
        passes = [self._passes[kind] for kind in kinds]
        filters = {each.kernel for each in passes} - {None}
        edges = {(each.fill, each.mask_fill) for each in planned if each.has_edges}
        if len(filters) > 1 or len(edges) > 1 or filters - {self._lead.kernel}:
            planned = [_on_canvases(each, own.kernel) for each, own in zip(planned, passes, strict=True)]
        colours, moves = (
            _gathered([getattr(each, name) for each in planned], places, len(indices)) for name in ("colours", "moves")
        )
        fill, mask_fill = next(iter(edges)) if edges else ((0,), 0)
        return Planned(indices, stored, rows, shapes, fill, mask_fill, colours=colours, moves=moves)

    def frames(self, planned: Planned, *, epoch: int) -> FramesByMember:
        """As PicturePass.frames."""
        members = self._members(planned.indices)
        places = [(kind, np.flatnonzero(members == kind)) for kind in distinct(members).tolist()]
        return FramesByMember(
            tuple((self._passes[kind].frames(planned.part(place), epoch=epoch), place) for kind, place in places)
        )

    def geometry(self, planned: Planned, *, channels: int, is_planar: bool) -> Geometry:
        """As PicturePass.geometry."""
        return self._lead.geometry(planned, channels=channels, is_planar=is_planar)

    def target(self, planned: Planned) -> RenderTarget:
        """As PicturePass.target."""
        return self._lead.target(planned)

    @property
    def steps(self) -> tuple[str, ...]:
        """As PicturePass.steps."""
        return tuple(
            f"{name}: {' + '.join(each.steps) or 'whole picture'}"
            for name, each in zip(self._names, self._passes, strict=True)
        )

    @property
    def rules(self) -> tuple[str, ...]:
        """As PicturePass.rules."""
        return tuple(dict.fromkeys(rule for each in self._passes for rule in each.rules))

    @property
    def looks_at_boxes(self) -> object:
        """As PicturePass.looks_at_boxes: none does."""
        return None

    @property
    def grey(self) -> int | None:
        """As PicturePass.grey."""
        return self._lead.grey

    @property
    def adds(self) -> tuple[str, ...]:
        """As PicturePass.adds."""
        return self._lead.adds

    def check_masks(self, *dtypes: np.dtype[Any]) -> None:
        """As PicturePass.check_masks."""
        for each in self._passes:
            each.check_masks(*dtypes)

    def check_on_device(self) -> None:
        """As PicturePass.check_on_device."""
        raise ValueError("transforms of a Mixture's members run in native threads: drop decode='device'")

    def apply(self, planned: Planned, position: int, pixels: NDArray[np.uint8], *, epoch: int) -> NDArray[np.uint8]:
        """As PicturePass.apply."""
        ids, stored = planned.indices[[position]], planned.stored[[position]]
        own = self._passes[int(self._members(ids)[0])]
        return own.apply(own.plan(ids, stored, epoch=epoch), 0, pixels, epoch=epoch)


def _on_canvases(planned: Planned, kernel: str | None) -> Planned:
    """Let each picture's program begin with the canvas that its plan fills, which has its own filter and fill."""
    if planned.colours is not None and planned.colours.shape[1] and (planned.colours[:, 0, 0] == Step.CANVAS).any():
        return planned
    count, (height, width) = len(planned.indices), planned.shapes.T[:2]
    programs = []
    for program, fill in ((planned.colours, planned.fill), (planned.moves, (planned.mask_fill,))):
        canvas = canvas_step(count, height, width, kernel, fill)
        canvas[(planned.shapes[:, :2] == 0).any(axis=1)] = 0  # a bad header: the plan fits any row
        programs.append(canvas if program is None else joined([canvas, program], count))
    return replace(planned, colours=programs[0], moves=programs[1])


def _gathered(programs: Sequence[Program | None], places: Sequence[NDArray[np.int64]], count: int) -> Program | None:
    """Return one program for ``count`` samples, of those of the samples at ``places``; the shorter do nothing more."""
    most = max((program.shape[1] for program in programs if program is not None), default=0)
    if most == 0:
        return None
    gathered = np.zeros((count, most, COLUMNS))
    for program, place in zip(programs, places, strict=True):
        if program is not None:
            gathered[place, : program.shape[1]] = program
    return gathered


def _spread(program: NDArray[np.float64] | None, known: NDArray[np.bool_]) -> NDArray[np.float64] | None:
    """Return the program, or numbers, of all samples, from those of the ``known`` ones; the others do nothing."""
    if program is None:
        return None
    spread = np.zeros((len(known), *program.shape[1:]))
    spread[known] = program
    return spread


def _check_flat(transforms: Compose) -> None:
    """
    Raise SchemaError for colours and functions within a Compose: the numbers that they draw depend on their place in
    the list.
    """
    for transform in transforms.transforms:
        if isinstance(transform, Compose):
            if any(isinstance(step, (PixelTransform, Compiled, PerSample)) for step in transform.transforms):
                raise SchemaError(f"{transform} is for FastDataset: pass its list, transforms=[...]")
            _check_flat(transform)


def _leaves(transforms: Compose) -> Iterator[Any]:
    """Yield the transforms of a Compose and of those within it, in turn."""
    for transform in transforms.transforms:
        if isinstance(transform, Compose):
            yield from _leaves(transform)
        else:
            yield transform


# The random numbers of transforms: a pure function of seed, epoch and sample.


def uniform(indices: NDArray[np.int64], columns: int, *, seed: int, epoch: int) -> NDArray[np.float64]:
    """
    Return ``(n, columns)`` numbers in [0, 1); each depends only on seed, epoch, its index and its column.

    So a sample's crop does not depend on threads, ranks, its batch or where a run was resumed.
    """
    numbers = np.empty((len(indices), columns), np.float64)
    if numbers.size:
        _native.philox(seed, epoch, np.ascontiguousarray(indices), numbers)
    return numbers
