"""
SOURCES, the one table of what a path may be: a row for each kind of source, with the signs by which it is recognised.

A row names whoever opens the source as text, and nothing is imported for it: looking at a path costs what its signs
cost.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from fastio.store import formats
from fastio.store.foreign.other_libraries import library_of
from fastio.store.kinds.layouts import (
    celeba_signs,
    cityscapes_signs,
    class_files_signs,
    coco_files,
    coco_signs,
    cub_signs,
    idx_signs,
    indexed_signs,
    list_signs,
    masks_signs,
    open_images_signs,
    tiny_imagenet_signs,
    visible,
    voc_signs,
    yolo_signs,
)
from fastio.store.kinds.names import (
    ARROW_SUFFIXES,
    METADATA_NAMES,
    PARQUET_SUFFIXES,
    RECORD_SUFFIXES,
    has_columns,
    is_record_name,
    is_table_name,
    matching,
    plain_name,
    text_kind,
)
from fastio.store.kinds.scan import SourcePath
from fastio.store.kinds.unknown import Near, is_of_others
from fastio.store.sets.names import SET_SUFFIX
from fastio.store.token_files import find_token_files, is_row_of_ids
from fastio.types.picture_kinds import kind_by_name, picture_extensions

__all__ = [
    "IMAGEFOLDER",
    "SOURCES",
    "STORE",
    "SourceKind",
    "coco_files",
    "later",
]


_MOST_FOLDERS = 16  # a set of more folders is one of classes


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKind:
    """
    One kind of source that ``fastio pack`` reads: samples, text, or both.

    ``name`` is the value of ``--source-kind``, and packed stores record it; ``aliases`` are the values of older
    versions. ``what`` completes "expected ..." and says in pack's first line what the source is.

    ``open`` returns the source of a path and its ``SourceOptions``. ``open_detected``, if given, does so when the user
    has not named the kind, and may raise SourceError for doubtful ones. ``open_text`` returns the source of text of a
    path and its ``TextOptions``. A kind has ``open``, ``open_text`` or both; ``later`` names them without an import.

    ``signs`` examines a path and says in a few words what indicates samples of this kind ("3 images"), "" if nothing
    does. Without ``--source-kind``, a path is opened only if exactly one kind sees signs: nothing is guessed. Kinds in
    ``covers`` do not count then: this one knows that there is more in the path than they see. With ``needs_fields``,
    its signs count only if fields are asked for: without them, the path is something else. ``signs_of_names`` are
    further ones, which count if the user says where the files are that a table names.

    Text is recognised by the ``suffixes`` of its file, or of the files in its folder; a folder also by a file with one
    of the names ``marks``, or by a file in it that ``is_text_file`` recognises. ``text_kinds`` are the names of kinds
    of text that read the same files as the samples of this one. Such a path is text unless ``has_more_than_text`` says
    that text alone would leave out pictures in it, or the user asks for fields. ``unpacks_to`` says what ``fastio
    unpack`` makes of documents: one file each, under its key; the single file that they came from; or a table.

    ``own_labels`` completes "PATH: ...: drop --labels" for a kind without a label file; "" if it takes one.
    ``takes_fields``, ``takes_root`` and ``takes_ids`` say that it uses the options of these names; for other kinds they
    are errors.
    ``takes_split`` says that it finds the parts of a dataset by itself, where they are no folders of the root alone.
    ``takes_columns`` says that it is a table itself, of which options name columns without a label file, and
    ``takes_without`` that they may name what is left out, whatever the kind calls its columns, ``takes_lists`` that
    fields may be lists.

    With ``takes_all_files``, each file below its folder is a sample or a problem: no store may be packed into it.

    ``suffixes`` are the extensions of its files, in lower case. Where such files lie in a folder that is of no kind,
    this one is near, and so it is for files of the extensions in ``near``, whose rows say what is missing.
    """

    name: str
    what: str
    signs: Callable[[SourcePath], str] = lambda _: ""
    signs_of_names: Callable[[SourcePath], str] = lambda _: ""
    open: Callable[..., Any] | None = None
    open_detected: Callable[..., Any] | None = None
    open_text: Callable[..., Any] | None = None
    own_labels: str = ""
    takes_fields: bool = False
    takes_root: bool = False
    takes_split: bool = False
    needs_fields: bool = False
    takes_columns: bool = False
    takes_without: bool = False
    takes_lists: bool = False
    takes_ids: bool = False
    takes_all_files: bool = False
    covers: tuple[str, ...] = ()
    text_kinds: tuple[str, ...] = ()
    has_more_than_text: Callable[[SourcePath], bool] = lambda _: False
    aliases: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    marks: frozenset[str] = frozenset()
    is_text_file: Callable[[str], bool] | None = None
    unpacks_to: Literal["files", "file", "table"] = "table"
    near: tuple[Near, ...] = ()


def later(name: str) -> Callable[..., Any]:
    """
    Return a function that is named as text, ``module:function``, and imported when it is first called.

    So a row of this table names what lies in layers above it.
    """
    module, _, function = name.partition(":")

    def call(*arguments: Any, **options: Any) -> Any:
        return getattr(import_module(module), function)(*arguments, **options)

    return call


_IN = "fastio.converters.sources"


# Pictures in folders.


def _flat_signs(place: SourcePath) -> str:
    """How many pictures lie in the folder itself."""
    if not place.is_folder:
        return ""
    top = place.top
    count = len(top.keys) + sum(kind_by_name(problem.key) != 0 for problem in top.problems)
    return f"{count:,} {'image' if count == 1 else 'images'}" if count else ""


def _class_signs(place: SourcePath) -> str:
    """How many folders lie in the folder."""
    count = len(visible(place.top.folders)) if place.is_folder else 0
    return f"{count:,} {'folder' if count == 1 else 'folders'}" if count else ""


def _pairs_signs(place: SourcePath) -> str:
    """Whether a folder holds pictures or folders; which of them are fields, ``--field`` says."""
    return "folders of fields" if place.is_folder and (place.top.keys or place.top.folders) else ""


def _metadata_signs(place: SourcePath) -> str:
    """Whether a table of the convention lies in the folder, with pictures or folders beside it."""
    if not place.is_folder:
        return ""
    top = place.top
    names = sorted({each.key for each in (*top.problems, *top.left_out)} & set(METADATA_NAMES))
    has_files = bool(top.keys) or bool(visible(top.folders))
    has_files = has_files or any(kind_by_name(each.key) for each in top.problems)
    return f"pictures and {' and '.join(names)}" if names and has_files else ""


_PICTURES = tuple(f".{name}" for name in picture_extensions())
_SOUND_AND_VIDEO = (".wav", ".mp3", ".flac", ".mp4", ".avi", ".mkv", ".webm")

_FLAT = SourceKind(
    name="flat",
    what="a folder of images",
    signs=_flat_signs,
    open=later(f"{_IN}.folders:open_flat"),
    takes_all_files=True,
    near=(
        Near(_PICTURES, "they lie where none is looked for, as {}", "name the folder that it lies in"),
        Near(_SOUND_AND_VIDEO, "sound and video are packed as bytes where they lie in class folders, unlike {}"),
        Near((".dcm", ".nii", ".mha"), "convert them to .png, or to one .npy, as {}"),
        Near((".pkl", ".pickle", ".pt", ".pth"), "a pickle is a label file at most, as --labels {}"),
    ),
)

# Class folders, as torchvision's ImageFolder reads them: the first folder level is the class.
IMAGEFOLDER = SourceKind(
    name="imagefolder",
    what="class folders of images",
    signs=_class_signs,
    open=later(f"{_IN}.folders:open_imagefolder"),
    open_detected=later(f"{_IN}.folders:open_detected"),
    takes_all_files=True,
    own_labels="class folders name the classes",
)

# Pairs of folders: pictures and, by the same stem, their masks, texts or arrays in folders of their own.
_PAIRS = SourceKind(
    name="pairs",
    what="folders of fields",
    signs=_pairs_signs,
    open=later(f"{_IN}.pairs:open_pairs"),
    own_labels="folders of fields have no label file",
    takes_fields=True,
    takes_root=True,
    needs_fields=True,
    text_kinds=("text-folder",),
)

# Pictures with a metadata.csv or metadata.jsonl, by Hugging Face's ImageFolder convention: columns become fields.
_METADATA = SourceKind(
    name="metadata",
    what="pictures with a metadata.csv or metadata.jsonl",
    signs=_metadata_signs,
    open=later(f"{_IN}.tables.source:open_metadata"),
    own_labels="its table of metadata has the labels (--label-column names the column)",
    takes_fields=True,
    takes_lists=True,
    takes_columns=True,
    covers=("flat", "imagefolder", "pairs", "parquet", "coco", "list"),
)


# Annotations and tables.


_COCO = SourceKind(
    name="coco",
    what="COCO annotations",
    signs=coco_signs,
    open=later(f"{_IN}.coco.source:open_annotations"),
    own_labels="its annotations are the labels",
    takes_root=True,
    takes_split=True,
    covers=("table", "flat", "imagefolder"),
    text_kinds=("json",),
    has_more_than_text=lambda place: bool(coco_signs(place)),
)


# Pictures with a .txt of boxes, polygons or key points each, and a data.yaml of parts and classes.
_YOLO = SourceKind(
    name="yolo",
    what="a dataset of YOLO",
    signs=yolo_signs,
    open=later(f"{_IN}.layouts.yolo:open_yolo"),
    own_labels="its label files have the labels",
    takes_split=True,
    covers=("flat", "imagefolder", "list"),
    text_kinds=("text-folder",),
    has_more_than_text=lambda place: bool(yolo_signs(place)),
)


# Pictures with an XML of objects each, and lists of their names by part.
_VOC = SourceKind(
    name="voc",
    what="a dataset of Pascal VOC",
    signs=voc_signs,
    open=later(f"{_IN}.layouts.voc:open_voc"),
    own_labels="its XMLs have the labels",
    takes_split=True,
    covers=("flat", "imagefolder"),
    text_kinds=("text-folder",),
    has_more_than_text=lambda place: bool(voc_signs(place)),
)


# Texts with the path of a picture and its label in each line.
_LIST = SourceKind(
    name="list",
    what="a list of pictures",
    signs=list_signs,
    open=later(f"{_IN}.layouts.lists:open_list"),
    own_labels="its lines have the labels",
    takes_root=True,
    takes_split=True,
    covers=("flat", "imagefolder"),
    text_kinds=("lines", "text-folder"),
    has_more_than_text=lambda place: bool(list_signs(place)),
)


# CelebA, Tiny ImageNet and CUB-200 as they are downloaded.
_CELEBA = SourceKind(
    name="celeba",
    what="CelebA as it is downloaded",
    signs=celeba_signs,
    open=later(f"{_IN}.layouts.celeba:open_celeba"),
    own_labels="its lists have the attributes",
    takes_root=True,
    takes_split=True,
    covers=("list", "imagefolder", "beside", "flat"),
    text_kinds=("text-folder", "csv"),
    has_more_than_text=lambda place: bool(celeba_signs(place)),
)


_TINY_IMAGENET = SourceKind(
    name="tiny-imagenet",
    what="Tiny ImageNet as it is downloaded",
    signs=tiny_imagenet_signs,
    open=later(f"{_IN}.layouts.tiny_imagenet:open_tiny_imagenet"),
    own_labels="its lists have the labels",
    takes_split=True,
    covers=("imagefolder",),
    text_kinds=("text-folder",),
    has_more_than_text=lambda place: bool(tiny_imagenet_signs(place)),
)


_CUB = SourceKind(
    name="cub",
    what="CUB-200 as it is downloaded",
    signs=cub_signs,
    open=later(f"{_IN}.layouts.cub:open_cub"),
    own_labels="its lists have the labels",
    takes_split=True,
    covers=("imagefolder",),
    text_kinds=("text-folder",),
    has_more_than_text=lambda place: bool(cub_signs(place)),
)


# Cityscapes, whose names tell pictures and label ids.
_CITYSCAPES = SourceKind(
    name="cityscapes",
    what="Cityscapes",
    signs=cityscapes_signs,
    open=later(f"{_IN}.layouts.masks:open_cityscapes"),
    own_labels="its masks are the labels",
    takes_split=True,
    covers=("imagefolder",),
)


# Folders of pictures and of masks, in each a folder for each part: ADE20K, and most sets for segmentation.
_MASKS = SourceKind(
    name="masks",
    what="pictures and masks by part",
    signs=masks_signs,
    open=later(f"{_IN}.layouts.masks:open_masks"),
    own_labels="its masks are the labels",
    takes_split=True,
    covers=("imagefolder",),
    text_kinds=("text-folder",),
    has_more_than_text=lambda place: bool(masks_signs(place)),
)


# The boxes of Open Images.
_OPEN_IMAGES = SourceKind(
    name="open-images",
    what="boxes of Open Images",
    signs=open_images_signs,
    open=later(f"{_IN}.layouts.open_images:open_open_images"),
    own_labels="its rows have the labels",
    takes_root=True,
    covers=("table",),
    text_kinds=("csv",),
    has_more_than_text=lambda place: bool(open_images_signs(place)),
)


# Class folders of arrays, sound, video or other bytes.
_CLASS_FILES = SourceKind(
    name="class-files",
    what="class folders of files",
    signs=class_files_signs,
    open=later(f"{_IN}.class_files:open_class_files"),
    takes_all_files=True,
    own_labels="class folders name the classes",
    covers=("imagefolder",),
)


_names_pictures = later(f"{_IN}.tables.source:names_pictures")


def _is_table(place: SourcePath) -> bool:
    return not place.is_folder and is_table_name(place.path)


def _table_signs(place: SourcePath) -> str:
    """Whether it is a table. Parquet and Arrow files are kinds of their own, unless they name files."""
    if not _is_table(place):
        return ""
    has_columns = plain_name(place.path).lower().endswith((*PARQUET_SUFFIXES, *ARROW_SUFFIXES))
    return "a table" if not has_columns or _names_pictures(place.path) else ""


_TABLE = SourceKind(
    name="table",
    what="a table",
    signs=_table_signs,
    signs_of_names=lambda place: "a table" if _is_table(place) else "",
    open=later(f"{_IN}.tables.source:open_table"),
    own_labels="a table has its own labels (--label-column names the column)",
    takes_fields=True,
    takes_lists=True,
    takes_root=True,
    takes_columns=True,
    covers=("parquet", "arrow"),
    text_kinds=("csv", "tsv", "jsonl", "json"),
    has_more_than_text=lambda place: _is_table(place) and bool(_names_pictures(place.path)),
    near=(Near((".xlsx", ".xls", ".ods", ".sqlite", ".db"), "save it as .csv or .parquet, as {}", "save it as .csv"),),
)


_tables_beside = later(f"{_IN}.tables.beside:tables_beside")


def _beside_signs(place: SourcePath) -> str:
    """Tables in a folder that name pictures in the folders beside them."""
    if not place.is_folder or place.top.keys or not visible(place.top.folders) or _metadata_signs(place):
        return ""
    if not any(is_table_name(each.key) for each in (*place.top.problems, *place.top.left_out)):
        return ""
    names = list(_tables_beside(place))
    return f"{' and '.join(names)} beside {'its' if len(names) == 1 else 'their'} pictures" if names else ""


# A dataset whose tables lie beside the folders of the pictures that they name: train.csv and train/, as of Kaggle.
_BESIDE = SourceKind(
    name="beside",
    what="a table beside the folder of its pictures",
    signs=_beside_signs,
    open=later(f"{_IN}.tables.beside:open_beside"),
    own_labels="its table has the labels (--label-column names the column)",
    takes_fields=True,
    takes_lists=True,
    takes_root=True,
    takes_split=True,
    takes_columns=True,
    covers=("imagefolder", "pairs", "parquet", "arrow"),
    text_kinds=("csv", "tsv", "jsonl", "json", "parquet", "arrow", "text-folder"),
    has_more_than_text=lambda place: bool(_beside_signs(place)),
)


_has_pictures = later(f"{_IN}.arrow.source:holds_pictures")


def _first_file(place: SourcePath, is_wanted: Callable[[str], bool]) -> str:
    """
    The path of the first file that a set at ``place`` would hold, "" if there is none.

    A folder with pictures, in it or below, holds another kind of set.
    """
    if not place.is_folder:
        paths = matching(place.path)
        return next((path for path in paths if is_wanted(Path(path).name) and Path(path).is_file()), "")
    below = [f"{place.path}/{name}" for name in visible(place.top.folders)]
    if place.top.keys or len(below) > _MOST_FOLDERS:
        return ""
    firsts: list[str] = []
    for folder in (place.path, *below):
        try:
            with os.scandir(folder) as entries:
                names = []
                for each in entries:  # one picture is enough: folders may have many
                    if kind_by_name(each.name) and each.is_file():
                        return ""
                    if is_wanted(each.name) and each.is_file():
                        names.append(each.name)
        except OSError:
            continue
        if names:
            firsts.append(f"{folder}/{min(names)}")
    return firsts[0] if firsts else ""


def _first_of(place: SourcePath, suffixes: tuple[str, ...]) -> str:
    return _first_file(place, lambda name: has_columns(name, suffixes))


# Parquet files whose columns are the fields of samples: pictures, captions, numbers.
_PARQUET = SourceKind(
    name="parquet",
    what="Parquet files",
    signs=lambda place: "Parquet files" if _first_of(place, PARQUET_SUFFIXES) else "",
    open=later(f"{_IN}.arrow.source:open_parquet"),
    open_text=partial(later(f"{_IN}.text_table:open_text_table"), "parquet", PARQUET_SUFFIXES),
    own_labels="its columns hold the labels (--label-column names one)",
    takes_fields=True,
    takes_lists=True,
    takes_columns=True,
    covers=("imagefolder",),
    text_kinds=("parquet",),
    has_more_than_text=lambda place: _has_pictures("parquet", _first_of(place, PARQUET_SUFFIXES)),
    suffixes=PARQUET_SUFFIXES,
)

# Arrow (Feather) files and streams, likewise.
_ARROW = SourceKind(
    name="arrow",
    what="Arrow files",
    signs=lambda place: "Arrow files" if _first_of(place, ARROW_SUFFIXES) else "",
    open=later(f"{_IN}.arrow.source:open_arrow"),
    open_text=partial(later(f"{_IN}.text_table:open_text_table"), "arrow", ARROW_SUFFIXES),
    own_labels="its columns hold the labels (--label-column names one)",
    takes_fields=True,
    takes_lists=True,
    takes_columns=True,
    covers=("imagefolder",),
    text_kinds=("arrow", "datasets"),
    has_more_than_text=lambda place: _has_pictures("arrow", _first_of(place, ARROW_SUFFIXES)),
    suffixes=ARROW_SUFFIXES,
)


_SPLITS_OF_SAVED = "dataset_dict.json"


def _saved_signs(place: SourcePath) -> str:
    """Whether there is the state of a dataset, or a dictionary of them."""
    if not place.is_folder:
        return ""
    is_one = Path(place.path, "state.json").is_file() and Path(place.path, "dataset_info.json").is_file()
    return "a saved dataset" if is_one or Path(place.path, _SPLITS_OF_SAVED).is_file() else ""


def _saved_has_pictures(place: SourcePath) -> bool:
    """Whether the data hold pictures, or those of the first split do."""
    if not _saved_signs(place):
        return False
    if Path(place.path, _SPLITS_OF_SAVED).is_file():
        below = sorted(f"{place.path}/{name}" for name in place.top.folders)
        return any(_saved_has_pictures(SourcePath(folder)) for folder in below[:1])
    names = later(f"{_IN}.arrow.reading:saved_names")(place.path)
    return bool(_has_pictures("arrow", f"{place.path}/{names[0]}"))


# Folders of Hugging Face's ``datasets.save_to_disk``, whose columns are the fields of samples.
_SAVED = SourceKind(
    name="datasets",
    what="a dataset saved by Hugging Face datasets",
    signs=_saved_signs,
    open=later(f"{_IN}.arrow.source:open_saved"),
    open_text=later(f"{_IN}.text_table:open_saved_text"),
    own_labels="its columns hold the labels (--label-column names one)",
    takes_fields=True,
    takes_lists=True,
    takes_columns=True,
    covers=("arrow", "imagefolder"),
    text_kinds=("datasets",),
    has_more_than_text=_saved_has_pictures,
    marks=frozenset(["dataset_info.json", _SPLITS_OF_SAVED]),
)


# Containers.


def _store_signs(place: SourcePath) -> str:
    """Recognise the name of a store, or shards in a folder. A folder is listed again only if a name looks like one."""
    if not place.is_folder:
        return "a packed store" if formats.names_store(place.path) else ""
    top, shards = place.top, formats.shard_suffixes()
    may_hold = any(suffix in each.key for each in (*top.problems, *top.left_out) for suffix in (*shards, SET_SUFFIX))
    return "shards of a store" if may_hold and formats.holds_shards(place.path) else ""


# A packed store of any format: its fields, labels and metadata stay the same.
STORE = SourceKind(
    name="store",
    what="a packed store",
    signs=_store_signs,
    open=later(f"{_IN}.store:open_stored"),
    own_labels="a packed store has its own labels",
    takes_fields=True,
    takes_without=True,
    aliases=("tar", "webdataset"),
    near=(Near(tuple(formats.suffixes().split(", ")), "name one, as {}"),),
)


# What CIFAR-10 and CIFAR-100 call their names of classes, pickled and binary, and how their batches end.
_CIFAR_NAMES = {"batches.meta": "", "meta": "", "batches.meta.txt": ".bin", "fine_label_names.txt": ".bin"}


def _cifar_signs(place: SourcePath) -> str:
    """A file of names of classes beside batches; of a file, that it is one of the batches."""
    path = Path(place.path)
    folder = path if place.is_folder else path.parent
    for names_of_classes, suffix in _CIFAR_NAMES.items():
        if not (folder / names_of_classes).is_file():
            continue
        is_ten = names_of_classes.startswith("batches.")
        batches = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"] if is_ten else ["train", "test"]
        if place.is_folder and (folder / f"{batches[0]}{suffix}").is_file():
            return "batches of CIFAR"
        if path.name in (f"{name}{suffix}" for name in batches) and path.is_file():
            return "a batch of CIFAR"
    return ""


# CIFAR-10 and CIFAR-100 as they are downloaded: batches of pixels, pickled or binary, and the names of their classes.
_CIFAR = SourceKind(
    name="cifar",
    what="CIFAR as it is downloaded",
    signs=_cifar_signs,
    open=later(f"{_IN}.cifar:open_cifar"),
    own_labels="batches of CIFAR have their own labels",
    takes_fields=True,
    takes_without=True,
    covers=("tokens",),
    text_kinds=("text-folder",),
    has_more_than_text=lambda place: bool(_cifar_signs(place)),
)


# MNIST, Fashion-MNIST, KMNIST, EMNIST as they are downloaded.
_IDX = SourceKind(
    name="idx",
    what="MNIST as it is downloaded",
    signs=idx_signs,
    open=later(f"{_IN}.idx:open_idx"),
    own_labels="idx files have their own labels",
    takes_fields=True,
    takes_without=True,
    takes_split=True,
    covers=("imagefolder",),
    near=(Near((".idx3-ubyte", ".idx1-ubyte"), "a file of pixels is called train-images-idx3-ubyte, unlike {}"),),
)

# HDF5 files of other programs: datasets with a row for each sample. Theirs have the mark of HDF5, and no seal of ours.
_HDF5 = SourceKind(
    name="hdf5",
    what="an HDF5 file of another program",
    signs=lambda place: "an HDF5 file" if not place.is_folder and is_of_others(place.path, "hdf5") else "",
    open=later(f"{_IN}.hdf5:open_hdf5"),
    own_labels="datasets of labels are fields, as in --field label=y",
    takes_fields=True,
    takes_without=True,
    covers=("store",),
)


def _lmdb_signs(place: SourcePath) -> str:
    """The mark of LMDB in a file, or the file of an environment in a folder."""
    if place.is_folder:
        return "an LMDB environment" if (Path(place.path) / "data.mdb").is_file() else ""
    return "an LMDB file" if is_of_others(place.path, "lmdb") else ""


# LMDB files of other programs: pictures under keys, Caffe's Datum, text recognition, pickled samples.
_LMDB = SourceKind(
    name="lmdb",
    what="an LMDB file of another program",
    signs=_lmdb_signs,
    open=later(f"{_IN}.lmdb:open_lmdb"),
    own_labels="values of an LMDB file have their own labels",
    takes_fields=True,
    covers=("store",),
    near=(Near((".mdb",), "name the file, or the folder that holds data.mdb, as {}"),),
)

_MOST_ARRAYS = 64  # .npy files of a folder that is taken for arrays of one dataset
_array_lengths = later(f"{_IN}.npy:array_lengths")


def _npy_signs(place: SourcePath) -> str:
    """The suffix of a file; of a folder, nothing but a few .npy files."""
    if not place.is_folder:
        is_named = place.path.lower().endswith((".npy", ".npz"))
        return "an array of NumPy" if is_named and Path(place.path).is_file() else ""
    top = place.top
    names = [each.key for each in top.problems]
    is_all = bool(names) and not top.keys and not top.folders and all(name.endswith(".npy") for name in names)
    if not is_all or len(names) > _MOST_ARRAYS:
        return ""
    return f"{len(names)} .npy files" if len(_array_lengths(place.path, names)) == 1 else ""


# Arrays of NumPy: an .npy file, an .npz archive, or a folder of .npy files with as many rows.
_NPY = SourceKind(
    name="npy",
    what="arrays of NumPy",
    signs=_npy_signs,
    open=later(f"{_IN}.npy:open_npy"),
    own_labels="arrays of labels are fields, as in --field label=y",
    takes_fields=True,
    takes_without=True,
    takes_root=True,
    near=(
        Near((".npy",), f"of a folder, at most {_MOST_ARRAYS} .npy files of as many rows and nothing else; name {{}}"),
    ),
)


def _tokens_signs(place: SourcePath) -> str:
    """Files named .bin, perhaps with an .idx; a .npy of one axis of whole numbers, which is no array of samples."""
    path = place.path
    if place.is_folder:
        names = [each.key for each in (*place.top.problems, *place.top.left_out)]
        count = sum(name.endswith(".bin") for name in names)
        is_alone = not place.top.keys and not place.top.folders
        return f"{count} .bin {'file' if count == 1 else 'files'}" if count and is_alone else ""
    if path.lower().endswith(".npy"):
        return "a row of token ids" if Path(path).is_file() and is_row_of_ids(path) else ""
    found = find_token_files(path)
    if not found or not all(Path(each).is_file() for each in found) or library_of(path):
        return ""
    is_indexed = Path(found[0].removesuffix(".bin") + ".idx").is_file()
    return "token ids of Megatron's" if is_indexed else "a .bin of token ids"


# Long rows of token ids: nanoGPT's and llm.c's .bin, Megatron's .bin and .idx, a .npy of one axis.
_TOKENS = SourceKind(
    name="tokens",
    what="a stream of token ids",
    signs=_tokens_signs,
    open=later(f"{_IN}.tokens:open_tokens"),
    own_labels="token ids have no labels",
    takes_ids=True,
    covers=("npy",),
    suffixes=(".bin", ".idx"),
)


def _zip_signs(place: SourcePath) -> str:
    """The mark of zip in a file that has no seal of ours; arrays of NumPy are another kind."""
    is_numpy = place.path.lower().endswith(".npz")
    return "a zip archive" if not is_numpy and not place.is_folder and is_of_others(place.path, "zip") else ""


# Zip archives of others: a folder of pictures, class folders, or folders of pictures and their masks or texts.
_ZIP = SourceKind(
    name="zip",
    what="a zip archive of another program",
    signs=_zip_signs,
    open=later(f"{_IN}.zip:open_zip"),
    open_detected=partial(later(f"{_IN}.zip:open_zip"), is_named=False),
    own_labels="pictures in an archive have the labels of their folders; to use a label file, unzip it",
    takes_fields=True,
    takes_root=True,
    covers=("store",),
    suffixes=(".zip",),
)


_begins_like_records = later(f"{_IN}.tfrecord.records:begins_like_records")


def _tfrecord_signs(place: SourcePath) -> str:
    """Whether there is a file of this name; without such a name, the checksum at its beginning tells."""
    first = _first_file(place, is_record_name)
    is_named = any(suffix in Path(first).name for suffix in RECORD_SUFFIXES)
    if not first and Path(place.path).is_file():
        first = place.path
    return "TFRecord files" if is_named or (first and _begins_like_records(first)) else ""


# TFRecord files of tf.train.Example, whose features are the fields of samples.
_TFRECORD = SourceKind(
    name="tfrecord",
    what="TFRecord files",
    signs=_tfrecord_signs,
    open=later(f"{_IN}.tfrecord.source:open_tfrecord"),
    own_labels="its features hold the labels (--label-column names one)",
    takes_fields=True,
    takes_columns=True,
    covers=("imagefolder",),
    suffixes=RECORD_SUFFIXES,
)


# Shards of MosaicML Streaming, and chunks of LitData, whose columns are the fields of samples.
_MDS = SourceKind(
    name="mds",
    what="MDS shards of MosaicML Streaming",
    signs=partial(indexed_signs, "mds"),
    text_kinds=("json",),
    has_more_than_text=lambda place: bool(indexed_signs("mds", place)),
    open=later(f"{_IN}.mds:open_mds"),
    own_labels="its columns hold the labels (--label-column names one)",
    takes_fields=True,
    takes_columns=True,
    covers=("imagefolder", "table"),
    near=(Near((".mds",), "an index.json beside {} lists such shards"),),
)

_LITDATA = SourceKind(
    name="litdata",
    what="chunks of LitData",
    signs=partial(indexed_signs, "litdata"),
    text_kinds=("json",),
    has_more_than_text=lambda place: bool(indexed_signs("litdata", place)),
    open=later(f"{_IN}.litdata:open_litdata"),
    own_labels="its columns hold the labels (--label-column names one)",
    takes_fields=True,
    takes_columns=True,
    covers=("imagefolder", "class-files", "table", "tokens"),
)


# Text.

_TEXT_FOLDER = SourceKind(
    name="text-folder",
    what="a folder of texts",
    open_text=later(f"{_IN}.text_folder:open_folder"),
    is_text_file=lambda name: text_kind(name) != 0,
    unpacks_to="files",
    near=(
        Near(
            (".md", ".rst", ".html", ".xml", ".tex", ".py"),
            "documents are named .txt, unlike {}",
            "a folder's documents are named .txt",
        ),
    ),
)
_LINES = SourceKind(
    name="lines",
    what="a text file",
    open_text=later(f"{_IN}.text_lines:open_lines"),
    suffixes=(".txt",),
    unpacks_to="file",
)


def _text_table(name: str, *near: Near) -> SourceKind:
    suffixes = (f".{name}",)
    return SourceKind(
        name=name,
        what=f"a table ({name})",
        open_text=partial(later(f"{_IN}.text_table:open_text_table"), name, suffixes),
        suffixes=suffixes,
        near=near,
    )


# A new kind of source is a file that opens it, and its row here. The command line, its help and its errors learn of it
# from here, and so do all who open a path.
SOURCES: dict[str, SourceKind] = {
    each.name: each
    for each in (
        _FLAT,
        IMAGEFOLDER,
        _PAIRS,
        _COCO,
        _YOLO,
        _VOC,
        _LIST,
        _CELEBA,
        _TINY_IMAGENET,
        _CUB,
        _CITYSCAPES,
        _MASKS,
        _OPEN_IMAGES,
        _CLASS_FILES,
        _TABLE,
        _METADATA,
        _BESIDE,
        _NPY,
        _TOKENS,
        _CIFAR,
        _IDX,
        _HDF5,
        _LMDB,
        _ZIP,
        STORE,
        _PARQUET,
        _ARROW,
        _SAVED,
        _TFRECORD,
        _MDS,
        _LITDATA,
        _TEXT_FOLDER,
        _LINES,
        _text_table("jsonl", Near((".ndjson", ".jsonlines", ".jl"), "JSON lines are named .jsonl, unlike {}")),
        *map(_text_table, ("json", "csv", "tsv")),
    )
}
