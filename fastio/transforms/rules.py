"""BoxRule, PointRule, GeometryRule: what becomes of boxes, points and the matrix that moves them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["BoxRule", "GeometryRule", "PointRule", "Rule"]

Outside = Literal["keep", "clip", "drop"]


@dataclass(frozen=True)
class BoxRule:
    """What is clipped and dropped of boxes: see KeepBoxes."""

    min_size: float = 1.0
    min_area: float = 1.0
    min_visible: float = 0.0
    clip: bool = True
    drop: bool = True

    def __post_init__(self) -> None:
        for name in ("min_size", "min_area"):
            value = float(getattr(self, name))
            if not value >= 0:
                raise ValueError(f"{name}={value!r}: expected a number of at least 0, in pixels")
            object.__setattr__(self, name, value)
        if not 0 <= self.min_visible <= 1:
            raise ValueError(f"min_visible={self.min_visible!r}: expected a fraction from 0 to 1")
        object.__setattr__(self, "min_visible", float(self.min_visible))


@dataclass(frozen=True)
class PointRule:
    """What happens to points outside the picture: see KeepPoints."""

    outside: Outside = "keep"

    def __post_init__(self) -> None:
        if self.outside not in get_args(Outside):
            raise ValueError(f"outside={self.outside!r}: expected one of {', '.join(get_args(Outside))}")


@dataclass(frozen=True)
class GeometryRule:
    """Samples get the matrix that moved them: see KeepGeometry."""


Rule = BoxRule | PointRule | GeometryRule
