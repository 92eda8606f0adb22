"""Arrays of several free sizes, such as latents: from Writer to batches, buckets, DataLoaders and damage."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader, FieldCollate, SampleError, ShapeBucketSampler, Writer, open_store
from fastio.cli import cli
from fastio.errors import UnequalSizesError
from fastio.transforms import Pick
from tests.conftest import encode, pictures

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


# bfloat16, which NumPy lacks.

BITS = np.random.default_rng(0).integers(0, 1 << 16, (7, 6), np.uint16)  # NaN and infinities among them
BITS[0] = [0x7FC0, 0x7F81, 0xFFFF, 0x7F80, 0xFF80, 0x8000]


def halves(i: int) -> torch.Tensor:
    """A tensor of any bits."""
    return torch.from_numpy(BITS[i].view(np.int16)).view(torch.bfloat16)


def bits(value: Any) -> list[int]:
    """The bits of a tensor of bfloat16, or of float32 that hold nothing but such values."""
    if isinstance(value, torch.Tensor):
        assert value.dtype == torch.bfloat16
        found: list[int] = value.contiguous().view(torch.int16).numpy().view(np.uint16).ravel().tolist()
        return found
    assert value.dtype == np.float32
    wide = np.ascontiguousarray(value).view(np.uint32)
    assert not (wide & 0xFFFF).any()
    return list((wide >> 16).ravel().tolist())


HALVES = {
    "fixed": "bfloat16[6]",
    "rows": "bfloat16[*,3]",
    "free": "bfloat16[*,2,*]",
    "many": "bfloat16[6][*]",
    "text": "text",
}


def write_halves(path: Path) -> Path:
    """A store of arrays of bfloat16 of all kinds, with all bits."""
    with Writer(path, HALVES) as out:
        for i in range(len(BITS)):
            half, shape = halves(i), (1, 2, 3) if i % 2 else (3, 2, 1)
            rows = half.reshape(2, 3)[: i % 3]
            sample = {"fixed": half, "rows": rows, "free": half.reshape(shape), "many": [half] * (i % 3)}
            out.write({**sample, "text": str(i)}, key=f"s{i}")
    return path


@pytest.mark.parametrize("suffix", [".lmdb", ".h5", ".tar", ".zip"])
@pytest.mark.parametrize("output", ["torch", "numpy"])
def test_bfloat16(tmp_path: Path, suffix: str, output: Any) -> None:
    """Every bit comes back, as tensors of bfloat16, or as float32 of the same values in arrays."""
    path = write_halves(tmp_path / f"s{suffix}")
    stored = FastDataset(path)
    for i in range(len(BITS)):
        sample, own = stored[i], BITS[i].tolist()
        assert own == bits(sample["fixed"]) == bits(sample["free"])
        assert [own] * (i % 3) == [bits(each) for each in sample["many"]]
        assert own[: 3 * (i % 3)] == bits(sample["rows"])
    collates: list[Any] = [{"many": "list"}, {"rows": "pad", "free": "pad", "many": "pad"}]
    for dataset, collate in product((stored, FastDataset(path, lambda sample: sample)), collates):
        with FastLoader(dataset, 3, shuffle=True, collate=collate, output=output) as loader:
            for batch, numbers in order(loader):
                for at, i in enumerate(numbers):
                    own, free = BITS[i].tolist(), batch["free"][at]
                    free = free[:1] if i % 2 else free[..., :1]
                    assert own == bits(batch["fixed"][at])
                    assert own[: 3 * (i % 3)] == bits(batch["rows"][at][: i % 3])
                    assert own == bits(free)
                    assert own * (i % 3) == bits(batch["many"][at][: i % 3])


def test_bfloat16_in_memory_and_damaged(tmp_path: Path) -> None:
    """cache= keeps every bit, and zeros take the place of damage."""
    path = write_halves(tmp_path / "s.lmdb")
    for options in ({}, {"cache": "ram"}):
        with FastLoader(FastDataset(path, fields="fixed"), 7, **options) as loader:  # type: ignore[arg-type]
            assert BITS.ravel().tolist() == bits(next(iter(loader)))
    with open_store(path) as store:
        place = int(store.spans("fixed", np.array([2])).starts[0])
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    for output in ("torch", "numpy"):
        with FastLoader(path, 4, on_error="zero", output=output) as loader:  # type: ignore[arg-type]
            fixed = next(iter(loader))["fixed"]
        assert [BITS[1].tolist(), [0] * 6] == [bits(fixed[1]), bits(fixed[2])]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.array([1, 1.00390625, 1.01171875, -3.39e38]), [0x3F80, 0x3F80, 0x3F82, 0xFF7F]),
        ([1, -2, 256, 0], [0x3F80, 0xC000, 0x4380, 0]),
        (torch.tensor([1.5, 2, 3, 4], dtype=torch.float16), [0x3FC0, 0x4000, 0x4040, 0x4080]),
        (np.array([1, 2, 3, 0x7F81], "<u2").view("|V2"), [1, 2, 3, 0x7F81]),
        ([1, 2, 257, 0], "holds 257, which bfloat16 cannot hold"),
        ([3.39e38, 3.4e38, 1, 0], "holds 3.4e+38, which bfloat16 cannot hold"),
        (["1", "2", "3", "4"], "expected bfloat16[4]"),
    ],
)
def test_what_becomes_bfloat16(tmp_path: Path, value: Any, expected: Any) -> None:
    """Floats are rounded to the nearest, ties to even; whole numbers and finite ones that would change are refused."""
    with Writer(tmp_path / "s.lmdb", {"value": "bfloat16[4]", "text": "text"}, on_error="skip") as out:
        out.write({"value": value, "text": ""})
        out.write({"value": np.zeros(4), "text": ""})
    with FastDataset(tmp_path / "s.lmdb") as dataset:
        if isinstance(expected, str):
            assert expected in dataset.store.metadata["skipped"][0]["problem"]
        else:
            assert expected == bits(dataset[0]["value"])


def test_bfloat16_of_ml_dtypes(tmp_path: Path) -> None:
    """Its arrays are packed as they are, in memory and in files, and it reads those that unpack writes."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = BITS.view(ml_dtypes.bfloat16)
    with Writer(tmp_path / "s.lmdb") as out:
        out.write({"value": array, "text": ""})
    assert BITS.ravel().tolist() == bits(FastDataset(tmp_path / "s.lmdb")[0]["value"])


def test_bfloat16_is_inferred(tmp_path: Path) -> None:
    """Tensors of bfloat16 keep their dtype without a word."""
    with Writer(tmp_path / "s.lmdb") as out:
        for i in range(2):
            out.write({"value": halves(i)})
    with FastDataset(tmp_path / "s.lmdb") as dataset:
        assert ("|V2", (6,)) == (dataset.store.schema["value"].dtype, dataset.store.schema["value"].shape)
        assert BITS[1].tolist() == bits(dataset[1])


def test_files_of_bfloat16(tmp_path: Path) -> None:
    """Files as np.save writes arrays of ml_dtypes are packed without a type, and unpacked to the byte."""
    for name in ("pictures", "halves"):
        (tmp_path / name).mkdir()
    for i, (pixels,) in enumerate(pictures(1, (4, 4, 3), seed=i) for i in range(3)):
        (tmp_path / "pictures" / f"{i}.png").write_bytes(encode(pixels))
        np.save(tmp_path / "halves" / f"{i}.npy", BITS[i].view("|V2").reshape(2, 3, 1)[:, : i + 1])
    store, field = tmp_path / "s.lmdb", f"half={tmp_path / 'halves'}"
    result = CliRunner().invoke(cli, ["pack", f"{tmp_path / 'pictures'}", f"{store}", "--field", field])
    assert result.exit_code == 0, result.output
    with FastDataset(store) as dataset:
        assert ("|V2", (2, None, 1)) == (dataset.store.schema["half"].dtype, dataset.store.schema["half"].shape)
        assert BITS[2].tolist() == bits(dataset[2]["half"])
    assert CliRunner().invoke(cli, ["unpack", f"{store}", f"{tmp_path / 'out'}"]).exit_code == 0
    for path in (tmp_path / "halves").iterdir():
        (found,) = (tmp_path / "out").rglob(f"{path.stem}*.npy")
        assert path.read_bytes() == found.read_bytes()
