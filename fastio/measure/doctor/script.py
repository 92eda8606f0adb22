"""Collects what lines to paste are made of: a loader's arguments, names in the user's script, files, transforms."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path, PurePath
from types import FrameType
from typing import Any, Literal

import torch
from PIL import Image
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, Subset, default_collate

from fastio.converters.labels.file import LABEL_SUFFIXES
from fastio.converters.pictures.jumps import evenly_spaced
from fastio.dataset.fast_dataset import FastDataset
from fastio.errors import SourceError
from fastio.measure.doctor.facts import ScriptFacts
from fastio.measure.doctor.recipe import code_of, is_of_pixels, output_dtype, output_sizes, recipe_of
from fastio.measure.doctor.transform_timers import WHOLE_PICTURE, step_name, steps_of, transform_of
from fastio.measure.loop.user_code import is_users_code
from fastio.store.beside.joined import BesideStore
from fastio.store.files.local import is_local
from fastio.store.index.views import SelectedStore
from fastio.store.kinds.recognise import recognise
from fastio.transforms import Compiled
from fastio.types.picture_kinds import kind_by_name

__all__ = [
    "DataFiles",
    "Form",
    "batch_form",
    "bound_arguments",
    "data_files",
    "data_path",
    "fast_loader_script",
    "names_at_loop",
    "script_of",
]


Form = tuple[tuple[str, tuple[int, ...]], ...]


def names_at_loop(loader: Any) -> dict[str, str]:
    """Return the names of this DataLoader and its parts, where the loop over it begins."""
    if not isinstance(loader, DataLoader):
        return names_of({"loader": loader})
    dataset = loader.dataset
    _, _, transform = transform_of(dataset)
    return names_of(
        {
            "loader": loader,
            "dataset": dataset,
            "transform": transform,
            "collate_fn": loader.collate_fn,
            "sampler": loader.sampler,
            "batch_sampler": loader.batch_sampler,
        }
    )


def batch_form(batch: Any) -> Form | None:
    """Return type and shape of each tensor in a batch that is a tuple or list of tensors; None for others."""
    if not isinstance(batch, (list, tuple)) or not all(isinstance(part, torch.Tensor) for part in batch):
        return None
    return tuple((str(part.dtype).removeprefix("torch."), tuple(part.shape)) for part in batch)


def script_of(
    loader: DataLoader[Any], names: Mapping[str, str], form: Form | None, transform_input: str | None
) -> ScriptFacts:
    """
    Return the script's facts for a DataLoader: ``names`` of its parts, and ``form`` of its first batch.

    ``transform_input`` is what its dataset's transform was called with, as in TransformTimers.
    """
    dataset = _innermost(loader.dataset)
    files = data_files(dataset)
    holder, attribute, transform = transform_of(loader.dataset)
    steps = [step for step, _ in steps_of(transform)] or ([] if transform is None else [transform])
    recipe, unknown = recipe_of(steps)
    if files is None or not _is_all(loader, recipe, form, files):
        recipe = None
    is_shuffled = isinstance(loader.sampler, RandomSampler)
    is_own_sampler = not is_shuffled and not isinstance(loader.sampler, SequentialSampler)
    return ScriptFacts(
        loader=names.get("loader"),
        dataset=names.get("dataset") or _of_loader(names, "dataset"),
        transform=_transform(loader, names, holder, attribute) if transform_input == WHOLE_PICTURE else None,
        collate_fn=None if loader.collate_fn is default_collate else _named(names, "collate_fn"),
        sampler=_named(names, "sampler") if is_own_sampler and loader.batch_size is not None else None,
        batch_sampler=_named(names, "batch_sampler") if loader.batch_size is None else None,
        shuffle=is_shuffled,
        drop_last=bool(loader.drop_last),
        recipe=None if recipe is None else tuple(map(code_of, recipe)),
        unknown_steps=tuple(map(step_name, unknown)),
        pixel_steps=tuple(step_name(step) for step in steps if is_of_pixels(step)),
        packed=_packed(loader, names, dataset),
        subset=_subset(loader, names, files),
        is_part=isinstance(loader.dataset, Subset),
        gives_pairs=form is not None and [len(shape) for _, shape in form] == [4, 1],
        data_kind=None if files is None else files.kind,
        is_flat=files is not None and files.is_flat,
        labels_path=None if files is None else files.labels,
        reads=_reads(dataset),
    )


def fast_loader_script(arguments: Mapping[str, Any], name: str | None) -> ScriptFacts:
    """Return the script's facts for a FastLoader: the ``arguments`` of its call by name, and its variable ``name``."""
    passed = []
    for key, value in arguments.items():
        is_dataset = key == "dataset" and hasattr(value, "store")
        if is_dataset and isinstance(value.store, BesideStore):  # which no path stands for
            return ScriptFacts(loader=name)
        text = _literal(str(value.store.path) if is_dataset else value)
        if text is None:
            return ScriptFacts(loader=name)
        passed.append((key, text))
    return ScriptFacts(loader=name, arguments=tuple(passed))


def _is_all(loader: DataLoader[Any], recipe: Any, form: Form | None, files: DataFiles) -> bool:
    """
    Return whether FastLoader with these transforms gives what the loop got: pictures and labels of this type and
    shape.

    What a dataset does besides its transform, such as a crop, shows in the batch.
    """
    if recipe is None or form is None or len(form) != 2 or files.kind != "pictures" or not files.sizes:
        return False
    if loader.batch_size is None or not isinstance(loader.sampler, (RandomSampler, SequentialSampler)):
        return False
    is_known_part = not isinstance(loader.dataset, Subset) or (
        files.is_sorted and not isinstance(loader.dataset.dataset, Subset)
    )
    if loader.collate_fn is not default_collate or not is_known_part:
        return False
    if getattr(_innermost(loader.dataset), "target_transform", None) is not None:
        return False
    (pixels, shape), (label, labels) = form
    if len(shape) != 4 or len(labels) != 1 or label != "int64" or pixels != output_dtype(recipe):
        return False
    channels = (
        1
        if any(type(transform).__name__ == "Grayscale" and transform.num_output_channels == 1 for transform in recipe)
        else 3
    )
    try:
        sizes = output_sizes(recipe, files.sizes)
    except (ValueError, TypeError):
        return False
    return shape[1] == channels and {(shape[2], shape[3])} == sizes


def _innermost(dataset: Any) -> Any:
    """Return the dataset behind Subsets."""
    while hasattr(dataset, "dataset") and hasattr(dataset, "indices"):
        dataset = dataset.dataset
    return dataset


def _of_loader(names: Mapping[str, str], attribute: str) -> str:
    """Return an expression through the loader, which is called ``loader`` if its name is unknown."""
    return f"{names.get('loader', 'loader')}.{attribute}"


def _named(names: Mapping[str, str], part: str) -> str:
    return names.get(part) or _of_loader(names, part)


def _transform(loader: DataLoader[Any], names: Mapping[str, str], holder: Any, attribute: str) -> str | None:
    """Return an expression for the dataset's transform."""
    if holder is None or isinstance(getattr(holder, attribute), (list, tuple)):
        return None
    if "transform" in names:
        return names["transform"]
    path = names.get("dataset") or _of_loader(names, "dataset")
    dataset = loader.dataset
    while dataset is not holder:
        dataset, path = dataset.dataset, f"{path}.dataset"  # type: ignore[attr-defined] # transform_of went this way
    return f"{path}.{attribute}"


def _subset(loader: DataLoader[Any], names: Mapping[str, str], files: DataFiles | None) -> str | None:
    """Return an expression for the indices of a Subset, if the dataset lists its files in the order of a store."""
    is_one = isinstance(loader.dataset, Subset) and not isinstance(loader.dataset.dataset, Subset)
    if not is_one or files is None or not files.is_sorted:
        return None
    return f"{names.get('dataset') or _of_loader(names, 'dataset')}.indices"


def _packed(loader: DataLoader[Any], names: Mapping[str, str], dataset: Any) -> str | None:
    """Return an expression for what FastLoader reads in the place of a FastDataset that has a transform."""
    if not isinstance(dataset, FastDataset):
        return None
    if is_local(dataset.store.path) and not isinstance(dataset.store, (SelectedStore, BesideStore)):
        return json.dumps(dataset.store.path, ensure_ascii=False)
    behind = ".dataset" if isinstance(loader.dataset, Subset) else ""
    fields = "" if dataset.fields is None else f", fields={dataset.fields!r}"
    return f"FastDataset({names.get('dataset') or _of_loader(names, 'dataset')}{behind}.store{fields})"


def _reads(dataset: Any) -> str | None:
    """Return the position of the dataset's ``__getitem__``."""
    method: Callable[..., Any] | None = getattr(type(dataset), "__getitem__", None)
    code = getattr(method, "__code__", None)
    if code is None or method is None:
        return None
    return f"{method.__qualname__.rpartition('.<locals>.')[2]} ({Path(code.co_filename).name}:{code.co_firstlineno})"


def _literal(value: Any) -> str | None:
    """Return Python code for an argument; None if only a name in the script could stand for it."""
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, (str, Path, torch.device)):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, (list, tuple)):
        inside = list(_literals(value))
        return None if None in inside else f"[{', '.join(map(str, inside))}]"
    is_ours = type(value).__module__.startswith("fastio.transforms.") and not isinstance(value, Compiled)
    return code_of(value) if is_ours else None


def _literals(values: Any) -> Iterator[str | None]:
    return map(_literal, values)


def bound_arguments(
    function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by name, without self."""
    bound = inspect.signature(function).bind(*arguments, **named).arguments
    return dict(list(bound.items())[1:])


# Finds the names of objects in the user's own code, where the loop that uses them stands.


def names_of(values: Mapping[str, object]) -> dict[str, str]:
    """
    Return the variable that holds each value, by key, in the nearest calling frame of the user that has one.

    Values without a name there, and None, are left out.
    """
    wanted = {id(value): key for key, value in values.items() if value is not None}
    names: dict[str, str] = {}
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(names) < len(wanted):
        if is_users_code(frame.f_code.co_filename, str(frame.f_globals.get("__name__"))):
            for scope in (frame.f_locals, frame.f_globals):
                for name, value in list(scope.items()):
                    key = wanted.get(id(value))
                    if key is not None and name.isidentifier() and not name.startswith("__"):
                        names.setdefault(key, name)
        frame = frame.f_back
    return names


# Finds the files that a dataset reads from its attributes: where they are, what they are, and their sizes.

_MOST_PATHS = 1000  # files of a list that are examined, evenly spread
_MOST_NAMES = 500  # files counted in folders
_PICTURES = 16  # pictures whose headers are read


@dataclass(frozen=True, slots=True)
class DataFiles:
    """
    What a dataset reads: ``path``, an existing folder or file, and the ``kind`` of its content.

    ``is_flat`` means that pictures lie directly in that folder, so that no folder names their class. ``labels`` is a
    file of labels that the dataset names, or that lies beside the pictures. ``is_sorted`` means that the dataset
    lists its files in the order of their paths. ``sizes`` are width and height of some pictures.
    """

    path: str
    kind: Literal["pictures", "text"] | None = None
    is_flat: bool = False
    labels: str | None = None
    is_sorted: bool = False
    sizes: tuple[tuple[int, int], ...] = ()


def data_path(dataset: Any) -> str | None:
    """
    Return the folder or file that holds the dataset: one that an attribute names, or the common path of the files it
    lists.

    Returns None if no attribute tells.
    """
    store = getattr(dataset, "store", None)
    values = [getattr(store, "path", None), *_attributes(dataset)]
    named = [str(value) for value in values if _is_path(value) and os.path.exists(value)]  # noqa: PTH110 - see _is_path
    named.sort(key=_is_table)  # this may be the data, or only the labels of what another attribute names
    if named:
        return named[0]
    listed = _listed(dataset)
    if not listed:
        return None
    root = os.path.commonpath([os.path.dirname(path) or "." for path in listed])  # noqa: PTH120 - many, as text
    return None if root in ("/", "") else root


def data_files(dataset: Any) -> DataFiles | None:
    """Return what is known about the dataset's files; None without a path."""
    if isinstance(dataset, FastDataset):
        return _packed_files(dataset)
    path = data_path(dataset)
    if path is None:
        return None
    labels = _labels(dataset, path)
    listed = _listed(dataset)
    if _is_text(path):
        return DataFiles(path, "text", labels=labels)
    pictures = [file for file in listed or islice(_files_below(path), _MOST_NAMES) if kind_by_name(file)]
    if not pictures:
        return DataFiles(path, labels=labels)
    return DataFiles(
        path,
        "pictures",
        is_flat=all(Path(file).parent == Path(path) for file in pictures),
        labels=labels,
        is_sorted=bool(listed) and _is_sorted(_paths(_list(dataset))),
        sizes=tuple(_sizes(pictures)),
    )


def _packed_files(dataset: FastDataset) -> DataFiles:
    """Return what a packed store has, if samples are its pictures, each with a label."""
    path = dataset.store.path
    if dataset.makes_samples or dataset.form.kind != "pair" or not dataset.reader.is_picture or not len(dataset):
        return DataFiles(path)
    sizes = dataset.sizes()[evenly_spaced(len(dataset), _PICTURES)]
    return DataFiles(
        path,
        "pictures",
        is_sorted=True,
        sizes=tuple((width, height) for height, width in sizes.tolist() if height and width),
    )


def _is_text(path: str) -> bool:
    try:
        return recognise(path).is_text
    except SourceError:
        return False


def _labels(dataset: Any, path: str) -> str | None:
    """Return a file of labels that the dataset names, or else the only one in the folder of its files or above it."""
    named = [str(value) for value in _attributes(dataset) if _is_path(value) and _is_table(str(value))]
    beside = [name for name in (*_names(Path(path)), *_names(Path(path).parent)) if _is_table(name)]
    files = [name for name in named if name != path and os.path.isfile(name)]  # noqa: PTH113 - see _is_path
    if files:
        return files[0]
    return beside[0] if len(beside) == 1 and beside[0] != path else None


def _names(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return [entry.path for entry in islice(entries, _MOST_NAMES) if entry.is_file()]


def _attributes(dataset: Any) -> list[Any]:
    return list(vars(dataset).values()) if hasattr(dataset, "__dict__") else []


def _is_table(path: str) -> bool:
    return path.lower().endswith(LABEL_SUFFIXES)


def _is_path(value: Any) -> bool:
    """Return whether the value may name a file; a text may be too long a name for pathlib."""
    return isinstance(value, (str, os.PathLike)) and bool(str(value)) and "\0" not in str(value)


def _list(dataset: Any) -> Sequence[Any]:
    """Return the first list of files among the attributes: paths, or pairs as in ImageFolder; empty without one."""
    for value in _attributes(dataset):
        if not isinstance(value, (list, tuple)) or not value:
            continue
        chosen = list(_paths(value[:: max(1, len(value) // _MOST_PATHS)]))
        if all(map(_is_path, chosen)) and os.path.isfile(chosen[0]):  # noqa: PTH113 - see _is_path
            return value
    return ()


def _listed(dataset: Any) -> list[str]:
    """Return some of the files that the dataset lists."""
    value = _list(dataset)
    return [os.fspath(path) for path in _paths(value[:: max(1, len(value) // _MOST_PATHS)])]


def _paths(listed: Sequence[Any]) -> Iterator[Any]:
    return (entry[0] if isinstance(entry, (list, tuple)) and entry else entry for entry in listed)


def _is_sorted(paths: Iterable[Any]) -> bool:
    """
    Return whether all paths come in the order of a store: classes, then folders, then names.

    This may differ from the order of the paths as text ("a-b/1" < "a/1"); a dataset sorted that way is not
    recognised.
    """
    pairs = pairwise(os.fspath(path) for path in paths if _is_path(path))
    return all(
        one < other and os.path.split(one) < os.path.split(other) and PurePath(one).parts < PurePath(other).parts
        for one, other in pairs
    )


def _files_below(folder: str) -> Iterator[str]:
    """Yield the files in the folder and below it, the folder's own first."""
    if not Path(folder).is_dir():
        return
    below = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                below.append(entry.path)
            else:
                yield entry.path
    for subfolder in below:
        yield from _files_below(subfolder)


def _sizes(pictures: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the sizes of some pictures from their headers; pictures that Pillow cannot open are left out."""
    for path in pictures[:: max(1, len(pictures) // _PICTURES)][:_PICTURES]:
        try:
            with Image.open(path) as image:
                yield image.size
        except (OSError, ValueError, SyntaxError):
            continue
