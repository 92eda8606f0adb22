"""Counts pictures that deserve a word: progressive and CMYK photos, masks that are JPEGs or lossy WebPs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec.headers import read_headers
from fastio.store import SampleBatch
from fastio.types.picture_kinds import JPEG, WEBP
from fastio.types.schema import Schema

__all__ = [
    "JpegCounts",
    "LossyMasks",
    "jpeg_lines",
    "lossy_mask_lines",
    "noted_jpegs",
]


@dataclass(slots=True)
class JpegCounts:
    """How many JPEGs have been packed, and how many of them are progressive or have four components (CMYK, YCCK)."""

    jpegs: int = 0
    progressive: int = 0
    cmyk: int = 0

    def count(self, batch: SampleBatch, schema: Schema) -> None:
        """Count the photos of packed samples by their headers."""
        for each in schema.payload:
            if each.element.traits.is_image and each.name in {**batch.spans, **batch.lists}:
                spans = batch.lists[each.name].spans if each.is_list else batch.spans[each.name]
                jpegs, progressive, cmyk = _native.count_jpegs(spans)
                self.jpegs += jpegs
                self.progressive += progressive
                self.cmyk += cmyk

    @property
    def metadata(self) -> dict[str, Any]:
        """What the record of a file notes of them; empty without JPEGs."""
        if self.jpegs == 0:
            return {}
        return {"jpegs": {"jpegs": self.jpegs, "progressive": self.progressive, "cmyk": self.cmyk}}


def noted_jpegs(total: Mapping[str, int]) -> dict[str, int]:
    """Return the sums of what ``metadata`` noted for several files; empty if all JPEGs are baseline ones in RGB."""
    return dict(total) if total.get("progressive") or total.get("cmyk") else {}


def jpeg_lines(metadata: Mapping[str, Any]) -> list[str]:
    """Return one line for the progressive photos of a store, and one for the CMYK photos, if there are any."""
    counts = metadata.get("jpegs") or {}
    lines = []
    if counts.get("progressive"):
        # Measured with RandomResizedCrop(224) on photos of ImageNet: 1.9 times (4:2:0), 2.1 times (4:4:4).
        lines.append(
            f"progressive: {counts['progressive']:,} of {counts['jpegs']:,} JPEGs; random crops of them take about "
            "twice the CPU time that they take after --restart 8, which rewrites them losslessly"
        )
    if counts.get("cmyk"):
        lines.append(f"CMYK: {counts['cmyk']:,} of {counts['jpegs']:,} JPEGs, which become RGB as Pillow converts them")
    return lines


# LossyMasks: counts masks that are JPEGs or lossy WebPs, whose numbers are no longer those that were drawn.

_COUNT = "jpegs"  # in the store: of lossy WebPs, too


@dataclass(slots=True)
class LossyMasks:
    """
    Counts JPEGs and lossy WebPs among the masks that are packed.

    Both change numbers next to edges, perhaps into those of other classes, and what they were is lost: such masks are
    kept as they are, and named.
    """

    schema: Schema
    _masks: int = 0
    _lossy: dict[str, int] = field(default_factory=dict)
    _firsts: dict[str, str] = field(default_factory=dict)

    def count(self, batch: SampleBatch) -> None:
        """Take packed samples into account; their masks are those of ``schema``."""
        self._masks += len(batch.keys)
        for name in (each.name for each in self.schema.payload if each.traits.is_mask):
            spans = batch.spans[name]
            kinds = read_headers(spans).kind
            is_lossy = kinds == JPEG
            for i in np.flatnonzero(kinds == WEBP).tolist():
                is_lossy[i] = _is_lossy_webp(spans.view(i))
            lossy = np.flatnonzero(is_lossy)
            if len(lossy):
                self._lossy[name] = self._lossy.get(name, 0) + len(lossy)
                self._firsts.setdefault(name, batch.keys[int(lossy[0])])

    @property
    def metadata(self) -> dict[str, Any]:
        """What the store notes of them, by field; empty if there are none."""
        fields = {
            name: {_COUNT: count, "masks": self._masks, "first": self._firsts[name]}
            for name, count in self._lossy.items()
        }
        return {"lossy_masks": fields} if fields else {}


def lossy_mask_lines(metadata: Mapping[str, Any]) -> list[str]:
    """Return one line for each field of a store in which masks are JPEGs or lossy WebPs."""
    return [
        f"lossy masks: {said[_COUNT]:,} of {said['masks']:,} in {name!r} are JPEGs or lossy WebPs, the first that of "
        f"{said['first']}: such files have other class numbers next to edges; pack the masks as they were drawn (PNG)"
        for name, said in (metadata.get("lossy_masks") or {}).items()
    ]


def _is_lossy_webp(data: NDArray[np.uint8]) -> bool:
    """Whether a WebP has pixels coded as VP8, and not as the lossless VP8L: RIFF chunks follow its 12 bytes."""
    at = 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4].tobytes(), int.from_bytes(data[at + 4 : at + 8].tobytes(), "little")
        if name == b"VP8 ":
            return True
        at += 8 + (16 if name == b"ANMF" else size + size % 2)  # a frame's chunks are within it
    return False
