"""The members of a tar shard: their names, their headers, and the index behind them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fastio._native import crc32, name_hashes
from fastio.errors import SchemaError
from fastio.store.formats.format import Ending
from fastio.store.index.seal import SEAL_SIZE, Place
from fastio.store.write.atomic import PartialFile
from fastio.store.write.keys import UniqueNames, key_pieces
from fastio.store.write.spool import Rows, array_bytes, write_array
from fastio.types.npy import npy_header
from fastio.types.picture_kinds import is_picture_extension
from fastio.types.schema import are_plain_paths, is_plain_path

__all__ = [
    "ABOUT",
    "ABOUT_TEXT",
    "BLOCK",
    "INDEX_FOLDER",
    "MAX_NAME",
    "MAX_SIZE",
    "MemberFile",
    "MemberNames",
    "member_header",
]


# Names the members of a tar shard so that every tool groups them into the right samples.

INDEX_FOLDER = "__fastio__/"  # the folder of members that are not samples

_EXTENSION = re.compile(r"[a-z0-9]+\Z")
_ODD = re.compile(r"[%.\x00-\x1f\x7f]")
_ODD_IN_KEYS = re.compile(r"[%\x01-\x1f\x7f]|(?:\A|\0)__")  # joined by NUL
_ODD_FOLDER = re.compile(r"[\x00-\x1f\x7f]")
_DIGITS = "0123456789"


def _no_kind(_row: int, _column: int) -> str:
    return ""


class MemberNames:
    """
    Makes the stems of samples, each different from all before, and the names of their members.

    ``suffixes`` are those of a sample's members. That of the main picture is "": it keeps the extension of its key; if
    that is none of a picture, it gets that of its content, if known. Without either, it is ``image``. Suffixes of
    further pictures end with a dot, and their content tells the rest: "mask." becomes "mask.png". ``taken`` are
    extensions that the main picture may not have. Of many stems, those of the last million and more are compared at
    once, and ``check`` compares all.
    """

    def __init__(self, suffixes: Sequence[str], taken: Iterable[str], *, image: str, beside: str | None = None) -> None:
        self._suffixes = suffixes
        self._further = [column for column, suffix in enumerate(suffixes) if suffix.endswith(".")]
        self._first = suffixes.index("") if "" in suffixes else -1
        self._taken = frozenset(taken)
        self._image = image
        self._stems = UniqueNames(beside=beside)
        self._numbered = _NumberedKeys()

    def of(self, keys: Sequence[str], kind: Callable[[int, int], str] = _no_kind) -> list[str]:
        """
        Return the names of the members of these samples, sample by sample.

        ``kind(row, column)`` is the extension that fits the content of a picture, "" if that is unknown.
        """
        names = self._of_plain_files(keys)
        if names:
            return names
        for row, key in enumerate(keys):
            stem, extension = self._numbered.split(key) or self._split(key)
            if self._first >= 0 and not is_picture_extension(extension):
                own = kind(row, self._first)
                if own and own not in self._taken:
                    stem, extension = _stem(*_apart(key)), own
            stem = self._unlike_before(stem, key)
            sample = [f"{stem}.{suffix or extension}" for suffix in self._suffixes]
            for column in self._further:
                sample[column] = (sample[column] + kind(row, column)).removesuffix(".")
            names += sample
        return names

    def check(self, path: str, keys: Rows) -> None:
        """Raise SchemaError for two samples of the same stem; ``keys`` are those of all samples, joined by NUL."""
        found = self._stems.repeated()
        if found is None:
            return
        same: list[str] = []
        for piece in key_pieces(keys):
            some = piece.decode("utf-8", "surrogateescape").split("\0")
            for stems in ([self._split(key)[0] for key in some], [_stem(*_apart(key)) for key in some]):
                hashes = name_hashes("\0".join(stems).encode("utf-8", "surrogateescape"))
                same += [some[row] for row in np.flatnonzero((hashes == found).all(axis=1)).tolist()]
        words = " and ".join(map(repr, dict.fromkeys(same)))
        raise SchemaError(
            f"{path}: {words} would have one name in a tar file, and lie too far apart for fastio to give the second "
            "another one: rename it, or pack shards, named like name-%06d.tar"
        )

    def release(self) -> None:
        """Let the temporary file of stems go."""
        self._stems.close()

    def _of_plain_files(self, keys: Sequence[str]) -> list[str]:
        """
        Return the same in a fifth of the time, if all keys are paths of files whose only dot precedes an extension.

        Otherwise, also if a stem is taken, the list is empty, and nothing has changed.
        """
        joined = "\0".join(keys)
        is_odd = _ODD_IN_KEYS.search(joined) or joined.count(".") != len(keys) or not are_plain_paths(keys)
        if is_odd or self._further or not keys:
            return []
        parts = [key.rpartition(".") for key in keys]
        known = {extension: extension.lower() for _, _, extension in parts}
        if not all(self._is_usual(extension) for extension in known.values()):
            return []
        stems = [stem for stem, _, _ in parts]
        if not all(stems) or "/\0" in "\0".join([*stems, ""]):
            return []
        if self._stems.insert("\0".join(stems).encode("utf-8", "surrogateescape")) is not None:
            return []
        ends = [[f".{suffix or extension}" for suffix in self._suffixes] for extension in known.values()]
        of = dict(zip(known, ends, strict=True))
        return [stem + end for stem, _, extension in parts for end in of[extension]]

    def _is_usual(self, extension: str) -> bool:
        """Whether the main picture may have this extension; without pictures, whether it is one."""
        is_extension = _EXTENSION.match(extension) is not None and extension not in self._taken
        return is_extension and (self._first < 0 or is_picture_extension(extension))

    def _split(self, key: str) -> tuple[str, str]:
        """Return a key's member stem and the extension of its image."""
        folder, name = _apart(key)
        plain, dot, extension = name.rpartition(".")
        extension = extension.lower()
        if not (dot and plain) or not _EXTENSION.match(extension) or extension in self._taken:
            plain, extension = name, self._image
        stem = _stem(folder, plain)
        self._numbered.remember(key, name, stem, extension)
        return stem, extension

    def _unlike_before(self, stem: str, key: str) -> str:
        """Return the stem; if an earlier sample has it, the whole key's, and then one with a number."""
        number = 0
        while self._stems.insert(stem.encode("utf-8", "surrogateescape")) is not None:
            folder, name = _apart(key)
            number += 1
            stem = _stem(folder, name) + (f"%~{number}" if number > 1 else "")
        return stem


class _NumberedKeys:
    """Splits keys that differ from the last one only in the number at their end: lines, rows, chunks of a text."""

    def __init__(self) -> None:
        self._head: str | None = None
        self._stem = self._extension = ""

    def remember(self, key: str, name: str, stem: str, extension: str) -> None:
        """
        Keep how a key was split, if its stem ends with its number and would with any other number.

        That is not so if the number is, or may become, part of an extension. ``name`` is the part of the key that was
        searched for an extension: the whole key if its folders cannot be those of a member.
        """
        head = key.rstrip(_DIGITS)
        plain, dot, end = name.rstrip(_DIGITS).rpartition(".")
        digits = len(key) - len(head)
        is_alike = digits > 0 and (not (dot and plain) or not _EXTENSION.match(end.lower() + "0"))
        self._head = head if is_alike else None
        self._stem, self._extension = stem[: len(stem) - digits], extension

    def split(self, key: str) -> tuple[str, str] | None:
        """Return stem and extension; None for another kind of key."""
        head = key.rstrip(_DIGITS)
        if head != self._head or len(head) == len(key):
            return None
        return self._stem + key[len(head) :], self._extension


def _apart(key: str) -> tuple[str, str]:
    """Return a key's folder with its slash, and its name; the whole key if it would be another path when extracted."""
    folder, slash, name = key.rpartition("/")
    if not is_plain_path(key) or _ODD_FOLDER.search(folder):
        return "", key
    return folder + slash, name


def _stem(folder: str, name: str) -> str:
    stem = folder + _escape(name)
    return "%5F" + stem[1:] if stem.startswith("__") else stem  # WebDataset reserves __x__


def _escape(name: str) -> str:
    return _ODD.sub(lambda m: f"%{ord(m[0]):02X}", name).replace("/", "%2F")


BLOCK = 512
MAX_NAME = 100
MAX_SIZE = 8 << 30  # the largest number in eleven octal digits
ABOUT = INDEX_FOLDER + "about"
ABOUT_TEXT = b"Packed by fastio. The index is at the end; a file without the member __fastio__/seal is not whole.\n"
_ZEROS = bytes(BLOCK)

# name 100 | mode 8 | uid 8 | gid 8 | size 12 | mtime 12 | checksum 8 | type 1 | link 100 | magic 8 | ... up to 512
_BEFORE_SIZE = b"0000644\0" + b"0000000\0" * 2
_AFTER_SIZE = b"\0" + b"00000000000\0"
_AFTER_SUM = b"\0 0" + bytes(100) + b"ustar\00000" + bytes(64) + b"0000000\0" * 2 + bytes(167)
# For its own sum, the checksum counts as 8 blanks.
_CONSTANT_SUM = sum(_BEFORE_SIZE + _AFTER_SIZE + _AFTER_SUM) + 7 * ord(" ")


class MemberFile:
    """Writes members to ``file``, which belongs to the caller."""

    def __init__(self, file: PartialFile) -> None:
        self._file = file

    def write(self, name: str, data: bytes | NDArray[np.uint8], *, prefix: bytes = b"") -> int:
        """Write one member of ``prefix`` and ``data``, and return where its bytes begin."""
        total = len(prefix) + len(data)
        head = member_header(name, total)
        start = self._file.size + len(head)
        padding = _ZEROS[: -total % BLOCK]
        parts = (head, prefix, data, padding) if len(data) else (head, prefix, padding)
        self._file.write_parts(parts, len(head) + total + len(padding))
        return start

    def finish(
        self,
        arrays: Mapping[str, Rows],
        header: Callable[[Mapping[str, Place]], bytes],
        *,
        head: bytes = b"",
    ) -> Ending:
        """
        Write the index members and the end of the archive.

        ``head`` is what the file begins with, if it was skipped because it was not known then.
        """
        places: dict[str, Place] = {}
        for name, array in arrays.items():
            prefix = npy_header(array.dtype.str, array.shape)
            size = len(prefix) + array_bytes(array)
            self._file.write(member_header(f"{INDEX_FOLDER}{name}.npy", size) + prefix)
            places[name] = write_array(self._file, array)
            self._file.write(_ZEROS[: -size % BLOCK])
        encoded = header(places)
        header_start = self.write(INDEX_FOLDER + "header.json", encoded)
        self._file.write(member_header(INDEX_FOLDER + "seal", SEAL_SIZE))
        seal_start = self._file.size
        self._file.skip(SEAL_SIZE)
        self._file.write(bytes(BLOCK - SEAL_SIZE + 2 * BLOCK))
        self._file.flush()
        if head:
            self._file.overwrite(0, head)
        return Ending(
            file_size=self._file.size,
            seal_start=seal_start,
            head_size=len(head),
            header_start=header_start,
            header_size=len(encoded),
            header_crc=crc32(encoded),
            head_crc=crc32(head),
            file_crc=crc32(head, self._file.crc),
        )


def member_header(name: str, size: int) -> bytes:
    """Return a member's ustar header, preceded by a PAX header if ustar is not enough."""
    if len(name) > MAX_NAME or not name.isascii() or size >= MAX_SIZE:
        import tarfile

        info = tarfile.TarInfo(name)
        info.size = size
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    raw, digits = name.encode("ascii"), b"%011o" % size
    total = _CONSTANT_SUM + sum(raw) + sum(digits)
    return b"".join(
        (raw.ljust(MAX_NAME, b"\0"), _BEFORE_SIZE, digits, _AFTER_SIZE, b"%06o" % total, _AFTER_SUM),
    )
