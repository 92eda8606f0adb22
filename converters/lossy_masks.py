"""LossyMasks: counts masks that are JPEGs, whose numbers are no longer those that were drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastio.codec.headers import read_headers
from fastio.store import SampleBatch
from fastio.types.picture_kinds import JPEG
from fastio.types.schema import Schema

__all__ = ["LossyMasks", "lossy_mask_lines"]


@dataclass(slots=True)
class LossyMasks:
    """
    Counts JPEGs among the masks that are packed.

    JPEG changes numbers next to edges, perhaps into those of other classes, and what they were is lost: such masks are
    kept as they are, and named.
    """

    schema: Schema
    _masks: int = 0
    _jpegs: dict[str, int] = field(default_factory=dict)
    _firsts: dict[str, str] = field(default_factory=dict)

    def count(self, batch: SampleBatch) -> None:
        """Take packed samples into account; their masks are those of ``schema``."""
        self._masks += len(batch.keys)
        for name in (each.name for each in self.schema.payload if each.traits.is_mask):
            jpegs = np.flatnonzero(read_headers(batch.spans[name]).kind == JPEG)
            if len(jpegs):
                self._jpegs[name] = self._jpegs.get(name, 0) + len(jpegs)
                self._firsts.setdefault(name, batch.keys[int(jpegs[0])])

    @property
    def metadata(self) -> dict[str, Any]:
        """What the store notes of them, by field; empty if there are none."""
        fields = {
            name: {"jpegs": count, "masks": self._masks, "first": self._firsts[name]}
            for name, count in self._jpegs.items()
        }
        return {"lossy_masks": fields} if fields else {}


def lossy_mask_lines(metadata: Mapping[str, Any]) -> list[str]:
    """Return one line for each field of a store in which masks are JPEGs."""
    return [
        f"lossy masks: {said['jpegs']:,} of {said['masks']:,} in {name!r} are JPEGs, the first that of {said['first']}"
        ": JPEG changes class numbers next to edges; pack the masks as they were drawn (PNG)"
        for name, said in (metadata.get("lossy_masks") or {}).items()
    ]
