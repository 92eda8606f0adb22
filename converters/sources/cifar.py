"""CIFAR-10 and CIFAR-100 as they are downloaded: pickled batches of pixels, and the names of their classes."""

from __future__ import annotations

from pathlib import Path

from fastio.converters.kind import SourceKind, SourceOptions, SourcePath
from fastio.converters.listed import ListedSource

__all__ = ["KIND"]


def _open(place: SourcePath, options: SourceOptions) -> ListedSource:
    from fastio.converters.containers.cifar_source import open_cifar

    return open_cifar(place, options)


def _signs(place: SourcePath) -> str:
    """A meta file beside batches; of a file, that it is one of the batches."""
    path = Path(place.path)
    folder = path if place.is_folder else path.parent
    is_ten = (folder / "batches.meta").is_file()
    if place.is_folder:
        is_there = is_ten and (folder / "data_batch_1").is_file()
        return "batches of CIFAR" if is_there or all((folder / name).is_file() for name in ("meta", "train")) else ""
    names = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch") if is_ten else ("train", "test")
    is_batch = path.name in names and path.is_file() and (is_ten or (folder / "meta").is_file())
    return "a batch of CIFAR" if is_batch else ""


KIND = SourceKind(
    name="cifar",
    what="CIFAR as it is downloaded",
    signs=_signs,
    open=_open,
    own_labels="batches of CIFAR have their own labels",
    takes_fields=True,
    takes_without=True,
)
