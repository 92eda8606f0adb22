"""``beside``: stores with other fields of the same samples, read as one store."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from fastio._native import ThreadPool
from fastio.errors import SchemaError
from fastio.store.beside.added import open_added
from fastio.store.files import Prefetch, Read, StoreFiles, files_of
from fastio.store.files.local import is_local
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.files.several import SeveralFiles
from fastio.store.index.elements import Elements
from fastio.store.index.metadata import beside_metadata
from fastio.store.index.store import SealedStore, checked_indices, number_of_all
from fastio.store.index.views import join_stores, read_only
from fastio.store.kinds.names import is_table_name
from fastio.store.kinds.unpacked import AS_IT_IS, Unpacked
from fastio.store.opening import open_store
from fastio.types.options import explains_names
from fastio.types.schema import Field, Schema
from fastio.types.spans import Spans
from fastio.types.units import counted

if TYPE_CHECKING:
    from fastio.store.beside.match import KeyMatch, Odd
    from fastio.store.index.far_points import FarSpans

__all__ = [
    "NOTHING_BESIDE",
    "ODD_KEYS",
    "Allowed",
    "Beside",
    "BesideStore",
    "beside",
    "end_to_end",
    "open_beside",
    "open_with_fields",
    "stores_of",
]

Allowed = Literal["missing", "extra", "double"]
ODD_KEYS: tuple[Allowed, ...] = get_args(Allowed)


@explains_names(groups={"remote": Remote})
def beside(
    store: str | os.PathLike[str] | SealedStore,
    *others: str | os.PathLike[str] | SealedStore,
    on: str = "key",
    stems: bool = False,
    allow: Allowed | Sequence[Allowed] = (),
    fields: Mapping[str, str | None] | None = None,
    read: Read = "auto",
    remote: Remote = DEFAULT,
) -> BesideStore:
    """
    Open stores that hold different fields of the same samples as one::

        dataset = FastDataset(fastio.beside("photos.lmdb", "captions.h5"))

    A sample has the fields of ``store`` and of all ``others``, which may be of other formats, in another order and in
    other places (URLs, too); those that are paths bring the fields that were added to them (``fastio.add_field``).
    Order and keys are those of ``store``. What takes an opened store takes the result: FastDataset, FastLoader,
    Mixture.

    Keys are compared once; the map is kept beside each of ``others`` (or in the cache directory) and made anew when one
    of the two stores has other content. Keys that only ``store`` has are *missing*, those that only another has are
    *extra*, and those that come several times in one of them are *double*: all are refused, with their number and
    the first ones, unless ``allow`` names them. Then samples that miss a field, and extra ones, are left out, and
    of double ones in ``others`` the first counts.

    With ``stems``, keys are compared without their extensions: ``a/1.jpg`` is ``a/1.txt`` of a folder of captions.

    One of ``others`` may be a table with types: JSON lines, JSON, Parquet or Arrow, also behind a URL. ``on`` names its
    column with the keys of ``store``; the other columns are fields. Its rows are packed into the cache directory, once
    for each version of the file, with the types that ``fastio.pack`` infers.

    ``fields`` gives fields of ``others`` another name, ``{"caption": "long_caption"}``, or leaves them out,
    ``{"label": None}``; ``{"captions.h5:label": None}`` is for one of several. ``read`` and ``remote`` are those
    of ``open_store``, for paths.

    Raises SchemaError for keys that do not match and for two fields of one name, StoreError and its kinds for a store
    that does not open, SourceError and SampleError for a table that cannot be read, ValueError and TypeError for
    options that make no sense.
    """
    if on != "key" and not any(map(_is_table, others)):
        raise ValueError(f"on={on!r}: names the column of a table; samples of stores are matched by their keys")
    allowed = (allow,) if isinstance(allow, str) else tuple(allow)
    unknown = [each for each in allowed if each not in ODD_KEYS]
    if unknown:
        raise ValueError(f"allow={allow!r}: expected some of {', '.join(map(repr, ODD_KEYS))}")
    if not others:
        raise TypeError("beside() needs a second store: beside('photos.lmdb', 'captions.h5')")
    if not isinstance(remote, Remote):
        raise TypeError(f"remote={remote!r}: expected fastio.Remote, such as Remote(cache_dir=...)")
    if isinstance(store, (str, os.PathLike)):
        first = _open_with_added(os.fspath(store), read=read, remote=remote)
    else:
        first = [store]
    try:
        return _with_others(
            first, others, on=on, stems=stems, allowed=allowed, fields=fields or {}, read=read, remote=remote
        )
    except BaseException:
        for one in first if first[0] is not store else ():
            one.close()
        raise


def _open_with_added(
    path: str,
    *,
    read: Read = "auto",
    remote: Remote = DEFAULT,
    unpacked: Unpacked = AS_IT_IS,
    jump: bool = False,
) -> list[SealedStore]:
    """Open a store, and behind it the fields that were added to it; see ``open_with_fields``."""
    first = open_store(path, read=read, remote=remote, unpacked=unpacked, jump=jump)
    try:
        return [first, *open_added(first, path, partial(open_store, read=read, remote=remote))]
    except BaseException:
        first.close()
        raise


def _with_others(
    first: Sequence[SealedStore],
    others: Sequence[str | os.PathLike[str] | SealedStore],
    *,
    on: str,
    stems: bool,
    allowed: tuple[Allowed, ...],
    fields: Mapping[str, str | None],
    read: Read,
    remote: Remote,
) -> BesideStore:
    """Join a store, and the fields that were added to it, with others, which are opened; see ``beside``."""
    groups: list[Sequence[SealedStore]] = []
    mine: list[SealedStore] = []
    try:
        for each in others:
            if isinstance(each, (str, os.PathLike)):
                groups.append(open_beside(each, on=on, allowed=allowed, read=read, remote=remote))
                mine += groups[-1]
            else:
                groups.append([each])
        for each in (*first, *(store for group in groups for store in group)):
            if not isinstance(each, SealedStore):
                remedy = "; name all stores in one call" if isinstance(each, BesideStore) else ""
                raise TypeError(f"beside() takes paths and opened stores, got {type(each).__name__}{remedy}")
        return _join([first, *groups], allowed, fields, stems=bool(stems))
    except BaseException:
        for one in mine:
            one.close()
        raise


def open_with_fields(
    path: str | os.PathLike[str],
    *,
    read: Read = "auto",
    remote: Remote = DEFAULT,
    unpacked: Unpacked = AS_IT_IS,
    jump: bool = False,
) -> SealedStore | BesideStore:
    """
    Open a store with the fields that were added to it (``fastio.add_field``), if there are any; ``open_store`` opens it
    alone.

    Raises what ``open_store`` raises, and StoreError for a field that was added to other content than the store has
    now.
    """
    opened = _open_with_added(os.fspath(path), read=read, remote=remote, unpacked=unpacked, jump=jump)
    try:
        return _join([opened], (), {}, stems=False) if len(opened) > 1 else opened[0]
    except BaseException:
        for each in opened:
            each.close()
        raise


def stores_of(store: SealedStore | BesideStore) -> Sequence[SealedStore]:
    """Return the stores that one is joined of, side by side; itself if it is none of these."""
    return [member.store for member in store.members] if isinstance(store, BesideStore) else [store]


def open_beside(
    path: str | os.PathLike[str],
    *,
    on: str = "key",
    allowed: Sequence[str] = (),
    read: Read = "auto",
    remote: Remote = DEFAULT,
) -> list[SealedStore]:
    """
    Open one of the ``others`` of ``beside``: a store, and behind it the fields that were added to it; or the rows of a
    table, of which ``on`` has the keys, the first row of each if "double" is among those ``allowed``.
    """
    if not _is_table(path):
        return _open_with_added(os.fspath(path), read=read, remote=remote)
    from fastio.store.kinds.registry import later  # with what stores do without

    packed = later("fastio.converters.write.table:open_packed")
    return [packed(os.fspath(path), on, remote, first_of_double="double" in allowed)]


def _is_table(path: object) -> bool:
    """Whether this is a table, whose rows have to be packed: a file of this machine, or behind a URL by its name."""
    if not isinstance(path, (str, os.PathLike)):
        return False
    text = os.fspath(path)
    return is_table_name(text.rpartition("/")[2]) and (not is_local(text) or Path(text).is_file())


def _join(
    groups: Sequence[Sequence[SealedStore]],
    allowed: tuple[Allowed, ...],
    renamed: Mapping[str, str | None],
    *,
    stems: bool,
) -> BesideStore:
    """Join stores, each with its added fields behind it: options are for all but the first of these groups."""
    from fastio.store.beside.key_map import map_of  # with what commands on one store do without

    stores, own = [store for group in groups for store in group], len(groups[0])
    first, *others = stores
    matches = [map_of(first, other, stems=stems and number >= own) for number, other in enumerate(others, 1)]
    for other, match in zip(others, matches, strict=True):
        _check(first, other, match, allowed)
    kept = _kept(matches)
    if kept is not None and not len(kept):
        keys = " and ".join(f"{store.keys([0])[0]!r} in {store.path}" for store in stores if len(store))
        raise SchemaError(f"{first.path}: shares no key with the stores beside it: there is {keys}")
    rows = [kept, *(_at(match.rows, kept) for match in matches)]
    if renamed:
        _check_names(stores[own:], renamed)
    names = [_renamed(each, renamed if number >= own else {}) for number, each in enumerate(stores)]
    members = [
        Member(store, {name: own for name, own in table.items() if name is not None}, own_rows)
        for store, table, own_rows in zip(stores, names, rows, strict=True)
    ]
    again = _SideBySide(tuple(map(tuple, groups)), allowed, tuple(renamed.items()), stems)
    path = " + ".join(store.path for store, *_ in groups)
    return BesideStore(members, again=again, path=path, stems=stems)


def _kept(matches: Sequence[KeyMatch]) -> NDArray[np.int64] | None:
    """Return the samples that all stores have; None if those are all."""
    lacking = [match.rows < 0 for match in matches if match.rows is not None and match.missing.count]
    return np.flatnonzero(~np.logical_or.reduce(lacking)) if lacking else None


def _at(rows: NDArray[Any] | None, kept: NDArray[np.int64] | None) -> NDArray[Any] | None:
    if kept is None:
        return rows
    return kept if rows is None else rows[kept]


_WORDS: Mapping[Allowed, tuple[str, str]] = {
    "missing": ("{first} has {count} that {other} lacks", "leave out these samples"),
    "extra": ("{other} has {count} that {first} lacks", "leave out those of {other}"),
    "double": ("{count} come several times in {first} or {other}", "take the first sample of each in {other}"),
}


def _check(first: SealedStore, other: SealedStore, match: KeyMatch, allowed: Sequence[Allowed]) -> None:
    """Raise SchemaError for keys that do not match, unless that is allowed."""
    odds: Mapping[Allowed, Odd] = {"missing": match.missing, "extra": match.extra, "double": match.double}
    wrong = [name for name in ODD_KEYS if odds[name].count and name not in allowed]
    if not wrong:
        return
    paths = {"first": first.path, "other": other.path}
    said, remedies = [], []
    for name in wrong:
        problem, remedy = _WORDS[name]
        odd = odds[name]
        more = ", ..." if odd.count > len(odd.first) else ""
        count = f"{counted(odd.count, 'key')} ({', '.join(map(repr, odd.first))}{more})"
        said.append(problem.format(count=count, **paths))
        remedies.append(remedy.format(**paths))
    raise SchemaError(
        f"{other.path}: its keys are not those of {first.path}: {'; '.join(said)}: pack the missing samples, or "
        f"{' and '.join(remedies)} by allow={tuple(wrong)!r} (--allow {','.join(wrong)})"
    )


def _renamed(other: SealedStore, renamed: Mapping[str, str | None]) -> dict[str | None, str]:
    """Return the fields of a store by their new names. Raises SchemaError if two of them would have one name."""
    found: dict[str | None, str] = {}
    for field in other.schema.fields:
        own = field.name
        name = renamed.get(f"{other.path}:{own}", renamed.get(own, own))
        if name is not None and name in found:
            raise SchemaError(
                f"{other.path}: its fields {found[name]!r} and {own!r} would both be {name!r}: give one another name, "
                f"fields={{{own!r}: {own + '_2'!r}}}, or leave it out, fields={{{own!r}: None}} (--rename {own}=)"
            )
        found[name] = own
    return found


def _check_names(others: Sequence[SealedStore], renamed: Mapping[str, str | None]) -> None:
    """Raise SchemaError for a field to rename that no store has."""
    known = {field.name for other in others for field in other.schema.fields}
    of_one = {f"{other.path}:{field.name}" for other in others for field in other.schema.fields}
    unknown = next((name for name in renamed if name not in known | of_one), None)
    if unknown is not None:
        raise SchemaError(
            f"{others[0].path}: fields={{{unknown!r}: ...}}: no such field beside; there is {', '.join(sorted(known))}"
        )


@dataclass(frozen=True, slots=True)
class Beside:
    """What ``beside`` joins with a store, and how, for those who open it later: the options are those of ``beside``."""

    others: tuple[str, ...] = ()
    allow: tuple[Allowed, ...] = ()
    fields: tuple[tuple[str, str | None], ...] = ()
    on: str = "key"
    stems: bool = False

    def open(self, path: str, *, remote: Remote = DEFAULT, unpacked: Unpacked = AS_IT_IS) -> SealedStore | BesideStore:
        """Open a store, with the fields that were added to it, and the others beside it if there are any."""
        if not self.others:
            return open_with_fields(path, remote=remote, unpacked=unpacked)
        first = _open_with_added(path, remote=remote, unpacked=unpacked)
        try:
            return _with_others(
                first,
                self.others,
                on=self.on,
                stems=self.stems,
                allowed=self.allow,
                fields=dict(self.fields),
                read="auto",
                remote=remote,
            )
        except BaseException:
            for each in first:
                each.close()
            raise


NOTHING_BESIDE = Beside()


@dataclass(frozen=True, slots=True)
class Member:
    """
    One of the stores of a joined one: ``names`` are its fields as the joined store calls them, with its own names;
    ``rows`` (n,) which of its samples each sample is, None if each is the one at its own place.
    """

    store: SealedStore
    names: Mapping[str, str]
    rows: NDArray[Any] | None

    def at(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return its samples at these places."""
        return indices if self.rows is None else self.rows[indices].astype(np.int64, copy=False)

    def fields(self) -> list[Field]:
        """Return its fields as the joined store has them."""
        named = {own: name for name, own in self.names.items()}
        found = []
        for own, name in named.items():
            field = self.store.schema[own]
            role = field.role
            if field.owner:
                if field.owner not in named:
                    raise SchemaError(
                        f"{self.store.path}: field {own!r} belongs to {field.owner!r}, which is left out: drop both"
                    )
                role = f"{role.removesuffix(field.owner)}{named[field.owner]}"
            found.append(replace(field, name=name, role=role))
        return found


@dataclass(frozen=True, slots=True)
class _SideBySide:
    """Joins the stores again in the process that unpickles them."""

    groups: tuple[tuple[SealedStore, ...], ...]
    allowed: tuple[Allowed, ...]
    renamed: tuple[tuple[str, str | None], ...]
    stems: bool = False

    def __call__(self) -> BesideStore:
        return _join(self.groups, self.allowed, dict(self.renamed), stems=self.stems)

    def __str__(self) -> str:
        """Return the call that does it; the path of a store alone, which FastDataset opens with its added fields."""
        paths = [repr(store.path) for store, *_ in self.groups]  # which bring the fields that were added
        if len(paths) == 1:
            return paths[0]
        options = ["stems=True"] if self.stems else []
        options += [f"allow={self.allowed!r}"] if self.allowed else []
        options += [f"fields={dict(self.renamed)!r}"] if self.renamed else []
        return f"beside({', '.join([*paths, *options])})"


class BesideStore:
    """
    The samples of several stores, each of which holds other fields of them; see SampleStore.

    Where all files are of one kind, their buffers are one list, so that native code sees one store with more shards.
    """

    format = "beside"

    def __init__(
        self, members: Sequence[Member], *, again: Callable[[], BesideStore], path: str, stems: bool = False
    ) -> None:
        self.members = tuple(members)
        self._again, self._stems = again, stems
        self.path = path
        self.schema = Schema(tuple(_fields(members)))
        first = members[0]
        self._count = len(first.store) if first.rows is None else len(first.rows)
        self._owner = {name: (number, own) for number, each in enumerate(members) for name, own in each.names.items()}
        shards = [len(member.store.shard_paths) for member in members]
        self._first_shard = [sum(shards[:number]) for number in range(len(shards))]
        self.shard_paths: Sequence[str] = tuple(path for member in members for path in member.store.shard_paths)
        self.files: StoreFiles = _files([member.store for member in members])
        self._columns: dict[str, NDArray[Any]] = {}
        self._elements: dict[str, Elements] = {}

    def __len__(self) -> int:
        return self._count

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        """That of the first store, with what the others say of their fields."""
        return MappingProxyType(beside_metadata([(each.store, each.names) for each in self.members]))

    @property
    def opened_by(self) -> str:
        """Python that opens these stores so."""
        return str(self._again)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(member.store.size_bytes for member in self.members)

    @property
    def identity(self) -> int:
        """A number from the content of all stores, and from how they are joined."""
        parts = [
            [member.store.identity, sorted(member.names.items()), _number_of_rows(member)] for member in self.members
        ]
        return zlib.crc32(json.dumps([parts, self._stems]).encode("ascii"))

    def keys(self, indices: NDArray[np.int64] | Sequence[int]) -> list[str]:
        """Return the keys of these samples: those of the first store."""
        chosen = self._checked(np.asarray(indices, np.int64).reshape(-1))
        return self.members[0].store.keys(self.members[0].at(chosen))

    def spans(self, field: str, indices: NDArray[np.int64], *, checksums: bool = True) -> Spans:
        """As SampleStore.spans."""
        number, own = self._of(field)
        member = self.members[number]
        chosen = self._checked(np.asarray(indices))
        return self._placed(number, member.store.spans(own, member.at(chosen), checksums=checksums))

    def look_ahead(
        self, field: str, indices: NDArray[np.int64], pool: ThreadPool, *, checksums: bool = True
    ) -> Prefetch | None:
        """As SampleStore.look_ahead."""
        number, own = self._of(field)
        member = self.members[number]
        return member.store.look_ahead(own, member.at(indices), pool, checksums=checksums)

    def far_points(self, field: str, indices: NDArray[np.int64]) -> FarSpans | None:
        """As SampleStore.far_points."""
        number, own = self._of(field)
        member = self.members[number]
        return member.store.far_points(own, member.at(self._checked(np.asarray(indices))))

    def elements(self, field: str) -> Elements:
        """As SampleStore.elements; looked up once, as loaders ask for every chunk."""
        if field not in self._elements:
            self._elements[field] = self._elements_of(field)
        return self._elements[field]

    def _elements_of(self, field: str) -> Elements:
        number, own = self._of(field)
        member = self.members[number]
        rows = None if member.rows is None else member.rows.astype(np.int64)
        inner = member.store.elements(own)
        return inner.of_samples(self, self.schema[field], rows, partial(self._placed, number))

    def value_bytes(self, field: str) -> NDArray[np.int64]:
        """As SampleStore.value_bytes."""
        number, own = self._of(field)
        member = self.members[number]
        sizes = member.store.value_bytes(own)
        return sizes if member.rows is None else read_only(sizes[member.rows])

    def total_bytes(self, field: str) -> int:
        """As SampleStore.total_bytes."""
        number, own = self._of(field)
        member = self.members[number]
        return member.store.total_bytes(own) if member.rows is None else int(self.value_bytes(field).sum())

    def column(self, field: str) -> NDArray[Any]:
        """Return a column, ``(len, *shape)``, read-only."""
        number, own = self._of(field)
        member = self.members[number]
        if member.rows is None:
            return member.store.column(own)
        if field not in self._columns:
            self._columns[field] = read_only(member.store.column(own)[member.rows])
        return self._columns[field]

    def shapes(self, field: str) -> NDArray[np.int32]:
        """Return ``(len, 3)``: height, width, channels of an image field as stored; zeros if unknown."""
        number, own = self._of(field)
        member = self.members[number]
        shapes = member.store.shapes(own)
        return shapes if member.rows is None else read_only(shapes[member.rows])

    def receipt(self, fields: Sequence[str] | None = None) -> int | None:
        """Return the number that an epoch of all samples should give: see SampleStore."""
        return number_of_all(self, fields)

    def check_index(self) -> None:
        """As SampleStore.check_index, of all stores."""
        for member in self.members:
            member.store.check_index()

    def close(self) -> None:
        """Close all stores; twice does no harm."""
        self.files.close()
        for member in self.members:
            member.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        names = ", ".join(field.name for field in self.schema.fields)
        return f"<stores {self.path!r}, side by side: {self._count} samples of {names}>"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by path; the receiving process refuses other content under the same names."""
        return _called, (self._again,)

    def _placed(self, number: int, spans: Spans) -> Spans:
        """Return spans of a member among the files of all."""
        first = self._first_shard[number]
        shard = spans.shard + np.int32(first) if first else spans.shard
        return Spans(self.files.buffers, shard, spans.starts, spans.sizes, spans.checksums, spans.intervals)

    def _of(self, field: str) -> tuple[int, str]:
        """Return the number of the member that has a field, and its name there."""
        if field not in self._owner:
            raise SchemaError(f"{self.path}: no field {field!r}, expected one of {sorted(self._owner)}")
        return self._owner[field]

    def _checked(self, indices: NDArray[Any]) -> NDArray[np.int64]:
        """Check indices here: those of the stores are others."""
        return checked_indices(indices, self._count, path=self.path)


def _called(again: Callable[[], BesideStore]) -> BesideStore:
    return again()


def _number_of_rows(member: Member) -> int:
    """Return how many samples of a member are in the joined store."""
    return len(member.store) if member.rows is None else len(member.rows)


def _fields(members: Sequence[Member]) -> list[Field]:
    """Return the fields of all members. Raises SchemaError for two of one name."""
    found: dict[str, str] = {}
    fields = []
    for member in members:
        for field in member.fields():
            if field.name in found:
                own = member.names[field.name]
                named = own if found[field.name] == members[0].store.path else f"{member.store.path}:{own}"
                raise SchemaError(
                    f"{member.store.path}: has a field {field.name!r}, and so has {found[field.name]}: give it another "
                    f"name, fields={{{named!r}: {own + '_2'!r}}}, or leave it out, fields={{{named!r}: None}} "
                    f"(--rename {named}={own}_2, --rename {named}=)"
                )
            found[field.name] = member.store.path
            fields.append(field)
    return fields


def _files(stores: Sequence[SealedStore]) -> StoreFiles:
    """Return the files of all stores: as one list where one kind reads them, otherwise each store's own."""
    sources = [source for store in stores for source in store.sources]
    if len({source.kind for source in sources}) == 1:
        return files_of(sources)
    return SeveralFiles([store.files for store in stores], [source.size for source in sources])


# Several such stores as one, one behind the other: the fields of each come from where they are.


def end_to_end(
    stores: Sequence[SealedStore | BesideStore], fields: Sequence[str], *, has_classes: bool = True
) -> SealedStore | BesideStore:
    """Join the samples of ``stores`` as ``join_stores`` does, where some of them are several side by side."""
    sealed = [store for store in stores if isinstance(store, SealedStore)]
    if len(sealed) == len(stores):
        return join_stores(sealed, fields, has_classes=has_classes)
    parts = [_members(store) for store in stores]
    columns = [name for name in _names(parts[0]) if all(name in _names(part) for part in parts) and name not in fields]
    lacking = next(((store, name) for store in stores for name in fields if name not in store.schema), None)
    if lacking is not None:
        raise SchemaError(f"{lacking[0].path}: has no field {lacking[1]!r}, which {stores[0].path} has: pack it, too")
    groups: dict[tuple[int, ...], list[str]] = {(0,) * len(parts): []}
    for name in (*fields, *columns):
        groups.setdefault(tuple(_names(part)[name] for part in parts), []).append(name)
    members = []
    for owners, names in groups.items():
        own = [part[owner] for part, owner in zip(parts, owners, strict=True)]
        called = {name: own[0].names[name] for name in names}
        other = next((each for each in own if any(each.names[name] != called[name] for name in names)), None)
        if other is not None:
            raise SchemaError(
                f"{other.store.path}: has a field under another name than {own[0].store.path}: pack it so"
            )
        joined = join_stores(
            [each.store for each in own],
            [each for name, each in called.items() if name in fields],
            has_classes=has_classes and "label" in called.values(),
            columns=[each for name, each in called.items() if name not in fields],
        )
        kept = {name: each for name, each in called.items() if each in joined.schema}
        members.append(Member(joined, kept, _rows_of(own)))
    path = " + ".join(member.store.path for member in members)
    return BesideStore(members, again=_EndToEnd(tuple(stores), tuple(fields), has_classes), path=path)


@dataclass(frozen=True, slots=True)
class _EndToEnd:
    """Joins the stores again in the process that unpickles them."""

    stores: tuple[SealedStore | BesideStore, ...]
    fields: tuple[str, ...]
    has_classes: bool

    def __call__(self) -> BesideStore:
        joined = end_to_end(self.stores, self.fields, has_classes=self.has_classes)
        assert isinstance(joined, BesideStore), "one of them is"
        return joined


def _members(store: SealedStore | BesideStore) -> Sequence[Member]:
    if isinstance(store, BesideStore):
        return store.members
    return (Member(store, {field.name: field.name for field in store.schema.fields}, None),)


def _names(members: Sequence[Member]) -> dict[str, int]:
    """Return the number of the member that has each field."""
    return {name: number for number, member in enumerate(members) for name in member.names}


def _rows_of(members: Sequence[Member]) -> NDArray[np.int64] | None:
    """Return the rows of members whose samples are numbered one member after the other."""
    if all(member.rows is None for member in members):
        return None
    firsts = np.cumsum([0, *(len(member.store) for member in members)])
    rows = [
        first + (np.arange(len(member.store)) if member.rows is None else member.rows.astype(np.int64))
        for first, member in zip(firsts.tolist(), members, strict=False)
    ]
    return np.concatenate(rows)
