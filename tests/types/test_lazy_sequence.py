"""Sequences whose items are made when somebody looks at them."""

from __future__ import annotations

import pytest

from fastio.types.lazy_sequence import LazySequence


class Squares(LazySequence[int]):
    """The first squares."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def __len__(self) -> int:
        return 5

    def item(self, number: int) -> int:
        """See LazySequence."""
        self.made.append(number)
        return number * number


def test_items_are_made_when_they_are_looked_at() -> None:
    """By number from either end, by slice, and one after the other."""
    squares = Squares()
    assert (squares.made, len(squares)) == ([], 5)
    assert (squares[2], squares[-1], squares[1:-1]) == (4, 16, [1, 4, 9])
    assert squares.made == [2, 4, 1, 2, 3]
    assert (list(squares), 9 in squares, squares.index(9)) == ([0, 1, 4, 9, 16], True, 3)
    for outside in (5, -6):
        with pytest.raises(IndexError):
            squares[outside]
