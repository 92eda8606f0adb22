"""JPEGs without an end marker: packed and read if Pillow gives all of their pixels, refused if data are missing."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from fastio import FastLoader, _native
from fastio.converters import Transcode, open_source, pack
from fastio.converters.inspect.verify import verify
from fastio.converters.pictures.probe import header_problems, probe
from fastio.store import open_store
from fastio.types.schema import IMAGE, Field
from tests.codec.native_pictures import decode, decode_region
from tests.conftest import as_spans, pictures

SIZE = (24, 32, 3)
ANY = Field("image", IMAGE, "|u1", (None, None, None))


def jpeg(mode: str = "RGB", **options: object) -> bytes:
    """A JPEG of noise without its end marker."""
    file = io.BytesIO()
    Image.fromarray(pictures(1, SIZE)[0]).convert(mode).save(file, "JPEG", **options)
    return file.getvalue().removesuffix(b"\xff\xd9")


FILES = {
    "plain": jpeg(),
    "grey": jpeg("L"),
    "inks": jpeg("CMYK"),
    "restarts": jpeg(restart_marker_blocks=2),
    "optimised": jpeg(optimize=True, quality=30, subsampling="4:4:4"),
    "progressive": jpeg(progressive=True),
}
IN_ONE_SCAN = [kind for kind in FILES if kind != "progressive"]
TAILS = {
    "nothing": b"",
    "zero": b"\0",
    "zeros": bytes(10),
    "page": bytes(4096),
    "blocks": bytes(200_000),
    "erased": b"\xff" * 50,
    "text": b"--boundary of a multipart message--",
    "stuffed": b"\xff\0" * 20,
    "restart": b"\xff\xd0" + bytes(9),
    "comment": b"\xff\xfe\0\4ab",
    "cut segment": b"\xff\xe1\xff\4ab",
    "frame": b"\xff\xc0\0\x0b\x08",
    "scan": b"\xff\xda\0\3\1",
    "JPEG": FILES["plain"],
}
LONG = ("zeros", "page", "blocks", "text", "stuffed", "restart", "comment", "cut segment")  # enough for Pillow


def problem(data: bytes) -> str:
    """What packing says of a picture; "" if nothing."""
    return header_problems(probe(as_spans([data]), ANY, check_end=True), ANY).get(0, "")


def by_pillow(data: bytes) -> NDArray[np.uint8] | None:
    """Pillow's pixels; None if it refuses the picture."""
    try:
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    except (OSError, SyntaxError):
        return None


def assert_as_by_pillow(kind: str, tail: bytes) -> None:
    """Assert that all data with this tail are packed if Pillow gives all pixels, and that the core gives no others."""
    expected = by_pillow(FILES[kind] + tail)
    status, pixels = decode(FILES[kind] + tail, SIZE[:2], 3)

    assert (expected is not None) == (problem(FILES[kind] + tail) == "")
    if expected is not None:
        np.testing.assert_array_equal(by_pillow(FILES[kind] + b"\xff\xd9"), expected)
        assert status in (_native.OK, _native.UNSUPPORTED)  # or left to Pillow
    if status == _native.OK:
        np.testing.assert_array_equal(expected, pixels)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("kind", FILES)
def test_whole_data_are_judged_as_by_pillow(kind: str, tail: str) -> None:
    """Whatever stands in place of the end marker."""
    assert_as_by_pillow(kind, TAILS[tail])
    if kind in IN_ONE_SCAN and tail in LONG:
        assert "" == problem(FILES[kind] + TAILS[tail])


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(FILES)), st.binary(max_size=300) | st.lists(st.sampled_from(b"\0\1\xff\xd9\xd0")))
def test_any_tail_is_judged_as_by_pillow(kind: str, tail: bytes | list[int]) -> None:
    """Also where it looks like markers, and where an end marker is in it after all."""
    assert_as_by_pillow(kind, bytes(tail))


@pytest.mark.parametrize("fill", [b"\0", b"\x3f", b"\x07", b"\xff"])
@pytest.mark.parametrize("kind", FILES)
def test_filler_in_place_of_data_is_found(kind: str, fill: bytes) -> None:
    """What a download that broke off leaves of a file, and Pillow often takes for codes."""
    data = FILES[kind]
    scan = data.index(b"\xff\xda") + 14

    for size in range(scan, len(data) - 1):
        assert problem(data[:size] + fill * (len(data) - size + 2))
        assert problem(data[:size] + fill * 4096)
        status, _ = decode(data[:size] + fill * 4096, SIZE[:2], 3)
        assert status not in ((_native.OK, _native.UNSUPPORTED) if kind in IN_ONE_SCAN else (_native.OK,))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(FILES)), st.floats(0, 1), st.binary(max_size=40))
def test_missing_data_are_found(kind: str, part: float, tail: bytes) -> None:
    """Less than what the missing codes take cannot replace them; with an end marker, only decoding would find it."""
    data = FILES[kind]
    scan = data.index(b"\xff\xda") + 14
    cut = data[: scan + int(part * (len(data) - 100 - scan))] + tail
    assume(b"\xff\xd9" not in cut)

    assert problem(cut)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"jump": True},
        {"pictures": Transcode(restart=2)},
        {"pictures": Transcode(short_side=20)},
        {"pictures": Transcode(max_side=99, restart=3)},
    ],
    ids=["plain", "jump", "restart", "resized", "fitting"],
)
def test_they_keep_their_bytes(tmp_path: Path, options: dict[str, object]) -> None:
    """However they are packed, they are not written anew, and the loader has Pillow's pixels of them."""
    values = {f"{kind}-{tail}": FILES[kind] + TAILS[tail] for kind in IN_ONE_SCAN for tail in LONG}
    (tmp_path / "photos").mkdir(parents=True)
    for name, data in values.items():
        (tmp_path / "photos" / f"{name}.jpg").write_bytes(data)

    report = pack(open_source(tmp_path / "photos"), tmp_path / "s.lmdb", **options)  # type: ignore[arg-type]

    assert len(values) == report.packed
    assert () == tuple(verify(report.path, decode=True).problems)
    with open_store(report.path) as store:
        packed = [view.tobytes() for view in store.spans("image", np.arange(len(values))).views()]
    assert [values[name] for name in sorted(values)] == packed
    (images,) = FastLoader(report.path, len(values), threads=1)
    for data, image in zip(packed, images, strict=True):
        np.testing.assert_array_equal(by_pillow(data), image.permute(1, 2, 0))


@pytest.mark.parametrize("kind", IN_ONE_SCAN)
def test_regions(kind: str) -> None:
    """One above the last row of pixels needs no end; one that reaches it is left to Pillow."""
    data = FILES[kind] + bytes(50)

    status, pixels = decode_region(data, (3, 2, 9, 5), 3)
    expected = by_pillow(data)

    assert _native.OK == status
    assert expected is not None
    np.testing.assert_array_equal(expected[2:7, 3:12], pixels)
    for box in ((0, 0, 32, 24), (3, 10, 4, 14), (20, 23, 12, 1)):
        assert _native.UNSUPPORTED == decode_region(data, box, 3)[0]
        assert _native.TRUNCATED == decode_region(FILES[kind][:-30], box, 3)[0]
