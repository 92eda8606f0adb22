"""Fields of lists in FastLoader: flat elements with counts, drawn by sample and position, and proved as others are."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from fastio import (
    ClipSampler,
    FastDataset,
    FastLoader,
    FieldCollate,
    SampleError,
    SchemaError,
    StoreError,
    Writer,
    open_store,
)
from fastio.store.foreign.index import index_store
from fastio.transforms import (
    ColorJitter,
    MixUp,
    Normalize,
    PerBatch,
    PerSample,
    Pick,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    Resize,
    ToDtype,
)
from fastio.transforms.batch.recipe import Recipe
from fastio.transforms.views import view_seed
from tests.conftest import encode

COUNTS = [2, 0, 1, 3, 0, 0, 1, 4, 2, 0, 1]
CROPS = [RandomResizedCrop(16), RandomHorizontalFlip()]


def picture(number: int, form: str = "PNG", *, size: int = 0) -> bytes:
    """A picture of noise, of a size of its own unless one is given."""
    height, width = (size, size) if size else (20 + number % 7, 30 - number % 5)
    pixels = np.random.default_rng(number).integers(0, 255, (height, width, 3), dtype=np.uint8)
    return encode(pixels, form)


def write(path: Path, counts: Iterable[int] = COUNTS, *, size: int = 0, form: str = "PNG") -> Path:
    """A store of lists of so many pictures, with what belongs beside them."""
    fields = {"images": "image[*]", "control": "image?", "refs": "text[*]", "ids": "tokens16[*]", "label": "label"}
    with Writer(path, {**fields, "rows": "float32[*,2]?", "vectors": "float32[3][*]"}, overwrite=True) as out:
        for i, count in enumerate(counts):
            sample = {
                "images": [picture(10 * i + j, form, size=size) for j in range(count)],
                "control": picture(1000 + i, form, size=size) if i % 2 else None,
                "refs": [f"{i}.{j}" for j in range(i % 3)],
                "ids": [list(range(j + 1)) for j in range(i % 4)],
                "rows": np.full((i % 3, 2), i) if i % 2 else None,
                "vectors": [[i, j, 0] for j in range(count)],
                "label": i,
            }
            out.write(sample, key=f"s{i}")
    return path


def by_sample(batches: Iterable[dict[str, Any]], name: str = "images") -> dict[int, list[Any]]:
    """The pictures of each sample by its label."""
    found: dict[int, list[Any]] = {}
    for batch in batches:
        parts = torch.split(torch.as_tensor(batch[name]), torch.as_tensor(batch[f"{name}_counts"]).tolist())
        for label, part in zip(batch["label"].tolist(), parts, strict=True):
            assert label not in found
            found[label] = part.tolist()
    return found


@pytest.mark.parametrize("suffix", [".lmdb", ".h5", ".tar", ".zip"])
@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF"])
def test_batches_are_those_of_the_dataset(tmp_path: Path, suffix: str, form: str) -> None:
    """Without transforms, elements are those of FastDataset, also those that Pillow decodes; counts say whose."""
    path = write(tmp_path / f"s{suffix}", size=24, form=form)
    dataset = FastDataset(path)
    with FastLoader(path, 4, shuffle=True, seed=1) as loader:
        batches = list(loader)
        assert loader.receipt().is_exact
    pixels = by_sample(batches)
    control = by_sample(batches, "control")
    for batch in batches:
        for at, label in enumerate(batch["label"].tolist()):
            sample = dataset[label]
            assert [np.asarray(each).transpose(2, 0, 1).tolist() for each in sample["images"]] == pixels[label]
            has_control = sample["control"] is not None
            assert [1 if has_control else 0] == [len(control[label])]
            assert sample["refs"] == batch["refs"][at]
            assert [ids.tolist() for ids in sample["ids"]] == [ids.tolist() for ids in batch["ids"][at]]
            rows = batch["rows"][at]
            assert (None if rows is None else rows.tolist()) == (
                None if sample["rows"] is None else sample["rows"].tolist()
            )
    assert torch.cat([batch["images_counts"] for batch in batches]).sum() == sum(COUNTS)
    assert all(batch["images_counts"].dtype == torch.int64 for batch in batches)
    assert [[i, j, 0] for i, count in enumerate(COUNTS) for j in range(count)] == sorted(
        row for batch in batches for row in batch["vectors"].tolist()
    )


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.integers(1, 5), st.integers(1, 5), st.integers(0, 2))
def test_draws_are_of_sample_and_position(
    tmp_path: Path, counts: list[int], first: int, second: int, epoch: int
) -> None:
    """Batches of any size, in any order and of any threads give an element the same pixels in an epoch."""
    path = write(tmp_path / "s.lmdb", counts)
    found = []
    for size, shuffle, threads in ((first, True, 1), (second, False, 2)):
        with FastLoader(path, size, shuffle=shuffle, transforms=CROPS, threads=threads) as loader:
            loader.set_epoch(epoch)
            found.append(by_sample(loader))

    assert found[0] == found[1]
    assert dict(enumerate(counts)) == {i: len(each) for i, each in found[0].items()}


def test_elements_draw_for_themselves(tmp_path: Path) -> None:
    """One picture twice in a sample has two crops; the first has the crop that a field of one picture has."""
    data = picture(3, size=64)
    with Writer(tmp_path / "s.lmdb", {"image": "image", "images": "image[*]", "label": "label"}) as out:
        for i in range(4):
            out.write({"image": data, "images": [data] * 3, "label": i})
    with FastLoader(tmp_path / "s.lmdb", 4, transforms=CROPS) as loader:
        (batch,) = loader
    images = batch["images"].reshape(4, 3, 3, 16, 16)

    assert torch.equal(batch["image"], images[:, 0])
    assert not any(torch.equal(images[i, j], images[i, k]) for i in range(4) for j, k in ((0, 1), (1, 2), (0, 2)))
    with FastLoader(tmp_path / "s.lmdb", 4, transforms=CROPS) as loader:
        loader.set_epoch(1)
        assert not torch.equal(next(iter(loader))["images"], batch["images"])


def test_normalize_and_arrays(tmp_path: Path) -> None:
    """Normalize follows the decoders for each element; output="numpy" has arrays; batches may have no element."""
    path = write(tmp_path / "s.lmdb", [0, 0, 2, 1, 0, 0])
    steps = [*CROPS, Normalize([0.5] * 3, [0.25] * 3)]
    with FastLoader(path, 2, transforms=steps) as normalized, FastLoader(path, 2, transforms=CROPS) as plain:
        for batch, raw in zip(normalized, plain, strict=True):
            torch.testing.assert_close(batch["images"], (raw["images"] / 255 - 0.5) / 0.25)
            assert batch["images"].shape[1:] == (3, 16, 16)
    with FastLoader(path, 2, transforms=CROPS, output="numpy") as loader:
        arrays = list(loader)
    assert all(isinstance(each[name], np.ndarray) for each in arrays for name in ("images", "images_counts", "vectors"))
    assert [0, 3, 0] == [len(each["images"]) for each in arrays]
    with FastLoader(FastDataset(path, fields="images"), 3, transforms=CROPS) as loader:
        assert [(2, [0, 0, 2]), (1, [1, 0, 0])] == [(len(images), counts.tolist()) for images, counts in loader]


def damage(path: Path, sample: int, position: int) -> None:
    """Change a byte of one picture of a sample."""
    with open_store(path) as store:
        elements = store.elements("images")
        which, _ = elements.of(np.array([sample]))
        span = elements.spans("images", which[position : position + 1])
        place = int(span.starts[0] + span.sizes[0] // 2)
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("suffix", [".lmdb", ".tar"])
def test_a_bad_element(tmp_path: Path, suffix: str) -> None:
    """It is an error that names sample and element; "skip" leaves the sample out, "zero" blanks this picture alone."""
    path = write(tmp_path / f"s{suffix}")
    with FastLoader(path, 4, transforms=CROPS) as loader:
        good = by_sample(loader)
    damage(path, 7, 2)

    with (
        FastLoader(path, 4, transforms=CROPS) as loader,
        pytest.raises(SampleError, match=r"'images' 3 of 4") as caught,
    ):
        list(loader)
    assert (7, "s7", "images") == (caught.value.index, caught.value.key, caught.value.field)
    with FastLoader(path, 4, transforms=CROPS, on_error="skip") as loader:
        assert {i: each for i, each in good.items() if i != 7} == by_sample(loader)
        receipt = loader.receipt()
        assert ["s7"] == [error.key for error in loader.skipped]
        assert not receipt.is_exact
    with FastLoader(path, 4, transforms=CROPS, on_error="zero") as loader:
        found = by_sample(loader)
    assert not np.any(found[7][2])
    good[7][2] = found[7][2]
    assert good == found


@pytest.mark.parametrize("on_error", ["skip", "zero"])
def test_a_picture_that_a_transform_refuses(tmp_path: Path, on_error: Any) -> None:
    """It makes its sample bad, and is blank with "zero"; where no sample has a picture, rows have the crop's size."""
    sizes = [[320, 310], [], [330, 40], [300], [20], [], [], [], []]
    with Writer(tmp_path / "s.lmdb", {"images": "image[*]", "number": "int"}) as out:
        for number, own in enumerate(sizes):
            out.write({"images": [picture(number, size=size) for size in own], "number": number})
    counts, numbers = [], list[int]()
    with FastLoader(tmp_path / "s.lmdb", 3, transforms=[RandomCrop(300)], threads=1, on_error=on_error) as loader:
        for batch in loader:
            numbers += batch["number"].tolist()
            counts += batch["images_counts"].tolist()
            assert batch["images"].shape[1:] == (3, 300, 300)
        skipped = loader.skipped

    assert [2, 4] == [error.index for error in skipped]
    assert "field 'images' 2 of 2: RandomCrop(" in str(skipped[0])
    assert numbers == [number for number in range(9) if on_error == "zero" or number not in {2, 4}]
    assert counts == [len(sizes[number]) for number in numbers]
    (batch,) = FastLoader(tmp_path / "s.lmdb", 4, transforms=[RandomCrop(300)], threads=1, sampler=[5, 6, 7, 8])
    assert batch["images"].shape == (0, 3, 300, 300)


@pytest.mark.parametrize("read", ["map", "pread"])
def test_resumed_on_other_ranks(tmp_path: Path, read: Any) -> None:
    """What one rank has begun, two finish: each sample once, with the pixels of one rank, and an exact receipt."""
    path = write(tmp_path / "s.h5", [i % 3 for i in range(24)])
    with FastLoader(path, 3, shuffle=True, transforms=CROPS) as loader:
        whole = by_sample(loader)
    with FastLoader(FastDataset(path, read=read), 3, shuffle=True, transforms=CROPS) as loader:
        batches = list(islice(loader, 2))
        state = loader.state_dict()
    for rank in range(2):
        with FastLoader(path, 2, shuffle=True, transforms=CROPS, rank=rank, world_size=2) as loader:
            loader.load_state_dict(state)
            batches += list(loader)
    assert whole == by_sample(batches)
    with FastLoader(path, 3, shuffle=True, transforms=CROPS) as loader:
        loader.load_state_dict(state)
        list(loader)
        assert loader.receipt().is_exact


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=7),
    st.integers(1, 4),
    st.sampled_from(["flat", "list", "pad", "nested"]),
    st.sampled_from([None, ("images", "control", "label"), "images", "control"]),
    st.booleans(),
)
def test_collate_of_lists(
    tmp_path: Path, counts: list[int], size: int, how: str, fields: Any, is_normalized: bool
) -> None:
    """One tensor a sample, padding with a mask, nested: the same pictures as flat, whatever is done behind decoding."""
    dataset = FastDataset(write(tmp_path / "s.lmdb", counts), fields=fields)
    steps = [*CROPS, Normalize([0.5] * 3, [0.25] * 3)] if is_normalized else CROPS
    names = [name for name in ("images", "control") if name in dataset.form.names]
    wish: Any = dict.fromkeys(names, how)
    with (
        FastLoader(dataset, size, transforms=steps) as flat,
        FastLoader(dataset, size, transforms=steps, collate=wish) as loader,
    ):
        for expected, batch in zip(flat, loader, strict=True):
            for name in names:
                rows, rows_counts = entries(expected, dataset, name)
                check_lists(entries(batch, dataset, name, how), rows, rows_counts, how, is_optional=name == "control")


def entries(batch: Any, dataset: FastDataset, name: str, how: str = "flat") -> Any:
    """What a batch has of a field of lists: a value, or two."""
    if dataset.form.kind == "value":
        return batch
    if dataset.form.kind == "tuple":
        return batch[dataset.form.names.index(name)]
    second = {"flat": f"{name}_counts", "pad": f"{name}_mask"}.get(how)
    assert all(f"{name}_{each}" not in batch for each in ("counts", "mask") if f"{name}_{each}" != second)
    return (batch[name], batch[second]) if second else batch[name]


def check_lists(found: Any, rows: torch.Tensor, counts: torch.Tensor, how: str, *, is_optional: bool) -> None:
    """Compare what a batch has of a field with its flat elements."""
    parts = torch.split(rows, counts.tolist())
    if how == "flat":
        assert torch.equal(found[0], rows)
        assert torch.equal(found[1], counts)
    elif how == "list":
        every = [part[0] if len(part) else None for part in parts] if is_optional else parts
        assert len(every) == len(found)
        assert all(a is b if a is None else torch.equal(a, b) for a, b in zip(every, found, strict=True))
    elif how == "nested":
        assert [part.tolist() for part in parts] == [each.tolist() for each in found.unbind()]
    else:
        padded, mask = found
        most = int(counts.max())
        assert mask.dtype == torch.bool
        assert padded.shape == ((len(counts), *rows.shape[1:]) if is_optional else (len(counts), most, *rows.shape[1:]))
        assert torch.equal(mask.int() if is_optional else mask.sum(1), counts.int() if is_optional else counts)
        assert torch.equal(padded[mask], rows)
        assert not padded[~mask].any()


def test_lists_of_arrays_on_a_device(tmp_path: Path) -> None:
    """Arrays of NumPy, bfloat16, a device, and functions at the end get lists as the loop does."""
    path = write(tmp_path / "s.lmdb", [2, 0, 1])
    wish: Any = {"images": "pad", "control": "list"}
    with FastLoader(path, 3, transforms=CROPS, collate=wish) as loader:
        (expected,) = loader
    with FastLoader(path, 3, transforms=CROPS, collate=wish, output="numpy") as loader:
        (batch,) = loader
        assert isinstance(batch["images"], np.ndarray)
        assert expected["images"].tolist() == batch["images"].tolist()
        assert expected["images_mask"].tolist() == batch["images_mask"].tolist()
        none, control, also_none = batch["control"]
        assert expected["control"][1].tolist() == control.tolist()
        assert none is also_none is None
        assert "pad" in repr(loader)
    half = [*CROPS, Normalize([0.0] * 3, [1.0] * 3), ToDtype("bfloat16")]
    with FastLoader(path, 3, transforms=half, collate=wish, device="cpu") as loader:
        (batch,) = loader
    assert batch["images"].dtype == torch.bfloat16
    torch.testing.assert_close(batch["images"].float(), expected["images"] / 255, atol=0.01, rtol=0)
    with FastLoader(FastDataset(path, fields=("rows", "vectors")), 3, collate={"vectors": "pad"}) as loader:
        ((rows, (vectors, mask)),) = loader
    assert [None, 1, None] == [row if row is None else len(row) for row in rows]
    assert (3, 2, 3) == vectors.shape
    assert [2, 0, 1] == mask.sum(1).tolist()


def test_samples_of_a_transform(tmp_path: Path) -> None:
    """A dataset with a transform, in FastLoader and in a DataLoader: pictures of lists become the same batches."""
    path = write(tmp_path / "s.lmdb", [2, 0, 1, 3], size=24)
    wishes: list[Any] = [None, {"images": "pad", "control": "list"}]
    for collate in wishes:
        dataset = FastDataset(path, transform=lambda sample: {**sample, "label": sample["label"] + 1})
        with FastLoader(path, 3, collate=collate) as native, FastLoader(dataset, 3, collate=collate) as plain:
            every = list(native), list(plain), list(DataLoader(dataset, 3, collate_fn=FieldCollate(dataset, collate)))
        for expected, *others in zip(*every, strict=True):
            for batch in others:
                assert sorted(expected) == sorted(batch)
                assert torch.equal(expected["label"] + 1, batch["label"])
                assert all(same(expected[name], batch[name]) for name in expected if name != "label")


def same(first: Any, second: Any) -> bool:
    """Whether two values of batches are equal."""
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(torch.equal(torch.as_tensor(first), torch.as_tensor(second))) if is_array(first) else first == second


def is_array(value: Any) -> bool:
    """Whether a value is a tensor or an array."""
    return isinstance(value, (torch.Tensor, np.ndarray))


def test_wrong_collates_of_lists(tmp_path: Path) -> None:
    """A way that is unknown, a field without a choice, and entries that are fields are named."""
    path = write(tmp_path / "s.lmdb", [1])
    with pytest.raises(ValueError, match=r"collate='pack' for 'images': expected 'flat', 'list', 'pad', 'nested'"):
        FastLoader(path, 1, collate={"images": "pack"})
    with pytest.raises(SchemaError, match=r"collate= names 'refs'; .* are images, control, vectors"):
        FastLoader(path, 1, collate={"refs": "pad"})
    with Writer(tmp_path / "t.lmdb", {"images": "image[*]", "images_mask": "int"}) as out:
        out.write({"images": [], "images_mask": 0})
    with pytest.raises(SchemaError, match="collate='pad' of 'images' makes an entry 'images_mask'"):
        FastLoader(tmp_path / "t.lmdb", 1, collate="pad")
    with FastLoader(tmp_path / "t.lmdb", 1, collate="list") as loader:
        assert 1 == len(list(loader))


VIEWS: list[Any] = [(2, CROPS), (1, [RandomResizedCrop(12), Normalize([0.5] * 3, [0.25] * 3)])]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=7),
    st.integers(1, 4),
    st.sampled_from(["flat", "list", "pad", "nested"]),
    st.sampled_from([None, ("images", "label"), "images"]),
    st.sampled_from(["PNG", "TIFF"]),
)
def test_views_of_lists(tmp_path: Path, counts: list[int], size: int, how: str, fields: Any, form: str) -> None:
    """Each picture of a sample is in each view as in a loader of this view alone; counts and masks come once."""
    dataset = FastDataset(write(tmp_path / "s.lmdb", counts, form=form), fields=fields)
    names = [name for name in ("images", "control") if name in dataset.form.names]
    wish: Any = dict.fromkeys(names, how)
    with FastLoader(dataset, size, views=VIEWS, seed=5, collate=wish) as loader:
        batches = list(loader)
        assert loader.receipt().is_exact
    for view, steps in enumerate(steps for count, steps in VIEWS for _ in range(count)):
        with FastLoader(dataset, size, transforms=steps, seed=view_seed(5, view)) as alone:
            for expected, batch in zip(alone, batches, strict=True):
                for name in names:
                    found = entries(batch, dataset, name, how)
                    seen = (found[0][view], found[1]) if how in ("flat", "pad") else found[view]
                    rows, rows_counts = entries(expected, dataset, name)
                    check_lists(seen, rows, rows_counts, how, is_optional=name == "control")


def test_repeats_of_lists(tmp_path: Path) -> None:
    """All comes again as if each sample came again: pictures, counts and columns; a bad sample is left out of both."""
    path = write(tmp_path / "s.lmdb")
    dataset = FastDataset(path, fields=("images", "control", "label"))
    steps = [*CROPS, Normalize([0.5] * 3, [0.25] * 3)]
    with FastLoader(dataset, 4, transforms=steps, repeats=2, seed=5) as loader:
        batches = list(loader)
    parts = []
    for view in range(2):
        with FastLoader(dataset, 4, transforms=steps, seed=view_seed(5, view)) as loader:
            parts.append(list(loader))
    for batch, *views in zip(batches, *parts, strict=True):
        for place in range(2):
            for found, each in zip(batch[place], zip(*(view[place] for view in views), strict=True), strict=True):
                assert torch.equal(torch.cat(each), found)
        assert batch[2].tolist() == [label for view in views for label in view[2].tolist()]
    damage(path, 7, 2)
    good, bad = [count for i, count in enumerate(COUNTS) if i != 7], sum(COUNTS[:7]) + 2
    with FastLoader(dataset, 11, on_error="skip", transforms=CROPS, repeats=2) as loader:
        (batch,) = loader
    assert good * 2 == batch[0][1].tolist()
    assert sum(good) * 2 == len(batch[0][0])
    with FastLoader(dataset, 11, on_error="skip", transforms=CROPS, views=2) as loader:
        (batch,) = loader
    assert good == batch[0][1].tolist()
    assert [sum(good)] * 2 == list(map(len, batch[0][0]))
    with FastLoader(dataset, 11, on_error="zero", transforms=CROPS, views=2) as loader:
        (batch,) = loader
    assert [[bad]] * 2 == [[place for place, image in enumerate(view) if not image.any()] for view in batch[0][0]]


def test_views_are_decoded_once(tmp_path: Path) -> None:
    """Two views of a JPEG cost one decoding: the codec is asked for each picture once, and states know samples."""
    path = write(tmp_path / "s.lmdb", form="JPEG")
    dataset = FastDataset(path, fields=("images", "label"))
    with FastLoader(dataset, 2, views=VIEWS, seed=3, shuffle=True) as loader:
        whole = list(loader)
        assert sum(COUNTS) == loader.stats.pictures.native
    with FastLoader(dataset, 2, views=VIEWS, seed=3, shuffle=True) as loader:
        first = list(islice(loader, 2))
        state = loader.state_dict()
    with FastLoader(dataset, 2, views=VIEWS, seed=3, shuffle=True) as loader:
        loader.load_state_dict(state)
        rest = list(loader)
    for expected, found in zip(whole, [*first, *rest], strict=True):
        assert expected[0][1].tolist() == found[0][1].tolist()
        assert all(torch.equal(one, other) for one, other in zip(expected[0][0], found[0][0], strict=True))


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
    st.integers(1, 4),
    st.sampled_from([None, ("images", "label"), "images"]),
    st.sampled_from(["transforms", "views", "by field"]),
)
def test_colours_behind_the_decoders(tmp_path: Path, counts: list[int], size: int, fields: Any, option: str) -> None:
    """What torch does at random behind a function of batches, or on a GPU, is drawn by sample and place, too."""
    path = write(tmp_path / "s.lmdb", counts, size=24)
    late: list[Any] = [Normalize([0.0] * 3, [1.0] * 3), ColorJitter(0.5, 0.5), RandomHorizontalFlip()]
    dataset = FastDataset(path, fields=fields)
    form = dataset.form.kind
    options: dict[str, Any] = {"transforms": late}
    if option == "views":
        options = {"views": [(1, [RandomResizedCrop(8)]), (1, late)]}
    elif option == "by field" and form != "value":
        options = {"transforms": {"images": late}}
    with FastLoader(dataset, size, shuffle=size > 2, **options) as loader:
        loader.set_epoch(1)
        found = [batch if form == "value" else entries(batch, dataset, "images") for batch in loader]
    if option == "views":
        found = [(views[1], own) for views, own in found]
    rows = sorted(row.tolist() for images, _ in found for row in images)
    # Each element alone, as the picture of a sample with its id.
    flat = [(i + j * 0x1E3779B97F4A7C15) & ((1 << 63) - 1) for i, count in enumerate(counts) for j in range(count)]
    with FastLoader(FastDataset(path, fields="images"), len(counts)) as loader:
        ((pictures, _),) = loader
    recipe = Recipe(late, seed=view_seed(0, 1) if option == "views" else 0)
    if flat:
        (expected,) = recipe.run([pictures], recipe.draw([pictures], np.array(flat), 1))
        assert sorted(row.tolist() for row in expected) == rows
    assert len(flat) == len(rows)


def test_pictures_that_do_not_fit(tmp_path: Path) -> None:
    """Two pictures of one sample are told apart by their places, and other channels have other advice than sizes."""
    grey = encode(np.zeros((24, 24), np.uint8), "PNG")
    with Writer(tmp_path / "s.lmdb", {"images": "image[*]"}) as out:
        out.write({"images": [picture(0, size=24), grey, picture(1)]}, key="a")
    with (
        FastLoader(tmp_path / "s.lmdb", 1) as loader,
        pytest.raises(SchemaError, match=r"'a' 1 of 3 is 24x24x3, 'a' 3"),
    ):
        list(loader)
    grown = [Resize((8, 8))]
    with (
        FastLoader(FastDataset(tmp_path / "s.lmdb", mode=None), 1, transforms=grown) as loader,
        pytest.raises(
            SchemaError, match=r"'a' 2 of 3 is 8x8x1 .*; only channels differ: pass FastDataset\(path, mode="
        ),
    ):
        list(loader)


def test_what_does_not_go_with_lists(tmp_path: Path) -> None:
    """Each option that knows one picture a sample is refused in one line."""
    path = write(tmp_path / "s.lmdb", size=24)
    dataset = FastDataset(path)
    unfit: list[tuple[dict[str, Any], str]] = [
        ({"cache": "ram"}, "cache= does not go with lists of encoded pictures in 'images' yet"),
        ({"repeats": 2, "transforms": CROPS}, "repeats= is for pictures and columns, but the samples have refs, ids"),
        ({"transforms": [*CROPS, MixUp(num_classes=11)]}, r"MixUp\(.*\) with pictures of lists, such as 'images'"),
        ({"transforms": [*CROPS, PerSample(lambda picture: picture)]}, "PerSample.* with pictures of lists, such as"),
        (
            {"transforms": [*CROPS, Pick("images"), PerBatch(lambda batch: batch), ColorJitter(0.5)]},
            "where it is not known which of 'images' was picked",
        ),
    ]
    for options, sentence in unfit:
        with pytest.raises(SchemaError, match=sentence):
            FastLoader(dataset, 4, **options)
    clips = ClipSampler(np.zeros(len(COUNTS), np.int64), frames=2, batch_size=2)
    with pytest.raises(SchemaError, match="one picture a sample, a frame, but the samples have lists of encoded pict"):
        FastLoader(FastDataset(path, fields=("images", "label")), batch_sampler=clips, transforms=CROPS)
    with FastLoader(FastDataset(path, fields=("refs", "label")), batch_sampler=clips) as loader:
        assert [2] * 2 == [len(clip) for clip in next(iter(loader))[0]]
    with FastLoader(dataset, 4, transforms=[RandomRotation(10), *CROPS]) as loader:
        assert sum(COUNTS) == sum(len(batch["images"]) for batch in loader)


def test_functions_of_batches(tmp_path: Path) -> None:
    """One among transforms gets flat pictures with counts, one at the end what the loop gets."""
    path, seen = write(tmp_path / "s.lmdb", [2, 0, 1]), []

    def note(batch: dict[str, Any]) -> dict[str, Any]:
        seen.append((tuple(batch["images"].shape), sorted(name for name in batch if name.startswith("images"))))
        return batch

    steps: list[Any]
    for device in (None, "cpu"):
        steps = [*CROPS, PerBatch(note), Normalize([0.5] * 3, [0.25] * 3), note]
        with FastLoader(path, 3, transforms=steps, collate={"images": "pad"}, device=device) as loader:
            (batch,) = loader
        with FastLoader(path, 3, transforms=[*CROPS, Normalize([0.5] * 3, [0.25] * 3)]) as loader:
            (expected,) = loader
        torch.testing.assert_close(batch["images"][batch["images_mask"]], expected["images"])
    first, last = ((3, 3, 16, 16), ["images", "images_counts"]), ((3, 2, 3, 16, 16), ["images", "images_mask"])
    assert [first, last] * 2 == seen
    uncounted = PerBatch(lambda batch: {name: value for name, value in batch.items() if name != "images_counts"})
    steps = [*CROPS, uncounted, Normalize([0.5] * 3, [0.25] * 3)]
    with (
        FastLoader(path, 3, transforms=steps, collate="list") as loader,
        pytest.raises(SchemaError, match="returned dict without 'images' where it was"),
    ):
        list(loader)


def test_no_advice_that_does_not_help(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Start points in lists are made when they are packed; `fastio index`, which says so, is not advised for them."""
    photo = picture(1, "JPEG", size=400)
    with Writer(tmp_path / "s.lmdb", {"images": "image[*]", "control": "image?"}, jump=False) as out:
        for count in range(3):
            out.write({"images": [photo] * count, "control": photo})
    with FastLoader(tmp_path / "s.lmdb", 3, transforms=[RandomResizedCrop(16)]) as loader:
        assert 1 == len(list(loader))

    assert "fastio index" not in caplog.text
    with pytest.raises(StoreError, match="holds pictures in lists alone, whose start points are made when"):
        index_store(str(tmp_path / "s.lmdb"))
