"""
Containers of other programs behind a URL as samples of their own objects: MDS, LitData, TFRecord.

Where values lie, only the bytes before each sample tell, so each shard is read whole, once: it is copied to a temporary
file, listed there by its own kind of source as if it were the only one, and removed. The first shard says which columns
are which fields; names of classes are joined at the end. Every value gets a CRC-32 that it is compared with later.
"""

from __future__ import annotations

import fnmatch
import json
import logging
import re
import shlex
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fastio._native import crc32
from fastio.converters.labels.file import look_like_captions
from fastio.converters.pictures.probe import look_at
from fastio.converters.sources.in_place import list_samples
from fastio.converters.sources.sample_shards import unlisted_shards
from fastio.errors import SourceError, StoreError, StoreNotFound
from fastio.store.files import ByteSource, open_file
from fastio.store.files.remote_options import Remote
from fastio.store.foreign.folder import FolderContent, with_content
from fastio.store.foreign.index import copy_source
from fastio.store.foreign.other_libraries import INDEX_NAME, ShardEntry, shards_in
from fastio.store.index.arrays import Keys
from fastio.store.index.sealed import Shard
from fastio.store.jump_tables import with_points
from fastio.store.kinds.names import is_of_part, is_record_name, part_of
from fastio.store.kinds.recognise import not_packed, recognise
from fastio.store.kinds.scan import Problem
from fastio.store.kinds.unpacked import Unpacked
from fastio.store.remote_folder import RemoteFolder
from fastio.store.write.atomic import writing
from fastio.types.schema import is_plain_path
from fastio.types.units import counted
from fastio.types.units import size as size_words

__all__ = ["RemoteContainers", "find_containers", "list_containers"]

_OF_PLACE: Final = ("skipped", "left_out")
_LABEL: Final = "label"
_MOST_FOLDERS: Final = 16  # looked into below a URL
_SHOWN: Final = 10  # folders in a message
_WILDCARD: Final = re.compile(r"[*?\[]")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RemoteContainers:
    """
    The shards at a URL: ``urls``, and of each the index that lists it alone, "" for those that need none.

    ``stamp`` is another number if other shards are listed, or some of other sizes. ``unlisted`` shards lie beside them,
    as far as the server lists its files.
    """

    url: str
    entries: Sequence[ShardEntry]
    urls: Sequence[str]
    stamp: int
    unlisted: Sequence[Problem] = ()


def find_containers(url: str, remote: Remote, split: str | None) -> RemoteContainers | None:
    """
    Return the shards that the ``index.json`` at a URL lists, or the TFRecord files that it names: a folder, a file, or
    a pattern; those of a ``split``, in a folder of that name or with names that speak of it; or those in the only
    folder below that has some. None if it names nothing like that.

    Raises SourceError if it holds several splits, may hold several, or not the one asked for.
    """
    folder = url.rstrip("/")
    if split is not None:
        at = f"{folder}/{split}" if is_plain_path(split) else ""
        found = (_indexed(url, at, remote) or _records(url, at, remote)) if at else None
        found = found or _records(url, folder, remote, split)
        if found is None:
            there = _folders(folder, remote)
            known = f"its folders are {', '.join(map(repr, there[:_SHOWN]))}" if there else "it has no folders"
            raise SourceError(f"{url}: has no folder {split!r} for --split; {known}")
        return found
    found = _indexed(url, folder, remote) or _records(url, folder, remote)
    if found is not None:
        return found
    there = _folders(folder, remote)
    below: dict[str, RemoteContainers] = {}
    for name in there[:_MOST_FOLDERS]:
        at = f"{folder}/{name}"
        each = _indexed(url, at, remote) or _records(url, at, remote, is_known=True)
        if each is not None:
            below[name] = each
    _refuse_splits(url, [*below])
    if below and len(there) > _MOST_FOLDERS:
        raise SourceError(
            f"{url}: has {len(there):,} folders, of which {_MOST_FOLDERS} were looked into: choose one with --split, "
            f"such as {next(iter(below))}"
        )
    return next(iter(below.values()), None)


def _refuse_splits(url: str, splits: Sequence[str]) -> None:
    if len(splits) > 1:
        raise SourceError(f"{url}: holds several splits, {', '.join(splits):.200}: choose one with --split")


def _folders(folder: str, remote: Remote) -> list[str]:
    """The folders at a URL; none if its server lists nothing."""
    try:
        return RemoteFolder(folder, remote).folders()
    except StoreError as exc:
        _LOG.debug("%s", exc)
        return []


def _indexed(url: str, folder: str, remote: Remote) -> RemoteContainers | None:
    """The shards that the ``index.json`` in a folder lists."""
    try:
        data = open_file(f"{folder}/{INDEX_NAME}", options=remote)
        raw = data.read(0, data.size).tobytes()
        data.release()
    except StoreNotFound:
        return None
    entries = shards_in(raw)
    if not entries or not all(is_plain_path(each.name) for each in entries):
        return None
    names = {each.name for each in entries}
    try:
        unlisted = unlisted_shards(RemoteFolder(folder, remote).names(), names, Path(entries[0].name).suffix)
    except StoreError as exc:  # a server that lists nothing
        _LOG.debug("%s", exc)
        unlisted = []
    return RemoteContainers(url, entries, [f"{folder}/{each.name}" for each in entries], crc32(raw), unlisted)


def _records(
    url: str, at: str, remote: Remote, split: str | None = None, *, is_known: bool = False
) -> RemoteContainers | None:
    """
    The TFRecord files that a URL ``at`` names: one, those of a folder, or those that a pattern matches; with ``split``,
    those whose names speak of it.

    Raises SourceError for several splits, and for a folder that is known to be there but cannot be listed.
    """
    folder, _, last = at.rpartition("/")
    is_folder = not (_WILDCARD.search(last) or is_record_name(last))
    folder = at if is_folder else folder
    try:
        there = RemoteFolder(folder, remote).entries()
    except StoreError as exc:  # a server that lists nothing
        if is_known and not isinstance(exc, StoreNotFound):
            raise SourceError(
                f"{url}: its folder {last!r} may be a split, but cannot be listed ({exc}): choose one with --split"
            ) from exc
        _LOG.debug("%s", exc)
        return None
    names = sorted(filter(is_record_name, there))
    if not is_folder:
        names = [name for name in names if name == last or fnmatch.fnmatchcase(name, last)]
    if split is not None:
        names = [name for name in names if is_of_part(name, split)]
    elif is_folder:
        parts = Counter(part for name in names if (part := part_of(name)))
        _refuse_splits(url, [f"{part} ({counted(count, 'file')})" for part, count in parts.items()])
    if not names:
        return None
    stamp = crc32("\0".join(f"{name}\0{there[name].size}" for name in names).encode())
    return RemoteContainers(url, [ShardEntry(name) for name in names], [f"{folder}/{name}" for name in names], stamp)


def list_containers(
    found: RemoteContainers, remote: Remote, options: Unpacked, *, jump: bool
) -> tuple[list[Shard], dict[str, str]]:
    """
    Read these shards, and return them with the place and the CRC-32 of every value, over the objects themselves; and
    what is wrong with pictures, by key.

    With ``jump``, start points within JPEGs are noted, too. The metadata of all is in that of the first. Raises
    StoreError, and SourceError for what is not read in place or not as expected.
    """
    sources = [open_file(url, options=remote) for url in found.urls]
    _LOG.warning(
        "%s: reading all %s of %d shards once, to find the samples in them: do so before many processes open it, by %s",
        found.url,
        size_words(sum(source.size for source in sources)),
        len(sources),
        shlex.join(["fastio", "index", found.url, *options.words()]),
    )
    options = Unpacked(**{**options.given(), "split": None})  # each shard is of it
    shards, problems, said = list[Shard](), dict[str, str](), options
    for entry, source in zip(found.entries, sources, strict=True):
        if entry.is_empty:
            continue
        shard, content, bad = _listed(found.url, entry, source, said, jump=jump)
        problems |= bad
        if not shards:
            said = _as_first(options, content.metadata)
        elif shard.schema != shards[0].schema:
            raise StoreError(f"{source.path}: has other fields than {shards[0].path}: open them one by one")
        shards.append(shard)
    if not shards:
        raise SourceError(f"{found.url}: holds no sample in {len(sources)} shards")
    return _joined(found.url, shards), problems


def _as_first(options: Unpacked, metadata: Mapping[str, Any]) -> Unpacked:
    """The options by which the other shards have the fields of the first."""
    record = metadata["source"]
    return Unpacked(
        fields=record["fields"],
        kind=record["kind"],
        key_column=options.key_column,
        filters=options.filters,
        without=options.without,
    )


def _listed(
    url: str, entry: ShardEntry, source: ByteSource, options: Unpacked, *, jump: bool
) -> tuple[Shard, FolderContent, dict[str, str]]:
    """Copy a shard to a temporary file, and return what is in it, and what is wrong with its pictures."""
    with tempfile.TemporaryDirectory(prefix="fastio-") as folder:
        local = Path(folder, entry.name.rpartition("/")[2] if not entry.index else entry.name)
        local.parent.mkdir(parents=True, exist_ok=True)
        with writing(str(local)), local.open("wb") as file:
            copy_source(source, file.fileno())
        source.release()
        path = str(local)
        if entry.index:
            path = folder
            Path(folder, INDEX_NAME).write_text(entry.index, encoding="utf-8")
        try:
            kind = recognise(path, kind=options.kind, has_fields=bool(options.fields), with_text=False)
            content = list_samples(kind, options, path, check=True, many_classes=True)
            if isinstance(content, str):
                raise SourceError(not_packed(path, options, why=content))
        except SourceError as exc:
            raise SourceError(str(exc).replace(path, url if entry.index else source.path)) from exc
        listed = _shard(url, content, open_file(str(local), "map"))
        shard, bad = with_content(listed, partial(look_at, reads_codes=jump))
        problems = {shard.key(i): words for i, words in sorted(bad.items())}
        if jump and any(field.traits.is_image for field in shard.schema.payload):
            shard, damaged = with_points(shard)
            problems = {**dict.fromkeys(damaged, "has damaged data"), **problems}
        return replace(shard, path=source.path, data=source), content, problems


def _shard(url: str, content: FolderContent, data: ByteSource) -> Shard:
    """The samples of one file. Raises StoreError for values that lie nowhere in it."""
    for name, values in content.values.items():
        if values.names is None:
            raise StoreError(
                f"{url}: its values {name!r} have to be decoded to be read, which is not done behind a URL: --without "
                "leaves them out, or pack a copy"
            )
    keys = np.frombuffer("\0".join(content.keys).encode("utf-8", "surrogateescape"), np.uint8)
    return Shard(
        path=data.path,
        data=data,
        schema=content.schema,
        count=len(content.keys),
        starts={name: _starts(each.skips, len(each.sizes)) for name, each in content.values.items()},
        sizes={name: each.sizes for name, each in content.values.items()},
        checksums={},
        shapes={},
        intervals={},
        columns=content.columns,
        keys=Keys.of(keys, len(content.keys), path=data.path),
        metadata=json.dumps(content.metadata).encode("ascii"),
    )


def _starts(skips: NDArray[np.int64] | None, count: int) -> NDArray[np.int64]:
    return np.zeros(count, np.int64) if skips is None else skips


def _joined(url: str, shards: Sequence[Shard]) -> list[Shard]:
    """The shards with the same classes; what is to be said of all of them is said by the first."""
    said = [json.loads(shard.metadata) for shard in shards]
    metadata = {**said[0], **{name: [each for part in said for each in part[name]] for name in _OF_PLACE}}
    record = said[0]["source"]
    options = {name: value for name, value in record["label_options"].items() if name != "many_classes"}  # see below
    metadata["source"] = {**record, "name": url.rstrip("/").rpartition("/")[2], "label_options": options}
    if said[0]["classes"] is not None:
        classes = sorted({name for each in said for name in each["classes"]})
        if look_like_captions(classes, sum(shard.count for shard in shards)):
            raise SourceError(
                f"{url}: its samples have {len(classes):,} different labels, e.g. {classes[0]!r:.60}: captions rather "
                "than classes? Name the fields, as in Unpacked(fields=['image=image', 'caption=label:text'])"
            )
        numbers = {name: i for i, name in enumerate(classes)}
        shards = [
            _renumbered(shard, np.array([numbers[name] for name in each["classes"]], np.int64))
            for shard, each in zip(shards, said, strict=True)
        ]
        metadata["classes"] = classes
    return [replace(shards[0], metadata=json.dumps(metadata).encode("ascii")), *shards[1:]]


def _renumbered(shard: Shard, numbers: NDArray[np.int64]) -> Shard:
    return replace(shard, columns={**shard.columns, _LABEL: numbers[shard.columns[_LABEL]]})
