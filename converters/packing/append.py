"""Lets a set grow: the shards of one more plan behind those that it has; labels by the class names of the set."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio._native import ThreadPool
from fastio.converters.packing.plan import PackPlan, StreamPlan
from fastio.converters.sources.derived import DerivedSource
from fastio.converters.sources.source import Chunk, Scanned, Source, StreamedSource, is_streamed
from fastio.errors import SchemaError, StoreError, StoreNotFound
from fastio.store.beside.added import added_stores, names_joined
from fastio.store.files.remote_options import Remote
from fastio.store.folders import folder_of
from fastio.store.index.metadata import DescribedSamples, merged_metadata
from fastio.store.sets.members import open_members
from fastio.store.sets.names import set_path
from fastio.store.sets.set_object import SetObject, keys_of, read_set
from fastio.store.write.atomic import writing
from fastio.store.write.keys import UniqueNames
from fastio.store.write.target import Target
from fastio.types.schema import Schema
from fastio.types.units import counted

__all__ = [
    "base_of_appended",
    "check_appended",
    "check_classes",
    "check_new_keys",
    "classes_at",
    "is_appended",
    "known_keys",
    "part_of",
    "relabelled",
]


_LOG = logging.getLogger(__name__)
_KEYS_AT_ONCE = 1 << 16
_SHOWN = 5  # new classes in a message


def classes_at(out: str, remote: Remote) -> Sequence[str] | None:
    """Return the class names of the set that a pattern names; None if it has none, or is not there."""
    folder, name = folder_of(set_path(out), remote)
    try:
        current = read_set(folder.open(name), with_index=False)
    except StoreNotFound:
        return None
    classes: Sequence[str] | None = json.loads(current.metadata).get("classes")
    return classes


def check_classes(
    source: Source | StreamedSource, classes: Sequence[str] | None, out: str, *, new_classes: bool
) -> None:
    """
    Raise SchemaError if a source has classes that the set ``out`` lacks; with ``new_classes``, log them instead.

    A folder whose name is misspelt would otherwise become a class of its own.
    """
    own = source.metadata.get("classes")
    new = new_names(own, classes) if own is not None and classes is not None else []
    if not new or classes is None:
        return
    nearest = {name.casefold(): name for name in reversed(classes)}
    words = [_with_nearest(name, nearest) for name in new[:_SHOWN]] + (["..."] if len(new) > _SHOWN else [])
    message = f"{source.path}: {counted(len(new), 'class', 'classes')} that {out} does not have yet: {', '.join(words)}"
    if not new_classes:
        raise SchemaError(f"{message}: correct the name, or add new classes with --new-classes (new_classes=True)")
    _LOG.warning("%s", message)


def _with_nearest(name: str, nearest: dict[str, str]) -> str:
    """Quote a name, followed by the class that it may be meant for."""
    match = get_close_matches(name.casefold(), nearest, 1)
    return f"{name!r} (nearest: {nearest[match[0]]!r})" if match else repr(name)


def is_appended(current: SetObject, plan: PackPlan | StreamPlan) -> bool:
    """Whether the last shards of a set are those of a plan."""
    return plan.listed(current.members) > 0


def base_of_appended(target: Target, current: SetObject | None, plan: PackPlan | StreamPlan) -> int:
    """
    Return the number of the first file that is to be appended: the one behind all that the set lists, or the first one
    of this plan if they are listed already. Raises StoreError if there is no set.
    """
    if current is None:
        raise StoreError(
            f"{target.path}: there is no set to append to: pack it without --append, or name the shards as those of "
            "the set are named"
        )
    names = [member.name for member in current.members]
    if is_appended(current, plan):
        names = names[-plan.listed(current.members) :]
        return min(number for name in names if (number := target.number_of(name)) is not None)
    numbers = [number for name in names if (number := target.number_of(name)) is not None]
    return max(numbers, default=-1) + 1


def check_appended(
    current: SetObject, plan: PackPlan | StreamPlan, source: Source | StreamedSource, remote: Remote
) -> None:
    """
    Raise SchemaError if the samples of a source cannot join a set: they have other fields, classes or tokens, or keys
    that the set has already. The keys of a stream are compared when they have been read, see ``check_new_keys``.

    Fields that were added to the set are not those of its shards: a warning says which the new samples lack.
    """
    added = [name for joined in added_stores(current.path) for name in names_joined(joined)]
    adding = f"fastio add-field {current.path} {' '.join(added)} --from OTHER --append"
    if plan.schema != current.schema:
        fields, expected = (", ".join(map(str, schema.fields)) for schema in (plan.schema, current.schema))
        message = f"{source.path}: would be packed as {fields}, but {current.path} holds {expected}"
        beside = [field.name for field in plan.schema.fields if field.name in added]
        if beside:
            raise SchemaError(
                f"{message}, and {', '.join(beside)} beside it: append without (--without {','.join(beside)}), then "
                f"add the fields to the new samples: {adding}"
            )
        raise SchemaError(
            f"{message}: the samples of one set have the same fields: pack it the same way, or to a set of its own"
        )
    if added:
        _LOG.warning(
            "%s: the new samples lack %s, which were added to the set; until they have them, it does not open: %s",
            current.path,
            ", ".join(added),
            adding,
        )
    count = 0 if is_streamed(source) else len(source)
    merged_metadata([part_of(current), DescribedSamples(source.path, source.metadata, count)])
    if not is_streamed(source):
        with closing(known_keys(current, remote)) as known, writing(current.path):
            for keys in _keys(source):
                check_new_keys(known, keys, source.path, current)
            found = known.repeated()
            for keys in () if found is None else _keys(source):
                hashes = _native.name_hashes(_joined(keys))
                for row in np.flatnonzero((hashes == found).all(axis=1)).tolist():
                    raise _repeated(keys[row], source.path, current)


def known_keys(current: SetObject, remote: Remote) -> UniqueNames:
    """Return the keys of all samples of a set, to be closed after use. Raises StoreError for a full disk."""
    known = UniqueNames(beside=current.path)
    with writing(current.path):
        for piece in keys_of(open_members(read_set(current.file), options=remote)):
            known.insert(piece)
    return known


def check_new_keys(known: UniqueNames, keys: Sequence[str], path: str, current: SetObject) -> None:
    """
    Add keys of the source at ``path`` to those that are known. Raises SchemaError for one that is known already, as far
    as the last million keys and more tell; making the next generation of the set compares all. May raise OSError.
    """
    twice = known.insert(_joined(keys)) if keys else None
    if twice is not None:
        raise _repeated(keys[twice], path, current)


def _repeated(key: str, path: str, current: SetObject) -> SchemaError:
    return SchemaError(
        f"{path}: key {key!r} is in {current.path} already: keys of a set are unique: append only samples that are "
        "new, or pack them under other names"
    )


def _joined(keys: Sequence[str]) -> bytes:
    return "\0".join(keys).encode("utf-8", "surrogatepass")


def part_of(current: SetObject) -> DescribedSamples:
    """Return what a set is as a part of a larger one."""
    return DescribedSamples(current.path, json.loads(current.metadata), len(current))


def _keys(source: Source) -> Iterator[Sequence[str]]:
    count = len(source) - len(source.problems)
    for start in range(0, count, _KEYS_AT_ONCE):
        yield source.scanned(range(start, min(start + _KEYS_AT_ONCE, count))).keys


# Relabelled: a source whose labels are numbers of another list of classes, told by their names.

_LABEL = "label"


@overload
def relabelled(source: Source, classes: Sequence[str] | None) -> Source: ...


@overload
def relabelled(source: Source | StreamedSource, classes: Sequence[str] | None) -> Source | StreamedSource: ...


def relabelled(source: Source | StreamedSource, classes: Sequence[str] | None) -> Source | StreamedSource:
    """
    Return the source with labels that count the classes of a set: its names have the set's numbers, and names that the
    set lacks come behind them. The source itself if it has these numbers already, or if one of them has no names.
    """
    own = source.metadata.get("classes")
    if own is None or classes is None or _LABEL not in source.schema or list(own) == list(classes):
        return source
    new = new_names(own, classes)
    names = [*classes, *new]
    numbers = {name: number for number, name in enumerate(names)}
    new_numbers = np.array([numbers[name] for name in own], np.int64)
    if is_streamed(source):
        return source.renumbered(names, new_numbers)
    return Relabelled(source, names, new_numbers)


def new_names(names: Sequence[str], classes: Sequence[str]) -> list[str]:
    """Return the names that are not among the classes, in their order."""
    known = set(classes)
    return [name for name in names if name not in known]


@dataclass(frozen=True)
class Relabelled(DerivedSource):
    """
    The samples of ``source``, with ``classes`` as the names of labels. Satisfies ``Source``.

    ``numbers`` (int64) holds the label here for each label there.
    """

    source: Source
    classes: Sequence[str]
    numbers: NDArray[np.int64]

    @property
    def schema(self) -> Schema:
        """The source's fields."""
        return self.source.schema

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The source's, with these classes."""
        return {**self.source.metadata, "classes": list(self.classes)}

    def scanned(self, chunk: range) -> Scanned:
        """Return keys, sizes and columns, with the labels of these classes."""
        scanned = self.source.scanned(chunk)
        return replace(scanned, columns=self._renumbered(scanned.columns))

    def shuffled(self, seed: int) -> Relabelled:
        """Return the same samples in an order drawn from their names and the seed."""
        return replace(self, source=self.source.shuffled(seed))

    def begin(self, chunk: range, pool: ThreadPool | None = None) -> Callable[[], Chunk]:
        """Begin to read one piece; the result waits for it and gives it the labels of these classes."""
        finish = self.source.begin(chunk, pool)

        def finished() -> Chunk:
            read = finish()
            return replace(read, batch=replace(read.batch, columns=self._renumbered(read.batch.columns)))

        return finished

    def _renumbered(self, columns: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        if _LABEL not in columns:
            return columns
        labels = columns[_LABEL]
        return {**columns, _LABEL: self.numbers[labels].astype(labels.dtype)}
