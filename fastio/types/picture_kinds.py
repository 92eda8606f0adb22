"""
The kinds of pictures: those of the native core, and one row for each kind that Pillow alone opens.

A further kind is a row of ``_PILLOW_KINDS``, or a call of ``add_picture_kind`` in a program that knows one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio._native import ImageKind, image_kind

__all__ = [
    "JPEG",
    "JPEG_SIGNATURE",
    "PICTURE_KINDS",
    "PNG",
    "PNG_SIGNATURE",
    "UNKNOWN",
    "WEBP",
    "PictureKind",
    "add_picture_kind",
    "count_beyond_imagefolder",
    "extension_of",
    "is_picture_extension",
    "kind_by_name",
    "kinds_by_name",
    "load_plugin",
    "picture_extensions",
]

UNKNOWN: Final = int(ImageKind.UNKNOWN)
JPEG: Final = int(ImageKind.JPEG)
PNG: Final = int(ImageKind.PNG)
WEBP: Final = int(ImageKind.WEBP)

# For code that reads or writes the insides of such a file. Which kind a file is of, ``_native.image_kind`` tells.
JPEG_SIGNATURE: Final = b"\xff\xd8\xff"
PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"


Encoded = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureKind:
    """
    One kind of picture. Its number is its position in ``PICTURE_KINDS``, which is also what ``image_kind`` returns.

    Names with one of ``extensions`` are pictures wherever they lie: in folders, tables, tar shards and zip files. A
    file is of this kind if it has one of ``signatures``, at most 16 bytes, at their offsets; the native kinds know
    their own. What native code does not decode (``is_decoded``), Pillow does; a plugin that Pillow does not bring
    itself has to be registered by whoever adds the row. ``breaks_off`` says whether a file with a sound header looks
    cut off at its end, which decoding must confirm; without it, packing decodes every such picture. ``plugin`` is the
    module whose import teaches Pillow this kind, or ``module:function`` that does when called, and ``package`` its
    name for pip; "" if Pillow brings it.
    """

    name: str
    extensions: tuple[str, ...] = ()
    signatures: tuple[tuple[int, bytes], ...] = ()
    breaks_off: Callable[[Encoded], bool] | None = None
    is_native: bool = False
    is_decoded: bool = False
    plugin: str = ""
    package: str = ""

    def __str__(self) -> str:
        """
        Return the name with its article.

        >>> str(PictureKind(name="AVIF")), str(PictureKind(name="PNG"))
        ('an AVIF', 'a PNG')
        """
        return f"{'an' if self.name[0] in 'AEIO' else 'a'} {self.name}"

    @property
    def suffix(self) -> str:
        """The extension of a new file of this kind, with its dot."""
        return f".{(*self.extensions, 'bin')[0]}"


def _ends_without(end: bytes) -> Callable[[Encoded], bool]:
    """Return a function that says whether a file lacks this end."""
    return lambda data: data[-len(end) :].tobytes() != end


def _boxes_break_off(data: Encoded) -> bool:
    """Whether the last box of an ISO base media file (4 bytes of size, 4 of type) ends behind the file."""
    start, view = 0, data.data
    while start + 8 <= len(view):
        size = int.from_bytes(view[start : start + 4])
        if size == 1:
            size = int.from_bytes(view[start + 8 : start + 16])
        if size == 0:  # up to the end of the file, wherever that is
            return False
        if size < 8:
            return True
        start += size
    return start != len(view)


# Kinds that Pillow alone opens, if the installed one does.
_PILLOW_KINDS: Final = (
    PictureKind(
        name="AVIF",
        extensions=("avif",),
        signatures=tuple((4, b"ftyp" + brand) for brand in (b"avif", b"avis", b"mif1", b"msf1")),
        breaks_off=_boxes_break_off,
    ),
    PictureKind(
        name="JPEG 2000",
        extensions=("jp2", "j2k", "jpx", "jpf", "j2c", "jpc"),
        signatures=((0, b"\0\0\0\x0cjP  \r\n\x87\n"), (0, b"\xff\x4f\xff\x51")),
        breaks_off=_ends_without(b"\xff\xd9"),
    ),
    PictureKind(
        name="ICO",
        extensions=("ico",),
        signatures=tuple((0, b"\0\0\1\0" + bytes([count, 0])) for count in range(1, 17)),  # sizes in one file
    ),
    PictureKind(
        name="QOI", extensions=("qoi",), signatures=((0, b"qoif"),), breaks_off=_ends_without(bytes(7) + b"\1")
    ),
    PictureKind(name="DDS", extensions=("dds",), signatures=((0, b"DDS \x7c\0\0\0"),)),
    PictureKind(
        name="HEIC",
        extensions=("heic", "heif", "hif"),
        signatures=tuple((4, b"ftyp" + brand) for brand in (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx")),
        breaks_off=_boxes_break_off,
        plugin="pillow_heif:register_heif_opener",
        package="pillow-heif",
    ),
    PictureKind(
        name="JPEG XL",
        extensions=("jxl",),
        signatures=((0, b"\0\0\0\x0cJXL \r\n\x87\n"), (0, b"\xff\x0a")),
        plugin="pillow_jxl",
        package="pillow-jxl-plugin",
    ),
)

# PICTURE_KINDS[kind] is the row of a kind; _KINDS has kinds by extension, as plain numbers rather than members of an
# enum: folders have millions of files.
PICTURE_KINDS: Final = [PictureKind(name="unknown", is_native=True)]
_KINDS: Final[
    dict[str, int]
] = {}  # by extension; plain numbers, not members of an enum: folders have millions of files


def add_picture_kind(row: PictureKind) -> int:
    """
    Let everything in fastio know this kind, until the process ends; returns its number.

    The native kinds, and those added before, come first where a file could be of two.
    """
    kind = len(PICTURE_KINDS) if row.is_native else _native.add_picture_kind(row.signatures)
    PICTURE_KINDS.append(row)
    for extension in row.extensions:
        _KINDS.setdefault(extension, kind)
    return kind


def _add_known() -> None:
    for name, extensions, is_decoded in _native.picture_kinds():
        row = PictureKind(name=name, extensions=tuple(extensions.split()), is_native=True, is_decoded=is_decoded)
        add_picture_kind(row)
    for row in _PILLOW_KINDS:
        add_picture_kind(row)


_add_known()
# torchvision's ImageFolder leaves these out
_BEYOND_IMAGEFOLDER: Final = frozenset(
    ("jfif", "gif", "pbm", "pnm", *(extension for row in _PILLOW_KINDS for extension in row.extensions))
)


@cache
def load_plugin(kind: int) -> str:
    """
    Let Pillow open pictures of this kind, if a package that it does not bring does; returns "".

    Returns what to install if that package is missing, in words that follow the kind.
    """
    row = PICTURE_KINDS[kind]
    if not row.plugin:
        return ""
    module, _, function = row.plugin.partition(":")
    try:
        imported = import_module(module)
    except ImportError:
        return f"which Pillow opens with the package {row.package}: pip install {row.package}"
    if function:
        getattr(imported, function)()
    return ""


def kind_by_name(name: str) -> int:
    """
    Return the kind of picture that a file name promises by its extension; UNKNOWN, which is 0, for no picture.

    >>> PICTURE_KINDS[kind_by_name("dog/0001.JPG")].name, kind_by_name("0001.npy"), kind_by_name("png")
    ('JPEG', 0, 0)
    """
    _, dot, extension = name.rpartition(".")
    return (_KINDS.get(extension) or _KINDS.get(extension.lower(), UNKNOWN)) if dot else UNKNOWN


def kinds_by_name(names: Sequence[str]) -> list[int]:
    """
    Return ``kind_by_name`` of each name, in a tenth of the time if all have the same extension of three letters.

    >>> kinds_by_name(["a.png", "b.png"]) == [PNG, PNG]
    True
    """
    ends = {name[-4:] for name in names}
    if len(ends) == 1:
        end = ends.pop()
        if end.startswith(".") and "." not in end[1:]:
            return [kind_by_name(end)] * len(names)
    return list(map(kind_by_name, names))


def picture_extensions() -> tuple[str, ...]:
    """Return the lower-case extensions of all kinds, without dots."""
    return tuple(_KINDS)


def is_picture_extension(extension: str) -> bool:
    """Whether this is the lower-case extension, without a dot, of any kind of picture."""
    return extension in _KINDS


def count_beyond_imagefolder(names: Iterable[str]) -> dict[str, int]:
    """
    Count, by extension, the pictures that torchvision's ImageFolder silently leaves out.

    >>> count_beyond_imagefolder(["dog/1.jpg", "dog/2.gif", "dog/3.GIF"])
    {'.gif': 2}
    """
    counts: dict[str, int] = {}
    for name in names:
        extension = name[-5:].lower().rpartition(".")[2]
        if extension in _BEYOND_IMAGEFOLDER:
            counts[f".{extension}"] = counts.get(f".{extension}", 0) + 1
    return counts


def extension_of(picture: NDArray[np.uint8]) -> str:
    """
    Return the extension, without a dot, for an encoded picture by its first bytes; "" for an unknown kind.

    >>> extension_of(np.frombuffer(PNG_SIGNATURE + bytes(8), np.uint8))
    'png'
    """
    kind = image_kind(picture)
    return "" if kind == UNKNOWN else PICTURE_KINDS[kind].suffix[1:]
