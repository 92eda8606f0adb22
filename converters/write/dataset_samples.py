"""DatasetSamples: what fastio.pack needs of a dataset, whichever library it is of."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fastio.converters.listed import read_stored
from fastio.converters.write.huggingface import describe_features, is_dataset, read_rows
from fastio.converters.write.sample_encoder import Misfit
from fastio.errors import SourceError, StoreError
from fastio.types.field_types import FieldType, type_of
from fastio.types.schema import Field

__all__ = ["DatasetSamples", "Unreadable"]


_ROWS = 64  # of a store, whose pictures are read at once
_LOADERS = (("torch.utils.data", "DataLoader"), ("fastio.loader.fast_loader", "FastLoader"))


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for a sample whose dataset raised an exception."""

    error: Exception

    @property
    def misfit(self) -> Misfit:
        """What the ledger says of it."""
        return Misfit(f"cannot be read: {type(self.error).__name__}: {' '.join(str(self.error).split())}")


@dataclass(frozen=True, slots=True)
class DatasetSamples:
    """
    The samples of a dataset in order: dicts, tuples or single values.

    ``read(indices)`` yields those at these positions, below ``count``; without a count, ``iterate()`` yields all.
    ``fields`` (types by name, None: to be inferred) and ``metadata`` are what the dataset itself says of them,
    ``key_at`` how it calls them, and
    ``choose(names)`` is the same with these fields alone, if it can leave others unread.
    """

    count: int | None
    read: Callable[[Sequence[int]], Iterator[Any]]
    iterate: Callable[[], Iterator[Any]]
    fields: Mapping[str, FieldType | None] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    key_at: Callable[[int], str] | None = None
    choose: Callable[[Sequence[str]], DatasetSamples] | None = None

    @classmethod
    def of(cls, dataset: Any) -> DatasetSamples:
        """
        Look at a dataset: Hugging Face's, torch's, a list, or anything that can be iterated.

        Raises SourceError for what is no dataset: paths, splits, loaders of batches.
        """
        if isinstance(dataset, (str, bytes, os.PathLike)):
            raise SourceError(f"{dataset!r}: is no dataset: `fastio pack` and fastio.converters.pack take paths")
        if isinstance(dataset, Mapping):
            names = ", ".join(map(str, list(dataset)[:4]))
            raise SourceError(f"the dataset is a dict of {names}: pack these one by one, each into a store of its own")
        if isinstance(dataset, type):
            raise SourceError(
                f"expected a dataset, got the class {dataset.__name__}: make one, {dataset.__name__}(...)"
            )
        if any(_is_of(dataset, module, name) for module, name in _LOADERS):
            raise SourceError(f"a {type(dataset).__name__} yields batches: pack its dataset")
        if is_dataset(dataset):
            return _described(dataset, None)
        if _is_of(dataset, "torch.utils.data", "Subset"):
            return _subset(dataset)
        if _is_untouched_folder(dataset):
            return _folder(dataset)
        if _is_untouched_store(dataset):
            return _stored(dataset)
        classes = _names(getattr(dataset, "classes", None))
        metadata = {"classes": classes} if classes else {}
        if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
            return cls(len(dataset), lambda indices: _items(dataset, indices), lambda: iter(()), None, metadata)
        if not isinstance(dataset, Iterable):
            raise SourceError(f"expected a dataset, a generator or a list of samples, got {type(dataset).__name__}")
        return cls(None, lambda _indices: iter(()), lambda: iter(dataset), None, metadata)


def _described(dataset: Any, names: Sequence[str] | None) -> DatasetSamples:
    """A dataset of Hugging Face: its columns, or those of these fields."""
    fields, metadata, columns = describe_features(dataset)
    count = len(dataset) if hasattr(dataset, "__len__") else None
    if names is not None:
        columns = {column: name for column, name in columns.items() if name in names}
    read, iterate = read_rows(dataset, columns)
    return DatasetSamples(count, read, iterate, fields, metadata, choose=lambda names: _described(dataset, names))


def _is_of(dataset: object, module: str, name: str) -> bool:
    """Whether this is an object of a class, whose module is not imported for that."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(dataset, kind)


def _names(classes: Any) -> list[str]:
    """The names of classes, as datasets of torchvision have them; none if this is something else."""
    names = list(classes) if isinstance(classes, (list, tuple)) else []
    return names if all(isinstance(name, str) for name in names) and len(set(names)) == len(names) else []


def _items(dataset: Any, indices: Sequence[int]) -> Iterator[Any]:
    for index in indices:
        try:
            sample = dataset[index]
        except Exception as exc:  # whatever a dataset of others raises is its sample's problem
            exc.add_note(f"raised by sample {index} of {type(dataset).__name__}, which is being packed")
            sample = Unreadable(exc)
        yield sample


def _subset(dataset: Any) -> DatasetSamples:
    whole, chosen = DatasetSamples.of(dataset.dataset), [int(index) for index in dataset.indices]
    key_at = whole.key_at
    return DatasetSamples(
        count=len(chosen),
        read=lambda indices: whole.read([chosen[index] for index in indices]),
        iterate=whole.iterate,
        fields=whole.fields,
        metadata=whole.metadata,
        key_at=None if key_at is None else lambda index: key_at(chosen[index]),
    )


def _is_untouched_folder(dataset: Any) -> bool:
    """
    Whether this is torchvision's ImageFolder whose samples are its files' pictures: no transform, no loader of others,
    no ``__getitem__`` of its own.
    """
    folder = sys.modules.get("torchvision.datasets.folder")
    return (
        folder is not None
        and isinstance(dataset, folder.ImageFolder)
        and type(dataset).__getitem__ is folder.DatasetFolder.__getitem__
        and dataset.loader in (folder.default_loader, folder.pil_loader)
        and dataset.transform is None
        and dataset.target_transform is None
    )


def _folder(dataset: Any) -> DatasetSamples:
    def read(indices: Sequence[int]) -> Iterator[Any]:
        for index in indices:
            path, label = dataset.samples[index]
            yield {"image": Path(path), "label": int(label)}

    return DatasetSamples(
        count=len(dataset.samples),
        read=read,
        iterate=lambda: iter(()),
        fields={"image": "image", "label": "label"},
        metadata={"classes": list(dataset.classes)},
        key_at=lambda index: os.path.relpath(dataset.samples[index][0], dataset.root),
    )


def _is_untouched_store(dataset: Any) -> bool:
    """Whether this is a FastDataset whose samples are its store's, with encoded pictures among them."""
    return (
        _is_of(dataset, "fastio.dataset.fast_dataset", "FastDataset")
        and not dataset.makes_samples
        and dataset.transform is None
        and dataset.target_transform is None
        and not dataset.tv_tensors
        and any(dataset.store.schema[name].traits.is_picture for name in dataset.form.names)
    )


def _stored(dataset: Any) -> DatasetSamples:
    """The samples of a FastDataset, with the stored bytes of their pictures."""
    store, form = dataset.store, dataset.form
    pictures = [name for name in form.names if store.schema[name].traits.is_picture]
    others = tuple(name for name in form.names if name not in pictures)
    open_dataset = sys.modules["fastio.dataset.fast_dataset"].FastDataset
    rest = open_dataset(store, fields=others, verify=dataset.verify) if others else [()] * len(store)
    read_pictures = read_stored(store, pictures)

    def read(indices: Sequence[int]) -> Iterator[Any]:
        for start in range(0, len(indices), _ROWS):
            part = indices[start : start + _ROWS]
            values = read_pictures(np.array(part, np.int64), None)()
            for position, sample in enumerate(_items(rest, part)):
                if position in values.problems:
                    index, problem = part[position], values.problems[position]
                    yield Unreadable(StoreError(f"{store.path}[{index}] ({dataset.keys[index]!r}) {problem}"))
                elif isinstance(sample, Unreadable):
                    yield sample
                else:
                    named = dict(zip(others, sample, strict=True))
                    named |= {name: values.spans[name].view(position).tobytes() for name in pictures}
                    yield form.assemble({name: named[name] for name in form.names})

    return DatasetSamples(
        count=len(dataset),
        read=read,
        iterate=lambda: iter(()),
        fields={name: _known_type(store.schema[name]) for name in form.names},
        metadata={name: store.metadata[name] for name in ("classes", "field_classes") if store.metadata.get(name)},
        key_at=lambda index: dataset.keys[index],
    )


def _known_type(field: Field) -> FieldType | None:
    """The type of a stored field if its values alone would not tell it: pictures, masks and boxes."""
    return type_of(field) if field.traits.is_picture or field.is_box else None
