"""What repr(loader), loader.stats and the log say about where batches are made follows from who makes them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from fastio import ClipSampler, DevicePrefetcher, FastDataset, FastLoader, Mixture, ShapeBucketSampler
from fastio.measure.doctor.gather import _samples_placement
from fastio.measure.report.doctor import doctor_page
from fastio.measure.report.page import Prose
from fastio.transforms import (
    ColorJitter,
    Compose,
    KeepBoxes,
    KeepGeometry,
    MixUp,
    Normalize,
    PerBatch,
    PerSample,
    RandomCrop,
    RandomHorizontalFlip,
    Resize,
    ResizeToBucket,
    ToDtype,
)
from fastio.types.field_types import field_of
from fastio.types.schema import TEXT, Field
from tests.conftest import encode, pictures, write_store
from tests.dataset.many_fields import TYPES, make_samples, write_fields

LOOP = "cpu in the loop's thread"
PYTHON = "Python in the loop's thread"


def augment(picture: Any) -> Any:
    """A transform of the user's own, of single pictures."""
    return torch.zeros(3)


def own(picture: Any) -> Any:
    """A function of the user's own, of single pictures in a list of transforms."""
    return picture


def shuffled(batch: Any) -> Any:
    """A function of the user's own, of batches."""
    return batch


class OwnSamples(FastDataset):
    """A subclass that makes its samples itself."""

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(3)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pictures with labels, every fourth one an AVIF."""
    path = tmp_path_factory.mktemp("placement") / "a.lmdb"
    values = [encode(each, "AVIF" if i % 4 == 0 else "PNG") for i, each in enumerate(pictures(12, (70, 80, 3)))]
    return write_store(path, values, np.arange(12) % 3)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six samples of many fields."""
    names = ("image", "mask", "caption", "objects", "tokens", "boxes", "points", "label")
    samples = make_samples(6)
    for sample in samples:
        sample |= {name: sample[name][:40, :30] for name in ("image", "mask")}
    return write_fields(tmp_path_factory.mktemp("placement") / "s.tar", samples, {n: TYPES[n] for n in names})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["image: native threads", "label: index"]),
        (
            {"transforms": [RandomCrop(32), RandomHorizontalFlip(), ColorJitter(0.4), Normalize([0.5], [0.5])]},
            [
                f"image: native threads (RandomCrop, RandomHorizontalFlip, ColorJitter), then {LOOP} (Normalize)",
                "label: index",
            ],
        ),
        (
            {"transforms": [RandomCrop(32), ToDtype(torch.float32, scale=True), ColorJitter(0.4), shuffled]},
            [
                (
                    f"image: native threads (RandomCrop), then {LOOP} (ToDtype, ColorJitter), because ColorJitter "
                    "stands behind ToDtype, which native threads do not run"
                ),
                "label: index",
                f"batch: {PYTHON} (shuffled)",
            ],
        ),
        (
            {"transforms": [RandomCrop(32), PerBatch(shuffled), Normalize([0.5], [0.5])]},
            [
                "image: native threads (RandomCrop)",
                "label: index",
                f"batch: {PYTHON} (PerBatch(shuffled)), then {LOOP} (Normalize)",
            ],
        ),
        (
            {"transforms": [RandomCrop(32), PerSample(own), ColorJitter(0.4), PerBatch(shuffled), PerSample(own)]},
            [
                (
                    f"image: native threads (RandomCrop), then {PYTHON} (PerSample(own)), then {LOOP} (ColorJitter), "
                    "because ColorJitter stands behind PerSample(own), which native threads do not run"
                ),
                "label: index",
                f"batch: {PYTHON} (PerBatch(shuffled)), then {PYTHON} (PerSample(own))",
            ],
        ),
        (
            {"views": [(2, [RandomCrop(32), PerSample(own)]), (1, [RandomCrop(32), Normalize([0.5], [0.5])])]},
            [
                (
                    "image: native threads (3 x [RandomCrop]), then "
                    f"{LOOP} (1 x [Normalize]), then {PYTHON} (2 x [PerSample(own)])"
                ),
                "label: index",
            ],
        ),
        (
            {"transforms": [RandomCrop(32), MixUp(0.2, num_classes=3)]},
            [f"image: native threads (RandomCrop), then {LOOP} (MixUp)", f"label: index, then {LOOP} (MixUp)"],
        ),
        (
            {"views": [(2, [RandomCrop(32), ColorJitter(0.4)]), (3, [RandomCrop(16), Normalize([0.5], [0.5])])]},
            [
                (
                    "image: native threads (2 x [RandomCrop, ColorJitter], 3 x [RandomCrop]), then "
                    f"{LOOP} (3 x [Normalize])"
                ),
                "label: index",
            ],
        ),
        ({"repeats": 2}, ["image: native threads (2 x [whole picture])", "label: index"]),
        (
            {"cache": "ram", "transforms": [RandomCrop(32)]},
            ["image: cache in memory (decode), then native threads (RandomCrop)", "label: index"],
        ),
        (
            {"cache": "device", "device": "cpu", "transforms": [RandomCrop(32), ColorJitter(0.4)]},
            [f"image: kept on cpu, then {LOOP} (RandomCrop, ColorJitter)", "label: kept on cpu"],
        ),
    ],
)
def test_by_options(store: Path, options: dict[str, Any], expected: list[str]) -> None:
    """Each transform is named where the loader runs it, and what keeps it from native threads."""
    with FastLoader(store, 4, **options) as loader:
        assert expected == loader.placement.lines


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            lambda path: FastDataset(path, augment),
            [
                "image: Python threads (decode when used, augment), because the dataset's transform augment is Python",
                "label: index",
            ],
        ),
        (
            lambda path: FastDataset(path, augment, target_transform=float),
            [
                "image: Python threads (decode when used, augment), because the dataset's transform augment is Python",
                "label: index, then Python threads (float)",
            ],
        ),
        (
            lambda path: FastDataset(path, target_transform=float),
            ["image: native threads", f"label: index, then {PYTHON} (float), because target_transform is Python"],
        ),
        (
            lambda path: FastDataset(path, Compose([Resize(40), RandomCrop(32)])),
            [
                (
                    "image: Python threads (decode when used, Resize, RandomCrop), because the dataset has the "
                    "transforms: native threads run those of FastLoader(..., transforms=[...])"
                ),
                "label: index",
            ],
        ),
        (
            OwnSamples,
            ["sample: Python threads (OwnSamples.__getitem__), because OwnSamples makes its samples itself"],
        ),
    ],
)
def test_by_dataset(store: Path, make: Any, expected: list[str]) -> None:
    """What of a dataset forces Python threads is named."""
    with FastLoader(make(store), 4) as loader:
        assert expected == loader.placement.lines


def test_many_fields(scenes: Path) -> None:
    """Every field of a sample has its line: what native threads make, and what is left to the loop's thread."""
    wanted = [RandomCrop(16), KeepBoxes(), KeepGeometry()]
    moved = "NumPy in the loop's thread (moved with image, KeepBoxes, list)"
    with FastLoader(scenes, 2, transforms=wanted) as loader:
        assert [
            "image: native threads (RandomCrop)",
            "mask: native threads (moved with image)",
            f"caption: native threads (checksums), then {PYTHON} (text)",
            f"objects: native threads (checksums), then {PYTHON} (JSON)",
            "tokens: native threads (pad)",
            f"boxes: native threads (checksums), then {moved}",
            f"points: native threads (checksums), then {moved}",
            "label: index",
            "geometry: NumPy in the loop's thread",
        ] == loader.placement.lines
        assert set(next(iter(loader))) >= set(loader.placement.fields)


def test_token_ids(tmp_path: Path) -> None:
    """Batches of token ids alone are native, by the collate that they have."""
    ids = [np.arange(1 + i, dtype="<u4").tobytes() for i in range(6)]
    path = write_store(tmp_path / "t.lmdb", ids, np.arange(6), field=field_of("tokens", "tokens"))
    with FastLoader(path, 2) as loader:
        assert ["tokens: native threads (PadCollate)", "label: index"] == loader.placement.lines


def test_text_alone_without_verify(tmp_path: Path) -> None:
    """Nothing is compared natively that verify=False leaves out."""
    path = write_store(tmp_path / "t.lmdb", [b"one", b"two"], field=Field("text", TEXT, "|u1", (None,)))
    with FastLoader(path, 2, verify=False) as loader:
        assert [f"text: {PYTHON} (text)"] == loader.placement.lines


def test_pictures_so_far_are_counted(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Stats count what native threads and Pillow have decoded, and repr says Pillow's share; the log, once, where."""
    caplog.set_level(logging.DEBUG, "fastio.loader")
    with FastLoader(store, 4) as loader:
        assert (0, {}) == (loader.stats.decoded_natively, loader.stats.decoded_by_pillow)
        for _ in range(2):
            list(loader)
        assert (18, {"AVIF": 6}) == (loader.stats.decoded_natively, loader.stats.decoded_by_pillow)
        assert repr(loader).endswith("Pillow in Python threads: 25% of the 24 pictures so far (6 AVIF)")
        assert "placement=Placement(image: native threads; label: index)" in repr(loader.stats)
    assert [f"{store}: image: native threads; label: index"] == [
        record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG
    ]


def test_a_dataset_with_a_transform_says_so(store: Path) -> None:
    """repr(dataset) says what becomes of each value; without transforms it stays one line."""
    first = f"FastDataset({str(store)!r}): 12 samples, lmdb, encoded pictures in 'image'"
    assert first == repr(FastDataset(store))
    assert f"{first}\n  image: dataset[i] (decode when used, augment)\n  label: index" == repr(
        FastDataset(store, augment)
    )


@pytest.mark.parametrize(("name", "value"), [("mode", "L"), ("fields", "image"), ("tv_tensors", True)])
def test_options_of_a_dataset_that_is_built_cannot_be_set(store: Path, name: str, value: Any) -> None:
    """Nothing would read them; the message says to build another. Others, and those of a subclass, may be set."""
    dataset = FastDataset(store)
    with pytest.raises(AttributeError, match=f"^{name} of a FastDataset cannot be set.*FastDataset.path, {name}="):
        setattr(dataset, name, value)
    dataset.transform = augment
    setattr(OwnSamples(store), name, value)


@pytest.mark.parametrize(("workers", "where"), [(0, "the loop's thread"), (2, "workers")])
def test_doctor_says_where_samples_are_made(store: Path, workers: int, where: str) -> None:
    """For a DataLoader over a FastDataset, too; the page of doctor has the lines."""
    lines = _samples_placement(DataLoader(FastDataset(store, augment), 4, num_workers=workers))
    assert (f"image: {where} (decode when used, augment)", "label: index") == lines
    assert _samples_placement(DataLoader([1, 2])) is None  # type: ignore[arg-type]
    empty = dict.fromkeys(("pattern", "failure", "timeline", "part"), None) | dict.fromkeys(
        ("steps", "evidence", "samples", "cautions", "unknown", "reasons"), ()
    )
    report = empty | {"summary": "none", "command": "train.py", "facts": {"step": None, "loader": {"placement": lines}}}
    sections = {section.title: section for section in doctor_page(report).sections}
    assert list(lines) == [part.text for part in sections["Where batches are made"].parts if isinstance(part, Prose)]


def test_clips_buckets_and_mixtures(store: Path) -> None:
    """Samplers change no place; a bucket's resize and the transforms of members are named where they run."""
    dataset, steps = FastDataset(store), [RandomCrop(32), ColorJitter(0.4)]
    clips = ClipSampler(np.arange(12) // 6, frames=3, stride=1, batch_size=2)
    buckets = ShapeBucketSampler(dataset.sizes(), shapes=[(32, 48), (48, 32)], batch_size=2)
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (dataset, {"batch_sampler": clips, "transforms": steps}, "RandomCrop, ColorJitter"),
        (dataset, {"batch_sampler": buckets, "transforms": [ResizeToBucket(buckets)]}, "ResizeToBucket"),
        (
            Mixture({"a": dataset, "b": store}, {"a": 1, "b": 2}, transforms={"a": steps, "b": steps[:1]}),
            {"batch_size": 4},
            "a: RandomCrop + ColorJitter, b: RandomCrop",
        ),
    ]
    for data, options, names in cases:
        with FastLoader(data, **options) as loader:
            assert [f"image: native threads ({names})", "label: index"] == loader.placement.lines


def test_a_prefetcher_says_what_it_does() -> None:
    """Where batches go and, if there are transforms, what each of them is; without any, it stays one line."""
    first = "DevicePrefetcher(list, 'cpu', depth=2)"
    assert first == repr(DevicePrefetcher([], "cpu"))
    assert (
        f"{first}\n  pictures: {PYTHON} (PerSample(own)), then {LOOP} (Normalize)\n"
        f"  batch: {PYTHON} (PerBatch(shuffled))"
    ) == repr(DevicePrefetcher([], "cpu", transforms=[PerSample(own), Normalize([0.5], [0.5]), PerBatch(shuffled)]))
