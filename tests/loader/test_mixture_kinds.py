"""Mixtures of every kind of sample, with what a FastLoader does beside: caches, bad samples, devices."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Subset

from fastio import DevicePrefetcher, FastDataset, FastLoader, Mixture, SchemaError
from fastio.transforms import RandomCrop
from fastio.types.schema import RAW, Field
from tests.conftest import encode, pictures, write_store
from tests.dataset.many_fields import TYPES, make_samples, write_fields
from tests.dataset.test_fast_dataset import to_tensor
from tests.loader.test_tokens import write_tokens

HALF = {"a": 1, "b": 1}


def photos(folder: Path, *, shape: Any = ((8, 8, 3), (8, 8, 3))) -> dict[str, Path]:
    """Two stores of pictures: labels from 0 and from 100 on."""
    return {
        name: write_store(
            folder / f"{name}.lmdb", [encode(one) for one in pictures(12, size, seed=first)], np.arange(12) + first
        )
        for name, first, size in (("a", 0, shape[0]), ("b", 100, shape[1]))
    }


def labels_of(loader: Any) -> list[list[int]]:
    """The labels of each batch."""
    return [labels.tolist() for _, labels in loader]


def test_the_plain_path_gives_the_same(tmp_path: Path) -> None:
    """Datasets with a transform of their own: the batches of native threads, to the bit."""
    paths = photos(tmp_path)
    options: dict[str, Any] = {"batch_size": 5, "shuffle": True, "threads": 1, "samples_per_epoch": 40}
    with (
        FastLoader(Mixture(paths, HALF), **options) as native,
        FastLoader(
            Mixture({name: FastDataset(path, to_tensor) for name, path in paths.items()}, HALF), **options
        ) as plain,
    ):
        for one, other in zip(native, plain, strict=True):
            assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))


@pytest.mark.parametrize("cache", ["ram", "device"])
def test_caches(tmp_path: Path, cache: Any) -> None:
    """Cached samples come in the same order, from memory with the same random crops, repeated ones included."""
    parts = {"a": photos(tmp_path)["a"], "b": Subset(FastDataset(tmp_path / "b.lmdb"), [3, 1])}
    options: dict[str, Any] = {"batch_size": 6, "shuffle": True, "samples_per_epoch": 30, "device": "cpu"}
    options["transforms"] = [RandomCrop(6)] if cache == "ram" else None
    with (
        FastLoader(Mixture(parts, HALF), **options) as plain,
        FastLoader(Mixture(parts, HALF), cache=cache, **options) as cached,
    ):
        for one, other in zip(plain, cached, strict=True):
            assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))


def test_repeated_samples_get_other_crops(tmp_path: Path) -> None:
    """The one sample of a small member comes ten times in an epoch, not with ten equal crops."""
    parts = {"a": photos(tmp_path)["a"], "b": Subset(FastDataset(tmp_path / "b.lmdb"), [3])}
    with FastLoader(Mixture(parts, HALF), 20, shuffle=True, transforms=[RandomCrop(5)], samples_per_epoch=20) as loader:
        images, labels = next(iter(loader))
    crops = {image.numpy().tobytes() for image in images[labels == 103]}

    assert 10 == int((labels == 103).sum())
    assert 4 < len(crops)


@pytest.mark.parametrize("on_error", ["skip", "zero"])
def test_bad_samples(tmp_path: Path, on_error: Any) -> None:
    """A damaged picture is skipped or zeroed, and named with its own store; the members' counts are of what was due."""
    paths = photos(tmp_path)
    values = [encode(one) for one in pictures(12)]
    values[4] = values[4][:100]
    paths["b"] = write_store(tmp_path / "bad.lmdb", values, np.arange(12) + 100)
    with FastLoader(Mixture(paths, HALF), 8, on_error=on_error) as loader:
        labels = [label for batch in labels_of(loader) for label in batch]
        (error,) = loader.skipped
        counts = loader.sources()

    assert (104 in labels) == (on_error == "zero")
    assert "bad.lmdb" in str(error)
    assert error.key == "a/0004.png"
    assert [12, 12] == [source.samples for source in counts.values()]


def test_steps_of_one_member_may_have_sizes_of_their_own(tmp_path: Path) -> None:
    """Pictures of 8 and of 16 pixels, each batch of one size."""
    mixture = Mixture(photos(tmp_path, shape=((8, 8, 3), (16, 16, 3))), HALF, batching="per_source")
    with FastLoader(mixture, 5, shuffle=True) as loader:
        sizes = {(tuple(images.shape[2:]), int(labels[0]) // 100) for images, labels in loader}

    assert {((8, 8), 0), ((16, 16), 1)} == sizes


def test_tokens_padded_and_packed(tmp_path: Path) -> None:
    """Texts of two stores in one batch, by their own ids; another tokenizer is refused."""
    texts = {name: [[first + number] * (1 + number) for number in range(9)] for name, first in (("a", 100), ("b", 200))}
    paths = {name: write_tokens(tmp_path / f"{name}.h5", samples) for name, samples in texts.items()}
    expected = sorted(tuple(sample) for samples in texts.values() for sample in samples)
    with FastLoader(Mixture(paths, HALF), 6, shuffle=True) as loader:
        rows = [
            tuple(ids[mask.bool()].tolist())
            for batch in loader
            for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
        ]
    with FastLoader(Mixture(paths, HALF), 6, shuffle=True, collate="pack") as loader:
        tokens = sum(int((batch["input_ids"] > 50).sum()) for batch in loader)
    other = write_tokens(tmp_path / "other.h5", texts["b"], other="words")

    assert expected == sorted(rows)
    assert sum(map(len, expected)) == tokens
    with pytest.raises(SchemaError, match=r"other\.h5: was packed with another tokenizer than .*a\.h5"):
        FastLoader(Mixture({"a": paths["a"], "b": other}, HALF), 6)


def test_many_fields(tmp_path: Path) -> None:
    """Dicts of pictures, captions and boxes: the fields of a sample stay together."""
    names = ("image", "caption", "boxes", "label")
    for number, name in enumerate("ab"):
        samples = make_samples(6, seed=number)
        for index, sample in enumerate(samples):
            sample |= {"caption": f"{name}{index}", "image": sample["image"][:40, :30], "label": 100 * number + index}
        write_fields(tmp_path / f"{name}.tar", samples, {field: TYPES[field] for field in names})
    mixture = Mixture({name: tmp_path / f"{name}.tar" for name in "ab"}, HALF, batching="stratified")
    pairs = []
    with FastLoader(mixture, 4, shuffle=True) as loader:
        for batch in loader:
            assert (4, 3, 40, 30) == tuple(batch["image"].shape)
            assert [2, 2] == [sum(caption[0] == name for caption in batch["caption"]) for name in "ab"]
            pairs += list(zip(batch["caption"], batch["label"].tolist(), strict=True))

    assert sorted(
        (f"{name}{index}", first + index) for name, first in (("a", 0), ("b", 100)) for index in range(6)
    ) == sorted(pairs)


def test_an_order_that_reads_whole_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With little memory, members come in lanes: all samples, on two ranks and after a resume too."""
    monkeypatch.setenv("FASTIO_SHUFFLE_MEMORY", "16MiB")
    paths, numbers = {}, []
    for name, first in (("a", 0), ("b", 10_000)):
        values = [np.full(2048, first + number, np.int32).tobytes() for number in range(3000)]
        paths[name] = write_store(tmp_path / f"{name}.lmdb", values, field=Field("number", RAW, "<i4", (2048,)))
    mixture = Mixture(paths, {"a": 3, "b": 1})
    with FastLoader(mixture, 100, shuffle=True) as loader:
        assert ["lanes", "lanes"] == [order["kind"] for order in loader.state_dict()["order"]["members"]]
        batches = iter(loader)
        numbers += [batch[:, 0] for batch in islice(batches, 5)]
        state = json.loads(json.dumps(loader.state_dict()))
    for rank in range(2):
        with FastLoader(mixture, 55, shuffle=True, rank=rank, world_size=2) as loader:
            loader.load_state_dict(state)
            numbers += [batch[:, 0] for batch in loader]
    counts = np.bincount(torch.cat(numbers).numpy(), minlength=13_000)

    assert (4500, 1500) == (counts[:3000].sum(), counts[10_000:].sum())
    assert {1, 2} == set(counts[:3000].tolist())
    assert {0, 1} == set(counts[10_000:].tolist())


def test_a_prefetcher_and_the_sampler(tmp_path: Path) -> None:
    """Batches ahead on a device are the loader's; ``loader.sampler`` tells their samples."""
    mixture = Mixture(photos(tmp_path), HALF)
    with FastLoader(mixture, 5, shuffle=True) as loader, FastLoader(mixture, 5, shuffle=True) as other:
        numbers = list(loader.sampler)
        expected = [label for batch in labels_of(loader) for label in batch]
        assert expected == [label for batch in labels_of(DevicePrefetcher(other, "cpu")) for label in batch]
        assert [number if number < 12 else number + 88 for number in numbers] == expected
        assert loader.sources() == other.sources()


@pytest.mark.parametrize("batching", ["random", "stratified", "per_source"])
@pytest.mark.parametrize("options", [{}, {"drop_last": True}])
def test_receipts(tmp_path: Path, batching: Any, options: dict[str, Any]) -> None:
    """An epoch whose members come more or less than once has the receipt of what it should give, resumed or not."""
    parts = {"a": photos(tmp_path)["a"], "b": Subset(FastDataset(tmp_path / "b.lmdb"), [3, 1, 7])}
    mixture = Mixture(parts, {"a": 0.6, "b": 0.4}, batching=batching)
    with FastLoader(mixture, 4, shuffle=True, samples_per_epoch=31, **options) as loader:
        batches = iter(loader)
        list(islice(batches, 3))
        state = json.loads(json.dumps(loader.state_dict()))
        assert not loader.receipt().is_exact
        list(batches)
        whole = loader.receipt()
    with FastLoader(mixture, 3, shuffle=True, samples_per_epoch=31, **options) as loader:
        loader.load_state_dict(state)
        list(loader)
        resumed = loader.receipt()

    dropped = 31 - whole.samples
    assert (dropped > 0) == bool(options)
    for receipt in (whole, resumed):
        assert receipt.is_exact == (not options or receipt.expected is not None), receipt
        assert 0 == receipt.repeated == receipt.skipped
    if not options:
        assert whole.number == resumed.number == whole.expected
