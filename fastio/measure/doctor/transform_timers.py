"""Times a dataset's transform and each of its steps, in the process that reads the dataset."""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any

from PIL import Image

from fastio.dataset.picture.lazy import LazyPicture
from fastio.dataset.picture.stored import StoredPicture

__all__ = [
    "WHOLE_PICTURE",
    "TransformTimers",
    "leave_transforms",
    "step_name",
    "steps_of",
    "transform_of",
]


WHOLE_PICTURE = "whole picture"  # input of a transform: a PIL picture as large as its file's
_USUAL_NAMES = ("transform", "transforms")  # of a dataset's attribute
_MOST_STEPS = 50  # a longer list of callables is not a list of transforms


class TransformTimers:
    """
    CPU seconds in the transform of one dataset, in each of its steps (a single transform is its own step), and in
    decoding meanwhile.

    A picture that is decoded lazily (Pillow's files, and FastDataset's pictures with crops, resizes and flips)
    decodes in the first step that asks for its pixels. That time counts only as ``decode_s``. Waiting for a CPU does
    not count. Falsy if there is nothing to time.

    It wraps ``__call__`` of transform classes, plain functions in lists and attributes, and ``load`` of pictures.
    ``leave_transforms`` restores all of them.
    """

    def __init__(self, dataset: Any) -> None:
        self.names: tuple[str, ...] = ()
        self._steps: list[_Timer] = []
        holder, name, transform = transform_of(dataset)
        if transform is None:
            self._whole = None
            return
        _watch_opening()
        steps = list(steps_of(transform))
        put_whole = partial(setattr, holder, name)
        self._whole = None if isinstance(transform, (list, tuple)) else _timed(transform, put_whole)
        timers = [(_timed(step, put), step_name(step)) for step, put in steps or [(transform, put_whole)]]
        timed = [(timer, name) for timer, name in timers if timer is not None]
        self._steps, self.names = [timer for timer, _ in timed], tuple(name for _, name in timed)

    def __bool__(self) -> bool:
        return self._whole is not None or bool(self._steps)

    def reset(self) -> None:
        """Start a batch."""
        for timer in (*self._steps, *(() if self._whole is None else (self._whole,))):
            timer.seconds = timer.decode_s = 0.0

    @property
    def seconds(self) -> float:
        """Seconds in the whole transform, without decoding."""
        return sum(self.steps_s) if self._whole is None else self._whole.own_s

    @property
    def input(self) -> str | None:
        """The type that the first step was called with, or WHOLE_PICTURE; None before a call."""
        first = self._whole or next(iter(self._steps), None)
        return None if first is None else first.input

    @property
    def decode_s(self) -> float:
        """Seconds of decoding within the transform."""
        return sum(timer.decode_s for timer in (self._steps if self._whole is None else [self._whole]))

    @property
    def steps_s(self) -> tuple[float, ...]:
        """Seconds in each step, without decoding, in the order of ``names``."""
        return tuple(timer.own_s for timer in self._steps)


@dataclass(slots=True, eq=False)
class _Timer:
    """Sums up CPU time in one transform. ``decode_s`` is the part of ``seconds`` that decoded a picture."""

    transform: Any  # kept alive: its id is a key
    seconds: float = 0.0
    decode_s: float = 0.0
    is_running: bool = False
    input: str | None = None

    @property
    def own_s(self) -> float:
        return max(0.0, self.seconds - self.decode_s)


@dataclass(slots=True)
class _Patches:
    """What this process has wrapped, and how to undo it."""

    timers: dict[int, _Timer] = field(default_factory=dict)  # by id of the transform
    kinds: set[Any] = field(default_factory=set)  # classes whose __call__ is wrapped, or pictures whose load is timed
    undo: list[Callable[[], None]] = field(default_factory=list)


_patches = _Patches()
_running = threading.local()  # .timers: the timers of the transforms that this thread is running


def leave_transforms() -> None:
    """Restore everything that was wrapped in this process."""
    while _patches.undo:
        _patches.undo.pop()()
    _patches.timers.clear()
    _patches.kinds.clear()


def transform_of(dataset: Any) -> tuple[Any, str, Any]:
    """
    Return the object that holds the dataset's transform, the attribute's name, and the transform; Nones without one.

    It is ``transform`` or ``transforms``, or else the first attribute that is a list of callables or has one in its
    ``transforms``, as Compose does. For a Subset, it is that of the dataset behind.
    """
    while not _has_transform(dataset) and _attribute(dataset, "dataset") is not None:
        dataset = dataset.dataset
    attributes = getattr(dataset, "__dict__", {})
    for name in _USUAL_NAMES:
        value = _attribute(dataset, name)
        if value is not None and (callable(value) or _is_steps(value)):
            return dataset, name, value
    for name, value in attributes.items():
        if _is_steps(value) or (callable(value) and _is_steps(getattr(value, "transforms", None))):
            return dataset, name, value
    return None, "", None


def steps_of(transform: Any) -> Iterator[tuple[Any, Callable[[Any], None]]]:
    """
    Yield each step of a list of transforms or of a Compose, including nested ones, with a function that replaces it.
    """
    held: Any = transform if isinstance(transform, (list, tuple)) else getattr(transform, "transforms", None)
    if not _is_steps(held):
        return
    for number, step in enumerate(held):
        if _is_steps(getattr(step, "transforms", None)) and type(step).__name__ == "Compose":
            yield from steps_of(step)
        else:
            yield step, partial(operator.setitem, held, number)


def step_name(step: Any) -> str:
    """
    Return a step's name for people: its class, or a function's name.

    >>> step_name(len), step_name(step_name)
    ('len', 'step_name')
    """
    name = getattr(step, "__qualname__", None)
    if not isinstance(name, str):
        return type(step).__name__
    code = getattr(step, "__code__", None)
    if name.endswith("<lambda>") and code is not None:
        return f"lambda at {Path(code.co_filename).name}:{code.co_firstlineno}"
    return name.rpartition(".<locals>.")[2]


def _has_transform(dataset: Any) -> bool:
    return any(_attribute(dataset, name) is not None for name in _USUAL_NAMES)


def _attribute(dataset: Any, name: str) -> Any:
    """Return an attribute or None; a user's property that raises must not end a training that did not ask for it."""
    try:
        return getattr(dataset, name, None)
    except Exception:
        return None


def _is_steps(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and 0 < len(value) <= _MOST_STEPS and all(map(callable, value))


def _timed(transform: Any, put: Callable[[Any], None]) -> _Timer | None:
    """Return a timer of this transform; None if it can be neither wrapped nor replaced."""
    known = _patches.timers.get(id(transform))
    if known is not None:
        return known
    timer = _Timer(transform)
    if not _wrap_calls(type(transform)):
        try:
            put(_Replacement(timer))
        except (AttributeError, TypeError):  # a tuple, a class with slots
            return None
        _patches.undo.append(lambda: put(transform))
    _patches.timers[id(transform)] = timer
    return timer


class _Replacement:
    """Replaces a plain function in a list or attribute."""

    def __init__(self, timer: _Timer) -> None:
        self._timer = timer
        self.__wrapped__ = timer.transform

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return _measured(self._timer, self._timer.transform, arguments, named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)


def _wrap_calls(kind: Any) -> bool:
    """Time calls of this class's objects that have a timer. Returns False for functions and classes written in C."""
    if kind in _patches.kinds:
        return True
    original = kind.__call__

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        timer = _patches.timers.get(id(self))
        if timer is None or timer.is_running:  # an object without timer, or a base class's method called by its own
            return original(self, *arguments, **named)
        return _measured(timer, original, (self, *arguments), named)

    return _replace(kind, "__call__", call)


def _measured(timer: _Timer, call: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    timers = _running.__dict__.setdefault("timers", [])
    if not timers:
        value = next((value for value in arguments if value is not timer.transform), None)
        if isinstance(value, Image.Image):
            _watch_decoding(type(value))
        if timer.input in (None, WHOLE_PICTURE):
            timer.input = _kind_of(value)
    timers.append(timer)
    timer.is_running = True
    begun = time.thread_time()
    try:
        return call(*arguments, **named)
    finally:
        timer.seconds += time.thread_time() - begun
        timer.is_running = False
        timers.pop()


def _kind_of(value: Any) -> str:
    """Return WHOLE_PICTURE, or the name of the type: a picture of another size than its file's was changed before."""
    is_ours = type(value).__module__.startswith("fastio.")
    if isinstance(value, Image.Image) and (is_ours or _running.__dict__.get("opened", value.size) == value.size):
        return WHOLE_PICTURE
    return type(value).__name__


def _watch_opening() -> None:
    """Record the size of the picture that Pillow opened last."""
    original = Image.open
    if Image in _patches.kinds:
        return

    @wraps(original)
    def opening(*arguments: Any, **named: Any) -> Any:
        image = original(*arguments, **named)
        _running.opened = image.size
        return image

    _replace(Image, "open", opening)


def _watch_decoding(kind: type) -> None:
    """Time what lazily decodes pictures of this class: ``load`` of Pillow's files, ``render`` of LazyPictures."""
    if kind in _patches.kinds:
        return
    _patches.kinds.add(kind)
    if issubclass(kind, LazyPicture):
        _time_decoding(StoredPicture, "render")
        return
    owner = next(base for base in kind.__mro__ if "load" in vars(base))
    if owner is not Image.Image and (owner is kind or owner not in _patches.kinds):  # Image.load has nothing to decode
        _time_decoding(owner, "load")


def _time_decoding(kind: type, name: str) -> None:
    """Count this method's time within transforms as decoding."""
    original = vars(kind)[name]

    def decode(self: Any, *arguments: Any, **named: Any) -> Any:
        timers = _running.__dict__.get("timers")
        if not timers or _running.__dict__.get("is_decoding"):  # outside transforms, or called by another such method
            return original(self, *arguments, **named)
        _running.is_decoding = True
        begun = time.thread_time()
        try:
            return original(self, *arguments, **named)
        finally:
            spent = time.thread_time() - begun
            _running.is_decoding = False
            for timer in timers:
                timer.decode_s += spent

    _replace(kind, name, decode)


def _replace(kind: Any, name: str, method: Any) -> bool:
    """Replace a class's own or inherited method until ``leave_transforms``."""
    own = vars(kind).get(name)
    try:
        setattr(kind, name, method)
    except TypeError:
        return False
    _patches.kinds.add(kind)
    _patches.undo.append(lambda: delattr(kind, name) if own is None else setattr(kind, name, own))
    return True
