"""Watches the loaders of an unchanged training: each wait for a batch is timed, and marks a step."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from torch.profiler import record_function
from torch.utils.data import DataLoader, dataloader

from fastio.loader.fast_loader import FastLoader
from fastio.loader.prefetch import DevicePrefetcher
from fastio.measure.doctor.probe import (
    RunQueue,
    Wait,
    WorkerStart,
    fetchers_write_to,
    leave_process,
    sampler_of_this_thread,
)
from fastio.measure.doctor.script import Form, batch_form, bound_arguments, names_at_loop
from fastio.measure.loop.batch import next_batch, sample_count, size_bytes
from fastio.measure.loop.step_timer import StepTimer
from fastio.measure.trace.trace import LOADER_PREFIX

__all__ = [
    "Listener",
    "LoaderWatch",
    "Watcher",
]


_ITERATOR: Any = (
    dataloader._BaseDataLoaderIter
)  # the base of all iterators of torch's DataLoader; it has no public name


@dataclass(eq=False)
class LoaderWatch:
    """
    One loader of the training. ``timer`` counts its steps, and may be replaced between two of them.

    ``is_training`` means that an optimizer ran in one of its steps. ``waited_s`` is all waiting so far, of which the
    loop's own thread computed for ``own_cpu_s`` and waited for a CPU for ``queued_s``. ``batch_bytes`` is the size of
    its first batch, ``form`` its types and shapes. ``epochs`` have begun. ``names`` are those of the loader and its
    parts in the user's code, ``arguments`` those of a FastLoader's call. ``waits`` are lines of code at which its
    iterator was seen waiting, for a loader that is neither torch's nor fastio's. ``inner`` is the DataLoader that
    this one takes its batches from.
    """

    loader: Any
    number: int
    timer: StepTimer = field(default_factory=StepTimer)
    is_training: bool = False
    waited_s: float = 0.0
    own_cpu_s: float = 0.0
    queued_s: float = 0.0
    batch_bytes: int | None = None
    inner: LoaderWatch | None = None
    is_in_step: bool = False
    epochs: int = 0
    names: dict[str, str] | None = None
    form: Form | None = None
    arguments: dict[str, Any] | None = None
    waits: Counter[Wait] = field(default_factory=Counter)


class Listener(Protocol):
    """Is told about steps of loaders."""

    def step_ended(self, watch: LoaderWatch) -> None:
        """
        Called when a step of the loop over this loader has ended, before the next wait. An exception here ends the
        loop.
        """


class Watcher:
    """
    As a context, tells the listener about iterations over a DataLoader, a FastLoader or a DevicePrefetcher.

    Only in the thread that created it: the loop does not wait for what other threads wait for.
    """

    def __init__(self, listener: Listener, folder: Path) -> None:
        self.current: LoaderWatch | None = None  # the loader whose batch the loop uses now
        self.watches: list[LoaderWatch] = []
        self._listener = listener
        self._folder = folder
        self._known: WeakKeyDictionary[Any, LoaderWatch] = WeakKeyDictionary()
        self._arguments: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
        self._of_iterator: WeakKeyDictionary[Any, LoaderWatch] = WeakKeyDictionary()
        self._waiting: LoaderWatch | None = None  # the loader whose batch is waited for
        self._beginning: Any = None  # the DataLoader that is creating its iterator
        self._thread = threading.get_ident()
        self._sampler = sampler_of_this_thread()
        self._queue = RunQueue()
        self._patches = ExitStack()

    def __enter__(self) -> Watcher:
        self._patches.callback(leave_process)
        self._watch_kinds()
        self._replace(_ITERATOR, "__next__", self._advanced)
        for kind in (FastLoader, DevicePrefetcher):
            self._replace(kind, "__iter__", self._wrapped)
        self._replace(FastLoader, "__init__", self._called)
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    def _watch_kinds(self) -> None:
        """Watch DataLoader and its subclasses, present and future, that have an ``__iter__`` of their own."""
        for kind in _and_subclasses(DataLoader):
            if "__iter__" in vars(kind):
                self._replace(kind, "__iter__", self._iterated)

        def made(kind: type[Any], /, **named: Any) -> None:
            super(DataLoader, kind).__init_subclass__(**named)  # type: ignore[misc] # kind is below DataLoader
            if "__iter__" in vars(kind):
                self._replace(kind, "__iter__", self._iterated)

        DataLoader.__init_subclass__ = classmethod(made)  # type: ignore[assignment, method-assign] # taken away again
        self._patches.callback(delattr, DataLoader, "__init_subclass__")

    def watched(self, loader: Iterable[Any]) -> Iterable[Any]:
        """Return an iterable whose iteration is watched; those that are watched anyway are returned unchanged."""
        if isinstance(loader, (DataLoader, FastLoader, DevicePrefetcher)):
            return loader
        return _Watched(self, loader)

    def _replace(self, kind: Any, name: str, put: Callable[[Any], Any]) -> None:
        """Replace a class's own method until the context ends."""
        original = getattr(kind, name)
        self._patches.callback(setattr, kind, name, original)
        setattr(kind, name, put(original))

    def _iterated(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """
        Wrap ``__iter__`` of a DataLoader: what its iterator does counts for this loader.

        A subclass may call that of its base, which then is part of its own, or be a generator that does so later.
        """

        def iterate(loader: Any) -> Any:
            if self._beginning is loader:
                return original(loader)
            watch = self.watch(loader)
            if watch.names is None:
                watch.names = names_at_loop(loader)
            is_outermost = self._is_outermost(watch)
            if is_outermost:
                self.begin(watch)
            self._beginning = loader
            try:
                with fetchers_write_to(self._folder, watch.number), self._starting(loader, watch):
                    iterator = original(loader)
            finally:
                self._beginning = None
            if is_outermost and isinstance(iterator, _ITERATOR):
                self._of_iterator[iterator] = watch
            return iterator

        return iterate

    @contextmanager
    def _starting(self, loader: Any, watch: LoaderWatch) -> Iterator[None]:
        """Watch workers that start meanwhile; the loader gets its own worker_init_fn back."""
        own = loader.worker_init_fn
        if loader.num_workers > 0:
            loader.worker_init_fn = WorkerStart(self._folder, watch.number, own)
        try:
            yield
        finally:
            loader.worker_init_fn = own

    def _advanced(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Wrap __next__ of DataLoader's iterators."""

        def advance(iterator: Any) -> Any:
            watch = self._of_iterator.get(iterator)
            if watch is None or not self._is_outermost(watch):
                return original(iterator)
            return self.advance(watch, lambda: original(iterator))

        return advance

    def _wrapped(self, original: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
        """Wrap __iter__ of fastio's loaders, whose iterators are generators."""

        def iterate(loader: Any) -> Iterator[Any]:
            watch = self.watch(loader)
            if watch.names is None:
                watch.names = names_at_loop(loader)
            return _Advanced(self, watch, original(loader)) if self._is_outermost(watch) else original(loader)

        return iterate

    def _called(self, original: Callable[..., None]) -> Callable[..., None]:
        """Wrap __init__ of FastLoader: a line to paste repeats its arguments."""

        @wraps(original)
        def initialize(loader: Any, *arguments: Any, **named: Any) -> None:
            original(loader, *arguments, **named)
            self._arguments[loader] = bound_arguments(original, (loader, *arguments), named)

        return initialize

    def _is_outermost(self, watch: LoaderWatch) -> bool:
        """Return whether the loop itself takes batches from this loader, instead of another loader doing so."""
        if self._waiting is not None and threading.get_ident() == self._thread:
            self._waiting.inner = watch
        return self._waiting is None and threading.get_ident() == self._thread

    def watch(self, loader: Any) -> LoaderWatch:
        """Return the watch of this loader."""
        if loader not in self._known:
            self._known[loader] = LoaderWatch(loader, len(self.watches), arguments=self._arguments.get(loader))
            self.watches.append(self._known[loader])
        return self._known[loader]

    def begin(self, watch: LoaderWatch) -> None:
        """Note that an epoch of this loader begins."""
        watch.is_in_step = False
        watch.epochs += 1
        watch.timer.begin()

    def advance(self, watch: LoaderWatch, following: Callable[[], Any]) -> Any:
        """Get the next batch: ends the step before, and times the wait."""
        if watch.is_in_step:
            watch.is_in_step = False
            watch.timer.trained()
            self._listener.step_ended(watch)
        self.current, self._waiting = None, watch
        begun, begun_cpu, begun_queue = time.perf_counter(), time.thread_time(), self._queue.waited_s
        sampler = None if isinstance(watch.loader, (DataLoader, FastLoader, DevicePrefetcher)) else self._sampler
        if sampler is not None:
            sampler.begin(Watcher.advance.__code__)
        try:
            batch = following()
        finally:
            if sampler is not None:
                watch.waits += sampler.end()
            self._waiting = None
            watch.waited_s += time.perf_counter() - begun
            watch.own_cpu_s += time.thread_time() - begun_cpu
            watch.queued_s += self._queue.waited_s - begun_queue
        watch.timer.loaded(sample_count(batch))
        if watch.batch_bytes is None:
            watch.batch_bytes, watch.form = size_bytes(batch), batch_form(batch)
        watch.is_in_step, self.current = True, watch
        return batch


def _and_subclasses(kind: Any) -> Iterator[Any]:
    """Yield this class and all its subclasses, each once."""
    known = {kind}
    yield kind
    for below in kind.__subclasses__():
        for subclass in _and_subclasses(below):
            if subclass not in known:
                known.add(subclass)
                yield subclass


class _Advanced:
    """A watched iterator."""

    def __init__(self, watcher: Watcher, watch: LoaderWatch, iterator: Iterator[Any]) -> None:
        self._watcher = watcher
        self._watch = watch
        self._iterator = iterator
        watcher.begin(watch)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._watcher.advance(self._watch, lambda: next(self._iterator))


class _Watched:
    """A watched loader of the user's own."""

    def __init__(self, watcher: Watcher, loader: Iterable[Any]) -> None:
        self._watcher = watcher
        self._loader = loader
        self._watch = LoaderWatch(loader, len(watcher.watches))
        watcher.watches.append(self._watch)

    def __iter__(self) -> Iterator[Any]:
        return _Advanced(self._watcher, self._watch, _profiled(iter(self._loader), type(self._loader).__name__))


def _profiled(iterator: Iterator[Any], name: str) -> Iterator[Any]:
    """Marks waits with the name by which profilers know those of a DataLoader."""
    while True:
        with record_function(f"{LOADER_PREFIX}{name}"):
            held = next_batch(iterator)
        if not held:
            return
        yield held.pop()
