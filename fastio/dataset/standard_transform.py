"""StandardTransform: a dataset's transform and target_transform as one function of (picture, target)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["StandardTransform"]


@dataclass(frozen=True)
class StandardTransform:
    """What torchvision's datasets have as ``transforms``; either part may be None."""

    transform: Callable[[Any], Any] | None
    target_transform: Callable[[Any], Any] | None

    def __call__(self, picture: Any, target: Any) -> tuple[Any, Any]:
        """Return picture and target, each transformed."""
        if self.transform is not None:
            picture = self.transform(picture)
        return picture, target if self.target_transform is None else self.target_transform(target)

    def __repr__(self) -> str:
        parts = [
            _indented(title, part)
            for title, part in (("Transform", self.transform), ("Target transform", self.target_transform))
            if part is not None
        ]
        return "\n".join(["StandardTransform", *parts])


def _indented(title: str, part: object) -> str:
    """Return ``Transform: Compose(`` and the following lines, indented below it."""
    return f"{title}: " + f"\n{' ' * (len(title) + 2)}".join(repr(part).splitlines())
