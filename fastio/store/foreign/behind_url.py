"""
Containers of other programs behind URLs: their index is a set object in the cache directory
(``$XDG_CACHE_HOME/fastio``, ``~/.cache/fastio``) that lists the objects where they lie, with the place and the CRC-32
of every value; its name ends in ``.fastio-index``, as those of other indexes there.

It is made once, by one process that reads all of them while the others of its machine wait, and used while the
``index.json`` there, or the names and sizes of TFRecord files, are what they were; each value is compared with its
CRC-32 whenever it is read.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from fastio.errors import SourceError, StoreError
from fastio.store.files import open_file
from fastio.store.files.remote_options import Remote
from fastio.store.foreign.folder import tell_skipped
from fastio.store.foreign.sidecar import index_places
from fastio.store.index.sealed import Shard
from fastio.store.index.store import SealedStore
from fastio.store.kinds.registry import later
from fastio.store.kinds.scan import Problem
from fastio.store.kinds.unpacked import Unpacked
from fastio.store.protocol import IN_PLACE
from fastio.store.sets.members import open_members
from fastio.store.sets.set_object import SetMember, SetObject, read_set, write_set
from fastio.store.shards import Way
from fastio.store.write.atomic import PartialFile, publish_file, writing
from fastio.store.write.locks import turn

__all__ = ["index_containers", "open_containers"]

_OWN = "in_place"  # of the metadata of the set object
_RULES = 1  # by which values become samples; an index that was made by others is not used
_LOG = logging.getLogger(__name__)

_find = later("fastio.converters.sources.behind_url:find_containers")  # which knows the kinds of sources
_list = later("fastio.converters.sources.behind_url:list_containers")


def open_containers(url: str, options: Unpacked, way: Way, error: StoreError) -> SealedStore:
    """
    Open the samples of containers at a URL where no store is, as ``error`` says; the first opening reads them all.

    Raises ``error`` if there are none, and StoreError for those that are damaged, not read in place, or behind a server
    that does not give their index.
    """
    try:
        found = _find(url, way.remote, options.split)
    except SourceError as exc:
        raise StoreError(str(exc)) from exc
    if found is None:
        raise error
    if way.stage is not None:
        raise StoreError(
            f"{url}: is read where it lies, and no copy of it is staged: drop stage=; cache_dir= keeps what was read"
        )
    place = _place(url, options)
    kept = _kept(place, found.stamp)
    if kept is None:
        with _turn(place, url):  # by one process of this machine, while the others wait
            kept = _kept(place, found.stamp)
            if kept is None:
                try:
                    shards, _ = _list(found, way.remote, options, jump=False)
                except SourceError as exc:
                    raise StoreError(str(exc)) from exc
                _write(place, shards, found.stamp)
                kept = read_set(open_file(place))
    kept = replace(kept, metadata=_with_unlisted(kept.metadata, found.unlisted))
    tell_skipped(url, len(kept), kept.metadata)
    members = open_members(kept, options=way.remote)
    return SealedStore(
        url, format_name=IN_PLACE, shards=members, opener=way.opener, index=members.joined, set_object=kept
    )


def index_containers(
    url: str, remote: Remote, options: Unpacked, *, jump: bool
) -> tuple[str, Sequence[Shard], Mapping[str, str]] | None:
    """
    Make the index of containers at a URL anew; return where it is kept, the shards, and what is wrong with pictures,
    by key. None if there are no containers.

    With ``jump``, start points within JPEGs are noted, too. Raises StoreError.
    """
    try:
        found = _find(url, remote, options.split)
        if found is None:
            return None
        place = _place(url, options)
        with _turn(place, url):
            shards, problems = _list(found, remote, options, jump=jump)
            _write(place, shards, found.stamp)
        tell_skipped(url, sum(shard.count for shard in shards), _with_unlisted(shards[0].metadata, found.unlisted))
    except SourceError as exc:
        raise StoreError(str(exc)) from exc
    return place, shards, problems


@contextmanager
def _turn(place: str, url: str) -> Iterator[None]:
    """Wait until no other process reads the containers at a URL for their index; the turn of one that dies ends."""
    words = "%s: another process reads it for the index that all use: waiting until it is there"
    with ExitStack() as held:
        with writing(place):
            Path(place).parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(turn(place, lambda: _LOG.warning(words, url)))
        yield


def _place(url: str, options: Unpacked) -> str:
    (place,) = index_places(url.rstrip("/"), "", json.dumps(options.given(), sort_keys=True))
    return place


def _kept(place: str, stamp: int) -> SetObject | None:
    """The index that is kept; None if there is none, or if it is damaged or about other objects."""
    if not os.path.lexists(place):
        return None
    try:
        kept = read_set(open_file(place))
        said = json.loads(kept.metadata)[_OWN]
        return kept if (said["rules"], said["stamp"]) == (_RULES, stamp) else None
    except (StoreError, ValueError, KeyError, TypeError, RecursionError) as exc:
        _LOG.debug("%s: cannot be used: %s", place, exc)
        return None


def _with_unlisted(raw: bytes, unlisted: Sequence[Problem]) -> bytes:
    """Return the metadata with the shards that are there by now, and not in the list."""
    metadata = json.loads(raw)
    metadata["skipped"] += [{"key": each.key, "problem": each.problem} for each in unlisted]
    return json.dumps(metadata).encode("ascii")


def _write(place: str, shards: Sequence[Shard], stamp: int) -> None:
    """Keep the index. Raises StoreError if the cache directory cannot be written to."""
    metadata = json.dumps({**json.loads(shards[0].metadata), _OWN: {"rules": _RULES, "stamp": stamp}}).encode("ascii")
    members = [SetMember(shard.path, shard.count, shard.data.size, 0) for shard in shards]
    output = PartialFile(place)
    try:
        write_set(output, shards, members, form=IN_PLACE, generation=1, metadata=metadata)
        publish_file(output, replace=True)
    finally:
        output.discard()
