"""The table of traits: its rows."""

from __future__ import annotations

import numpy as np
import pytest

from fastio.codec import CODECS
from fastio.types.schema import BYTES, COLUMN, IMAGE, RAW, TEXT, TOKENS, Field
from fastio.types.traits import TRAITS, Traits, traits_of


def test_every_row_has_a_codec_but_columns() -> None:
    """Each codec can be loaded, and does what the protocol says."""
    assert [name for name in TRAITS if name != COLUMN] == list(CODECS)
    for codec in CODECS.values():
        assert all(callable(getattr(codec, name)) for name in ("encode", "probe", "decode"))
    assert COLUMN not in CODECS
    assert TRAITS[COLUMN].is_column


def test_a_codec_of_a_later_fastio() -> None:
    """Of a name without a row nothing is known."""
    assert Traits(title="audio") == traits_of("audio")
    assert "audio in 'clip'" == str(Field("clip", "audio", "<f4", (None, 2)))


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (Field("a", RAW, "<f4", (2, 3)), [24]),
        (Field("a", TOKENS, "<u2", (None,)), [0, 4, 24]),
        (Field("a", TEXT, "|u1", (None,)), [0, 4, 7, 24]),
        (Field("a", IMAGE, "|u1", (None, None, None)), [0, 4, 7, 24]),
        (Field("a", BYTES, "<i8", (None,)), [0, 4, 7, 24]),
    ],
)
def test_sizes_that_fit(field: Field, expected: list[int]) -> None:
    """Arrays have the size of their shape, tokens whole ids; all else has any size."""
    sizes = np.array([0, 4, 7, 24])

    assert expected == sizes[field.fits(sizes)].tolist()
