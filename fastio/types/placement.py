"""Placement: where the fields of batches are made, one place after the other, and what makes them be made there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

__all__ = [
    "IN_PYTHON_THREADS",
    "IN_THE_INDEX",
    "NATIVE",
    "Placement",
    "Stage",
    "called",
    "repeated",
    "steps_of",
]

NATIVE = "native threads"
IN_PYTHON_THREADS = "Python threads"
IN_THE_INDEX = "index"  # of the store, from which columns are picked


@dataclass(frozen=True, slots=True)
class Stage:
    """
    One place ``where`` a field is worked on, and the ``steps`` done there in turn.

    ``reason`` names what forces this place, "" if nothing does.
    """

    where: str
    steps: tuple[str, ...] = ()
    reason: str = ""

    def __str__(self) -> str:
        """
        Return the stage in words.

        >>> print(Stage("Python threads", ("crop", "flip"), "transform=augment is Python"))
        Python threads (crop, flip), because transform=augment is Python
        """
        steps = f" ({', '.join(self.steps)})" if self.steps else ""
        return f"{self.where}{steps}" + (f", because {self.reason}" if self.reason else "")


@dataclass(frozen=True, slots=True)
class Placement:
    """
    Where each field of a batch is made: ``fields`` has its stages by name, in the order in which it goes through them.

    ``batch`` are the stages of whole batches, behind those of their fields: functions of the user's own. It follows
    from what a loader was wired of, and says nothing of single samples: what Pillow had to decode is in
    ``LoaderStats.decoded_by_pillow``.
    """

    fields: Mapping[str, Sequence[Stage]]
    batch: Sequence[Stage] = field(default=())

    @property
    def lines(self) -> list[str]:
        """
        One line for each field, and one for the batch if anything is done to it whole.

        >>> Placement({"image": [Stage("native threads", ("Resize",)), Stage("cuda:0", ("Normalize",))]}).lines
        ['image: native threads (Resize), then cuda:0 (Normalize)']
        """
        lines = [f"{name}: {_in_turn(stages)}" for name, stages in self.fields.items()]
        return [*lines, f"batch: {_in_turn(self.batch)}"] if self.batch else lines

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def __repr__(self) -> str:
        return f"Placement({'; '.join(self.lines)})"

    def then(self, stages: Mapping[str, Sequence[Stage]], batch: Sequence[Stage] = ()) -> Placement:
        """Return this, followed by further stages of some fields, and of the batch."""
        fields = {name: (*own, *stages.get(name, ())) for name, own in self.fields.items()}
        return Placement(fields, (*self.batch, *batch))


def _in_turn(stages: Iterable[Stage]) -> str:
    return ", then ".join(map(str, stages))


def called(step: object) -> str:
    """
    Return what a transform or function is called: by its class, and of one around a function, by that too.

    >>> called(len), called(Stage("native threads"))
    ('len', 'Stage')
    """
    function = getattr(step, "function", None)
    if function is not None:
        return f"{type(step).__name__}({called(getattr(function, 'py_func', function))})"
    name = str(getattr(step, "__name__", type(step).__name__))
    return "a lambda" if name == "<lambda>" else name


def steps_of(transform: object) -> tuple[str, ...]:
    """Return what the steps of a transform are called: those of a list or a Compose, in turn."""
    held = transform if isinstance(transform, (list, tuple)) else getattr(transform, "transforms", None)
    if isinstance(held, (list, tuple)) and (held is transform or type(transform).__name__ == "Compose"):
        return tuple(name for step in held for name in steps_of(step))
    return () if transform is None else (called(transform),)


def repeated(views: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """
    Return the steps of several views, those in a row that are equal counted; nothing for views without any.

    >>> repeated([("Crop", "Flip"), ("Crop", "Flip"), ("Crop",)])
    ('2 x [Crop, Flip]', '1 x [Crop]')
    """
    counted = [(steps, len(list(same))) for steps, same in groupby(views)]
    return tuple(f"{count} x [{', '.join(steps)}]" for steps, count in counted if steps)
