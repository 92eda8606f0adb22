"""Gives finished files their names, and says what holds if that fails."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from fastio.errors import StoreError
from fastio.store.atomic import PartialFile, exists, move_to_free, sync_folder, writing
from fastio.store.undisturbed import undisturbed

__all__ = ["COMPLETE", "publish_file", "publish_shard"]

COMPLETE = "the new store is complete under its name"
_FILE = "the new file is complete under its name"


def publish_file(file: PartialFile, *, replace: bool) -> None:
    """
    Sync the file, rename it in one step, sync the folder.

    On StoreError before ``file.is_published``, nothing has changed under the name; after it, the new file has the
    name. Ctrl-C is held back between the two.
    """
    file.sync()
    with undisturbed():
        with writing(file.path):
            _name(file, replace=replace)
        with _complete(file.path, "the folder could not be synced ({}): after a power failure it may be gone"):
            sync_folder(Path(file.path).parent)


def publish_shard(file: PartialFile) -> None:
    """
    Sync the file and give it its name, which must be free. The folder is not synced: a set does that once, before its
    set object.

    Raises StoreError; ``file.is_published`` tells whether the file has its name nevertheless.
    """
    file.sync()
    with undisturbed(), writing(file.path):
        try:
            move_to_free(file.partial, file.path)
        except FileExistsError as exc:
            raise exists(file.path) from exc
        except OSError:
            if _has_name(file):
                file.published()
            raise
        file.published()


def _name(file: PartialFile, *, replace: bool) -> None:
    """Rename the file and note that; an error may occur when the new name already exists."""
    try:
        if replace:
            Path(file.partial).rename(file.path)
        else:
            move_to_free(file.partial, file.path)
    except FileExistsError as exc:
        raise exists(file.path) from exc
    except OSError as exc:
        if not _has_name(file):
            raise
        file.published()
        raise StoreError(
            f"{file.path}: {_FILE}, but its hidden name could not be removed ({exc.strerror}): remove {file.partial}"
        ) from exc
    file.published()


def _has_name(file: PartialFile) -> bool:
    """Return whether the file already has its final name."""
    try:
        return os.path.samestat(os.fstat(file.fd), Path(file.path).lstat())
    except OSError:
        return False


@contextlib.contextmanager
def _complete(path: str, problem: str) -> Iterator[None]:
    """Turn an OSError into a StoreError that says that the new store exists."""
    try:
        yield
    except OSError as exc:
        where = f", {exc.filename}" if exc.filename else ""
        raise StoreError(f"{path}: {_FILE}, but {problem.format(f'{exc.strerror or exc}{where}')}") from exc
