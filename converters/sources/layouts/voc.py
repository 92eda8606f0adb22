"""Reads datasets in the form of Pascal VOC: pictures, an XML of objects for each, and lists of names in ImageSets."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np

from fastio.converters.sources.coco.detections import Detections
from fastio.converters.sources.files import paths_below
from fastio.converters.sources.layouts.roots import chosen_part
from fastio.converters.sources.listed import ListedSource, names_at, read_together
from fastio.converters.sources.options import SourceOptions
from fastio.converters.sources.pairs import FieldFiles, suggested_field
from fastio.converters.sources.tables.names import Stems, describe_names, file_states
from fastio.errors import SourceError
from fastio.store.kinds.layouts import voc_folder, voc_years
from fastio.store.kinds.scan import Problem, SourcePath, is_hidden, names_in, shown
from fastio.types.picture_kinds import kind_by_name
from fastio.types.schema import Schema

__all__ = [
    "open_voc",
]


_KIND = "voc"  # of sources
_SETS, _MAIN, _SEGMENTATION = "ImageSets", "Main", "Segmentation"
_MASKS = "SegmentationClass"
_PICTURES = ("JPEGImages", "images", "Images", "image", "imgs")
_LARGEST = 16 << 20  # bytes of an XML
_DEEPEST = 32  # elements within each other


def open_voc(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open the pictures of one list in ``ImageSets/Main``, or all of ``Annotations`` if there are no lists.

    The lists of ``ImageSets/Segmentation`` are parts, too (``Segmentation/train``): their pictures have a ``mask``.

    Boxes are COCO's, ``xmin, ymin, xmax - xmin, ymax - ymin`` with the numbers that the file has; ``objects`` keep what
    else is said of each, such as ``difficult``, ``image_info`` what is said of the picture. Classes are those of all
    XMLs, sorted by name, whatever the part. A picture of another size than its XML says is a problem, and so is one
    without an XML, or with a broken one.
    """
    place, options = _of_year(place, options)
    folder = voc_folder(place)
    if not folder:
        raise SourceError(f"{place.path}: expected a folder Annotations with an XML for each picture, found none")
    root = _root(f"{place.path}/{folder}")
    stems_of = _sets(root)
    part, stems, lists, twice = "", None, list[str](), list[Problem]()
    if stems_of:
        part, file = chosen_part(place.path, stems_of, options.split, "part")
        stems, twice = _names_in(file)
        lists = [file]
    elif options.split is not None:
        raise SourceError(f"{place.path}: has no ImageSets/Main with lists of pictures: drop --split {options.split}")
    xmls = [name for name in names_in(f"{place.path}/{folder}")[1] if name.lower().endswith(".xml")]
    entries, file_of = dict[str, _Entry](), dict[str, str]()
    for name in xmls:
        stem, said = name.rpartition(".")[0], _read(f"{place.path}/{folder}/{name}")
        file_of.setdefault(stem, f"{folder}/{name}")
        entries[stem] = said if stem not in entries else replace(said, problem="stands beside another of its name")
    classes = sorted({each.name for entry in entries.values() for each in entry.objects})
    numbers = {name: i for i, name in enumerate(classes)}
    pictures = next((name for name in _PICTURES if Path(root, name).is_dir()), Path(folder).name)
    found_files, problems = Stems(f"{root}/{pictures}"), list[Problem]()
    with closing(Detections()) as found:
        for stem in entries if stems is None else stems:
            name, problem = found_files.name(stem)
            entry = entries.get(stem)
            if problem:
                what = f"names a picture that {problem}" if entry else f"is listed as a picture that {problem}"
                problems.append(Problem(shown(stem), what))
            elif entry is None:
                found.add(f"{pictures}/{name}", [], problem=f"has no {folder}/{stem}.xml")
            else:
                objects = ({"category_id": numbers[each.name], **each.values} for each in entry.objects)
                words = entry.problem and f"has an annotation {file_of[stem]} that {entry.problem}"
                found.add(f"{pictures}/{name}", objects, entry.info, words)
        if stems is None:
            problems += _without_xml(f"{root}/{pictures}", pictures, entries)
        files = [*(f"{place.path}/{file_of[stem]}" for stem in (stems or entries) if stem in entries), *lists]
        files = list(dict.fromkeys(files)) or [f"{place.path}/{folder}"]
        source = found.source(place, _KIND, options, root, classes, files, problems)
        source = replace(source, left_out=[*source.left_out, *twice])
    taken = set(files)
    # The classes are those of the other XMLs, too.
    rest = [path for name in xmls if (path := f"{place.path}/{folder}/{name}") not in taken]
    if rest:
        own = source.files
        source = replace(source, paths=lambda: [*own(), *rest], files_opened=source.files_opened + len(rest))
    is_segmented = part.startswith(f"{_SEGMENTATION}/") and Path(root, _MASKS).is_dir()
    return _with_masks(source, root) if is_segmented else source


def _of_year(place: SourcePath, options: SourceOptions) -> tuple[SourcePath, SourceOptions]:
    """Of a ``VOCdevkit`` of several years, the one that is named as the split. Raises SourceError if none is."""
    years = voc_years(place)
    if voc_folder(place) or not years:
        return place, options
    if options.split in years:
        return SourcePath(f"{place.path}/{options.split}"), replace(options, split=None)
    year, split = years[-1], options.split or "trainval"
    command = shlex.join(["fastio", "pack", str(Path(place.path, year)), f"{year}.lmdb", "--split", split])
    named = ", ".join(map(repr, years))
    raise SourceError(f"{place.path}: has Pascal VOC of several years, {named}: name one, as in `{command}`")


def _with_masks(source: ListedSource, root: str) -> ListedSource:
    """The same pictures, each with its mask of ``SegmentationClass``; one without is a problem."""
    every = np.arange(len(source.sizes))
    keys = source.keys_at(every)
    names = [f"{_MASKS}/{Path(key).stem}.png" for key in keys]
    states = file_states(root, names)
    packed = set(source.indices.tolist())
    lacking = {i: sentence for i, sentence in states.problems.items() if i in packed}
    order = np.setdiff1d(source.indices, np.fromiter(lacking, np.int64, len(lacking)))
    if not len(order):
        raise SourceError(f"{source.path}: no picture of this part has a mask in {_MASKS}")
    field = suggested_field("mask", root, [names[i] for i in order.tolist()])
    masks = FieldFiles(field, root, names_at(names), states.sizes)
    first, *others = source.schema.fields
    paths = [*source.files(), *paths_below(root, [names[i] for i in order.tolist()])]
    without = {f"{root}/{keys[i]}" for i in lacking}
    return replace(
        source,
        schema=Schema((first, field, *others)),
        metadata={**source.metadata, "files": {"mask": describe_names(keys, names)}},
        sizes=source.sizes + states.sizes,
        read=read_together([source.read, masks.begin]),
        disk_bytes=source.disk_bytes + states.disk_bytes,
        files_opened=source.files_opened + len(order) - len(lacking),
        problems=[*source.problems, *(Problem(shown(keys[i]), f"has a mask that {lacking[i]}") for i in lacking)],
        left_out=[each for each in source.left_out if not each.key.startswith(f"{_MASKS}/")],
        order=order,
        paths=lambda: [path for path in paths if path not in without],
    )


def _root(folder: str) -> str:
    """The folder above that of the XMLs which holds the pictures, the one next to it if none does."""
    above = Path(os.path.normpath(folder)).parents[:2]
    holds = (each for each in above if any(Path(each, name).is_dir() for name in (_SETS, *_PICTURES)))
    return str(next(holds, above[0]))


def _sets(root: str) -> dict[str, str]:
    """The lists of pictures by name: those of ``Main`` under their own, others with their folder."""
    found = {}
    for folder in (_MAIN, _SEGMENTATION, "Layout", "Action", ""):
        place = Path(root, _SETS, folder)
        for name in names_in(str(place))[1]:
            if name.endswith(".txt") and _lists_names(place / name):
                stem = name.removesuffix(".txt")
                found[stem if folder in (_MAIN, "") else f"{folder}/{stem}"] = str(place / name)
    return found


def _lists_names(path: Path) -> bool:
    """Whether a list has names alone: lists of one class have a number beside each."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        return len(file.readline().split()) == 1


def _names_in(path: str) -> tuple[list[str], list[Problem]]:
    """The names that a list has, a line each, without folders and extensions; and the lines that say one again."""
    lines = Path(path).read_text(encoding="utf-8-sig", errors="replace").split("\n")
    first, again = dict[str, int](), list[Problem]()
    for number, line in enumerate(lines, 1):
        name = line.strip()
        if name and first.setdefault(name, number) != number:
            words = f"names {shown(name)} again, after line {first[name]}: it is one sample"
            again.append(Problem(f"{Path(path).name}:{number}", words))
    return list(first), again


def _without_xml(folder: str, shown_as: str, entries: Mapping[str, _Entry]) -> list[Problem]:
    """Pictures that no XML annotates, where the XMLs say what the samples are."""
    names = [name for name in names_in(folder)[1] if kind_by_name(name) and not is_hidden(name)]
    return [
        Problem(shown(f"{shown_as}/{name}"), "has no XML that annotates it")
        for name in names
        if name.rpartition(".")[0] not in entries
    ]


# The XML of a picture, read as nothing but elements with text.


@dataclass(frozen=True, slots=True)
class _Object:
    """One object: the name of its class, and the rest as an annotation of COCO has it."""

    name: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Entry:
    """What an XML says: its objects, what it says of the picture, and what is wrong."""

    objects: Sequence[_Object] = ()
    info: Mapping[str, Any] | None = None
    problem: str = ""


def _read(path: str) -> _Entry:
    """Read the XML of a picture. What is wrong with it is a problem of that picture."""
    try:
        if Path(path).stat().st_size > _LARGEST:
            return _Entry(problem=f"has more than {_LARGEST:,} bytes")
        said = parse_xml(Path(path).read_bytes())
    except OSError as exc:
        return _Entry(problem=f"cannot be read: {exc.strerror or exc}")
    except ValueError as exc:
        return _Entry(problem=f"is no XML of VOC: {exc}")
    found = said.get("object", [])
    objects = []
    for each in found if isinstance(found, list) else [found]:
        made = _object(each)
        if isinstance(made, str):
            return _Entry(problem=made)
        objects.append(made)
    info = {name: value for name, value in said.items() if name != "object"}
    size = info.pop("size", None)
    if isinstance(size, dict):
        info |= {name: _number(size.get(name)) for name in ("width", "height") if _number(size.get(name))}
        info |= {name: value for name, value in size.items() if name not in ("width", "height")}
    return _Entry(objects, info)


def _object(said: Any) -> _Object | str:
    if not isinstance(said, dict) or not isinstance(said.get("name"), str) or not said["name"]:
        return "has an object without a name"
    box = said.get("bndbox")
    sides: list[Any] = [None]
    if isinstance(box, dict):
        sides = [_number(box.get(name)) for name in ("xmin", "ymin", "xmax", "ymax")]
    if any(type(side) not in (int, float) for side in sides):
        return f"has an object {said['name']!r:.40} without the numbers xmin, ymin, xmax and ymax of its bndbox"
    left, top, right, bottom = sides
    if right < left or bottom < top:
        return f"has an object {said['name']!r:.40} whose box ends before it begins: {sides}"
    own = ("id", "image_id", "category_id", "bbox", "keypoints", "caption")  # of COCO
    rest = {f"object_{name}" if name in own else name: _plain(value) for name, value in said.items()}
    del rest["name"], rest["bndbox"]
    return _Object(said["name"], {"bbox": [left, top, right - left, bottom - top], **rest})


def _number(text: Any) -> Any:
    """The number that a text is; any other text as it is."""
    try:
        value = float(text)
    except (TypeError, ValueError):
        return text
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _plain(value: Any) -> Any:
    """Texts as numbers where they are some, at any depth."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else _number(value)


def parse_xml(data: bytes) -> dict[str, Any]:
    """
    Return the elements in the root of an XML as a dict: texts, dicts, and lists of elements that have one name.

    Attributes are passed over. Document types are refused, and with them entities of any kind, so that nothing expands
    and nothing else is read. Raises ValueError.
    """
    parser = expat.ParserCreate()
    stack: list[dict[str, Any]] = [{}]
    texts: list[list[str]] = [[]]

    def refuse(*_: Any) -> None:
        raise ValueError("it has a document type, which is not read")

    def start(_name: str, _attributes: Any) -> None:
        if len(stack) > _DEEPEST:
            raise ValueError(f"elements are nested more than {_DEEPEST} deep")
        stack.append({})
        texts.append([])

    def collect(text: str) -> None:
        texts[-1].append(text)

    def end(name: str) -> None:
        inner, text = stack.pop(), "".join(texts.pop()).strip()
        value: Any = inner or text
        above = stack[-1]
        if name in above:
            known = above[name]
            above[name] = [*known, value] if isinstance(known, list) else [known, value]
        else:
            above[name] = value

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = collect
    try:
        parser.Parse(data, True)
    except expat.ExpatError as exc:
        raise ValueError(str(exc)) from exc
    (root,) = stack[0].values()
    if not isinstance(root, dict):
        raise ValueError("it holds no elements")
    return root
