"""Unpacks the files of a store byte for byte, never outside the folder asked for; text as text."""

from __future__ import annotations

import csv
import errno
import fcntl
import io
import json
import os
import re
import shlex
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastio.converters.inspect.rewrite import FieldAsFiles, StoredCoco, StoredTable, text_files, text_notes
from fastio.converters.packing.advice import packing_lines
from fastio.converters.sources.record import origin_of, recorded_kind
from fastio.converters.sources.source import damaged, split_by_bytes
from fastio.converters.text.decode import StoredText
from fastio.errors import FastioError, SourceError, StoreCorrupt, StoreError
from fastio.store import SampleStore
from fastio.store.files.local import check_folder_here
from fastio.store.index.views import SelectedStore
from fastio.store.kinds.scan import Problem, is_utf8, shown
from fastio.store.listing import remove_stale
from fastio.store.protocol import read_lists, read_values
from fastio.store.token_files import STREAM
from fastio.store.write.atomic import PartialFile, publish_file
from fastio.types.schema import Field, is_plain_path, text_field
from fastio.types.spans import ListSpans, Spans, numbers_within

__all__ = [
    "UnpackReport",
    "check_key",
    "format_labels",
    "partial_folder",
    "unpack",
]


_CHUNK_BYTES = 8 << 20
_CHUNK_SAMPLES = 512
_ADDED_BYTES = 128  # by which a file's name may be longer than the key: the field's name, an extension
_PARTIAL_BYTES = 40  # by which the path of the hidden folder is longer than that of the target


@dataclass(frozen=True, slots=True)
class UnpackReport:
    """What a run of ``unpack`` wrote."""

    path: str
    files: int
    size_bytes: int
    notes: Sequence[str] = ()  # what is not as it was before it was packed
    skipped: Sequence[Problem] = ()  # samples that were left out: damaged, or of a name that is too long


def unpack(
    store: SampleStore,
    out: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    labels: str | os.PathLike[str] | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    progress: Callable[[int, int], object] | None = None,
) -> UnpackReport:
    """
    Write every sample's bytes to ``out/key``; for tokens and text, the files they came from (see ``text_files``); for
    raw pictures, PNGs. Of lists, every element is a file, ``out/key.images.0.jpg``, and a table names them: that of the
    source, or ``metadata.jsonl``, which holds texts, token ids and numbers itself.

    Everything is written beside ``out`` and moved there when complete. Existing files are replaced only with
    ``overwrite``; other files in ``out`` are left alone. Raises StoreError for a key that would lead out of the
    folder (absolute, ``..``, through a link) or is longer than a file's name may be, and StoreCorrupt for bytes that
    differ from their checksum; with ``on_error="skip"``, damaged samples and those of longer names are left out, with
    all their fields, and listed in the report. ``labels`` names a label file to write (.csv, .tsv, .json or .jsonl).
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error={on_error!r}: expected 'raise' or 'skip'")
    check_folder_here(out)
    if STREAM in store.metadata:
        raise StoreError(f"{store.path}: holds a stream of token ids: add --as bin, or --as megatron")
    target = Path(out).absolute()
    if not target.name:
        raise StoreError(f"{os.fspath(out)}: nothing can be written beside it: choose a folder in it")
    if os.path.lexists(target) and not target.is_dir():
        raise StoreError(f"{os.fspath(out)}: exists and is not a folder: choose another name")
    _require_parent(out)
    if labels is not None:
        _check_labels(store, labels, overwrite=overwrite)
    whole, skipped = store, list[Problem]()
    if on_error == "skip":
        store, kept, skipped = undamaged(store, _too_long(store, target))
    table = StoredTable.of(store) or StoredCoco.of(store)
    field = text_field(store.schema) if table is None else None
    stored = None if field is None else StoredText.of(store, field)
    numbers = StoredText(whole, field, None).document_numbers()[kept] if field is not None and skipped else None
    with _writing(out), partial_folder(target) as partial:
        if stored is None:
            written, named = _write_all(store, partial, table, progress)
            names = _first_names(store, named)
            if table is not None:
                parts = table.parts(named) if isinstance(table, StoredTable) else table.parts()
                written += _write_text(((table.file_name, part) for part in parts), partial, store)
        else:
            written = _write_text(text_files(stored, progress, numbers=numbers), partial, store)
            names = store.keys(np.arange(len(store)))
        with _label_file(store, labels, names, overwrite=overwrite) as publish_labels:
            if os.path.lexists(target):
                _merge(partial, target, written, overwrite=overwrite)
            else:
                partial.rename(target)
            publish_labels()
    in_table = frozenset[str]() if table is None else table.written_fields
    notes = _notes(store, in_table, has_labels=labels is not None) if stored is None else text_notes(stored)
    if isinstance(table, StoredTable) and table.options:
        command = shlex.join(["fastio", "pack", os.fspath(out), "NEW.lmdb", *table.options])
        notes.append(f"{table.file_name} names the files of each sample; to pack them again: {command}")
    return UnpackReport(os.fspath(out), len(written), sum(size for _, size in written), notes, skipped)


def _notes(store: SampleStore, in_table: Collection[str], *, has_labels: bool) -> list[str]:
    """How the files differ from those that were packed, and which columns are in none of them."""
    in_paths = recorded_kind(origin_of(store.metadata)) == "imagefolder"
    columns = [each.name for each in store.schema.columns if each.name not in in_table]
    if "label" in columns and (has_labels or in_paths):
        columns.remove("label")
    notes = list(packing_lines(store.metadata))
    if columns:
        hint = "; --labels FILE writes the labels" if "label" in columns else ""
        notes.append(f"in the store, but in none of these files: {', '.join(columns)}{hint}")
    return notes


def check_key(key: str) -> str:
    """Return the key if it is a plain path below a folder. Raises StoreError if it could lead anywhere else."""
    if not is_plain_path(key):
        raise StoreError(f"key {key!r}: expected a plain path below a folder; this store is not unpacked")
    return key


def _require_parent(path: str | os.PathLike[str]) -> None:
    folder = Path(path).parent
    if not folder.is_dir():
        raise StoreError(f"{os.fspath(path)}: the folder {folder} does not exist: create it first")


@contextmanager
def _writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an OSError into one StoreError that names ``path`` as the user gave it, and says what to do."""
    try:
        yield
    except FastioError:
        raise  # some are OSErrors too
    except OSError as exc:
        reason = exc.strerror or exc
        raise StoreError(
            f"{os.fspath(path)}: cannot be written ({reason}); free space, or choose another place"
        ) from exc


def _write_all(
    store: SampleStore,
    folder: Path,
    table: StoredTable | StoredCoco | None,
    progress: Callable[[int, int], object] | None,
) -> tuple[list[tuple[str, int]], dict[str, list[str]]]:
    """
    All files, into a folder that nobody else writes to; their names and sizes, and the names by field, in order.

    Fields that the table holds are not written.
    """
    written: list[tuple[str, int]] = []
    named: dict[str, list[str]] = {}
    made = {""}
    root = f"{folder}/"
    described: Mapping[str, Any] = store.metadata.get("files") or {}
    for position, field in enumerate(store.schema.payload):
        if table is not None and field.name in table.fields:
            continue
        files = FieldAsFiles(field, position == 0, described.get(field.name))
        names = named.setdefault(field.name, [])
        sizes = store.value_bytes(field.name)
        for piece in split_by_bytes(sizes, _CHUNK_BYTES, _CHUNK_SAMPLES):
            indices = np.arange(piece.start, piece.stop)
            keys, values = store.keys(indices), _values(store, field, indices)
            for row in _damaged_rows(values):
                raise StoreCorrupt(
                    f"{store.path}: {keys[row]!r}, field {field.name!r}: bytes differ from their checksum; "
                    f"`fastio verify` lists all such samples"
                )
            for _, name, data in _as_files(files, keys, values):
                content = files.content(data)
                names.append(check_key(name))
                parent = name.rpartition("/")[0]
                if parent not in made:
                    _make_folders(root, parent, made)
                with _short_enough(name):
                    if files.described is None or not _is_there(root + name, content):
                        _write(root + name, content, store)
                        written.append((name, len(content)))
            if progress is not None:
                progress(len(keys) if position == 0 else 0, int(sizes[piece.start : piece.stop].sum()))
    return written, named


def _first_names(store: SampleStore, named: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """What samples are called in a label file: by their first files, or by their keys where these tell the files."""
    first = store.schema.payload[0]
    described = (store.metadata.get("files") or {}).get(first.name)
    if first.name in named and not first.is_list and described is None:
        return named[first.name]
    return store.keys(np.arange(len(store)))


def _values(store: SampleStore, field: Field, indices: NDArray[np.int64]) -> Spans | ListSpans:
    """The values of a payload field in memory, or its lists."""
    return (read_lists if field.is_list else read_values)(store, field.name, indices)


def _damaged_rows(values: Spans | ListSpans) -> list[int]:
    """The positions of samples with a value that differs from its checksum, ascending."""
    wrong = damaged(values if isinstance(values, Spans) else values.spans)
    rows: list[int] = (wrong if isinstance(values, Spans) else np.unique(values.owners[wrong])).tolist()
    return rows


def _as_files(
    files: FieldAsFiles, keys: Sequence[str], values: Spans | ListSpans
) -> Iterator[tuple[int, str, NDArray[np.uint8]]]:
    """The files of a field: the position of the sample, the file's name, and the value that it holds."""
    if isinstance(values, Spans):
        yield from ((i, files.name(check_key(key), values.view(i)), values.view(i)) for i, key in enumerate(keys))
        return
    numbers = numbers_within(values.counts).tolist()
    for row, number, view in zip(values.owners.tolist(), numbers, values.spans.views(), strict=True):
        yield row, files.name(check_key(keys[row]), view, number), view


def _is_there(path: str, data: NDArray[np.uint8]) -> bool:
    """Whether another sample has the same file: one that several rows of a table name is written once."""
    return Path(path).is_file() and Path(path).read_bytes() == data.tobytes()


def _write_text(parts: Iterator[tuple[str, bytes]], folder: Path, store: SampleStore) -> list[tuple[str, int]]:
    """Files that come in parts; their names and sizes."""
    written: list[tuple[str, int]] = []
    made = {""}
    for name, of_one in groupby(parts, key=itemgetter(0)):
        parent = check_key(name).rpartition("/")[0]
        if parent not in made:
            _make_folders(f"{folder}/", parent, made)
        size = 0
        with _short_enough(name), _new_file(f"{folder}/{name}", store) as file:
            for _, data in of_one:
                size += file.write(data)
        written.append((name, size))
    return written


def _make_folders(root: str, parent: str, made: set[str]) -> None:
    """Without recursion, as ``Path.mkdir`` has it: keys may be nested deeper than calls."""
    missing = []
    while parent not in made:
        missing.append(parent)
        parent = parent.rpartition("/")[0]
    for each in reversed(missing):
        with _short_enough(each):
            try:
                Path(root + each).mkdir()
            except FileExistsError as exc:
                if not Path(root + each).is_dir():
                    raise StoreError(f"key {each!r} is both a file and a folder; this store is not unpacked") from exc
        made.add(each)


@contextmanager
def _short_enough(key: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if exc.errno != errno.ENAMETOOLONG:
            raise
        raise StoreError(
            f"key {key!r:.300}: is longer than a file's name may be here: unpack to a shorter path or to another file "
            "system, or leave out such samples with --on-error skip"
        ) from exc


def _too_long(store: SampleStore, target: Path) -> dict[int, str]:
    """Samples of which a file would have a longer name than may be in ``target``, with a sentence, by index."""
    table = StoredTable.of(store) or StoredCoco.of(store)
    if table is None and text_field(store.schema) is not None:  # files named as they were, and tables
        return {}
    in_table = set[str]() if table is None else table.fields
    payload = [field for field in store.schema.payload if field.name not in in_table]
    described: Mapping[str, Any] = store.metadata.get("files") or {}
    most_in_name, most_in_path = (os.pathconf(target.parent, name) for name in ("PC_NAME_MAX", "PC_PATH_MAX"))
    most_in_path -= len(os.fsencode(target)) + _PARTIAL_BYTES
    sentences: dict[int, str] = {}
    for start in range(0, len(store), _CHUNK_SAMPLES):
        keys = store.keys(np.arange(start, min(start + _CHUNK_SAMPLES, len(store))))
        long = [i for i, key in enumerate(keys) if len(os.fsencode(key)) > most_in_name - _ADDED_BYTES]
        rows = np.array(long, np.int64)
        for field in payload if long else ():
            files = FieldAsFiles(field, field is store.schema.payload[0], described.get(field.name))
            values = _values(store, field, rows + start)
            for at, file, _ in _as_files(files, [keys[i] for i in long], values):
                name = os.fsencode(file)
                if len(name) > most_in_path or max(map(len, name.split(b"/"))) > most_in_name:
                    sentences[start + long[at]] = "is longer than a file's name may be here"
    return sentences


def _write(path: str, data: np.ndarray[tuple[int], np.dtype[np.uint8]], store: SampleStore) -> None:
    """One new file with these bytes."""
    with _new_file(path, store, buffering=0) as file:
        view = data.data
        while view:
            view = view[file.write(view) :]


def _new_file(path: str, store: SampleStore, *, buffering: int = -1) -> IO[bytes]:
    """A file to write; O_EXCL finds keys that come twice."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    except (FileExistsError, IsADirectoryError) as exc:
        raise StoreError(
            f"{store.path}: two samples are called {Path(path).name!r}, and cannot both be a file"
        ) from exc
    return open(handle, "wb", buffering=buffering)  # noqa: PTH123 - a descriptor, closed by whoever writes


def _merge(partial: Path, target: Path, written: list[tuple[str, int]], *, overwrite: bool) -> None:
    """Move the files into a folder that exists, after a look at all the places they go to."""
    checked: set[str] = set()
    for name, _ in written:
        _check_place(target, name, checked, overwrite=overwrite)
    made = {""}
    for name, _ in written:
        parent = name.rpartition("/")[0]
        if parent not in made:
            _make_folders(f"{target}/", parent, made)
        (partial / name).replace(target / name)


def _check_place(target: Path, name: str, checked: set[str], *, overwrite: bool) -> None:
    """StoreError where a file must not go: through a link, over a folder, or over a file without leave."""
    parts = name.split("/")
    for depth in range(1, len(parts)):
        above = "/".join(parts[:depth])
        if above not in checked:
            mode = _mode(target / above)
            if mode is not None and not stat.S_ISDIR(mode):
                raise StoreError(f"{target / above}: is in the way of {name!r} (a link or a file): remove it")
            checked.add(above)
    mode = _mode(target / name)
    if mode is not None and stat.S_ISDIR(mode):
        raise StoreError(f"{target / name}: is a folder where a file must go: remove it")
    if mode is not None and not overwrite:
        raise StoreError(f"{target / name}: exists; choose another folder, or --overwrite")


def _mode(path: Path) -> int | None:
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return None


@contextmanager
def _label_file(
    store: SampleStore, path: str | os.PathLike[str] | None, names: Sequence[str], *, overwrite: bool
) -> Iterator[Callable[[], object]]:
    """Write the label file, if one is asked for, under a hidden name; the result gives it its own."""
    if path is None:
        yield lambda: None
        return
    path = os.fspath(path)
    with _writing(path):
        remove_stale(Path(path).parent, re.compile(re.escape(Path(path).name)))
    file = PartialFile(path)
    try:
        file.write(_label_text(store, path, names))
        file.sync()
        yield lambda: publish_file(file, replace=overwrite)
    finally:
        file.discard()


def _check_labels(store: SampleStore, path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """StoreError where the label file cannot be written: found out before anything is."""
    if "label" not in store.schema:
        raise StoreError(f"{store.path}: has no labels to write to {os.fspath(path)}")
    _require_parent(path)
    if os.path.lexists(path) and not overwrite:
        raise StoreError(f"{os.fspath(path)}: exists; choose another name, or --overwrite")
    _label_text(store, path, store.keys(np.arange(len(store))))


def _label_text(store: SampleStore, path: str | os.PathLike[str], names: Sequence[str]) -> bytes:
    """The label file's content, for files of these names."""
    column = store.column("label")
    values = column.tolist()
    if column.dtype == np.float32:  # in the digits that float32 has, 0.1 and not 0.10000000149011612
        values = (
            [[float(str(number)) for number in row] for row in column]
            if column.ndim > 1
            else [float(str(number)) for number in column]
        )
    classes = store.metadata.get("classes")
    if classes and (column.ndim > 1 or not all(0 <= value < len(classes) for value in values)):
        raise StoreError(f"{store.path}: has labels beyond its {len(classes)} classes: unpack without --labels")
    labels = {name: classes[value] if classes else value for name, value in zip(names, values, strict=True)}
    titles = (store.metadata.get("source") or {}).get("label_titles") or ()
    try:
        return format_labels(path, labels, titles).encode()
    except UnicodeEncodeError as exc:
        name = next(name for item in labels.items() for name in map(str, item) if not is_utf8(name))
        raise StoreError(
            f"{store.path}: the name {shown(name)} is not UTF-8, but label files are: unpack without --labels"
        ) from exc


# undamaged: the samples of a store that can be restored, and what is wrong with the others.

_CHECKED_BYTES, _CHECKED_SAMPLES = 8 << 20, 4096
_LABEL = "label"


def undamaged(
    store: SampleStore, others: Mapping[int, str]
) -> tuple[SampleStore, np.ndarray[tuple[int], np.dtype[np.int64]], list[Problem]]:
    """
    Return a store of the undamaged samples, their indices in ``store``, and a problem for each of the others.

    ``others`` says by index what else is wrong with samples. All fields of a sample go with a damaged one, and all
    pieces of a document that was split. Raises StoreCorrupt if nothing is left.
    """
    sentences = {**others, **_differing(store)}
    is_bad = np.zeros(len(store), bool)
    is_bad[list(sentences)] = True
    field = text_field(store.schema)
    if field is not None and sentences:
        documents = StoredText(store, field, None).document_numbers()
        is_bad = np.isin(documents, documents[is_bad])
    bad, good = np.flatnonzero(is_bad), np.flatnonzero(~is_bad)
    problems = [
        Problem(key, sentences.get(index, "is another piece of a damaged document"))
        for index, key in zip(bad.tolist(), store.keys(bad), strict=True)
    ]
    if len(bad) and not len(good):
        first = problems[0]
        raise StoreCorrupt(
            f"{store.path}: nothing to unpack: all {len(store):,} samples are damaged; the first: "
            f"{shown(first.key)!r:.100}: {first.problem}"
        )
    if not len(bad):
        return store, good, []
    labels = store.column(_LABEL)[good] if _LABEL in store.schema else None
    return SelectedStore(store, good, labels), good, problems


def _differing(store: SampleStore) -> dict[int, str]:
    """Return the samples that differ from their checksums, by index, with the first field that does."""
    sentences: dict[int, str] = {}
    for field in store.schema.payload:
        sizes = store.value_bytes(field.name)
        for piece in split_by_bytes(sizes, _CHECKED_BYTES, _CHECKED_SAMPLES):
            for row in _damaged_rows(_values(store, field, np.arange(piece.start, piece.stop))):
                sentences.setdefault(piece[row], f"field {field.name!r}: bytes differ from their checksum")
    return sentences


# A folder that is filled under a hidden name beside its own, and the removal of what dead processes left.

_ATTEMPTS = 1000


@contextmanager
def partial_folder(target: Path) -> Iterator[Path]:
    """
    Yield a new folder beside ``target``, removed at the end unless it was renamed.

    A lock on it lives as long as this process. Folders of the same target whose lock is free were left by killed
    processes: they are removed first. On a file system without locks, nothing is removed.
    """
    _remove_stale(target)
    partial, handle = _create(target)
    try:
        yield partial
    finally:
        _remove(partial)
        os.close(handle)


def _create(target: Path) -> tuple[Path, int]:
    for attempt in range(_ATTEMPTS):  # one of our pid may be at work on another host
        partial = target.with_name(f".{target.name}.partial-{os.getpid()}-{attempt}")
        with suppress(FileExistsError):
            partial.mkdir()
            handle = _locked(partial)
            if handle is not None:
                return partial, handle
    raise StoreError(f"{target}: {_ATTEMPTS} partial folders are beside it, e.g. {partial}: remove them")


def _locked(partial: Path) -> int | None:
    """A descriptor that holds the new folder's lock; None where another process took it for stale before that."""
    try:
        handle = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError:
        return handle  # no locks here: nobody can prove us dead, so nobody will remove the folder
    if os.fstat(handle).st_nlink:
        return handle
    os.close(handle)
    return None


def _remove_stale(target: Path) -> None:
    name = re.compile(re.escape(f".{target.name}.partial-") + r"\d+-\d+")
    for folder in [path for path in target.parent.iterdir() if name.fullmatch(path.name)]:
        with suppress(OSError):  # gone already, held, no folder, not ours, or there are no locks
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            finally:
                os.close(handle)


def _remove(folder: Path) -> None:
    """As far as possible, and without recursion, which ``shutil.rmtree`` has: trees may be deeper than calls."""
    folders = [folder]
    for each in folders:  # grows meanwhile
        with suppress(OSError):
            for path in each.iterdir():
                if path.is_dir() and not path.is_symlink():
                    folders.append(path)
                else:
                    path.unlink()
    for each in reversed(folders):
        with suppress(OSError):
            each.rmdir()


# Writes label files for ``fastio unpack --labels``, in the form that ``read_labels`` reads.

Label = int | float | str | Sequence[int | float]

_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")


def format_labels(path: str | os.PathLike[str], labels: Mapping[str, Label], titles: Sequence[str] = ()) -> str:
    """
    Return the text of a label file by its suffix (.csv, .tsv, .json or .jsonl); ``read_labels`` reads the same back.

    Lists of numbers become as many columns of a table, under ``titles`` if their count fits, otherwise label_1, ...
    """
    suffix = Path(path).suffix.lower()
    if suffix in (".csv", ".tsv"):
        return _table(path, labels, titles, "," if suffix == ".csv" else "\t")
    if suffix == ".json":
        return json.dumps(dict(labels), indent=0, ensure_ascii=False) + "\n"
    if suffix == ".jsonl":
        rows = ({"filename": name, "label": label} for name, label in labels.items())
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    raise SourceError(f"{path}: expected a label file to write as .csv, .tsv, .json or .jsonl")


def _table(path: str | os.PathLike[str], labels: Mapping[str, Label], titles: Sequence[str], delimiter: str) -> str:
    if any(isinstance(label, str) and (_NUMBER.match(label) or label != label.strip()) for label in labels.values()):
        raise SourceError(f"{path}: class names that look like numbers would come back as numbers: write .json")
    rows = {name: [label] if isinstance(label, int | float | str) else list(label) for name, label in labels.items()}
    width = len(next(iter(rows.values()), [0]))
    if width == 1:
        titles = ["label"]
    elif len(titles) != width or "filename" in titles:
        titles = [f"label_{i + 1}" for i in range(width)]
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(("filename", *titles))
    writer.writerows((name, *cells) for name, cells in rows.items())
    return text.getvalue()
