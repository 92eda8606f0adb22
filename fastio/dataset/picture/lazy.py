"""LazyPicture: a PIL image that knows its size and puts off all work until pixels are asked for."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from numpy.typing import NDArray
from PIL import Image

from fastio.dataset.picture.steps import Pending, Pixels, native_filter, plain_size, reduces_first
from fastio.dataset.picture.stored import PixelSource, StagedPixels, StoredPicture, is_plain_png

__all__ = [
    "LazyPicture",
    "small_picture",
]


class LazyPicture(Image.Image):
    """
    A picture of a store, as a ``PIL.Image.Image`` that is decoded on demand.

    ``crop``, ``resize``, ``transpose``, ``convert``, ``thumbnail`` and ``copy`` only record what to do. The first
    access to pixels (``np.asarray``, ``load``, ``getpixel``, ``save``, any other method) lets the native core do all
    of it in one pass, decoding no more than needed. The pixels equal Pillow's to the bit. What the native core cannot
    do this way (float boxes, ``reducing_gap``, rotations, filters, ...) is done by Pillow on the pixels so far, and
    returns an ordinary picture.

    A bad sample raises SampleError, with key and field, when its pixels are first accessed. ``np.asarray`` returns
    the decoded pixels themselves, read-only as with Pillow; ``np.array`` a copy. ``filename`` is the sample's key.
    Pickling makes an ordinary, decoded picture. A LazyPicture keeps its encoded bytes alive, but no other sample's.
    Several threads may read one, as they may read Pillow's pictures.
    """

    # Exactly one of these holds the pixels: Pillow's memory, or a source and the pending steps on it. Another thread
    # may fill the memory and then change the plan: whoever looks at both looks at the plan first.
    _core: Any
    _plan: tuple[PixelSource, Pending]

    def __init__(self, source: PixelSource, pending: Pending, *, is_opened: bool = False) -> None:
        self.__dict__.update(_NEW)
        self._own_info: dict[str | tuple[int, int], Any] | None = None
        self._core = None
        self._plan = source, pending
        self._is_opened = is_opened
        self._mode = pending.mode
        self._size = pending.size

    @classmethod
    def of(cls, stored: StoredPicture, pixels: Pixels | None = None) -> LazyPicture:
        """Return the whole picture; ``pixels`` ``(H, W, C)`` if it is already decoded (and nobody else owns them)."""
        pending = Pending.nothing(*stored.size, stored.mode)
        source = stored if pixels is None else StagedPixels(stored, pending, pixels)
        return cls(source, pending, is_opened=True)

    # What Pillow reads of a picture --------------------------------------------------------------------------------

    @property
    def _im(self) -> Any:
        """Pillow's memory, filled on first use; whoever has it may write to it."""
        source, pending = self._plan
        if self._core is None:
            pixels = self._decoded(source, pending)
            self._core = Image.frombytes(pending.mode, pending.size, pixels.data).im
            self._plan = source.origin, pending  # for info; the array is no longer needed
        return self._core

    @_im.setter
    def _im(self, core: Any) -> None:
        self._core = core

    if not hasattr(Image.Image, "im"):  # Pillow before 11, where this is an attribute
        im = _im

    @property
    def info(self) -> dict[str | tuple[int, int], Any]:
        """Pillow's ``info``, read from the file's header on first use. Raises SampleError if the header is bad."""
        if self._own_info is None:
            header = self._origin.header
            self._own_info = dict(header.info)
        return self._own_info

    @info.setter
    def info(self, info: dict[str | tuple[int, int], Any]) -> None:
        self._own_info = info

    @cached_property
    def format(self) -> str | None:  # type: ignore[override] # Pillow's is an attribute
        """The file's format ("JPEG", "PNG", ...); None, as in Pillow, for pictures derived from others."""
        return self._origin.header.format if self._is_opened else None

    @cached_property
    def filename(self) -> str:
        """The sample's key: its path in the source of the store."""
        return self._origin.key

    @property
    def _origin(self) -> StoredPicture:
        return self._plan[0].origin

    @property
    def __array_interface__(self) -> dict[str, Any]:
        plan = self._plan
        if self._core is not None:
            return super().__array_interface__
        pixels = self._decoded(*plan)
        shape = pixels.shape if pixels.shape[2] > 1 else pixels.shape[:2]
        return {"version": 3, "shape": shape, "typestr": "|u1", "data": pixels}

    def tobytes(self, encoder_name: str = "raw", *args: Any) -> bytes:
        plan = self._plan
        if self._core is None and encoder_name == "raw" and not args:
            return self._decoded(*plan).tobytes()
        return super().tobytes(encoder_name, *args)

    # What waits ----------------------------------------------------------------------------------------------------

    def copy(self) -> Image.Image:
        plan = self._plan
        return super().copy() if self._core is not None else self._derived(*plan)

    def crop(self, box: tuple[float, float, float, float] | None = None) -> Image.Image:
        """As in Pillow; put off if the box lies inside."""
        source, pending = self._plan
        if self._core is None:
            if box is None:
                return self.copy()
            left, top, right, bottom = map(round, box)
            width, height = self._size
            if 0 <= left < right <= width and 0 <= top < bottom <= height and _is_no_bomb(right - left, bottom - top):
                return self._derived(source, pending.cropped((left, top, right - left, bottom - top)))
        return super().crop(box)

    def resize(
        self,
        size: tuple[int, int] | list[int] | NDArray[Any],
        resample: int | None = None,
        box: tuple[float, float, float, float] | None = None,
        reducing_gap: float | None = None,
    ) -> Image.Image:
        """
        As in Pillow; put off, except for Pillow 13's new filters, a ``box``, and the averaged blocks of
        ``reducing_gap``.
        """
        target, plan = plain_size(size), self._plan
        if self._core is None and target is not None and (box is None or tuple(box) == (0, 0, *self._size)):
            kernel = native_filter(resample)
            if kernel is not None and target == self._size:
                return self.copy()
            gap = None if resample == Image.Resampling.NEAREST else reducing_gap
            # With a transparent colour, Pillow compares bytes that only its own resize leaves in its memory.
            if kernel is not None and not reduces_first(self._size, target, gap) and not self._has_transparency():
                return self._resized(*plan, target, kernel)
        return super().resize(size, resample, box, reducing_gap)

    def transpose(self, method: Image.Transpose) -> Image.Image:
        source, pending = self._plan
        turned = pending.turned(method) if self._core is None else None
        return super().transpose(method) if turned is None else self._derived(source, turned)

    def convert(self, mode: str | None = None, matrix: Any = None, *args: Any, **kwargs: Any) -> Image.Image:
        """As in Pillow; put off for "L" from colours and "RGB" from pictures with alpha."""
        source, pending = self._plan
        if self._core is None and not matrix:
            if mode is None or mode == self._mode:
                return self.copy()
            converted = pending.converted(mode, can_read=source.can_read)
            if converted is not None and not self._has_transparency():
                return self._derived(source, converted)
        return super().convert(mode, matrix, *args, **kwargs)

    def thumbnail(
        self,
        size: tuple[float, float],
        resample: Image.Resampling = Image.Resampling.BICUBIC,
        reducing_gap: float | None = 2.0,
    ) -> None:
        if self._core is not None:
            super().thumbnail(size, resample, reducing_gap)
            return
        wish = _Wish(self._size, self._mode)
        Image.Image.thumbnail(wish, size, resample, reducing_gap)  # Pillow's own arithmetic
        if wish.arguments is None:
            return
        resized = self.resize(*wish.arguments)
        if isinstance(resized, LazyPicture):
            self._plan, self._core = resized._plan, resized._core
        else:
            self._core = resized.im
        self._size = resized.size

    def putpalette(self, data: Any, rawmode: str = "RGB") -> None:
        self.load()  # before the mode changes
        super().putpalette(data, rawmode)

    # Copies and comparisons ----------------------------------------------------------------------------------------

    def __copy__(self) -> Image.Image:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Image.Image:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return Image.Image, (), self.__getstate__()

    def __eq__(self, other: object) -> bool:
        if type(other) not in (LazyPicture, Image.Image):
            return False
        assert isinstance(other, Image.Image)
        return (
            self.mode == other.mode
            and self.size == other.size
            and self.info == other.info
            and self.getpalette() == other.getpalette()
            and self.tobytes() == other.tobytes()
        )

    __hash__ = None  # type: ignore[assignment] # as Pillow's

    # The machinery -------------------------------------------------------------------------------------------------

    def _decoded(self, source: PixelSource, pending: Pending) -> Pixels:
        """Return the pixels ``(H, W, C)`` of its plan, read-only."""
        return self._staged(source, pending).pixels

    def _staged(self, source: PixelSource, pending: Pending) -> StagedPixels:
        """Return its plan as a stage of its own; what comes next starts from its result."""
        if not isinstance(source, StagedPixels) or pending != source.nothing:
            source = StagedPixels(source, pending)
            self._plan = source, source.nothing
        return source

    def _derived(self, source: PixelSource, pending: Pending) -> LazyPicture:
        """Return a new picture from this source; as in Pillow, it starts with this one's ``info``."""
        picture = LazyPicture(source, pending)
        if self._own_info is not None:
            picture._own_info = self._copy_info() if hasattr(self, "_copy_info") else self._own_info.copy()
        return picture

    def _resized(self, source: PixelSource, pending: Pending, size: tuple[int, int], kernel: int) -> LazyPicture:
        resized = pending.resized(size, kernel)
        if resized is None:
            source = self._staged(source, pending)
            resized = source.nothing.resized(size, kernel)
            assert resized is not None, "an unchanged source can be resampled"
        return self._derived(source, resized)

    def _has_transparency(self) -> bool:
        """Return whether ``info`` names a transparent colour, which Pillow converts too."""
        if self._own_info is not None:
            return "transparency" in self._own_info
        return self._origin.may_have_transparency


# What Pillow sets up in a new picture, except what is a property here. Copying that takes a third of the time.
_NEW = {name: value for name, value in vars(Image.Image()).items() if not hasattr(LazyPicture, name)}


class _Wish(Image.Image):
    """A stand-in for a picture of some size that learns how ``Image.thumbnail`` would resize it."""

    def __init__(self, size: tuple[int, int], mode: str) -> None:
        super().__init__()
        self._size = size
        self._mode = mode
        self.arguments: tuple[Any, ...] | None = None

    def load(self) -> None:
        """Do nothing: there are no pixels, but Pillow before 11 calls this."""

    def resize(self, size: Any, resample: Any = None, box: Any = None, reducing_gap: Any = None) -> Image.Image:
        """Record the arguments."""
        self.arguments = (size, resample, box, reducing_gap)
        return Image.new(self._mode, (1, 1))


def _is_no_bomb(width: int, height: int) -> bool:
    """Return whether Pillow would crop this size without a warning."""
    most = Image.MAX_IMAGE_PIXELS
    return most is None or width * height <= most


# Small pictures, decoded with their batch: putting that off would cost more than it saves.


def small_picture(stored: StoredPicture, pixels: Pixels) -> Image.Image:
    """
    Return a picture with a copy of the decoded pixels ``(H, W, C)``, which may be a row of a batch.

    It is Pillow's own class if the file surely has nothing for ``info``; otherwise, a class that looks there on
    demand.
    """
    if not stored.can_read or is_plain_png(stored.value):
        return EagerPicture.of(stored, pixels)
    return LazyPicture.of(stored, pixels.copy())


class EagerPicture(Image.Image):
    """A ``PIL.Image.Image`` that also knows its sample: ``filename`` is the key, ``format`` the file's format."""

    _origin: StoredPicture

    @classmethod
    def of(cls, stored: StoredPicture, pixels: Pixels) -> EagerPicture:
        """Return a picture with a copy of these pixels ``(H, W, C)`` and an empty ``info``."""
        picture = Image.frombytes(stored.mode, stored.size, pixels.data)
        picture.__class__ = cls  # copying into a picture of our own would take longer than decoding
        picture._origin = stored  # type: ignore[attr-defined]
        return picture  # type: ignore[return-value]

    @cached_property
    def format(self) -> str | None:  # type: ignore[override] # Pillow's is an attribute
        """The file's format; None for raw pixels."""
        return self._origin.header.format

    @cached_property
    def filename(self) -> str:
        """The sample's key: its path in the source of the store."""
        return self._origin.key
