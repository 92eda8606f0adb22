"""Random chains of transforms that fit into one pass, for property tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from fastio.transforms import (
    CenterCrop,
    Letterbox,
    OneOf,
    Pad,
    RandomAffine,
    RandomApply,
    RandomCrop,
    RandomHorizontalFlip,
    RandomPerspective,
    RandomResize,
    RandomResizedCrop,
    RandomRotation,
    RandomShortestSize,
    RandomVerticalFlip,
    RandomZoomOut,
    Resize,
    ScaleJitter,
    Transform,
)
from fastio.transforms.arguments import KERNELS
from fastio.transforms.warp import Warping

__all__ = [
    "FILL",
    "MASK_FILL",
    "behind_warps",
    "chains",
    "flips_last",
    "is_fusible",
    "scaled",
    "sizes",
    "tolerance",
    "warped",
]

FILL = (9, 200, 77)
MASK_FILL = 251

sides = st.integers(1, 40)
sizes = st.tuples(sides, sides)
FLIPS = (RandomHorizontalFlip, RandomVerticalFlip)
flips = st.builds(lambda kind, p: kind(p), st.sampled_from(FLIPS), st.sampled_from([0.0, 0.5, 1.0]))
pads = st.builds(Pad, st.tuples(*[st.integers(0, 9)] * 4), st.just(FILL), mask_fill=st.just(MASK_FILL))
zooms = st.builds(RandomZoomOut, st.just(FILL), st.just((1.0, 2.5)), mask_fill=st.just(MASK_FILL))
crops = st.builds(
    RandomCrop,
    sizes,
    st.none() | st.integers(0, 50),
    pad_if_needed=st.just(True),
    fill=st.just(FILL),
    mask_fill=st.just(MASK_FILL),
)
resizes = st.one_of(
    st.builds(Resize, st.one_of(sides, sizes), st.sampled_from(sorted(KERNELS))),
    st.builds(
        Letterbox,
        sizes,
        st.just(FILL),
        st.sampled_from(sorted(KERNELS)),
        st.sampled_from(["center", "top-left"]),
        st.booleans(),
        st.just(MASK_FILL),
    ),
    st.builds(RandomResizedCrop, sizes, st.just((0.1, 1.0)), interpolation=st.sampled_from(sorted(KERNELS))),
)
inside = st.builds(CenterCrop, st.tuples(st.integers(1, 4), st.integers(1, 4)))
scales = st.one_of(
    st.builds(RandomResize, sides, st.integers(41, 60), st.sampled_from(sorted(KERNELS))),
    st.builds(RandomShortestSize, st.lists(sides, min_size=1, max_size=3), st.none() | st.integers(1, 60)),
    st.builds(ScaleJitter, sizes, st.just((0.3, 2.0)), st.sampled_from(sorted(KERNELS))),
)


def _chains(resizes: Any, edges: Any) -> Any:
    """Flips or a crop, then a resampling, then crops and edges."""
    return st.tuples(
        st.one_of(st.lists(flips, max_size=2), st.tuples(flips, inside)),
        st.lists(resizes, max_size=1),
        st.lists(edges, max_size=4),
    ).map(lambda parts: [*parts[0], *parts[1], *parts[2]])


chains = _chains(resizes, st.one_of(flips, pads, crops))
scaled = _chains(scales, st.one_of(flips, pads, zooms, crops))

looks = {
    "interpolation": st.sampled_from(["nearest", "bilinear"]),
    "fill": st.sampled_from([0, FILL]),
    "mask_fill": st.sampled_from([0, MASK_FILL]),
}
warps = st.one_of(
    st.builds(RandomRotation, st.sampled_from([20, (90, 90), (-180, 180)]), center=st.none() | sizes, **looks),
    st.builds(
        RandomAffine,
        st.sampled_from([0, 30]),
        st.sampled_from([None, (0.2, 0.5)]),
        st.sampled_from([None, (0.5, 1.5)]),
        st.sampled_from([None, 20, (-10, 10, -5, 20)]),
        **looks,
    ),
    st.builds(RandomPerspective, st.sampled_from([0.2, 0.6]), st.sampled_from([0.5, 1.0]), **looks),
)
warped = st.tuples(chains, st.lists(st.one_of(flips, warps), max_size=4)).map(lambda parts: [*parts[0], *parts[1]])

moving = st.lists(st.one_of(flips, warps), min_size=1, max_size=3)
choices = st.one_of(
    st.builds(RandomApply, moving, st.sampled_from([0.0, 0.5, 1.0])),
    st.builds(OneOf, moving),
    st.builds(lambda inner, more: OneOf([RandomApply(inner, 0.7), *more]), moving, moving),
)
# Crops, resizes and edges behind warps, which may be done to some pictures only.
again = st.tuples(warps, chains).map(lambda parts: [parts[0], *parts[1]])
behind_warps = st.tuples(
    chains, st.lists(st.one_of(flips, choices), max_size=2), again, st.one_of(st.just([]), st.lists(choices), again)
).map(lambda parts: [*parts[0], *parts[1], *parts[2], *parts[3]])


def _first_warp(chain: Sequence[Transform]) -> int:
    """The place of the first transform that may warp; behind it, pictures are mirrored at once."""
    is_warp = [isinstance(each, (Warping, RandomApply, OneOf)) and not each.takes_alpha for each in chain]
    return is_warp.index(True) if any(is_warp) else len(chain)


def is_fusible(chain: list[Transform]) -> bool:
    """Whether no one-sided filter follows a flip."""
    chain = chain[: _first_warp(chain)]
    for place, each in enumerate(chain):
        if _resizes(each) and getattr(each, "interpolation", "") in ("nearest", "box"):
            return not any(_flips(before) for before in chain[:place])
    return True


def _resizes(transform: Transform) -> bool:
    return hasattr(transform, "interpolation") and not isinstance(transform, Warping)


def _flips(transform: Transform) -> bool:
    return isinstance(transform, (*FLIPS, RandomApply, OneOf))


def flips_last(chain: Sequence[Transform]) -> bool:
    """Whether no flip precedes a resampling: what masks allow on the fast path."""
    chain = chain[: _first_warp(chain)]
    resized = [place for place, each in enumerate(chain) if _resizes(each)]
    return not any(_flips(each) for each in chain[: max(resized, default=0)])


def tolerance(chain: Sequence[Transform]) -> int:
    """Levels of 255: none, but that a mirrored picture's weights are rounded anew where a flip precedes resampling."""
    resizers = [place for place, each in enumerate(chain) if _resizes(each)]
    before = chain[: max(resizers, default=0)]
    return 1 if any(isinstance(each, FLIPS) for each in before) else 0
