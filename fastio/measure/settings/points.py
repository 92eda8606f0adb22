"""The points of a grid: which settings a loader has, which values to try here, and the loader of a point."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader

from fastio.dataset.fast_dataset import FastDataset
from fastio.errors import FastioError
from fastio.loader.fast_loader import FastLoader
from fastio.machine import available_cpus, available_memory
from fastio.measure.loop.batch import size_bytes
from fastio.measure.loop.data import DataOptions, FolderDataset, folder_loader, is_picture_folder, refuse_options
from fastio.measure.loop.user_code import is_function_name, load_function
from fastio.store.files.local import is_local
from fastio.transforms import Compose

__all__ = ["GridData", "Point", "Value", "numbers_up_to"]

Value = bool | int
# Prefetched batches may take this share of the free memory.
_MEMORY_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Point:
    """One setting of a loader over ``data``: pairs of argument and value, in the order of the signature."""

    data: str
    settings: tuple[tuple[str, Value], ...]

    def get(self, name: str, default: Value) -> Value:
        """Return the value of an argument, or ``default`` if it is not set."""
        return dict(self.settings).get(name, default)

    @property
    def batches_ahead(self) -> int:
        """Batches in memory besides the loop's own."""
        if "threads" in dict(self.settings):
            return int(self.get("prefetch_batches", 4)) + 1
        return int(self.get("num_workers", 0)) * int(self.get("prefetch_factor", 2))

    @property
    def cost(self) -> tuple[int, int]:
        """The cost by which the cheaper of two equally fast points is chosen: CPUs, then batches in memory."""
        return int(self.get("threads", self.get("num_workers", 0))), self.batches_ahead


class GridData:
    """
    DATA of a grid: a store is read by FastLoader, anything else by torch's DataLoader.

    A function returns a map-style dataset here, because the loader is what is searched for.
    """

    def __init__(self, name: str, options: DataOptions) -> None:
        self.name = name
        self.options = options
        self.kind: Literal["store", "folder", "function"]
        self.dataset: Any
        if is_function_name(name) and not Path(name).exists():
            self.kind, self.dataset = "function", _users_dataset(name)
        elif is_picture_folder(name):
            transform = Compose(options.transforms) if options.transforms else None
            self.kind, self.dataset = "folder", FolderDataset(name, transform)
        else:
            self.kind, self.dataset = "store", options.dataset(name)
            return
        refuse_options(name, "because only a store has fields", options, ("fields",))

    @property
    def batches(self) -> int:
        """Batches in an epoch, including the last one."""
        return -(-len(self.dataset) // self.options.batch_size)

    @cached_property
    def batch_bytes(self) -> int:
        """The bytes of the first batch."""
        cheapest: dict[str, Value] = {"threads": 1} if self.kind == "store" else {"num_workers": 0}
        with self.loader(Point(self.name, tuple(cheapest.items()))) as loader:
            for batch in loader:
                return size_bytes(batch)
        raise FastioError(f"{self.name}: holds no sample: nothing to measure")

    def values(self) -> dict[str, tuple[Value, ...]]:
        """
        Return the settings, and the values worth trying on this machine.

        CPUs are those that this process may use. ``pin_memory`` and ``non_blocking`` matter only with CUDA.
        """
        counts = numbers_up_to(available_cpus())
        if self.kind == "store":
            return {"threads": counts, "prefetch_batches": (2, 4, 8), "shuffle": (False, True)}
        with_cuda: dict[str, tuple[Value, ...]] = {}
        if torch.cuda.is_available():
            with_cuda = {"pin_memory": (False, True), "non_blocking": (False, True)}
        return {
            "num_workers": (0, *counts),
            **with_cuda,
            "drop_last": (False, True),
            "prefetch_factor": (2, 4),
            "persistent_workers": (False, True),
        }

    def points(self, values: Mapping[str, Iterable[Value]]) -> list[Point]:
        """
        Return all useful combinations, without those that would fill more than a quarter of the free memory.

        Raises FastioError for more threads or workers than there are CPUs, and if no point is left.
        """
        cpus = available_cpus()
        for name in ("threads", "num_workers"):
            if max(values.get(name, (0,)), default=0) > cpus:
                raise FastioError(f"{name}={max(values[name])}: this process may use only {cpus} CPUs: try fewer")
        every = (tuple(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values()))
        points = dict.fromkeys(Point(self.name, _sensible(settings)) for settings in every)
        room = available_memory() * _MEMORY_SHARE
        has_batch = len(self.dataset) >= self.options.batch_size  # otherwise drop_last would leave nothing to load
        fitting = [
            point
            for point in points
            if point.batches_ahead * self.batch_bytes <= room and (has_batch or not point.get("drop_last", False))
        ]
        if not fitting:
            raise FastioError(
                f"{self.name}: a batch takes {self.batch_bytes:,} B but only {int(room):,} B may be filled: pass a "
                "smaller --batch-size"
            )
        return fitting

    @contextmanager
    def loader(self, point: Point) -> Iterator[Iterable[Any]]:
        """Yield the point's loader; its threads or processes end with the context."""
        settings: dict[str, Any] = {name: value for name, value in point.settings if name != "non_blocking"}
        options = self.options
        if self.kind == "store":
            settings.setdefault("shuffle", options.shuffle)
            with FastLoader(self.dataset, options.batch_size, transforms=options.transforms, **settings) as ours:
                yield ours
            return
        if isinstance(self.dataset, FolderDataset):
            yield folder_loader(self.dataset, options.batch_size, shuffle=options.shuffle, settings=settings)
        else:
            yield DataLoader(self.dataset, options.batch_size, shuffle=options.shuffle, **settings)

    def code(self, point: Point) -> str:
        """
        Return Python code that builds the point's loader as ``loader``, with imports; run it where fastio was called.

        Secrets among the storage options are "***".
        """
        settings: dict[str, Any] = {"batch_size": self.options.batch_size}
        if self.options.shuffle and "shuffle" not in dict(point.settings):
            settings["shuffle"] = True
        settings |= {name: value for name, value in point.settings if name != "non_blocking"}
        arguments = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        names = sorted({type(step).__name__ for step in self.options.transforms})
        crop = [f"from fastio.transforms import {', '.join((['Compose'] if self.kind == 'folder' else []) + names)}"]
        crop = crop if names else []
        if self.kind == "store":
            steps = f", transforms={self.options.transforms!r}" if names else ""
            data = self._store_code()
            names = [name for name in ("FastDataset", "FastLoader", "Remote") if f"{name}(" in f"FastLoader({data}"]
            lines = [f"from fastio import {', '.join(names)}", *crop, ""]
            return "\n".join([*lines, f"loader = FastLoader({data}, {arguments}{steps})"])
        if self.kind == "folder":
            steps = f", Compose({self.options.transforms!r})" if names else ""
            ours = "from fastio.measure.loop.data import FolderDataset  # or your own dataset"
            dataset, lines = f"FolderDataset({self.name!r}{steps})", [ours, *crop]
        else:
            module, _, function = self.name.rpartition(":")
            folder, _, module = module.removesuffix(".py").rpartition("/")
            path = ["import sys", f"sys.path.insert(0, {folder!r})"] if folder else []
            dataset, lines = f"{function}()", [*path, f"from {module} import {function}"]
        lines = ["from torch.utils.data import DataLoader", *lines, ""]
        return "\n".join([*lines, f"loader = DataLoader({dataset}, {arguments})"])

    def _store_code(self) -> str:
        """Return the argument of FastLoader: the path, or a FastDataset with the fields and options of requests."""
        chosen = self.options.dataset_fields
        arguments = "" if chosen is None else f", fields={chosen!r}"
        given = {} if is_local(self.name) else self.options.remote.shown()
        if given:
            arguments += f", remote=Remote({', '.join(f'{name}={value!r}' for name, value in given.items())})"
        return f"FastDataset({self.name!r}{arguments})" if arguments else repr(self.name)

    def close(self) -> None:
        """Release the store; calling it twice is harmless."""
        if isinstance(self.dataset, FastDataset):
            self.dataset.close()


def numbers_up_to(most: int) -> tuple[int, ...]:
    """
    Return 1, 2, 4, 8, ... and the number itself.

    >>> numbers_up_to(6)
    (1, 2, 4, 6)
    """
    powers = itertools.takewhile(lambda power: power < most, (1 << bit for bit in itertools.count()))
    return (*powers, most)


def _sensible(settings: tuple[tuple[str, Value], ...]) -> tuple[tuple[str, Value], ...]:
    """Drop settings without effect: without workers, none can persist or prefetch."""
    if dict(settings).get("num_workers") == 0:
        return tuple((n, value) for n, value in settings if n not in ("prefetch_factor", "persistent_workers"))
    return settings


def _users_dataset(name: str) -> Any:
    dataset = load_function(name, what="returns a dataset with __getitem__ and __len__")()
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__") or isinstance(dataset, (tuple, list)):
        raise FastioError(
            f"{name} returned {type(dataset).__name__}; expected a dataset with __getitem__ and __len__, for "
            "which to choose a DataLoader"
        )
    return dataset
