"""Opens a store, or says what is wrong with a file that is not a whole one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastio.store import SampleStore
    from fastio.store.files.remote_options import RemoteOptions

__all__ = ["may_be_source", "open_whole"]


def open_whole(path: str, remote: RemoteOptions) -> SampleStore:
    """
    Open a store. Of a file without a seal, the error is what ``fastio info`` says: at which byte it is cut off, say.

    Raises SourceError for such a file that its own format calls damaged, and StoreError for others.
    """
    from fastio.errors import StoreIncomplete
    from fastio.store import open_store

    try:
        return open_store(path, remote=remote)
    except StoreIncomplete:
        if Path(path).is_file() and may_be_source(path):
            from fastio.cli.info_source import describe_path

            describe_path(path)
        raise


def may_be_source(path: str) -> bool:
    """Return whether what is no store may be a source: it is not named like a store, or it is of a known kind."""
    from fastio.converters import SOURCES, SourcePath
    from fastio.converters.sources.store import KIND, names_store

    others = [source for source in SOURCES.values() if source is not KIND and not source.needs_fields]
    return not names_store(path) or any(source.signs(SourcePath(path)) for source in others)
