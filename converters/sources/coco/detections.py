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

    With ``is_normalised``, coordinates are fractions of the width and height of their picture.
    """

    def __init__(self, *, is_normalised: bool = False) -> None:
        self._is_normalised = is_normalised
        self._images = Images()
        self._annotations = Annotations(is_normalised)
        self._bad: dict[int, str] = {}

    def add(
        self, name: str, objects: Iterable[Mapping[str, Any]], info: Mapping[str, Any] | None = None, problem: str = ""
    ) -> None:
        """
        Take a picture, named from the root on, and its objects: each as an annotation of COCO without ids, of which
        ``category_id`` is the position of its class. ``info`` is what else is said of the picture, ``problem`` what is
        wrong with it.
        """
        number = len(self._images.ids)
        self._images.add({**(info or {}), "id": number, "file_name": name}, name)
        if problem:
            self._bad[number] = problem
        for each in objects:
            entry = {"id": len(self._annotations.ids), "image_id": number, **each}
            self._annotations.add(entry, name)

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
    ) -> ListedSource:
        """
        Return the samples: ``paths`` are the files that annotate them, ``problems`` what is wrong besides.

        Raises SourceError if there are no pictures.
        """
        if not self._images.ids:
            first = f": {problems[0].key} {problems[0].problem}" if problems else ""
            raise SourceError(f"{place.path}: names no pictures{first}")
        categories = [{"id": i, "name": name} for i, name in enumerate(classes)]
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
