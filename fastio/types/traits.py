"""What is true of each codec's values, in one row per codec. All layers ask this table; none compares codec names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = [
    "ARRAY",
    "BYTES",
    "COLUMN",
    "IMAGE",
    "JSON",
    "LIST",
    "MASK",
    "OPTIONAL",
    "PLANAR",
    "RAGGED",
    "RAW",
    "TEXT",
    "TOKENS",
    "TRAITS",
    "Traits",
    "traits_of",
]

# Codec names, as stored. Only code that makes fields uses them: everything else asks a field for its traits.
IMAGE: Final = "image"
MASK: Final = "mask"
RAW: Final = "raw"
PLANAR: Final = "planar"
RAGGED: Final = "ragged"
ARRAY: Final = "array"
TOKENS: Final = "tokens"
TEXT: Final = "text"
JSON: Final = "json"
BYTES: Final = "bytes"
COLUMN: Final = "column"

# Behind the codec of its elements, that of a field of lists: of any number, of one or none.
LIST: Final = "[*]"
OPTIONAL: Final = "?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """
    What is true of all values of one codec.

    * ``title``: what a field holds, in words; ``{array}`` in it becomes dtype and shape.
    * ``codec``: the class that encodes and decodes, as ``module:class``; ``fastio.codec.CODECS`` imports it when it is
      first used. None if there is nothing to decode.
    * ``is_column``: the values of all samples are one array, and not a run of bytes each.
    * ``is_picture``: an encoded picture, whose header tells height, width and channels. The index keeps these, and
      where restart intervals begin.
    * ``is_mask``: a picture whose pixels are numbers of classes: decoded as stored (palette indices, 16 bits), never
      interpolated and never converted.
    * ``is_tokens``: token ids, which native code widens to int64 on their way into a batch.
    * ``is_text``: UTF-8, handed over as ``str``.
    * ``is_json``: UTF-8, handed over as the object that it describes.
    * ``is_ragged``: arrays that differ in their first axis only, which the field's shape gives as None: boxes, points.
    * ``is_npy``: arrays that differ in other axes than the first, too, or in several: each value is a .npy file of
      NumPy, which tells its own shape. The index keeps the shapes, for plans.
    * ``is_plain``: the stored bytes are the elements of the array, C order, little endian: dtype and shape tell their
      size, and containers with types of their own (HDF5, npy files) may name them.
    * ``is_planar``: pictures of 8 bits whose channels are stored one behind the other, ``(C, H, W)``; the field's shape
      is that of the pixels, ``(H, W, C)``.
    * ``is_listable``: a sample may have a list of such values.
    * ``has_fixed_shape``: all values of a field have the field's shape.
    * ``dtypes``: those that a sequence of any length may have, whose shape is ``(None,)``; empty: any dtype.
    * ``extension``: of files that hold one value, for readers who never heard of fastio; "": the field's name.
    """

    title: str
    codec: str | None = None
    is_column: bool = False
    is_picture: bool = False
    is_mask: bool = False
    is_tokens: bool = False
    is_text: bool = False
    is_json: bool = False
    is_ragged: bool = False
    is_npy: bool = False
    is_plain: bool = False
    is_planar: bool = False
    is_listable: bool = False
    has_fixed_shape: bool = False
    dtypes: tuple[str, ...] = ()
    extension: str = ""

    @property
    def is_image(self) -> bool:
        """Whether values are encoded pictures that may be resampled and written anew: no masks."""
        return self.is_picture and not self.is_mask

    @property
    def is_sequence(self) -> bool:
        """Whether values are sequences whose lengths differ: tokens, text."""
        return bool(self.dtypes)

    @property
    def has_rows(self) -> bool:
        """Whether equal values of a batch become rows of one array; other values are handed over one by one."""
        return self.is_picture or (self.has_fixed_shape and not self.is_column)

    @property
    def is_array(self) -> bool:
        """Whether each stored value is, byte for byte, an array of the field's dtype and shape."""
        return self.is_plain and self.has_rows


# A new codec adds a file to fastio/codec/ and a row here, as tests/codec/test_new_codec.py does.
TRAITS: Final[dict[str, Traits]] = {
    IMAGE: Traits(  # kept as it came (JPEG, PNG, ...); each sample is recognised by its first bytes
        title="encoded pictures",
        codec="fastio.codec.image:ImageCodec",
        is_picture=True,
        is_listable=True,
    ),
    MASK: Traits(  # an encoded picture; dtype and shape of the field are those of its pixels: (None, None), or 3 axes
        title="masks",
        codec="fastio.codec.mask:MaskCodec",
        is_picture=True,
        is_mask=True,
        is_listable=True,
    ),
    RAW: Traits(
        title="raw {array}",
        codec="fastio.codec.copied:RawCodec",
        is_plain=True,
        has_fixed_shape=True,
        extension="npy",
        is_listable=True,
    ),
    PLANAR: Traits(  # of containers in place; packing puts the channels last
        title="planar {array}",
        codec="fastio.codec.copied:PlanarCodec",
        is_planar=True,
        has_fixed_shape=True,
    ),
    RAGGED: Traits(
        title="ragged {array}",
        codec="fastio.codec.copied:RawCodec",
        is_ragged=True,
        is_plain=True,
        extension="npy",
        is_listable=True,
    ),
    ARRAY: Traits(
        title="arrays {array}",
        codec="fastio.codec.copied:NpyCodec",
        is_npy=True,
        extension="npy",
        is_listable=True,
    ),
    TOKENS: Traits(
        title="token ids",
        codec="fastio.codec.copied:TokensCodec",
        is_tokens=True,
        is_plain=True,
        dtypes=("<u2", "<u4"),
        extension="npy",
        is_listable=True,
    ),
    TEXT: Traits(  # without an end mark or byte order mark
        title="text",
        codec="fastio.codec.copied:TextCodec",
        is_text=True,
        is_plain=True,
        dtypes=("|u1",),
        extension="txt",
        is_listable=True,
    ),
    JSON: Traits(
        title="JSON",
        codec="fastio.codec.copied:JsonCodec",
        is_json=True,
        extension="json",
    ),
    BYTES: Traits(  # anything else, handed over as it is
        title="bytes",
        codec="fastio.codec.copied:RawCodec",
        is_listable=True,
    ),
    COLUMN: Traits(  # a number, or a small array
        title="one {array} per sample",
        is_column=True,
        is_plain=True,
        has_fixed_shape=True,
    ),
}


def traits_of(codec: str) -> Traits:
    """The row of a codec; of one that a later fastio wrote nothing is known but its name."""
    return TRAITS.get(codec) or Traits(title=codec)
