"""Detections: pictures with objects, as files of any layout have them, collected into COCO's images and annotations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastio.converters.sources.coco.annotations import Annotations
from fastio.converters.sources.coco.samples import CocoFile, CocoSamples, Images
from fastio.converters.sources.listed import ListedSource
from fastio.converters.sources.options import SourceOptions
from fastio.errors import SourceError
from fastio.store.kinds.scan import Problem, SourcePath

__all__ = [
    "Detections",
]


class Detections:
    """
    Takes pictures below ``root`` and the objects in them, one by one; ``source`` makes samples with COCO's fields.
    Objects may come later than their picture, and in any order: they are kept in arrays.

    With ``is_normalised``, coordinates are fractions of the width and height of their picture.
    """

    def __init__(self, *, is_normalised: bool = False) -> None:
        self._is_normalised = is_normalised
        self._images = Images()
        self._annotations = Annotations(is_normalised)
        self._bad: dict[int, str] = {}

    def add(
        self,
        name: str,
        objects: Iterable[Mapping[str, Any]] = (),
        info: Mapping[str, Any] | None = None,
        problem: str = "",
    ) -> int:
        """
        Take a picture, named from the root on, and objects in it, see ``add_object``; return its number. ``info`` is
        what else is said of the picture, ``problem`` what is wrong with it.
        """
        number = len(self._images.ids)
        self._images.add({**(info or {}), "id": number, "file_name": name}, name)
        if problem:
            self._bad[number] = problem
        for each in objects:
            self.add_object(number, each)
        return number

    def add_object(self, number: int, entry: Mapping[str, Any]) -> None:
        """
        Take an object in the picture of this number: an annotation of COCO without ids, of which ``category_id`` is the
        number of its class.
        """
        place = len(self._annotations.ids)
        self._annotations.add({"id": place, "image_id": number, **entry}, self._images.names[number])

    def close(self) -> None:
        """Give up the temporary files; what ``source`` returned keeps its own."""
        self._annotations.close()

    def source(
        self,
        place: SourcePath,
        kind: str,
        options: SourceOptions,
        root: str,
        classes: Sequence[str],
        paths: Sequence[str],
        problems: Sequence[Problem] = (),
        *,
        numbers: Sequence[int] | None = None,
    ) -> ListedSource:
        """
        Return the samples: ``paths`` are the files that annotate them, ``problems`` what is wrong besides. ``numbers``
        are those of the ``classes`` in the objects; None: their positions.

        Raises SourceError if there are no pictures.
        """
        if not self._images.ids:
            first = f": {problems[0].key} {problems[0].problem}" if problems else ""
            raise SourceError(f"{place.path}: names no pictures{first}")
        ids = range(len(classes)) if numbers is None else numbers
        categories = [{"id": i, "name": name} for i, name in zip(ids, classes, strict=True)]
        file = CocoFile(["images", "annotations", "categories"], {"categories": categories})
        return CocoSamples(
            place,
            kind,
            paths,
            options,
            file,
            self._images,
            self._annotations.finish(),
            root,
            self._is_normalised,
            problems,
            self._bad,
        ).source()
