"""
What a source that is read where it lies tells the store: which file, or which bytes of its own, each value is.

Nothing here knows kinds of sources. A source reads its fields by functions of whoever has their values, see
``ListedSource.read``: where that is a ``FileReader``, the values are whole files, and so are those of ``FieldFiles``,
but for the header of an array. All other values, such as the captions of a table, are read now and kept in the index.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.fields.problems import row_problems
from fastio.converters.fields.types import parse_choice
from fastio.converters.labels.columns import LabelOptions
from fastio.converters.sources.files import FileReader, paths_below
from fastio.converters.sources.listed import Indices, ListedSource, Read, parts_of
from fastio.converters.sources.npy import read_npy_header
from fastio.converters.sources.opening import open_source
from fastio.converters.sources.pairs import FieldFiles
from fastio.converters.sources.source import Source, StreamedSource
from fastio.errors import SourceError
from fastio.store.files.local import is_local
from fastio.store.foreign.folder import FieldValues, FolderContent, root_of
from fastio.store.kinds.recognise import Recognised
from fastio.store.kinds.scan import Problem
from fastio.store.kinds.unpacked import Unpacked
from fastio.types.schema import Field, are_plain_paths, is_plain_path
from fastio.types.spans import Spans
from fastio.types.units import counted

__all__ = ["content_of", "lies_in_files", "list_samples"]

_AT_ONCE = 4096  # samples whose kept values are read together


def list_samples(found: Recognised, options: Unpacked, path: str) -> FolderContent | None:
    """
    Return the samples of what ``path`` is, ``found``, by what ``options`` say of it; see ``content_of``.

    Raises SourceError as ``open_source``.
    """
    begun_ns = time.time_ns()
    source = open_source(
        found,
        labels=options.labels,
        label_options=LabelOptions(
            label_columns=options.label_columns,
            key_column=options.key_column,
            filters=options.filters,
            ignore_columns=options.without,
            header=options.header,
        ),
        fields=[parse_choice(words) for words in options.fields],
        root=options.root,
    )
    content = content_of(source, path)
    if content is None:
        return None
    root = root_of(path)
    top = found.place.top.listed if found.place.is_folder else {}
    labels = options.labels
    is_watched = labels is None or is_local(labels)  # nobody says when what is behind a URL changes
    read = [] if labels is None or not is_watched else [os.path.relpath(os.path.realpath(labels), root)]
    return replace(
        content,
        listed={**content.listed, **dict(_from(root, top))},
        read=[*content.read, *read],
        begun_ns=min(begun_ns, content.begun_ns) if is_watched else 0,
    )


def lies_in_files(source: Source | StreamedSource) -> bool:
    """Return whether the samples of a source are files, with all their pictures, so that they are read in place."""
    if not isinstance(source, ListedSource):
        return False
    whole, _ = _by_place(source)
    return bool(whole) and {field.name for field in source.schema.payload if field.traits.is_picture} <= whole.keys()


def content_of(source: Source | StreamedSource, path: str) -> FolderContent | None:
    """
    Return the samples of a source that was just opened, without reading their files; None if they do not lie in files.

    Samples that ``fastio pack`` would refuse before it reads their files are in ``metadata["skipped"]``. Raises
    SourceError for arrays that packing would turn into others.
    """
    if not isinstance(source, ListedSource) or not lies_in_files(source):
        return None
    whole, others = _by_place(source)
    root = root_of(path)
    samples = _Samples.of(source, whole, others)
    indices = samples.indices
    names = {name: _below(root, reader.path, reader.keys_at(indices)) for name, reader in whole.items()}
    values = {
        field.name: FieldValues(whole[field.name].sizes[indices], names[field.name], samples.skips.get(field.name))
        if field.name in names
        else samples.kept[field.name]
        for field in source.schema.payload
    }
    own = {each for reader in whole.values() for each in paths_below(reader.path, reader.keys_at(indices))}
    read = {os.path.relpath(os.path.realpath(each), root) for each in source.files() if each not in own}
    read |= set(_links_to(root, {os.path.realpath(reader.path) for reader in whole.values()} - {root}))
    problems = sorted([*source.problems, *samples.problems], key=attrgetter("key"))
    waiting = _waiting(path, problems)
    is_open = all(os.access(f"{path}/{key}", os.R_OK) for key in waiting if Path(path, key).is_dir())
    if not len(indices):
        first = f"; e.g. {problems[0].key} {problems[0].problem}" if problems else ""
        raise SourceError(f"{path}: no sample in {counted(len(problems), 'file or row', 'files or rows')}{first}")
    return FolderContent(
        schema=source.schema,
        keys=source.keys_at(indices),
        values=values,
        columns=samples.columns,
        metadata={
            **source.metadata,
            "skipped": [{"key": each.key, "problem": each.problem} for each in problems],
            "left_out": [{"key": each.key, "problem": each.problem} for each in source.left_out],
        },
        listed={**_folders_of(root, [*names.values(), sorted(read)], path), **dict(_from(root, source.listed))},
        read=sorted({*read, *waiting}),
        begun_ns=time.time_ns() if is_open else 0,
    )


def _by_place(source: ListedSource) -> tuple[dict[str, FileReader], list[Read]]:
    """Return the fields whose values are files, by name, and the functions that read all others."""
    whole: dict[str, FileReader] = {}
    others: list[Read] = []
    for read in parts_of(source.read):
        owner = getattr(read, "__self__", None)
        if isinstance(owner, FieldFiles):
            whole[owner.field.name] = FileReader(owner.field, owner.root, owner.names_at, owner.sizes)
        elif isinstance(owner, FileReader):
            whole[owner.of.name] = owner
        else:
            others.append(read)
    return whole, others


@dataclass(frozen=True, slots=True)
class _Samples:
    """The good samples of a source: their indices, and all that is known of them before files are read."""

    indices: Indices
    skips: Mapping[str, NDArray[np.int64]]
    kept: Mapping[str, FieldValues]
    columns: Mapping[str, NDArray[Any]]
    problems: Sequence[Problem]

    @classmethod
    def of(cls, source: ListedSource, whole: Mapping[str, FileReader], others: Sequence[Read]) -> _Samples:
        indices = source.indices
        keys = source.keys_at(indices)
        bad: dict[int, str] = {}
        if not are_plain_paths(keys):
            bad = {i: "has a key that is not a path below a folder" for i, k in enumerate(keys) if not is_plain_path(k)}
        skips: dict[str, NDArray[np.int64]] = {}
        for field in source.schema.payload:
            if field.name in whole and _is_array(field):
                skips[field.name], unfit = _headers(field, whole[field.name], indices)
                bad = {**unfit, **bad}
        data: dict[str, list[bytes]] = {}
        sizes: dict[str, list[NDArray[np.int64]]] = {}
        columns: dict[str, list[NDArray[Any]]] = {}
        for start in range(0, len(indices) if others else 0, _AT_ONCE):
            chosen = indices[start : start + _AT_ONCE]
            spans, read, unfit = _read(source, others, chosen)
            bad = {**{start + i: words for i, words in unfit.items()}, **bad}
            for name, each in spans.items():
                data.setdefault(name, []).append(b"".join(view.data for view in each.views()))
                sizes.setdefault(name, []).append(each.sizes)
            for name, column in read.items():
                columns.setdefault(name, []).append(column)
        kept = {
            name: FieldValues(np.concatenate(sizes[name]), kept=np.frombuffer(b"".join(parts), np.uint8))
            for name, parts in data.items()
        }
        found = {**{name: column[indices] for name, column in source.columns.items()}}
        found |= {name: np.concatenate(parts) for name, parts in columns.items()}
        problems = [Problem(keys[i], words) for i, words in bad.items()]
        samples = cls(indices, skips, kept, found, problems)
        if not bad:
            return samples
        return samples._at(np.setdiff1d(np.arange(len(indices)), np.fromiter(bad, np.int64, len(bad))))

    def _at(self, good: NDArray[np.int64]) -> _Samples:
        """Return the samples at these positions."""
        return replace(
            self,
            indices=self.indices[good],
            skips={name: skips[good] for name, skips in self.skips.items()},
            kept={name: _kept_at(each, good) for name, each in self.kept.items()},
            columns={name: column[good] for name, column in self.columns.items()},
        )


def _is_array(field: Field) -> bool:
    """Whether a file of this field is a .npy file, of which the value is what follows the header."""
    traits = field.traits
    return traits.is_plain and not (traits.is_picture or traits.is_text or traits.is_json)


def _kept_at(values: FieldValues, good: NDArray[np.int64]) -> FieldValues:
    assert values.kept is not None
    views = Spans.joined(values.kept, values.sizes).at(good)
    data = b"".join(view.data for view in views.views())
    return FieldValues(values.sizes[good], kept=np.frombuffer(data, np.uint8))


def _read(
    source: ListedSource, reads: Sequence[Read], indices: Indices
) -> tuple[dict[str, Spans], dict[str, NDArray[Any]], dict[int, str]]:
    """Read the values that are not files, and what is wrong with them, as packing does."""
    spans: dict[str, Spans] = {}
    columns: dict[str, NDArray[Any]] = {}
    problems: dict[int, str] = {}
    for values in [read(indices, None)() for read in reads]:
        spans.update(values.spans)
        columns.update(values.columns)
        problems = {**values.problems, **problems}
    if all(field.name in spans for field in source.schema.payload if field.geometry or field.owner):
        some = replace(source.schema, fields=tuple(each for each in source.schema.fields if each.name in spans))
        for i, (_, words) in row_problems(some, spans, problems).items():
            problems.setdefault(i, words)
    return spans, columns, problems


def _headers(field: Field, reader: FileReader, indices: Indices) -> tuple[NDArray[np.int64], dict[int, str]]:
    """
    Return the bytes before each array in its .npy file, and what is wrong with some.

    Raises SourceError for one that packing would turn into an array of the field's type: its bytes are others then.
    """
    names, sizes = reader.keys_at(indices), reader.sizes[indices]
    skips, problems = np.zeros(len(names), np.int64), dict[int, str]()
    for i, name in enumerate(names):
        try:
            with Path(reader.path, name).open("rb") as file:
                shape, is_fortran, dtype = read_npy_header(file)
                skips[i] = file.tell()
        except OSError as exc:
            problems[i] = f"cannot be read: {exc.strerror or exc}"
            continue
        except ValueError as exc:
            problems[i] = f"has a field {field.name!r} that is not a .npy file: {exc}"
            continue
        fits = len(shape) == len(field.shape) and all(n in (None, m) for n, m in zip(field.shape, shape, strict=True))
        if not fits or dtype != np.dtype(field.dtype) or (is_fortran and len(shape) > 1):
            raise SourceError(
                f"{reader.path}/{name}: is {dtype.str} {shape}{' in Fortran order' if is_fortran else ''}, which only "
                f"packing turns into the field {field.name!r}, {field}: fastio pack it"
            )
        if not field.fits(sizes[i : i + 1] - skips[i])[0]:
            problems[i] = f"has a field {field.name!r} that is not a .npy file: it has {sizes[i] - skips[i]:,} bytes"
    return skips, problems


# Names from the folder of the index on.


def _below(root: str, folder: str, names: Sequence[str]) -> list[str]:
    prefix = os.path.relpath(os.path.realpath(folder), root)
    return list(names) if prefix == "." else [f"{prefix}/{name}" for name in names]


def _folders_of(root: str, names: Iterable[Sequence[str]], path: str) -> dict[str, int]:
    """
    Return the folders that these files are in and their times, for sources that do not say what they listed.

    The folder of a table is not among them: what is added there belongs to nothing, and the index lies there too. Nor
    are those outside of it, where a label file may lie among others.
    """
    folders = {name.rpartition("/")[0] or "." for each in names for name in each}
    if not Path(path).is_dir():
        folders.discard(".")
    inside = (each for each in sorted(folders) if each != ".." and not each.startswith("../"))
    found: dict[str, int] = {}
    for folder in inside:
        with suppress(FileNotFoundError, NotADirectoryError):  # its files, which are not there, are watched themselves
            found[folder] = Path(root, folder).stat().st_mtime_ns
    return found


def _waiting(path: str, problems: Sequence[Problem]) -> list[str]:
    """
    Return what is no sample, but may become one while its folder stays as it is, named from the folder on.

    An empty file may be filled, and a link lead somewhere. A folder that cannot be listed may be opened to us without
    any time that tells.
    """
    return [each.key for each in problems if os.path.lexists(f"{path}/{each.key}")] if Path(path).is_dir() else []


def _links_to(root: str, folders: Collection[str]) -> Iterator[str]:
    """Yield the links in the folder of the index, or beside it, that lead to the files: they may change."""
    above = str(Path(root).parent)
    for place in (root, above, f"{above}/images") if folders else ():  # where files of a table are looked for
        with suppress(OSError), os.scandir(place) as entries:
            for entry in filter(os.DirEntry.is_symlink, entries):
                real = os.path.realpath(entry.path)
                if any(folder == real or folder.startswith(f"{real}/") for folder in folders):
                    yield os.path.relpath(entry.path, root)


def _from(root: str, listed: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    return ((os.path.relpath(os.path.realpath(folder), root), stamp) for folder, stamp in listed.items())
