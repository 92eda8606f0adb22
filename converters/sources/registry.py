"""SOURCES, the table of all kinds of sources: by which signs each is recognised, and who opens it."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from fastio.converters.fields.types import FieldChoice
from fastio.converters.labels.file import LabelFile, LabelOptions
from fastio.converters.sources.arrow.reading import ARROW_SUFFIXES, PARQUET_SUFFIXES, saved_features, saved_names
from fastio.converters.sources.coco.reading import looks_like_coco
from fastio.converters.sources.column_kinds import holding
from fastio.converters.sources.file_set import FileSet, first_file, is_pattern
from fastio.converters.sources.folders import FLAT, IMAGEFOLDER, split_folder
from fastio.converters.sources.kind import SourceKind, SourceOptions, SourcePath
from fastio.converters.sources.listed import ListedSource
from fastio.converters.sources.scan import Folder, check_exists, is_hidden, scan_tree, shown
from fastio.converters.sources.source import Problem, Source
from fastio.converters.sources.streams import plain_name
from fastio.converters.sources.tables.rows import METADATA_NAMES, TABLE_SUFFIXES, TableFile, is_table_name
from fastio.converters.sources.text_kinds import TEXT_SOURCES, TextKind, find_text
from fastio.converters.sources.tfrecord.records import begins_like_records, is_gzip
from fastio.converters.sources.unknown import holds_pictures, is_of_others, kind_of, unknown
from fastio.errors import SourceError
from fastio.store.files.local import is_local, path_text
from fastio.store.foreign.other_libraries import library_of
from fastio.store.formats import holds_shards, named, shard_suffixes, suffixes
from fastio.store.sets.names import SET_SUFFIX
from fastio.types.picture_kinds import kind_by_name

__all__ = [
    "SOURCES",
    "STORE",
    "Recognised",
    "names_store",
    "open_source",
    "recognise",
]


# A packed store of any format as a source: its fields, labels and metadata stay the same.


def names_store(path: str) -> bool:
    """
    Return whether a path names a store, by the store layer's rules: a suffix of one of FORMATS or of a set object, or
    a folder of shards.
    """
    return holds_shards(path) if Path(path).is_dir() else path.endswith(SET_SUFFIX) or named(path) is not None


def _open_store(place: SourcePath, options: SourceOptions) -> ListedSource:
    if not names_store(place.path):
        found = "a folder without shards" if place.is_folder else kind_of(place.path)
        raise SourceError(f"{place.path}: expected a packed store ({suffixes()}, or a folder of shards), found {found}")
    from fastio.converters.sources.store import open_stored

    return open_stored(place, options)


def _store_signs(place: SourcePath) -> str:
    """Recognise the name of a store, or shards in a folder. A folder is listed again only if a name looks like one."""
    if not place.is_folder:
        return "a packed store" if names_store(place.path) else ""
    top = place.top
    may_hold = any(suffix in each.key for each in (*top.problems, *top.left_out) for suffix in shard_suffixes())
    return "shards of a store" if may_hold and holds_shards(place.path) else ""


STORE = SourceKind(
    name="store",
    what="a packed store",
    signs=_store_signs,
    open=_open_store,
    own_labels="a packed store has its own labels",
    takes_fields=True,
    takes_without=True,
    aliases=("tar", "webdataset"),
)


# Arrow (Feather) files and streams whose columns are the fields of samples: pictures, captions, numbers.


def open_arrow(place: SourcePath, options: SourceOptions) -> ListedSource:
    """Open an Arrow file or stream, those that a pattern matches, or those in a folder; see ``table_source``."""
    from fastio.converters.sources.arrow.source import table_source

    files = FileSet.of(place, _is_arrow, "an Arrow file", ", ".join(ARROW_SUFFIXES))
    return table_source(_ARROW.name, "arrow", place, files, options)


def _is_arrow(name: str) -> bool:
    return plain_name(name).lower().endswith(ARROW_SUFFIXES) and not name.startswith(".")


def _arrow_signs(place: SourcePath) -> str:
    """Whether there is an Arrow file or stream."""
    return "Arrow files" if first_file(place, _is_arrow) else ""


def _arrow_has_pictures(place: SourcePath) -> bool:
    from fastio.converters.sources.arrow.source import holds_pictures

    return holds_pictures("arrow", first_file(place, _is_arrow))


_ARROW = SourceKind(
    name="arrow",
    what="Arrow files",
    signs=_arrow_signs,
    open=open_arrow,
    own_labels="its columns hold the labels (--label-column names one)",
    takes_fields=True,
    takes_columns=True,
    covers=("imagefolder",),
    text_kinds=("arrow", "datasets"),
    has_more_than_text=_arrow_has_pictures,
)


# CIFAR-10 and CIFAR-100 as they are downloaded: pickled batches of pixels, and the names of their classes.


def _open_cifar(place: SourcePath, options: SourceOptions) -> ListedSource:
    from fastio.converters.sources.cifar import open_cifar

    return open_cifar(place, options)


def _cifar_signs(place: SourcePath) -> str:
    """A meta file beside batches; of a file, that it is one of the batches."""
    path = Path(place.path)
    folder = path if place.is_folder else path.parent
    is_ten = (folder / "batches.meta").is_file()
    if place.is_folder:
        is_there = is_ten and (folder / "data_batch_1").is_file()
        return "batches of CIFAR" if is_there or all((folder / name).is_file() for name in ("meta", "train")) else ""
    names = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch") if is_ten else ("train", "test")
    is_batch = path.name in names and path.is_file() and (is_ten or (folder / "meta").is_file())
    return "a batch of CIFAR" if is_batch else ""


_CIFAR = SourceKind(
    name="cifar",
    what="CIFAR as it is downloaded",
    signs=_cifar_signs,
    open=_open_cifar,
    own_labels="batches of CIFAR have their own labels",
    takes_fields=True,
    takes_without=True,
)


# COCO's JSON: images with boxes, classes, key points or captions.


def open_annotations(place: SourcePath, options: SourceOptions) -> ListedSource:
    """Open a COCO JSON, see ``open_coco``. Its images lie below ``--root``, or in a folder in or beside its own."""
    if place.is_folder:
        raise SourceError(f"{place.path}: is a folder; expected a COCO JSON: name the file in it")
    from fastio.converters.sources.coco.source import open_coco

    return open_coco(_COCO.name, place, options)


def _is_coco(place: SourcePath) -> bool:
    return not place.is_folder and looks_like_coco(place.path)


_COCO = SourceKind(
    name="coco",
    what="COCO annotations",
    signs=lambda place: "COCO's images and annotations" if _is_coco(place) else "",
    open=open_annotations,
    own_labels="its annotations are the labels",
    takes_root=True,
    covers=("table",),
    text_kinds=("json",),
    has_more_than_text=_is_coco,
)


# HDF5 files of other programs: datasets with a row for each sample.


def _open_hdf5(place: SourcePath, options: SourceOptions) -> ListedSource:
    from fastio.converters.sources.hdf5 import open_hdf5

    return open_hdf5(place, options)


def _hdf5_signs(place: SourcePath) -> str:
    """The mark of HDF5 in a file that has no seal of ours."""
    return "an HDF5 file" if not place.is_folder and is_of_others(place.path, "hdf5") else ""


_HDF5 = SourceKind(
    name="hdf5",
    what="an HDF5 file of another program",
    signs=_hdf5_signs,
    open=_open_hdf5,
    own_labels="datasets of labels are fields, as in --field label=y",
    takes_fields=True,
    takes_without=True,
    covers=("store",),
)


# LMDB files of other programs: pictures under keys, Caffe's Datum, text recognition, pickled samples.

_DATA = "data.mdb"  # in the folder of an environment


def _open_lmdb(place: SourcePath, options: SourceOptions) -> ListedSource:
    from fastio.converters.sources.lmdb import open_lmdb

    path = os.path.join(place.path, _DATA) if place.is_folder else place.path  # noqa: PTH118 - as the user wrote it
    return open_lmdb(place, path, options)


def _lmdb_signs(place: SourcePath) -> str:
    """The mark of LMDB in a file, or the file of an environment in a folder."""
    if place.is_folder:
        return "an LMDB environment" if (Path(place.path) / _DATA).is_file() else ""
    return "an LMDB file" if is_of_others(place.path, "lmdb") else ""


_LMDB = SourceKind(
    name="lmdb",
    what="an LMDB file of another program",
    signs=_lmdb_signs,
    open=_open_lmdb,
    own_labels="values of an LMDB file have their own labels",
    takes_fields=True,
    covers=("store",),
)


# Pictures with a metadata.csv or metadata.jsonl, by Hugging Face's ImageFolder convention: columns become fields.


def open_metadata(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open a folder of pictures, at any depth, with a table that has a row for each: ``file_name``, and further columns.

    Columns called ``..._file_name`` name further files. Pictures that no row names are problems, and so are rows
    without their file.
    """
    from fastio.converters.sources.tables.source import TableParts, open_rows

    names = _tables(place)
    if len(names) != 1:
        found = " and ".join(names) or "none of them"
        raise SourceError(f"{place.path}: expected one of {', '.join(METADATA_NAMES)}, found {found}")
    table = TableFile(str(Path(place.path, names[0])), has_titles=options.columns.header)
    if table.first() is not None and not any(each.endswith("file_name") for each in table.first() or ()):
        key = options.columns.key_column
        if key is None and all(choice.name != "image" for choice in options.fields):
            raise SourceError(
                f"{table.path}: has no column 'file_name', only {', '.join(map(repr, table.first() or ()))}: name the "
                "column with the files, as in --key-column path"
            )

    def others(named: Collection[str]) -> tuple[list[Problem], list[Problem]]:
        return _unnamed(place, table.name, named)

    return open_rows(TableParts(_METADATA.name, place, table, place.path, others), options)


def _unnamed(place: SourcePath, table: str, named: Collection[str]) -> tuple[list[Problem], list[Problem]]:
    """Pictures that no row names, and what is neither a picture nor named."""
    found = Folder()
    found.add(place.top)
    for key in place.top.folders:
        found.add(scan_tree(place.path, key))
    ours = {table, *map(shown, named)}
    problems = [Problem(shown(key), f"has no row in {table}") for key in found.keys if key not in named]
    left_out = [each for each in found.left_out if each.key not in ours]
    for each in found.problems:
        if each.key not in ours and each.problem.startswith("is not an image"):
            left_out.append(Problem(each.key, f"is not an image, and has no row in {table}"))
        elif each.key not in ours:
            problems.append(each)
    return problems, left_out


def _tables(place: SourcePath) -> list[str]:
    """The tables of the convention in the folder itself."""
    top = place.top
    return sorted({each.key for each in (*top.problems, *top.left_out)} & set(METADATA_NAMES))


def _metadata_signs(place: SourcePath) -> str:
    """Whether a table of the convention lies in the folder, with pictures or folders beside it."""
    if not place.is_folder:
        return ""
    names, top = _tables(place), place.top
    has_files = bool(top.keys) or any(not is_hidden(name) for name in top.folders)
    has_files = has_files or any(kind_by_name(each.key) for each in top.problems)
    return f"pictures and {' and '.join(names)}" if names and has_files else ""


_METADATA = SourceKind(
    name="metadata",
    what="pictures with a metadata.csv or metadata.jsonl",
    signs=_metadata_signs,
    open=open_metadata,
    own_labels="its table of metadata has the labels (--label-column names the column)",
    takes_fields=True,
    takes_columns=True,
    covers=("flat", "imagefolder", "pairs", "parquet"),
)


# Arrays of NumPy: an .npy file, an .npz archive, or a folder of .npy files with as many rows.

_MOST_FILES = 64  # of a folder that is taken for arrays of one dataset


def _open_npy(place: SourcePath, options: SourceOptions) -> ListedSource:
    from fastio.converters.sources.npy import open_npy

    return open_npy(place, options)


def _npy_signs(place: SourcePath) -> str:
    """The suffix of a file; of a folder, nothing but a few .npy files."""
    if not place.is_folder:
        return (
            "an array of NumPy" if place.path.lower().endswith((".npy", ".npz")) and Path(place.path).is_file() else ""
        )
    top = place.top
    names = [each.key for each in top.problems]
    is_all = bool(names) and not top.keys and not top.folders and all(name.endswith(".npy") for name in names)
    if not is_all or len(names) > _MOST_FILES:
        return ""
    return f"{len(names)} .npy files" if len(_lengths(place.path, names)) == 1 else ""


def _lengths(folder: str, names: Sequence[str]) -> set[int]:
    """The numbers of rows of these files; -1 for one that has none."""
    from fastio.converters.sources.npy import read_npy_header

    lengths = set()
    for name in names:
        try:
            with Path(folder, name).open("rb") as file:
                shape, _, _ = read_npy_header(file)
            lengths.add(shape[0] if shape else -1)
        except (OSError, ValueError):
            lengths.add(-1)
    return lengths


_NPY = SourceKind(
    name="npy",
    what="arrays of NumPy",
    signs=_npy_signs,
    open=_open_npy,
    own_labels="arrays of labels are fields, as in --field label=y",
    takes_fields=True,
    takes_without=True,
    takes_root=True,
)


# Pairs of folders: pictures and, by the same stem, their masks, texts or arrays in folders of their own.


def _open_pairs(place: SourcePath, options: SourceOptions) -> ListedSource:
    from fastio.converters.sources.pairs import open_pairs

    return open_pairs(place, options)


def _pairs_signs(place: SourcePath) -> str:
    """Whether a folder holds pictures or folders; which of them are fields, ``--field`` says."""
    return "folders of fields" if place.is_folder and (place.top.keys or place.top.folders) else ""


_PAIRS = SourceKind(
    name="pairs",
    what="folders of fields",
    signs=_pairs_signs,
    open=_open_pairs,
    own_labels="folders of fields have no label file",
    takes_fields=True,
    takes_root=True,
    needs_fields=True,
    text_kinds=("text-folder",),
)


# Parquet files whose columns are the fields of samples: pictures, captions, numbers.


def open_parquet(place: SourcePath, options: SourceOptions) -> ListedSource:
    """Open a Parquet file, those that a pattern matches, or those in a folder; see ``table_source``."""
    from fastio.converters.sources.arrow.source import table_source

    files = FileSet.of(place, _is_parquet, "a Parquet file", ", ".join(PARQUET_SUFFIXES))
    return table_source(_PARQUET.name, "parquet", place, files, options)


def _is_parquet(name: str) -> bool:
    return plain_name(name).lower().endswith(PARQUET_SUFFIXES) and not name.startswith(".")


def _parquet_signs(place: SourcePath) -> str:
    """Whether there is a Parquet file."""
    return "Parquet files" if first_file(place, _is_parquet) else ""


def _parquet_has_pictures(place: SourcePath) -> bool:
    from fastio.converters.sources.arrow.source import holds_pictures

    return holds_pictures("parquet", first_file(place, _is_parquet))


_PARQUET = SourceKind(
    name="parquet",
    what="Parquet files",
    signs=_parquet_signs,
    open=open_parquet,
    own_labels="its columns hold the labels (--label-column names one)",
    takes_fields=True,
    takes_columns=True,
    covers=("imagefolder",),
    text_kinds=("parquet",),
    has_more_than_text=_parquet_has_pictures,
)


# Folders of Hugging Face's ``datasets.save_to_disk``, whose columns are the fields of samples.


def open_saved(place: SourcePath, options: SourceOptions) -> ListedSource:
    """Open what ``datasets.Dataset.save_to_disk`` wrote; of a dictionary of splits, one of its folders."""
    from fastio.converters.sources.arrow.source import table_source

    names = saved_names(place.path)
    status = [Path(place.path, name).stat() for name in names]
    sizes = sum(each.st_size for each in status), sum(each.st_blocks * 512 for each in status)
    files = FileSet(place.path, names, *sizes)
    return table_source(_SAVED.name, "arrow", place, files, options, features=saved_features(place.path))


def _saved_signs(place: SourcePath) -> str:
    """Whether there is the state of a dataset, or a dictionary of them."""
    if not place.is_folder:
        return ""
    is_one = Path(place.path, "state.json").is_file() and Path(place.path, "dataset_info.json").is_file()
    return "a saved dataset" if is_one or Path(place.path, "dataset_dict.json").is_file() else ""


def _saved_has_pictures(place: SourcePath) -> bool:
    """Whether the data hold pictures, or those of the first split do."""
    if not _saved_signs(place):
        return False
    if Path(place.path, "dataset_dict.json").is_file():
        below = sorted(f"{place.path}/{name}" for name in place.top.folders)
        return any(_saved_has_pictures(SourcePath(folder)) for folder in below[:1])
    from fastio.converters.sources.arrow.source import holds_pictures

    return holds_pictures("arrow", f"{place.path}/{saved_names(place.path)[0]}")


_SAVED = SourceKind(
    name="datasets",
    what="a dataset saved by Hugging Face datasets",
    signs=_saved_signs,
    open=open_saved,
    own_labels="its columns hold the labels (--label-column names one)",
    takes_fields=True,
    takes_columns=True,
    covers=("arrow", "imagefolder"),
    text_kinds=("datasets",),
    has_more_than_text=_saved_has_pictures,
)


# A table anywhere that names files, or holds text and numbers only: one sample per row.

_LONGEST_NAME = 1024  # characters; what is longer is a text that ends with the name of a picture


def open_table(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open a .csv, .tsv, .jsonl, .json, Parquet or Arrow file. Files are named from ``--root`` on, or from the table's
    folder.

    A sample is named after its file, by ``--key-column``, or by its line. Files that no row names belong to nothing:
    only the table says what the samples are.
    """
    from fastio.converters.sources.tables.source import TableParts, open_rows

    if place.is_folder or not is_table_name(place.path):
        raise SourceError(f"{place.path}: expected a table ({', '.join(TABLE_SUFFIXES)})")
    table = TableFile(place.path, has_titles=options.columns.header)
    root = options.root or os.path.dirname(place.path) or "."  # noqa: PTH120 - "" for a name alone
    return open_rows(TableParts(_TABLE.name, place, table, root, _no_others, takes_root=True), options)


def _no_others(_named: Collection[str]) -> tuple[list[Problem], list[Problem]]:
    return [], []


def _names_pictures(place: SourcePath) -> bool:
    """
    Whether the first row of a table names a picture, under "file_name" or anywhere, or holds one as text.

    Where there is a "text", a picture under another title must lie beside the table. Columns of Parquet and Arrow
    files have types, so that their texts are fields without further signs.
    """
    if place.is_folder or not is_table_name(place.path):
        return False
    table = TableFile(place.path)
    row = table.first() or {}
    if _names_picture(row.get("file_name")) or (not table.has_columns and any(map(holding, row.values()))):
        return True
    names = [] if table.has_columns else [value for value in row.values() if _names_picture(value)]
    if "text" in row:
        folder = os.path.dirname(place.path)  # noqa: PTH120 - "" for a name alone
        return any(os.path.isfile(os.path.join(folder, name)) for name in names)  # noqa: PTH113, PTH118 - never raises
    return bool(names)


def _names_picture(value: object) -> TypeGuard[str]:
    if not isinstance(value, str) or len(value) > _LONGEST_NAME:
        return False
    return "\n" not in value and "://" not in value and kind_by_name(value) != 0


def _table_signs(place: SourcePath) -> str:
    """Whether it is a table. Parquet and Arrow files are kinds of their own, unless they name files."""
    if place.is_folder or not is_table_name(place.path):
        return ""
    return "a table" if not TableFile(place.path).has_columns or _names_pictures(place) else ""


_TABLE = SourceKind(
    name="table",
    what="a table",
    signs=_table_signs,
    open=open_table,
    own_labels="a table has its own labels (--label-column names the column)",
    takes_fields=True,
    takes_root=True,
    takes_columns=True,
    covers=("parquet", "arrow"),
    text_kinds=("csv", "tsv", "jsonl", "json"),
    has_more_than_text=_names_pictures,
)


# TFRecord files of tf.train.Example, whose features are the fields of samples.

_SUFFIXES = (".tfrecords", ".tfrecord", ".tfrec")
_NAMES = re.compile(r"(?:.*\.tfrec(?:ords?)?(?:-[0-9]+-of-[0-9]+)?(?:\.gz)?|[^.]*-[0-9]+-of-[0-9]+)\Z")


def open_tfrecord(place: SourcePath, options: SourceOptions) -> ListedSource:
    """Open a TFRecord file, those that a pattern matches, or those in a folder; see ``record_source``."""
    from fastio.converters.sources.tfrecord.source import record_source

    files = FileSet.of(place, _is_name, "a TFRecord file", ", ".join((*_SUFFIXES, "-00000-of-00010")))
    return record_source(_TFRECORD.name, place, files, options, _SUFFIXES)


def _is_name(name: str) -> bool:
    return _NAMES.match(name) is not None and not name.startswith(".")


def _tfrecord_signs(place: SourcePath) -> str:
    """Whether there is a file of this name; without such a name, the checksum at its beginning tells."""
    first = first_file(place, _is_name)
    is_named = any(suffix in Path(first).name for suffix in _SUFFIXES)
    if not first and Path(place.path).is_file():
        first = place.path
    is_one = bool(first) and (begins_like_records(first) or (is_named and is_gzip(first)))
    return "TFRecord files" if is_one or is_named else ""


_TFRECORD = SourceKind(
    name="tfrecord",
    suffixes=_SUFFIXES,
    what="TFRecord files",
    signs=_tfrecord_signs,
    open=open_tfrecord,
    own_labels="its features hold the labels (--label-column names one)",
    takes_fields=True,
    takes_columns=True,
    covers=("imagefolder",),
)


# Zip archives of others: a folder of pictures, class folders, or folders of pictures and their masks or texts.


def _open_zip(place: SourcePath, options: SourceOptions) -> ListedSource:
    from fastio.converters.sources.zip import open_zip

    return open_zip(place, options)


def _open_detected_zip(place: SourcePath, options: SourceOptions) -> ListedSource:
    from fastio.converters.sources.zip import open_zip

    return open_zip(place, options, is_named=False)


def _zip_signs(place: SourcePath) -> str:
    """The mark of zip in a file that has no seal of ours; arrays of NumPy are another kind."""
    is_numpy = place.path.lower().endswith(".npz")
    return "a zip archive" if not is_numpy and not place.is_folder and is_of_others(place.path, "zip") else ""


_ZIP = SourceKind(
    name="zip",
    suffixes=(".zip",),
    what="a zip archive of another program",
    signs=_zip_signs,
    open=_open_zip,
    open_detected=_open_detected_zip,
    own_labels="pictures in an archive have the labels of their folders; to use a label file, unzip it",
    takes_fields=True,
    takes_root=True,
    covers=("store",),
)


# A new kind of source is one file and its name here. The command line, its help and its errors learn of it from here.
SOURCES: dict[str, SourceKind] = {
    each.name: each
    for each in (
        FLAT,
        IMAGEFOLDER,
        _PAIRS,
        _COCO,
        _TABLE,
        _METADATA,
        _NPY,
        _CIFAR,
        _HDF5,
        _LMDB,
        _ZIP,
        STORE,
        _PARQUET,
        _ARROW,
        _SAVED,
        _TFRECORD,
    )
}


@dataclass(frozen=True, slots=True)
class Recognised:
    """What a path is: samples of a kind in SOURCES, or text of one in TEXT_SOURCES. ``is_named``: the user said so."""

    place: SourcePath
    kind: SourceKind | TextKind
    is_named: bool


def recognise(
    path: str | os.PathLike[str],
    *,
    kind: str = "auto",
    split: str | None = None,
    has_fields: bool = False,
    has_labels: bool = False,
    is_table: bool = False,
    with_text: bool = True,
    about_text: bool = False,
) -> Recognised:
    """
    Answer what ``path`` is, by the names in it and the beginnings of files; ``kind`` is the user's own answer.

    A table is text unless it holds pictures, or options were given that only samples have (``is_table``); those that
    only text has (``about_text``) decide for text. Without ``with_text``, everything is samples. Raises SourceError if
    the path is nothing that is known, saying what was seen in it, or if it could be meant in two ways.
    """
    path = path_text(
        path, "one path to pack: a folder, a file, or a pattern such as 'data/*.parquet' for several files"
    )
    if not is_local(path):
        raise SourceError(
            f"{path}: is a URL, from which nothing is packed: a packed store is copied by `fastio stage {path} DIR`, "
            "other files by the tools of their server; then pack the copy"
        )
    text = _text(path, kind, is_table=is_table, about_text=about_text) if with_text else None
    if text is not None:
        return Recognised(SourcePath(path), text, is_named=kind != "auto")
    named = None if kind == "auto" else _kind_called(kind)
    if not Path(path).exists() and not (is_pattern(path) or names_store(path)):
        check_exists(path)  # a store's own error says more
    place = SourcePath(
        path if split is None else split_folder(path, path_text(split, "the name of a folder as split="))
    )
    found = named or _detect(place, has_fields=has_fields, has_labels=has_labels)
    return Recognised(place, found, is_named=named is not None)


def _text(path: str, kind: str, *, is_table: bool, about_text: bool) -> TextKind | None:
    """The kind of text that a path is; None if it is packed as samples."""
    name = find_text(path) if kind == "auto" else kind
    text = None if name is None else TEXT_SOURCES.get(name)
    if text is None or about_text:
        return text
    others = [each for each in SOURCES.values() if text.name in each.text_kinds]
    place = SourcePath(path)
    return None if others and (is_table or any(each.has_more_than_text(place) for each in others)) else text


def open_source(
    path: str | os.PathLike[str] | Recognised,
    *,
    kind: str = "auto",
    labels: str | os.PathLike[str] | None = None,
    label_options: LabelOptions | None = None,
    split: str | None = None,
    fields: Sequence[FieldChoice] = (),
    root: str | os.PathLike[str] | None = None,
    as_recorded: bool = False,
) -> Source:
    """
    Open a dataset to be packed: only names and sizes are scanned.

    ``kind`` is a name in SOURCES, or "auto": decided by what is in ``path``, if only one kind fits. ``labels`` names
    a label file, for kinds that take one. ``split`` is a folder in ``path``, which then is the source. ``fields``,
    ``root`` and ``as_recorded`` are described in ``SourceOptions``. Raises SourceError if the source is not as
    expected, holds pictures that would not be packed, or could be meant in two ways; it says what was found and what
    to choose from.
    """
    found = path
    if not isinstance(found, Recognised):
        has_labels = labels is not None
        found = recognise(
            found, kind=kind, split=split, has_fields=bool(fields), has_labels=has_labels, with_text=False
        )
    place, chosen = found.place, found.kind
    assert isinstance(chosen, SourceKind), "text is opened by open_text"
    label_path = None if labels is None else path_text(labels, "the path of a label file as labels=")
    if label_path is not None and chosen.own_labels:
        raise SourceError(f"{place.path}: {chosen.own_labels}: drop --labels {label_path}")
    columns = label_options or LabelOptions()
    file = None if label_path is None else LabelFile(label_path, columns)
    files_root = None if root is None else path_text(root, "the folder of the files as root=")
    options = SourceOptions(file, columns, tuple(fields), files_root, as_recorded=as_recorded)
    _check_taken(place, chosen, options)
    opener = chosen.open if found.is_named else chosen.open_detected or chosen.open
    return opener(place, options)


def _check_taken(place: SourcePath, kind: SourceKind, options: SourceOptions) -> None:
    """SourceError for options that the kind would ignore."""
    without = options.columns.ignore_columns
    if without and not (options.labels or kind.takes_columns or kind.takes_without):
        raise SourceError(f"{place.path}: is {kind.what}, which has no columns: drop --without {without[0]}")
    takers = {"fields": "takes_fields", "root": "takes_root"}
    for option, takes in takers.items():
        if getattr(options, option) and not getattr(kind, takes):
            others = ", ".join(each.name for each in SOURCES.values() if getattr(each, takes)) or "no kind"
            raise SourceError(
                f"{place.path}: is {kind.what}, which takes no --{option.removesuffix('s')}; it is for {others}: drop "
                "it, or name another --source-kind"
            )


def _kind_called(name: str) -> SourceKind:
    for each in SOURCES.values():
        if name == each.name or name in each.aliases:
            return each
    raise SourceError(f"kind of source {name!r}: expected one of auto, {', '.join(SOURCES)}")


def _detect(place: SourcePath, *, has_fields: bool, has_labels: bool) -> SourceKind:
    """
    The one kind of source that ``place`` shows signs of.

    Fields asked for speak for the kinds that take some, if there is one; a label file for those that need one.
    """
    signs = {
        name: words
        for name, each in SOURCES.items()
        if (has_fields or not each.needs_fields) and (words := each.signs(place))
    }
    if has_labels and any(not SOURCES[name].own_labels for name in signs):
        signs = {
            name: words for name, words in signs.items() if not (SOURCES[name].covers and SOURCES[name].own_labels)
        }
    covered = {name for sign in signs for name in SOURCES[sign].covers}
    signs = {name: words for name, words in signs.items() if name not in covered}
    if has_fields and any(SOURCES[name].takes_fields for name in signs):
        signs = {name: words for name, words in signs.items() if SOURCES[name].takes_fields}
    if [*signs] == [IMAGEFOLDER.name] and not holds_pictures(place.path):
        signs = {}
    if len(signs) == 1:
        return SOURCES[next(iter(signs))]
    if signs:
        found, kinds = ", ".join(signs.values()), " or ".join(signs)
        raise SourceError(f"{place.path}: holds {found}, so its kind is unclear: add --source-kind {kinds}")
    if is_pattern(place.path):
        raise SourceError(f"{place.path}: no file has a name like that")
    if known := library_of(place.path):
        raise SourceError(f"{place.path}: is {known}")
    raise unknown(place.path, [*SOURCES.values(), *TEXT_SOURCES.values()])
