"""Images with their annotations as a source: one sample per image, whatever file says so."""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec.headers import Headers, read_headers
from fastio.converters.fields.types import NamedTwice
from fastio.converters.pictures.probe import header_problems
from fastio.converters.sources.coco.annotations import CollectedAnnotations
from fastio.converters.sources.files import IMAGE_FIELD, FileReader, paths_below
from fastio.converters.sources.layouts.roots import left_beside
from fastio.converters.sources.listed import Indices, ListedSource, Read, Values, names_at, read_together
from fastio.converters.sources.options import SourceOptions, source_record
from fastio.converters.sources.record import root_to_record
from fastio.converters.sources.tables.names import file_states, safe_name
from fastio.errors import SourceError
from fastio.store.kinds.scan import Problem, SourcePath, shown
from fastio.types.field_types import field_of
from fastio.types.picture_kinds import JPEG_SIGNATURE
from fastio.types.schema import Field, Schema
from fastio.types.spans import Spans

__all__ = [
    "CocoFile",
    "CocoSamples",
    "Images",
]


_OWN: Final = ("id", "file_name")


@dataclass(slots=True)
class CocoFile:
    """
    What a COCO JSON holds beside its images and annotations.

    ``order`` are the names at the top in their order, ``others`` the values of those that are neither of the two.
    """

    order: list[str] = field(default_factory=list)
    others: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Images:
    """The images of the file: ids, names, and what else is said of each, as JSON; ``bad`` by position."""

    ids: array[int] = field(default_factory=lambda: array("q"))
    names: list[Any] = field(default_factory=list)
    infos: list[bytes] = field(default_factory=list)
    sizes: array[int] = field(default_factory=lambda: array("q"))  # height and width; 0: not given, -1: no such number
    bad: dict[int, str] = field(default_factory=dict)
    homeless: list[tuple[str, str]] = field(default_factory=list)
    order: list[str] = field(default_factory=list)

    def add(self, entry: Any, where: str) -> None:
        """Take one more."""
        number = entry.get("id") if isinstance(entry, dict) else None
        if type(number) is not int or not -(2**63) <= number < 2**63:
            words = f"has the id {number!r:.40}, expected a whole number" if isinstance(entry, dict) else "is no object"
            self.homeless.append((where, words))
            return
        if not self.order:
            self.order = list(entry)
        position = len(self.ids)
        if isinstance(entry, NamedTwice):
            self.bad[position] = entry.words
        self.ids.append(number)
        self.names.append(_file_name(entry))
        self.sizes.extend(_pixels(entry.get(name)) for name in ("height", "width"))
        try:
            rest = {name: value for name, value in entry.items() if name not in _OWN}
            self.infos.append(json.dumps(rest, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode())
        except (ValueError, RecursionError) as exc:
            self.bad[position] = f"cannot be kept as JSON: {exc}"
            self.infos.append(b"{}")

    def header_check(self, file_name: str) -> Callable[[Indices, Headers], dict[int, str]]:
        """Return a function that finds pictures of other sizes than ``file_name``, the JSON, says."""
        sizes = np.array(self.sizes, np.int64).reshape(-1, 2)

        def check(indices: Indices, headers: Headers) -> dict[int, str]:
            said = sizes[indices]
            is_other = (said != 0) & (said != headers.sizes) & (headers.sizes > 0)
            problems = {}
            for i in np.flatnonzero(is_other.any(axis=1)).tolist():
                info, (height, width) = json.loads(self.infos[indices[i]]), headers.sizes[i].tolist()
                words = f"{info.get('width', '?')!r:.40} x {info.get('height', '?')!r:.40}"
                problems[i] = (
                    f"is {width} x {height} pixels, but {file_name} says {words} (width x height): its boxes and "
                    "polygons belong to a picture of that size"
                )
            return problems

        return check


def _file_name(entry: Mapping[str, Any]) -> Any:
    """The file of an image; LVIS has an address instead, which ends with the folder and the name."""
    url = entry.get("coco_url")
    return (
        "/".join(url.split("/")[-2:]) if "file_name" not in entry and isinstance(url, str) else entry.get("file_name")
    )


def _pixels(number: Any) -> int:
    """A width or height that the JSON gives; 0 if it gives none, -1 for what no picture has."""
    if number is None:
        return 0
    is_whole = type(number) is int or (type(number) is float and number.is_integer())
    return int(number) if is_whole and 0 <= number < 2**31 else -1


@dataclass(frozen=True, slots=True)
class CocoSamples:
    """
    Everything that is known of some images below ``root`` and of their annotations, which the files ``paths`` hold.

    The first of these gives its name to what is wrong with an annotation, and to the JSON that ``unpack`` writes.
    ``file`` holds the categories. Coordinates that are ``is_normalised`` are fractions of the width and height of their
    picture, and become pixels when this is read. ``problems`` and ``bad``, by position of the image, are further ones.
    """

    place: SourcePath
    kind: str
    paths: Sequence[str]
    options: SourceOptions
    file: CocoFile
    images: Images
    annotations: CollectedAnnotations
    root: str
    is_normalised: bool = False
    problems: Sequence[Problem] = ()
    bad: Mapping[int, str] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """What messages call the annotations."""
        return Path(self.paths[0]).name

    def source(self) -> ListedSource:
        """Put images, annotations and files together."""
        names, bad = self._names()
        bad = {**self.bad, **bad}
        states = file_states(self.root, names)
        for i, sentence in states.problems.items():
            bad.setdefault(i, f"has a 'file_name' that {sentence}")
        categories = self._categories()
        per_image, problems = self._assign(bad)
        self._check_categories(per_image, categories, bad)
        values = _ObjectValues(self.annotations, per_image, categories, self.images.infos)
        order = np.setdiff1d(np.arange(len(names)), np.fromiter(bad, np.int64, len(bad)))
        problems += [Problem(shown(names[i] or f"{self.where}:image {self.images.ids[i]}"), bad[i]) for i in bad]
        pictures = FileReader(IMAGE_FIELD, self.root, names_at(names), states.sizes)
        together = read_together([pictures.begin, values.begin])
        return ListedSource(
            path=self.place.path,
            kind=self.kind,
            schema=Schema((IMAGE_FIELD, *values.fields, field_of("image_id", "int"))),
            metadata=self._metadata(categories),
            keys_at=names_at(names),
            sizes=states.sizes + values.sizes,
            read=_InPixels(pictures, values.begin).begin if self.is_normalised else together,
            disk_bytes=states.disk_bytes + sum(Path(path).stat().st_blocks * 512 for path in self.paths),
            files_opened=len(order) + len(self.paths),
            columns={"image_id": np.array(self.images.ids, np.int64)},
            problems=[*self.problems, *problems],
            left_out=left_beside(self.place, self.root, names, self.paths),
            order=order,
            is_by_name=False,
            header_check=self.images.header_check(self.where) if self.annotations.are_placed else None,
            # With those that are not there: that one came is noticed by whoever reads the folder in place.
            paths=lambda: [*self.paths, *paths_below(self.root, names)],
        )

    def _names(self) -> tuple[list[str], dict[int, str]]:
        """The images' files below the root; what is wrong with some, and with ids and files that come twice."""
        bad, names = dict(self.images.bad), list[str]()
        first_id: dict[int, int] = {}
        first_name: dict[str, int] = {}
        for i, (number, given) in enumerate(zip(self.images.ids, self.images.names, strict=True)):
            name, problem = safe_name(given, self.root)
            names.append(name)
            if problem:
                bad.setdefault(i, f"has a 'file_name' that {problem}")
            for other in (first_id.setdefault(number, i), first_name.setdefault(name, i) if name else i):
                if other != i:
                    bad.setdefault(i, f"comes twice: image {number} and image {self.images.ids[other]}")
                    bad.setdefault(other, f"comes twice: image {self.images.ids[other]} and image {number}")
        return names, bad

    def _assign(self, bad: dict[int, str]) -> tuple[_PerImage, list[Problem]]:
        """The annotations of each image, and those of none."""
        name, annotations = self.where, self.annotations
        problems = [Problem(f"{name}:{where}", f"annotation {words}") for where, words in annotations.homeless]
        problems += [Problem(f"{name}:{where}", f"image {words}") for where, words in self.images.homeless]
        position = {number: i for i, number in enumerate(self.images.ids)}
        owners = np.array([position.get(number, -1) for number in annotations.image_ids.tolist()], np.int64)
        for i in np.flatnonzero(owners < 0).tolist():
            sentence = f"belongs to image {annotations.image_ids[i]}, which is not among the images"
            problems.append(Problem(f"{name}:annotation {annotations.ids[i]}", sentence))
        for i, words in annotations.bad.items():
            if owners[i] >= 0:
                bad.setdefault(int(owners[i]), f"has an annotation {annotations.ids[i]} that {words}")
        return _PerImage.of(owners, len(self.images.ids)), problems

    def _categories(self) -> list[dict[str, Any]]:
        """The categories, checked. Raises SourceError for those that are none."""
        categories = self.file.others.get("categories", [])
        is_sound = isinstance(categories, list) and all(
            isinstance(each, dict) and type(each.get("id")) is int and isinstance(each.get("name"), str)
            for each in categories
        )
        if not is_sound or len({each["id"] for each in categories}) < len(categories):
            raise SourceError(f"{self.paths[0]}: categories: expected a list of objects with different ids and names")
        return list(categories)

    def _check_categories(
        self, per_image: _PerImage, categories: Sequence[dict[str, Any]], bad: dict[int, str]
    ) -> None:
        """Images with an annotation of an unknown category, or without a box where others have one."""
        annotations, known = self.annotations, np.array([each["id"] for each in categories], np.int64)
        unknown = annotations.has_category & ~np.isin(annotations.category_ids, known)
        for i in np.flatnonzero(unknown & (per_image.owners >= 0)).tolist():
            words = f"is of category {annotations.category_ids[i]}, which is not among the categories"
            bad.setdefault(int(per_image.owners[i]), f"has an annotation {annotations.ids[i]} that {words}")
        for has, what in ((annotations.has_box, "bbox"), (annotations.has_category, "category_id")):
            if has.any():
                for i in np.flatnonzero(~has & (per_image.owners >= 0)).tolist():
                    bad.setdefault(int(per_image.owners[i]), f"has an annotation {annotations.ids[i]} without {what}")

    def _metadata(self, categories: Sequence[dict[str, Any]]) -> dict[str, Any]:
        place, annotations = self.place, self.annotations
        record = source_record(self.kind, place.name, labels=None)
        if self.options.root is not None:
            record["root"] = root_to_record(self.options.root, place.path)
        names = [each["name"] for each in categories]
        coco = {
            "name": self.where if self.where.endswith(".json") else "annotations.json",
            "order": self.file.order,
            "others": self.file.others,
            "image_order": self.images.order,
            "annotation_order": annotations.order,
            "is_by_id": bool(len(annotations) and (np.diff(annotations.ids) > 0).all()),
        }
        classes = {"field_classes": {"classes": names}} if annotations.has_category.any() else {}
        return {"classes": None, **classes, "source": record, "coco": coco}


@dataclass(frozen=True, slots=True)
class _PerImage:
    """Which annotations belong to which image: those of image i are ``order[starts[i]:starts[i + 1]]``."""

    owners: NDArray[np.int64]
    order: NDArray[np.int64]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, owners: NDArray[np.int64], count: int) -> _PerImage:
        order = np.argsort(owners, kind="stable")
        starts = np.searchsorted(owners[order], np.arange(count + 1))
        return cls(owners, order, starts)

    def positions(self, image: int) -> NDArray[np.int64]:
        """Return the annotations of an image, in the order of the file."""
        return self.order[self.starts[image] : self.starts[image + 1]]


class _ObjectValues:
    """The fields that annotations become, and their values."""

    def __init__(
        self,
        annotations: CollectedAnnotations,
        per_image: _PerImage,
        categories: Sequence[dict[str, Any]],
        infos: Sequence[bytes],
    ) -> None:
        self._annotations, self._per_image, self._infos = annotations, per_image, infos
        ids = np.array([each["id"] for each in categories], np.int64)
        by_id = np.argsort(ids, kind="stable")
        places = np.searchsorted(ids[by_id], annotations.category_ids) if len(ids) else np.zeros(len(annotations), int)
        self._classes = by_id[np.minimum(places, len(ids) - 1)] if len(ids) else places
        self._encoders: dict[str, Callable[[NDArray[np.int64]], bytes]] = {}
        self.fields: list[Field] = []
        self._add_fields()
        sizes = np.diff(per_image.starts) * 64 + np.array([len(info) for info in infos], np.int64)
        rests = np.concatenate([[0], np.cumsum(annotations.rests.sizes[per_image.order])])
        self.sizes: NDArray[np.int64] = sizes + np.diff(rests[per_image.starts])

    def _add_fields(self) -> None:
        annotations = self._annotations
        owner = " per boxes" if annotations.has_box.any() else ""
        if owner:
            self._add("boxes", "xywh", lambda at: annotations.boxes[at].tobytes())
        if annotations.has_category.any():
            self._add("classes", f"int64[*]{owner}", lambda at: self._classes[at].astype("<i8").tobytes())
        self._add("annotation_ids", f"int64[*]{owner}", lambda at: annotations.ids[at].tobytes())
        self._add_points(owner)
        if annotations.has_captions:
            self._add("captions", "json", lambda at: _listed([annotations.captions.view(i) for i in at.tolist()]))
        if annotations.has_rests:
            self._add("objects", "json", lambda at: _listed([annotations.rest(i) for i in at.tolist()]))
        self.fields.append(field_of("image_info", "json"))

    def _add_points(self, owner: str) -> None:
        """Key points, if all annotations have the same number of them; otherwise ``objects`` holds them."""
        annotations, count = self._annotations, self._annotations.common_points
        if not count:
            return
        points = annotations.points.reshape(-1, count, 3)
        self._add("keypoints", f"points[{count}]{owner}", lambda at: points[at, :, :2].astype("<f4").tobytes())
        self._add("visibility", f"int64[*,{count}]{owner}", lambda at: points[at, :, 2].astype("<i8").tobytes())

    def _add(self, name: str, type_: str, encode: Callable[[NDArray[np.int64]], bytes]) -> None:
        self.fields.append(field_of(name, type_))
        self._encoders[name] = encode

    def begin(self, indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        """Return the values of some images; see ``ListedSource.read``."""
        del pool  # they are in memory, or in the system's cache

        def finish() -> Values:
            positions = [self._per_image.positions(i) for i in indices.tolist()]
            spans = {name: _joined(list(map(encode, positions))) for name, encode in self._encoders.items()}
            spans["image_info"] = _joined([self._infos[i] for i in indices.tolist()])
            return Values(spans)

        return finish


@dataclass(frozen=True, slots=True)
class _InPixels:
    """
    Pictures and what belongs to them, whose boxes, points and polygons become pixels where ``values`` has fractions.

    A picture with objects that its EXIF data turn is a problem: fractions are those of the picture as it is shown,
    while pixels are decoded as they are stored.
    """

    pictures: FileReader
    values: Read

    @property
    def reads(self) -> tuple[Read, Read]:
        """The two apart, for pictures that stay where they lie: of each, the head is read."""
        return self.pictures.begin, self.beside

    def begin(self, indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        """Begin to read pictures with all that belongs to them; see ``ListedSource.read``."""
        wait = read_together([self.pictures.begin, self.values])(indices, pool)

        def finish() -> Values:
            return _scaled_values(values := wait(), values.spans["image"])

        return finish

    def beside(self, indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        """Begin to read what belongs to pictures alone; one that has no size is a problem."""
        wait = self.values(indices, pool)

        def finish() -> Values:
            keys = self.pictures.keys_at(indices)
            heads, problems = _heads(self.pictures.path, keys)
            return _scaled_values(replace(wait(), problems=problems), heads)

        return finish


def _heads(root: str, names: Sequence[str]) -> tuple[Spans, dict[int, str]]:
    """Return the beginnings of pictures in which their sizes stand, and what is wrong with others."""
    heads, problems = list[bytes](), dict[int, str]()
    for i, name in enumerate(names):
        try:
            with open(f"{root}/{name}", "rb") as file:  # noqa: PTH123 - of many
                head = file.read(_EXIF_BYTES)
                if not read_headers(_joined([head])).sizes.all():
                    head += file.read()
        except OSError as exc:
            head, problems[i] = b"", f"cannot be read: {exc.strerror or exc}"
        heads.append(head)
    spans = _joined(heads)
    found = header_problems(read_headers(spans), IMAGE_FIELD)
    return spans, {**found, **problems}


def _scaled_values(values: Values, pictures: Spans) -> Values:
    """Return values in pixels of these pictures."""
    sizes = read_headers(pictures).sizes.astype(np.float64)
    spans = dict(values.spans)
    for name in {"boxes", "keypoints", "objects"} & spans.keys():
        change = _scaled_objects if name == "objects" else _scaled
        views = spans[name].views()
        spans[name] = _joined([change(view.tobytes(), *size) for view, size in zip(views, sizes, strict=True)])
    problems = dict(values.problems)
    counts = values.spans["annotation_ids"].sizes.tolist()
    for i, (view, count) in enumerate(zip(pictures.views(), counts, strict=True)):
        if count and (turned := exif_orientation(view[:_EXIF_BYTES].tobytes())) > 1:
            problems.setdefault(
                i,
                f"is turned by its EXIF orientation {turned}, and its boxes are fractions of the picture as it "
                "is shown: write it upright",
            )
    return replace(values, spans=spans, problems=problems)


_EXIF_BYTES = 1 << 16  # of a file, in which EXIF data begin
_ORIENTATION = 0x0112  # the tag


def exif_orientation(head: bytes) -> int:
    """Return the orientation in the EXIF data of a JPEG, by the first bytes of the file: 1 to 8; 1 if there is none."""
    start = head.find(b"Exif\0\0") + 6
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(head[start : start + 4])
    if start <= 5 or order is None or not head.startswith(JPEG_SIGNATURE):
        return 1
    try:
        table = start + int(struct.unpack_from(f"{order}I", head, start + 4)[0])
        (count,) = struct.unpack_from(f"{order}H", head, table)
        for entry in range(count):
            tag, kind = struct.unpack_from(f"{order}HH", head, table + 2 + 12 * entry)
            if (tag, kind) == (_ORIENTATION, 3):
                (value,) = struct.unpack_from(f"{order}H", head, table + 10 + 12 * entry)
                return int(value) if 1 <= value <= 8 else 1
    except struct.error:  # it is cut off, or says what is beyond
        return 1
    return 1


def _scaled(data: bytes, height: float, width: float) -> bytes:
    """Coordinates, x and y in turn, as pixels of a picture of this size."""
    pairs = np.frombuffer(data, "<f4").reshape(-1, 2) * np.array([width, height])
    return bytes(pairs.astype("<f4").tobytes())


def _scaled_objects(data: bytes, height: float, width: float) -> bytes:
    """Objects whose polygons, x and y in turn, are pixels of a picture of this size."""
    objects = json.loads(data)
    for each in objects:
        polygons = each.get("segmentation") or ()
        scaled = [[x * (height if i % 2 else width) for i, x in enumerate(polygon)] for polygon in polygons]
        if scaled:
            each["segmentation"] = scaled
    return json.dumps(objects, ensure_ascii=False, separators=(",", ":")).encode()


def _joined(values: Sequence[bytes]) -> Spans:
    return Spans.joined(np.frombuffer(b"".join(values), np.uint8), np.array([len(value) for value in values], np.int64))


def _listed(values: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(values) + b"]"
