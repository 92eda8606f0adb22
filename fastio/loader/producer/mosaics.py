"""Mosaics of a loader's batches: a Mosaic, the flips behind it, and the numbers of both for the samples of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastio.samplers.batches import split_ids
from fastio.transforms.batch.mosaic import Mosaic, Pieces
from fastio.transforms.batch.recipe import is_geometry
from fastio.transforms.canvas import Rule
from fastio.transforms.compose import Compose
from fastio.transforms.flip import RandomHorizontalFlip, RandomVerticalFlip
from fastio.transforms.fused import uniform
from fastio.transforms.plan import COLUMNS, FLIPS, Plan
from fastio.types.placement import called

__all__ = ["Mosaics"]

_SEED = 0x8CB92BA72F3D8DD7  # added to the seed: no other transform has these numbers


@dataclass(frozen=True, slots=True)
class Mosaics:
    """A Mosaic and the flips behind it; a row's numbers are those of seed, epoch and its sample."""

    mosaic: Mosaic
    flips: Compose
    seed: int

    @classmethod
    def taken(cls, transforms: Sequence[Any], *, seed: int) -> tuple[Sequence[Any], Self | None, Sequence[Any]]:
        """
        Take a Mosaic and the flips behind it out of a list: return what stands before it and all rules, it, and what
        follows. Without one, all stands before it.

        Raises ValueError for two, or for what does not go before one.
        """
        places = [place for place, step in enumerate(transforms) if isinstance(step, Mosaic)]
        if not places:
            return transforms, None, ()
        mosaic, before, behind = transforms[places[0]], transforms[: places[0]], transforms[places[0] + 1 :]
        if len(places) > 1:
            raise ValueError(f"{mosaic!r} and {transforms[places[1]]!r} in one list: a batch has one mosaic: keep one")
        early = next((step for step in before if not is_geometry(step)), None)
        if early is not None:
            raise ValueError(
                f"{early!r} before {mosaic!r}: only crops, resizes, flips and warps go there: put it behind"
            )
        rules = [step for step in behind if isinstance(step, Rule)]
        others = [step for step in behind if not isinstance(step, Rule)]
        flips = list(takewhile(lambda step: isinstance(step, (RandomHorizontalFlip, RandomVerticalFlip)), others))
        return [*before, *rules], cls(mosaic, Compose(flips), seed), others[len(flips) :]

    @property
    def steps(self) -> tuple[str, ...]:
        """What the transforms are called."""
        return tuple(map(called, (self.mosaic, *self.flips.transforms)))

    def pieces(
        self,
        ids: NDArray[np.int64],
        positions: NDArray[np.int64],
        size: tuple[int, int],
        bad: Sequence[int],
        *,
        epoch: int,
    ) -> Pieces:
        """
        Decide what the rows are made of that show the samples at these positions of a batch with these ``ids``, whose
        pictures have this ``size``, height and width; ``bad`` are the positions of those that give no piece.

        Raises SchemaError as Mosaic.pieces.
        """
        kept, drawn = ids[positions], self.mosaic.draws
        numbers = uniform(kept, drawn + self.flips.draws, seed=(self.seed + _SEED) % (1 << 64), epoch=epoch)
        empty = np.isin(positions, np.asarray(bad, np.int64))
        pieces = self.mosaic.pieces(numbers[:, :drawn], split_ids(kept)[0], size, empty)
        side = np.full(1, self.mosaic.size)
        plan = Plan(side, side)
        self.flips.run(plan, numbers[:, drawn:])
        flip = plan.rows(len(kept))[:, COLUMNS.index("flip")]
        flips = {f"flips_{axis}": (flip & bit) != 0 for axis, bit in FLIPS.items()}
        return replace(pieces, sources=positions[pieces.sources], **flips)
