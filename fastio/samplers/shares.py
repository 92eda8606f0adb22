r"""
Exact shares of an endless stream, in closed form, with weights that may change.

    weights 6 : 3 : 1      the members are the leaves of a binary tree, as in a Huffman code
                 10        of m samples that reach a node, its left side gets round(m * left / both), always:
                /  \       nothing is drawn, and no error adds up, however long the stream is
               6    4
                   / \
                  3   1

Each answer is a closed form of the position, so any epoch can be planned without those before it. Of two members,
neither is ever more than half a sample away from its share; of three, never more than 1.25, of many, never 1.7. After
as many samples as the weights' common denominator (10 of 7 : 3), each has given its share exactly.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor, lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.samplers.position import whole

__all__ = [
    "MixtureStream",
    "Stretch",
    "whole_weights",
]


_MOST = 1 << 40  # the largest common denominator of shares
_LARGEST = 1 << 62


def whole_weights(weights: Sequence[Fraction]) -> tuple[int, ...]:
    """
    Return whole numbers in the same proportions, at least one of which must be positive.

    They are exact if the shares have a common denominator of at most 2**40. Otherwise (floats of 17 digits) each share
    is rounded to a multiple of 2**-40: one sample more or less in a million million.

    >>> whole_weights([Fraction(7, 10), Fraction(3, 10), Fraction(0)])
    (7, 3, 0)
    """
    total = sum(weights)
    shares = [weight / total for weight in weights]
    common = lcm(*(share.denominator for share in shares))
    if common <= _MOST:
        return tuple(int(share * common) for share in shares)
    rounded = [max(1, floor(share * _MOST)) if share else 0 for share in shares]
    rounded[max(range(len(shares)), key=shares.__getitem__)] += _MOST - sum(rounded)
    return tuple(rounded)


@dataclass(frozen=True, slots=True)
class _Node:
    """
    Two members or nodes of which the left one has ``weight`` of ``both``.

    ``offset`` is half of ``both``, for rounding, and what the left side is behind when the stream begins.
    """

    left: _Node | int
    right: _Node | int
    weight: int
    both: int
    offset: int

    def left_of(self, count: int) -> int:
        """Return how many of the first ``count`` samples that reach this node the left side gets."""
        return min(max((self.offset + count * self.weight) // self.both, 0), count)

    def to_right(self, first: int, count: int) -> NDArray[np.int64]:
        """Return which of ``count`` samples from number ``first`` on the right side gets, ascending from 0."""
        light = self.both - self.weight
        begin, end = first - self.left_of(first), first + count - self.left_of(first + count)
        numbers = np.empty(end - begin, np.int64)
        step = _LARGEST // self.both
        for start in range(0, end - begin, step):
            stop = min(start + step, end - begin)
            whole, rest = divmod((begin + start) * self.both + self.offset, light)
            part = numbers[start:stop]
            part[:] = np.arange(stop - start, dtype=np.int64)
            part *= self.both
            part += rest
            part //= light
            part += whole - first
        if not 0 <= self.offset < self.both:  # the right side is behind: it gets the first samples
            np.maximum(numbers, np.arange(begin - first, end - first), out=numbers)
        return numbers


class ExactShares:
    """
    A stream in which member i gives ``weights[i]`` of every ``sum(weights)`` samples.

    ``owed`` is what each member is behind its share when the stream begins, in samples; the sum is 0.
    """

    def __init__(self, weights: Sequence[int], owed: Sequence[Fraction] | None = None) -> None:
        self._count = len(weights)
        self._top = _tree(weights, owed or [Fraction(0)] * len(weights))

    def counts(self, count: int) -> list[int]:
        """Return how many of the first ``count`` samples each member gives."""
        counts = [0] * self._count
        under = [(self._top, count)]
        while under:
            node, count = under.pop()
            if isinstance(node, int):
                counts[node] = count
            else:
                left = node.left_of(count)
                under += [(node.left, left), (node.right, count - left)]
        return counts

    def members(self, start: int, stop: int) -> NDArray[np.uint16]:
        """Return the member that gives each sample from number ``start`` up to ``stop``."""
        members = np.empty(stop - start, np.uint16)
        _fill(self._top, start, members)
        return members


def _fill(node: _Node | int, first: int, out: NDArray[np.uint16]) -> None:
    """Write the members of the samples that reach a node, from number ``first`` on."""
    if isinstance(node, int):
        out[:] = node
        return
    to_right = node.to_right(first, len(out))
    before = node.left_of(first)
    right = np.empty(len(to_right), np.uint16)
    _fill(node.right, first - before, right)
    if isinstance(node.left, int):
        out[:] = node.left
    else:
        goes_left = np.ones(len(out), np.bool_)
        goes_left[to_right] = False
        left = np.empty(len(out) - len(to_right), np.uint16)
        _fill(node.left, before, left)
        out[goes_left] = left
    out[to_right] = right


def _tree(weights: Sequence[int], owed: Sequence[Fraction]) -> _Node | int:
    """Return the tree of all members with a weight: the two lightest are joined first."""
    heap: list[tuple[int, int, _Node | int, Fraction]] = [
        (weight, member, member, owed[member]) for member, weight in enumerate(weights) if weight
    ]
    heapq.heapify(heap)
    number = len(weights)  # decides between equal weights
    while len(heap) > 1:
        light, _, right, right_owed = heapq.heappop(heap)
        heavy, _, left, left_owed = heapq.heappop(heap)
        both = light + heavy
        behind = left_owed * light - right_owed * heavy  # in samples, times ``both``
        node = _Node(left, right, heavy, both, both // 2 + floor(behind))
        heapq.heappush(heap, (both, number, node, left_owed + right_owed))
        number += 1
    return heap[0][2]


# MixtureStream: the endless stream of a mixture, whose weights may change at given samples.


@dataclass(frozen=True, slots=True)
class Stretch:
    """From sample ``start`` of the stream on, member i gives ``weights[i]`` of every ``sum(weights)`` samples."""

    start: int
    weights: tuple[int, ...]

    def to_json(self) -> list[Any]:
        """Return plain values for a state."""
        return [self.start, list(self.weights)]

    @classmethod
    def from_json(cls, saved: object, *, members: int) -> Stretch:
        """Restore a stretch from a state. Raises ValueError if it is none for so many members."""
        if isinstance(saved, Sequence) and len(saved) == 2 and isinstance(saved[1], Sequence):
            weights = tuple(whole("weight", weight, "0 or more in the state", least=0) for weight in saved[1])
            if len(weights) == members and any(weights):
                return cls(whole("start", saved[0], "0 or more in the state", least=0), weights)
        raise ValueError(f"stretch={saved!r} in the state: expected [start, {members} weights]: the state is damaged")


class MixtureStream:
    """
    Which member gives sample n, for ``stretches`` that ascend and of which the first starts at 0.

    A member's share of the first n samples is the sum over the stretches, exactly; what it is behind or ahead when the
    weights change is made up for under the new ones.
    """

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self.stretches = tuple(stretches)
        self._starts = [stretch.start for stretch in stretches]
        self._shares: list[ExactShares] = []
        self._before: list[list[int]] = []  # what each member has given when a stretch starts
        due = [Fraction(0)] * len(stretches[0].weights)
        counts = [0] * len(due)
        for number, stretch in enumerate(self.stretches):
            if number:
                last = self.stretches[number - 1]
                length = stretch.start - last.start
                counts = [had + new for had, new in zip(counts, self._shares[-1].counts(length), strict=True)]
                given = Fraction(length, sum(last.weights))
                due = [had + given * weight for had, weight in zip(due, last.weights, strict=True)]
            owed = [share - count for share, count in zip(due, counts, strict=True)]
            self._shares.append(ExactShares(stretch.weights, owed))
            self._before.append(counts)

    def counts(self, count: int) -> list[int]:
        """Return how many of the first ``count`` samples each member gives."""
        number = bisect_right(self._starts, count) - 1
        new = self._shares[number].counts(count - self._starts[number])
        return [had + more for had, more in zip(self._before[number], new, strict=True)]

    def members(self, start: int, stop: int) -> NDArray[np.uint16]:
        """Return the member that gives each sample from number ``start`` up to ``stop``."""
        parts = [
            self._shares[number].members(first - self._starts[number], last - self._starts[number])
            for number, first, last in self.pieces(start, stop)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint16), *parts])

    def pieces(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Return the stretches within ``start`` to ``stop``: the number of each, and from where to where it lasts."""
        ends = [*self._starts[1:], max(stop, self._starts[-1])]
        bounds = [
            (number, max(start, first), min(stop, end))
            for number, (first, end) in enumerate(zip(self._starts, ends, strict=True))
        ]
        return [piece for piece in bounds if piece[1] < piece[2]]
