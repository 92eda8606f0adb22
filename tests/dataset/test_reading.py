"""Reading by pread: the samples of the mapping, and errors where a mapping would end the process."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastio import FastDataset, FastLoader, SampleError, StoreError
from fastio.samplers.order import Shuffle
from fastio.store import SampleBatch, create_store, open_store
from fastio.store.files import pread
from fastio.transforms import RandomCrop
from fastio.types.schema import RAW, Field
from tests.conftest import SUFFIXES, encode, pictures, write_store
from tests.forking import answer_of_fork
from tests.warm_python import WarmPython

shared = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def open_descriptors() -> int:
    """Those of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


@shared
@given(
    suffix=st.sampled_from(SUFFIXES),
    batch_size=st.integers(1, 60),
    shuffle=st.sampled_from([False, True, "full"]),
    threads=st.sampled_from([1, 3]),
    transformed=st.booleans(),
)
def test_pread_is_the_mapping(
    png_stores: dict[str, Path], suffix: str, batch_size: int, shuffle: Shuffle, threads: int, transformed: bool
) -> None:
    """The same batches, whatever the format, order or threads."""
    transforms = [RandomCrop(8, padding=2)] if transformed else []
    datasets = [FastDataset(png_stores[suffix], read="map"), FastDataset(png_stores[suffix], read="pread")]
    loaders = [
        FastLoader(dataset, batch_size, shuffle=shuffle, threads=threads, transforms=transforms) for dataset in datasets
    ]

    for (images, labels), (other_images, other_labels) in zip(*loaders, strict=True):
        assert torch.equal(images, other_images)
        assert torch.equal(labels, other_labels)


def test_many_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Staging memory that is used again and again holds each chunk as long as it is decoded."""
    monkeypatch.setattr("fastio.store.files.mapped.InPlaceFiles.chunk_bytes", 5000)
    values = [bytes([i % 251]) * 48 for i in range(3000)]
    path = write_store(tmp_path / "x.h5", values, np.arange(3000), field=Field("image", RAW, "|u1", (4, 4, 3)))
    with FastLoader(FastDataset(path, read="pread"), 7, shuffle="full", threads=2) as loader:
        batches = [(images.clone(), labels) for images, labels in loader]

    for images, labels in batches:
        assert torch.equal(images, (labels % 251).to(torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 3, 4, 4))


def test_single_samples(png_store: Path) -> None:
    """A dataset in a DataLoader worker, which receives it by pickle, reads what the mapping shows."""
    mapped, read = FastDataset(png_store, read="map"), FastDataset(png_store, read="pread")
    copied = pickle.loads(pickle.dumps(read))

    assert mapped.store.files.in_place
    assert not read.store.files.in_place
    assert not copied.store.files.in_place
    for index in (0, 49, 7):
        assert mapped[index][0].tobytes() == read[index][0].tobytes() == copied[index][0].tobytes()
    assert read.blank(3)[1] == 0


def test_descriptors_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files beyond those kept open are closed when nobody reads them, and opened again."""
    monkeypatch.setattr(pread, "_KEPT_OPEN", 2)
    field = Field("image", RAW, "|u1", (100,))
    first = write_store(tmp_path / "one.h5", [bytes(100)] * 40, field=field)
    with open_store(first) as store, create_store(tmp_path / "x-%d.tar", store.schema, shard_bytes=500) as writer:
        every = np.arange(40)
        writer.append(SampleBatch(store.keys(every), {"image": store.spans("image", every)}))
    dataset = FastDataset(tmp_path / "x-*.tar", read="pread")
    assert len(dataset.store.shard_paths) == 40
    before = open_descriptors()

    assert [dataset[index].tobytes() for index in range(40)] == [bytes(100)] * 40
    assert open_descriptors() == before + 2
    del dataset
    assert open_descriptors() == before


_CUT = """
import json, os, sys
from fastio import FastDataset, FastLoader, SampleError
path, cut = sys.argv[1], int(sys.argv[2])
dataset = FastDataset(path, read="pread")
dataset[0]
loader = FastLoader(dataset, 4, on_error="skip", threads=2)
os.truncate(path, cut)
labels = [label for _, batch in loader for label in batch.tolist()]
try:
    dataset[9]
    message = ""
except SampleError as exc:
    message = str(exc)
print(json.dumps([labels, [str(error) for error in loader.skipped], message, dataset.keys]))
"""


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_cut_off_while_it_is_open(tmp_path: Path, suffix: str, warm_torch: WarmPython) -> None:
    """Each sample beyond the new end is an error with its name, those before are read, and the process lives."""
    path = write_store(tmp_path / f"x.{suffix}", [encode(p) for p in pictures(10, (64, 64, 3))], np.arange(10))
    with open_store(path) as store:
        middle = int(store.spans("image", np.array([5])).starts[0]) + 10
    done = warm_torch.run(_CUT, str(path), str(middle), cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    labels, skipped, message, keys = json.loads(done.stdout)
    assert labels == [0, 1, 2, 3, 4]
    assert [f"[{index}] ('a/{index:04d}.png'), field 'image': its data end too early" for index in range(5, 10)] == [
        words.removeprefix(str(path)) for words in skipped
    ]
    assert message.startswith(f"{path}[9] ('a/0009.png')")
    assert keys == [f"a/{index:04d}.png" for index in range(10)]


def test_another_file_under_the_name(tmp_path: Path) -> None:
    """A store replaced before its file was first read is refused, not mixed with the index of the old one."""
    path = write_store(tmp_path / "x.h5", [encode(pictures(1)[0])] * 3)
    dataset = FastDataset(path, read="pread")
    path.unlink()
    with pytest.raises(StoreError, match=r"can no longer be read \(No such file or directory\)"):
        dataset[0]
    write_store(path, [encode(pictures(1)[0])] * 4)
    with pytest.raises(StoreError, match="was replaced or changed since it was opened"):
        dataset[0]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """An error of the disk or of a server names the sample."""
    path = write_store(tmp_path / "x.h5", [encode(pictures(1)[0])] * 3)
    dataset = FastDataset(path, read="pread")
    assert isinstance(dataset.store.files, pread.PreadFiles)
    folder = os.open(tmp_path, os.O_RDONLY)
    dataset[0]
    os.dup2(folder, dataset.store.files._sources[0].opened().number)  # reading a folder fails with EISDIR
    os.close(folder)

    with pytest.raises(SampleError, match=r"x\.h5\[1\] .*it could not be opened or read"):
        dataset[1]


def test_a_wrong_choice(png_store: Path) -> None:
    """The message names the choices."""
    with pytest.raises(ValueError, match=r"read='mmap': expected one of 'auto', 'map', 'pread'"):
        FastDataset(png_store, read="mmap")  # type: ignore[arg-type]


def test_a_store_that_is_open_keeps_its_way_of_reading(png_store: Path) -> None:
    """Told to read it otherwise, the dataset says where that is to be said."""
    with open_store(png_store, read="pread") as store:
        assert not FastDataset(store).store.files.in_place
        with pytest.raises(ValueError, match=r"give it to open_store\(path, read='map'\)"):
            FastDataset(store, read="map")


def test_a_forked_child_goes_on(png_store: Path) -> None:
    """An iteration begun in the parent reads on in the child, without the parent's threads."""
    with FastLoader(FastDataset(png_store, read="pread"), 5, threads=2) as loader:
        iterator = iter(loader)
        next(iterator)
        assert 45 == answer_of_fork(lambda: sum(len(labels) for _, labels in iterator))


def test_a_size_half_written_is_not_believed(tmp_path: Path) -> None:
    """While one thread replaces an impossible size by that of the picture's header, others never see a third one."""
    impossible, real = (2_000_000, 5, 3), (8, 8, 3)
    seen = set[tuple[int, ...]]()

    class Slow(np.ndarray[Any, np.dtype[np.int32]]):
        def __getitem__(self, key: Any) -> Any:
            return np.asarray(self)[key]

        def __setitem__(self, key: Any, value: Any) -> None:
            for axis in range(3):  # as threads may find it
                np.asarray(self)[key, axis] = np.broadcast_to(value, (1, 3))[:, axis]
                seen.add(tuple(self[0].tolist()))

    path = write_store(tmp_path / "x.lmdb", [encode(pictures(1)[0])], shapes=np.array([impossible], np.int32))
    dataset = FastDataset(path)
    sizes = dataset.store.shapes("image").view(Slow)
    assert [impossible] == list(map(tuple, sizes.tolist()))
    dataset.reader._shapes = sizes

    assert (8, 8) == dataset[0].size
    assert [real] == list(map(tuple, dataset.reader._shapes.tolist()))
    assert {size for size in seen if 0 not in size} <= {impossible, real}
