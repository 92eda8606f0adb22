"""What is to be copied: the files behind a path or URL, and how each copy is checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.errors import StoreError, StoreIncomplete, StoreNotFound
from fastio.store.address import Address
from fastio.store.files import ByteSource, open_file
from fastio.store.files.local import is_local
from fastio.store.files.remote.remote_source import RemoteSource
from fastio.store.files.remote_options import Remote
from fastio.store.folders import folder_of
from fastio.store.formats import FORMATS
from fastio.store.formats.format import Format
from fastio.store.index.seal import SEAL_SIZE, Seal, SealAt, always_at, counts_name, find_seal
from fastio.store.index.sealed import bytes_from
from fastio.store.sets.names import set_path
from fastio.store.sets.set_object import SetMember, SetObject
from fastio.types.schema import Field
from fastio.types.spans import firsts_of

__all__ = [
    "CopyContent",
    "SampleSpans",
    "StagePlan",
    "StagedFile",
    "member_files",
    "plan_stage",
]


@dataclass(frozen=True, slots=True)
class SampleSpans:
    """Where the values of one field lie in a file, and their CRC-32."""

    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    checksums: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class CopyContent:
    """What a copy must be: ``seal_at`` is None for a file of other tools, whose ``file_crc`` is 0."""

    name: str  # in the folder
    size: int
    file_crc: int
    seal_at: SealAt | None


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One file to copy: ``name`` in the folder, from ``source``. ``seal_at`` is None for a file of other tools."""

    name: str
    source: ByteSource
    file_crc: int
    format: str
    seal_at: SealAt | None
    spans: Sequence[SampleSpans] | None = None  # by a set object; None: by the file's own index

    @property
    def content(self) -> CopyContent:
        """What its copy must be."""
        return CopyContent(self.name, self.source.size, self.file_crc, self.seal_at)


@dataclass(frozen=True, slots=True)
class StagePlan:
    """
    What a path stands for: a set object, whose members follow from its copy; or sealed files.

    ``result`` is the name in the folder by which the copy is opened, ``content`` the CRC-32 of what is copied.
    """

    path: str
    result: str
    content: int
    set_object: StagedFile | None
    files: Sequence[StagedFile]
    format: Format | None  # of ``files``


def plan_stage(path: str, options: Remote) -> StagePlan:
    """
    Return what is to be copied; only seals are read.

    Raises StoreNotFound, StoreIncomplete, and StoreError for files of other tools, which have no checksums.
    """
    address = Address.parse(path, options)
    set_object = _set_object(address, options)
    if set_object is not None:
        return StagePlan(path, set_object.name, set_object.file_crc, set_object, (), None)
    form, paths = address.files()
    files = [_sealed_file(each, form, options) for each in paths]
    seals = [seal for _, seal in files]
    if any(seal.is_alone for seal in seals):
        raise StoreIncomplete(
            f"{path}: {len(files)} shards, but no set object: packing has not finished: go on with --resume, or "
            "fastio seal"
        )
    expected = seals[0].shards
    if len(files) != expected:
        raise StoreIncomplete(f"{path}: expected {expected} shards, got {len(files)}: name the whole set")
    first = files[0][0].name
    result = first if expected == 1 else set_path(re.sub(r"\d+(?=\D*\Z)", "*", first))
    content = seals[0].file_crc if expected == 1 else seals[0].set_crc
    return StagePlan(path, result, content, None, [file for file, _ in files], form)


def member_files(set_object: SetObject, path: str, options: Remote) -> list[StagedFile]:
    """
    Return the shards of the set whose object lies at ``path``, each under a name of its own.

    Raises StoreError for files of other tools of which the set object has no checksums.
    """
    folder, _ = folder_of(path, options)
    form = FORMATS[set_object.format]
    names = _plain_names(set_object.members)
    firsts = np.concatenate(([0], np.cumsum([member.count for member in set_object.members])))
    elements = {field.name: firsts_of(set_object.arrays[counts_name(field.name)]) for field in set_object.schema.lists}
    files = []
    for i, member in enumerate(set_object.members):
        url = folder.full(member.name)
        spans = _spans(set_object, slice(int(firsts[i]), int(firsts[i + 1])), elements)
        if member.file_crc == 0 and len(spans) < len(set_object.schema.payload):
            raise _without_checksums(url)
        files.append(
            StagedFile(
                name=names[i],
                source=_member_source(url, member, options),
                file_crc=member.file_crc,
                format=form.name,
                seal_at=form.seal_at if member.file_crc else None,
                spans=spans,
            )
        )
    return files


def _set_object(address: Address, options: Remote) -> StagedFile | None:
    url = address.set_object()
    if url is None:
        return None
    try:
        source = _open(url, options)
    except StoreNotFound:
        if url == address.path:
            raise
        return None
    seal = find_seal(url, source.size, partial(bytes_from, source), always_at(-SEAL_SIZE))
    return StagedFile(folder_of(url, options)[1], source, seal.file_crc, "set", always_at(-SEAL_SIZE), ())


def _sealed_file(path: str, form: Format, options: Remote) -> tuple[StagedFile, Seal]:
    source = _open(path, options)
    try:
        seal = find_seal(path, source.size, partial(bytes_from, source), form.seal_at)
    except StoreIncomplete as exc:
        if form.foreign is None:
            raise
        raise _without_checksums(path) from exc
    finally:
        source.release()
    return StagedFile(folder_of(path, options)[1], source, seal.file_crc, form.name, form.seal_at), seal


def _without_checksums(path: str) -> StoreError:
    return StoreError(
        f"{path}: was not packed by fastio, so nothing says whether a copy is right: pack it, or copy it by other means"
    )


def _open(path: str, options: Remote) -> ByteSource:
    """Open a file that is read once: a local one is not mapped, so that no error of its disk is a SIGBUS."""
    return open_file(path, "pread" if is_local(path) else "auto", options)


def _member_source(path: str, member: SetMember, options: Remote) -> ByteSource:
    if not is_local(path):
        return RemoteSource.known(path, options, size=member.size)
    source = _open(path, options)
    source.release()
    if source.size != member.size:
        raise StoreIncomplete(
            f"{path}: expected {member.size} bytes, got {source.size}; its set lists another file: copy or pack again"
        )
    return source


def _plain_names(members: Sequence[SetMember]) -> list[str]:
    """Names without folders: those of the files, after a number where two are the same."""
    names = [member.name.rpartition("/")[2] for member in members]
    taken: set[str] = set()
    for i in range(len(names)):
        while names[i] in taken:
            names[i] = f"{i:06d}-{names[i]}"
        taken.add(names[i])
    return names


def _spans(set_object: SetObject, part: slice, elements: Mapping[str, NDArray[np.int64]]) -> list[SampleSpans]:
    """Return the values of these samples by field; ``elements`` has the firsts of the elements of lists."""
    arrays: Mapping[str, NDArray[Any]] = set_object.arrays

    def own(field: Field) -> slice:
        firsts = elements.get(field.name)
        return part if firsts is None else slice(int(firsts[part.start]), int(firsts[part.stop]))

    return [
        SampleSpans(*(arrays[f"{field.name}_{what}"][own(field)] for what in ("starts", "sizes", "checksums")))
        for field in set_object.schema.payload
        if f"{field.name}_checksums" in arrays
    ]
