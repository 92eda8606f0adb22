"""Boxes and points of many samples at once equal those of each sample, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fastio import SchemaError
from fastio.transforms import (
    CenterCrop,
    Compose,
    Grayscale,
    KeepBoxes,
    KeepPoints,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    Transform,
)
from fastio.transforms.frames import Frames, Rows, find_mismatches, move_targets
from fastio.transforms.fused import Fused, uniform
from fastio.types.field_types import field_of
from fastio.types.schema import BOX_ROLES
from tests.transforms.boxes_reference import StepByStep, from_xyxy, sanitized, to_xyxy
from tests.transforms.chains import behind_warps, is_fusible, warped

coordinates = st.floats(-5, 50, width=32) | st.integers(-5, 50)
boxes_of_a_sample = st.lists(st.lists(coordinates, min_size=4, max_size=4), max_size=5)
points_of_a_sample = st.lists(st.lists(coordinates, min_size=2, max_size=2), max_size=4)
shapes_and_targets = st.lists(
    st.tuples(st.tuples(st.integers(4, 48), st.integers(4, 48)), boxes_of_a_sample, points_of_a_sample),
    min_size=1,
    max_size=4,
)


def rows_of(values: list[list[Any]], shape: tuple[int, ...], dtype: str = "f4") -> Rows:
    """The values of some samples, joined."""
    joined = np.array([row for sample in values for row in sample], dtype).reshape(-1, *shape)
    return Rows(joined, np.array([len(sample) for sample in values], np.int64))


def samples_of(rows: Rows) -> list[Any]:
    """The values of each sample."""
    ends = np.cumsum(rows.counts)
    return [rows.values[end - count : end].tolist() for end, count in zip(ends, rows.counts, strict=True)]


def framed(chain: list[Transform], shapes: list[tuple[int, int]], numbers: Any = None) -> Frames:
    """The frames of pictures of these sizes after a chain."""
    transform = Compose(chain)
    frames = Frames(*np.array(shapes, np.int64).reshape(-1, 2).T)
    frames.follow(transform, np.full((len(shapes), transform.draws), 0.25) if numbers is None else numbers)
    return frames


def moved(chain: list[Transform], boxes: list[list[float]], *, role: str = "xyxy") -> Any:
    """The boxes of one picture of 100 x 200 (height x width) after a chain."""
    rows = {"boxes": rows_of([boxes], (4,))}
    return samples_of(move_targets([field_of("boxes", role)], rows, framed(chain, [(100, 200)]))["boxes"])[0]


@settings(max_examples=150, deadline=None)
@given(
    chain=st.one_of(warped, behind_warps).filter(is_fusible),
    samples=shapes_and_targets,
    role=st.sampled_from(BOX_ROLES),
    seed=st.integers(0, 99),
    is_uniform=st.booleans(),
)
def test_all_samples_at_once_are_each_step_by_step(
    chain: list[Transform], samples: list[Any], role: str, seed: int, is_uniform: bool
) -> None:
    """Moved, clipped at each crop and edge, then at the end, and dropped if too small: to 1e-4, in any format."""
    if is_uniform:
        samples = [(samples[0][0], *targets) for _, *targets in samples]
    fields = [field_of("boxes", role), field_of("classes", "int64[*] per boxes"), field_of("points", "points")]
    shapes, boxes, points = (list(part) for part in zip(*samples, strict=True))
    boxes = [[from_xyxy(box, role) for box in sample] for sample in boxes]
    rows = {
        "boxes": rows_of(boxes, (4,)),
        "classes": rows_of([list(range(len(sample))) for sample in boxes], (), "i8"),
        "points": rows_of(points, (2,)),
    }
    fused = Fused(chain, seed=seed, mode="RGB", is_raw=False, is_fast=False)
    indices = np.arange(len(samples)) + seed
    planned = fused.plan(indices, np.array([(*shape, 3) for shape in shapes]), epoch=1)
    numbers = uniform(indices, fused.transforms.draws, seed=seed, epoch=1)
    got = move_targets(fields, rows, fused.frames(planned, epoch=1))

    got_boxes, got_classes, got_points = (samples_of(got[name]) for name in ("boxes", "classes", "points"))
    for place, shape in enumerate(shapes):
        canvas = StepByStep(shape, [to_xyxy(box, role) for box in samples_of(rows["boxes"])[place]], points[place])
        fused.transforms.run(canvas, numbers[place][None])
        if chain:
            canvas.clamp()
        keep = sanitized(canvas.boxes) if chain else [True] * len(canvas.boxes)
        assume(not chain or keep == sanitized(canvas.boxes, min_size=1 + 1e-4, min_area=1 + 1e-3))
        expected = [from_xyxy(box, role) for box, is_kept in zip(canvas.boxes, keep, strict=True) if is_kept]
        assert [number for number, is_kept in enumerate(keep) if is_kept] == got_classes[place]
        assert np.allclose(np.reshape(expected, (-1, 4)), np.reshape(got_boxes[place], (-1, 4)), rtol=1e-6, atol=1e-4)
        assert np.allclose(np.reshape(canvas.points, (-1, 2)), np.reshape(got_points[place], (-1, 2)), atol=1e-4)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ([], [[0, 5, 10, 25]]),
        ([KeepBoxes(min_size=0, min_area=0)], [[0, 5, 10, 25], [0, 20, 0.5, 30], [40, 0, 40, 0]]),
        ([KeepBoxes(min_visible=0.6)], []),
        ([KeepBoxes(clip=False)], [[-10, 5, 10, 25]]),
        ([KeepBoxes(drop=False)], [[0, 5, 10, 25], [0, 20, 0.5, 30], [40, 0, 40, 0]]),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_rules_for_boxes(rule: list[Transform], expected: Any, is_first: bool) -> None:
    """Clipped or not, kept or not; the rule may stand anywhere, also in a Compose."""
    boxes = [[70.0, 35, 90, 55], [70, 50, 80.5, 60], [150, 0, 190, 9]]
    crop: list[Transform] = [CenterCrop(40)]

    assert expected == moved([Compose(rule), *crop] if is_first else [*crop, *rule], boxes)


def test_a_box_cut_by_a_crop_does_not_grow_into_edges() -> None:
    """After Crop, then Pad, a box ends where the first crop cut it, not at the new edge."""
    assert [[10, 10, 20, 20]] == moved([CenterCrop(10), Pad(10)], [[0, 0, 200, 100]])


def test_without_geometry_boxes_stay_as_they_are() -> None:
    """Grayscale alone neither clips nor drops."""
    assert [[-5, 0, 300, 0]] == moved([Grayscale()], [[-5, 0, 300, 0]])


def test_points_outside() -> None:
    """Points stay outside, move to the nearest pixel, or take all points of their row with them."""
    fields = [field_of("joints", "points[2]"), field_of("names", "int64[*] per joints")]
    rows = {
        "joints": rows_of([[[[80, 30], [119, 69]], [[80, 29], [81, 40]]], [], [[[120, 40], [90, 40]]]], (2, 2)),
        "names": rows_of([[1, 2], [], [3]], (), "i8"),
    }
    results = [
        move_targets(fields, rows, framed([CenterCrop(40), *rule], [(100, 200)] * 3))
        for rule in ([], [KeepPoints("clip")], [KeepPoints("drop")])
    ]

    kept, clipped, dropped = (samples_of(result["joints"]) for result in results)
    assert [[[[0, 0], [39, 39]], [[0, -1], [1, 10]]], [], [[[40, 10], [10, 10]]]] == kept
    assert [[[[0, 0], [39, 39]], [[0, 0], [1, 10]]], [], [[[39, 10], [10, 10]]]] == clipped
    assert [[[[0, 0], [39, 39]]], [], []] == dropped
    assert [[[1, 2], [], [3]], [[1, 2], [], [3]], [[1], [], []]] == [samples_of(each["names"]) for each in results]


def test_no_rows() -> None:
    """Batches without any box or point stay without, whatever the rules."""
    fields = [field_of("joints", "points[2]"), field_of("boxes", "xyxy")]
    rows = {"joints": rows_of([[], []], (2, 2)), "boxes": rows_of([[], []], (4,))}
    got = move_targets(fields, rows, framed([CenterCrop(40), KeepPoints("drop")], [(100, 200)] * 2))

    assert {"joints": [[], []], "boxes": [[], []]} == {name: samples_of(each) for name, each in got.items()}


def test_points_of_boxes_go_with_their_boxes() -> None:
    """A box that is dropped takes its row of points along; a point outside takes nothing."""
    fields = [field_of("joints", "points[1] per boxes"), field_of("boxes", "xyxy")]
    rows = {
        "joints": rows_of([[[[1, 2]], [[100, 50]], [[3, 4]]]], (1, 2)),
        "boxes": rows_of([[[0, 0, 9, 9], [90, 40, 110, 60], [100, 50, 120, 60]]], (4,)),
    }
    got = move_targets(fields, rows, framed([CenterCrop(40), KeepPoints("drop")], [(100, 200)]))

    assert [[[10, 10, 30, 30], [20, 20, 40, 30]]] == samples_of(got["boxes"])
    assert [[[[20, 20]], [[-77, -26]]]] == samples_of(got["joints"])


def test_mirrored_points_and_boxes() -> None:
    """The first pixel's point becomes the last's; the box around it keeps its width."""
    fields = [field_of("boxes", "xywh"), field_of("points", "points")]
    rows = {"boxes": rows_of([[[0, 0, 1, 1]]], (4,)), "points": rows_of([[[0, 0]]], (2,))}
    got = move_targets(fields, rows, framed([RandomHorizontalFlip(1.0)], [(100, 200)]))

    assert [[199, 0, 1, 1]] == got["boxes"].values.tolist()
    assert [[199, 0]] == got["points"].values.tolist()


def test_dtypes_stay() -> None:
    """Whole numbers are rounded to the nearest; fractions keep their precision."""
    fields = [field_of("a", ("int16", (None, 4), "xyxy")), field_of("b", ("float64", (None, 4), "xyxy"))]
    rows = {name: rows_of([[[10, 20, 35, 45]]], (4,), dtype) for name, dtype in (("a", "i2"), ("b", "f8"))}
    got = move_targets(fields, rows, framed([Resize((150, 100))], [(100, 200)]))

    assert (np.int16, [[5, 30, 18, 68]]) == (got["a"].values.dtype, got["a"].values.tolist())
    assert (np.float64, [[5, 30, 17.5, 67.5]]) == (got["b"].values.dtype, got["b"].values.tolist())


def test_rows_that_belong_to_none() -> None:
    """Rows per box that are not as many as boxes are found before, and refused without their boxes."""
    fields = [field_of("boxes", "xyxy"), field_of("classes", "int64[*] per boxes")]
    rows = {"boxes": rows_of([[[0, 0, 9, 9]], []], (4,)), "classes": rows_of([[1], [2]], (), "i8")}
    frames = framed([CenterCrop(40)], [(100, 200)] * 2)

    assert {1: ("classes", "1 rows for 0 of 'boxes'; there must be one for each")} == find_mismatches(fields, rows)
    with pytest.raises(SchemaError, match=r"'classes': its rows belong to those of 'boxes', but are not as many"):
        move_targets(fields, rows, frames)
    with pytest.raises(SchemaError, match=r"'classes': its rows are dropped with those of 'boxes': ask for that"):
        move_targets(fields, {"classes": rows["classes"]}, frames)


def test_a_bad_header_leaves_no_box() -> None:
    """A sample whose picture has no size gets an empty frame, next to others that are moved."""
    fused = Fused([RandomCrop(10), RandomHorizontalFlip()], seed=0, mode="RGB", is_raw=False, is_fast=False)
    planned = fused.plan(np.arange(3), np.array([(20, 20, 3), (0, 0, 0), (20, 30, 3)]), epoch=0)
    frames = fused.frames(planned, epoch=0)
    field, boxes = field_of("boxes", "xyxy"), [[[0, 0, 30, 20]]] * 3
    whole = move_targets([field], {"boxes": rows_of(boxes, (4,))}, frames)
    part = move_targets([field], {"boxes": rows_of(boxes[1:], (4,))}, frames.part(slice(1, 3)))

    assert [[[0, 0, 10, 10]], [], [[0, 0, 10, 10]]] == samples_of(whole["boxes"])
    assert [[], [[0, 0, 10, 10]]] == samples_of(part["boxes"])


def test_the_matrix_moves_corners() -> None:
    """``affine`` has one float32 matrix a sample, which takes the box's corners where the box goes."""
    chain = [RandomResizedCrop(32), Pad((3, 4, 5, 6)), RandomHorizontalFlip(1.0)]
    frames = framed(chain, [(100, 200)])
    (left, top, right, bottom) = moved([*chain, KeepBoxes(clip=False, drop=False)], [[10, 20, 30, 40]])[0]
    matrix = frames.affine(2)

    assert ((2, 2, 3), np.float32) == (matrix.shape, matrix.dtype)
    assert np.allclose(matrix[1] @ [10, 20, 1], [right, top], atol=1e-3)
    assert np.allclose(matrix[0] @ [30, 40, 1], [left, bottom], atol=1e-3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: KeepBoxes(min_size=-1), "min_size=-1.0"),
        (lambda: KeepBoxes(min_area=float("nan")), "min_area=nan"),
        (lambda: KeepBoxes(min_visible=1.5), "min_visible=1.5"),
        (lambda: KeepPoints("away"), "outside='away': expected one of keep, clip, drop"),
    ],
)
def test_rules_are_checked(make: Any, words: str) -> None:
    """A rule that cannot be is refused in one line."""
    with pytest.raises(ValueError, match=words):
        make()
