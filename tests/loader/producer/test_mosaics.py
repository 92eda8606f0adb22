"""Mosaics of FastLoader are what plain NumPy pastes together, with the boxes, points and masks of the pieces."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastio import ClipSampler, DevicePrefetcher, FastDataset, FastLoader, SampleError, SchemaError
from fastio.loader.producer.mosaics import Mosaics
from fastio.loader.ranges import TRANSFORM
from fastio.transforms import (
    ColorJitter,
    Compose,
    KeepBoxes,
    KeepGeometry,
    KeepPoints,
    Letterbox,
    MixUp,
    Mosaic,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    Resize,
)
from tests.conftest import encode, pictures, write_store
from tests.dataset.many_fields import write_fields

TYPES = {
    "image": "image",
    "mask": "mask",
    "depth": "mask16",
    "boxes": "xyxy",
    "joints": "points[2] per boxes",
    "kinds": "int64[*] per boxes",
    "marks": "points",
    "counts": "int64[*]",
    "embedding": "float32[4]",
    "caption": "text",
    "label": "label",
}
COUNT, SIDE = 7, 24


def make_samples() -> list[dict[str, Any]]:
    """Samples of one size; the first has no boxes, the last no points."""
    rng = np.random.default_rng(0)
    samples = []
    for index in range(COUNT):
        corners = np.sort(rng.random((index, 2, 2)) * SIDE, axis=1)
        samples.append(
            {
                "image": rng.integers(0, 256, (SIDE, SIDE, 3), np.uint8),
                "mask": rng.integers(0, 5, (SIDE, SIDE), np.uint8),
                "depth": rng.integers(0, 65536, (SIDE, SIDE), np.uint16),
                "boxes": corners.reshape(index, 4).astype(np.float32),
                "joints": (rng.random((index, 2, 2)) * SIDE).astype(np.float32),
                "kinds": np.arange(index) + 100 * index,
                "marks": (rng.random((COUNT - 1 - index, 2)) * SIDE).astype(np.float32),
                "counts": np.arange(index % 3) + index,
                "embedding": rng.random(4, np.float32),
                "caption": f"scene {index}",
                "label": index,
            }
        )
    return samples


SAMPLES = make_samples()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The samples, packed."""
    return write_fields(tmp_path_factory.mktemp("mosaic") / "s.lmdb", SAMPLES, TYPES)


# The plain reference: one row at a time, one piece at a time, one box at a time.


def drawn(mosaics: Mosaics, members: Sequence[int], *, epoch: int = 0) -> tuple[list[list[int]], Any, Any]:
    """Which samples each row shows, the centre of each, and whether it is mirrored along x and y."""
    ids = np.array(members, np.int64)
    pieces = mosaics.pieces(ids, np.arange(len(ids)), (SIDE, SIDE), [], epoch=epoch)
    shown: list[list[int]] = [[] for _ in members]
    centres: list[tuple[int, int] | None] = [None] * len(members)
    for row, source, x, y in zip(pieces.rows, pieces.sources, pieces.x, pieces.y, strict=True):
        shown[row].append(int(source))
        centres[row] = (int(x), int(y))  # of the last piece, bottom right: where it begins
    return shown, centres, list(zip(pieces.flips_x.tolist(), pieces.flips_y.tolist(), strict=True))


def plain(
    mosaic: Mosaic, shown: list[int], centre: tuple[int, int], flips: tuple[bool, bool], rules: dict[str, Any]
) -> dict[str, Any]:
    """One row made of the samples ``shown``, with the boxes and points that stay."""
    size = mosaic.size
    out: dict[str, Any] = {
        "image": np.full((size, size, 3), mosaic.fill, np.uint8),
        "mask": np.full((size, size), mosaic.mask_fill, np.uint8),
        "depth": np.full((size, size), mosaic.mask_fill, np.uint16),
    }
    boxes, joints, kinds, marks = [], [], [], []
    for place, index in enumerate(shown):
        sample = SAMPLES[index]
        if len(shown) == 1:
            x, y = 0, 0
        else:
            x = centre[0] - SIDE if place in {0, 2} else centre[0]
            y = centre[1] - SIDE if place in {0, 1} else centre[1]
        limits = (0, 0, size, size)
        if len(shown) == 4:
            limits = (
                0 if place in {0, 2} else centre[0],
                0 if place in {0, 1} else centre[1],
                centre[0] if place in {0, 2} else size,
                centre[1] if place in {0, 1} else size,
            )
        low_x, low_y = max(x, limits[0]), max(y, limits[1])
        high_x, high_y = min(x + SIDE, limits[2]), min(y + SIDE, limits[3])
        limits_of_piece = (low_x, low_y, high_x, high_y)
        for name in ("image", "mask", "depth"):
            out[name][low_y:high_y, low_x:high_x] = sample[name][low_y - y : high_y - y, low_x - x : high_x - x]
        shift = np.array([x, y], np.float64)
        for number, box in enumerate(sample["boxes"].astype(np.float64)):
            whole = box + np.tile(shift, 2)
            shown_box = np.clip(whole, [low_x, low_y, low_x, low_y], [high_x, high_y, high_x, high_y])
            width, height = shown_box[2:] - shown_box[:2]
            area = np.prod(whole[2:] - whole[:2])
            if min(width, height) < 1 or width * height < max(1, rules["min_visible"] * area):
                continue
            boxes.append(shown_box)
            kinds.append(sample["kinds"][number])
            joints.append([_placed(point + shift, limits_of_piece, rules) for point in sample["joints"][number]])
        for point in sample["marks"].astype(np.float64) + shift:
            if _is_inside(point, limits_of_piece, size, flips) or rules["outside"] != "drop":
                marks.append(_placed(point, limits_of_piece, rules))
    out |= {
        "boxes": np.array(boxes).reshape(-1, 4),
        "joints": np.array(joints).reshape(-1, 2, 2),
        "kinds": np.array(kinds, np.int64),
        "marks": np.array(marks).reshape(-1, 2),
    }
    for axis, is_flipped in enumerate(flips):
        if is_flipped:
            for name in ("image", "mask", "depth"):
                out[name] = np.flip(out[name], 1 - axis)
            out["boxes"][:, [axis, axis + 2]] = size - out["boxes"][:, [axis + 2, axis]]
            out["joints"][..., axis] = size - 1 - out["joints"][..., axis]
            out["marks"][..., axis] = size - 1 - out["marks"][..., axis]
    return out


def _is_inside(point: Any, limits: tuple[int, int, int, int], size: int, flips: tuple[bool, bool]) -> bool:
    """Whether a point is in its piece once the mosaic is flipped, which takes the last pixel to 0."""
    for axis in range(2):
        place, low, high = point[axis], limits[axis], limits[axis + 2]
        if flips[axis]:
            place, low, high = size - 1 - place, size - high, size - low
        if not low <= place < high:
            return False
    return True


def _placed(point: Any, limits: tuple[int, int, int, int], rules: dict[str, Any]) -> NDArray[np.float64]:
    point = np.array(point, np.float64)
    if rules["outside"] == "clip":
        return np.clip(point, limits[:2], np.array(limits[2:]) - 1)
    return point


def assert_rows(expected: list[dict[str, Any]], batch: dict[str, Any]) -> None:
    """A batch has these rows: pixels and numbers to the bit, coordinates to 1e-4."""
    for row, want in enumerate(expected):
        assert np.array_equal(want["image"], batch["image"][row].permute(1, 2, 0).numpy())
        for name in ("mask", "depth", "kinds"):
            assert np.array_equal(want[name], batch[name][row].numpy()), name
        for name in ("boxes", "joints", "marks"):
            assert want[name].shape == batch[name][row].shape, name
            assert np.allclose(want[name], batch[name][row].numpy(), rtol=0, atol=1e-4), name


@settings(max_examples=60, deadline=None)
@given(
    size=st.sampled_from([8, 24, 33, 48, 80]),
    p=st.sampled_from([0.0, 0.5, 1.0]),
    flips=st.lists(st.sampled_from([RandomHorizontalFlip(), RandomVerticalFlip(0.7)]), max_size=3),
    rules=st.fixed_dictionaries(
        {"min_visible": st.sampled_from([0.0, 0.4]), "outside": st.sampled_from(["keep", "clip", "drop"])}
    ),
    batch_size=st.integers(1, COUNT),
    seed=st.integers(0, 1 << 40),
    layout=st.sampled_from(["channels_last", "contiguous"]),
)
def test_equals_numpy(
    store: Path,
    *,
    size: int,
    p: float,
    flips: list[Any],
    rules: dict[str, Any],
    batch_size: int,
    seed: int,
    layout: Any,
) -> None:
    """Pictures, masks, boxes, points, and rows per box are what pasting piece by piece gives; the rest is the row's."""
    mosaic = Mosaic(size if p == 1 else SIDE, fill=(9, 8, 7), mask_fill=3, p=p)
    steps = [mosaic, *flips, KeepBoxes(min_visible=rules["min_visible"]), KeepPoints(rules["outside"])]
    mosaics = Mosaics(mosaic, Compose(flips), seed)
    with FastLoader(store, batch_size, transforms=steps, seed=seed, layout=layout) as loader:
        first = 0
        for batch in loader:
            members = list(range(first, min(first + batch_size, COUNT)))
            first += batch_size
            shown, centres, mirrored = drawn(mosaics, members)
            expected = [
                plain(mosaic, [members[place] for place in places], centre, mirror, rules)
                for places, centre, mirror in zip(shown, centres, mirrored, strict=True)
            ]
            assert_rows(expected, batch)
            assert members == batch["label"].tolist()
            assert [SAMPLES[index]["caption"] for index in members] == batch["caption"]
            assert np.array_equal([SAMPLES[index]["embedding"] for index in members], batch["embedding"].numpy())
            for row, index in enumerate(members):
                assert np.array_equal(SAMPLES[index]["counts"], batch["counts"][row].numpy())


@given(numbers=st.lists(st.floats(0, 1, exclude_max=True), min_size=24, max_size=24), size=st.integers(4, 900))
def test_the_centre_is_in_the_middle_half(numbers: list[float], size: int) -> None:
    """Four pieces touch the centre, which lies in the middle half; own picture first, others from the batch."""
    drawn_numbers = np.array(numbers).reshape(6, 4)
    pieces = Mosaic(size).pieces(drawn_numbers, np.arange(6), (size, size), np.zeros(6, np.bool_))

    assert 24 == len(pieces.rows)
    places = [each.reshape(6, 4) for each in (pieces.sources, pieces.x, pieces.y, pieces.width, pieces.height)]
    sources, x, y, width, height = places
    assert np.array_equal(np.arange(6), sources[:, 0])
    assert (sources[:, 1:] != sources[:, :1]).all()
    assert [4] * 6 == [len(set(row)) for row in sources.tolist()]
    assert ((size // 4 <= x[:, 3]) & (x[:, 3] < -(-3 * size // 4))).all()
    assert np.array_equal(x[:, 3], (x + width)[:, 0])
    assert np.array_equal(y[:, 3], (y + height)[:, 0])
    assert (width * height).sum(axis=1).tolist() == [size * size] * 6


@pytest.mark.parametrize(("count", "others"), [(1, [[0, 0, 0]]), (2, [[1, 1, 1], [0, 0, 0]])])
def test_small_batches(count: int, others: list[list[int]]) -> None:
    """A batch of one is made of itself; in one of two, the other sample has three pieces."""
    pieces = Mosaic(8).pieces(np.full((count, 4), 0.3), np.arange(count), (8, 8), np.zeros(count, np.bool_))

    assert others == pieces.sources.reshape(count, 4)[:, 1:].tolist()


def test_a_batch_of_three() -> None:
    """In a batch of three, both others are there, one of them twice."""
    pieces = Mosaic(8).pieces(np.full((3, 4), 0.3), np.arange(3), (8, 8), np.zeros(3, np.bool_))

    assert [{0, 1, 2}] * 3 == [set(row) for row in pieces.sources.reshape(3, 4).tolist()]


def test_pictures_and_labels(tmp_path: Path) -> None:
    """A store of pictures and labels gives mosaics, too, in pairs; labels are the rows' own."""
    path = tmp_path / "a.lmdb"
    images = pictures(8, (16, 16, 3))
    write_store(path, [encode(each, "PNG") for each in images], labels=np.arange(8))
    with FastLoader(path, 8, transforms=[Mosaic(16)], seed=3) as loader:
        ((batch, labels),) = list(loader)
    pieces = Mosaics(Mosaic(16), Compose([]), 3).pieces(np.arange(8), np.arange(8), (16, 16), [], epoch=0)
    canvases = np.empty((8, 16, 16, 3), np.uint8)
    pieces.paste(np.stack(images), canvases, 114)

    assert list(range(8)) == labels.tolist()
    assert np.array_equal(canvases, batch.permute(0, 2, 3, 1).numpy())


def test_batch_transforms_follow(store: Path) -> None:
    """Colours, mixing and Normalize see the mosaics, not the pieces."""
    scenes = FastDataset(store, fields=("image", "label"))
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.2, 0.2)
    with FastLoader(scenes, 4, transforms=[Mosaic(32), RandomHorizontalFlip()]) as loader:
        expected = [(images.float() / 255 - torch.tensor(mean)[:, None, None]) / 0.2 for images, _ in loader]
    with FastLoader(scenes, 4, transforms=[Mosaic(32), RandomHorizontalFlip(), Normalize(mean, std)]) as loader:
        got = [images for images, _ in loader]
        assert "Normalize" in repr(loader)
    steps = [Mosaic(32), ColorJitter(0.4), MixUp(num_classes=COUNT)]
    with FastLoader(scenes, 4, transforms=steps) as loader:
        shapes = [(tuple(images.shape), tuple(labels.shape)) for images, labels in loader]

    for one, other in zip(expected, got, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    assert [((4, 3, 32, 32), (4, COUNT)), ((3, 3, 32, 32), (3, COUNT))] == shapes


def equal(one: Any, other: Any) -> bool:
    """Whether two batches have the same values."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


STEPS = [Letterbox(20), Mosaic(24, mask_fill=255), RandomHorizontalFlip(), KeepBoxes(min_area=4)]


def test_resumes_within_an_epoch(store: Path) -> None:
    """The batches after a resume are those of a run without a stop, in any number of threads; epochs differ."""
    options: dict[str, Any] = {"shuffle": True, "transforms": STEPS, "seed": 5}
    with FastLoader(store, 2, threads=1, **options) as loader:
        epochs = [list(loader), list(loader)]
    with FastLoader(store, 2, threads=3, **options) as loader:
        whole = list(loader)
    with FastLoader(store, 2, **options) as loader:
        batches = iter(loader)
        begun = [next(batches), next(batches)]
        state = loader.state_dict()
    with FastLoader(store, 2, **options) as loader:
        loader.load_state_dict(state)
        rest = list(loader)

    assert equal(epochs[0], whole)
    assert equal(epochs[0], [*begun, *rest])
    assert not equal(epochs[0], epochs[1])


def test_states_and_receipts(store: Path) -> None:
    """A state of other mosaics is refused by name; the receipt has each sample once; elastic runs go on."""
    with FastLoader(store, 2, shuffle=True, transforms=STEPS) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        list(batches)
        assert COUNT == loader.receipt().samples
    with (
        FastLoader(store, 2, shuffle=True, transforms=[Letterbox(20), Mosaic(24)]) as loader,
        pytest.raises(ValueError, match=r"batch_transforms.*Mosaic"),
    ):
        loader.load_state_dict(state)


def labels_of(loaders: list[FastLoader], steps: int | None = None) -> list[list[list[int]]]:
    """The labels of the batches of each rank, up to some step."""
    return [[batch["label"].tolist() for batch in islice(iter(loader), steps)] for loader in loaders]


@pytest.mark.parametrize("world_sizes", [(1, 3), (3, 2), (2, 1)])
def test_elastic_resume(store: Path, world_sizes: tuple[int, int]) -> None:
    """Each sample is the first piece of one mosaic, before and after ranks become more or fewer; receipts say so."""
    before, after = world_sizes

    def ranks(count: int, batch_size: int) -> list[FastLoader]:
        options: dict[str, Any] = {"shuffle": True, "transforms": STEPS, "seed": 5, "threads": 1}
        return [FastLoader(store, batch_size, rank=rank, world_size=count, **options) for rank in range(count)]

    loaders = ranks(before, 1)
    first = labels_of(loaders, 1)
    state = loaders[0].state_dict()
    rest = ranks(after, 2)
    for loader in rest:
        loader.load_state_dict(state)
    second = labels_of(rest)
    seen = [label for own in (*first, *second) for batch in own for label in batch]

    assert len({len(own) for own in second}) == 1
    assert set(range(COUNT)) == set(seen)
    assert len(seen) - COUNT < after * 2  # the last step may repeat samples
    assert COUNT == len(set(chain(*chain(*first))) | set(chain(*chain(*second))))
    alone = ranks(1, 2)[0]
    assert len(list(alone)) == 4
    assert alone.receipt().is_exact


@pytest.mark.parametrize(("drop_last", "sizes"), [(True, [3, 3]), (False, [3, 3, 1])])
def test_the_last_batch(store: Path, drop_last: bool, sizes: list[int]) -> None:
    """It is dropped, or its mosaics are made of the samples that it has; receipts count what was given."""
    with FastLoader(store, 3, transforms=STEPS, drop_last=drop_last, seed=1) as loader:
        batches = list(loader)
        receipt = loader.receipt()
    assert sizes == [len(batch["label"]) for batch in batches]
    assert sum(sizes) == receipt.samples
    last = batches[-1]
    boxes = sum(len(SAMPLES[label]["boxes"]) for label in last["label"].tolist())
    assert all(len(each) <= 4 * max(boxes, 1) for each in last["boxes"])


def test_states_within_an_epoch_prove_it_whole(store: Path) -> None:
    """Of an epoch in two parts, the receipt is that of one without a stop."""
    options: dict[str, Any] = {"shuffle": True, "transforms": STEPS, "seed": 3}
    with FastLoader(store, 2, **options) as loader:
        list(loader)
        whole = loader.receipt()
    with FastLoader(store, 2, **options) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
    with FastLoader(store, 3, **options) as loader:
        loader.load_state_dict(state)
        list(loader)
        assert loader.receipt().is_exact
        assert (whole.samples, whole.number) == (loader.receipt().samples, loader.receipt().number)


def test_pasting_is_seen_by_profilers(store: Path) -> None:
    """It has torch's range of transforms, one for each field of pictures and masks."""
    with (
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile,
        FastLoader(store, COUNT, transforms=[Mosaic(24)]) as loader,
    ):
        list(loader)
    names = [event.key for event in profile.key_averages()]
    assert TRANSFORM in names


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Pictures of which the third is damaged, behind its header."""
    path = tmp_path / "d.lmdb"
    values = [encode(each, "PNG") for each in pictures(6, (16, 16, 3))]
    values[2] = values[2][: len(values[2]) // 2]
    write_store(path, values, labels=np.arange(6))
    return path


def test_damaged_samples(damaged: Path) -> None:
    """Skipped samples are in no mosaic; with "zero", their pieces are empty; else they raise."""
    with FastLoader(damaged, 6, transforms=[Mosaic(16)], on_error="skip") as loader:
        ((skipped, labels),) = list(loader)
        assert [2] == [error.index for error in loader.skipped]
    with FastLoader(damaged, 6, transforms=[Mosaic(16, fill=77)], on_error="zero") as loader:
        ((zeroed, every),) = list(loader)
    good, kept = pictures(6, (16, 16, 3)), np.array([0, 1, 3, 4, 5])
    mosaics = Mosaics(Mosaic(16, fill=77), Compose([]), 0)
    without = mosaics.pieces(np.arange(6), kept, (16, 16), [], epoch=0)
    empty = mosaics.pieces(np.arange(6), np.arange(6), (16, 16), [2], epoch=0)
    canvases, holes = np.empty((5, 16, 16, 3), np.uint8), np.empty((6, 16, 16, 3), np.uint8)
    without.paste(np.stack(good), canvases, 77)
    empty.paste(np.stack(good), holes, 77)

    assert kept.tolist() == labels.tolist()
    assert np.array_equal(canvases, skipped.permute(0, 2, 3, 1).numpy())
    assert list(range(6)) == every.tolist()
    assert 2 not in without.sources
    assert 2 not in empty.sources
    assert np.array_equal(holes, zeroed.permute(0, 2, 3, 1).numpy())
    with pytest.raises(SampleError), FastLoader(damaged, 6, transforms=[Mosaic(16)]) as loader:
        list(loader)


def test_damaged_boxes_take_their_picture_along(tmp_path: Path) -> None:
    """A sample whose boxes cannot be used gives no piece to the others: it would be one without its boxes."""
    samples = [dict(each) for each in SAMPLES]
    samples[3]["kinds"] = samples[3]["kinds"][:-1]
    path = write_fields(tmp_path / "s.lmdb", samples, TYPES)
    with FastLoader(path, COUNT, transforms=[Mosaic(SIDE)], on_error="zero") as loader:
        (batch,) = list(loader)
    pieces = Mosaics(Mosaic(SIDE), Compose([]), 0).pieces(
        np.arange(COUNT), np.arange(COUNT), (SIDE, SIDE), [3], epoch=0
    )
    canvases = np.empty((COUNT, SIDE, SIDE, 3), np.uint8)
    pieces.paste(np.stack([each["image"] for each in SAMPLES]), canvases, 114)

    assert np.array_equal(canvases, batch["image"].permute(0, 2, 3, 1).numpy())
    assert not {300, 301, 302} & {int(kind) for kinds in batch["kinds"] for kind in kinds}


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([Mosaic(24), Mosaic(24)], "a batch has one mosaic"),
        ([ColorJitter(0.4), Mosaic(24)], "put it behind"),
        ([Mosaic(24), KeepGeometry()], "geometries of four pictures"),
        ([Mosaic(24), RandomCrop(8)], "put it before Mosaic"),
        ([Mosaic(24, mask_fill=256)], "mask_fill=256"),
        ([Mosaic(24, fill=(1, 2, 3, 4))], "expected one number, or 3"),
    ],
)
def test_lists_that_make_no_sense(store: Path, steps: list[Any], words: str) -> None:
    """What cannot stand beside a Mosaic is refused in one line, before the first batch."""
    with pytest.raises((ValueError, SchemaError), match=words):
        FastLoader(store, 2, transforms=steps)


@pytest.mark.parametrize(
    "options",
    [{"repeats": 2}, {"cache": "ram"}, {"cache": "device", "device": "cpu"}, {"decode": "device", "device": "cpu"}],
)
def test_options_that_do_not_go_with_it(damaged: Path, options: dict[str, Any]) -> None:
    """Views, caches and the decoder of a device are refused."""
    with pytest.raises(ValueError, match=r"Mosaic\(size=16.*does not go with"):
        FastLoader(damaged, 2, transforms=[Mosaic(16)], **options)


def test_clips_are_refused(damaged: Path) -> None:
    """Frames of a clip are not mixed."""
    sampler = ClipSampler(FastDataset(damaged), frames=2, batch_size=1, videos=np.zeros(6, np.int64))
    with pytest.raises(ValueError, match="would mix frames"):
        FastLoader(damaged, batch_sampler=sampler, transforms=[Mosaic(16)])


def test_one_sample_has_no_mosaic(store: Path) -> None:
    """FastDataset, Compose and the prefetcher name FastLoader; so does a call."""
    for use in (
        lambda: FastDataset(store, transform=Mosaic(24))[0],
        lambda: Compose([Resize(24), Mosaic(24)]),
        lambda: DevicePrefetcher([], "cpu", transforms=[Mosaic(24)]),
        lambda: Mosaic(24)(torch.zeros(3, 24, 24)),
    ):
        with pytest.raises(TypeError, match="pass it to FastLoader"):
            use()


def test_pictures_that_stay_must_fit(store: Path) -> None:
    """With p below 1, pictures of another size than the mosaics' are an error that names both."""
    with (
        pytest.raises(SchemaError, match=r"24x24.*32x32"),
        FastLoader(store, 2, transforms=[Mosaic(32, p=0.5)]) as loader,
    ):
        list(loader)


@pytest.mark.parametrize("size", [3, 2.5, True, (24, 24)])
def test_sizes(size: Any) -> None:
    """The side of a mosaic is one number of at least four pixels."""
    with pytest.raises(ValueError, match="from 4 to 65535"):
        Mosaic(size)


def test_placement(store: Path) -> None:
    """repr says where mosaics are made, and what moves with them."""
    with FastLoader(store, 2, transforms=STEPS) as loader:
        lines = {line.split(":")[0].strip(): line for line in repr(loader).splitlines()}

    assert (
        "native threads (Letterbox), then NumPy in the loop's thread (Mosaic, RandomHorizontalFlip)" in lines["image"]
    )
    assert "Mosaic" in lines["boxes"]
    assert "Mosaic" not in lines["counts"]
