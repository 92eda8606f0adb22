"""Pictures, masks, boxes and points equal those of the installed torchvision, on the fast path and on the plain one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image

from fastio.codec import CODECS
from fastio.loader.producer.decoding import _mask_geometry
from fastio.transforms import Compose, RandomPerspective, Transform
from fastio.transforms.frames import Rows, move_targets
from fastio.transforms.fused import Fused, Planned, uniform
from fastio.transforms.matrices import Look
from fastio.transforms.warp import Warping
from fastio.types.field_types import field_of
from fastio.types.schema import BOX_ROLES
from tests.codec.conformance import spans_of
from tests.conftest import encode
from tests.transforms.boxes_reference import from_xyxy, sanitized, to_xyxy
from tests.transforms.chains import behind_warps, flips_last, scaled, warped
from tests.transforms.torchvision_chain import apply_torchvision, as_tv_tensors

pytest.importorskip("torchvision")

coordinates = st.floats(-5, 50, width=32) | st.integers(-5, 50)


def sample_of(shape: tuple[int, int], boxes: Any, points: Any, *, role: str, seed: int) -> dict[str, Any]:
    """A picture of noise, a mask of 300 classes, boxes in the format, and a number for each."""
    rng = np.random.default_rng(seed)
    return {
        "image": Image.fromarray(rng.integers(0, 256, (*shape, 3), np.uint8)),
        "mask": Image.fromarray(rng.integers(1, 300, shape, np.uint16)),
        "boxes": np.array([from_xyxy(box, role) for box in boxes], np.float32).reshape(-1, 4),
        "points": np.array(points, np.float32).reshape(-1, 2),
        "kinds": np.arange(len(boxes)),
    }


def fast(fused: Fused, planned: Planned, sample: dict[str, Any], fields: Any, *, epoch: int) -> dict[str, Any]:
    """The sample through native decoders and ``move_targets``."""
    size = tuple(planned.shapes[0, :2].tolist())
    image, mask, status = np.empty((1, *size, 3), np.uint8), np.empty((1, *size), np.uint16), np.zeros(1, np.int32)
    pictures = spans_of([encode(np.asarray(sample["image"]))])
    CODECS["image"].decode(
        pictures, image, status, geometry=fused.geometry(planned, channels=3, is_planar=False)
    ).wait()
    assert not status.any()
    masks = spans_of([CODECS["mask"].encode(np.asarray(sample["mask"]))])
    CODECS["mask"].decode(masks, mask, status, geometry=_mask_geometry(planned)).wait()
    assert not status.any()
    ragged = {field.name: sample[field.name] for field in fields if field.role}
    rows = {name: Rows(value, np.array([len(value)])) for name, value in ragged.items()}
    moved = move_targets(fields, rows, fused.frames(planned, epoch=epoch))
    return {"image": image[0], "mask": mask[0], **{name: each.values for name, each in moved.items()}}


SAMPLES: dict[str, Any] = {
    "shape": st.tuples(st.integers(4, 48), st.integers(4, 48)),
    "boxes": st.lists(st.lists(coordinates, min_size=4, max_size=4), max_size=5),
    "points": st.lists(st.lists(coordinates, min_size=2, max_size=2), max_size=4),
    "role": st.sampled_from(BOX_ROLES),
    "seed": st.integers(0, 1000),
}


@settings(max_examples=60, deadline=None)
@given(chain=scaled.filter(lambda chain: bool(chain) and flips_last(chain)), **SAMPLES)
def test_random_sizes(chain: list[Transform], shape: Any, boxes: Any, points: Any, role: str, seed: int) -> None:
    """RandomResize, RandomShortestSize, ScaleJitter and RandomZoomOut, before crops and edges, as test_torchvision."""
    compare(chain, shape, boxes, points, role, seed)


@settings(max_examples=60, deadline=None)
@given(chain=behind_warps.filter(lambda chain: flips_last(chain) and warps_once(chain)), **SAMPLES)
def test_behind_warps(chain: list[Transform], shape: Any, boxes: Any, points: Any, role: str, seed: int) -> None:
    """Crops, resizes and edges behind warps that all samples have, or some."""
    compare(chain, shape, boxes, points, role, seed)


@settings(max_examples=150, deadline=None)
@given(chain=warped.filter(lambda chain: bool(chain) and flips_last(chain) and warps_once(chain)), **SAMPLES)
def test_torchvision(chain: list[Transform], shape: Any, boxes: Any, points: Any, role: str, seed: int) -> None:
    """Crops, resizes, edges, flips, and rotations and their like behind them."""
    compare(chain, shape, boxes, points, role, seed)


def compare(chain: list[Transform], shape: Any, boxes: Any, points: Any, role: str, seed: int) -> None:
    """
    Pictures and masks to the bit, but a level for each bilinear warp; boxes and points to 1e-4, behind warps as exactly
    as torchvision's float32; dropped with their kinds.
    """
    sample = sample_of(shape, boxes, points, role=role, seed=seed)
    types = {"image": "image", "mask": "mask16", "boxes": role, "points": "points", "kinds": "int64[*] per boxes"}
    fields = tuple(field_of(name, type_) for name, type_ in types.items())
    transform = Compose(chain)
    index, epoch = np.array([seed]), 3
    numbers = uniform(index, transform.draws, seed=7, epoch=epoch)[0]
    fused = Fused(chain, seed=7, mode="RGB", is_raw=False, is_fast=False)
    fused.check_masks()
    planned = fused.plan(index, np.array([(*shape, 3)]), epoch=epoch)
    results = (
        fast(fused, planned, sample, fields, epoch=epoch),
        transform.for_fields(fields).apply(sample, numbers),
    )

    # Of a small picture, a perspective may leave a line, which torchvision refuses.
    assume(planned.shapes.min(initial=99, where=[True, True, False]) > 16 or not has_perspective(chain))
    expected = apply_torchvision(chain, numbers, as_tv_tensors(sample, role=role))
    for got in results:
        levels = np.abs(np.asarray(expected["image"]).astype(int) - np.asarray(got["image"])).max()
        assert levels <= sum(isinstance(each, Warping) and look_of(each).is_bilinear for each in flat(chain))
        assert np.array_equal(expected["mask"].numpy(), np.asarray(got["mask"]))
        rtol = 1e-5 if has_perspective(chain) else 0  # far points, in float32
        assert np.allclose(expected["points"].numpy(), got["points"], rtol=rtol, atol=1e-4)
        assume(expected["kinds"].tolist() == got["kinds"].tolist() or is_borderline(got["boxes"], role))
        assert expected["kinds"].tolist() == got["kinds"].tolist()
        assert np.allclose(expected["boxes"].numpy(), got["boxes"], rtol=0, atol=1e-4)


def flat(chain: Any) -> list[Any]:
    """The transforms of a chain, and those within others."""
    return [step for each in chain for step in (flat(each.transforms) if hasattr(each, "transforms") else [each])]


def warps_once(chain: list[Transform]) -> bool:
    """Whether no warps follow each other that are one here, but two in torchvision."""
    warps = [pair for pair in pairwise(chain) if all(isinstance(each, Warping) for each in pair)]
    return not any(look_of(first) == look_of(second) for first, second in warps)


def has_perspective(chain: list[Transform]) -> bool:
    """Whether straight lines may meet."""
    return any(isinstance(each, RandomPerspective) for each in flat(chain))


def look_of(transform: Any) -> Look:
    """How a warp reads pixels."""
    return Look.of(transform.interpolation, transform.fill, transform.mask_fill)


def is_borderline(boxes: Any, role: str) -> bool:
    """Whether some box is as small as may be, so that its rounding decides."""
    corners = [to_xyxy(box, role) for box in boxes.tolist()]
    return sanitized(corners) != sanitized(corners, min_size=1 + 1e-4, min_area=1 + 1e-3)
