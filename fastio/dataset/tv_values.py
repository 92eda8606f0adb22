"""Pictures as tensors, and the values of a sample as torchvision's tv_tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio.dataset.form import Form
from fastio.errors import SchemaError
from fastio.lazy import torch
from fastio.store.protocol import SampleStore
from fastio.types.schema import Field

__all__ = [
    "TvTypes",
    "picture_array",
    "picture_tensor",
]


class TvTypes:
    """
    Makes tv_tensors of pictures ``(C, H, W)``, masks ``(H, W)``, boxes and points of a form.

    The canvas of boxes and points is the first picture of the sample, or the first mask if it has no picture. Rows that
    belong to those of boxes (``per boxes``) become tensors, which SanitizeBoundingBoxes filters with them. Other values
    stay. Raises ImportError without torchvision, and SchemaError for boxes without a picture or mask.
    """

    def __init__(self, store: SampleStore, form: Form) -> None:
        self._fields = tuple(store.schema[name] for name in form.names)
        try:
            from torchvision import tv_tensors
        except ImportError as exc:
            raise ImportError(
                "tv_tensors=True needs torchvision 0.16 or later, which cannot be imported: pip install torchvision"
            ) from exc
        pictures = [at for at, field in enumerate(self._fields) if field.traits.is_picture or field.is_raw_picture]
        pictures.sort(key=lambda at: self._fields[at].traits.is_mask)
        self._canvas = pictures[0] if pictures else None
        moved = [field for field in self._fields if field.is_box or field.is_points]
        if moved and self._canvas is None:
            raise SchemaError(
                f"{store.path}: tv_tensors=True gives {moved[0].name!r} the size of the picture, but there is none "
                f"among {', '.join(form.names)}: add the picture or its mask to fields="
            )
        points = next((field.name for field in moved if field.is_points), None)
        if points is not None and not hasattr(tv_tensors, "KeyPoints"):
            raise ImportError(
                f"{store.path}: tv_tensors=True needs torchvision 0.23 or later for the points {points!r}: pip install "
                "-U torchvision, or leave the field out by fields="
            )

    def typed(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the values of one sample, in the form's order. Raises SampleError for a picture that is bad."""
        canvas = None if self._canvas is None else _size(row[self._canvas])
        return tuple(_typed(field, value, canvas) for field, value in zip(self._fields, row, strict=True))


def _size(picture: Image.Image) -> tuple[int, int]:
    return picture.height, picture.width


def _typed(field: Field, value: Any, canvas: tuple[int, int] | None) -> Any:
    from torchvision import tv_tensors

    if isinstance(value, Image.Image):
        is_mask = field.traits.is_mask
        tensor = picture_tensor(value, is_mask=is_mask)
        return tv_tensors.Mask(tensor) if is_mask else tv_tensors.Image(tensor)
    if field.is_box:
        boxes = torch.from_numpy(value)
        return tv_tensors.BoundingBoxes(boxes, format=field.geometry.upper(), canvas_size=canvas)
    if field.is_points:
        return tv_tensors.KeyPoints(torch.from_numpy(value), canvas_size=canvas)
    return torch.from_numpy(value) if field.owner else value


# The pixels of a PIL image as a tensor, in the axes and dtypes that batches have.


def picture_tensor(image: Image.Image, *, is_mask: bool = False) -> torch.Tensor:
    """Return ``picture_array`` as a tensor."""
    return torch.from_numpy(picture_array(image, is_mask=is_mask))


def picture_array(image: Image.Image, *, is_mask: bool = False) -> NDArray[Any]:
    """
    Return a copy of the pixels of a PIL image as a batch has them.

    A picture is uint8 ``(C, H, W)``. A mask is ``(H, W)``, uint8, or int32 if it has 16 bits or more; one in colours
    is ``(C, H, W)``.
    """
    array = np.array(image)
    if is_mask and array.dtype != np.uint8:
        array = array.astype(np.uint8 if array.dtype == np.bool_ else np.int32)
    if array.ndim == 3:
        return array.transpose(2, 0, 1)
    return array if is_mask else array[None]
