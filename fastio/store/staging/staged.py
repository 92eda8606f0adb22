"""What ``stage=`` of a dataset does: the copy is waited for, or read while it is made."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

from fastio.errors import StoreError
from fastio.store.files import ByteSource, Read
from fastio.store.files.local import is_local
from fastio.store.files.remote.remote_source import RemoteSource
from fastio.store.files.remote_options import RemoteOptions
from fastio.store.folders import folder_of
from fastio.store.format import Format
from fastio.store.members import MemberShards
from fastio.store.seal import SEAL_SIZE, SealAt, always_at, find_seal
from fastio.store.sealed import bytes_from
from fastio.store.staging.background import background_stage
from fastio.store.staging.copy_in_use import CopyInUse
from fastio.store.staging.progress_log import logged_meter
from fastio.store.staging.stage import check_stage, stage
from fastio.store.staging.stage_plan import CopyContent, member_files
from fastio.store.staging.stage_record import mending_command

__all__ = ["StageInUse", "staged_path"]

_LOG = logging.getLogger(__name__)


def staged_path(path: str | Path, options: RemoteOptions, read: Read = "auto") -> str | Path:
    """
    Return the path of the copy in ``options.stage``, made first if it is not there; ``path`` itself without a stage.

    A URL whose copy need not be waited for stays, too: ``open_store`` reads it and what is there of the copy. Files
    that are to be mapped, or read by pread, must be there.

    Every process of a node calls it: the first copies, the others wait as long as that makes progress. Progress is
    logged. Raises what ``stage`` raises; for a URL that stays, only what is wrong with the name of the folder.
    """
    folder = options.stage
    if folder is None:
        return path
    check_stage(folder)
    if not (options.stage_wait or is_local(str(path)) or read in ("map", "pread")):
        return path
    return stage(str(path), folder, options=options, meter=logged_meter(str(path), folder)).path


class StageInUse:
    """The stage of a store behind a URL that is opened: its files get the copies that are there, or will be."""

    def __init__(self, folder: str, options: RemoteOptions) -> None:
        self._folder = folder
        self._options = options
        self._copies: list[CopyInUse] = []
        self._is_trusted = True

    def use_for_set_object(self, source: ByteSource) -> None:
        """Have a set object read from its copy."""
        self._use(source, always_at(-SEAL_SIZE))

    def use_for_shard(self, source: ByteSource, form: Format) -> None:
        """Have a sealed file read from its copy."""
        self._use(source, form.seal_at)

    def use_for_members(self, shards: MemberShards) -> None:
        """Have the shards of a set read from their copies."""
        found = shards.set_object
        result = folder_of(found.path, self._options)[1]
        for source, file in zip(shards.joined.sources, member_files(found, found.path, self._options), strict=True):
            self._copy(source, file.content, result)

    def _use(self, source: ByteSource, seal_at: SealAt) -> None:
        try:
            seal = find_seal(source.path, source.size, partial(bytes_from, source), seal_at)
        except StoreError:  # whoever opens it says what is wrong
            return
        name = folder_of(source.path, self._options)[1]
        self._copy(source, CopyContent(name, source.size, seal.file_crc, seal_at), name)

    def _copy(self, source: ByteSource, content: CopyContent, result: str) -> None:
        if isinstance(source, RemoteSource):
            source.local_copy = copy = CopyInUse(content, Path(self._folder) / content.name, result)
            if not self._is_trusted:
                copy.distrust(0, content.size)
            self._copies.append(copy)

    def distrust(self, error: StoreError) -> None:
        """Read no index of a copy any more: one that was read is damaged. The log names the copies that may be."""
        self._is_trusted = False
        for path in filter(None, (copy.whole() for copy in self._copies)):
            command = mending_command(path) or "fastio stage --check"
            _LOG.warning("%s: read again without the copy %s, which %s mends", error, path, command)

    def begin(self, url: str) -> None:
        """Begin to copy, for as long as one of these files is open; what epochs fetch anyway goes into the copies."""
        stage = background_stage(url, self._folder, self._options)
        for copy in self._copies:
            copy.stage = stage
