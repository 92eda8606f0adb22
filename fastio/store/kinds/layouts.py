"""
The layouts of datasets: by which names and beginnings of files each is recognised, and where its parts lie.

The signs of SOURCES ask this, and so do those who open such datasets.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from fastio.store.foreign.other_libraries import INDEX_NAME, indexed_format
from fastio.store.kinds.names import plain_name, text_kind
from fastio.store.kinds.scan import SourcePath, is_hidden, names_in
from fastio.types.picture_kinds import kind_by_name

__all__ = [
    "CITYSCAPES_PICTURES",
    "CLASS_FILES",
    "CLASS_NAMES",
    "celeba_signs",
    "city_parts",
    "cityscapes_signs",
    "class_files_signs",
    "coco_files",
    "coco_signs",
    "cub_signs",
    "idx_files",
    "idx_signs",
    "indexed_folders",
    "indexed_signs",
    "is_coco",
    "list_signs",
    "mask_parts",
    "masks_signs",
    "open_images_signs",
    "parts_among",
    "picture_lists",
    "split_line",
    "tiny_imagenet_signs",
    "visible",
    "voc_folder",
    "voc_signs",
    "voc_years",
    "yolo_configs",
    "yolo_folders",
    "yolo_signs",
]


_MOST_WITHOUT = 64  # names that are looked at for a first part
_MOST_FOLDERS = 16  # of classes that are looked into
_MOST_ENTRIES = 4096  # of a folder that may hold folders of parts
Part = TypeVar("Part")


def parts_among(names: Sequence[str], part: Callable[[str], Part | None]) -> dict[str, Part]:
    """
    Return what ``part`` finds under each of these names, if it finds something: all of it, or nothing if there is none
    among the first 64, since there may be hundreds of thousands.
    """
    found: dict[str, Part] = {}
    for number, name in enumerate(names):
        if number == _MOST_WITHOUT and not found:
            break
        if each := part(name):
            found[name] = each
    return found


def visible(folders: Sequence[str]) -> list[str]:
    """Return the folders that are the user's; see ``is_hidden``."""
    return [name for name in folders if not is_hidden(name)]


def _no_pictures(place: SourcePath) -> list[str]:
    """The files in a folder that are no pictures, sorted."""
    return sorted(each.key for each in (*place.top.problems, *place.top.left_out))


_ANNOTATIONS, _MOST_JSON = "annotations", 64  # the folder of COCO's JSONs, and how many there may be
_LOOKED_AT = 1 << 16  # bytes in which one of COCO's lists begins
_COCO_BEGINS = re.compile(rb'"(?:images|annotations)"\s*:\s*\[')


def is_coco(place: SourcePath) -> bool:
    """Whether a .json begins like COCO's: with a list of images or of annotations near its start."""
    if place.is_folder or not place.path.lower().endswith(".json"):
        return False
    head = _head(place.path, _LOOKED_AT)
    return head.lstrip()[:1] == b"{" and _COCO_BEGINS.search(head) is not None


def coco_files(place: SourcePath) -> list[str]:
    """Return the COCO JSONs in a folder and in ``annotations`` in it, sorted, named from there on."""
    if not place.is_folder:
        return []
    found = []
    for prefix in ("", *(f"{name}/" for name in place.top.folders if name.lower() == _ANNOTATIONS)):
        files = names_in(f"{place.path}/{prefix}")[1] if prefix else _no_pictures(place)
        names = [name for name in files if name.lower().endswith(".json")]
        if len(names) <= _MOST_JSON:  # with more of them, there is one for each picture
            found += [prefix + name for name in names if is_coco(SourcePath(f"{place.path}/{prefix}{name}"))]
    return sorted(found)


def coco_signs(place: SourcePath) -> str:
    """A COCO JSON, or some in a folder or in ``annotations`` in it."""
    if is_coco(place):
        return "COCO's images and annotations"
    count = len(coco_files(place))
    return f"{count} {'JSON' if count == 1 else 'JSONs'} of COCO" if count else ""


def _head(path: str, size: int) -> bytes:
    """The first bytes of a file, without a byte order mark; none of what cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(size).removeprefix(codecs.BOM_UTF8)
    except OSError:
        return b""


_YOLO_BEGINS = re.compile(rb"^names\s*:", re.MULTILINE), re.compile(rb"^(?:train|val)\s*:", re.MULTILINE)
_YOLO_OBJECT = re.compile(rb"\s*\d+(?:\.0*)?(?:[ \t]+-?[0-9.eE+-]+){4,}\s*(?:\n|\Z)")
_YOLO_NAMED = re.compile(rb"\s*\S+(?:[ \t,;]+-?[0-9.eE+-]+){4,}\s*\Z")  # a name, or commas, where it has numbers
_MOST_LABELS = 16  # label files that are looked into for one that is not empty
CLASS_NAMES = ("classes.txt", "obj.names", "labels.txt", "predefined_classes.txt")  # of YOLO, also beside its labels


def _is_yolo_config(path: str) -> bool:
    head = _head(path, _LOOKED_AT) if path.lower().endswith((".yaml", ".yml")) else b""
    return all(each.search(head) for each in _YOLO_BEGINS)


def yolo_configs(place: SourcePath) -> list[str]:
    """Return the names of the yamls of YOLO in a folder."""
    names = [each.key for each in place.top.problems]
    return [name for name in names if _is_yolo_config(f"{place.path}/{name}")]


def yolo_folders(place: SourcePath) -> dict[str, str]:
    """Return the folders of pictures by part, for which there are as well called ones of YOLO's label files."""
    if not place.is_folder:
        return {}
    names = set(visible(place.top.folders))
    if {"images", "labels"} <= names:
        inner = names_in(f"{place.path}/images", _MOST_ENTRIES)[0]
        pairs = {name: (f"images/{name}", f"labels/{name}") for name in inner}
        pairs = {name: pair for name, pair in pairs.items() if Path(place.path, pair[1]).is_dir()}
        pairs = pairs or {place.name: ("images", "labels")}
    else:
        pairs = {name: (f"{name}/images", f"{name}/labels") for name in sorted(names)}
    has_labels = {part: _has_yolo_labels(place.path, images, labels) for part, (images, labels) in pairs.items()}
    is_known = any(has_labels.values())  # then a part without a single object is one as well
    return {
        part: images
        for part, (images, _) in pairs.items()
        if has_labels[part] or (has_labels[part] is None and is_known)
    }


def _has_yolo_labels(root: str, images: str, labels: str) -> bool | None:
    """Whether the first label files in a folder that say something are YOLO's; None if there are some, all empty."""
    if not Path(root, images).is_dir() or not Path(root, labels).is_dir():
        return False
    names = _first_files(f"{root}/{labels}", ".txt")
    heads = [head for name in names if (head := _head(f"{root}/{labels}/{name}", _LOOKED_AT)).strip()]
    return all(_YOLO_OBJECT.match(head) for head in heads) if heads else (None if names else False)


def yolo_signs(place: SourcePath) -> str:
    """A data.yaml, or folders of pictures beside those of labels."""
    if not place.is_folder:
        return "a yaml of YOLO" if _is_yolo_config(place.path) else ""
    return "a yaml of YOLO" if yolo_configs(place) else "images and labels of YOLO" if yolo_folders(place) else ""


def damaged_layout(place: SourcePath) -> tuple[str, str]:
    """
    Return which layout a folder is near that is none of it, by its folders, and what is missing; and its folder of
    pictures. "" for others.

    Class folders may be called as folders of datasets are: this is asked where they are hardly classes.
    """
    names = {name.lower(): name for name in visible(place.top.folders)} if place.is_folder else {}
    labels = names.get("labels", "")
    is_there = any(map(kind_by_name, names_in(f"{place.path}/{names.get('images')}", _MOST_ENTRIES)[1]))
    if labels and is_there and (text := _first_in(f"{place.path}/{labels}", ".txt")):
        lines = _head(f"{place.path}/{labels}/{text}", _LINE_BYTES).decode("utf-8", "replace").strip().splitlines()
        if lines and _YOLO_NAMED.match(lines[0].encode()):  # other texts are captions
            words = f"{labels}/{text} has {lines[0]!r:.60}, expected 'class x y width height' in numbers"
            return f"looks like a dataset of YOLO, but {words}: correct its labels", names["images"]
    folder = next((names[name] for name in _VOC_FOLDERS if name in names), "")
    if folder and (xml := _first_in(f"{place.path}/{folder}", ".xml")):
        pictures = next((names[name] for name in ("jpegimages", "images") if name in names), "")
        words = f"{folder}/{xml} does not begin with <annotation>: correct its XMLs"
        return (f"looks like a dataset of Pascal VOC, but {words}", pictures) if pictures else ("", "")
    if (pictures := names.get("leftimg8bit", "")) and "gtfine" not in names:
        parts = names_in(f"{place.path}/{pictures}")[0]
        part = parts[0] if parts else "train"
        return f"looks like Cityscapes, but has no masks: add gtFine/{part}", f"{pictures}/{part}"
    return "", ""


def _first_files(folder: str, suffix: str) -> list[str]:
    """The first files of an extension in a folder; none of YOLO's names of classes, which are no labels."""
    names = [name for name in names_in(folder, _MOST_ENTRIES)[1] if name.lower().endswith(suffix)]
    return [name for name in names if name not in CLASS_NAMES][:_MOST_LABELS]


def _first_in(folder: str, suffix: str) -> str:
    return next(iter(_first_files(folder, suffix)), "")


_VOC_XMLS = "Annotations"
_VOC_FOLDERS = ("annotations", "annotation", "xmls", "xml")
_VOC_BEGINS = re.compile(rb"<annotation[\s>]")


def voc_folder(place: SourcePath) -> str:
    """
    Return the folder of the XMLs of Pascal VOC, named from a root on, "" if there is none: ``Annotations`` in it,
    ``annotations/xmls``, or the same below the one folder ``VOC2012`` of a ``VOCdevkit``.
    """
    if not place.is_folder:
        return ""
    tried = [name for name in visible(place.top.folders) if name.lower() in _VOC_FOLDERS]
    tried += [f"{name}/xmls" for name in tried]
    years = voc_years(place)
    tried += [f"{years[0]}/{_VOC_XMLS}"] if len(years) == 1 else []
    return next((name for name in tried if _has_xml(f"{place.path}/{name}")), "")


def voc_years(place: SourcePath) -> list[str]:
    """Return the folders of a ``VOCdevkit``, such as ``VOC2007`` and ``VOC2012``, that have XMLs."""
    names = visible(place.top.folders) if place.is_folder else []
    return [name for name in names if name.lower().startswith("voc") and _has_xml(f"{place.path}/{name}/{_VOC_XMLS}")]


def voc_signs(place: SourcePath) -> str:
    """XMLs of Pascal VOC, in a folder or in those of several years."""
    if voc_folder(place):
        return "XMLs of Pascal VOC"
    years = voc_years(place)
    return f"XMLs of Pascal VOC in {', '.join(years)}" if years else ""


def _has_xml(folder: str) -> bool:
    """Whether the first XML in a folder is one of VOC."""
    first = _first_in(folder, ".xml")
    return bool(first) and _VOC_BEGINS.search(_head(f"{folder}/{first}", 1024)) is not None


_LINE_BYTES = 4096  # in which the first lines of a list are looked for


def split_line(line: str) -> tuple[str, str]:
    """
    Return the picture that a line of a list names, and the rest of the line; "" for a line that names none.

    >>> split_line("train/a b.jpg 3"), split_line("a.png,cat"), split_line("a cat on a mat")
    (('train/a b.jpg', '3'), ('a.png', 'cat'), ('', ''))
    """
    if "://" in line:
        return "", ""
    for match in _BETWEEN.finditer(line):
        if kind_by_name(line[: match.start()]):
            return line[: match.start()], line[match.end() :].strip()
    return (line, "") if kind_by_name(line) else ("", "")


_BETWEEN = re.compile(r"[ \t]*[ \t,;][ \t]*")


def _listed_first(path: str) -> str:
    """The first picture that a list names, "" for a text of which one of the first lines names none."""
    head = _head(path, _LINE_BYTES)
    lines = head.decode("utf-8", "replace").splitlines()
    whole = [line.strip() for line in (lines[:-1] if len(head) == _LINE_BYTES else lines) if line.strip()]
    names = [split_line(line)[0] for line in whole]
    return names[0] if names and all(names) else ""


def picture_lists(place: SourcePath) -> list[str]:
    """
    Return the texts in a folder of which each line names a picture in it or below, with its label or without; where no
    such picture is there, and no other file is, those that name some: no text is made of names alone.
    """
    if not place.is_folder:
        return []
    names = [each.key for each in place.top.left_out if text_kind(each.key) == 1]
    firsts = parts_among(names, lambda name: _listed_first(f"{place.path}/{name}"))
    folders = [place.path, *(f"{place.path}/{name}" for name in visible(place.top.folders))]
    here = [name for name, first in firsts.items() if any(Path(folder, first).is_file() for folder in folders)]
    is_all = not (place.top.keys or place.top.problems or place.top.folders) and len(firsts) == len(place.top.left_out)
    return here or ([*firsts] if is_all else [])


def list_signs(place: SourcePath) -> str:
    """A text whose lines name pictures, or some in a folder."""
    if not place.is_folder:
        is_list = text_kind(place.path) == 1 and bool(_listed_first(place.path))
        return "a list of pictures" if is_list else ""
    names = picture_lists(place)
    return f"{'a list' if len(names) == 1 else f'{len(names)} lists'} of pictures" if names else ""


def _has_all(place: SourcePath, *names: str) -> bool:
    return place.is_folder and all(Path(place.path, name).exists() for name in names)


def celeba_signs(place: SourcePath) -> str:
    is_there = any(
        _has_all(place, f"list_{name}{end}") for name in ("attr_celeba", "eval_partition") for end in (".txt", ".csv")
    )
    return "lists of CelebA" if is_there else ""


def tiny_imagenet_signs(place: SourcePath) -> str:
    return "lists of Tiny ImageNet" if _has_all(place, "wnids.txt", "train") else ""


def cub_signs(place: SourcePath) -> str:
    return (
        "lists of CUB-200" if _has_all(place, "images.txt", "image_class_labels.txt", "classes.txt", "images") else ""
    )


CITYSCAPES_PICTURES = "_leftImg8bit.png"
_CITY = "leftImg8bit"


def city_parts(place: SourcePath) -> dict[str, tuple[str, str]]:
    """Return the folders of pictures and of annotations of Cityscapes by part, named from a root on."""
    if not place.is_folder or not Path(place.path, _CITY).is_dir():
        return {}
    names = names_in(f"{place.path}/{_CITY}")[0]
    kinds = [kind for kind in ("gtFine", "gtCoarse") if Path(place.path, kind).is_dir()]
    found = {name: [f"{kind}/{name}" for kind in kinds if Path(place.path, kind, name).is_dir()] for name in names}
    return {name: (f"{_CITY}/{name}", folders[0]) for name, folders in found.items() if folders}


def cityscapes_signs(place: SourcePath) -> str:
    parts = city_parts(place)
    return f"{_CITY} and annotations of {', '.join(parts)}" if parts else ""


_OF_PICTURES = re.compile(r"(?:images?|imgs?|jpegimages|photos|rgb|inputs?)\Z", re.IGNORECASE)
_OF_MASKS = re.compile(
    r"(?:masks?|annotations?|labels?|segmentations?|seg|gts?|ground_?truths?|targets?)\Z", re.IGNORECASE
)


def mask_parts(place: SourcePath) -> dict[str, tuple[str, str]]:
    """
    Return the folders of pictures and of masks by part, of ``images/train`` and ``masks/train``, or ``train/images``
    and ``train/masks``; both hold pictures.
    """
    if not place.is_folder:
        return {}
    names = visible(place.top.folders)
    pairs: dict[str, tuple[str, str]] = {}
    for one in filter(_OF_PICTURES.match, names):
        for other in filter(_OF_MASKS.match, names):
            inner = names_in(f"{place.path}/{one}", _MOST_ENTRIES)[0]
            pairs |= {name: (f"{one}/{name}", f"{other}/{name}") for name in inner if not is_hidden(name)}
    pairs = pairs or parts_among(names, lambda name: _pair_in(place.path, name))
    return {name: pair for name, pair in pairs.items() if all(_has_picture(f"{place.path}/{each}") for each in pair)}


def _pair_in(root: str, name: str) -> tuple[str, str] | None:
    """The one folder of pictures and the one of masks in the folder of a part; None if it has others."""
    inner = names_in(f"{root}/{name}", _MOST_ENTRIES)[0]
    ones, others = [*filter(_OF_PICTURES.match, inner)], [*filter(_OF_MASKS.match, inner)]
    return (f"{name}/{ones[0]}", f"{name}/{others[0]}") if len(ones) == len(others) == 1 else None


def _has_picture(folder: str) -> bool:
    """Whether one of the first files in a folder is a picture by its name."""
    return any(map(kind_by_name, names_in(folder, _MOST_ENTRIES)[1]))


def masks_signs(place: SourcePath) -> str:
    parts = mask_parts(place)
    return f"pictures and masks of {', '.join(parts)}" if parts else ""


_OPEN_IMAGES_TITLES = (b"ImageID", b"LabelName", b"XMin", b"XMax", b"YMin", b"YMax")


def open_images_signs(place: SourcePath) -> str:
    """The titles of a .csv."""
    if place.is_folder or not place.path.lower().endswith(".csv"):
        return ""
    titles = _head(place.path, 1024).partition(b"\n")[0].strip().split(b",")
    return "boxes of Open Images" if set(_OPEN_IMAGES_TITLES) <= set(titles) else ""


# Which files class folders may hold besides pictures, and what their field is called.
CLASS_FILES = {
    ".npy": "array",
    **dict.fromkeys((".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a"), "audio"),
    **dict.fromkeys((".mp4", ".avi", ".mkv", ".webm", ".mov"), "video"),
    **dict.fromkeys((".bin", ".dat", ".raw"), "content"),
}


def class_files_signs(place: SourcePath) -> str:
    """Folders whose first files mostly have one extension of CLASS_FILES, and no other of these."""
    if not place.is_folder or place.top.keys or not visible(place.top.folders):
        return ""
    counts = Counter[str]()
    for name in visible(place.top.folders)[:_MOST_FOLDERS]:
        files = names_in(f"{place.path}/{name}", _MOST_LABELS)[1]
        counts.update(Path(each).suffix.lower() for each in files)
    known = sorted(counts.keys() & CLASS_FILES.keys())
    is_most = len(known) == 1 and 2 * counts[known[0]] > counts.total()
    return f"class folders of {known[0]}" if is_most else ""


_IDX_IMAGES = re.compile(r"(?P<part>.*?)[-_.]?images[-_.]idx3-ubyte(?:\.gz)?\Z")


def idx_files(place: SourcePath) -> dict[str, tuple[str, str]]:
    """
    Return the files of pixels and of labels ("" without) by part, of a folder, or of one file of pixels.

    They are named from the folder on; ``raw`` in it is looked into, where torchvision keeps them.
    """
    path = Path(place.path)
    if not place.is_folder:
        match = _IDX_IMAGES.match(path.name)
        return {match["part"]: (path.name, _idx_labels(path.parent, path.name))} if match and path.is_file() else {}
    raw = [f"{name}/" for name in place.top.folders if name == "raw"]
    for prefix in ("", *raw):
        files = names_in(f"{place.path}/{prefix}")[1] if prefix else _no_pictures(place)
        names = list(filter(_IDX_IMAGES.match, files))
        parts = {str(match["part"]): name for name in names if (match := _IDX_IMAGES.match(name))}
        if parts:
            labels = {part: _idx_labels(path / prefix, name) for part, name in parts.items()}
            return {part: (prefix + name, labels[part] and prefix + labels[part]) for part, name in parts.items()}
    return {}


def _idx_labels(folder: Path, images: str) -> str:
    """The file of labels beside one of pixels, compressed or not."""
    plain = plain_name(images).replace("images", "labels").replace("idx3", "idx1")
    return next((name for name in (plain, f"{plain}.gz") if (folder / name).is_file()), "")


def idx_signs(place: SourcePath) -> str:
    names = idx_files(place)
    return f"idx files of {' and '.join(names)}" if names else ""


def indexed_folders(place: SourcePath, kind: str) -> list[str]:
    """
    Return the folders whose ``index.json`` lists shards of a kind, "mds" or "litdata": the one at ``place``, or those
    of its parts, or the one that this index lies in.
    """
    if not place.is_folder:
        folder = str(Path(place.path).parent)
        return [folder] if Path(place.path).name == INDEX_NAME and indexed_format(folder) == kind else []
    if indexed_format(place.path) == kind:
        return [place.path]
    found = parts_among(visible(place.top.folders), lambda name: indexed_format(f"{place.path}/{name}") == kind)
    return [f"{place.path}/{name}" for name in found]


def indexed_signs(kind: str, place: SourcePath) -> str:
    """An ``index.json`` that lists shards of a kind, or some in the folders of parts."""
    folders = indexed_folders(place, kind)
    if not folders:
        return ""
    is_below = place.is_folder and folders != [place.path]
    return f"an index.json of {kind}{is_below * ' in '}{', '.join(Path(each).name for each in folders if is_below)}"
