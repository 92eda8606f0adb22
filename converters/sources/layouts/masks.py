"""Reads pictures and masks by part: Cityscapes by its names, ADE20K, folders such as images/train and masks/train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fastio.converters.sources.files import IMAGE_FIELD, paths_below
from fastio.converters.sources.layouts.numbered import lines_of
from fastio.converters.sources.layouts.roots import chosen_part, left_beside
from fastio.converters.sources.listed import ListedSource, names_at, read_together
from fastio.converters.sources.options import SourceOptions, source_record
from fastio.converters.sources.pairs import FieldFiles, suggested_field
from fastio.converters.sources.tables.names import describe_names
from fastio.errors import SourceError
from fastio.store.kinds.layouts import CITYSCAPES_PICTURES, city_parts, mask_parts
from fastio.store.kinds.scan import Folder, Problem, SourcePath, scan_tree, shown
from fastio.types.field_types import field_of
from fastio.types.schema import Schema

__all__ = [
    "open_cityscapes",
    "open_masks",
]


_CITY = "pictures in leftImg8bit/PART/CITY and annotations in gtFine/PART/CITY or gtCoarse/PART/CITY"
_PAIRS = "folders of pictures and of masks, such as images/train and masks/train, or train/images and train/masks"
_SCENES = "sceneCategories.txt"  # of ADE20K: the kind of scene that each picture shows


def open_cityscapes(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open one part of Cityscapes: ``leftImg8bit/train/CITY/..._leftImg8bit.png`` and its ``mask``, the label ids of
    ``gtFine/train/CITY/..._gtFine_labelIds.png``, or of ``gtCoarse`` where there are no fine ones.

    Other files of annotations are left out, by kind. A picture without its mask is a problem.
    """
    part, (pictures, annotations) = chosen_part(place.path, city_parts(place), options.split, "part", _CITY)
    ending = f"_{annotations.partition('/')[0]}_labelIds.png"
    found, others = scan_tree(place.path, pictures), scan_tree(place.path, annotations)
    there = dict(zip(others.keys, others.sizes, strict=True))
    masks = {}
    for key in found.keys:
        stem = key[len(pictures) + 1 :].removesuffix(CITYSCAPES_PICTURES)
        masks[key] = f"{annotations}/{stem}{ending}"
    taken = [pictures, *{mask.rpartition("/")[0] for mask in masks.values()}]
    kinds: dict[str, list[str]] = {}
    named = set(masks.values())
    for key in [*others.keys, *(each.key for each in (*others.problems, *others.left_out))]:
        if key not in named:
            kinds.setdefault(key.rpartition("_")[2], []).append(key)
    left_out = [
        Problem(f"{shown(keys[0])}", f"is one of {len(keys):,} ..._{kind} of this part, which are not label ids")
        for kind, keys in sorted(kinds.items())
    ]
    listed = found.listed | others.listed
    return replace(_source(place, "cityscapes", part, found, masks, there, left_out, fields=taken), listed=listed)


def open_masks(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open one part: the pictures of ``images/train``, each with the mask of its stem in ``masks/train`` (or
    ``annotations``, ``labels``, ...), or ``train/images`` and ``train/masks``. In ADE20K, ``label`` is the scene.

    A picture without a mask, a mask without a picture, and two files of one stem are problems.
    """
    part, (pictures, annotations) = chosen_part(place.path, mask_parts(place), options.split, "part", _PAIRS)
    found, others = scan_tree(place.path, pictures), scan_tree(place.path, annotations)
    by_stem: dict[str, list[str]] = {}
    for key in others.keys:
        by_stem.setdefault(key[len(annotations) + 1 :].rpartition(".")[0], []).append(key)
    masks, stems = {}, set[str]()
    for key in found.keys:
        stem = key[len(pictures) + 1 :].rpartition(".")[0]
        files = by_stem.get(stem, [])
        masks[key] = files[0] if len(files) == 1 and stem not in stems else f"{annotations}/{stem}.*"
        stems.add(stem)
    found.problems += [
        Problem(
            shown(key), f"is one of {len(keys)} masks of one stem" if len(keys) > 1 else "is a mask without a picture"
        )
        for stem, keys in by_stem.items()
        for key in keys
        if len(keys) > 1 or stem not in stems
    ]
    found.problems += others.problems
    there = dict(zip(others.keys, others.sizes, strict=True))
    source = _source(place, "masks", part, found, masks, there, others.left_out, fields=[pictures, annotations])
    source = replace(source, listed=found.listed | others.listed)
    return _with_scenes(source, place) if Path(place.path, _SCENES).is_file() else source


def _source(
    place: SourcePath,
    kind: str,
    part: str,
    found: Folder,
    masks: Mapping[str, str],
    there: Mapping[str, int],
    left_out: Sequence[Problem],
    *,
    fields: Sequence[str],
) -> ListedSource:
    """The pictures that were found with their masks, of which ``there`` are with their sizes."""
    keys = [key for key in found.keys if masks[key] in there]
    lacking = [
        Problem(shown(key), f"has no mask: expected {masks[key]}") for key in found.keys if masks[key] not in there
    ]
    if not keys:
        first = f": {lacking[0].key} {lacking[0].problem}" if lacking else ""
        raise SourceError(f"{place.path}: no picture of {part!r} has a mask{first}")
    sizes_of = dict(zip(found.keys, found.sizes, strict=True))
    names = [masks[key] for key in keys]
    mask = suggested_field("mask", place.path, names)
    parts = [
        FieldFiles(IMAGE_FIELD, place.path, names_at(keys), np.array([sizes_of[key] for key in keys], np.int64)),
        FieldFiles(mask, place.path, names_at(names), np.array([there[name] for name in names], np.int64)),
    ]
    beside = left_beside(place, place.path, [], fields=[f"{place.path}/{name}" for name in fields])
    return ListedSource(
        path=place.path,
        kind=kind,
        schema=Schema((IMAGE_FIELD, mask)),
        metadata={
            "classes": None,
            "source": source_record(kind, place.name, labels=None),
            "files": {"mask": describe_names(keys, names)},
        },
        keys_at=names_at(keys),
        sizes=parts[0].sizes + parts[1].sizes,
        read=read_together([each.begin for each in parts]),
        disk_bytes=found.disk_bytes + sum(-(-size // 4096) * 4096 for size in there.values()),
        files_opened=2 * len(keys),
        problems=[*found.problems, *lacking],
        left_out=[*found.left_out, *left_out, *beside],
        paths=lambda: [*paths_below(place.path, keys), *paths_below(place.path, names)],
    )


def _with_scenes(source: ListedSource, place: SourcePath) -> ListedSource:
    """The same samples with the scene of each as its label; classes are those of the whole list, sorted."""
    scenes: dict[str, str] = {}
    for number, line in lines_of(f"{place.path}/{_SCENES}"):
        name, *scene = line.split(maxsplit=1)
        if scene and scenes.setdefault(name, scene[0]) != scene[0]:
            raise SourceError(f"{place.path}/{_SCENES}: line {number} gives {name!r:.80} another scene: remove one")
    classes = sorted(set(scenes.values()))
    numbers = {name: i for i, name in enumerate(classes)}
    keys = source.keys
    labels = [numbers.get(scenes.get(Path(key).stem, ""), -1) for key in keys]
    lacking = [i for i, label in enumerate(labels) if label < 0]
    problems = [Problem(shown(keys[i]), f"has no scene in {_SCENES}") for i in lacking]
    order = np.setdiff1d(np.arange(len(keys)), np.array(lacking, np.int64))
    paths = [*source.files(), f"{place.path}/{_SCENES}"]
    metadata: dict[str, Any] = {**source.metadata, "classes": classes}
    return replace(
        source,
        schema=Schema((*source.schema.fields, field_of("label", "label"))),
        columns={"label": np.array(labels, np.int64)},
        metadata=metadata,
        order=order,
        problems=[*source.problems, *problems],
        left_out=[each for each in source.left_out if each.key != _SCENES],
        files_opened=source.files_opened + 1,
        paths=lambda: paths,
    )
