"""Which names of files are those of texts, one document each."""

from __future__ import annotations

from fastio.converters.streams import plain_name

__all__ = ["COMPRESSED", "PLAIN", "text_kind"]

PLAIN, COMPRESSED = 1, 2


def text_kind(name: str) -> int:
    """Return 1 for a name that ends in .txt, 2 for .txt.gz and .txt.zst, 0 for others."""
    plain = plain_name(name)
    if not plain.lower().endswith(".txt") or plain.startswith("."):
        return 0
    return PLAIN if plain == name else COMPRESSED
