"""Packs and writes into an object store that runs beside the cluster, in its namespace."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from functools import cache
from typing import Any

from fastio.store import open_store
from fastio.store.files.remote_options import Remote
from fastio.store.folders import folder_of
from tests.ray import pack_jobs, sink_jobs
from tests.servers.object_server import ObjectServer


@cache
def _server() -> ObjectServer:
    """The object store of this driver, from the first test that needs one to the driver's end."""
    server = ObjectServer()
    atexit.register(server.stop)
    return server


def bucket(name: str) -> tuple[str, dict[str, Any]]:
    """The URL of a new bucket, and its storage options."""
    return _server().make_bucket(name), _server().storage_options()


def pack_into_bucket(src: str, *, deaths: str, **options: Any) -> Mapping[str, bytes]:
    """Pack while workers are killed, and return all objects."""
    url, storage_options = bucket("pack")
    pack_jobs.run(src, f"{url}/out-%06d.tar", deaths=deaths, storage_options=storage_options, **options)
    folder, _ = folder_of(f"{url}/any", Remote(storage_options=storage_options))
    files = [folder.open(name) for name in folder.entries()]
    return {file.path.rpartition("/")[2]: file.read(0, file.size).tobytes() for file in files}


def write_into_bucket(deaths: str, **options: Any) -> tuple[list[str], list[str]]:
    """Write rows while workers are killed, twice, and return the keys and the names of all objects."""
    url, storage_options = bucket("rows")
    path, more = f"{url}/out-%06d.tar", {"storage_options": storage_options, "shard_bytes": 1}
    sink_jobs.write(path, 4, 2, **more)
    sink_jobs.write(path, 2000, 4, sink_jobs.dying, (deaths, [700, 1999]), overwrite=True, **more, **options)
    remote = Remote(storage_options=storage_options)
    with open_store(f"{url}/out.fastio-set", remote=remote) as store:
        listed = sorted(path.rpartition("/")[2] for path in store.shard_paths)
        names = list(folder_of(path, remote)[0].entries())
        assert [*listed, "out.fastio-set"] == names, (listed, names)
        return store.keys(range(len(store))), names
