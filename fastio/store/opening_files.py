"""Opens what is not packed, but whose samples lie in files: by the index that is kept, or by what the path shows."""

from __future__ import annotations

from fastio.errors import SourceError, StoreError, StoreIncomplete
from fastio.store.foreign.folder import FolderContent, open_kept, open_listed, tell_skipped
from fastio.store.index.sealed import Shard
from fastio.store.index.store import SealedStore
from fastio.store.kinds.recognise import not_packed, recognise_unpacked
from fastio.store.kinds.registry import later
from fastio.store.kinds.unpacked import AS_IT_IS, Unpacked
from fastio.store.protocol import IN_PLACE
from fastio.store.shards import Way

__all__ = ["list_again", "open_as_kept", "open_files"]

_list_samples = later("fastio.converters.sources.in_place:list_samples")  # which knows the kinds of sources


def open_as_kept(path: str, options: Unpacked, way: Way) -> SealedStore | None:
    """Open the samples of a path by their index; None if none is kept that is still right."""
    shard = open_kept(path, options, way.read, jump=way.jump)
    return None if shard is None else _store(shard, options, way)


def open_files(path: str, options: Unpacked, way: Way, error: StoreError) -> SealedStore:
    """
    Open the samples of a path that is no store, as ``error`` says.

    Raises StoreError if they do not lie in files, if these are damaged, or if the path could be meant in two ways: it
    says what the path is, and what to type. It is StoreIncomplete if ``error`` is, of a file that may be a store
    without its end, and never StoreNotFound: something is there.
    """
    kind = StoreIncomplete if isinstance(error, StoreIncomplete) else StoreError
    try:
        content = _content(path, options, check=False)
    except SourceError as exc:
        raise kind(str(exc)) from exc
    if isinstance(content, str):
        raise kind(not_packed(path, options, why=content)) from error
    return _store(open_listed(path, options, content, way.read, jump=way.jump), options, way)


def list_again(path: str, options: Unpacked = AS_IT_IS) -> Shard:
    """
    Return the samples of a path that is no store, listed anew, but for those that differ from the checksums of their
    container. Raises StoreError.
    """
    try:
        content = _content(path, options, check=True)
    except SourceError as exc:
        raise StoreError(str(exc)) from exc
    if isinstance(content, str):
        raise StoreError(not_packed(path, options, why=content))
    return open_listed(path, options, content)


def _content(path: str, options: Unpacked, *, check: bool) -> FolderContent | str:
    """What a source says of its samples; if they are not read in place, why. Raises SourceError."""
    found = recognise_unpacked(path, options)
    return "" if found.is_text or found.kind.takes_ids else _list_samples(found, options, path, check=check)


def _store(shard: Shard, options: Unpacked, way: Way) -> SealedStore:
    tell_skipped(shard.path, shard.count, shard.metadata)
    return SealedStore(shard.path, format_name=IN_PLACE, shards=[shard], opener=way.opener, unpacked=options)
