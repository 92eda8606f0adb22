"""Gives finished files their names: one file, or the shards of a set; says what holds if that fails."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fastio.errors import StoreError
from fastio.store.atomic import PartialFile, exists, move_to_free, sync_folder, token, writing
from fastio.store.journal import Journal, Record, claim, journal_path, wait_for
from fastio.store.undisturbed import undisturbed

__all__ = ["COMPLETE", "publish_file", "publish_set"]

COMPLETE = "the new store is complete under its name"
_FILE = "the new file is complete under its name"
_SET = "the new set is complete"


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


def publish_set(
    files: Sequence[PartialFile], *, check: Callable[[], None], leftovers: Callable[[], Sequence[str]], replace: bool
) -> None:
    """
    Sync the shards, then let them replace the old set, as ``journal`` describes.

    Packers of one set take turns: the second waits for the first, as long as its renaming takes. Then ``check``
    raises if the names must not be taken; ``leftovers`` are the shards of the old set that the new one does not
    replace. Raises StoreError as ``publish_file``.
    """
    for file in files:
        file.sync()
        file.rest()
    path = journal_path(files[0].path)
    with writing(files[0].path):
        while not _took_turn(path, files, check, leftovers, replace=replace):
            wait_for(path)


def _took_turn(
    path: str,
    files: Sequence[PartialFile],
    check: Callable[[], None],
    leftovers: Callable[[], Sequence[str]],
    *,
    replace: bool,
) -> bool:
    """
    Publish the set. Returns False, with nothing done, while another packer is publishing. Ctrl-C waits for the end.
    """
    with undisturbed():
        journal = claim(path)
        if journal is None:
            return False
        try:
            check()
            for taken in () if replace else filter(os.path.lexists, [file.path for file in files]):
                raise exists(taken)
            record = Record(
                token=token(files[0].partial),
                # The first file is named last: until then, its lock protects the others.
                shards=[Path(file.path).name for file in (*files[1:], files[0])],
                remove=[Path(each).name for each in leftovers()],
                replace=replace,
            )
            journal.commit(record)
            for file in files:
                file.published()
            _carry_out(journal, record, files[0].path)
        finally:
            journal.close()
    return True


def _carry_out(journal: Journal, record: Record, path: str) -> None:
    try:
        journal.carry_out(record)
    except OSError:
        # Try once more: a momentary error must not leave a mixture to programs without fastio.
        with _complete(
            path,
            "not all of its shards could be given their names ({}): fastio opens it correctly, but other "
            "programs see shards of two sets until the next fastio command that opens it or packs to it has "
            "finished this",
            said=_SET,
        ):
            journal.carry_out(record)
    problem = "the folder could not be synced ({}): after a power failure, fastio may have to name shards again"
    with _complete(path, problem, said=_SET):
        journal.clear()


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
def _complete(path: str, problem: str, *, said: str = _FILE) -> Iterator[None]:
    """Turn an OSError into a StoreError that says that the new store exists."""
    try:
        yield
    except OSError as exc:
        where = f", {exc.filename}" if exc.filename else ""
        raise StoreError(f"{path}: {said}, but {problem.format(f'{exc.strerror or exc}{where}')}") from exc
