"""Reads CIFAR-10 and CIFAR-100 as they are downloaded: pickled batches of pixels, and the names of their classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.labels.pickle import load_pickle
from fastio.converters.sources.arrays import ArraysOf, RowArray, array_source
from fastio.converters.sources.listed import ListedSource, names_at
from fastio.converters.sources.options import SourceOptions
from fastio.errors import SourceError
from fastio.store.kinds.scan import Problem, SourcePath

__all__ = [
    "open_cifar",
]


_KIND = "cifar"  # of sources
_META = ("batches.meta", "meta")  # of CIFAR-10, CIFAR-100
_PIXELS = (3, 32, 32)
_LABELS = {"label": ("labels", "fine_labels"), "coarse_label": ("coarse_labels",)}
_NAMES = {"label": ("label_names", "fine_label_names"), "coarse_label": ("coarse_label_names",)}


def open_cifar(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open the training set of a folder, or one batch by its name, such as ``test_batch`` or ``test``.

    Pictures are raw pixels (32, 32, 3), as ``--raw`` keeps them. Keys are the file names in the batches, if they are
    unique. CIFAR-100 has two labels: ``label`` of 100 classes, and ``coarse_label`` of 20.
    """
    path = Path(place.path)
    folder = path if place.is_folder else path.parent
    files = _training(folder) if place.is_folder else [path]
    batches = [_batch(each) for each in files]
    meta = _loaded(next((folder / name for name in _META if (folder / name).is_file()), folder / _META[0]))
    arrays = [
        _array("data", np.concatenate([_pixels(file, batch) for file, batch in zip(files, batches, strict=True)]))
    ]
    classes: dict[str, list[str]] = {}
    for field, titles in _LABELS.items():
        if field != "label" and not any(title in batches[0] for title in titles):
            continue
        names = _first(meta, _NAMES[field])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise SourceError(f"{folder}: its meta file has no list {' or '.join(_NAMES[field])}: download it again")
        classes[field] = names
        labels = [_labels(file, batch, titles, len(names)) for file, batch in zip(files, batches, strict=True)]
        arrays.append(_array(field, np.concatenate(labels)))
    found = ArraysOf(
        kind=_KIND,
        arrays=arrays,
        left_out=_others(folder, files) if place.is_folder else [],
        disk_bytes=sum(each.stat().st_blocks * 512 for each in files),
        files=list(map(str, files)),
        classes=classes.get("label"),
    )
    source = array_source(place, found, options)
    keys = [name for batch in batches for name in _filenames(batch)]
    further = {name: names for name, names in classes.items() if name != "label" and name in source.schema}
    metadata = {**source.metadata, **({"field_classes": further} if further else {})}
    is_named = len(set(keys)) == len(keys) == len(source.sizes)
    return replace(source, metadata=metadata, keys_at=names_at(keys) if is_named else source.keys_at)


def _training(folder: Path) -> list[Path]:
    """The batches of the training set, in order."""
    files = sorted(each for each in folder.glob("data_batch_*") if each.is_file())
    if not files and (folder / "train").is_file():
        files = [folder / "train"]
    if not files:
        raise SourceError(f"{folder}: holds neither data_batch_1 nor train: download CIFAR again, or name a batch")
    return files


def _others(folder: Path, files: Sequence[Path]) -> list[Problem]:
    """What else lies there; the test set is another dataset, which is packed by its own name."""
    left_out = []
    for each in sorted(folder.iterdir()):
        if each.name in ("test_batch", "test"):
            left_out.append(Problem(each.name, f"is the test set: pack {each} by itself"))
        elif each not in files:
            left_out.append(Problem(each.name, "is not a batch"))
    return left_out


def _loaded(path: Path) -> Mapping[str, Any]:
    """A pickled dict, read as data. Raises SourceError."""
    try:
        value = load_pickle(path.read_bytes())
    except OSError as exc:
        raise SourceError(f"{path}: cannot be read: {exc.strerror}; CIFAR has the names of its classes there") from exc
    except SourceError as exc:
        raise SourceError(f"{path}: {exc}") from exc
    if not isinstance(value, dict):
        raise SourceError(f"{path}: expected a pickled dict, got {type(value).__name__}: download CIFAR again")
    return {key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key): v for key, v in value.items()}


def _batch(path: Path) -> Mapping[str, Any]:
    batch = _loaded(path)
    if "data" not in batch:
        raise SourceError(f"{path}: is not a batch of CIFAR: it has no 'data', only {', '.join(sorted(batch)[:5])}")
    return batch


def _pixels(path: Path, batch: Mapping[str, Any]) -> NDArray[np.uint8]:
    data = batch["data"]
    size = int(np.prod(_PIXELS))
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != size:
        found = f"{data.dtype} {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
        raise SourceError(f"{path}: expected pixels uint8 (n, {size}), got {found}")
    return data.reshape(-1, *_PIXELS)


def _labels(path: Path, batch: Mapping[str, Any], titles: Sequence[str], classes: int) -> NDArray[np.int64]:
    values = _first(batch, titles)
    count = len(batch["data"])
    if not isinstance(values, (list, np.ndarray)) or len(values) != count:
        raise SourceError(f"{path}: expected {count} {' or '.join(titles)}, one for each picture")
    if not all(isinstance(value, (int, np.integer)) and 0 <= value < classes for value in values):
        raise SourceError(f"{path}: expected {titles[0]} from 0 to {classes - 1}")
    return np.array(values, np.int64)


def _filenames(batch: Mapping[str, Any]) -> list[str]:
    names = batch.get("filenames")
    texts = names if isinstance(names, list) else []
    return [name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name) for name in texts]


def _first(values: Mapping[str, Any], titles: Sequence[str]) -> Any:
    value = next((values[title] for title in titles if title in values), None)
    if isinstance(value, list):
        return [each.decode("utf-8", "replace") if isinstance(each, bytes) else each for each in value]
    return value


def _array(name: str, array: NDArray[Any]) -> RowArray:
    return RowArray(name, array.shape, array.dtype, array.__getitem__)
