"""Arrays of several free sizes, such as latents: from Writer to batches, buckets, DataLoaders and damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader, FieldCollate, SampleError, ShapeBucketSampler, Writer, open_store
from fastio.errors import UnequalSizesError
from fastio.transforms import Pick

SHAPES = [(4, 3, 5), (4, 5, 3), (4, 3, 5), (4, 2, 8), (4, 5, 3), (4, 3, 5), (4, 1, 2)]
LATENTS = [np.random.default_rng(i).normal(size=shape).astype("<f2") for i, shape in enumerate(SHAPES)]


def write(path: Path) -> Path:
    """A store of latents, some of them in lists or missing, and a text."""
    fields = {"latent": "float16[4,*,*]", "text": "text", "many": "float16[4,*,*][*]", "maybe": "float16[4,*,*]?"}
    with Writer(path, fields, overwrite=True) as out:
        for i, latent in enumerate(LATENTS):
            value: Any = torch.from_numpy(latent) if i % 2 else latent
            many = [latent] * (i % 3)
            out.write({"latent": value, "text": str(i), "many": many, "maybe": latent if i % 2 else None}, key=f"s{i}")
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for tests that change none."""
    return write(tmp_path_factory.mktemp("arrays") / "s.lmdb")


def order(batches: Any) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """Batches, and the numbers of their samples."""
    for batch in batches:
        yield batch, list(map(int, batch["text"]))


def same(expected: NDArray[Any], found: Any) -> bool:
    """Whether an array or a tensor has these values and this dtype."""
    array = np.asarray(found)
    return (expected.shape, expected.dtype, expected.tobytes()) == (array.shape, array.dtype, array.tobytes())


@pytest.mark.parametrize("suffix", [".lmdb", ".h5", ".tar", ".zip"])
def test_values_and_lists(tmp_path: Path, suffix: str) -> None:
    """A dataset and batches have each array as it was, in every container; by default a batch is a list."""
    path = write(tmp_path / f"s{suffix}")
    dataset = FastDataset(path)
    for i, latent in enumerate(LATENTS):
        sample = dataset[i]
        assert same(latent, sample["latent"])
        assert sample["latent"].flags.writeable
        assert all(same(latent, each) for each in sample["many"])
        assert i % 3 == len(sample["many"])
        assert (sample["maybe"] is not None) == bool(i % 2)
    with FastLoader(path, 3, shuffle=True, seed=2) as loader:
        for batch, numbers in order(loader):
            for i, latent, many, maybe in zip(numbers, batch["latent"], batch["many"], batch["maybe"], strict=True):
                assert same(LATENTS[i], latent)
                assert i % 3 == len(many)
                assert (maybe is not None) == bool(i % 2)
        assert loader.receipt().is_exact


@pytest.mark.parametrize("output", ["torch", "numpy"])
def test_padded(path: Path, output: str) -> None:
    """Arrays fill the upper left of a batch as large as the largest, and the mask says where."""
    with FastLoader(path, 4, collate={"latent": "pad"}, output=output) as loader:  # type: ignore[arg-type]
        for batch, numbers in order(loader):
            padded, mask = np.asarray(batch["latent"]), np.asarray(batch["latent_mask"])
            most = [max(LATENTS[i].shape[axis] for i in numbers) for axis in (1, 2)]
            assert padded.shape == (len(numbers), 4, *most)
            assert mask.shape == (len(numbers), *most)
            for row, inside, i in zip(padded, mask, numbers, strict=True):
                height, width = LATENTS[i].shape[1:]
                assert same(LATENTS[i], row[:, :height, :width].copy())
                assert np.count_nonzero(row) == np.count_nonzero(LATENTS[i])
                assert inside[:height, :width].all()
                assert inside.sum() == height * width


def test_buckets_of_equal_shapes(path: Path) -> None:
    """A ShapeBucketSampler of the arrays' own shapes makes batches that can be stacked."""
    store = open_store(path)
    sizes = store.shapes("latent")[:, 1:]
    sampler = ShapeBucketSampler(sizes, shapes=np.unique(sizes, axis=0).tolist(), batch_size=2, uneven="repeat")
    found = dict[int, Any]()
    with FastLoader(path, batch_sampler=sampler, collate={"latent": "stack"}) as loader:
        for batch, numbers in order(loader):
            assert batch["latent"].is_contiguous()
            found |= dict(zip(numbers, batch["latent"], strict=True))
    assert sorted(found) == [*range(7)]
    assert all(same(LATENTS[i], latent) for i, latent in found.items())


def test_other_shapes_are_named(path: Path) -> None:
    """Stacking arrays of different shapes names two samples, and what takes them."""
    words = (
        "field 'latent': arrays of different shapes in one batch: {} is 4x3x5, {} is 4x5x3; "
        "collate={{'latent': 'pad'}} or 'list' takes them, and a ShapeBucketSampler makes batches of one shape"
    )
    with FastLoader(path, 3, collate={"latent": "stack"}) as loader, pytest.raises(UnequalSizesError) as caught:
        next(iter(loader))
    assert words.format("'s0'", "'s1'") == str(caught.value)
    dataset = FastDataset(path)
    with pytest.raises(UnequalSizesError) as caught:
        FieldCollate(dataset, {"latent": "stack"})([dataset[0], dataset[1]])
    assert words.format("sample 0 of the batch", "sample 1 of the batch") == str(caught.value)


@pytest.mark.parametrize(("how", "known"), [("nested", "'list', 'pad', 'stack'"), ("flat", "'list', 'pad', 'stack'")])
def test_unknown_ways(path: Path, how: Any, known: str) -> None:
    """Nested tensors have one size that differs, so these arrays have none."""
    with pytest.raises(ValueError, match=f"collate='{how}' for 'latent': expected {known}"):
        FastLoader(path, 3, collate={"latent": how})


@pytest.mark.parametrize("how", ["list", "pad", "stack"])
@pytest.mark.parametrize("fields", [None, ("latent", "text"), "latent"])
def test_dataloader_and_python_threads(path: Path, how: Any, fields: Any) -> None:
    """A DataLoader with FieldCollate, and the loader's Python threads, make what native threads make."""
    same_shape = [0, 2, 5]
    wish = how if fields == "latent" else {"latent": how}

    def plain(sample: Any) -> Any:
        return sample

    def entries(batch: Any) -> list[Any]:
        if isinstance(batch, dict):
            found = [batch["latent"], *([batch["latent_mask"]] if how == "pad" else [])]
        else:
            found = batch if how == "pad" or fields == "latent" else batch[0]
        flat: list[Any] = []
        for each in found if isinstance(found, (list, tuple)) else [found]:
            flat += each if isinstance(each, (list, tuple)) else [each]
        return [each.tolist() for each in flat if isinstance(each, torch.Tensor)]

    dataset = FastDataset(path, fields=fields)
    python = FastDataset(path, plain, fields=fields)
    batches = [
        *FastLoader(dataset, 3, sampler=same_shape, collate=wish),
        *FastLoader(python, 3, sampler=same_shape, collate=wish),
        *DataLoader(dataset, 3, sampler=same_shape, collate_fn=FieldCollate(dataset, wish)),
    ]
    assert len(batches) == 3
    first, *others = map(entries, batches)
    assert first
    assert [first, first] == others


def test_picked_from_lists(path: Path) -> None:
    """Pick gives one array of each list, and one without elements where there is none."""
    with FastLoader(path, 7, transforms=[Pick("many")], collate={"many": "pad"}) as loader:
        (batch,) = loader
    assert [0 if i % 3 == 0 else LATENTS[i][0].size for i in range(7)] == batch["many_mask"].sum((1, 2)).tolist()


def test_damage(tmp_path: Path) -> None:
    """A damaged array is named, skipped, or zeros of its own shape."""
    path = write(tmp_path / "s.lmdb")
    with open_store(path) as store:
        span = store.spans("latent", np.array([1]))
        place = int(span.starts[0] + span.sizes[0] - 3)
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)

    with pytest.raises(SampleError, match=r"s\.lmdb\[1\] \('s1'\), field 'latent': its bytes differ"):
        FastDataset(path)[1]
    with FastLoader(path, 4, on_error="raise") as loader, pytest.raises(SampleError, match="'s1'"):
        list(loader)
    with FastLoader(path, 4, on_error="skip") as loader:
        assert ["0", "2", "3"] == next(iter(loader))["text"]
    with FastLoader(path, 4, on_error="zero") as loader:
        batch = next(iter(loader))
    assert same(np.zeros((4, 5, 3), "<f2"), batch["latent"][1])
    assert same(LATENTS[0], batch["latent"][0])


def test_wrong_values(tmp_path: Path) -> None:
    """A value of other sizes is told with what was expected, and fields without a type are inferred."""
    with Writer(tmp_path / "a.lmdb", {"latent": "float16[4,*,*]"}) as out:
        out.write({"latent": LATENTS[0]})
        with pytest.raises(SampleError, match=r"is float32 of shape \(5, 2, 2\).*expected float16\[4,\*,"):
            out.write({"latent": np.zeros((5, 2, 2), "f4")})
    with Writer(tmp_path / "b.lmdb") as out:
        for latent in LATENTS:
            out.write({"latent": latent})
    assert (4, None, None) == FastDataset(tmp_path / "b.lmdb").store.schema["latent"].shape
