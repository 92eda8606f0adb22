"""Mosaic: pictures made of pieces of four, with the masks, boxes and points that lie in these pieces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError
from fastio.transforms.arguments import Fill, as_fill, as_mask_fill, check_probability
from fastio.transforms.batch.mix import partners
from fastio.transforms.frames import Frames, Rows, move_targets
from fastio.transforms.transform import LoaderTransform
from fastio.types.options import explains_fields
from fastio.types.schema import Field

__all__ = ["Mosaic", "Pieces"]

_LEAST = 4  # pixels a side: the centre then leaves room for four pieces


@explains_fields
@dataclass(frozen=True)
class Mosaic(LoaderTransform):
    """
    Make each picture, with probability ``p``, one of four pieces of a mosaic of ``size`` x ``size`` pixels.

    The centre is drawn evenly from the middle half of the canvas, on either axis. The sample's own picture lies at the
    top left of it, three partners from the same batch top right, bottom left and bottom right. Each keeps its scale,
    touches the centre with its nearest corner, and is cropped to the canvas; what no piece covers is ``fill``, in masks
    ``mask_fill``. Partners are drawn as for MixUp: over the batch, each row once for each place, another sample than
    the row's own as long as none has more than half of the rows. A batch of one makes mosaics of one picture, a batch
    of two shows the other one three times, a batch of three one of the others twice.

    Boxes, points and the rows "per" them lie where their pieces do. ``KeepBoxes`` and ``KeepPoints`` see each piece as
    the picture that is left: boxes are clipped to it, and dropped if too little of them is. Labels and all other fields
    are those of the row's own sample.

    For ``FastLoader(..., transforms=[Letterbox(640), Mosaic(640), RandomHorizontalFlip(), Normalize(...)])``: crops and
    resizes stand before it and make pictures of one size, which has to be ``size`` if ``p`` is below 1; flips and
    transforms of batches come behind it. Draws four numbers: whether, the centre's x and y, and the partners, for which
    those of the batch's first sample count.
    """

    size: int
    fill: Fill | int | Sequence[int] = 114
    mask_fill: int = 0
    p: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.size, int) or isinstance(self.size, bool) or not _LEAST <= self.size <= 65535:
            raise ValueError(
                f"size={self.size!r}: expected a number of pixels from {_LEAST} to 65535: mosaics are square"
            )
        object.__setattr__(self, "fill", as_fill(self.fill))
        object.__setattr__(self, "mask_fill", as_mask_fill(self.mask_fill))
        check_probability(self.p)

    @property
    def draws(self) -> int:
        """Four numbers: whether, the centre's x and y, and the partners."""
        return 4

    def refusal(self) -> TypeError:
        """Return the error of those who ask for the mosaic of one sample."""
        return TypeError(f"{self!r} is made of several samples: pass it to FastLoader(..., transforms=[...])")

    def for_fields(self, fields: Iterable[Field]) -> NoReturn:
        """Raise TypeError: FastDataset gives one sample at a time."""
        raise self.refusal()

    def __call__(self, sample: object) -> NoReturn:
        """Raise TypeError, as ``for_fields``."""
        raise self.refusal()

    def pieces(
        self,
        numbers: NDArray[np.float64],
        samples: NDArray[np.int64],
        size: tuple[int, int],
        empty: NDArray[np.bool_],
    ) -> Pieces:
        """
        Decide what ``n`` rows are made of, which show these ``samples``, ``(n,)``, by ``numbers``, ``(n, 4)``.

        ``size`` is height and width of their pictures; those for which ``empty``, ``(n,)``, is set give no pieces.
        Raises SchemaError if rows that stay as they are do not have the mosaic's size.
        """
        count, (height, width) = len(samples), size
        if self.p < 1 and size != (self.size, self.size):
            raise SchemaError(
                f"{self}: with p below 1, some pictures stay as they are, but these are {height}x{width}: make them "
                f"{self.size}x{self.size} before it, by Letterbox({self.size}) or a crop"
            )
        is_mosaic = numbers[:, 0] < self.p
        centres = np.floor((0.25 + 0.5 * numbers[:, 1:3]) * self.size).astype(np.int64)
        own = np.arange(count)[:, None]
        sources = np.concatenate((own, partners(samples, float(numbers[0, 3]) if count else 0.0, count=3)), axis=1)
        left, x, across = self._sides(centres[:, 0], width, is_second=np.array([False, True, False, True]))
        top, y, down = self._sides(centres[:, 1], height, is_second=np.array([False, False, True, True]))
        # A row that stays as it is has one piece, all of its picture.
        whole = ~is_mosaic
        left[whole], top[whole], x[whole], y[whole], across[whole], down[whole] = 0, 0, 0, 0, width, height
        shown = ~empty[sources] & (is_mosaic[:, None] | (np.arange(4) == 0))
        rows = np.broadcast_to(own, shown.shape)
        no_flips = np.zeros(count, np.bool_)
        return Pieces(
            rows=rows[shown],
            sources=sources[shown],
            left=left[shown],
            top=top[shown],
            x=x[shown],
            y=y[shown],
            width=across[shown],
            height=down[shown],
            side=self.size,
            flips_x=no_flips,
            flips_y=no_flips,
        )

    def _sides(
        self, centres: NDArray[np.int64], length: int, *, is_second: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """
        Return, along one axis, ``(n, 4)`` each: where pieces begin in pictures of this ``length``, where on the canvas,
        and how long they are. Those for which ``is_second`` is set lie behind the centre, the others before it.
        """
        centre = centres[:, None]
        lengths = np.minimum(length, np.where(is_second, self.size - centre, centre))
        return np.where(is_second, 0, length - lengths), np.where(is_second, centre, centre - lengths), lengths


@dataclass(frozen=True, slots=True)
class Pieces:
    """
    The pieces that rows of a batch are made of, int64 ``(m,)`` each; those of one row stand together, in order.

    Piece i shows ``width`` x ``height`` pixels of the picture at position ``sources``, from ``left`` and ``top`` on, at
    ``x`` and ``y`` of the canvas of row ``rows``. A canvas has ``side`` x ``side`` pixels; whole canvases are then
    mirrored where ``flips_x`` and ``flips_y``, ``(n,)``, are set.
    """

    rows: NDArray[np.int64]
    sources: NDArray[np.int64]
    left: NDArray[np.int64]
    top: NDArray[np.int64]
    x: NDArray[np.int64]
    y: NDArray[np.int64]
    width: NDArray[np.int64]
    height: NDArray[np.int64]
    side: int
    flips_x: NDArray[np.bool_]
    flips_y: NDArray[np.bool_]

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.flips_x)

    def paste(self, pictures: NDArray[Any], canvases: NDArray[Any], fill: int | Sequence[int]) -> None:
        """Make the rows ``(n, side, side, ...)`` of pictures or masks ``(N, H, W, ...)``."""
        covered = np.zeros(len(self), np.int64)
        np.add.at(covered, self.rows, self.width * self.height)
        canvases[covered < self.side * self.side] = fill
        columns = (self.rows, self.sources, self.left, self.top, self.x, self.y, self.width, self.height)
        for row, source, left, top, x, y, width, height in np.stack(columns, axis=1).tolist():
            canvas = canvases[row, :: -1 if self.flips_y[row] else 1, :: -1 if self.flips_x[row] else 1]
            canvas[y : y + height, x : x + width] = pictures[source, top : top + height, left : left + width]

    def frames(self, frames: Frames) -> Frames:
        """Return where the pieces end up of pictures that had ended up at ``frames``."""
        pieces = frames.part(self.sources)
        pieces.crop(self.left, self.top, width=self.width, height=self.height)
        right, bottom = self.side - self.x - self.width, self.side - self.y - self.height
        pieces.pad(self.x, self.y, right, bottom, fill=(0,))
        pieces.limit(self.x, self.y, width=self.width, height=self.height)
        pieces.flip(self.flips_x[self.rows])
        pieces.flip(self.flips_y[self.rows], axis="y")
        return pieces

    def move(self, fields: Iterable[Field], targets: Mapping[str, Rows], frames: Frames) -> dict[str, Rows]:
        """
        Return boxes, points and the fields "per" them for the rows, from ``targets`` as stored, of pictures that ended
        up at ``frames``. Other fields are left out: they stay with their sample.
        """
        known = [field for field in fields if field.name in targets]
        families = {field.owner or field.name for field in known if field.is_box or field.is_points}
        known = [field for field in known if (field.owner or field.name) in families]
        parts = {field.name: targets[field.name].at(self.sources) for field in known}
        return {name: self._joined(part) for name, part in move_targets(known, parts, self.frames(frames)).items()}

    def _joined(self, part: Rows) -> Rows:
        """Return the values of pieces as those of their rows."""
        counts = np.zeros(len(self), np.int64)
        np.add.at(counts, self.rows, part.counts)
        return Rows(part.values, counts)
