"""The protocol FieldTransform: a transform that treats the fields of a sample by what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

from fastio.types.schema import Field

__all__ = ["FieldTransform"]


@runtime_checkable
class FieldTransform(Protocol):
    """A transform that is made for samples of certain fields, such as those of ``fastio.transforms``."""

    def for_fields(self, fields: Iterable[Field]) -> Callable[[Any], Any]:
        """Return a function of samples: dicts by field names, or tuples in the order of ``fields``."""
        ...
