"""Reads CIFAR-10 and CIFAR-100 as they are downloaded: batches of pixels, pickled or binary, and the names of classes.

The binary version has a record for each picture: a byte for each of its labels (CIFAR-100: coarse, fine), and the bytes
of its pixels. Both have red, green and blue one behind the other, each 32 rows of 32.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.labels.pickle import load_pickle
from fastio.converters.sources.arrays import ArraysOf, RowArray, array_source
from fastio.converters.sources.listed import Indices, ListedSource, names_at
from fastio.converters.sources.options import SourceOptions
from fastio.errors import SourceError
from fastio.store.kinds.scan import Problem, SourcePath

__all__ = [
    "open_cifar",
]


_KIND = "cifar"  # of sources
_BINARY = ".bin"
_BATCHES = range(1, 6)
_LABEL = re.compile(r"training batch (\d+) of (\d+)")  # what the pickles of CIFAR-10 say of themselves
_CIFAR_10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
_PIXELS = (3, 32, 32)
_PICTURE_BYTES = 3 * 32 * 32
_LABELS = {"label": ("labels", "fine_labels"), "coarse_label": ("coarse_labels",)}
_NAMES = {"label": ("label_names", "fine_label_names"), "coarse_label": ("coarse_label_names",)}
_META = ("batches.meta", "meta")  # of CIFAR-10, CIFAR-100
_TEXTS = (  # of the binary version of CIFAR-10, CIFAR-100
    {"label": "batches.meta.txt"},
    {"label": "fine_label_names.txt", "coarse_label": "coarse_label_names.txt"},
)
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Batch:
    """
    A file: pixels (n, 3, 32, 32), labels by field, and names, if there are some. ``starts`` (n,) are the bytes of the
    file where pictures begin; None if they do not lie there as they are. ``told`` is which batch of how many it says
    that it is; None if it does not.
    """

    path: Path
    pixels: NDArray[np.uint8]
    labels: Mapping[str, NDArray[np.int64]]
    names: Sequence[str]
    starts: NDArray[np.int64] | None
    told: tuple[int, int] | None = None


def open_cifar(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open the training set of a folder, or one batch by its name, such as ``test_batch``, ``test`` or ``test_batch.bin``.

    Pictures are raw pixels (32, 32, 3), as ``--raw`` keeps them. Keys are the file names in the batches, if they are
    unique. CIFAR-100 has two labels: ``label`` of 100 classes, and ``coarse_label`` of 20.
    """
    path = Path(place.path)
    folder = path if place.is_folder else path.parent
    files = _training(folder) if place.is_folder else [path]
    is_binary = files[0].suffix == _BINARY
    texts = {field: folder / name for field, name in _TEXTS[files[0].stem in ("train", "test")].items()}
    meta = next((folder / name for name in _META if (folder / name).is_file()), folder / _META[0])
    classes = _classes_in_texts(texts, files[0]) if is_binary else _classes(meta, files[0])
    batches = [(_binary if is_binary else _pickled)(file, classes) for file in files]
    if place.is_folder:
        _check_count(folder, batches, classes["label"])
    labels = {name: np.concatenate([each.labels[name] for each in batches]) for name in classes}
    found = ArraysOf(
        kind=_KIND,
        arrays=[_pixels(batches), *(_array(name, each) for name, each in labels.items())],
        left_out=_others(folder, files) if place.is_folder else [],
        disk_bytes=sum(each.stat().st_blocks * 512 for each in files),
        files=[*map(str, files), *map(str, texts.values() if is_binary else [meta])],
        classes=classes["label"],
    )
    source = array_source(place, found, options)
    keys = [name for batch in batches for name in batch.names]
    further = {name: names for name, names in classes.items() if name != "label" and name in source.schema}
    metadata = {**source.metadata, **({"field_classes": further} if further else {})}
    is_named = len(set(keys)) == len(keys) == len(source.sizes)
    return replace(source, metadata=metadata, keys_at=names_at(keys) if is_named else source.keys_at)


def _training(folder: Path) -> list[Path]:
    """The batches of the training set, in order. Copies beside them, ``data_batch_1~``, are none of these."""
    for suffix in ("", _BINARY):
        files = [each for i in _BATCHES if (each := folder / f"data_batch_{i}{suffix}").is_file()]
        gap = next((i for i, each in enumerate(files, 1) if each.stem != f"data_batch_{i}"), None)
        if gap is not None:
            raise SourceError(f"{folder}: lacks data_batch_{gap}{suffix} before {files[-1].name}: download CIFAR again")
        if not files and (folder / f"train{suffix}").is_file():
            files = [folder / f"train{suffix}"]
        if files:
            return files
    raise SourceError(f"{folder}: holds neither data_batch_1 nor train: download CIFAR again, or name a batch")


def _check_count(folder: Path, batches: Sequence[_Batch], classes: Sequence[str]) -> None:
    """
    Raise SourceError if a folder lacks the last batches, by what the others say, or if one says that it is another.

    Where they say nothing, a warning tells how many CIFAR-10 has.
    """
    for each in batches:
        if each.told is not None and each.path.stem != f"data_batch_{each.told[0]}":
            words = "says that it is training batch {} of {}".format(*each.told)
            raise SourceError(f"{each.path}: {words}: download CIFAR again")
    last = batches[-1].path
    told = [each.told[1] for each in batches if each.told is not None]
    if told and max(told) > len(batches):
        names = ", ".join(f"data_batch_{number}" for number in range(len(batches) + 1, max(told) + 1))
        raise SourceError(
            f"{folder}: lacks {names} after {last.name}: there are {max(told)} batches, as they say: download CIFAR "
            "again, or name a batch"
        )
    if not told and last.stem != "train" and list(classes) == _CIFAR_10 and len(batches) < len(_BATCHES):
        names = ", ".join(f"data_batch_{number}{last.suffix}" for number in _BATCHES[len(batches) :])
        _LOG.warning("%s: lacks %s of CIFAR-10: download it again if it should be whole", folder, names)


def _others(folder: Path, files: Sequence[Path]) -> list[Problem]:
    """What else lies there; the test set is another dataset, which is packed by its own name."""
    left_out = []
    for each in sorted(folder.iterdir()):
        if each.name.removesuffix(_BINARY) in ("test_batch", "test"):
            left_out.append(Problem(each.name, f"is the test set: pack {each} by itself"))
        elif each not in files:
            left_out.append(Problem(each.name, "is not a batch"))
    return left_out


def _pixels(batches: Sequence[_Batch]) -> RowArray:
    """The pictures of all batches, and where they lie."""
    array = _array("data", np.concatenate([each.pixels for each in batches]))
    places = [each.starts for each in batches if each.starts is not None]
    if len(places) < len(batches):
        return replace(array, unfit="are pickled as text")
    starts = np.concatenate(places)

    def located(indices: Indices) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return starts[indices], np.full(len(indices), _PICTURE_BYTES, np.int64)

    return replace(
        array,
        containers=[str(each.path) for each in batches],
        numbers=np.repeat(np.arange(len(batches), dtype=np.int32), [len(each.pixels) for each in batches]),
        located=located,
    )


def _array(name: str, array: NDArray[Any]) -> RowArray:
    return RowArray(name, array.shape, array.dtype, array.__getitem__)


def _file_bytes(path: Path, what: str = "download CIFAR again") -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise SourceError(f"{path}: cannot be read: {exc.strerror}; {what}") from exc


# The binary version.


def _binary(path: Path, classes: Mapping[str, Sequence[str]]) -> _Batch:
    data = np.frombuffer(_file_bytes(path), np.uint8)
    record = len(classes) + _PICTURE_BYTES
    if len(data) == 0 or len(data) % record:
        raise SourceError(
            f"{path}: expected records of {record:,} bytes, got {len(data):,} bytes: download CIFAR again"
        )
    records = data.reshape(-1, record)
    labels = {
        name: records[:, i].astype(np.int64) for i, name in enumerate(reversed(list(classes)))
    }  # coarse ones come first
    for name, values in labels.items():
        if values.max() >= len(classes[name]):
            raise SourceError(f"{path}: expected {name} from 0 to {len(classes[name]) - 1}, got {values.max()}")
    starts = np.arange(len(records), dtype=np.int64) * record + len(classes)
    return _Batch(path, records[:, len(classes) :].reshape(-1, *_PIXELS), labels, (), starts)


def _classes_in_texts(texts: Mapping[str, Path], batch: Path) -> dict[str, list[str]]:
    """The names of the classes of each label, a line for each."""
    classes = {}
    for field, path in texts.items():
        lines = _file_bytes(path, _names_there(batch)).decode("utf-8", "replace").splitlines()
        classes[field] = [line.strip() for line in lines if line.strip()]
    return classes


# The pickled version.


def _pickled(path: Path, classes: Mapping[str, Sequence[str]]) -> _Batch:
    data = _file_bytes(path)
    batch = _loaded(path, data)
    if "data" not in batch:
        raise SourceError(f"{path}: is not a batch of CIFAR: it has no 'data', only {', '.join(sorted(batch)[:5])}")
    pixels = batch["data"]
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.dtype != np.uint8
        or pixels.ndim != 2
        or pixels.shape[1] != _PICTURE_BYTES
    ):
        found = f"{pixels.dtype} {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise SourceError(f"{path}: expected pixels uint8 (n, {_PICTURE_BYTES}), got {found}")
    for field, titles in _LABELS.items():
        if field not in classes and any(title in batch for title in titles):
            raise SourceError(
                f"{path.parent}: its meta file has no list {' or '.join(_NAMES[field])}: download it again"
            )
    labels = {field: _labels(path, batch, _LABELS[field], len(names)) for field, names in classes.items()}
    # In a protocol of Python 2, Python 3 pickles bytes as text: then the pixels lie nowhere in the file.
    at = data.find(pixels.reshape(-1).data) if pixels.flags.c_contiguous else -1
    starts = at + _PICTURE_BYTES * np.arange(len(pixels), dtype=np.int64)
    names, told = _filenames(batch), _told(batch)
    return _Batch(path, pixels.reshape(-1, *_PIXELS), labels, names, starts if at >= 0 else None, told)


def _classes(path: Path, batch: Path) -> dict[str, list[str]]:
    """The names of the classes of each label that there is."""
    meta = _loaded(path, _file_bytes(path, _names_there(batch)))
    classes = {}
    for field, titles in _NAMES.items():
        names = _first(meta, titles)
        if names is None and field != "label":
            continue
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise SourceError(f"{path.parent}: its meta file has no list {' or '.join(titles)}: download it again")
        classes[field] = names
    return classes


def _names_there(batch: Path) -> str:
    return f"CIFAR has the names of the classes of {batch.name} there"


def _loaded(path: Path, data: bytes) -> Mapping[str, Any]:
    """A pickled dict, read as data. Raises SourceError."""
    try:
        value = load_pickle(data)
    except SourceError as exc:
        raise SourceError(f"{path}: {exc}") from exc
    if not isinstance(value, dict):
        raise SourceError(f"{path}: expected a pickled dict, got {type(value).__name__}: download CIFAR again")
    return {key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key): v for key, v in value.items()}


def _labels(path: Path, batch: Mapping[str, Any], titles: Sequence[str], classes: int) -> NDArray[np.int64]:
    values = _first(batch, titles)
    count = len(batch["data"])
    if not isinstance(values, (list, np.ndarray)) or len(values) != count:
        raise SourceError(f"{path}: expected {count} {' or '.join(titles)}, one for each picture")
    if not all(isinstance(value, (int, np.integer)) and 0 <= value < classes for value in values):
        raise SourceError(f"{path}: expected {titles[0]} from 0 to {classes - 1}")
    return np.array(values, np.int64)


def _told(batch: Mapping[str, Any]) -> tuple[int, int] | None:
    label = _first(batch, ("batch_label",))
    match = _LABEL.fullmatch(label.decode("ascii", "replace") if isinstance(label, bytes) else str(label))
    return None if match is None else (int(match[1]), int(match[2]))


def _filenames(batch: Mapping[str, Any]) -> list[str]:
    names = batch.get("filenames")
    texts = names if isinstance(names, list) else []
    return [name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name) for name in texts]


def _first(values: Mapping[str, Any], titles: Sequence[str]) -> Any:
    value = next((values[title] for title in titles if title in values), None)
    if isinstance(value, list):
        return [each.decode("utf-8", "replace") if isinstance(each, bytes) else each for each in value]
    return value
