"""Which JPEGs a GPU may decode: only those of which it makes what the CPU makes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastio.codec.image import is_for_gpu
from tests.conftest import encode, pictures


def jpeg(mode: str = "RGB", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pictures(1, (40, 56, 3))[0]).convert(mode).save(file, "JPEG", **options)
    return file.getvalue()


def told(data: bytes) -> bool:
    return is_for_gpu(np.frombuffer(data, np.uint8))


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_baseline(subsampling: str) -> None:
    """Baseline JPEGs of the usual samplings are the GPU's, also grey ones, with markers, EXIF and a short tail."""
    assert told(jpeg(subsampling=subsampling))
    assert told(jpeg("L"))
    assert told(jpeg(restart_marker_blocks=2, exif=b"Exif\0\0" + bytes(200)))
    assert told(jpeg(subsampling=subsampling) + bytes(16))


@pytest.mark.parametrize(
    "data",
    [
        jpeg(progressive=True),
        jpeg("CMYK"),
        jpeg(keep_rgb=True),
        encode(pictures(1)[0]),
        b"",
        b"\xff\xd8\xff",
        b"\xff\xd8\xff\xd9",
        b"\xff\xd8\xff" + bytes(100) + b"\xff\xd9",
    ],
    ids=["progressive", "CMYK", "RGB", "PNG", "empty", "start", "start and end", "zeros"],
)
def test_the_cpu(data: bytes) -> None:
    """Other kinds are the CPU's, and so is what is no JPEG."""
    assert not told(data)


@given(st.integers(0, len(jpeg()) - 2))
def test_cut_off(size: int) -> None:
    """A JPEG that was cut off anywhere is the CPU's, which says so."""
    assert not told(jpeg()[:size])


@given(st.integers(2, 600), st.integers(0, 255))
def test_damaged_headers(at: int, value: int) -> None:
    """Whatever stands in its headers, the answer is yes or no."""
    data = bytearray(jpeg())
    data[at] = value

    assert told(bytes(data)) in (True, False)
