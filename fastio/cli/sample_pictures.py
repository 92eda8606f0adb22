"""Sample pictures of a store with their labels, for a report."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

    from fastio.report.page import PictureGrid
    from fastio.store import SampleStore

__all__ = ["sample_pictures"]

_SIZE = 128


def sample_pictures(store: SampleStore, *, count: int = 36) -> PictureGrid | None:
    """
    Return up to ``count`` pictures, spread evenly over the store, with their labels and keys; None if it has none.

    A picture that is damaged comes as the reason instead.
    """
    from fastio.converters.contact_sheet import shown_samples
    from fastio.report.page import Picture, PictureGrid

    if len(store) == 0 or store.schema.picture is None:
        return None
    samples = shown_samples(store, count=count, size=_SIZE)
    shown = [
        Picture(None, sample.picture, sample.key)
        if isinstance(sample.picture, str)
        else Picture(_jpeg(sample.picture), sample.label, sample.key)
        for sample in samples
    ]
    return PictureGrid(shown, _SIZE)


def _jpeg(picture: Image) -> bytes:
    coded = io.BytesIO()
    picture.save(coded, "JPEG", quality=90, subsampling=0)
    return coded.getvalue()
