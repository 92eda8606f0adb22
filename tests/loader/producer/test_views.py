"""Views: each is what its transforms alone make of the picture, which is decoded once."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from fastio import FastDataset, FastLoader, SampleError, SchemaError, Writer, _native
from fastio.codec.image import ImageCodec
from fastio.loader.producer.decoding import RowDecoder
from fastio.transforms import (
    CenterCrop,
    ColorJitter,
    Compose,
    CutMix,
    Grayscale,
    KeepGeometry,
    MixUp,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    Views,
)
from fastio.transforms.batch.recipe import Colours
from fastio.transforms.fused import Fused
from fastio.transforms.views import view_seed
from fastio.types.spans import Spans

COUNT, SEED = 11, 7
BIG = [RandomResizedCrop(40), RandomHorizontalFlip()]
SMALL = [RandomCrop(24), RandomHorizontalFlip()]
VIEWS = [(2, BIG), (3, SMALL)]
EACH = [BIG, BIG, SMALL, SMALL, SMALL]


def pixels(number: int, height: int = 70, width: int = 90) -> NDArray[np.uint8]:
    """A picture with something in every place."""
    rng = np.random.default_rng(number)
    small = Image.fromarray(rng.integers(0, 256, (9, 12, 3), np.uint8))
    return np.asarray(small.resize((width, height), Image.Resampling.BICUBIC))


def encoded(kind: str, number: int) -> bytes:
    """A picture as a file; sizes differ."""
    file = io.BytesIO()
    Image.fromarray(pixels(number, 60 + number, 95 - number)).save(file, kind)
    return file.getvalue()


def write(path: Path, kind: str = "JPEG") -> Path:
    """A store of pictures with labels and captions."""
    is_raw = kind == "raw"
    types = {"image": "uint8[70,90,3]" if is_raw else "image", "label": "label"}
    with Writer(path, types, jump=False) as writer:
        for number in range(COUNT):
            writer.write({"image": pixels(number) if is_raw else encoded(kind, number), "label": number % 4})
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures as JPEGs."""
    return write(tmp_path_factory.mktemp("views") / "jpeg.lmdb")


def alone(path: Any, transforms: Any, view: int, batch_size: int = 4, **options: Any) -> list[Any]:
    """The batches of one view without the others."""
    with FastLoader(path, batch_size, transforms=transforms, seed=view_seed(SEED, view), **options) as loader:
        return list(loader)


def same(expected: Any, found: Any) -> bool:
    """Whether two batches of pictures and labels are equal."""
    return all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "ICO", "raw"])
def test_each_view_is_that_of_its_transforms_alone(tmp_path: Path, kind: str, layout: Any) -> None:
    """To the bit, whoever decodes the pictures; labels come once."""
    path = write(tmp_path / "x.lmdb", kind)
    with FastLoader(path, 4, views=VIEWS, seed=SEED, layout=layout, threads=2) as loader:
        batches = list(loader)
        assert loader.stats.samples == COUNT
    for view, transforms in enumerate(EACH):
        expected = alone(path, transforms, view, layout=layout)
        assert all(same(one, (views[view], labels)) for one, (views, labels) in zip(expected, batches, strict=True))


@pytest.mark.parametrize("is_native", [True, False])
def test_repeats_lie_one_behind_the_other(store: Path, is_native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One tensor of all views, and their labels; the numbers of each are its own."""
    if not is_native:
        monkeypatch.setattr(RowDecoder, "output", lambda *values, **options: None)
    with FastLoader(store, 4, transforms=BIG, repeats=3, seed=SEED) as loader:
        batches = list(loader)
    parts = [alone(store, BIG, view) for view in range(3)]
    for (images, labels), *views in zip(batches, *parts, strict=True):
        assert torch.equal(torch.cat([view for view, _ in views]), images)
        assert torch.equal(torch.cat([each for _, each in views]), labels)


def test_a_number_of_views_repeats_the_transforms(store: Path) -> None:
    """views=2 is SimCLR's list of two; a list of one view stays a list."""
    with FastLoader(store, 4, transforms=BIG, views=2, seed=SEED) as loader:
        images, _ = next(iter(loader))
    assert [type(images), len(images)] == [list, 2]
    assert not torch.equal(*images)
    with FastLoader(store, 4, views=Views([(1, BIG)]), seed=SEED) as loader:
        ((image,), _) = next(iter(loader))
    assert torch.equal(images[0], image)


def test_start_points_change_nothing(tmp_path: Path) -> None:
    """Views of a small part of a large JPEG are decoded from where their rows begin."""
    rng = np.random.default_rng(3)
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (700, 900, 3), np.uint8)).save(file, "JPEG")
    for name, jump in (("with.lmdb", True), ("without.lmdb", False)):
        with Writer(tmp_path / name, {"image": "image"}, jump=jump) as writer:
            writer.write({"image": file.getvalue()})
    with (
        FastLoader(tmp_path / "with.lmdb", 1, views=[(4, [RandomCrop(64)])]) as first,
        FastLoader(tmp_path / "without.lmdb", 1, views=[(4, [RandomCrop(64)])]) as second,
    ):
        assert same(*map(next, map(iter, (first, second))))


@given(
    crops=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 60), st.integers(1, 80)), min_size=1, max_size=5),
    kind=st.sampled_from(["JPEG", "PNG"]),
    seed=st.integers(0, 99),
)
def test_native_views_are_decoded_as_alone(crops: list[tuple[int, int, int]], kind: str, seed: int) -> None:
    """Of any plans: resampled or not, grey or not, and of whatever regions."""
    data = np.frombuffer(encoded(kind, seed % 7), np.uint8)
    spans = Spans.of(data, np.array([0]), np.array([len(data)]))
    header = ImageCodec().probe(spans)
    rows, works, expected = [], [], []
    for choice, height, width in crops:
        steps: list[Any] = [
            [RandomCrop((height, width), pad_if_needed=True)],
            [RandomResizedCrop((height, width))],
            [Resize((height, width))],
            [CenterCrop((height, width))],
            [RandomCrop((height, width), pad_if_needed=True), Grayscale(3)],
            [RandomCrop(9), Resize((height, width)), RandomHorizontalFlip(1.0)],
        ][choice]
        fused = Fused(steps, seed=seed, mode="RGB", is_raw=False, is_fast=False)
        planned = fused.plan(np.array([seed]), header.shapes.astype(np.int64), epoch=0)
        geometry = fused.geometry(planned, channels=3, is_planar=False)
        out, status = np.zeros((1, *planned.shapes[0]), np.uint8), np.full(1, -1, np.int32)
        ImageCodec().decode(spans, out, status, geometry=geometry).wait()
        assert status[0] == _native.OK
        expected.append(out)
        rows.append(np.ones_like(out))
        works.append(ImageCodec().rows(spans, verify=True, geometry=geometry))
    status = np.full(1, -1, np.int32)
    _native.fill_views(works, rows, status).wait()
    assert status[0] == _native.OK
    assert all(map(np.array_equal, expected, rows))


def test_fields_beside_views_come_once(tmp_path: Path) -> None:
    """Pictures of a sample become lists, drawn alike; text, arrays and columns stay as they are."""
    types = {"image": "image", "other": "image", "caption": "text", "vector": "float32[2]", "count": "int"}
    with Writer(tmp_path / "x.tar", types) as writer:
        for number in range(COUNT):
            file = encoded("PNG", number)
            row = {"image": file, "other": file, "caption": str(number), "vector": [number, 1], "count": number}
            writer.write({**row, "vector": np.array(row["vector"], np.float32)})
    for fields in (None, ("count", "other", "image")):
        with FastDataset(tmp_path / "x.tar", fields=fields) as dataset:
            later: list[Any] = [*BIG, Normalize((0.5,) * 3, (0.5,) * 3)]
            with FastLoader(dataset, 4, views=[(2, later), (1, SMALL)], seed=SEED) as loader:
                batch = next(iter(loader))
        image, other = (batch["image"], batch["other"]) if fields is None else (batch[2], batch[1])
        assert [view.dtype for view in image] == [torch.float32, torch.float32, torch.uint8]
        assert same(image, other)
        if fields is None:
            assert batch["caption"] == ["0", "1", "2", "3"]
            assert batch["vector"].shape == (4, 2)


def test_transforms_of_batches_run_per_view(store: Path) -> None:
    """Each view has those of its group, with numbers of its own; a function gets the pictures of its view."""
    jitter: list[Any] = [*BIG, ColorJitter(0.5), Normalize((0.5,) * 3, (0.5,) * 3)]
    shapes: list[Any] = []

    def note(images: torch.Tensor) -> torch.Tensor:
        shapes.append(tuple(images.shape))
        return images

    with FastLoader(
        store, 4, views=[(2, jitter), (1, [*SMALL, Normalize((0,) * 3, (1,) * 3), note])], seed=SEED
    ) as one:
        batches = list(one)
    for view in range(2):
        expected = alone(store, jitter, view)
        assert all(same(one, (views[view], labels)) for one, (views, labels) in zip(expected, batches, strict=True))
    assert shapes == [(4, 3, 24, 24), (4, 3, 24, 24), (3, 3, 24, 24)]


@pytest.mark.parametrize("is_native", [True, False])
def test_colours_of_repeats_are_those_of_each_view(
    store: Path, is_native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawn for each view, whether the threads that decode run them, or torch behind them."""
    if not is_native:
        monkeypatch.setattr(Colours, "leading", lambda later: 0)
    steps: list[Any] = [*BIG, ColorJitter(0.5), Normalize((0.5,) * 3, (0.5,) * 3)]
    with FastLoader(store, 4, transforms=steps, repeats=2, seed=SEED) as loader:
        batches = list(loader)
    first, second = (alone(store, steps, view) for view in range(2))
    for (images, _), (one, _), (other, _) in zip(batches, first, second, strict=True):
        assert torch.equal(torch.cat([one, other]), images)


def test_mixing_takes_the_neighbours_of_a_view(store: Path) -> None:
    """Repeats are mixed with other photos, and their labels with them."""
    mix: list[Any] = [CenterCrop(32), MixUp(1.0, num_classes=4)]
    with FastLoader(store, 4, transforms=mix, repeats=2, seed=SEED) as loader:
        images, labels = next(iter(loader))
    assert (images.shape, labels.shape) == ((8, 3, 32, 32), (8, 4))
    assert torch.allclose(labels.sum(1), torch.ones(8))
    with pytest.raises(ValueError, match="mixes labels, which come once for all views: drop it, or use repeats="):
        FastLoader(store, 4, views=[(2, mix)])


@pytest.mark.parametrize("options", [{"views": VIEWS}, {"transforms": BIG, "repeats": 2}], ids=["views", "repeats"])
class TestEpochs:
    """Order, states, ranks and receipts are those of the photos."""

    def test_a_state_resumes(self, store: Path, options: Any) -> None:
        """What is left of an epoch is what it would have been."""
        settings = {"shuffle": True, "seed": SEED, **options}
        with FastLoader(store, 2, **settings) as loader:
            whole = list(loader)
        with FastLoader(store, 2, **settings) as loader:
            iterator: Iterator[Any] = iter(loader)
            begun = list(islice(iterator, 2))
            state = loader.state_dict()
        with FastLoader(store, 2, **settings) as loader:
            loader.load_state_dict(state)
            rest = list(loader)
            assert str(loader.receipt()).startswith(f"11 of 11 samples once in {5 if 'views' in options else 2} views")
            assert loader.receipt().is_exact
        flat = [[*(one if isinstance(one, list) else [one]), labels] for one, labels in begun + rest]
        expected = [[*(one if isinstance(one, list) else [one]), labels] for one, labels in whole]
        assert all(map(same, expected, flat))
        other = FastLoader(store, 2, shuffle=True, seed=SEED, transforms=BIG)
        with other, pytest.raises(ValueError, match="transforms"):
            other.load_state_dict(state)

    def test_ranks_share_the_views_of_one(self, store: Path, options: Any) -> None:
        """A photo has the same views, whichever rank has it in whichever batch."""

        def by_photo(rank: int, world_size: int, batch_size: int) -> dict[int, Any]:
            ids = np.arange(COUNT)
            given: dict[int, Any] = {}
            with FastLoader(
                store, batch_size, rank=rank, world_size=world_size, shuffle=True, seed=SEED, **options
            ) as loader:
                for numbered in loader.numbered():
                    images, _ = numbered.batch
                    count = len(numbered.indices)
                    views = images if isinstance(images, list) else images.reshape(2, count, *images.shape[1:])
                    for place, index in enumerate(numbered.indices.tolist()):
                        given[index] = [view[place].clone() for view in views]
            assert set(given) <= set(ids.tolist())
            return given

        one = by_photo(0, 1, 4)
        several = by_photo(0, 3, 2) | by_photo(1, 3, 2) | by_photo(2, 3, 2)
        assert set(one) == set(several) == set(range(COUNT))
        assert all(same(one[index], several[index]) for index in one)

    @pytest.mark.parametrize("on_error", ["raise", "skip", "zero"])
    def test_damaged_photos(self, tmp_path: Path, options: Any, on_error: Any) -> None:
        """They raise, are left out of all views, or are zeros in all."""
        path = write(tmp_path / "x.tar")
        with FastDataset(path) as dataset:
            spans = dataset.store.spans("image", np.array([5]))
            start, size = int(spans.starts[0]), int(spans.sizes[0])
        data = bytearray(path.read_bytes())
        data[start + size // 2] ^= 0xFF
        path.write_bytes(data)
        with FastLoader(path, 4, on_error=on_error, seed=SEED, **options) as loader:
            if on_error == "raise":
                with pytest.raises(SampleError, match=r"\[5\]"):
                    list(loader)
                return
            batches = list(loader)
            assert [error.index for error in loader.skipped] == [5]
        images, labels = batches[1]
        count = 2 if "repeats" in options else 1
        views = images if isinstance(images, list) else images.chunk(count)
        assert len(labels) == count * (3 if on_error == "skip" else 4)
        for view, transforms in enumerate(EACH[: len(views)]):
            expected = alone(path, transforms, view, on_error=on_error)[1][0]
            assert torch.equal(expected, views[view])


def test_two_views_without_labels_are_no_pictures_and_labels(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What would unpack without an error is said, once."""
    with Writer(tmp_path / "x.lmdb", {"image": "image"}) as writer:
        for number in range(4):
            writer.write({"image": encoded("PNG", number)})
    with FastLoader(tmp_path / "x.lmdb", 4, views=2, transforms=BIG) as loader:
        first, second = next(iter(loader))
    assert first.shape == second.shape
    assert "a batch is a single list, here of two views" in caplog.text


def test_pinned_views(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pin_memory values are the same, in memory of torch's."""
    with FastLoader(store, 4, views=VIEWS, pin_memory=False) as loader:
        plain = list(loader)
    empty, allocated = torch.empty, set[int]()

    def pinned_empty(*size: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        memory = empty(*size, **options)
        assert pin_memory
        allocated.add(memory.data_ptr())
        return memory

    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", pinned_empty)
        with FastLoader(store, 4, views=VIEWS, pin_memory=True) as loader:
            pinned = list(loader)
    assert all(same([*one[0], one[1]], [*other[0], other[1]]) for one, other in zip(plain, pinned, strict=True))
    assert {view.data_ptr() for views, _ in pinned for view in views} <= allocated


def test_one_sample_has_the_list_of_its_views(store: Path) -> None:
    """FastDataset gives the views of a picture, drawn from torch's generator, with one label."""
    views = Views([(2, [RandomCrop(24)]), (1, [CenterCrop(32)])])
    with FastDataset(store, transform=views) as dataset, FastDataset(store) as plain:
        torch.manual_seed(1)
        images, label = dataset[3]
        torch.manual_seed(1)
        picture, expected = plain[3]
        assert images[:2] == [RandomCrop(24)(picture), RandomCrop(24)(picture)]
        assert images[2] == CenterCrop(32)(picture)
        assert label == expected
    with FastDataset(store, transform=views, fields=("label", "image")) as dataset:
        label, images = dataset[3]
        assert [image.size for image in images] == [(24, 24), (24, 24), (32, 32)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"views": [(2, BIG)], "transforms": BIG}, "transforms and views: each view has a list of its own"),
        ({"views": 2, "repeats": 2}, "both say how many views a picture has"),
        ({"views": []}, "at least one pair"),
        ({"views": [(0, BIG)]}, "a count of at least 1, got 0"),
        ({"views": 2, "quality": "fast"}, "views with quality='fast'"),
        ({"repeats": 2, "cache": "ram"}, "repeats with cache='ram'"),
        ({"repeats": 0}, "repeats=0: expected 1 or more"),
        ({"views": [(2, [KeepGeometry()])]}, "a sample has one geometry"),
    ],
)
def test_what_does_not_go_together(store: Path, options: Any, words: str) -> None:
    """One line says what to drop."""
    with pytest.raises(ValueError, match=words):
        FastLoader(store, 4, **options)


@pytest.mark.parametrize("views", [[BIG], "two", [(2, "crop")], [(2, [RandomCrop])], {"image": BIG}])
def test_what_is_no_list_of_views(store: Path, views: Any) -> None:
    """Pairs of a count and transforms are expected."""
    with pytest.raises(TypeError, match="views"):
        FastLoader(store, 4, views=views)


def test_samples_that_have_no_views(tmp_path: Path, store: Path) -> None:
    """Masks, boxes and samples that Python makes have none; what to do is said."""
    with Writer(tmp_path / "x.lmdb", {"image": "image", "mask": "mask", "vector": "float32[2]"}) as writer:
        mask = np.zeros((60, 95), np.uint8)
        writer.write({"image": encoded("PNG", 0), "mask": mask, "vector": np.zeros(2, np.float32)})
    with pytest.raises(SchemaError, match="mask would have to move with each view: leave it out"):
        FastLoader(tmp_path / "x.lmdb", 1, views=VIEWS)
    with pytest.raises(SchemaError, match="mask would have to move"):
        FastDataset(tmp_path / "x.lmdb", transform=Views(VIEWS))[0]
    with pytest.raises(SchemaError, match="repeats= is for pictures and columns, but the samples have vector"):
        FastLoader(FastDataset(tmp_path / "x.lmdb", fields=("image", "vector")), 1, repeats=2)
    with pytest.raises(SchemaError, match="views= is for pictures, but the samples have only vector"):
        FastLoader(FastDataset(tmp_path / "x.lmdb", fields="vector"), 1, views=2)
    with pytest.raises(ValueError, match=r"transform=fastio\.transforms\.Views"):
        FastLoader(FastDataset(store, Compose(BIG)), 1, views=2)
    with pytest.raises(ValueError, match="CutMix"):
        FastLoader(store, 4, views=[(2, [*BIG, CutMix(1.0, num_classes=4)])])
