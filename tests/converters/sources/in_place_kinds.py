"""Containers of other programs that are read in place, each written and read back by the program itself."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from fastio import Unpacked
from fastio.store.kinds.unpacked import AS_IT_IS
from tests.converters.sources.arrow.picture_tables import (
    picture_table,
    write_file,
    write_parquet,
    write_saved,
    write_stream,
)
from tests.converters.sources.shard_files import dictionary, write_litdata, write_mds, write_tables
from tests.converters.sources.tfrecord.records import example, sized, write_records
from tests.converters.trees import cifar_folder, picture, python_2_pickle

__all__ = ["KINDS", "Made", "tfrecord", "zip_classes"]


@dataclass(frozen=True)
class Made:
    """
    What a kind has written: ``path`` opens it, as ``unpacked`` says.

    ``samples`` are its values by field, as the program's own reader gives them: bytes of payload fields (raw pictures
    with their channels last), else numbers.
    """

    path: Path
    samples: Sequence[Mapping[str, Any]]
    unpacked: Unpacked = AS_IT_IS


def tfrecord(folder: Path, count: int) -> Made:
    """Two files of pictures, labels and captions."""
    folder.mkdir()
    halves = [range(count // 2), range(count // 2, count)]
    for number, half in enumerate(halves):
        written = [{"image": picture(i), "caption": f"é {i}", "label": i % 3} for i in half]
        write_records(folder / f"train-0000{number}-of-00002", map(example, written))
    return Made(folder, [each for path in sorted(folder.iterdir()) for each in _examples(path.read_bytes())])


def _examples(data: bytes) -> Iterator[dict[str, Any]]:
    """The features of each record, read by the letter of the format: first values alone."""
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        features = _message(_message(data[at + 12 : at + 12 + size])[0][1])
        entries = [_message(entry) for _, entry in features]
        values = {entry[0][1].decode(): _message(entry[1][1])[0] for entry in entries}
        yield {name: _message(each)[0][1] if kind == 1 else _number(each) for name, (kind, each) in values.items()}
        at += 12 + size + 4


def _message(data: bytes) -> list[tuple[int, Any]]:
    """Fields with a size, and their numbers."""
    fields, at = [], 0
    while at < len(data):
        number, at = _varint(data, at)
        size, at = _varint(data, at)
        fields.append((number >> 3, data[at : at + size]))
        at += size
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value, shift, at = value | (data[at] & 0x7F) << shift, shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def _number(data: bytes) -> int:
    """A packed list of a single integer."""
    return _varint(_message(data)[0][1], 0)[0]


def mds(folder: Path, count: int) -> Made:
    """Shards of pictures, arrays of different lengths, captions and labels, columns sorted by name."""
    encodings = {"class": "int", "image": "bytes", "ids": "ndarray:int32", "text": "str", "box": "ndarray:float32:2,2"}
    write_mds(
        folder, encodings, [_values(i, b"\x04" + bytes([i])) for i in range(count)], sizes={"class": 8, "box": 16}
    )
    return Made(folder, list(map(_given, range(count))))


def litdata(folder: Path, count: int) -> Made:
    """The same in chunks of LitData."""
    tree = dictionary(**dict.fromkeys(("class", "image", "ids", "text", "box")))
    samples = [_values(i, struct.pack("<3I", 2, 1, i), struct.pack(">4I", 1, 2, 2, 2)) for i in range(count)]
    write_litdata(folder, ["int", "bytes", "numpy", "str", "tensor"], tree, [tuple(each.values()) for each in samples])
    return Made(folder, list(map(_given, range(count))))


def litdata_tables(folder: Path, count: int) -> Made:
    """Chunks that are tables, of pictures, captions and labels."""
    rows = [{"image": picture(i), "text": f"é {i}", "class": i % 3} for i in range(count)]
    write_tables(folder, rows, {"image": "bytes", "text": "str", "class": "int"})
    given = [{"image": each["image"], "text": each["text"].encode(), "label": each["class"]} for each in rows]
    return Made(folder, given)


def _values(i: int, head: bytes, box_head: bytes = b"") -> dict[str, bytes]:
    """The bytes of a sample; ``head`` comes before its ``i`` ids."""
    given = _given(i)
    label = struct.pack("<q", given["label"])
    values = {"class": label, "image": given["image"], "ids": head + given["ids"], "text": given["text"]}
    return {**values, "box": box_head + given["box"]}


def _given(i: int) -> dict[str, Any]:
    """A sample as the libraries give it; tests with them compare 1,000."""
    box, ids = np.full(4, i, "<f4").tobytes(), np.arange(i, dtype="<i4").tobytes()
    return {"image": picture(i), "ids": ids, "text": f"é {i}".encode(), "box": box, "label": i % 3}


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table as pyarrow reads them."""
    rows = table.to_pylist()
    return [{"image": row["image"]["bytes"], "caption": row["caption"].encode(), "label": row["label"]} for row in rows]


def _table(count: int) -> pa.Table:
    return picture_table(count, caption=[f"é {i}" for i in range(count)])


def arrow_stream(folder: Path, count: int) -> Made:
    """A stream of several batches, as ``datasets`` writes them."""
    folder.mkdir()
    path = write_stream(folder / "a.arrow", _table(count), 5)
    with pa.memory_map(str(path)) as file:
        return Made(path, _rows(pa.ipc.open_stream(file).read_all()))


def arrow_files(folder: Path, count: int) -> Made:
    """Two Arrow files."""
    folder.mkdir()
    table, half = _table(count), count // 2
    paths = [
        write_file(folder / f"a-{i}.feather", part) for i, part in enumerate((table.slice(0, half), table.slice(half)))
    ]
    return Made(folder, [row for path in paths for row in _rows(pa.feather.read_table(path))])


def saved(folder: Path, count: int) -> Made:
    """A dataset that was saved, of two files."""
    half = count // 2
    write_saved(folder, [_table(count).slice(0, half), _table(count).slice(half)])
    tables = [pa.ipc.open_stream(path).read_all() for path in sorted(folder.glob("*.arrow"))]
    return Made(folder, [row for table in tables for row in _rows(table)])


def parquet(**options: Any) -> Callable[[Path, int], Made]:
    """A Parquet file of several row groups, not compressed."""

    def make(folder: Path, count: int) -> Made:
        folder.mkdir()
        path = write_parquet(folder / "a.parquet", _table(count), 5, compression="none", **options)
        return Made(path, _rows(pq.read_table(path)))

    return make


def hdf5_contiguous(folder: Path, count: int) -> Made:
    """Pixels and labels as h5py writes arrays."""
    folder.mkdir()
    with h5py.File(folder / "a.h5", "w") as file:
        file["image"], file["label"] = _pixels(count), np.arange(count) % 3
    return _of_hdf5(folder)


def hdf5_chunked(folder: Path, count: int) -> Made:
    """Pixels in chunks of five rows, which can grow."""
    folder.mkdir()
    with h5py.File(folder / "a.h5", "w", userblock_size=512) as file:
        file.create_dataset("image", data=_pixels(count), chunks=(5, 4, 6, 3), maxshape=(None, 4, 6, 3))
        file["label"] = np.arange(count) % 3
    return _of_hdf5(folder)


def hdf5_any_length(folder: Path, count: int) -> Made:
    """Encoded pictures as arrays of bytes that differ in length, and text."""
    folder.mkdir()
    with h5py.File(folder / "a.h5", "w") as file:
        pictures = file.create_dataset("image", (count,), h5py.vlen_dtype(np.uint8))
        captions = file.create_dataset("caption", (count,), h5py.string_dtype())
        for i in range(count):
            pictures[i], captions[i] = np.frombuffer(picture(i) + bytes(97 * i), np.uint8), f"é {i}"
        file["label"] = np.arange(count) % 3
    return _of_hdf5(folder)


def hdf5_any_length_chunked(folder: Path, count: int) -> Made:
    """The same in chunks, behind a user block."""
    folder.mkdir()
    with h5py.File(folder / "a.h5", "w", userblock_size=512, libver="latest") as file:
        pictures = file.create_dataset("image", (count,), h5py.vlen_dtype(np.uint8), chunks=(5,), maxshape=(None,))
        for i in range(count):
            pictures[i] = np.frombuffer(picture(i), np.uint8)
    return _of_hdf5(folder)


def _pixels(count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(count).integers(0, 256, (count, 4, 6, 3), np.uint8)


def _of_hdf5(folder: Path) -> Made:
    with h5py.File(folder / "a.h5") as file:
        columns = {name: dataset[:] for name, dataset in file.items()}
    return Made(
        folder / "a.h5", [{name: _plain(each[i]) for name, each in columns.items()} for i in _positions(columns)]
    )


def _positions(columns: Mapping[str, Any]) -> range:
    return range(len(next(iter(columns.values()))))


def _plain(value: Any) -> Any:
    """The bytes of an array, a number as it is."""
    return value.item() if isinstance(value, np.integer) else value if isinstance(value, bytes) else value.tobytes()


def lmdb_pictures(folder: Path, count: int) -> Made:
    """Pictures under their names, as BasicSR writes them: a folder with a list of them beside."""
    path = folder / "train.lmdb"
    folder.mkdir()
    names = [f"{i:04d}" for i in range(count)]
    _put(path, {name: picture(i) + bytes(99 * i) for i, name in enumerate(names)})
    (path / "meta_info.txt").write_text("".join(f"{name}.png (4,4,3) 1\n" for name in names))
    return Made(path, [{"image": value} for value in _got(path)])


def lmdb_numbered(folder: Path, count: int) -> Made:
    """Pictures and texts by number, as for text recognition."""
    entries = {f"image-{i + 1:09d}": picture(i) for i in range(count)}
    entries |= {f"label-{i + 1:09d}": f"word {i}".encode() for i in range(count)}
    _put(folder, {**entries, "num-samples": b"%d" % count})
    values = _got(folder)
    return Made(folder, [{"image": values[i], "text": values[count + i]} for i in range(count)])


def lmdb_caffe(folder: Path, count: int) -> Made:
    """Encoded pictures in Caffe's Datum, one of them on pages of its own."""
    values = [picture(i) + bytes(5000 * (i == 3)) for i in range(count)]
    behind = [bytes([5 << 3, i % 3, 7 << 3, 1]) for i in range(count)]
    datums = [sized(4, value) + label for value, label in zip(values, behind, strict=True)]
    _put(folder, {f"{i:08d}": each for i, each in enumerate(datums)})
    fields = [(datum, _varint(datum, 1)) for datum in _got(folder)]
    pictures = [datum[start : start + size] for datum, (size, start) in fields]
    labels = [datum[start + size + 1] for datum, (size, start) in fields]
    return Made(folder, [{"image": one, "label": two} for one, two in zip(pictures, labels, strict=True)])


def _put(path: Path, entries: Mapping[str, bytes]) -> None:
    path.mkdir()
    with lmdb.open(str(path), map_size=1 << 26) as env, env.begin(write=True) as txn:
        for key, value in entries.items():
            txn.put(key.encode(), value)


def _got(path: Path) -> list[bytes]:
    """Values in the order of their keys."""
    with lmdb.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        return [value for _, value in txn.cursor()]


def zip_classes(folder: Path, count: int) -> Made:
    """Stored pictures in folders of their classes."""
    folder.mkdir()
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        for i in range(count):
            archive.writestr(f"top/c{i % 3}/{i:04d}.png", picture(i))
    with zipfile.ZipFile(folder / "a.zip") as archive:
        names = sorted(archive.namelist())
        samples = [{"image": archive.read(name), "label": int(name[5])} for name in names]
    return Made(folder / "a.zip", samples)


def zip_fields(folder: Path, count: int) -> Made:
    """Stored pictures, their masks, and deflated JSON."""
    folder.mkdir()
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        for i in range(count):
            archive.writestr(f"images/{i:04d}.png", picture(i))
            archive.writestr(f"masks/{i:04d}.png", picture(i, mode="L"))
            archive.writestr(f"notes/{i:04d}.json", json.dumps({"n": i}), zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(folder / "a.zip") as archive:
        stems = sorted(Path(name).stem for name in archive.namelist() if name.startswith("images/"))
        places = {"image": "images/{}.png", "mask": "masks/{}.png", "notes": "notes/{}.json"}
        samples = [{field: archive.read(place.format(stem)) for field, place in places.items()} for stem in stems]
    return Made(folder / "a.zip", samples, Unpacked(fields=["mask=masks/", "notes=notes/"]))


def npy_folder(folder: Path, count: int) -> Made:
    """A file for each array."""
    folder.mkdir()
    np.save(folder / "x.npy", _pixels(count))
    np.save(folder / "points.npy", np.random.default_rng(1).normal(size=(count, 5, 2)))
    np.save(folder / "y.npy", np.arange(count) % 3)
    titles = {"image": "x", "points": "points", "label": "y"}
    columns = {field: np.load(folder / f"{name}.npy") for field, name in titles.items()}
    return Made(folder, [{name: _plain(each[i]) for name, each in columns.items()} for i in _positions(columns)])


def npz(folder: Path, count: int) -> Made:
    """An archive of NumPy, not compressed."""
    folder.mkdir()
    np.savez(folder / "a.npz", x=_pixels(count), y=np.arange(count) % 3)
    columns = dict(zip(("image", "label"), np.load(folder / "a.npz").values(), strict=True))
    return Made(
        folder / "a.npz", [{name: _plain(each[i]) for name, each in columns.items()} for i in _positions(columns)]
    )


def idx(folder: Path, count: int) -> Made:
    """MNIST's files of pixels and of labels."""
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (count, 5, 5), np.uint8)
    head = struct.pack(">4B4I", 0, 0, 8, 3, count, 5, 5, 0)[:-4]
    (folder / "train-images-idx3-ubyte").write_bytes(head + pixels.tobytes())
    labels = struct.pack(">4BI", 0, 0, 8, 1, count) + bytes(i % 3 for i in range(count))
    (folder / "train-labels-idx1-ubyte").write_bytes(labels)
    return Made(folder, [{"image": pixels[i].tobytes(), "label": i % 3} for i in range(count)])


def npy_planes(folder: Path, count: int) -> Made:
    """Pictures as torch keeps them, with their channels first, in a folder."""
    folder.mkdir()
    np.save(folder / "x.npy", np.moveaxis(_pixels(count), -1, 1))
    np.save(folder / "y.npy", np.arange(count) % 3)
    return Made(folder, _of_planes(np.load(folder / "x.npy"), np.load(folder / "y.npy")))


def hdf5_planes(folder: Path, count: int) -> Made:
    """The same with alpha, in chunks of five rows."""
    folder.mkdir()
    pixels = np.random.default_rng(count).integers(0, 256, (count, 4, 5, 6), np.uint8)
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("image", data=pixels, chunks=(5, 4, 5, 6))
        file["label"] = np.arange(count) % 3
    with h5py.File(folder / "a.h5") as file:
        return Made(folder / "a.h5", _of_planes(file["image"][:], file["label"][:]))


def lmdb_planes(folder: Path, count: int) -> Made:
    """Pixels in Caffe's Datum, as its convert_imageset writes them: sizes, data, label."""
    planes = np.moveaxis(_pixels(count), -1, 1)
    sizes = bytes([1 << 3, 3, 2 << 3, 4, 3 << 3, 6])
    values = [sizes + sized(4, each.tobytes()) + bytes([5 << 3, i % 3]) for i, each in enumerate(planes)]
    _put(folder, {f"{i:08d}": value for i, value in enumerate(values)})
    datums = [datum[len(sizes) + 2 :] for datum in _got(folder)]
    pixels = np.stack([np.frombuffer(datum[:72], np.uint8).reshape(3, 4, 6) for datum in datums])
    return Made(folder, _of_planes(pixels, np.array([datum[-1] for datum in datums])))


def cifar_10(folder: Path, count: int) -> Made:
    """Batches that Python 2 pickled, read as CIFAR's page says."""
    sides = (count * 7 // 12, count - count * 7 // 12)
    cifar_folder(folder, batches=0)
    for number, side in enumerate(sides, 1):
        written = {b"data": _cifar_rows(side, number), b"labels": [i % 10 for i in range(side)]}
        (folder / f"data_batch_{number}").write_bytes(python_2_pickle(written))
    (folder / "test_batch").unlink()
    batches = [pickle.loads((folder / f"data_batch_{n}").read_bytes(), encoding="bytes") for n in (1, 2)]
    pixels = np.concatenate([each[b"data"] for each in batches]).reshape(-1, 3, 32, 32)
    return Made(folder, _of_planes(pixels, np.concatenate([each[b"labels"] for each in batches])))


def cifar_100(folder: Path, count: int) -> Made:
    """One batch that Python 3 pickled, with two labels."""
    folder.mkdir()
    labels = {"fine_labels": [i % 100 for i in range(count)], "coarse_labels": [i % 20 for i in range(count)]}
    (folder / "train").write_bytes(pickle.dumps({**labels, "data": _cifar_rows(count, 0)}))
    names = {"fine_label_names": [f"f{i}" for i in range(100)], "coarse_label_names": [f"k{i}" for i in range(20)]}
    (folder / "meta").write_bytes(pickle.dumps(names))
    batch = pickle.loads((folder / "train").read_bytes())
    samples = _of_planes(batch["data"].reshape(-1, 3, 32, 32), np.array(batch["fine_labels"]))
    coarse = batch["coarse_labels"]
    return Made(folder / "train", [{**sample, "coarse_label": coarse[i]} for i, sample in enumerate(samples)])


def cifar_binary(folder: Path, count: int) -> Made:
    """The binary version of CIFAR-10: a byte of label and the planes; a cut between two pictures shows nowhere."""
    folder.mkdir()
    sides = (count * 7 // 12, count - count * 7 // 12)
    for number, side in enumerate(sides, 1):
        labels = np.arange(side, dtype=np.uint8)[:, None] % 10
        np.concatenate([labels, _cifar_rows(side, number)], axis=1).tofile(folder / f"data_batch_{number}.bin")
    (folder / "batches.meta.txt").write_text("".join(f"c{i}\n" for i in range(10)) + "\n")
    records = np.concatenate([np.fromfile(folder / f"data_batch_{n}.bin", np.uint8).reshape(-1, 3073) for n in (1, 2)])
    return Made(folder, _of_planes(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]))


def _cifar_rows(count: int, seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), np.uint8)


def _of_planes(pixels: np.ndarray[Any, Any], labels: Any) -> list[dict[str, Any]]:
    """Samples of pictures (n, C, H, W), as everybody shows them: channels last."""
    images = [np.moveaxis(each, 0, -1).tobytes() for each in pixels]
    return [{"image": image, "label": int(label)} for image, label in zip(images, labels, strict=True)]


KINDS: dict[str, Callable[[Path, int], Made]] = {
    "tfrecord": tfrecord,
    "mds": mds,
    "litdata": litdata,
    "litdata-tables": litdata_tables,
    "arrow-stream": arrow_stream,
    "arrow-files": arrow_files,
    "datasets": saved,
    "parquet": parquet(),
    "parquet-plain": parquet(use_dictionary=False, data_page_version="2.0", write_page_checksum=True),
    "hdf5, contiguous": hdf5_contiguous,
    "hdf5, chunks": hdf5_chunked,
    "hdf5, any length": hdf5_any_length,
    "hdf5, any length, chunks": hdf5_any_length_chunked,
    "lmdb, pictures": lmdb_pictures,
    "lmdb, numbered": lmdb_numbered,
    "lmdb, Caffe": lmdb_caffe,
    "zip, classes": zip_classes,
    "zip, fields": zip_fields,
    "npy": npy_folder,
    "npz": npz,
    "idx": idx,
    "npy, planes": npy_planes,
    "hdf5, planes": hdf5_planes,
    "lmdb, planes": lmdb_planes,
    "cifar-10": cifar_10,
    "cifar-100": cifar_100,
    "cifar, binary": cifar_binary,
}
