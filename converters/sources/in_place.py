"""
What a source that is read where it lies tells the store: which file, or which bytes of its own, each value is.

Nothing here knows kinds of sources. A source reads its fields by functions of whoever has their values, see
``ListedSource.read``: where that is a ``FileReader``, the values are whole files, and so are those of ``FieldFiles``,
but for the header of an array. A ``Placer`` says which bytes of which containers its values are. All other values, such
as the captions of a table, are read now and kept in the index, unless they are what training reads: a source whose
pictures have to be decompressed or decoded before they are those of a packed store is not read in place.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.fields.problems import row_problems
from fastio.converters.fields.types import parse_choice
from fastio.converters.labels.columns import LabelOptions
from fastio.converters.labels.filters import Filter, parse_filter
from fastio.converters.sources.files import FileReader, paths_below
from fastio.converters.sources.listed import Indices, ListedSource, Placer, Read, Values, parts_of
from fastio.converters.sources.npy import read_numbers_header
from fastio.converters.sources.opening import open_source
from fastio.converters.sources.pairs import FieldFiles
from fastio.converters.sources.source import Source, StreamedSource
from fastio.errors import SourceError
from fastio.store.files.local import is_local
from fastio.store.foreign.folder import FieldValues, FolderContent, root_of
from fastio.store.kinds.names import folders_of_pattern, is_pattern
from fastio.store.kinds.recognise import Recognised
from fastio.store.kinds.scan import Problem
from fastio.store.kinds.unpacked import Unpacked
from fastio.types.schema import Field, are_plain_paths, is_plain_path
from fastio.types.spans import Spans
from fastio.types.units import counted

__all__ = ["content_of", "lies_in_files", "list_samples"]

_AT_ONCE = 4096  # samples whose places and kept values are read together
_MOST_KEPT = 64 << 10  # bytes of a value beside a picture, on average


def list_samples(
    found: Recognised, options: Unpacked, path: str, *, check: bool = False, many_classes: bool = False
) -> FolderContent | str:
    """
    Return the samples of what ``path`` is, ``found``, by what ``options`` say of it; see ``content_of``.

    ``many_classes``: labels may be nearly as many names as samples. Raises SourceError as ``open_source``.
    """
    begun_ns = time.time_ns()
    top = found.place.top.listed if found.place.is_folder else {}
    if is_pattern(path):
        top = {folder: Path(folder).stat().st_mtime_ns for folder in folders_of_pattern(path)}
    source = open_source(
        found,
        labels=options.labels,
        label_options=LabelOptions(
            label_columns=options.label_columns,
            key_column=options.key_column,
            filters=_filters(options),
            ignore_columns=options.without,
            header=options.header,
            many_classes=many_classes,
        ),
        fields=[parse_choice(words) for words in options.fields],
        root=options.root,
    )
    content = content_of(source, path, check=check)
    if isinstance(content, str):
        return content
    root = root_of(path)
    labels = options.labels
    is_watched = labels is None or is_local(labels)  # nobody says when what is behind a URL changes
    read = [] if labels is None or not is_watched else [os.path.relpath(os.path.realpath(labels), root)]
    return replace(
        content,
        listed={**content.listed, **dict(_from(root, top))},
        read=[*content.read, *read],
        begun_ns=min(begun_ns, content.begun_ns) if is_watched else 0,
    )


def _filters(options: Unpacked) -> tuple[Filter, ...]:
    try:
        return tuple(map(parse_filter, options.filters))
    except ValueError as exc:
        raise SourceError(f"filters: {exc}") from exc


def lies_in_files(source: Source | StreamedSource) -> bool:
    """Return whether the samples of a source lie in files, with all their pictures, so that they are read in place."""
    if not isinstance(source, ListedSource) or source.schema.lists:
        return False
    parts = _Parts.of(source)
    some = source.indices[:_AT_ONCE] if parts.others else source.indices[:1]
    return not _Placed.of(source, parts, some, check=False).refusal(source, parts)


def content_of(source: Source | StreamedSource, path: str, *, check: bool = False) -> FolderContent | str:
    """
    Return the samples of a source that was just opened, without reading what lies in files; if they do not lie there,
    the reason, in words that follow what the path is: "" if nothing more is to be said.

    Samples that ``fastio pack`` would refuse before it reads their files are in ``metadata["skipped"]``; with
    ``check``, those that differ from the checksums of their container, too. Raises SourceError for arrays that packing
    would turn into others.
    """
    if not isinstance(source, ListedSource):
        return ""
    if source.schema.lists:
        return f"its values {source.schema.lists[0].name!r} are lists"
    parts = _Parts.of(source)
    if not (parts.whole or parts.placers):
        return ""
    first = _Placed.of(source, parts, source.indices[:1], check=False)
    if len(source.indices) and (refusal := first.refusal(source, parts)):
        return refusal
    root, whole = root_of(path), parts.whole
    samples = _Samples.of(source, parts, check=check)
    if len(source.indices) and (refusal := samples.placed.refusal(source, parts)):
        return refusal
    indices = samples.indices
    problems = sorted([*source.problems, *samples.problems], key=attrgetter("key"))
    if not len(indices):
        first_one = f"; e.g. {problems[0].key} {problems[0].problem}" if problems else ""
        raise SourceError(f"{path}: no sample in {counted(len(problems), 'file or row', 'files or rows')}{first_one}")
    names = {name: _below(root, reader.path, reader.keys_at(indices)) for name, reader in whole.items()}
    values = {
        field.name: _of_files(whole[field.name].sizes[indices], names[field.name], samples.skips.get(field.name))
        if field.name in names
        else samples.placed.values(field.name, root)
        for field in source.schema.payload
    }
    own = {each for reader in whole.values() for each in paths_below(reader.path, reader.keys_at(indices))}
    read = {os.path.relpath(os.path.realpath(each), root) for each in source.files() if each not in own}
    read |= set(_links_to(root, {os.path.realpath(reader.path) for reader in whole.values()} - {root}))
    waiting = _waiting(path, problems)
    is_open = all(os.access(f"{path}/{key}", os.R_OK) for key in waiting if Path(path, key).is_dir())
    fields = (each.planar if each.name in samples.placed.planar else each for each in source.schema.fields)
    return FolderContent(
        schema=replace(source.schema, fields=tuple(fields)),
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


def _of_files(sizes: NDArray[np.int64], names: Sequence[str], skips: NDArray[np.int64] | None) -> FieldValues:
    """Values that are whole files, but for a header."""
    return FieldValues(sizes if skips is None else sizes - skips, names, sizes, skips=skips)


@dataclass(frozen=True, slots=True)
class _Parts:
    """
    Who reads the fields of a source: ``whole``, whose values are files, by name; ``placers``, who say where values lie
    in containers; and functions that read all others.
    """

    whole: Mapping[str, FileReader]
    placers: Sequence[Placer]
    others: Sequence[Read]

    @classmethod
    def of(cls, source: ListedSource) -> _Parts:
        whole: dict[str, FileReader] = {}
        placers, others = list[Placer](), list[Read]()
        for read in parts_of(source.read):
            owner = getattr(read, "__self__", None)
            if isinstance(owner, FieldFiles):
                whole[owner.field.name] = FileReader(owner.field, owner.root, owner.names_at, owner.sizes)
            elif isinstance(owner, FileReader):
                whole[owner.of.name] = owner
            elif isinstance(owner, Placer):
                placers.append(owner)
            else:
                others.append(read)
        return cls(whole, placers, others)


@dataclass(slots=True)
class _Placed:
    """
    Values of some samples that are not whole files, a part of the samples after the other.

    Of those that lie in containers: ``paths`` of the containers of each field, and for each value which of them, from
    where on, and its checksum; which fields are ``planar``. Of the others, their bytes.
    """

    paths: dict[str, dict[str, int]] = dataclass_field(default_factory=dict)
    numbers: dict[str, list[NDArray[np.int64]]] = dataclass_field(default_factory=dict)
    starts: dict[str, list[NDArray[np.int64]]] = dataclass_field(default_factory=dict)
    checksums: dict[str, list[NDArray[np.uint32] | None]] = dataclass_field(default_factory=dict)
    data: dict[str, list[bytes]] = dataclass_field(default_factory=dict)
    sizes: dict[str, list[NDArray[np.int64]]] = dataclass_field(default_factory=dict)
    columns: dict[str, list[NDArray[Any]]] = dataclass_field(default_factory=dict)
    planar: set[str] = dataclass_field(default_factory=set)
    unfit: dict[str, str] = dataclass_field(default_factory=dict)
    problems: dict[int, str] = dataclass_field(default_factory=dict)

    @classmethod
    def of(cls, source: ListedSource, parts: _Parts, indices: Indices, *, check: bool) -> _Placed:
        """Return the values of these samples, as far as they are not whole files."""
        placed = cls()
        for start in range(0, len(indices) if parts.placers or parts.others else 0, _AT_ONCE):
            placed._add(source, parts, indices[start : start + _AT_ONCE], start, check=check)
        return placed

    def _add(self, source: ListedSource, parts: _Parts, indices: Indices, start: int, *, check: bool) -> None:
        every = [each.places(indices, check=check) for each in parts.placers]
        every += [read(indices, None)() for read in parts.others]
        in_memory: dict[str, Spans] = {}
        problems: dict[int, str] = {}
        for values in every:
            problems = {**values.problems, **problems}
            self.unfit.update(values.unfit)
            self.planar.update(values.planar)
            for name, column in values.columns.items():
                self.columns.setdefault(name, []).append(column)
            for name, spans in values.spans.items():
                self.sizes.setdefault(name, []).append(spans.sizes)
                if name in values.files:
                    self._place(name, values, spans)
                else:
                    in_memory[name] = spans
        if all(field.name in in_memory for field in source.schema.payload if field.geometry or field.owner):
            some = replace(source.schema, fields=tuple(each for each in source.schema.fields if each.name in in_memory))
            for i, (_, words) in row_problems(some, in_memory, problems).items():
                problems.setdefault(i, words)
        for name, spans in in_memory.items():
            self.data.setdefault(name, []).append(b"".join(view.data for view in spans.views()))
        self.problems |= {start + i: words for i, words in problems.items()}

    def _place(self, name: str, values: Values, spans: Spans) -> None:
        paths = self.paths.setdefault(name, {})
        numbers = np.array([paths.setdefault(each, len(paths)) for each in values.files[name]], np.int64)
        self.numbers.setdefault(name, []).append(numbers[spans.shard])
        self.starts.setdefault(name, []).append(spans.starts)
        self.checksums.setdefault(name, []).append(spans.checksums)

    def refusal(self, source: ListedSource, parts: _Parts) -> str:
        """Return why this is not read in place, in words after what it is; "" if it is."""
        if not (parts.whole or self.paths):
            return next(iter(self._reasons(self.unfit)), "its values have to be decoded to be read")
        in_memory = {name: sizes for name, sizes in self.sizes.items() if name not in self.paths or name in self.data}
        taken = [
            field.name
            for field in source.schema.payload
            if field.name in in_memory
            and (
                field.name in self.paths  # some of its values lie in files, some do not
                or field.traits.is_picture
                or field.is_raw_picture
                or float(np.mean(np.concatenate(in_memory[field.name]))) > _MOST_KEPT
            )
        ]
        return next(iter(self._reasons(taken)), "")

    def _reasons(self, names: Iterable[str]) -> list[str]:
        return [f"its values {name!r} {self.unfit.get(name, 'have to be decoded to be read')}" for name in names]

    def values(self, name: str, root: str) -> FieldValues:
        """Return the values of a field; names of containers begin at ``root``."""
        sizes = np.concatenate(self.sizes[name])
        if name not in self.paths:
            return FieldValues(sizes, kept=np.frombuffer(b"".join(self.data[name]), np.uint8))
        sums = [each for each in self.checksums[name] if each is not None]
        return FieldValues(
            sizes,
            [os.path.relpath(os.path.realpath(each), root) for each in self.paths[name]],
            np.array([Path(each).stat().st_size for each in self.paths[name]], np.int64),
            np.concatenate(self.numbers[name]),
            np.concatenate(self.starts[name]),
            np.concatenate(sums) if len(sums) == len(self.checksums[name]) else None,
        )

    def at(self, good: NDArray[np.int64]) -> _Placed:
        """Return the values at these positions."""
        chosen = _Placed(dict(self.paths), planar=self.planar, unfit=self.unfit)
        for mine, parts in ((chosen.numbers, self.numbers), (chosen.starts, self.starts), (chosen.sizes, self.sizes)):
            mine.update({name: [np.concatenate(each)[good]] for name, each in parts.items()})
        chosen.columns.update({name: [np.concatenate(each)[good]] for name, each in self.columns.items()})
        for name, sums in self.checksums.items():
            known = [each for each in sums if each is not None]
            chosen.checksums[name] = [np.concatenate(known)[good] if len(known) == len(sums) else None]
        for name, data in self.data.items():
            spans = Spans.joined(np.frombuffer(b"".join(data), np.uint8), np.concatenate(self.sizes[name])).at(good)
            chosen.data[name] = [b"".join(view.data for view in spans.views())]
        return chosen


@dataclass(frozen=True, slots=True)
class _Samples:
    """The good samples of a source: their indices, and all that is known of them before files are read."""

    indices: Indices
    skips: Mapping[str, NDArray[np.int64]]
    placed: _Placed
    columns: Mapping[str, NDArray[Any]]
    problems: Sequence[Problem]

    @classmethod
    def of(cls, source: ListedSource, parts: _Parts, *, check: bool) -> _Samples:
        indices = source.indices
        keys = source.keys_at(indices)
        bad: dict[int, str] = {}
        if not are_plain_paths(keys):
            bad = {i: "has a key that is not a path below a folder" for i, k in enumerate(keys) if not is_plain_path(k)}
        skips: dict[str, NDArray[np.int64]] = {}
        for field in source.schema.payload:
            if field.name in parts.whole and _is_array(field):
                skips[field.name], unfit = _headers(field, parts.whole[field.name], indices)
                bad = {**unfit, **bad}
        placed = _Placed.of(source, parts, indices, check=check)
        bad = {**placed.problems, **bad}
        good = np.setdiff1d(np.arange(len(indices)), np.fromiter(bad, np.int64, len(bad))) if bad else None
        if good is not None:
            placed = placed.at(good)
            indices, skips = indices[good], {name: each[good] for name, each in skips.items()}
        columns = {name: column[indices] for name, column in source.columns.items()}
        columns |= {name: np.concatenate(each) for name, each in placed.columns.items()}
        return cls(indices, skips, placed, columns, [Problem(keys[i], words) for i, words in bad.items()])


def _is_array(field: Field) -> bool:
    """Whether a file of this field is a .npy file, of which the value is what follows the header."""
    traits = field.traits
    return traits.is_plain and not (traits.is_picture or traits.is_text or traits.is_json)


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
                shape, is_fortran, dtype = read_numbers_header(file)
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
