"""FieldCollate: batches of samples with many fields in torch's DataLoader, and on FastLoader's plain path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, default_collate

from fastio import FastDataset, FastLoader, FieldCollate, PadCollate, SampleError, SchemaError
from fastio.dataset.record_collate import collate_rows
from tests.conftest import encode
from tests.dataset.many_fields import TYPES, make_samples, write_fields

# torch warns where a test machine has a single CPU; Python 3.12 warns of any fork beside threads.
pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
]

COUNT = 4


def samples_of_one_size() -> list[dict[str, Any]]:
    """Samples whose pictures all have one size, so that they can be stacked."""
    samples = make_samples(COUNT)
    for sample in samples:
        for name in ("image", "depth", "mask"):
            sample[name] = sample[name][:40, :30]
    return samples


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of all field types whose samples can be stacked."""
    metadata = {"tokenizer": {"vocab_size": 50_000, "special": {"pad": 9}}}
    return write_fields(tmp_path_factory.mktemp("collate") / "s.lmdb", samples_of_one_size(), metadata=metadata)


def one_batch(dataset: FastDataset, collate: Any = None, **options: Any) -> Any:
    """The first batch that torch's DataLoader makes."""
    return next(iter(DataLoader(dataset, COUNT, collate_fn=FieldCollate(dataset, collate), **options)))


def assert_batch(batch: Any) -> None:
    """A dict of all fields in the ways that are the default."""
    samples = samples_of_one_size()
    stacked = {name: np.stack([sample[name] for sample in samples]) for name in TYPES if name not in LISTS}
    assert list(batch) == [*list(TYPES)[:7], "tokens_mask", *list(TYPES)[7:]]
    assert torch.equal(torch.from_numpy(stacked["image"]).permute(0, 3, 1, 2), batch["image"])
    for name in ("mask", "depth", "embedding", "thumbnail", "label", "weight", "count", "is_day", "place"):
        expected = torch.from_numpy(stacked[name]).to(torch.int32) if name == "depth" else torch.tensor(stacked[name])
        expected = expected.permute(0, 3, 1, 2) if name == "thumbnail" else expected
        assert (batch[name].dtype, batch[name].shape) == (expected.dtype, expected.shape), name
        assert torch.equal(expected, batch[name]), name
    for name in ("caption", "objects", "sound", "city"):
        assert batch[name] == [sample[name] for sample in samples]
    for name in ("boxes", "points", "kinds"):
        assert all(map(torch.equal, [torch.from_numpy(sample[name]) for sample in samples], batch[name]))
    assert batch["boxes"][1].shape == (0, 4)
    assert batch["tokens"].tolist() == [[9, 9, 9], [9, 9, 9], [2000, 2001, 9], [3000, 3001, 3002]]
    assert batch["tokens_mask"].tolist() == [[False] * 3, [False] * 3, [True, True, False], [True] * 3]


LISTS = ("caption", "objects", "sound", "city", "boxes", "points", "kinds", "tokens")


@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "multiprocessing_context": "spawn"}], ids=["here", "spawn"])
def test_a_batch_of_a_data_loader(store: Path, options: dict[str, Any]) -> None:
    """Each field is collated by its type, also in a worker that gets the function by pickle."""
    assert_batch(one_batch(FastDataset(store), **options))


@pytest.mark.parametrize("transform", [None, dict], ids=["native", "plain"])
def test_fast_loader_makes_the_same(store: Path, transform: Any) -> None:
    """FastLoader's batches are FieldCollate's, whether native threads make them or a transform of the user's."""
    with FastLoader(FastDataset(store, transform), COUNT) as loader:
        assert_batch(next(iter(loader)))


@pytest.mark.parametrize("collate", ["pad", "list", "nested", {"boxes": "pad"}, {"tokens": PadCollate(7, side="left")}])
@pytest.mark.parametrize("fields", [None, ("boxes", "label", "tokens", "kinds"), ["boxes"], "boxes"])
def test_collates_are_fast_loaders(store: Path, collate: Any, fields: Any) -> None:
    """``collate=`` means the same to FastLoader, natively and on its plain path, as to FieldCollate."""
    if isinstance(fields, (str, list)) and isinstance(collate, dict):
        collate = {"boxes": "pad"}
    expected = one_batch(FastDataset(store, fields=fields), collate)
    for transform in (None, same):
        with FastLoader(FastDataset(store, transform, fields=fields), COUNT, collate=collate) as loader:
            assert_same(expected, next(iter(loader)))


def same(sample: Any) -> Any:
    """A transform that changes nothing."""
    return sample


def assert_same(expected: Any, batch: Any) -> None:
    """Equal batches, containers and tensors included."""
    assert type(batch) is type(expected)
    if isinstance(expected, dict):
        assert list(batch) == list(expected)
        for name, value in expected.items():
            assert_same(value, batch[name])
    elif isinstance(expected, (list, tuple)):
        assert len(batch) == len(expected)
        for value, other in zip(expected, batch, strict=True):
            assert_same(value, other)
    elif isinstance(expected, torch.Tensor) and expected.is_nested:
        assert_same(expected.unbind(), batch.unbind())
    elif isinstance(expected, torch.Tensor):
        assert (batch.dtype, batch.shape) == (expected.dtype, expected.shape)
        assert torch.equal(expected, batch)
    else:
        assert batch == expected


def test_padded_and_nested(store: Path) -> None:
    """Rows are padded with a mask beside them, or nested, by field; the others stay as they would."""
    batch = one_batch(FastDataset(store), {"boxes": "pad", "points": "nested", "tokens": "list"})
    samples = samples_of_one_size()

    assert batch["boxes"].shape == (COUNT, 3, 4)
    assert batch["boxes_mask"].tolist() == [[False] * 3, [False] * 3, [True, True, False], [True] * 3]
    assert torch.equal(torch.from_numpy(samples[3]["boxes"]), batch["boxes"][3])
    assert not batch["boxes"][0].any()
    assert batch["points"].layout == torch.jagged
    assert np.array_equal(samples[2]["points"], batch["points"].unbind()[2].numpy())
    assert [len(ids) for ids in batch["tokens"]] == [0, 0, 2, 3]
    assert len(batch["kinds"][3]) == 3
    assert "tokens_mask" not in batch


def test_tuples_pairs_and_values(store: Path) -> None:
    """A tuple has padded rows and their mask as a pair; other forms are what default_collate makes, or a list."""
    masks, (boxes, is_box), labels = one_batch(FastDataset(store, fields=("mask", "boxes", "label")), "pad")
    assert (masks.shape, boxes.shape, is_box.shape) == ((COUNT, 40, 30), (COUNT, 3, 4), (COUNT, 3))
    assert labels.tolist() == [0, 1, 2, 0]

    pairs = FastDataset(store, np.array, fields=("image", "label"))
    images, labels = one_batch(pairs)
    assert all(map(torch.equal, default_collate([pairs[i] for i in range(COUNT)]), (images, labels)))
    assert one_batch(FastDataset(store, fields="objects")) == [sample["objects"] for sample in samples_of_one_size()]
    assert [len(boxes) for boxes in one_batch(FastDataset(store, fields="boxes"))] == [0, 0, 2, 3]


def test_left_padded_tokens(store: Path) -> None:
    """A PadCollate says on which side token ids are padded, and to which multiple."""
    dataset = FastDataset(store, fields=("tokens", "weight"))
    (ids, mask), _ = one_batch(dataset, {"tokens": PadCollate(7, side="left", pad_to_multiple=4)})

    assert ids.tolist() == [[7] * 4, [7] * 4, [7, 7, 2000, 2001], [7, 3000, 3001, 3002]]
    assert mask[3].tolist() == [False, True, True, True]


def test_what_a_transform_adds(store: Path) -> None:
    """Values under new names are collated as default_collate does, pictures among them as tensors."""

    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        views = [sample["image"], sample["image"].crop((0, 0, 9, 9))]
        return {"views": views, "objects": torch.ones(2), "caption": len(sample["caption"]), "n": 1}

    batch = one_batch(FastDataset(store, transform))

    assert [tuple(view.shape) for view in batch["views"]] == [(COUNT, 3, 40, 30), (COUNT, 3, 9, 9)]
    assert batch["objects"].shape == (COUNT, 2)
    assert batch["n"].tolist() == [1] * COUNT
    assert batch["caption"].tolist() == [len(sample["caption"]) for sample in samples_of_one_size()]


def test_what_cannot_be_stacked_names_the_field(tmp_path: Path) -> None:
    """torch's exception gets a note."""
    types = {name: TYPES[name] for name in ("image", "mask")}
    dataset = FastDataset(write_fields(tmp_path / "s.tar", make_samples(2), types))

    with pytest.raises(RuntimeError) as error:
        FieldCollate(dataset)([dataset[0], dataset[1]])
    assert error.value.__notes__ == ["in a batch of 2 samples, field 'image'"]


@pytest.mark.parametrize(
    ("fields", "collate", "message"),
    [
        (None, "stack", "collate='stack' for 'tokens': expected 'list', 'pad', 'nested' or a PadCollate"),
        (None, {"boxes": PadCollate()}, r"for 'boxes': expected 'list', 'pad', 'nested'$"),
        (None, {"pose": "pad", "mask": "pad"}, "names 'pose', 'mask'; fields of token ids .* are tokens, boxes, "),
        (("mask", "label"), "pad", r"samples have mask \(mask\), label \(int\): drop it"),
    ],
)
def test_wrong_choices(store: Path, fields: Any, collate: Any, message: str) -> None:
    """A way that does not exist, or does not fit the field, is one line that says what does."""
    with pytest.raises((ValueError, SchemaError), match=message):
        FieldCollate(FastDataset(store, fields=fields), collate)


def test_a_mask_must_not_hide_a_field(tmp_path: Path) -> None:
    """A field that has the name of the entry that padding would add is an error, and not overwritten."""
    sample = make_samples(1)[0]
    path = write_fields(tmp_path / "s.h5", [{**sample, "boxes_mask": True}], {"boxes": "xyxy", "boxes_mask": "bool"})

    with pytest.raises(SchemaError, match="collate='pad' of 'boxes' makes an entry 'boxes_mask', which is a field"):
        FieldCollate(FastDataset(path), "pad")


@pytest.mark.parametrize("dtype", ["|u1", "<u2", "<u4", "<u8", "<i8", "<f2", "<f8", "<c8", "|b1"])
def test_every_dtype_is_padded(dtype: str) -> None:
    """Rows of any dtype that torch has keep it, and their values."""
    rows = np.arange(6).astype(dtype)
    padded, mask = collate_rows(torch.from_numpy(rows), np.array([2, 0, 4]), "pad")

    assert padded.shape == (3, 4)
    assert np.array_equal(rows, padded.numpy()[mask.numpy()])
    assert padded.numpy().dtype == dtype


@pytest.mark.parametrize("on_error", ["raise", "skip", "zero"])
def test_bad_samples_on_the_plain_path(tmp_path: Path, on_error: Any) -> None:
    """A picture whose damage shows only when it is decoded counts as bad: the sample, or its picture, is replaced."""
    samples = samples_of_one_size()
    samples[2]["image"] = encode(samples[2]["image"])[:200]
    types = {name: TYPES[name] for name in ("image", "caption", "label")}
    dataset = FastDataset(write_fields(tmp_path / "s.lmdb", samples, types), dict)

    with FastLoader(dataset, COUNT, on_error=on_error) as loader:
        if on_error == "raise":
            with pytest.raises(SampleError, match=r"\('a/0002'\), field 'image': .*: image file is truncated"):
                next(iter(loader))
            return
        batch = next(iter(loader))
        assert [error.key for error in loader.skipped] == ["a/0002"]
    kept = [0, 1, 3] if on_error == "skip" else [0, 1, 2, 3]
    assert batch["caption"] == [samples[index]["caption"] for index in kept]
    assert batch["image"].any(3).any(2).all(1).tolist() == [index != 2 for index in kept]
