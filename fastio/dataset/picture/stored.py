"""StoredPicture: a picture of a store as a source of pixels, verified once and decoded as far as needed."""

from __future__ import annotations

import io
import multiprocessing
import os
import struct
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio import _native
from fastio._native import ThreadPool, image_kind
from fastio.codec.pillow import PLUGIN_ERRORS, teach_pillow
from fastio.dataset.picture.steps import Pending, Pixels, by_pillow, empty_row, from_array, frozen, geometry, turned
from fastio.dataset.row_reader import RowReader
from fastio.machine import available_cpus
from fastio.types.picture_kinds import JPEG, JPEG_SIGNATURE, PNG_SIGNATURE
from fastio.types.spans import Spans

__all__ = [
    "PixelSource",
    "StagedPixels",
    "StoredPicture",
    "free_threads",
    "is_plain_png",
]


_MODES: Final = {1: "L", 3: "RGB", 4: "RGBA"}


class StoredPicture:
    """
    The source of the pixels of sample ``index``; ``place`` is spans and a position in them.

    ``shape`` is height, width and channels in the dataset's mode. With ``verify``, the checksum is compared when
    pixels are first made. The first result is decoded only as far as it needs; if there are more (several crops of
    one picture), they come from the whole picture, decoded once.
    """

    __slots__ = ("_header", "_index", "_is_asked_again", "_place", "_reader", "_shape", "_verify", "_whole", "mode")

    def __init__(self, reader: RowReader, index: int, place: tuple[Spans, int], shape: list[int], verify: bool) -> None:
        self._reader = reader
        self._index = index
        self._place = place
        self._shape = shape
        self._verify = verify
        self._header: PictureHeader | None = None
        self._is_asked_again = False
        self._whole: Pixels | None = None
        self.mode = _MODES.get(shape[2], "")  # a bad header names no channels, and no pixels are made from it

    @property
    def origin(self) -> StoredPicture:
        return self

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self._shape[1], self._shape[0]

    @property
    def pixel_count(self) -> int:
        """Width times height."""
        return self._shape[0] * self._shape[1]

    @property
    def can_read(self) -> bool:
        """Whether decoders can read it in modes other than ``mode``; not possible for raw pixels."""
        return self._reader.field.traits.is_picture

    @property
    def key(self) -> str:
        """The sample's path in the source of the store."""
        return self._reader.store.keys([self._index])[0]

    @property
    def header(self) -> PictureHeader:
        """What the file says besides its pixels. Raises SampleError if Pillow cannot read it."""
        if self._header is None:
            self._header = self._read_header()
        return self._header

    @property
    def value(self) -> NDArray[np.uint8]:
        """The encoded bytes."""
        spans, position = self._place
        return spans.view(position)

    @property
    def _spans(self) -> Spans:
        spans, position = self._place
        return spans.part(position, position + 1)

    @property
    def may_have_transparency(self) -> bool:
        """Whether ``info`` names a transparent colour; False for JPEGs, which have none and are not examined."""
        return self.can_read and image_kind(self.value) != JPEG and "transparency" in self.header.info

    def render(self, pending: Pending) -> Pixels:
        """Return the pixels ``(H, W, C)`` in new memory. Raises SampleError for a bad sample."""
        if self._whole is None and not self._is_asked_again:
            pixels = self._decode(pending)
            self._is_asked_again = True
            return pixels
        whole = self._whole
        if whole is None:
            whole = self._whole = self._decode(Pending.nothing(*self.size, self.mode))
        return from_array(whole, self.mode, pending)

    def _decode(self, pending: Pending) -> Pixels:
        spans, rows, status = self._spans, empty_row(pending), np.empty(1, np.int32)
        plan = geometry(pending, None if self.can_read else (self._shape[0], self._shape[1]))
        with free_threads(spans, self.pixel_count) as pool:
            self._reader.decode(spans, rows, status, pool=pool, verify=self._verify, geometry=plan).wait()
        if status[0] != _native.OK:
            self._whole = self._settled(pending, spans, rows, status)
        self._verify = False
        return turned(rows[0], pending)

    def _settled(
        self, pending: Pending, spans: Spans, rows: Pixels, status: NDArray[np.int32]
    ) -> NDArray[np.uint8] | None:
        """
        Let Pillow fill the row if the native decoders leave the picture to it, and return the whole picture's pixels.

        Raises SampleError if the sample is bad.
        """
        plain = _Plain(self, pending)
        for error in self._reader.settle(np.array([self._index]), spans, rows, status, to_row=plain).values():
            raise error
        return plain.pixels

    def _read_header(self) -> PictureHeader:
        if not self.can_read:
            return PictureHeader(None, {})
        try:
            return read_header(self.value, self.mode)
        except PLUGIN_ERRORS as exc:
            words = " ".join(str(exc).split()) or type(exc).__name__
            raise self._reader.error(
                np.array([self._index]), self._spans, 0, f"Pillow cannot read its header: {words}"
            ) from exc


class _Plain:
    """How Pillow finishes a picture that the native decoders leave to it; keeps the decoded pixels."""

    def __init__(self, source: StoredPicture, pending: Pending) -> None:
        self._source = source
        self._pending = pending
        self.pixels: NDArray[np.uint8] | None = None

    def channels(self, position: int) -> int:
        """As PixelsToRow.channels: the channels of the dataset's mode."""
        return self._source._shape[2]

    def row(self, position: int, pixels: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
        """As PixelsToRow.row: everything except ``turned``, which follows later."""
        if list(pixels.shape) != self._source._shape:
            return None
        self.pixels = pixels
        return by_pillow(pixels, self._source.mode, self._pending)


# Staged: a finished stage of a picture, from which a new plan starts.


class PixelSource(Protocol):
    """What a plan of pending steps starts from."""

    @property
    def origin(self) -> StoredPicture:
        """The picture of the store that it was made from."""
        ...

    @property
    def can_read(self) -> bool:
        """Whether it can be read in modes other than its own."""
        ...

    def render(self, pending: Pending) -> Pixels:
        """Return the pixels ``(H, W, C)`` after these steps. Raises SampleError for a bad sample."""
        ...


class StagedPixels:
    """
    The result of ``pending`` on ``source``, computed on first use and then kept, read-only.

    ``pixels`` are its pixels if they are already known; ``nothing`` is the plan that leaves them unchanged.
    """

    __slots__ = ("_pending", "_pixels", "_source", "can_read", "nothing", "origin")

    def __init__(self, source: PixelSource, pending: Pending, pixels: Pixels | None = None) -> None:
        self.origin = source.origin
        self.can_read = False
        self._source: PixelSource | None = source if pixels is None else None
        self._pending = pending
        self._pixels = None if pixels is None else frozen(pixels)
        self.nothing = Pending.nothing(*pending.size, pending.mode)

    @property
    def pixels(self) -> Pixels:
        """All pixels."""
        source, pixels = self._source, self._pixels
        if pixels is None:
            assert source is not None
            pixels = self._pixels = frozen(source.render(self._pending))
            self._source = None
        return pixels

    def render(self, pending: Pending) -> Pixels:
        """As PixelSource.render; returns the kept array itself if there is nothing to do."""
        return self.pixels if pending == self.nothing else from_array(self.pixels, self._pending.mode, pending)


# Reads what a picture file says besides its pixels: Pillow's ``info`` and ``format``, without decoding if possible.

Info = dict[str | tuple[int, int], Any]

_FIRST_CHUNK = 33  # the position of the first chunk after a PNG's header
_FRAME = 12  # bytes of a chunk's length, name and CRC
_MARKER, _JFIF, _SCAN = 0xFF, 0xE0, 0xDA  # JPEG markers
_FRAMES, _TABLES = (0xC0, 0xC1, 0xC2), (0xC4, 0xDB, 0xDD)
_MOST_TABLES = 4096  # how many bytes are examined
_INTERLACE = 28  # the byte of the header that says whether the picture is interlaced


class PictureHeader(NamedTuple):
    """The attributes of an opened picture; ``info`` as ``convert`` leaves it."""

    format: str | None
    info: Info


def read_header(data: NDArray[np.uint8], mode: str) -> PictureHeader:
    """
    Return the header of an encoded picture that is converted to ``mode``.

    Raises what Pillow raises for bytes that it does not recognise as a picture.
    """
    if is_plain_png(data):
        return PictureHeader("PNG", {})
    plain = _plain_jpeg(data)
    if plain is not None:
        known = _of_plain_jpeg(plain)
        return PictureHeader(known.format, dict(known.info))
    teach_pillow(data)
    with Image.open(io.BytesIO(data.data)) as picture:
        chunks = _chunks(data)
        is_complete = picture.format == "JPEG" or (chunks is not None and not _is_text_behind_pixels(chunks))
        if is_complete and "transparency" not in picture.info:
            return PictureHeader(picture.format, picture.info)
        return PictureHeader(picture.format, picture.convert(mode).info)  # decoding and converting add to ``info``


def _plain_jpeg(data: NDArray[np.uint8]) -> bytes | None:
    """
    Return the segments of a JPEG that ``info`` depends on, as a file of their own, or None if there are unusual
    segments.

    The usual ones are JFIF, tables and one frame; what Pillow says depends only on JFIF and the kind of frame.
    """
    head = data[:_MOST_TABLES].tobytes()
    if not head.startswith(JPEG_SIGNATURE):
        return None
    kept, offset = [JPEG_SIGNATURE[:2]], 2
    while offset + 4 <= len(head) and head[offset] == _MARKER:
        name, stop = head[offset + 1], offset + 2 + int.from_bytes(head[offset + 2 : offset + 4])
        if name in _FRAMES or (name == _JFIF and offset == 2):
            kept.append(head[offset:stop])
        elif name == _SCAN:
            return b"".join((*kept, head[offset:stop]))
        elif name not in _TABLES:
            return None
        offset = stop
    return None


@lru_cache(maxsize=256)
def _of_plain_jpeg(segments: bytes) -> PictureHeader:
    """Return what Pillow says; photos of one camera or program share it."""
    with Image.open(io.BytesIO(segments)) as picture:
        return PictureHeader(picture.format, picture.info)


def is_plain_png(data: NDArray[np.uint8]) -> bool:
    """
    Return whether this is a PNG of three chunks, not interlaced: Pillow then has nothing to say about it.

    Most small PNGs are; asking Pillow would take longer than decoding them.
    """
    head = data[: _FIRST_CHUNK + 8].tobytes()
    if not head.startswith(PNG_SIGNATURE) or head[_FIRST_CHUNK + 4 :] != b"IDAT" or head[_INTERLACE]:
        return False
    return _FIRST_CHUNK + int.from_bytes(head[_FIRST_CHUNK : _FIRST_CHUNK + 4]) + 2 * _FRAME == len(data)


def _chunks(data: NDArray[np.uint8]) -> list[bytes] | None:
    """Return the names of a PNG's chunks; None for another format."""
    if data[: len(PNG_SIGNATURE)].tobytes() != PNG_SIGNATURE:
        return None
    view, offset, chunks = data.data, len(PNG_SIGNATURE), []
    while offset + 8 <= len(view):
        size, name = struct.unpack_from(">I4s", view, offset)
        chunks.append(name)
        offset += size + _FRAME
    return chunks


def _is_text_behind_pixels(chunks: list[bytes]) -> bool:
    """Return whether there are chunks that Pillow reads only when it decodes: text or EXIF after the pixels."""
    last = len(chunks) - 1 - chunks[::-1].index(b"IDAT") if b"IDAT" in chunks else 0
    return any(name != b"IEND" for name in chunks[last + 1 :])


# Threads that decode one large photo together, when Python code asks a picture for its pixels.

_LARGE = 1 << 20  # pixels; the native core decodes smaller pictures in one thread
_MOST = 8

_in_use = threading.Lock()


@contextmanager
def free_threads(spans: Spans, pixel_count: int) -> Generator[ThreadPool | None, None, None]:
    """
    Lend the threads that decode the one picture ``spans`` in bands; None if the calling thread decodes it alone.

    Alone: pictures without places to start within them (``--jump``, ``--restart``); small ones; all while another
    Python thread has the threads; all if this process has one CPU, maybe as one of many ranks on its node; and all in
    a process that another Python process has started for its work, as DataLoader does: these share the CPUs already.
    """
    if not _are_of_use(spans, pixel_count) or not _in_use.acquire(blocking=False):
        yield None
        return
    try:
        yield _threads(os.getpid(), min(available_cpus(), _MOST))
    finally:
        _in_use.release()


def _are_of_use(spans: Spans, pixel_count: int) -> bool:
    if pixel_count < _LARGE or spans.intervals is None or not spans.intervals.sizes.any():
        return False
    return multiprocessing.parent_process() is None and available_cpus() > 1


@cache
def _threads(process: int, count: int) -> ThreadPool:
    """The threads of a process; a copy that was made by fork has none of them, and gets its own."""
    del process
    return ThreadPool(count)
