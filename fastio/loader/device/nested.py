"""Batches as users nest them: their tensors, and which entries are the pictures and the label."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastio.lazy import is_tensor, torch, torch_class
from fastio.store.index.seal import counts_name

__all__ = [
    "BatchRoles",
    "held_tensors",
    "map_tensors",
    "sample_count",
    "tensors",
]


# Batches may hold thousands of these: captions, keys, boxes. Checking each for being a mapping would take most of the
# time.
_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})


def map_tensors(function: Callable[[Any], Any], batch: Any, *, arrays: bool = False) -> Any:
    """
    Return a batch of the same form with each tensor replaced, in the order of ``tensors``; the rest is unchanged.

    The ``batch_sizes`` of a PackedSequence belong on the CPU and also stay. With ``arrays``, NumPy's take the place of
    tensors.
    """
    if isinstance(batch, np.ndarray) if arrays else is_tensor(batch):
        return function(batch)
    if type(batch) in _PLAIN:
        return batch
    if isinstance(batch, torch_class("nn.utils.rnn.PackedSequence")):
        data, sizes, *orders = batch
        return type(batch)(function(data), sizes, *(None if order is None else function(order) for order in orders))
    if isinstance(batch, Mapping):
        return _like(batch, {key: map_tensors(function, value, arrays=arrays) for key, value in batch.items()})
    if isinstance(batch, (list, tuple)):
        parts = [map_tensors(function, part, arrays=arrays) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        names = [field.name for field in dataclasses.fields(batch) if field.init]
        values = {name: map_tensors(function, getattr(batch, name), arrays=arrays) for name in names}
        return dataclasses.replace(batch, **values)
    return batch


def tensors(batch: Any, *, arrays: bool = False) -> list[torch.Tensor]:
    """Return all tensors, or arrays, that ``map_tensors`` would replace."""
    found: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    map_tensors(note, batch, arrays=arrays)
    return found


def held_tensors(batch: Any, *, levels: int = 2) -> list[torch.Tensor]:
    """
    Return all tensors that ``map_tensors`` would replace, and those in attributes of objects of unknown form.

    Such objects are searched ``levels`` deep.
    """
    if is_tensor(batch):
        return [batch]
    if type(batch) in _PLAIN:
        return []
    parts: list[Any] = []
    if isinstance(batch, Mapping):
        parts += batch.values()
    elif isinstance(batch, (list, tuple)):
        parts += batch
    found = [tensor for part in parts for tensor in held_tensors(part, levels=levels)]
    if levels == 0 or callable(batch):  # classes, functions and networks are not batches
        return found
    return found + [tensor for part in _attributes(batch) for tensor in held_tensors(part, levels=levels - 1)]


def _attributes(thing: Any) -> list[Any]:
    slots = [name for kind in type(thing).__mro__ for name in kind.__dict__.get("__slots__", ())]
    return [*getattr(thing, "__dict__", {}).values(), *(getattr(thing, name) for name in slots if hasattr(thing, name))]


def sample_count(batch: Any) -> int:
    """Return the number of samples in a batch: the length of its first tensor; 0 without any."""
    for tensor in tensors(batch):
        return len(tensor) if tensor.ndim else 1
    return 0


def _like(batch: Mapping[Any, Any], values: dict[Any, Any]) -> Mapping[Any, Any]:
    if type(batch) is dict or not isinstance(batch, MutableMapping):
        return values
    filled = copy.copy(batch)  # an OrderedDict, a defaultdict, a user's own class
    filled.update(values)
    return filled


# BatchRoles: which entries of a batch are its pictures and its label, for the transforms of batches.


@dataclass(frozen=True, slots=True)
class BatchRoles:
    """
    The keys of a dict, or positions in a tuple, of all pictures, and of the label (None: there is none).

    Transforms of batches change these and nothing else; of pictures that were cut, their ``patches``, and of those of
    lists in a tuple, which come with their counts, the pictures. With ``views``, the pictures of each key are a list of
    tensors; a key of None is the batch itself.
    """

    pictures: tuple[str | int | None, ...]
    label: str | int | None
    views: bool = False
    is_apart: bool = False  # each of these pictures has transforms of its own
    listed: tuple[bool, ...] = ()  # which of these pictures are those of lists, if some are

    def counts(self, batch: Any) -> list[np.ndarray[Any, Any] | None]:
        """Return for each picture how many each sample of a batch on the host has, ``(B,)``; None if it has one."""
        found: list[np.ndarray[Any, Any] | None] = []
        for key, is_list in zip(self.pictures, self.listed or (False,) * len(self.pictures), strict=True):
            if not is_list:
                found.append(None)
            elif isinstance(key, str):
                found.append(np.asarray(batch[counts_name(key)]))
            else:
                found.append(np.asarray((batch if key is None else batch[key])[1]))
        return found

    def groups(self, batch: Any, parts: Sequence[torch.Tensor]) -> list[list[int]]:
        """
        Return for each picture its position among ``parts``, the tensors of the batch, and then that of the label; for
        views, the positions of the views alone.
        """
        positions = {id(part): position for position, part in enumerate(parts)}
        label = [] if self.label is None else [positions[id(batch[self.label])]]
        values = [batch if key is None else batch[key] for key in self.pictures]
        values = [value["patches"] if isinstance(value, Mapping) else value for value in values]
        values = [value[0] if isinstance(value, tuple) else value for value in values]
        if self.views:
            return [[positions[id(view)]] for views in values for view in views]
        return [[positions[id(value)], *label] for value in values]
