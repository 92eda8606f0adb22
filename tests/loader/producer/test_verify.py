"""``verify``: one meaning, whichever way samples are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastio import FastDataset, FastLoader, LengthBucketSampler
from fastio.errors import SampleError
from fastio.types.schema import BYTES, RAW, TEXT, TOKENS, Field
from tests.conftest import write_store

BAD = 5
COUNT = 12

VALUES = {
    "tokens": (Field("tokens", TOKENS, "<u2", (None,)), lambda i: np.arange(40 + i, dtype="<u2") + 256 * i),
    "wide tokens": (Field("tokens", TOKENS, "<u4", (None,)), lambda i: np.arange(40 + i, dtype="<u4") + 256 * i),
    "raw pictures": (Field("image", RAW, "|u1", (4, 6, 3)), lambda i: np.full((4, 6, 3), 3 * i, np.uint8)),
    "raw arrays": (Field("values", RAW, "<f4", (17,)), lambda i: np.arange(17, dtype="<f4") * i),
    "text": (Field("text", TEXT, "|u1", (None,)), lambda i: np.frombuffer(b"some words %d" % i, np.uint8)),
    "bytes": (Field("blob", BYTES, "|u1", (None,)), lambda i: np.frombuffer(b"some bytes %d" % i, np.uint8)),
}


def damaged(folder: Path, kind: str, suffix: str) -> Path:
    """A store of one kind of samples, of which one has a flipped bit that no decoder can see."""
    field, make = VALUES[kind]
    values = [make(i).tobytes() for i in range(COUNT)]
    path = write_store(folder / f"a.{suffix}", values, np.arange(COUNT), field=field)
    content = bytearray(path.read_bytes())
    assert content.count(values[BAD]) == 1
    content[content.index(values[BAD]) + 2] ^= 1
    path.write_bytes(content)
    return path


def as_given(value: Any) -> Any:
    """A transform, which puts samples on the plain path."""
    return value if isinstance(value, torch.Tensor) else torch.tensor(np.array(value, ndmin=1).view(np.uint8))


class Own(FastDataset):
    """Samples of a subclass."""

    def __getitem__(self, index: int) -> Any:
        return as_given(super().__getitem__(index)[0]).sum()


def bucketed(path: Path, **options: Any) -> FastLoader:
    """Batches of token ids by length."""
    dataset = FastDataset(path)
    return FastLoader(dataset, batch_sampler=LengthBucketSampler(dataset.lengths, batch_size=4), **options)


def one_by_one(path: Path, **options: Any) -> list[Any]:
    """The samples of a dataset, each asked for alone."""
    dataset = FastDataset(path, **options)
    return [dataset[index] for index in range(COUNT)]


ONE_BY_ONE = {"batch_size": 1, "threads": 1}
IDS, ARRAYS = {"tokens", "wide tokens"}, {"raw pictures", "raw arrays"}
LOADERS: dict[str, tuple[Callable[..., Iterable[Any]], set[str]]] = {
    "FastLoader": (lambda path, **o: FastLoader(path, **ONE_BY_ONE, **o), set(VALUES)),
    "pread": (lambda path, **o: FastLoader(FastDataset(path, read="pread"), **ONE_BY_ONE, **o), IDS | ARRAYS),
    "pad": (bucketed, IDS),
    "pack": (lambda path, **o: FastLoader(path, 4, collate="pack", **o), IDS),
    "cache=ram": (lambda path, **o: FastLoader(path, 4, cache="ram", **o), ARRAYS),
    "cache=device": (lambda path, **o: FastLoader(path, 4, cache="device", device="cpu", **o), ARRAYS),
}
DATASETS: dict[str, Callable[..., Iterable[Any]]] = {
    "FastDataset": one_by_one,
    "getitems": lambda path, **o: FastDataset(path, **o).__getitems__(list(range(COUNT))),
    "iterable": lambda path, **o: FastDataset(path, **o).iterable(rank=0, world_size=1),
    "plain path": lambda path, **o: FastLoader(FastDataset(path, as_given, **o), **ONE_BY_ONE),
    "subclass": lambda path, **o: FastLoader(Own(path, **o), **ONE_BY_ONE),
}
CASES = [(way, kind) for way, (_, kinds) in LOADERS.items() for kind in VALUES if kind in kinds]


@pytest.mark.parametrize(("way", "kind"), CASES)
def test_loaders_compare_every_sample_by_default(tmp_path: Path, way: str, kind: str) -> None:
    """A flipped bit is a SampleError that names the sample, however a loader reads it; verify=False lets it pass."""
    path = damaged(tmp_path, kind, "h5")
    make = LOADERS[way][0]
    for options in ({}, {"verify": True}):
        with pytest.raises(SampleError, match="checksum") as caught:
            list(make(path, **options))
        assert BAD == caught.value.index

    list(make(path, verify=False))


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("way", DATASETS)
def test_datasets_compare_every_sample_by_default(tmp_path: Path, way: str, kind: str) -> None:
    """The same of what a dataset reads, for itself or for a loader; verify=False is its own option."""
    path = damaged(tmp_path, kind, "h5")
    for options in ({}, {"verify": True}):
        with pytest.raises(SampleError, match="checksum") as caught:
            list(DATASETS[way](path, **options))
        assert BAD == caught.value.index

    list(DATASETS[way](path, verify=False))


def test_formats_compare_alike(tmp_path: Path, suffix: str) -> None:
    """A flipped bit of token ids is seen in every format."""
    path = damaged(tmp_path, "tokens", suffix)
    with FastLoader(path, 4, threads=1) as loader, pytest.raises(SampleError, match="checksum"):
        list(loader)


def test_a_loader_does_as_its_dataset(tmp_path: Path) -> None:
    """Without verify= a loader does what its dataset says; with it, what it says itself."""
    path = damaged(tmp_path, "tokens", "h5")
    unverified = FastDataset(path, verify=False)
    with FastLoader(unverified, 4, threads=1) as loader:
        list(loader)
    with FastLoader(unverified, 4, threads=1, verify=True) as loader, pytest.raises(SampleError, match="checksum"):
        list(loader)
    assert not unverified.verify


@pytest.mark.parametrize("kind", ["tokens", "raw pictures", "text"])
def test_the_plain_path_refuses_what_it_cannot_do(tmp_path: Path, kind: str) -> None:
    """Samples that the dataset makes are compared as the dataset says; the loader cannot say otherwise."""
    path = damaged(tmp_path, kind, "h5")
    with pytest.raises(ValueError, match=r"FastDataset\(\.\.\., verify=False\)"):
        FastLoader(FastDataset(path, as_given), 1, verify=False)
    with FastLoader(FastDataset(path, as_given, verify=False), 1, verify=False, threads=1) as loader:
        assert COUNT == len(list(loader))


@pytest.mark.parametrize("verify", ["auto", 1, "yes"])
def test_verify_is_true_or_false(tmp_path: Path, verify: Any) -> None:
    """Anything else is refused, by the dataset as by the loader."""
    path = damaged(tmp_path, "tokens", "h5")
    with pytest.raises(ValueError, match="verify="):
        FastLoader(path, 4, verify=verify)
    with pytest.raises(ValueError, match="verify="):
        FastDataset(path, verify=verify)
