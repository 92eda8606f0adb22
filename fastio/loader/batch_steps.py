"""Transforms of batches, done to batches as users nest them: where they are made on the host, or on a device."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError
from fastio.lazy import torch
from fastio.loader.device.nested import BatchRoles, map_tensors, tensors
from fastio.loader.list_collate import ListCollate
from fastio.loader.ranges import COPY, TRANSFORM, named_range
from fastio.samplers.batches import element_ids
from fastio.transforms.batch.choice import mixes_of
from fastio.transforms.batch.finish import Contiguous
from fastio.transforms.batch.functions import PerSample
from fastio.transforms.batch.program import PixelTransform
from fastio.transforms.batch.recipe import Recipe
from fastio.transforms.transform import Transform
from fastio.types.placement import Placement, Stage, called, repeated

__all__ = ["BatchSteps", "Numbered"]

_CLIP_AXES = 5


@dataclass(slots=True)
class Numbered:
    """
    A batch, its epoch, and the ids of its samples for random numbers: their indices.

    If a sample is drawn several times in the epoch, its repetitions have ids of their own (``Batches.ids``).
    """

    batch: Any
    epoch: int
    indices: NDArray[np.int64]


class BatchSteps:
    """
    What ``recipes`` do to batches: one recipe, or one for each view or field of pictures that ``roles`` have, whose
    functions then get the pictures of their view or field.

    ``roles`` says what transforms change; without it, they guess (see Recipe). ``frames`` are those of a clip in
    batches of clips (B, T, C, H, W), of which transforms see (B * T, C, H, W). With ``are_arrays``, batches have arrays
    of NumPy in the place of tensors.
    """

    def __init__(
        self,
        recipes: Sequence[Recipe],
        *,
        roles: BatchRoles | None = None,
        frames: int | None = None,
        are_arrays: bool = False,
        lists: ListCollate | None = None,
    ) -> None:
        self._lists = lists
        self._recipes = list(recipes)
        self._roles = roles
        self._frames = frames
        self._are_arrays = are_arrays
        self._has_views = roles is not None and roles.views
        self._is_divided = roles is not None and (roles.views or roles.is_apart)
        self.pictures = 1 if roles is None else len(roles.pictures)  # the number of their fields
        self._may_fail_changed = any(map(_may_fail_changed, recipes))

    def __bool__(self) -> bool:
        return any(self._recipes) or self._lists is not None

    def run(
        self,
        numbered: Numbered,
        *,
        copied: Callable[[list[torch.Tensor]], list[torch.Tensor]] = list,
        side: Callable[[], AbstractContextManager[object]] = nullcontext,
        blanks: Sequence[Collection[int]] = (),
    ) -> Any:
        """
        Return a batch after all recipes.

        ``copied`` brings tensors to where the recipes run, within ``side``. ``blanks`` has for each field of pictures
        the places of samples whose pictures are to be zeros; functions of single pictures are not called for them. For
        samples that these fail for, FailedSamplesError is raised, and the batch that was given is as before.
        """
        recipes, batch = self._recipes, numbered.batch
        if self._may_fail_changed:
            batch = copy.deepcopy(batch)
        counts = None if self._lists is None else self._lists.counts(batch)
        ids = self._ids(numbered)
        while True:
            step = Numbered(batch, numbered.epoch, numbered.indices)
            is_last = not any(recipe.next for recipe in recipes)
            batch = self._run(step, ids, recipes, copied, side, blanks, counts if is_last else None)
            if is_last:
                return batch
            recipes = [recipe.next or Recipe([], seed=0) for recipe in recipes]

    def _ids(self, numbered: Numbered) -> Sequence[NDArray[np.int64]]:
        """Return the ids of the pictures of each field for random numbers: of the samples, or of elements of lists."""
        if self._roles is None or not any(self._roles.listed):
            return [numbered.indices] * self.pictures
        ids = numbered.indices
        counts = self._roles.counts(numbered.batch)  # of repeats, those of the first are those of all
        return [ids if own is None else element_ids(ids, own[: len(ids)]) for own in counts]

    def _run(
        self,
        numbered: Numbered,
        ids: Sequence[NDArray[np.int64]],
        every: Sequence[Recipe],
        copied: Callable[[list[torch.Tensor]], list[torch.Tensor]],
        side: Callable[[], AbstractContextManager[object]],
        blanks: Sequence[Collection[int]],
        counts: Mapping[str, NDArray[np.int64]] | None,
    ) -> Any:
        """
        Return a batch after one recipe, or one for each view; tensors may be where they are to be already. With the
        ``counts`` of its lists, these become what is asked for.
        """
        given = tensors(numbered.batch, arrays=self._are_arrays)
        groups = [list(range(len(given)))] if self._roles is None else self._groups(numbered.batch, given, every)
        clips = [self._frames is not None and each.ndim == _CLIP_AXES for each in given]
        host = [
            each.reshape(-1, *each.shape[2:]) if is_clip else each for each, is_clip in zip(given, clips, strict=True)
        ]
        recipes = [every[i % len(every)] for i in range(len(groups))]
        views = len(every) if self._has_views else 1
        bad = [blanks[i // views] if blanks else () for i in range(len(groups))]
        if every is self._recipes:
            for recipe, group, places in zip(recipes, groups, bad, strict=True):
                blanked = recipe.blanked([host[i] for i in group], len(numbered.indices), places)
                host = [blanked[group.index(i)] if i in group else each for i, each in enumerate(host)]
        drawn = [
            recipe.draw([host[k] for k in group], ids[i // views], numbered.epoch, places)
            for i, (recipe, group, places) in enumerate(zip(recipes, groups, bad, strict=True))
        ]
        done: dict[int, torch.Tensor] = {}
        with named_range(COPY):
            copies = copied([*host, *tensors(drawn)])  # of arrays, nothing that is drawn has to travel
        parts, numbers = copies[: len(host)], iter(copies[len(host) :])
        with named_range(TRANSFORM), side() if any(every) or counts is not None else nullcontext():
            drawn = map_tensors(lambda _: next(numbers), drawn)
            for recipe, group, parameters in zip(recipes, groups, drawn, strict=True):
                made = recipe.run([parts[i] for i in group], parameters)
                for position, part in zip(group, made, strict=True):
                    part = self._as_clips(part) if clips[position] else part  # noqa: PLW2901
                    part = recipe.finish(part) if self._is_divided else part  # noqa: PLW2901
                    done.setdefault(position, part)  # labels are those of the first picture
            for position, part in enumerate(parts):
                if position not in done:
                    done[position] = self._as_clips(part) if clips[position] else part
            arrived = iter(done[position] for position in range(len(parts)))
            batch = map_tensors(lambda _: next(arrived), numbered.batch, arrays=self._are_arrays)
            if self._lists is not None and counts is not None:
                batch = self._lists.run(batch, counts)
            return batch if self._is_divided else every[0].finish(batch)

    def _as_clips(self, frames: torch.Tensor) -> torch.Tensor:
        """Return frames (B * T, ...) as clips (B, T, ...)."""
        assert self._frames is not None
        return frames.reshape(-1, self._frames, *frames.shape[1:])

    def _groups(self, batch: Any, parts: list[torch.Tensor], every: Sequence[Recipe]) -> list[list[int]]:
        """Return where the pictures and the label are. Raises SchemaError if a function has put them elsewhere."""
        assert self._roles is not None
        try:
            return self._roles.groups(batch, parts)
        except (KeyError, IndexError, TypeError) as exc:
            if every is self._recipes:
                raise
            raise SchemaError(
                f"{every[0].transforms[0]!r} stands behind a PerBatch that returned {type(batch).__name__}: it needs "
                "pictures and label where they were in the batch"
            ) from exc

    def placed(
        self, made: Placement, *, pictures: Collection[str], label: str, device: str, is_host: bool = True
    ) -> Placement:
        """
        Return where batches are made of which somebody else has ``made`` the fields: with what is done to the fields of
        ``pictures`` and to ``label`` here, on a ``device``, which may be the host's CPU.
        """
        where = f"{device} in the loop's thread" if is_host else device
        python = "Python in the loop's thread" + ("" if is_host else f", on {device}")
        done = self._stages(self._recipes, where, python)
        if not is_host and (not done or done[0].where != where):
            done.insert(0, Stage(where))
        mixes = tuple(called(step) for step in self._recipes[0].transforms if mixes_of(step))
        of_label = [Stage(where, mixes)] if mixes or not is_host else []
        others = [] if is_host else [Stage(where)]
        stages = {name: done if name in pictures else of_label if name == label else others for name in made.fields}
        if self._roles is not None and self._roles.is_apart:
            names = [name for name in pictures if name in made.fields]
            for name, recipe in zip(names, self._recipes, strict=True):
                stages[name] = [*others, *self._apart(recipe, where, python)]
        if self._lists is not None:
            for name, wish in self._lists.wishes.items():
                stages[name] = [*stages[name], Stage(where, (wish.how,))]
        batch: list[Stage] = []
        following: list[Recipe] = self._recipes
        while following and not (self._roles is not None and self._roles.is_apart):
            if following is not self._recipes:
                batch += self._stages(following, where, python)
            if any(recipe.own for recipe in following):
                own = [tuple(map(called, recipe.own)) for recipe in following]
                batch.append(Stage(python, self._joined(own)))
            following = [recipe.next for recipe in following if recipe.next is not None]
        return made.then(stages, batch)

    def _apart(self, recipe: Recipe | None, where: str, python: str) -> list[Stage]:
        """Return what a recipe of one field, and those behind it, do in turn."""
        stages: list[Stage] = []
        while recipe is not None:
            stages += self._stages([recipe], where, python)
            if recipe.own:
                stages.append(Stage(python, tuple(map(called, recipe.own))))
            recipe = recipe.next
        return stages

    def _stages(self, recipes: Sequence[Recipe], where: str, python: str) -> list[Stage]:
        """Return what the recipes of all views do in turn: PerSample in Python, all else by torch."""
        late, reason = _why_late(recipes[0]) if recipes is self._recipes else (0, "")
        phases = zip_longest(*map(_phases, recipes), fillvalue=())
        stages = [
            Stage(python if number % 2 else where, self._joined(steps), reason if number == late else "")
            for number, steps in enumerate(phases)
        ]
        return [stage for stage in stages if stage.steps]

    def _joined(self, views: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        """Return the steps of all views."""
        return repeated(views) if self._has_views else views[0]


def _may_fail_changed(recipe: Recipe) -> bool:
    """Whether a function may fail for a picture of a batch that a function before it may have changed in place."""
    following = recipe.next
    while following is not None:
        if any(isinstance(step, PerSample) for step in following.transforms):
            return True
        following = following.next
    return False


def _phases(recipe: Recipe) -> list[tuple[str, ...]]:
    """
    Return what the steps of a recipe are called: those of torch at even places, functions of single pictures at odd
    ones, without what a loader adds for the layout of memory.
    """
    phases: list[tuple[str, ...]] = [()]
    for step in recipe.transforms:
        if isinstance(step, Contiguous):
            continue
        if isinstance(step, PerSample) == len(phases) % 2:
            phases.append(())
        phases[-1] += (called(step),)
    return phases


def _why_late(recipe: Recipe) -> tuple[int, str]:
    """
    Return the phase of the first transform that native threads would run if it stood elsewhere, and why they do not;
    "" if there is none.
    """
    first, *others = recipe.transforms or [None]
    if isinstance(first, (PixelTransform, Transform)):
        return 0, ""  # native threads do not make these pictures
    late = next((step for step in others if isinstance(step, (PixelTransform, Transform))), None)
    if late is None:
        return 0, ""
    number = next(number for number, steps in enumerate(_phases(recipe)) if not number % 2 and called(late) in steps)
    return number, f"{called(late)} stands behind {called(first)}, which native threads do not run"
