"""Keeps what was between the documents of a text file, so that the file can be restored byte for byte."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Separators"]

_MAX_ODD = 1 << 20  # places kept; a file with more of them comes back with its usual separator there


@dataclass(slots=True)
class Separators:
    """
    ``usual`` follows every document except those in ``odd``, which maps other separators to the numbers of documents.

    ``head`` precedes the first document. ``is_whole`` is False if a document is missing or there were too many odd
    separators: the file cannot be restored exactly.
    """

    head: str = ""
    usual: str | None = None
    odd: dict[str, list[int]] = field(default_factory=dict)
    count: int = 0
    is_whole: bool = True
    _odd_places: int = 0

    def add(self, data: bytes, spans: NDArray[np.int64]) -> None:
        """Add the separators, ``(n, 2)`` starts and stops in ``data``, of the next n documents."""
        if self.usual is None and len(spans):
            self.usual = data[spans[0, 0] : spans[0, 1]].decode("ascii")
        if not self.is_whole:
            return
        usual = (self.usual or "").encode("ascii")
        for i, (start, stop) in enumerate(spans.tolist(), self.count):
            if stop - start != len(usual) or data[start:stop] != usual:
                self.odd.setdefault(data[start:stop].decode("ascii"), []).append(i)
                self._odd_places += 1
        self.count += len(spans)
        if self._odd_places > _MAX_ODD:
            self.is_whole, self.odd = False, {}

    def after(self) -> dict[int, str]:
        """Return odd separators by the number of their document."""
        return {place: text for text, places in self.odd.items() for place in places}

    def joined(self, documents: Iterable[bytes]) -> bytes:
        """Return the file again: all its documents with what was between them."""
        odd, usual = self.after(), (self.usual or "").encode()
        parts = [self.head.encode()]
        for i, document in enumerate(documents):
            parts += (document, odd[i].encode() if i in odd else usual)
        return b"".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return a plain structure for the store's metadata."""
        return {"head": self.head, "usual": self.usual or "", "odd": self.odd, "whole": self.is_whole}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Separators:
        """Read what ``to_json`` wrote. Raises KeyError or TypeError for anything else."""
        return cls(
            head=str(data["head"]), usual=str(data["usual"]), odd=dict(data["odd"]), is_whole=bool(data["whole"])
        )
