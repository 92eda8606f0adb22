"""LazySequence: a sequence of which each item is made when somebody looks at it, such as the shards of a large set."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar, overload

__all__ = ["LazySequence"]

_Item_co = TypeVar("_Item_co", covariant=True)


class LazySequence(Sequence[_Item_co]):
    """Items that are made when somebody looks at them, each time anew: ``item`` makes one. A slice is a list."""

    @abstractmethod
    def item(self, number: int) -> _Item_co:
        """Return the item of a number from 0 up to the length."""
        ...

    @overload
    def __getitem__(self, number: int) -> _Item_co: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[_Item_co]: ...
    def __getitem__(self, number: int | slice) -> _Item_co | Sequence[_Item_co]:
        numbers = range(len(self))[number]
        return [self.item(each) for each in numbers] if isinstance(numbers, range) else self.item(numbers)
