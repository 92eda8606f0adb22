"""The kinds of pictures: one row per kind, with its name, and the extensions of its files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fastio._native import ImageKind, image_kind

__all__ = [
    "JPEG",
    "JPEG_SIGNATURE",
    "PICTURE_EXTENSIONS",
    "PICTURE_KINDS",
    "PNG",
    "PNG_SIGNATURE",
    "UNKNOWN",
    "WEBP",
    "PictureKind",
    "count_beyond_imagefolder",
    "extension_of",
    "is_picture_extension",
    "kind_by_name",
    "kinds_by_name",
]

UNKNOWN: Final = int(ImageKind.UNKNOWN)
JPEG: Final = int(ImageKind.JPEG)
PNG: Final = int(ImageKind.PNG)
WEBP: Final = int(ImageKind.WEBP)

# For code that reads or writes the insides of such a file. Which kind a file is of, ``_native.image_kind`` tells.
JPEG_SIGNATURE: Final = b"\xff\xd8\xff"
PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureKind:
    """
    One kind; ``kind`` is its number in the native core, which recognises it by its first bytes.

    Names with one of ``extensions`` are pictures wherever they lie: in folders, tables, tar shards and zip files.
    """

    kind: ImageKind
    name: str
    extensions: tuple[str, ...] = ()

    @property
    def suffix(self) -> str:
        """The extension of a new file of this kind, with its dot."""
        return f".{(*self.extensions, 'bin')[0]}"


# In the order of their numbers: PICTURE_KINDS[kind] is the row of a kind.
PICTURE_KINDS: Final = (
    PictureKind(kind=ImageKind.UNKNOWN, name="unknown"),
    PictureKind(kind=ImageKind.JPEG, name="JPEG", extensions=("jpg", "jpeg", "jfif")),
    PictureKind(kind=ImageKind.PNG, name="PNG", extensions=("png",)),
    PictureKind(kind=ImageKind.GIF, name="GIF", extensions=("gif",)),
    PictureKind(kind=ImageKind.BMP, name="BMP", extensions=("bmp",)),
    PictureKind(kind=ImageKind.WEBP, name="WebP", extensions=("webp",)),
    PictureKind(kind=ImageKind.TIFF, name="TIFF", extensions=("tif", "tiff")),
    PictureKind(kind=ImageKind.PNM, name="PNM", extensions=("ppm", "pgm", "pbm", "pnm")),
)

# Plain numbers, not members of an enum: folders have millions of files.
_KINDS: Final = {extension: int(row.kind) for row in PICTURE_KINDS for extension in row.extensions}
PICTURE_EXTENSIONS: Final = tuple(_KINDS)
_BEYOND_IMAGEFOLDER: Final = frozenset(("jfif", "gif", "pbm", "pnm"))  # torchvision's ImageFolder leaves these out


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
        extension = name[-4:].lower().rpartition(".")[2]
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
