"""Batches that default_collate makes in workers: those of torch, in memory that nobody has any more."""

from __future__ import annotations

import copy
import fcntl
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Subset, default_collate
from torch.utils.data._utils import collate as torch_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from fastio import FastDataset
from fastio.dataset import worker_batches
from fastio.dataset.worker_batches import Row, for_default_collate
from fastio.machine import system
from tests.conftest import encode, pictures, write_store

# torch warns where a test machine has a single CPU; Python 3.12 warns of any fork beside threads.
pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
    pytest.mark.skipif(not system.counts_openings(), reason="the kernel does not tell who has a file"),
]

COUNT, BATCH = 48, 4  # batches of 4 x 3 x 80 x 80 floats


def floats(image: Image.Image) -> torch.Tensor:
    """The picture, larger, as floats: not of the same memory as anything else."""
    pixels = np.array(image.resize((80, 80)), np.float32)
    return torch.from_numpy(pixels).permute(2, 0, 1)


def crops(image: Image.Image) -> dict[str, Any]:
    """Tensors in dicts, lists and tuples, beside what is no tensor."""
    whole = floats(image)
    return {"views": [whole, whole / 2], "pair": (whole[0], "text"), "mean": float(whole.mean()), "mask": whole > 99}


def class_of(batch: list[Any]) -> list[tuple[str, int]]:
    """A collate_fn of the user's."""
    return [(type(image).__name__, label) for image, label in batch]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """48 small pictures with labels."""
    return write_store(tmp_path / "a.lmdb", [encode(each, "PNG") for each in pictures(COUNT)], np.arange(COUNT))


@pytest.fixture(autouse=True)
def _table() -> Iterator[None]:
    """Torch's table as it was, afterwards."""
    kept = dict(default_collate_fn_map)
    yield
    default_collate_fn_map.clear()
    default_collate_fn_map.update(kept)


def file_of(tensor: torch.Tensor) -> int:
    """The number of the file that a shared tensor is in."""
    descriptor, _ = tensor.untyped_storage()._share_fd_cpu_()  # which the storage keeps
    return os.fstat(descriptor).st_ino


def in_worker(samples: list[Any]) -> Any:
    """What default_collate makes of samples of a worker."""
    return default_collate(for_default_collate(samples))


def same(left: Any, right: Any) -> bool:
    """Whether two batches have the same types, values and strides."""
    if isinstance(left, torch.Tensor):
        is_same = type(left) is type(right) and left.dtype == right.dtype and left.stride() == right.stride()
        return is_same and torch.equal(left, right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[name], right[name]) for name in left)
    if isinstance(left, (list, tuple)):
        return type(left) is type(right) and all(map(same, left, right))
    return bool(left == right)


@pytest.mark.parametrize(
    ("transform", "options"),
    [(floats, {"multiprocessing_context": "spawn"}), (floats, {"persistent_workers": True}), (crops, {})],
    ids=["spawn", "persistent", "nested"],
)
def test_batches_are_those_without_workers(store: Path, transform: Any, options: dict[str, Any]) -> None:
    """All that are kept stay what they were, whoever wrote to memory since; the second epoch is equal, too."""
    dataset = FastDataset(store, transform)
    expected = list(DataLoader(dataset, BATCH))
    loader = DataLoader(dataset, BATCH, num_workers=1, **options)

    kept = list(loader)
    for batch, plain in zip(loader, expected, strict=True):
        assert same(batch, plain)
    assert all(map(same, kept, expected))


def test_memory_is_used_again_once_nobody_has_it(store: Path) -> None:
    """Batches that are dropped share a few files; of those that are kept, each is a file of its own."""
    loader = DataLoader(FastDataset(store, floats), BATCH, num_workers=1, persistent_workers=True)
    dropped = [file_of(images) for images, _ in loader]
    kept = [images for images, _ in loader]

    assert len(set(dropped)) < len(dropped) == COUNT // BATCH
    assert len(set(map(file_of, kept))) == COUNT // BATCH
    assert all(images.is_shared() for images in kept)
    assert all(images.untyped_storage().nbytes() == images.nbytes for images in kept)


@pytest.mark.parametrize("keep", ["view", "array", "fork", "descriptor"])
def test_whoever_has_a_part_of_a_batch_keeps_it(keep: str) -> None:
    """A view, an array, a forked child or a copy of the descriptor: the kernel counts them all."""
    samples = [(torch.full((3, 80, 80), float(number)), number) for number in range(4)]
    batch, _ = in_worker(samples)
    inode, child = file_of(batch), 0
    kept: Any = None
    if keep == "view":
        kept = batch[1:2, 0]
    elif keep == "array":
        kept = batch.numpy()
    elif keep == "descriptor":
        kept = os.dup(batch.untyped_storage()._share_fd_cpu_()[0])
    else:
        wait, end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(end)
            os.read(wait, 1)
            os._exit(0)
        os.close(wait)
    del batch

    others = [in_worker(samples)[0] for _ in range(3)]
    assert inode not in map(file_of, others)
    if keep == "fork":
        os.close(end)
        os.waitpid(child, 0)
    elif keep == "descriptor":
        os.close(kept)
    del kept, others
    assert any(file_of(in_worker(samples)[0]) == inode for _ in range(9))


def test_subsets_and_own_samples_gain_too(store: Path) -> None:
    """torch's Subset hands on the samples, and a subclass with its own __getitem__ makes them."""

    class Twice(FastDataset):
        def __getitem__(self, index: int) -> Any:
            image, label = super().__getitem__(index)
            return image * 2, label

    for dataset in (Subset(FastDataset(store, floats), range(COUNT)), Twice(store, floats)):
        batches = DataLoader(dataset, BATCH, num_workers=1)
        assert len({file_of(images) for images, _ in batches}) < COUNT // BATCH


def test_a_collate_fn_of_the_users_gets_tensors(store: Path) -> None:
    """What leaves the worker is torch.Tensor, and no table of another process is changed."""
    dataset = FastDataset(store, floats)
    (image, label), *_ = next(iter(DataLoader(dataset, BATCH, num_workers=1, collate_fn=list)))

    assert (type(image), label) == (torch.Tensor, 0)
    assert torch.equal(image, dataset[0][0])
    assert [("Row", 0)] == next(iter(DataLoader(dataset, 1, num_workers=1, collate_fn=class_of)))
    assert [("Tensor", 0)] == next(iter(DataLoader(dataset, 1, collate_fn=class_of)))
    assert Row not in default_collate_fn_map


def test_a_row_is_a_tensor() -> None:
    """Results, copies and pickles have torch's class, and work in place changes the row."""
    row = for_default_collate([torch.arange(6.0)])[0]

    assert type(row) is Row
    for made in (row * 2, row[1:], row.clone(), row.float().sum(), torch.stack([row, row]), copy.copy(row)):
        assert type(made) is torch.Tensor
    for made in (copy.deepcopy(row), pickle.loads(pickle.dumps(row))):
        assert type(made) is torch.Tensor
        assert torch.equal(made, torch.arange(6.0))
    assert repr(row) == repr(torch.arange(6.0))
    assert row.add_(1).tolist() == [1, 2, 3, 4, 5, 6]


def with_attribute() -> torch.Tensor:
    """A tensor with something of the user's."""
    tensor = torch.zeros(3)
    tensor.path = "a.png"  # type: ignore[attr-defined]
    return tensor


@pytest.mark.parametrize(
    "value",
    [
        with_attribute(),
        torch.zeros(3, requires_grad=True),
        torch.nn.Parameter(torch.zeros(3)),
        torch.eye(3).to_sparse(),
        torch.zeros(3, device="meta"),
        [1, 2, 3],
        "text",
        np.zeros(3),
    ],
    ids=["attribute", "gradient", "parameter", "sparse", "meta", "list", "text", "array"],
)
def test_other_values_stay_what_they_are(value: Any) -> None:
    """What is more than numbers in memory, or no tensor, is the same object."""
    assert for_default_collate([(value, 0)])[0][0] is value


def test_tensors_that_differ_are_left_to_torch() -> None:
    """Its error for shapes and its types for several stay; small batches are its own, too."""
    large = torch.zeros(80_000)

    assert same(in_worker([large, large.double()]), default_collate([large, large.double()]))
    assert same(in_worker([torch.arange(3)] * 2), default_collate([torch.arange(3)] * 2))
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        in_worker([large, large[1:]])


def test_what_the_user_chose_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of the user's for tensors, and another way to share memory, leave samples as they are."""
    samples = [torch.zeros(3)]
    with monkeypatch.context() as patch:
        patch.setitem(default_collate_fn_map, torch.Tensor, lambda batch, *, collate_fn_map=None: "mine")
        assert type(for_default_collate(samples)[0]) is torch.Tensor
        assert in_worker(samples) == "mine"
    rows = for_default_collate([torch.zeros(80_000)] * 2)
    mine: Any = {torch.Tensor: lambda batch, *, collate_fn_map=None: "mine", Row: worker_batches._collate_rows}
    assert torch_collate.collate(rows, collate_fn_map=mine) == "mine"
    monkeypatch.setattr(worker_batches, "get_sharing_strategy", lambda: "file_system")
    assert for_default_collate(samples) is samples


def test_without_descriptors_torch_makes_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no file can be made, the batch is torch's own."""

    def refused(size: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(worker_batches, "shared_file", refused)
    monkeypatch.setattr(worker_batches, "_rooms", lambda process: worker_batches._Rooms())
    batch = in_worker([torch.ones(80_000)] * 2)
    assert same(batch, torch.ones(2, 80_000))
    assert not batch.is_shared()  # as in no worker


def test_at_most_a_few_free_files_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twenty batches that were kept, some go when the next is made; much smaller batches get smaller files."""
    rooms = worker_batches._Rooms()
    monkeypatch.setattr(worker_batches, "_rooms", lambda process: rooms)
    kept = [in_worker([torch.zeros(80_000)] * 2) for _ in range(20)]
    assert len(rooms._rooms) == len(set(map(file_of, kept))) == 20
    del kept

    assert in_worker([torch.ones(20_000)] * 2).sum() == 40_000
    assert len(rooms._rooms) == worker_batches._MOST_FREE + 1


def test_a_kernel_that_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without leases, with others' answers and on other systems, samples stay as they are."""

    def invalid(*_arguments: int) -> int:
        raise OSError(22, "Invalid argument")

    answers: list[Any] = [invalid, lambda *_arguments: 0]
    for answer in answers:
        system.counts_openings.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(fcntl, "fcntl", answer)
            assert not system.counts_openings()
            samples = [torch.zeros(3)]
            assert for_default_collate(samples) is samples
    system.counts_openings.cache_clear()
    with monkeypatch.context() as patch:
        patch.delattr(fcntl, "F_SETLEASE")
        assert not system.counts_openings()
    system.counts_openings.cache_clear()
    assert system.counts_openings()
