"""Whether a file still is the shard that its set lists, down to the last byte."""

from __future__ import annotations

import errno
from functools import partial

from fastio._native import crc32
from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete, StoreNotFound
from fastio.store.files import ByteSource, open_file
from fastio.store.files.local import is_local
from fastio.store.files.remote_options import DEFAULT, RemoteOptions
from fastio.store.seal import Seal, SealAt, find_seal, unsealed_regions
from fastio.store.sealed import bytes_from
from fastio.store.set_object import SetMember

__all__ = ["check_whole", "damage_of", "file_crc", "open_damaged", "seal_of"]

_CHUNK_BYTES = 16 << 20


def damage_of(error: StoreError) -> str | None:
    """
    Return what is wrong with a file that raised this error, or None if the error says nothing about its bytes: a
    refused or failed request.
    """
    if isinstance(error, StoreNotFound):
        return "missing"
    is_unreadable = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EIO
    if isinstance(error, StoreCorrupt | StoreIncomplete) or is_unreadable:
        return str(error)
    return None


def open_damaged(path: str, remote: RemoteOptions = DEFAULT) -> ByteSource:
    """Open a file that a failing disk may not read to its end: by pread, where a mapping would end the process."""
    return open_file(path, "pread" if is_local(path) else "auto", remote)


def check_whole(file: ByteSource, member: SetMember, seal_at: SealAt) -> None:
    """
    Compare all bytes of a file with what a set lists. Raises StoreCorrupt or StoreIncomplete if they differ, and
    StoreError if they cannot be read.
    """
    try:
        file.check()
        if file.size != member.size:
            raise StoreCorrupt(f"{file.path}: expected {member.size} bytes, got {file.size}")
        seal = seal_of(file, seal_at)
        if (seal.count, seal.file_crc, seal.plan) != (member.count, member.file_crc, member.plan):
            raise StoreCorrupt(
                f"{file.path}: is another shard: the set lists one of {member.count} samples and CRC-32 "
                f"{member.file_crc:08x}, its seal has {seal.count} and {seal.file_crc:08x}"
            )
        crc = file_crc(file, seal)
        if crc != seal.file_crc:
            raise StoreCorrupt(f"{file.path}: expected CRC-32 {seal.file_crc:08x}, got {crc:08x}")
    finally:
        file.release()


def seal_of(file: ByteSource, seal_at: SealAt) -> Seal:
    """Read and check the seal. Raises StoreIncomplete and StoreCorrupt."""
    return find_seal(file.path, file.size, partial(bytes_from, file), seal_at)


def file_crc(file: ByteSource, seal: Seal) -> int:
    """Return what the seal's ``file_crc`` ought to be."""
    crc = 0
    regions = unsealed_regions(file_size=seal.file_size, seal_start=seal.seal_start, head_size=seal.head_size)
    for start, stop in regions:
        for at in range(start, stop, _CHUNK_BYTES):
            crc = crc32(file.read(at, min(at + _CHUNK_BYTES, stop)), crc)
    return crc
