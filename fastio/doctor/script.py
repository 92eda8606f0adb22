"""Collects what lines to paste are made of: a loader's arguments, names in the user's script, files, transforms."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, Subset, default_collate

from fastio.doctor.data_files import DataFiles, data_files
from fastio.doctor.facts import ScriptFacts
from fastio.doctor.recipe import code_of, output_dtype, output_sizes, recipe_of
from fastio.doctor.scope import names_of
from fastio.doctor.transform_timers import WHOLE_PICTURE, step_name, steps_of, transform_of
from fastio.transforms import Compiled

__all__ = ["Form", "batch_form", "bound_arguments", "fast_loader_script", "names_at_loop", "script_of"]

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
