"""Containers of others where they lie: CPU time a photo, ``python -m benchmarks.in_place_kinds FOLDER [KIND ...]``.

FOLDER holds photos in class folders. Each kind is written and read by its own library, in a Dataset as its users write
it: torch's DataLoader has two workers and Pillow's RandomResizedCrop(224), flip, ToTensor, Normalize. Then FastLoader
reads it where it lies, and packed, both with start points and two threads. The photos and labels of both are compared
with what was written, byte by byte. Rounds are interleaved, in one process, and a ratio is that of one round. CPU time
is that of the process and its workers, with one torch thread; an epoch goes over the photos ``--passes`` times.
"""

from __future__ import annotations

import io
import random
import statistics
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch.utils.data import DataLoader, Dataset

from benchmarks.peers.files_pil import random_floats
from benchmarks.peers.work import MEAN, STD
from benchmarks.process_tree import cpu_seconds
from fastio import FastLoader, open_store
from fastio.converters import open_source, pack
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.foreign.index import index_store
from fastio.store.protocol import read_values
from fastio.transforms import Normalize, RandomHorizontalFlip, RandomResizedCrop
from fastio.types.spans import Spans
from tests.converters.sources.tfrecord.records import example, write_records

__all__ = ["KINDS", "Kind", "Photos", "check", "decoding", "main", "photos_in", "ratio"]

_BATCH_SIZE, _AT_ONCE = 32, 2  # workers, threads
_WORKERS: dict[str, Any] = {"num_workers": _AT_ONCE, "drop_last": False}
_SETTLED_S = 2.5  # after which an index of files is kept
Photos = Sequence[tuple[bytes, int]]


@dataclass(frozen=True, slots=True)
class Kind:
    """
    A container and its ``library`` ("": plain Python): ``write(photos, path)`` returns what is opened, and
    ``batches(path, passes)`` goes over all of it that often, by the library's loader.
    """

    library: str
    write: Callable[[Photos, Path], Path]
    batches: Callable[[Path, int], Iterable[Any]]


class Rows(Dataset[Any]):
    """Samples by their number: ``opened`` returns ``read(index)``, the photo and its label, in each worker anew."""

    def __init__(self, count: int, opened: Callable[[], Callable[[int], tuple[bytes, int]]]) -> None:
        self.count, self.opened = count, opened
        self.read: Callable[[int], tuple[bytes, int]] | None = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.read is None:
            self.read = self.opened()
        photo, label = self.read(index)
        with Image.open(io.BytesIO(photo)) as picture:
            return random_floats(picture.convert("RGB")), label


def _shuffled(rows: Any, passes: int) -> Iterable[Any]:
    order = [index for _ in range(passes) for index in random.sample(range(len(rows)), len(rows))]
    return DataLoader(rows, _BATCH_SIZE, sampler=order, num_workers=_AT_ONCE)


# TFRecord, by a reader of its records that knows where each begins.


def _write_tfrecord(photos: Photos, path: Path) -> Path:
    path.mkdir()
    for number in range(2):
        some = [example({"image": photo, "label": label}) for photo, label in photos[number::2]]
        write_records(path / f"train-0000{number}-of-00002", some)
    return path


def _of_tfrecord(path: Path, passes: int) -> Iterable[Any]:
    from fastio.converters.sources.tfrecord.records import parse_examples, scan_records

    files = [scan_records(str(each)) for each in sorted(path.iterdir())]
    records = [(file.place, start, size) for file in files for start, size in zip(file.starts, file.sizes, strict=True)]

    def opened() -> Callable[[int], tuple[bytes, int]]:
        handles = {file.place: Path(file.place).open("rb") for file in files}  # noqa: SIM115 - as long as the worker

        def read(index: int) -> tuple[bytes, int]:
            place, start, size = records[index]
            handles[place].seek(start)
            record = np.frombuffer(handles[place].read(size), np.uint8)
            (features,) = parse_examples(Spans.joined(record, np.array([size])), [record.data])
            assert isinstance(features, Mapping)
            return features["image"].bytes_values()[0], int(features["label"].numbers()[0])

        return read

    return _shuffled(Rows(len(records), opened), passes)


# HDF5, by h5py.


def _write_hdf5(photos: Photos, path: Path) -> Path:
    import h5py

    path = path.with_suffix(".h5")
    with h5py.File(path, "w") as file:
        pictures = file.create_dataset("image", (len(photos),), h5py.vlen_dtype(np.uint8))
        for i, (photo, _) in enumerate(photos):
            pictures[i] = np.frombuffer(photo, np.uint8)
        file["label"] = [label for _, label in photos]
    return path


def _of_hdf5(path: Path, passes: int) -> Iterable[Any]:
    import h5py

    with h5py.File(path) as file:
        count = len(file["label"])

    def opened() -> Callable[[int], tuple[bytes, int]]:
        file = h5py.File(path)
        return lambda index: (file["image"][index].tobytes(), int(file["label"][index]))

    return _shuffled(Rows(count, opened), passes)


# LMDB, by py-lmdb: pictures under numbers, whose labels are what Caffe's Datum keeps.


def _write_lmdb(photos: Photos, path: Path) -> Path:
    import lmdb

    with lmdb.open(str(path), map_size=1 << 32) as env, env.begin(write=True) as txn:
        for i, (photo, _) in enumerate(photos):
            txn.put(f"{i:08d}".encode(), photo)
    return path


def _of_lmdb(path: Path, passes: int) -> Iterable[Any]:
    import lmdb

    with lmdb.open(str(path), readonly=True, lock=False) as env:
        count = env.stat()["entries"]

    def opened() -> Callable[[int], tuple[bytes, int]]:
        txn = lmdb.open(str(path), readonly=True, lock=False).begin()
        return lambda index: (txn.get(f"{index:08d}".encode()), 0)

    return _shuffled(Rows(count, opened), passes)


# zip, by Python's zipfile.


def _write_zip(photos: Photos, path: Path) -> Path:
    path = path.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as archive:
        for i, (photo, label) in enumerate(photos):
            archive.writestr(f"{label:04d}/{i:08d}.jpg", photo)
    return path


def _of_zip(path: Path, passes: int) -> Iterable[Any]:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()

    def opened() -> Callable[[int], tuple[bytes, int]]:
        archive = zipfile.ZipFile(path)
        return lambda index: (archive.read(names[index]), int(names[index].partition("/")[0]))

    return _shuffled(Rows(len(names), opened), passes)


# Arrow, saved datasets and Parquet, by Hugging Face datasets.


def _dataset(photos: Photos) -> Any:
    import datasets

    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    columns = {
        "image": [{"bytes": photo, "path": None} for photo, _ in photos],
        "label": [label for _, label in photos],
    }
    return datasets.Dataset.from_dict(columns, features=features)


def _save(photos: Photos, path: Path) -> Path:
    _dataset(photos).save_to_disk(str(path))
    return path


def _write_arrow(photos: Photos, path: Path) -> Path:
    (file,) = _save(photos, path).glob("*.arrow")
    return file.rename(path.with_suffix(".arrow"))


def _write_parquet(photos: Photos, path: Path) -> Path:
    path = path.with_suffix(".parquet")
    _dataset(photos).to_parquet(str(path))  # of pictures, without compression
    return path


def _views(rows: dict[str, Any]) -> dict[str, Any]:
    return {"image": [random_floats(each.convert("RGB")) for each in rows["image"]], "label": rows["label"]}


def _of_datasets(path: Path, passes: int) -> Iterable[Any]:
    import datasets

    readers = {".parquet": datasets.Dataset.from_parquet, ".arrow": datasets.Dataset.from_file}
    rows = readers.get(path.suffix, datasets.load_from_disk)(str(path)).with_transform(_views)
    return _shuffled(rows, passes)


# MDS and LitData, by the dataset and the loader of each.


def _write_mds(photos: Photos, path: Path) -> Path:
    from benchmarks.peers.streaming_library import MDSWriter

    with MDSWriter(out=str(path), columns={"image": "bytes", "label": "int"}) as out:
        for photo, label in photos:
            out.write({"image": photo, "label": label})
    return path


def _of_mds(path: Path, passes: int) -> Iterable[Any]:
    from streaming import StreamingDataLoader

    from benchmarks.peers.streaming_library import StreamingDataset

    rows = decoding(StreamingDataset)(local=str(path), shuffle=True, batch_size=_BATCH_SIZE)
    return _again(StreamingDataLoader(rows, batch_size=_BATCH_SIZE, **_WORKERS), passes)


def _write_litdata(photos: Photos, path: Path) -> Path:
    from litdata.streaming.cache import Cache

    cache = Cache(str(path), chunk_bytes="64MB")
    for i, (photo, label) in enumerate(photos):
        cache[i] = {"image": photo, "label": label}
    cache.done()
    cache.merge()
    return path


def _of_litdata(path: Path, passes: int) -> Iterable[Any]:
    from litdata import StreamingDataLoader, StreamingDataset

    rows = decoding(StreamingDataset)(str(path), shuffle=True)
    return _again(StreamingDataLoader(rows, batch_size=_BATCH_SIZE, **_WORKERS), passes)


def decoding(dataset: Any) -> Any:
    """The dataset of a library with photos as floats."""

    class Photos(dataset):  # type: ignore[misc] # their types are not known here
        def __getitem__(self, index: Any) -> tuple[torch.Tensor, int]:
            sample = super().__getitem__(index)
            with Image.open(io.BytesIO(sample["image"])) as picture:
                return random_floats(picture.convert("RGB")), sample["label"]

    return Photos


def _again(loader: Iterable[Any], passes: int) -> Iterable[Any]:
    for _ in range(passes):
        yield from loader


KINDS = {
    "tfrecord": Kind("", _write_tfrecord, _of_tfrecord),
    "hdf5": Kind("h5py", _write_hdf5, _of_hdf5),
    "lmdb": Kind("lmdb", _write_lmdb, _of_lmdb),
    "mds": Kind("mosaicml-streaming", _write_mds, _of_mds),
    "litdata": Kind("litdata", _write_litdata, _of_litdata),
    "zip": Kind("", _write_zip, _of_zip),
    "datasets": Kind("datasets", _save, _of_datasets),
    "arrow": Kind("datasets", _write_arrow, _of_datasets),
    "parquet": Kind("datasets", _write_parquet, _of_datasets),
}


def check(path: str, photos: Photos, remote: Remote = DEFAULT) -> None:
    """The photos are those that were written, byte by byte, with their labels if the container keeps some."""
    with open_store(path, remote=remote) as store:
        every = np.arange(len(store))
        found = [view.tobytes() for view in read_values(store, "image", every).views()]
        if "label" not in store.schema:
            assert sorted(found) == sorted(photo for photo, _ in photos), f"{path}: other photos"
            return
        classes = store.metadata["classes"]
        labels = [int(classes[label]) if classes else label for label in store.column("label").tolist()]
    assert sorted(zip(found, labels, strict=True)) == sorted(photos), f"{path}: other samples"


def _loader(path: Path) -> FastLoader:
    steps = [RandomResizedCrop(224), RandomHorizontalFlip(), Normalize(MEAN, STD)]
    return FastLoader(path, _BATCH_SIZE, shuffle=True, drop_last=False, transforms=steps, threads=_AT_ONCE)


def _cost_us(batches: Callable[[], Iterable[Any]], count: int) -> float:
    """Microseconds of CPU a photo, of this process and of the workers that have ended."""
    begun, count_read = cpu_seconds(), 0
    for batch in batches():
        images = batch["image"] if isinstance(batch, dict) else batch[0] if isinstance(batch, (tuple, list)) else batch
        count_read += len(images)
    assert count_read == count, f"{count_read} photos of {count}"
    return (cpu_seconds() - begun) / count * 1e6


def ratio(of: Sequence[float], by: Sequence[float]) -> str:
    """The ratios of rounds: their median, and the range."""
    ratios = [one / other for one, other in zip(of, by, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def _measure(kind: Kind, photos: Photos, folder: Path, *, rounds: int, passes: int) -> list[str]:
    """The cells of a row: CPU times, and how many times the rate of the others the one in place is."""
    here, packed = kind.write(photos, folder / "set"), folder / "packed.lmdb"
    time.sleep(_SETTLED_S)
    index_store(str(here))
    pack(open_source(here), packed)
    for path in (here, packed):
        check(str(path), photos)
    loaders = [_loader(here), _loader(packed)]
    cases = [partial(kind.batches, here, passes), *(partial(_again, each, passes) for each in loaders)]
    runs = [[_cost_us(case, len(photos) * passes) for case in cases] for _ in range(rounds + 1)][1:]
    for each in loaders:
        each.close()
    own, in_place, of_store = zip(*runs, strict=True)
    costs = [f"{statistics.median(each):,.0f}" for each in (own, in_place, of_store)]
    return [*costs, ratio(own, in_place), ratio(of_store, in_place)]


def photos_in(folder: Path) -> Photos:
    """The photos of class folders, with the number of their class."""
    files = sorted(each for each in folder.rglob("*") if each.suffix.lower() in (".jpg", ".jpeg"))
    classes = sorted({each.parent.name for each in files})
    return [(each.read_bytes(), classes.index(each.parent.name)) for each in files]


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("kinds", type=click.Choice([*KINDS]), nargs=-1)
@click.option("--rounds", default=7, show_default=True, help="Interleaved rounds, after one that does not count.")
@click.option("--passes", default=4, show_default=True, help="Times that an epoch goes over the photos.")
def main(folder: Path, kinds: Sequence[str], rounds: int, passes: int) -> None:
    """Write, compare, measure, print."""
    torch.set_num_threads(1)
    photos = photos_in(folder)
    columns = ("its loader, us", "in place, us", "packed, us", "in place : its loader", "in place : packed")
    table = Table(
        "kind", "library", *columns, title=f"CPU time a photo, of {len(photos)}; times the rate, median (range)"
    )
    for name in kinds or KINDS:
        with tempfile.TemporaryDirectory() as scratch:
            cells = _measure(KINDS[name], photos, Path(scratch), rounds=rounds, passes=passes)
        library = KINDS[name].library
        table.add_row(name, f"{library} {version(library)}" if library else "Python", *cells)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
