"""Every container of other programs in place: the samples are those of its own reader, and changes are noticed."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fastio import FastDataset, FastLoader, SampleError, open_store
from fastio.errors import StoreError, StoreNotFound
from fastio.measure.loop.data import DataOptions, open_data
from fastio.store.files.listed import ListedFiles
from fastio.store.files.mapped_folder import MappedFiles
from fastio.store.foreign.index import index_store
from fastio.store.index.store import SealedStore
from fastio.store.index.verify import verify_store
from fastio.store.kinds.unpacked import AS_IT_IS
from fastio.transforms import RandomResizedCrop
from tests.converters.sources.in_place_kinds import KINDS, Made
from tests.converters.sources.test_in_place import packed, same, settle, values

COUNT = 12
Make = Callable[[Path, int], Made]

pytestmark = [
    pytest.mark.usefixtures("cache"),
    pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in KINDS.items()]),
]


def made_of(make: Make, tmp_path: Path) -> Made:
    """A container of a while ago."""
    made = make(tmp_path / "set", COUNT)
    settle(tmp_path)
    return made


def files_of(made: Made) -> list[Path]:
    """The files of a container, largest first."""
    files = [made.path] if made.path.is_file() else [each for each in made.path.rglob("*") if each.is_file()]
    return sorted(files, key=lambda each: -each.stat().st_size)


def prints(made: Made) -> dict[Path, tuple[str, int]]:
    """What shows that a file was written to: its SHA-256 and time."""
    return {each: (hashlib.sha256(each.read_bytes()).hexdigest(), each.stat().st_mtime_ns) for each in files_of(made)}


def opened(made: Made, **options: object) -> SealedStore:
    """The container as a store."""
    return open_store(made.path, unpacked=made.unpacked, **options)  # type: ignore[arg-type] # in tests


def touch(path: Path) -> None:
    """Change a file's time, as whoever writes to it does."""
    os.utime(path, ns=(10**18, 10**18 + 5 * 10**9))


def test_samples_are_those_of_its_reader(make: Make, tmp_path: Path) -> None:
    """Bytes and labels are equal, mapped or read, listed now or by the index; nothing is written into the container."""
    made = made_of(make, tmp_path)
    before = prints(made)
    with packed(made.path, made.unpacked, tmp_path / "packed.lmdb") as store:
        for read, files in (("auto", MappedFiles), ("auto", MappedFiles), ("pread", ListedFiles)):
            with opened(made, read=read) as here:
                assert isinstance(here.files, files)
                same(here, store)
                sizes = [store.spans(each.name, np.arange(COUNT)).sizes.sum() for each in here.schema.payload]
                assert here.size_bytes >= sum(sizes)
                for field in here.schema.payload:
                    assert [each[field.name] for each in made.samples] == values(here, field.name)
                for field in here.schema.columns:
                    assert [each[field.name] for each in made.samples] == here.column(field.name).tolist()
    assert len([*tmp_path.rglob("*.fastio-index")]) == 1
    assert prints(made) == before


def test_batches_are_those_of_a_store(make: Make, tmp_path: Path) -> None:
    """Fully shuffled, resumed in the middle, by a process that opens it anew: the same batches."""
    made = made_of(make, tmp_path)
    with packed(made.path, made.unpacked, tmp_path / "packed.lmdb"):
        pass
    batches = []
    datasets = [FastDataset(made.path, unpacked=made.unpacked), FastDataset(tmp_path / "packed.lmdb")]
    for dataset in datasets:
        crop = [RandomResizedCrop(8)] if dataset.reader.is_picture else None
        with FastLoader(dataset, 5, shuffle="full", seed=2, transforms=crop, threads=2) as loader:
            numbered = [next(iter(loader.numbered()))]
            state = loader.state_dict()
            loader.load_state_dict(state)
            numbered += loader.numbered()
            batches.append([(batch.indices.tolist(), _plain(batch.batch)) for batch in numbered])
        assert sorted(index for indices, _ in batches[-1] for index in indices) == list(range(COUNT))
    assert batches[0] == batches[1]
    again = pickle.loads(pickle.dumps(datasets[0]))
    assert again.keys == datasets[1].keys


def _plain(batch: object) -> object:
    """The tensors of a batch as lists."""
    if isinstance(batch, dict):
        return {name: _plain(each) for name, each in batch.items()}
    if isinstance(batch, (tuple, list)):
        return [_plain(each) for each in batch]
    return batch.tolist() if hasattr(batch, "tolist") else batch


def test_an_index_adds_checksums(make: Make, tmp_path: Path) -> None:
    """
    They are those of the packed store, so that its receipt is the same, unless channels lie one behind the other; every
    byte is compared with them.
    """
    made = made_of(make, tmp_path)
    if made.unpacked != AS_IT_IS:
        return  # fastio index takes no options
    before = prints(made)
    report = index_store(str(made.path))
    with packed(made.path, made.unpacked, tmp_path / "packed.lmdb") as store, opened(made) as here:
        assert report.samples == len(here) == COUNT
        is_planar = any(field.traits.is_planar for field in here.schema.payload)
        assert (here.receipt() == store.receipt()) is not is_planar
        assert None not in (here.receipt(), store.receipt())
        assert not verify_store(here)
        assert before == prints(made)


def test_bench_reads_it_where_it_lies(make: Make, tmp_path: Path) -> None:
    """Folders of containers have no pictures to be measured file by file."""
    made = made_of(make, tmp_path)
    with open_data(str(made.path), DataOptions(batch_size=5, crop=None, unpacked=made.unpacked)) as data:
        assert (data.kind, data.samples) == ("in place", COUNT)


def test_a_container_that_was_written_to(make: Make, tmp_path: Path) -> None:
    """Its samples are errors that name it, and the next opening lists it again."""
    made = made_of(make, tmp_path)
    largest = files_of(made)[0]
    dataset = FastDataset(made.path, unpacked=made.unpacked)
    touch(largest)
    with pytest.raises((SampleError, StoreError), match=f"{largest.name}.*changed since it was indexed"):
        list(dataset)
    with pytest.raises(StoreError, match="changed since it was indexed"):
        dataset.store.shards[0].data.check()
    assert len(FastDataset(made.path, unpacked=made.unpacked)) == COUNT


@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_container_that_was_cut_off(make: Make, is_indexed: bool, tmp_path: Path) -> None:
    """Opening it says which file is cut off, whether an index is there or not, and that something is there."""
    made = made_of(make, tmp_path)
    if is_indexed:
        opened(made).close()
    largest = files_of(made)[0]
    with largest.open("r+b") as file:
        file.truncate(largest.stat().st_size * 2 // 3)
    with pytest.raises(StoreError, match=largest.name) as caught:
        opened(made)
    assert not isinstance(caught.value, StoreNotFound)  # whoever catches that believes that nothing is there
