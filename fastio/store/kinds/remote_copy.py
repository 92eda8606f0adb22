"""RemoteCopy: a table behind a URL, brought whole into a temporary file, from which it is packed."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastio.errors import SourceError
from fastio.store.files import ByteSource, open_file
from fastio.store.files.remote_options import Remote
from fastio.store.kinds.names import is_pattern, is_table_name, plain_name
from fastio.types.units import size

__all__ = ["RemoteCopy"]

_RANGE_BYTES = 8 << 20
_REQUESTS = 8  # ranges on their way at once
_WITH_PASSWORD = re.compile(r"\A(https?://)[^/@]*@")


class RemoteCopy:
    """
    One version of the table at ``url``, as a file of this machine: ``path``, which has the same name.

    The file is removed when nothing refers to this object any more, and when the process ends.
    """

    def __init__(self, url: str, remote: Remote, suffixes: tuple[str, ...] = ()) -> None:
        """
        Bring the object here: one table or text by its name, or one of these ``suffixes``.

        Raises SourceError for another name, and if the temporary folder has too little space;
        StoreError if the object cannot be read, or is replaced meanwhile.
        """
        name = _table_name(url, suffixes)
        file = open_file(url, options=remote)
        self.url = url
        self.identity: Mapping[str, int | str] = dict(file.identity)
        folder = tempfile.mkdtemp(prefix="fastio-table-")
        self._remove = weakref.finalize(self, _remove, folder, os.getpid())
        self.path = f"{folder}/{name}"
        try:
            _bring(file, self.path)
        except BaseException:
            self._remove()
            raise
        finally:
            file.release()

    @property
    def record(self) -> dict[str, Any]:
        """
        What a store keeps of where its source was: the URL without a password in it, size (bytes) and ETag.

        It is part of what tells one source from another, as for ``--resume``.
        """
        return {"url": _WITH_PASSWORD.sub(r"\1", self.url), "version": dict(self.identity)}

    @contextmanager
    def named(self) -> Iterator[None]:
        """Have errors about the temporary file and its folder name the URL and what is above it instead."""
        try:
            yield
        except SourceError as exc:
            folder, above = str(Path(self.path).parent), self.url.rpartition("/")[0]
            text = str(exc).replace(self.path, self.url).replace(folder, above)
            if text == str(exc):
                raise
            raise SourceError(text) from exc


def _table_name(url: str, suffixes: tuple[str, ...]) -> str:
    """The last part of a URL that names one table or text. Raises SourceError for anything else."""
    name = url.partition("://")[2].rpartition("/")[2]
    is_one = is_table_name(name) or plain_name(name).lower().endswith((".txt", *suffixes))
    if not is_one or is_pattern(name) or "\0" in name:
        raise SourceError(
            f"{url}: is a URL, from which only a single table or text is packed (.csv, .tsv, .json, .jsonl, .parquet, "
            f".arrow, .txt): a packed store is copied by `fastio stage {url} DIR`, other files by the tools of their "
            "server; then pack the copy"
        )
    return name


def _bring(file: ByteSource, path: str) -> None:
    """Write all of an object into a new file."""
    free = shutil.disk_usage(Path(path).parent).free
    if file.size > free:
        raise SourceError(
            f"{file.path}: has {size(file.size)}, and {tempfile.gettempdir()}, which it is brought to, has "
            f"{size(free)} left: free space there, or name another folder in TMPDIR"
        )
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def bring(start: int) -> None:
        data = file.read(start, min(start + _RANGE_BYTES, file.size)).data
        try:
            while data:
                written = os.pwrite(descriptor, data, start)
                data, start = data[written:], start + written
        except OSError as exc:
            raise SourceError(
                f"{file.path}: cannot be brought into {tempfile.gettempdir()}: {exc.strerror or exc}; free space "
                "there, or name another folder in TMPDIR"
            ) from exc

    try:
        with ThreadPoolExecutor(_REQUESTS) as pool:
            for _ in pool.map(bring, range(0, file.size, _RANGE_BYTES)):
                pass
    finally:
        os.close(descriptor)


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # a forked process has no part in it
        shutil.rmtree(folder, ignore_errors=True)
