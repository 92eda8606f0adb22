"""The COCO JSON that a store's fields came from, written again from them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np

from fastio.converters.tables.again import decoded, sound_values
from fastio.errors import StoreCorrupt
from fastio.store import SampleStore

__all__ = ["StoredCoco"]

_ROWS = 512
_FIELDS = ("boxes", "classes", "annotation_ids", "keypoints", "visibility", "captions", "objects", "image_info")


@dataclass(frozen=True, slots=True)
class StoredCoco:
    """How samples become COCO's images and annotations again, from a store's ``metadata["coco"]``."""

    store: SampleStore
    form: Mapping[str, Any]

    @classmethod
    def of(cls, store: SampleStore) -> StoredCoco | None:
        """Return the annotations of a store, None if it does not come from any. Raises StoreCorrupt for bad ones."""
        form = store.metadata.get("coco")
        if form is None:
            return None
        needed = {"annotation_ids", "image_info", "image_id"} - {field.name for field in store.schema.fields}
        is_sound = (
            isinstance(form, Mapping)
            and isinstance(form.get("others"), Mapping)
            and isinstance(form.get("order"), list)
        )
        if not is_sound or needed or PurePath(str(form.get("name"))).name != form.get("name"):
            raise StoreCorrupt(f"{store.path}: its COCO annotations are not described in fastio's form")
        return cls(store, form)

    @property
    def file_name(self) -> str:
        """The name of the file."""
        return str(self.form["name"])

    @property
    def fields(self) -> set[str]:
        """The payload fields that the file holds."""
        return {field.name for field in self.store.schema.payload if field.name in _FIELDS}

    @property
    def written_fields(self) -> set[str]:
        """All fields of which the file says something."""
        return {*self.fields, "image_id", "image"}

    def parts(self) -> Iterator[bytes]:
        """Yield the bytes of the file, in parts. Annotations that came sorted by id are all sorted in memory."""
        for number, name in enumerate(self.form["order"]):
            yield (b"{" if number == 0 else b", ") + json.dumps(name).encode() + b": "
            if name == "images":
                yield from _list(_text(image) for image, _ in self._samples())
            elif name == "annotations":
                yield from _list(self._annotations())
            else:
                yield _text(self.form["others"].get(name))
        yield b"}"

    def _annotations(self) -> Iterator[bytes]:
        entries = (each for _, annotations in self._samples(with_annotations=True) for each in annotations)
        if not self.form.get("is_by_id"):
            yield from map(_text, entries)
            return
        yield from (text for _, text in sorted((each["id"], _text(each)) for each in entries))

    def _samples(self, *, with_annotations: bool = False) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """Each image with its annotations, in the order of the samples."""
        names = self.fields if with_annotations else {"image_info"}
        for start in range(0, len(self.store), _ROWS):
            indices = np.arange(start, min(start + _ROWS, len(self.store)))
            values = {name: decoded(self.store.schema[name], sound_values(self.store, name, indices)) for name in names}
            ids, keys = self.store.column("image_id")[indices].tolist(), self.store.keys(indices)
            for i, (number, key) in enumerate(zip(ids, keys, strict=True)):
                sample = {name: value[i] for name, value in values.items()}
                image = {"id": number, "file_name": key, **sample["image_info"]}
                found = self._objects(number, sample) if with_annotations else []
                yield _ordered(image, self.form.get("image_order")), found

    def _objects(self, image_id: int, sample: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The annotations of an image."""
        categories = self.form["others"].get("categories") or []
        entries = []
        for i, number in enumerate(sample["annotation_ids"]):
            entry: dict[str, Any] = {"id": number, "image_id": image_id}
            if "classes" in sample:
                entry["category_id"] = categories[sample["classes"][i]]["id"]
            if "boxes" in sample:
                entry["bbox"] = list(map(_short, sample["boxes"][i]))
            if "keypoints" in sample:
                points = zip(sample["keypoints"][i], sample["visibility"][i], strict=True)
                entry["keypoints"] = [_short(each) for (x, y), seen in points for each in (x, y, seen)]
            if "captions" in sample and sample["captions"][i] is not None:
                entry["caption"] = sample["captions"][i]
            entry |= sample["objects"][i] if "objects" in sample else {}
            entries.append(_ordered(entry, self.form.get("annotation_order")))
        return entries


def _short(number: float) -> float:
    """A whole number without its fraction, as COCO mostly has it; both are the same number."""
    return int(number) if float(number).is_integer() else number


def _ordered(entry: dict[str, Any], order: Any) -> dict[str, Any]:
    names = [name for name in order if name in entry] if isinstance(order, list) else []
    return {name: entry[name] for name in (*names, *(each for each in entry if each not in names))}


def _text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _list(entries: Iterator[bytes]) -> Iterator[bytes]:
    yield b"[" + next(entries, b"")
    for entry in entries:
        yield b", " + entry
    yield b"]"
