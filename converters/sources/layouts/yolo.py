"""Reads datasets of YOLO: pictures, a .txt of boxes or polygons for each, and a data.yaml with parts and classes."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastio.converters.sources.coco.detections import Detections
from fastio.converters.sources.layouts.roots import chosen_part
from fastio.converters.sources.listed import ListedSource
from fastio.converters.sources.optional import yaml
from fastio.converters.sources.options import SourceOptions
from fastio.errors import SourceError
from fastio.store.kinds.layouts import CLASS_NAMES, yolo_configs, yolo_folders
from fastio.store.kinds.scan import Problem, SourcePath, is_hidden, names_in, scan_tree, shown
from fastio.types.units import counted

__all__ = [
    "open_yolo",
]


_LOG = logging.getLogger(__name__)
_KIND = "yolo"  # of sources
_PARTS = ("train", "val", "test", "valid", "minival")  # keys of a data.yaml
_CACHES = (".cache", ".npy")  # what frameworks leave beside pictures
_LARGEST_LABELS = 64 << 20  # bytes of one label file


def open_yolo(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open one part of a dataset of YOLO: a ``data.yaml``, its folder, or a folder of ``images`` and ``labels``.

    The labels of ``images/a.jpg`` are in ``labels/a.txt``, or in ``a.txt`` beside it: a line ``class x y width height``
    for each object, as fractions of the picture with x and y in its centre; ``class x1 y1 x2 y2 ...`` is a polygon,
    whose box is the smallest around it; with ``kpt_shape`` in the yaml, key points follow the box. Boxes become pixels,
    as those of COCO. An empty label file is a picture without objects. So is a missing one, which a warning counts,
    as frameworks take it, unless all are missing. A line with something wrong is a problem of its picture.
    """
    config = _Config.of(place)
    name, folders = chosen_part(place.path, config.parts, options.split, "part")
    root = os.path.realpath(os.path.commonpath([config.folder, *folders]))
    pictures, problems, listed = _pictures(folders, root)
    labels, there = _label_files(root, pictures)
    if pictures and not there:
        raise SourceError(
            f"{place.path}: no picture of {name!r} has a label file: expected {labels[pictures[0]]} for {pictures[0]}"
        )
    if all(map(os.path.isdir, folders)):  # a list may name some of the pictures
        problems += _without_picture(root, there)
    classes, most = list(config.classes), -1
    with closing(Detections(is_normalised=True)) as found:
        for key in pictures:
            objects, problem = list[dict[str, Any]](), ""
            if labels[key] in there:
                objects, problem = _objects(f"{root}/{labels[key]}", config)
            most = max([most, *(each["category_id"] for each in objects)])
            found.add(key, objects, problem=problem and f"has labels in {labels[key]} {problem}")
        without = [key for key in pictures if labels[key] not in there]  # several may have the labels of one file
        if without:
            _LOG.warning(
                "%s: %s without a label file, such as %s: taken to have no objects",
                shown(place.path),
                counted(len(without), "picture"),
                shown(without[0]),
            )
        classes += [str(i) for i in range(len(classes), most + 1)]
        files = [*config.files, *filter(os.path.isfile, folders), *(f"{root}/{path}" for path in sorted(there))]
        source = found.source(place, _KIND, options, root, classes, files, problems)
    own = source.files
    # With label files that are not there: that one came is noticed by whoever reads the folder in place.
    return replace(source, paths=lambda: [*own(), *(f"{root}/{labels[key]}" for key in without)], listed=listed)


@dataclass(frozen=True, slots=True)
class _Config:
    """
    What is known of the dataset in ``folder`` before its pictures are listed: folders, or lists of names, of pictures
    by part; names of ``classes``, () if there are none; the numbers of key points and of the values of each.
    """

    folder: str
    parts: Mapping[str, Sequence[str]]
    classes: Sequence[str] = ()
    files: Sequence[str] = ()
    points: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, place: SourcePath) -> _Config:
        """Return that of a yaml, or of a folder with one or without. Raises SourceError."""
        folder = place.path if place.is_folder else str(Path(place.path).parent)
        found = [f"{place.path}/{name}" for name in yolo_configs(place)] if place.is_folder else [place.path]
        if len(found) > 1:
            raise SourceError(f"{place.path}: holds {', '.join(found)}: name the one that is meant")
        if found:
            return cls._of_yaml(found[0], folder)
        parts = {part: [f"{folder}/{name}"] for part, name in yolo_folders(place).items()}
        if not parts:
            raise SourceError(
                f"{place.path}: expected a data.yaml with 'names' and 'train', or folders images and labels"
            )
        file = next((f"{folder}/{name}" for name in CLASS_NAMES if Path(folder, name).is_file()), "")
        return cls(folder, parts, _class_names(file) if file else [], [file] if file else [])

    @classmethod
    def _of_yaml(cls, path: str, folder: str) -> _Config:
        said = yaml_of(path)
        names = said.get("names")
        if isinstance(names, dict):
            numbers = range(max((key for key in names if type(key) is int), default=-1) + 1)
            names = [names.get(i, str(i)) for i in numbers] if len(names) == len(numbers) else None
        if not isinstance(names, list) or not names or not all(isinstance(name, (str, int, float)) for name in names):
            raise SourceError(f"{path}: names: expected a list of names of classes, or one from 0 on by number")
        truths = [i for i, name in enumerate(names) if isinstance(name, bool)]
        if truths:  # no, yes, on, off: YAML has lost what was written
            raise SourceError(f"{path}: names: class {truths[0]} is a truth value to YAML: write its name in quotes")
        bases = [Path(folder)]
        if isinstance(said.get("path"), str):
            bases.insert(0, Path(folder, said["path"]))
        parts = {}
        for part in _PARTS:
            values = said.get(part) or []
            values = [values] if isinstance(values, str) else values
            if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
                raise SourceError(
                    f"{path}: {part}: expected a folder of pictures, or a list of such, got {values!r:.60}"
                )
            if values and (part in ("train", "val") or any(_existing(bases, value) for value in values)):
                parts[part] = [_existing(bases, value) or str(bases[0] / value) for value in values]
        shape = said.get("kpt_shape")
        is_shape = isinstance(shape, list) and len(shape) == 2 and all(type(each) is int for each in shape)
        if not parts or (shape is not None and not (is_shape and shape[0] > 0 and shape[1] in (2, 3))):
            what = "kpt_shape: expected [points, 2 or 3]" if parts else "names no folder of pictures as train or val"
            raise SourceError(f"{path}: {what}")
        points = (shape[0], shape[1]) if isinstance(shape, list) else (0, 0)
        return cls(folder, parts, list(map(str, names)), [path], points)


def _class_names(path: str) -> list[str]:
    """The names of classes, a line each. Raises SourceError for a blank one, behind which numbers would move."""
    text = Path(path).read_text(encoding="utf-8-sig", errors="replace")
    names = [line.strip() for line in text.rstrip().split("\n")] if text.strip() else []
    if not all(names):
        raise SourceError(f"{path}: line {names.index('') + 1} is blank: expected the name of class {names.index('')}")
    return names


def yaml_of(path: str) -> Mapping[str, Any]:
    """Read a yaml of a mapping; nothing in it is run. Raises SourceError that names the file."""
    library = yaml(f"{path}: to read it,")
    try:
        found = library.safe_load(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError, library.YAMLError) as exc:
        raise SourceError(f"{path}: cannot be read as YAML: {' '.join(str(exc).split()):.200}") from exc
    if not isinstance(found, dict):
        raise SourceError(f"{path}: expected names and values, found {type(found).__name__}")
    return found


def _existing(bases: Sequence[Path], value: str) -> str:
    """The folder or list that a yaml means, by its own rules and without leading ``../``; "" if there is none."""
    plain = value
    while plain.startswith("../"):
        plain = plain[3:]
    tried = [base / name for name in dict.fromkeys([value, plain]) for base in bases]
    return next((os.path.normpath(each) for each in tried if each.exists()), "")


def _pictures(places: Sequence[str], root: str) -> tuple[list[str], list[Problem], dict[str, int]]:
    """The pictures of folders and lists, from ``root`` on, what is wrong with others, and what was looked into."""
    names, problems, listed = [], list[Problem](), dict[str, int]()
    for place in places:
        if Path(place).is_file():
            names += _listed(place, root, problems)
            continue
        if not Path(place).is_dir():
            raise SourceError(f"{place}: the folder of pictures is not there; correct the yaml, or name another part")
        found = scan_tree(root, os.path.relpath(os.path.realpath(place), root))
        names += [os.path.normpath(key) for key in found.keys]
        problems += [each for each in found.problems if Path(each.key).suffix.lower() not in _CACHES]
        listed.update(found.listed)
    return names, problems, listed


def _listed(path: str, root: str, problems: list[Problem]) -> list[str]:
    """The pictures that a file lists, a line each, from its own folder on."""
    names = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8-sig", errors="replace").splitlines(), 1):
        if line.strip():
            place = os.path.realpath(Path(path).parent / line.strip())
            if place.startswith(f"{root}/"):
                names.append(place[len(root) + 1 :])
            else:
                problems.append(Problem(f"{Path(path).name}:{number}", f"names {line.strip()!r:.80}, outside {root}"))
    return names


def _label_files(root: str, pictures: Sequence[str]) -> tuple[dict[str, str], set[str]]:
    """The label file of each picture, and those that are there; ``.TXT`` is one where no ``.txt`` is."""
    labels = {key: _label_path(key) for key in pictures}
    there = dict[str, str]()
    for folder in {path.rpartition("/")[0] for path in labels.values()}:
        prefix = f"{folder}/" if folder else ""
        names = [name for name in names_in(f"{root}/{folder}")[1] if name[-4:].lower() == ".txt"]
        there |= {f"{prefix}{name[:-4]}.txt": prefix + name for name in sorted(names)}  # .txt comes behind .TXT
    found = {key: there.get(path, path) for key, path in labels.items()}
    return found, {path for key, path in found.items() if labels[key] in there}


def _label_path(key: str) -> str:
    """The file of a picture's labels: the last folder ``images`` in its path is ``labels``."""
    stem = key.rpartition(".")[0]
    parts = stem.split("/")
    for i in range(len(parts) - 2, -1, -1):
        if parts[i] == "images":
            parts[i] = "labels"
            break
    return "/".join(parts) + ".txt"


def _without_picture(root: str, there: set[str]) -> list[Problem]:
    """Label files beside those of the part that label no picture."""
    problems = []
    for folder in sorted({path.rpartition("/")[0] for path in there}):
        if folder.split("/")[-1] != "labels" and "labels" not in folder.split("/"):
            continue  # pictures lie there, too, and other texts may
        names = [f"{folder}/{name}" for name in names_in(f"{root}/{folder}")[1] if name[-4:].lower() == ".txt"]
        problems += [
            Problem(shown(name), "is a label file without a picture")
            for name in names
            if name not in there and name.rpartition("/")[2] not in CLASS_NAMES and not is_hidden(name)
        ]
    return problems


def _objects(path: str, config: _Config) -> tuple[list[dict[str, Any]], str]:
    """The objects of a label file, and a sentence about the first line that is none."""
    try:
        if Path(path).stat().st_size > _LARGEST_LABELS:
            return [], f"of more than {_LARGEST_LABELS:,} bytes"
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as exc:
        return [], f"that cannot be read: {exc}"
    objects = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            found = _object(line.split(), config)
            if isinstance(found, str):
                return [], f"of which line {number} ({line.strip()!r:.60}) {found}"
            objects.append(found)
    return objects, ""


def _object(words: Sequence[str], config: _Config) -> dict[str, Any] | str:
    """One object as COCO has it, in fractions, or what is wrong with its line."""
    try:
        values = [float(word) for word in words]
    except ValueError:
        return "is not numbers alone"
    if any("_" in word for word in words):  # which Python passes over
        return "is not numbers alone"
    number, *rest = values
    if not number.is_integer() or number < 0:
        return f"begins with {words[0]}, expected the number of a class"
    if config.classes and number >= len(config.classes):
        return f"is of class {words[0]}, but there are {len(config.classes)}"
    if not all(math.isfinite(each) and abs(each) <= _FARTHEST for each in rest):
        return "has coordinates that are no fractions of the picture"
    count, width = config.points
    if len(rest) == 4 + count * width:
        return _box(int(number), rest, width)
    if not count and len(rest) >= 6 and len(rest) % 2 == 0:
        xs, ys = rest[::2], rest[1::2]
        box = [min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys)]
        return {"category_id": int(number), "bbox": box, "segmentation": [rest]}
    expected = f"{5 + count * width} numbers" if count else "5 numbers, or a class and 3 points or more"
    return f"has {len(words)} numbers, expected {expected}"


_FARTHEST = 2.0  # of a coordinate from the picture's corner, in its sides: a box may stick out, pixels do not pass


def _box(number: int, rest: Sequence[float], width: int) -> dict[str, Any] | str:
    """An object from its box around a centre, with key points behind it if they have a ``width``."""
    x, y, box_width, box_height = rest[:4]
    if box_width < 0 or box_height < 0:
        return "has a negative size"
    found: dict[str, Any] = {
        "category_id": number,
        "bbox": [x - box_width / 2, y - box_height / 2, box_width, box_height],
    }
    if width:
        rows = [rest[i : i + width] for i in range(4, len(rest), width)]
        found["keypoints"] = [value for row in rows for value in (*row[:2], row[2] if width == 3 else 2.0)]
    return found
