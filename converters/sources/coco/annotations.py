"""Annotations: the numbers of all annotations as arrays, and the rest of each as JSON in a spool."""

from __future__ import annotations

import json
import math
from array import array
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fastio.converters.fields.types import NamedTwice
from fastio.converters.sources.tables.collect import SpooledValues, ValueSpool
from fastio.types.spans import Spans

__all__ = [
    "Annotations",
    "CollectedAnnotations",
]


_OWN: Final = ("id", "image_id", "category_id", "bbox", "keypoints", "caption")
_INT64: Final = range(-(2**63), 2**63)
_WAITING = 4096  # rests that are joined before they are written


@dataclass(slots=True)
class Annotations:
    """
    Takes annotations one by one.

    ``bad`` says what is wrong with one, by position; it makes a problem of its image. Coordinates are float32. What the
    arrays would change stays in the rest as well, from which the same JSON is written again: coordinates that float32
    rounds, visibilities with a fraction, captions that are null. Fractions of a picture (``is_normalised``) are no
    coordinates yet, and float32 keeps them to a part of a pixel that no picture shows.
    """

    is_normalised: bool = False

    ids: array[int] = field(default_factory=lambda: array("q"))
    image_ids: array[int] = field(default_factory=lambda: array("q"))
    category_ids: array[int] = field(default_factory=lambda: array("q"))
    boxes: array[float] = field(default_factory=lambda: array("f"))
    has_box: array[int] = field(default_factory=lambda: array("b"))
    points: array[float] = field(default_factory=lambda: array("f"))
    point_counts: array[int] = field(default_factory=lambda: array("i"))
    has_points_in_rest: array[int] = field(default_factory=lambda: array("b"))
    has_category: array[int] = field(default_factory=lambda: array("b"))
    bad: dict[int, str] = field(default_factory=dict)
    homeless: list[tuple[str, str]] = field(default_factory=list)  # of no image: where, and a sentence
    order: list[str] = field(default_factory=list)  # the names in the first annotation
    rests: ValueSpool = field(default_factory=lambda: ValueSpool("objects"))
    captions: ValueSpool = field(default_factory=lambda: ValueSpool("captions"))
    has_captions: bool = False
    has_rests: bool = False
    _waiting: tuple[list[bytes], list[bytes]] = field(default_factory=lambda: ([], []))

    def add(self, entry: Any, where: str) -> None:
        """Take one more."""
        image_id = entry.get("image_id") if isinstance(entry, dict) else None
        if type(image_id) is not int or image_id not in _INT64:
            words = (
                f"has the image_id {image_id!r:.40}, expected a whole number"
                if isinstance(entry, dict)
                else "is no object"
            )
            self.homeless.append((where, words))
            return
        if not self.order:
            self.order = list(entry)
        position = len(self.ids)
        if isinstance(entry, NamedTwice):
            self.bad[position] = entry.words
        self.image_ids.append(image_id)
        self.ids.append(self._whole(entry, "id", position))
        self.has_category.append("category_id" in entry)
        self.category_ids.append(self._whole(entry, "category_id", position) if "category_id" in entry else 0)
        rest = {name: value for name, value in entry.items() if name not in _OWN}
        self._add_box(entry, rest, position)
        self._add_points(entry, rest, position)
        caption = entry.get("caption")
        if caption is not None and not isinstance(caption, str):
            self.bad.setdefault(position, f"has the caption {caption!r:.40}, expected text")
        self.has_captions = self.has_captions or caption is not None
        if caption is None and "caption" in entry:
            rest["caption"] = None
        self.has_rests = self.has_rests or bool(rest)
        self._spool(rest, caption, position)

    def finish(self) -> CollectedAnnotations:
        """Return everything, and give up what is only needed to take more."""
        self._flush()
        try:
            return CollectedAnnotations(self)
        finally:
            self.close()

    def close(self) -> None:
        """Give up the temporary files."""
        self.rests.close()
        self.captions.close()

    def _whole(self, entry: dict[str, Any], name: str, position: int) -> int:
        value = entry.get(name)
        if type(value) is int and value in _INT64:
            return value
        self.bad.setdefault(position, f"has the {name} {value!r:.40}, expected a whole number of 64 bits")
        return 0

    def _add_box(self, entry: dict[str, Any], rest: dict[str, Any], position: int) -> None:
        box = entry.get("bbox")
        self.has_box.append("bbox" in entry)
        numbers = _numbers(box, 4)
        if "bbox" in entry and (numbers is None or numbers[2] < 0 or numbers[3] < 0):
            self.bad.setdefault(position, f"has the bbox {box!r:.60}, expected x, y, width and height")
            numbers = None
        self.boxes.extend(numbers or (0.0, 0.0, 0.0, 0.0))
        if numbers is not None and not self.is_normalised and not _is_exact(numbers):
            rest["bbox"] = box

    def _add_points(self, entry: dict[str, Any], rest: dict[str, Any], position: int) -> None:
        points = entry.get("keypoints")
        count = len(points) if isinstance(points, list) else 0
        numbers = _numbers(points, count) if count % 3 == 0 else None
        if numbers is not None and not all(abs(visibility) < 2**63 for visibility in numbers[2::3]):
            numbers = None
        if "keypoints" in entry and numbers is None:
            self.bad.setdefault(position, f"has the keypoints {points!r:.60}, expected x, y and visibility of each")
        numbers = numbers or []
        self.point_counts.append(len(numbers) // 3 if "keypoints" in entry else -1)
        self.points.extend(numbers)
        is_kept = not self.is_normalised and not (
            _is_exact(numbers) and all(visibility.is_integer() for visibility in numbers[2::3])
        )
        self.has_points_in_rest.append(is_kept)
        if is_kept:
            rest["keypoints"] = points

    def _spool(self, rest: dict[str, Any], caption: Any, position: int) -> None:
        try:
            data = (
                json.dumps(rest, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() if rest else b"{}"
            )
            words = b"null" if caption is None else json.dumps(caption, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as exc:  # NaN, half a character, nested too deep
            self.bad.setdefault(position, f"cannot be kept as JSON: {exc}")
            data, words = b"{}", b"null"
        self._waiting[0].append(data)
        self._waiting[1].append(words)
        if len(self._waiting[0]) >= _WAITING:
            self._flush()

    def _flush(self) -> None:
        for spool, values in zip((self.rests, self.captions), self._waiting, strict=True):
            sizes = np.array([len(value) for value in values], np.int64)
            spool.append(Spans.joined(np.frombuffer(b"".join(values), np.uint8), sizes))
            values.clear()


class CollectedAnnotations:
    """All annotations of a file as arrays, in the order of the file; see ``Annotations``."""

    def __init__(self, taken: Annotations) -> None:
        self.ids: NDArray[np.int64] = np.array(taken.ids, np.int64)
        self.image_ids: NDArray[np.int64] = np.array(taken.image_ids, np.int64)
        self.category_ids: NDArray[np.int64] = np.array(taken.category_ids, np.int64)
        self.has_category: NDArray[np.bool_] = np.array(taken.has_category, bool)
        self.boxes: NDArray[np.float32] = np.array(taken.boxes, np.float32).reshape(-1, 4)
        self.has_box: NDArray[np.bool_] = np.array(taken.has_box, bool)
        self.points: NDArray[np.float32] = np.array(taken.points, np.float32).reshape(-1, 3)
        self.point_counts: NDArray[np.int32] = np.array(taken.point_counts, np.int32)  # -1: no key points at all
        counts = self.point_counts
        has_common = bool(len(counts)) and counts[0] > 0 and bool((counts == counts[0]).all())
        self.common_points = int(counts[0]) if has_common else 0  # of every annotation; 0 if their numbers differ
        self._point_starts = np.concatenate([[0], np.cumsum(np.maximum(self.point_counts, 0))])
        self._has_points_in_rest = taken.has_points_in_rest
        self.bad, self.homeless, self.order = taken.bad, taken.homeless, taken.order
        self.has_captions = taken.has_captions
        self.has_rests = taken.has_rests or (not self.common_points and bool((counts >= 0).any()))
        self.rests: SpooledValues = taken.rests.finish()
        self.captions: SpooledValues = taken.captions.finish()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def are_placed(self) -> bool:
        """Whether annotations say where in the picture something is, not captions alone."""
        return bool(self.has_box.any()) or self.common_points > 0 or self.has_rests

    def rest(self, position: int) -> bytes:
        """Return what no field holds of an annotation, as JSON: its key points too, unless all have as many."""
        rest = self.rests.view(position)
        if self.common_points or self.point_counts[position] < 0 or self._has_points_in_rest[position]:
            return rest
        numbers = self.points[self._point_starts[position] : self._point_starts[position + 1]].ravel()
        text = json.dumps([_shortest(number) for number in numbers]).encode()
        return rest[:-1] + (b"," if len(rest) > len(b"{}") else b"") + b'"keypoints":' + text + b"}"


def _numbers(value: Any, count: int) -> list[float] | None:
    """A list of so many finite numbers that float32 can hold; None for anything else."""
    if not isinstance(value, list) or len(value) != count:
        return None
    if any(type(each) not in (int, float) for each in value):
        return None
    try:
        numbers = [float(each) for each in value]
    except OverflowError:
        return None
    return numbers if all(math.isfinite(each) and abs(each) <= _LARGEST for each in numbers) else None


_LARGEST: Final = float(np.finfo(np.float32).max)


def _shortest(number: np.float32) -> float:
    """The number with the shortest digits that give this float32; a whole one without a fraction."""
    return int(number) if number.is_integer() else float(str(number))


def _is_exact(numbers: list[float]) -> bool:
    """Whether the shortest digits of the float32s are those of these numbers."""
    # float(), because NumPy rounds a Python number before it compares it with a float32
    return all(each == float(near := np.float32(each)) or float(str(near)) == each for each in numbers)
