"""Opens stores behind URLs, and begins to copy them where a stage is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete, StoreNotFound
from fastio.store.address import Address
from fastio.store.files import Read
from fastio.store.files.remote.range_cache import RangeCache
from fastio.store.files.remote_options import Remote
from fastio.store.formats import named
from fastio.store.formats.format import Format
from fastio.store.index.sealed import Shard
from fastio.store.index.store import SealedStore
from fastio.store.kinds.unpacked import AS_IT_IS, Unpacked
from fastio.store.shards import Way, open_set, open_shard, store_of
from fastio.store.staging.staged import StageInUse

__all__ = ["open_url"]

_OPENED_AT_ONCE = 16  # shards, each of which takes some requests
_Opened = TypeVar("_Opened")


def open_url(
    url: str, read: Read, remote: Remote, unpacked: Unpacked = AS_IT_IS, *, is_again: bool = False
) -> SealedStore:
    """
    Open the store at a URL, or containers of other programs where they lie, as ``unpacked`` says.

    Opening it again, as a worker process does, uses a stage, but begins none.
    """
    stage = StageInUse(remote.stage, remote) if remote.stage is not None else None
    way = Way(read, remote, partial(open_url, read=read, remote=remote, unpacked=unpacked, is_again=True), stage)
    try:
        store = _open_by(way, url)
    except (StoreCorrupt, StoreIncomplete):
        raise
    except StoreError as exc:
        if named(url) is not None:
            raise
        from fastio.store.foreign.behind_url import open_containers

        return open_containers(url, unpacked, way, exc)
    if stage is not None and not is_again:
        stage.begin(url)
    return store


def _open_by(way: Way, url: str) -> SealedStore:
    address = Address.parse(url, way.remote)
    set_object = address.set_object()
    if set_object is not None:
        try:
            return _twice(partial(open_set, address, set_object, way), way)
        except StoreNotFound:
            if set_object == url:
                raise
    form, files = address.files()
    return store_of(url, form, _open_shards(files, form, way), way)


def _twice(attempt: Callable[[], _Opened], way: Way) -> _Opened:
    """
    Return what an attempt to open objects returns, the second one if the first finds damage.

    Bytes may have changed on their way, and then lie so in the cache directory, or a copy on this machine is damaged.
    """
    try:
        return attempt()
    except (StoreCorrupt, StoreIncomplete) as exc:
        cache = RangeCache.of(way.remote)
        if cache is not None:
            cache.forget_indexes()
        if way.stage is not None:
            way.stage.distrust(exc)
        return attempt()


def _open_shards(files: Sequence[str], form: Format, way: Way) -> list[Shard]:
    def opened(file: str) -> Shard:
        return _twice(partial(open_shard, file, form, way), way)

    if len(files) == 1:
        return [opened(files[0])]
    with ThreadPoolExecutor(_OPENED_AT_ONCE, thread_name_prefix="fastio") as threads:
        try:
            return list(threads.map(opened, files))
        except KeyboardInterrupt:
            from fastio.store.files.remote.request_threads import end_requests

            end_requests(threads)
            raise
