"""dataset.where: parts chosen by expressions over columns, which loaders, splits, states and receipts know."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch.utils.data import DataLoader, Subset, random_split

from fastio import FastDataset, FastLoader, SchemaError, ShapeBucketSampler
from fastio.cli import cli
from fastio.transforms import ResizeToBucket
from tests.conftest import encode, write_store
from tests.dataset.many_fields import TYPES, make_samples, write_fields

COUNT = 30


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of 8 x (8 to 37), whose classes are bee, cat, dog in turn."""
    sizes = [(8, 8 + index, 3) for index in range(COUNT)]
    values = [encode(np.full(size, 9, np.uint8)) for size in sizes]
    path = tmp_path_factory.mktemp("where") / "a.lmdb"
    names = {"classes": ["bee", "cat", "dog"]}
    return write_store(path, values, np.arange(COUNT) % 3, metadata=names, shapes=np.array(sizes, np.int32))


def test_a_part_by_columns_that_all_pictures_have(store: Path) -> None:
    """Width, height, classes by name, keys and bytes choose samples; the part knows its labels, keys and sizes."""
    dataset = FastDataset(store)
    part = dataset.where("width >= 20 and height == 8 and label in ('cat', 'dog') and size_bytes > 0")

    assert isinstance(part, Subset)
    assert [index for index in range(12, COUNT) if index % 3] == list(part.indices)
    assert {1, 2} == set(part.targets)
    assert "a/0013.png" == part.keys[0]
    assert part.column("width").min() == 21
    assert dataset.where("key == 'a/0003.png'").sizes().tolist() == [[8, 11]]
    assert part.where("label == 'dog'").targets == [2] * 6
    assert len(part.where("label == 'bee'")) == 0


def test_loaders_states_and_receipts_know_the_part(store: Path) -> None:
    """Each sample of the part comes once, a state goes on, and that of another part is refused."""
    dataset = FastDataset(store)
    part = dataset.where("width >= 20")

    def loader_of(chosen: Subset[object]) -> FastLoader:
        return FastLoader(chosen, 4, shuffle=True, seed=1, transforms=[ResizeToBucket([(8, 8)])])

    loader = loader_of(part)
    labels = [label for _, batch in loader for label in batch.tolist()]
    assert sorted(part.targets) == sorted(labels)
    assert loader.receipt().is_exact
    taken = sum(len(batch) for _, batch in islice(loader, 2))
    state = json.loads(json.dumps(loader.state_dict()))
    again = loader_of(dataset.where("not width < 20"))
    again.load_state_dict(state)
    assert len(part) - taken == sum(len(batch) for _, batch in again)
    with pytest.raises(ValueError, match="indices_crc32"):
        loader_of(dataset.where("width >= 21")).load_state_dict(state)


def test_splits_and_buckets_of_a_part(store: Path) -> None:
    """torch's random_split and DataLoader take it, and a ShapeBucketSampler its sizes."""
    part = FastDataset(store).where("width > 10")
    first, second = random_split(part, [20, 7], torch.Generator().manual_seed(0))
    counts = [sum(len(labels) for _, labels in FastLoader(each, 1)) for each in (first, second)]
    sampler = ShapeBucketSampler(part.sizes(), shapes=[(8, 16), (8, 24)], batch_size=4)
    loader = FastLoader(part, batch_sampler=sampler, transforms=[ResizeToBucket(sampler)])

    assert counts == [20, 7]
    assert sum(len(labels) for _, labels in loader) == 27
    assert len(DataLoader(part, batch_size=None)) == 27


def test_packed_columns(tmp_path: Path) -> None:
    """Columns of one value a sample are there: numbers, truth, text; others are not, and are not suggested."""
    names = ("image", "embedding", "label", "weight", "count", "is_day", "place", "city")
    samples = make_samples(6)
    dataset = FastDataset(write_fields(tmp_path / "s.h5", samples, {name: TYPES[name] for name in names}))

    for text, expected in {
        "weight > 0.5": [each["weight"] > 0.5 for each in samples],
        "count >= 3 and not is_day": [each["count"] >= 3 and not each["is_day"] for each in samples],
        "city.startswith('Ky')": [each["city"].startswith("Ky") for each in samples],
        "label == 1": [each["label"] == 1 for each in samples],
    }.items():
        assert np.flatnonzero(expected).tolist() == list(dataset.where(text).indices)
    with pytest.raises(SchemaError, match="no column 'place'"):
        dataset.where("place > 3")


def test_tokens_have_lengths(tmp_path: Path) -> None:
    """Token ids are chosen by how many there are, and have no width."""
    dataset = FastDataset(write_fields(tmp_path / "s.h5", make_samples(5), {"tokens": TYPES["tokens"]}))

    assert np.flatnonzero(dataset.lengths >= 3).tolist() == list(dataset.where("length >= 3").indices)
    with pytest.raises(SchemaError, match="no column 'width'"):
        dataset.where("width >= 3")


def test_a_dataset_of_its_own_length_has_no_columns(store: Path) -> None:
    """A subclass that makes samples of its own is not chosen from by the store's columns."""

    class Twice(FastDataset):
        def __len__(self) -> int:
            return 2 * super().__len__()

    with pytest.raises(SchemaError, match="Twice has a length of its own"):
        Twice(store).where("width > 3")


def test_info_counts_matching_samples(store: Path) -> None:
    """fastio info --where says how many samples an expression takes, also as JSON."""
    shown = CliRunner().invoke(cli, ["info", str(store), "--where", "label == 'dog' and width > 20"])
    as_json = CliRunner().invoke(cli, ["info", str(store), "--json", "--where", "width > 20"])
    wrong = CliRunner().invoke(cli, ["info", str(store), "--where", "widht > 20"])

    assert "label == 'dog' and width > 20  6 samples" in shown.output
    assert {"expression": "width > 20", "samples": 17} == json.loads(as_json.output)["where"]
    assert wrong.exit_code == 1
    assert "did you mean 'width'?" in wrong.output
