"""StoredPicture: a picture of a store as a source of pixels, verified once and decoded as far as needed."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio._native import image_kind
from fastio.codec.pillow import PLUGIN_ERRORS
from fastio.dataset.picture.header import PictureHeader, read_header
from fastio.dataset.picture.pending import Pending
from fastio.dataset.picture.render import Pixels, by_pillow, empty_row, from_array, geometry, turned
from fastio.dataset.picture.threads import free_threads
from fastio.dataset.row_reader import RowReader
from fastio.types.picture_kinds import JPEG
from fastio.types.spans import Spans

__all__ = ["StoredPicture"]

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
