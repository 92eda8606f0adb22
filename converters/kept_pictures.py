"""Why pictures are kept byte for byte although something was to be done to them."""

from __future__ import annotations

__all__ = ["KEPT"]

# In words that follow the number of pictures.
KEPT = {
    "other": "of a kind that is not rewritten",
    "unusual": "not rewritten: CMYK, 12 bits, no end marker, or bytes after the picture",
    "rich": "PNG with transparency, 16 bits, a colour profile, EXIF or an animation, which a JPEG would lose",
}
