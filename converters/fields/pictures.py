"""Pictures and masks that Python code hands over, as encoded files: their own bytes where there are any, else PNGs."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile

from fastio.codec.pillow import PLUGIN_ERRORS
from fastio.converters.fields.arrays import UnfitError, as_numpy, is_tensor, unfit
from fastio.types.field_types import type_of
from fastio.types.schema import Field

__all__ = [
    "file_or_bytes",
    "has_own_file",
    "own_file",
    "picture_bytes",
]


_BLOCK_BYTES = 1 << 16
_EXPECTED = "encoded bytes, a path, a PIL image or an array of pixels"
_PNG_MODES: Final = frozenset({"1", "L", "LA", "P", "RGB", "RGBA"})
_DEEP_MODES: Final = frozenset({"I;16", "I;16L", "I;16B", "I;16N", "I"})
_LEVELS: Final = {"|u1": 1 << 8, "<u2": 1 << 16}  # of a mask, by the field's dtype


def picture_bytes(field: Field, value: Any) -> bytes:
    """
    Return the encoded picture of a field, "image" or "mask".

    Bytes, files at a path, ``{"bytes": ..., "path": ...}`` and 1-D uint8 arrays are taken as encoded pictures, unread.
    A PIL image that nobody has touched since it was opened gives the bytes of its file. Other PIL images and arrays
    become PNGs, which keep every pixel: arrays are ``(H, W)`` or ``(H, W, C)``, tensors ``(H, W)`` or ``(C, H, W)``,
    uint8, with 1, 3 or 4 channels. Masks are ``(H, W)`` of any integers or bool, and PIL images whose pixels are
    numbers. Raises UnfitError for what cannot be kept as it is.
    """
    data = file_or_bytes(value)
    if data is not None:
        return data
    if isinstance(value, Image.Image):
        own = own_file(value)
        return _of_pillow(field, value) if own is None else own
    if isinstance(value, np.ndarray) or is_tensor(value):
        pixels = as_numpy(value, expected=_EXPECTED)
        if pixels.ndim == 3 and is_tensor(value):
            pixels = pixels.transpose(1, 2, 0)
        return _png(_mask_image(field, pixels) if _holds_numbers(field) else _image(field, pixels, value))
    raise unfit(value, _EXPECTED)


def file_or_bytes(value: Any) -> bytes | None:
    """
    Return the bytes given, or those of the file whose path is given; None for anything else.

    Bytes may be a 1-D uint8 array or tensor; Hugging Face keeps pictures as ``{"bytes": ..., "path": ...}``.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (str, os.PathLike)):
        return _read(value)
    if isinstance(value, Mapping) and not value.keys().isdisjoint(("bytes", "path")):
        return _of_mapping(value)
    if isinstance(value, np.ndarray) or is_tensor(value):
        array = as_numpy(value, expected="bytes") if value.ndim == 1 else None
        return array.tobytes() if array is not None and array.dtype == np.uint8 else None
    return None


def has_own_file(image: Image.Image) -> bool:
    """Whether a PIL image is as its file has it: opened, and neither decoded, changed nor moved to another frame."""
    return (
        isinstance(image, ImageFile.ImageFile)
        and bool(image.tile)  # emptied by the first access to a pixel
        and image.fp is not None
        and not image.fp.closed
        and image.tell() == 0
        and not getattr(image, "decoderconfig", ())  # set by draft(), which decodes smaller or grey
    )


def own_file(image: Image.Image) -> bytes | None:
    """Return the bytes of the file of a PIL image that ``has_own_file``; None for others."""
    if not has_own_file(image):
        return None
    assert isinstance(image, ImageFile.ImageFile)
    file = image.fp
    assert file is not None
    try:
        before = file.tell()
        file.seek(0)
        data = file.read()
        file.seek(before)
    except (OSError, ValueError):  # decoding it will say what is wrong
        return None
    return bytes(data)


def _of_mapping(value: Mapping[str, Any]) -> bytes:
    """What Hugging Face keeps of a picture: its bytes, or the path of its file."""
    data = value.get("bytes")
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if data is None and isinstance(value.get("path"), (str, os.PathLike)):
        return _read(value["path"])
    raise unfit(value, "bytes or a path in it")


def _read(path: str | os.PathLike[str]) -> bytes:
    try:  # in half the time of Path.read_bytes
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            left = os.fstat(file).st_size
            parts = [os.read(file, left)] if left else []
            while part := os.read(file, _BLOCK_BYTES):
                parts.append(part)
        finally:
            os.close(file)
        return b"".join(parts)
    except OSError as exc:
        raise UnfitError(f"cannot be read: {os.fspath(path)}: {exc.strerror or exc}") from exc
    except ValueError as exc:  # NUL in a path
        raise UnfitError(f"cannot be read: {os.fspath(path)!r} is no path: {exc}") from exc


def _of_pillow(field: Field, image: Image.Image) -> bytes:
    try:
        image.load()
        if 0 in image.size:
            raise UnfitError(f"is a PIL image of {image.width} x {image.height} pixels; expected at least one")
        if _holds_numbers(field):
            if image.mode in ("1", "L", "P") and field.dtype == "|u1":
                return _png(image)
            return _png(_mask_image(field, _numbers(image)))
        if image.mode in _DEEP_MODES:
            return _png(Image.fromarray(_fitting(_numbers(image), 1 << 16, "a grey PNG of 16 bits").astype(np.uint16)))
    except PLUGIN_ERRORS as exc:
        raise UnfitError(f"is a PIL image that cannot be decoded: {' '.join(str(exc).split())}") from exc
    if field.traits.is_mask and len(image.getbands()) != field.shape[2]:
        raise UnfitError(f"is a PIL image of mode {image.mode}; expected {type_of(field)}")
    if image.mode not in _PNG_MODES:
        raise UnfitError(
            f"is a PIL image of mode {image.mode}, which no PNG keeps; hand over its file's bytes, or convert it to RGB"
        )
    return _png(image)


def _holds_numbers(field: Field) -> bool:
    """Whether a field has masks of one number a pixel, not of colours."""
    return field.traits.is_mask and len(field.shape) == 2


def _numbers(image: Image.Image) -> NDArray[Any]:
    if image.mode in ("1", "L", "P") or image.mode in _DEEP_MODES:
        return np.asarray(image)
    raise UnfitError(
        f"is a PIL image of mode {image.mode}; expected numbers of classes: mode P, L, 1 or I;16 (palette, 8, 1 or 16 "
        "bits)"
    )


def _mask_image(field: Field, pixels: NDArray[Any]) -> Image.Image:
    plain = pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    if plain.ndim != 2 or 0 in plain.shape or plain.dtype.kind not in "biu":
        raise UnfitError(f"is an array {pixels.dtype} {pixels.shape}; expected whole numbers of classes, (H, W)")
    bits = "a mask of 16 bits" if field.dtype == "<u2" else "a mask of 8 bits"
    kept = _fitting(plain, _LEVELS.get(field.dtype, 1 << 8), bits)
    return Image.fromarray(np.ascontiguousarray(kept.astype(field.dtype)))


def _fitting(numbers: NDArray[Any], levels: int, what: str) -> NDArray[Any]:
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high >= levels:
        raise UnfitError(f"holds {low if low < 0 else high}, which {what} cannot hold (0 to {levels - 1})")
    return numbers


def _image(field: Field, pixels: NDArray[Any], given: Any) -> Image.Image:
    plain = pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    is_picture = plain.ndim == 2 or (
        plain.ndim == 3 and plain.shape[2] in (3, 4, *([2] if field.traits.is_mask else []))
    )
    if field.traits.is_mask and pixels.shape[2:] != field.shape[2:]:
        raise UnfitError(f"is an array {pixels.dtype} {tuple(given.shape)}; expected uint8, {type_of(field)}")
    if not is_picture or 0 in plain.shape or plain.dtype != np.uint8:
        name, form = ("a tensor", "(C, H, W)") if is_tensor(given) else ("an array", "(H, W, C)")
        floats = " (drop ToTensor() and Normalize(), which belong to loading)" if plain.dtype.kind == "f" else ""
        raise UnfitError(
            f"is {name} {pixels.dtype} {tuple(given.shape)}; expected uint8, (H, W) or {form} with 1, 3 or 4 "
            f"channels{floats}"
        )
    return Image.fromarray(np.ascontiguousarray(plain))


def _png(image: Image.Image) -> bytes:
    """A PNG with the image's pixels, EXIF, profile and transparency."""
    if image.mode == "P":
        image = _with_all_colours(image)
    exif = image.info.get("exif")
    file = io.BytesIO()
    image.save(file, "PNG", **({"exif": exif} if isinstance(exif, bytes) else {}))
    return file.getvalue()


def _with_all_colours(image: Image.Image) -> Image.Image:
    """
    The image with a colour for each of its indices.

    Pillow counts the bits of an index in a PNG by the colours of the palette, and cuts larger indices off.
    """
    mode = "RGB" if image.palette is None else image.palette.mode
    colours = image.getpalette(mode) or []
    missing = (int(np.asarray(image).max()) + 1) * len(mode) - len(colours)
    if missing <= 0:
        return image
    padded = image.copy()
    padded.putpalette([*colours, *bytes(missing)], mode)
    return padded
