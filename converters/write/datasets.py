"""DatasetSamples: what fastio.pack needs of a dataset, whichever library it is of."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from fastio.converters.sources.listed import read_stored
from fastio.converters.write.encoder import Misfit
from fastio.errors import SchemaError, SourceError, StoreError
from fastio.types.field_types import FieldType, type_of
from fastio.types.schema import Field

__all__ = [
    "DatasetSamples",
    "Unreadable",
    "field_name",
    "renamed_samples",
]


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
    """Whether this is a FastDataset whose samples are its store's."""
    return (
        _is_of(dataset, "fastio.dataset.fast_dataset", "FastDataset")
        and not dataset.makes_samples
        and dataset.transform is None
        and dataset.target_transform is None
        and not dataset.tv_tensors
    )


def _stored(dataset: Any) -> DatasetSamples:
    """The samples of a FastDataset, with the stored bytes of their pictures, and the types of all fields."""
    store, form = dataset.store, dataset.form
    pictures = [name for name in form.names if store.schema[name].traits.is_picture]
    lists = [each.name for each in store.schema.lists if each.name in form.names and each.element.traits.is_picture]
    others = tuple(name for name in form.names if name not in {*pictures, *lists})
    open_dataset = sys.modules["fastio.dataset.fast_dataset"].FastDataset
    rest = open_dataset(store, fields=others, verify=dataset.verify) if others else [()] * len(store)
    read_pictures = read_stored(store, [*pictures, *lists])

    def read(indices: Sequence[int]) -> Iterator[Any]:
        for start in range(0, len(indices), _ROWS):
            part = indices[start : start + _ROWS]
            values = read_pictures(np.array(part, np.int64), None)()
            listed = {
                name: store.elements(name).grouped([view.tobytes() for view in each.spans.views()], each.counts)
                for name, each in values.lists.items()
            }
            for position, sample in enumerate(_items(rest, part)):
                if position in values.problems:
                    index, problem = part[position], values.problems[position]
                    yield Unreadable(StoreError(f"{store.path}[{index}] ({dataset.keys[index]!r}) {problem}"))
                elif isinstance(sample, Unreadable):
                    yield sample
                else:
                    named = dict(zip(others, sample, strict=True))
                    named |= {name: values.spans[name].view(position).tobytes() for name in pictures}
                    named |= {name: listed[name][position] for name in lists}
                    whole = form.assemble({name: named[name] for name in form.names})
                    # A document alone may be a dict, which would be taken for fields.
                    yield (whole,) if form.kind == "value" else whole

    return DatasetSamples(
        count=len(dataset),
        read=read,
        iterate=lambda: iter(()),
        fields={name: _known_type(store.schema[name], form.names) for name in form.names},
        metadata={name: store.metadata[name] for name in ("classes", "field_classes") if store.metadata.get(name)},
        key_at=lambda index: dataset.keys[index],
    )


def _known_type(field: Field, names: Sequence[str]) -> FieldType | None:
    """
    The type of a stored field among the fields ``names``; None for labels, which are told by their name, and for what
    belongs to a field that is not among them.
    """
    if type_of(field) == "label" or (field.owner and field.owner not in names):
        return None
    return type_of(field)


# Gives fields of a dataset's samples other names before anything else looks at them.


def renamed_samples(samples: DatasetSamples, new_names: Mapping[str, str]) -> DatasetSamples:
    """
    Return the samples of a dataset with new names for some fields, ``{old: new}``; the names of classes go with them.

    Samples that lack such a field, that have a field of the new name already, or that are no dicts come as Unreadable.
    Raises SchemaError if the dataset's own description says so of all of them, or if two new names are the same.
    """
    if not isinstance(new_names, Mapping):
        raise SchemaError(f"rename={new_names!r}: expected old and new names, as in rename={{'img': 'image'}}")
    if len(set(new_names.values())) < len(new_names):
        raise SchemaError(f"rename={dict(new_names)!r}: expected different new names")
    renaming = _Renaming(new_names)
    read, iterate, choose = samples.read, samples.iterate, samples.choose
    return replace(
        samples,
        read=lambda indices: renaming.samples(read(indices)),
        iterate=lambda: renaming.samples(iterate()),
        fields=None if samples.fields is None else renaming.named(samples.fields),
        metadata=renaming.metadata(samples.metadata),
        choose=None if choose is None else lambda names: _chosen(choose, names, new_names),
    )


def _chosen(
    choose: Callable[[Sequence[str]], DatasetSamples], names: Sequence[str], new_names: Mapping[str, str]
) -> DatasetSamples:
    """
    Some fields, by their new names; of them alone those that have new names are renamed.

    Raises SchemaError for the old name of a field: it means nothing any more.
    """
    old_names = {new: old for old, new in new_names.items()}
    for name in names:
        if name in new_names and name not in old_names:
            raise SchemaError(f"there is no field {name!r}: rename= calls it {new_names[name]!r}")
    chosen = choose([old_names.get(name, name) for name in names])
    return renamed_samples(chosen, {old: new for old, new in new_names.items() if new in names})


@dataclass(frozen=True, slots=True)
class _Renaming:
    new_names: Mapping[str, str]

    def samples(self, samples: Iterator[Any]) -> Iterator[Any]:
        """Samples with their new names."""
        for sample in samples:
            renamed = sample
            if not isinstance(sample, Unreadable):
                try:
                    renamed = self.named(_as_mapping(sample))
                except SchemaError as exc:
                    renamed = Unreadable(exc)
            yield renamed

    def named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values under their new names, in the same order."""
        missing = [name for name in self.new_names if name not in values]
        if missing:
            raise SchemaError(f"rename: there is no field {missing[0]!r}; the fields are {', '.join(values)}")
        result = {self.new_names.get(name, name): value for name, value in values.items()}
        if len(result) < len(values):
            twice = next(new for old, new in self.new_names.items() if new in values and new not in self.new_names)
            raise SchemaError(f"rename: there is a field {twice!r} already: give that one another name, too")
        return result

    def metadata(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """
        The names of classes under the new names of their fields.

        Those of the field "label" stand by themselves, as "classes".
        """
        classes = dict(metadata.get("field_classes") or {})
        if metadata.get("classes"):
            classes["label"] = metadata["classes"]
        classes = {self.new_names.get(name, name): names for name, names in classes.items()}
        others = {name: value for name, value in metadata.items() if name not in ("classes", "field_classes")}
        if "label" in classes:
            others["classes"] = classes.pop("label")
        return others | ({"field_classes": classes} if classes else {})


def _as_mapping(sample: Any) -> Mapping[str, Any]:
    if isinstance(sample, Mapping):
        return sample
    if isinstance(sample, tuple) and hasattr(sample, "_asdict"):
        named: Mapping[str, Any] = sample._asdict()
        return named
    raise SchemaError(f"rename: expected samples as dicts, got {type(sample).__name__}: name their values with fields=")


# Datasets of Hugging Face's ``datasets`` library: their features as fields, their pictures as the bytes they have.

_ROWS_READ = 64  # read at once
_ENCODED = ("Image", "Audio", "Video")  # features with decode=False
_TEXTS = ("string", "large_string", "string_view")
_BYTES = ("binary", "large_binary", "binary_view")
_NUMBERS: Final = frozenset(
    {"bool", "float16", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}
)

Columns = Mapping[str, str]  # the field's name for each column


def is_dataset(dataset: Any) -> bool:
    """
    Whether this is a ``datasets.Dataset`` or ``IterableDataset`` that describes its samples.

    One with a transform of the user's does not: what that returns is its own.
    """
    library = sys.modules.get("datasets")
    if library is None or not isinstance(dataset, (library.Dataset, library.IterableDataset)):
        return False
    custom = isinstance(dataset, library.Dataset) and dataset.format["type"] == "custom"
    return dataset.features is not None and not custom


def describe_features(dataset: Any) -> tuple[dict[str, FieldType], dict[str, Any], Columns]:
    """
    Return the fields' types by name, metadata with the names of classes, and which column is which field.

    Raises SchemaError for a feature that no type of fastio holds, and for names that become one.
    """
    chosen = set(dataset.format["columns"]) if hasattr(dataset, "format") else set(dataset.features)
    fields: dict[str, FieldType] = {}
    columns: dict[str, str] = {}
    classes: dict[str, list[str]] = {}
    for column, feature in dataset.features.items():
        if column not in chosen:
            continue
        name = field_name(column)
        if name in fields:
            other = next(other for other, field in columns.items() if field == name)
            raise SchemaError(f"columns {other!r} and {column!r} both become the field {name!r}: rename one of them")
        fields[name], columns[column] = _type_of(name, column, feature), name
        names = _class_names(feature)
        if names is not None:
            classes[name] = names
    metadata: dict[str, Any] = {"classes": classes.pop("label")} if "label" in classes else {}
    return fields, metadata | ({"field_classes": classes} if classes else {}), columns


def read_rows(
    dataset: Any, columns: Columns
) -> tuple[Callable[[Sequence[int]], Iterator[Any]], Callable[[], Iterator[Any]]]:
    """Return two functions: one yields the rows at some indices, the other all; pictures as ``{"bytes", "path"}``."""
    plain = dataset.with_format(None)
    for column in columns:
        encoded = _undecoded(dataset.features[column])
        if encoded is not None:
            plain = plain.cast_column(column, encoded)
    pairs = list(columns.items())

    def read(indices: Sequence[int]) -> Iterator[Any]:
        for start in range(0, len(indices), _ROWS_READ):
            part = list(indices[start : start + _ROWS_READ])
            is_run = part == list(range(part[0], part[0] + len(part)))
            rows = plain[part[0] : part[0] + len(part)] if is_run else plain[part]
            for values in zip(*(rows[column] for column, _ in pairs), strict=True):
                yield {name: value for (_, name), value in zip(pairs, values, strict=True)}

    def iterate() -> Iterator[Any]:
        for row in plain:
            yield {name: row[column] for column, name in pairs}

    return read, iterate


def _undecoded(feature: Any) -> Any:
    """Return the feature that gives files of pictures, sound or video as they are, also in lists; None for others."""
    library, kind = sys.modules["datasets"], type(feature).__name__
    if kind in _ENCODED:
        return getattr(library, kind)(decode=False)
    element = _element(feature)
    encoded = None if element is None else _undecoded(element)
    if encoded is None:
        return None
    return [encoded] if isinstance(feature, list) else type(feature)(encoded, length=getattr(feature, "length", -1))


def _element(feature: Any) -> Any:
    """Return the feature of the elements of a list; None for another."""
    if isinstance(feature, list) and len(feature) == 1:
        return feature[0]
    return feature.feature if type(feature).__name__ in ("List", "Sequence") else None


def field_name(column: str) -> str:
    """Return the name of the field that a column becomes: in small letters, with "_" for what a name cannot have."""
    name = re.sub(r"[^a-z0-9]+", "_", column.lower()).strip("_")
    return name if name and name[0].isalpha() else f"column_{name}".rstrip("_")


def _type_of(name: str, column: str, feature: Any) -> FieldType:
    kind = type(feature).__name__
    if kind == "Image":
        return "mask" if name == "mask" or name.endswith("_mask") else "image"
    if kind in _ENCODED:
        return "bytes"
    if kind == "ClassLabel":
        return "label"
    if kind == "Value":
        return _of_value(column, feature.dtype)
    if re.fullmatch(r"Array[2-5]D", kind):
        return (feature.dtype, tuple(feature.shape))
    if type(_element(feature)).__name__ in _ENCODED:
        return f"{_type_of(name, column, _element(feature))}[*]"
    if kind in ("List", "LargeList", "Sequence") or (isinstance(feature, list) and len(feature) == 1):
        return _of_list(feature) or "json"
    if isinstance(feature, Mapping) or kind in ("Translation", "TranslationVariableLanguages", "Json"):
        return "json"
    raise _unknown(column, kind)


def _of_value(column: str, dtype: str) -> FieldType:
    if dtype in _TEXTS:
        return "text"
    if dtype in _BYTES:
        return "bytes"
    if dtype not in _NUMBERS:
        raise _unknown(column, dtype)
    return dtype


def _of_list(feature: Any) -> FieldType | None:
    """An array of numbers, with the sizes that the features fix; None for lists of anything else, or ragged inside."""
    shape: list[int | None] = []
    while type(feature).__name__ in ("List", "LargeList", "Sequence") or isinstance(feature, list):
        length = -1 if isinstance(feature, list) else getattr(feature, "length", -1)
        shape.append(length if length is not None and length >= 0 else None)
        feature = feature[0] if isinstance(feature, list) else feature.feature
    dtype = "int64" if type(feature).__name__ == "ClassLabel" else getattr(feature, "dtype", "")
    if dtype not in _NUMBERS or None in shape[1:]:
        return None
    return (dtype, tuple(shape))


def _class_names(feature: Any) -> list[str] | None:
    while type(feature).__name__ in ("List", "LargeList", "Sequence"):
        return None  # rows of numbers, whose classes no column has
    return list(feature.names) if type(feature).__name__ == "ClassLabel" and feature.names else None


def _unknown(column: str, what: str) -> SchemaError:
    return SchemaError(
        f"column {column!r}: no field holds the feature {what}: convert it, or leave it out with "
        f"dataset.remove_columns({column!r})"
    )
