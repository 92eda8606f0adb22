"""Pictures whose data end too early are bad samples, however they are packed; bytes behind the end of one are not."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import fastio
from fastio import FastDataset, FastLoader
from fastio.converters import open_source, pack
from fastio.converters.fields.types import parse_choice
from fastio.converters.inspect.verify import verify
from fastio.converters.pictures.probe import header_problems, probe
from fastio.errors import SampleError, SourceError
from fastio.store import open_store
from fastio.types.schema import IMAGE, Field
from tests.conftest import as_spans, encode, pictures, write_store

SIZE = (24, 32, 3)
ANY = Field("image", IMAGE, "|u1", (None, None, None))
SENTENCE = "cannot be decoded: its data end too early"
SUFFIXES = {"JPEG": "jpg", "PNG": "png", "GIF": "gif", "BMP": "bmp", "WEBP": "webp", "PPM": "ppm", "TIFF": "tif"}

OF_CUT_TIFFS = pytest.mark.filterwarnings("ignore::UserWarning:PIL.TiffImagePlugin")


def whole(kind: str, **options: object) -> bytes:
    """A picture of noise."""
    file = io.BytesIO()
    Image.fromarray(pictures(1, SIZE)[0]).save(file, kind, **options)
    return file.getvalue()


def with_thumbnail() -> bytes:
    """A JPEG whose EXIF has another one in it, with its own end marker."""
    exif = b"Exif\0\0" + encode(pictures(1, (8, 8, 3))[0], "JPEG")
    return whole("JPEG", exif=exif)


def tiled_tiff(order: str) -> bytes:
    """A TIFF of 16x16 tiles of grey, with their places in front."""
    tiles = [tile.tobytes() for tile in pictures(4, (16, 16))]
    first, count = 8 + 2 + 10 * 12 + 4, len(tiles)
    starts = first + 8 * count + 256 * np.arange(count)
    short, long = 3, 4
    entries = [
        (256, short, 1, 32), (257, short, 1, 24), (258, short, 1, 8), (259, short, 1, 1), (262, short, 1, 1),
        (277, short, 1, 1), (322, short, 1, 16), (323, short, 1, 16),
        (324, long, count, first), (325, long, count, first + 4 * count),
    ]  # fmt: skip
    file = struct.pack(order + "2sHIH", b"II" if order == "<" else b"MM", 42, 8, len(entries))
    for tag, kind, number, value in entries:
        value_form = "HH" if kind == short else "I"
        file += struct.pack(order + "HHI" + value_form, tag, kind, number, *([value, 0] if kind == short else [value]))
    file += struct.pack(order + "I4I4I", 0, *starts, *[256] * count)
    return file + b"".join(tiles)


FILES = {
    **{kind: whole(kind) for kind in SUFFIXES},
    "progressive": whole("JPEG", progressive=True),
    "thumbnail": with_thumbnail(),
    "lossless": whole("WEBP", lossless=True),
    "interlaced": whole("GIF", interlace=1),
    "grey": encode(pictures(1, SIZE)[0][..., 0], "BMP"),
    "bits": encode(pictures(1, SIZE)[0][..., 0] > 99, "PPM"),
    "grey of 16 bits": b"P5 # by a scanner\n32 24\n65535\n" + pictures(1, SIZE)[0][..., :2].tobytes(),
    "colours of 16 bits": b"P6 32 24 1023\n" + (pictures(1, (24, 32, 6))[0] & 3).tobytes(),
    "levels": b"P5\n32 24 100\n" + (pictures(1, SIZE)[0][..., 0] % 101).tobytes(),
    "TIFF of 16 bits": encode(pictures(1, SIZE)[0][..., :2].copy().view("<u2")[..., 0], "TIFF"),
    "TIFF of bytes": whole("TIFF", compression="raw"),
    "TIFF by LZW": whole("TIFF", compression="tiff_lzw"),
    "TIFF of JPEG": whole("TIFF", compression="jpeg"),
    "TIFF of strips": whole("TIFF", compression="tiff_deflate", strip_size=500),
    "TIFF of tiles": tiled_tiff("<"),
    "TIFF, big-endian": tiled_tiff(">"),
}


def folder(path: Path, **files: bytes) -> Path:
    """A folder of these pictures, each named after what it is."""
    path.mkdir(parents=True)
    for name, data in files.items():
        suffix = SUFFIXES.get(name, "jpg")
        (path / f"{name}.{suffix}").write_bytes(data)
    return path


def problem(data: bytes, *, check_end: bool = True) -> str:
    """What packing says of a picture; "" if nothing."""
    return header_problems(probe(as_spans([data]), ANY, check_end=check_end), ANY).get(0, "")


def can_be_decoded(data: bytes) -> bool:
    """Whether Pillow takes it, and so every data set that decodes with Pillow."""
    try:
        Image.open(io.BytesIO(data)).convert("RGB")
    except (OSError, SyntaxError, ValueError):
        return False
    return True


@OF_CUT_TIFFS
@pytest.mark.parametrize("kind", FILES)
def test_cut_files_are_found(kind: str) -> None:
    """A third of it is missing, or the last bytes: what Pillow refuses is a problem, and nothing else."""
    data = FILES[kind]

    assert "" == problem(data)
    assert problem(data[: len(data) * 2 // 3]) in (SENTENCE, "is a TIFF that ends within its header")
    for size in (1, 2, 3, 4, 8, 12, 13, 16, 20, 30):
        assert can_be_decoded(data[:-size]) == (problem(data[:-size]) == "")


@OF_CUT_TIFFS
@settings(max_examples=200)
@given(st.sampled_from(sorted(FILES)), st.floats(0, 1), st.binary(max_size=4))
def test_only_what_cannot_be_decoded_is_refused(kind: str, part: float, more: bytes) -> None:
    """Whatever is cut off or put behind: a picture that Pillow decodes is packed, and most others are not."""
    data = FILES[kind]
    size = 40 + round(part * (len(data) - 40))
    changed = data[:size] + more

    if problem(changed):
        assert not can_be_decoded(changed)
    elif size < len(data) and not more and kind not in ("GIF", "interlaced"):
        assert can_be_decoded(changed)


def test_pixels_without_an_end_are_read_as_by_pillow(tmp_path: Path) -> None:
    """A PNG without IEND, without the checksum before it, and a GIF without a trailer are packed and decoded."""
    values = {"IEND": FILES["PNG"][:-12], "sums": FILES["PNG"][:-20], "GIF": FILES["GIF"][:-1]}

    report = pack(open_source(folder(tmp_path / "photos", **values)), tmp_path / "s.lmdb")

    assert 3 == report.packed
    (images,) = FastLoader(tmp_path / "s.lmdb", 3, threads=1)
    rows = FastDataset(tmp_path / "s.lmdb")
    for number, name in enumerate(sorted(values)):
        pixels = np.asarray(Image.open(io.BytesIO(values[name])).convert("RGB"))
        assert np.array_equal(pixels, np.asarray(rows[number].convert("RGB")))
        assert np.array_equal(pixels, images[number].permute(1, 2, 0))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "PPM", "thumbnail", "interlaced"])
def test_bytes_behind_the_end_are_no_damage(kind: str) -> None:
    """Cameras and scanners write some."""
    assert "" == problem(FILES[kind] + b"more of it \xff")


def test_a_bomb_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture that looks cut off and is larger than allowed is refused for its size."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)

    assert "decompression bomb" in problem(FILES["JPEG"][:-2])
    assert "decompression bomb" in problem(FILES["PNG"][:-20])


@pytest.mark.parametrize("options", [{}, {"jump": True}], ids=["plain", "jump"])
@pytest.mark.parametrize("name", ["s.lmdb", "s-%02d.tar"])
def test_packing_stops_or_lists_them(tmp_path: Path, options: dict[str, bool], name: str) -> None:
    """The same sentence from every way of packing; what is left is whole."""
    source = folder(tmp_path / "photos", whole=FILES["JPEG"], thumbnail=FILES["thumbnail"][:-40])
    with pytest.raises(SourceError, match=rf"thumbnail\.jpg: {SENTENCE}; .*--on-error skip"):
        pack(open_source(source), tmp_path / name, **options)

    report = pack(open_source(source), tmp_path / name, on_error="skip", **options)

    assert [("thumbnail.jpg", SENTENCE)] == [(each.key, each.problem) for each in report.skipped]
    with open_store(report.path) as store:
        assert [{"key": "thumbnail.jpg", "problem": SENTENCE}] == store.metadata["skipped"]
    assert () == tuple(verify(report.path, decode=True).problems)


def test_masks(tmp_path: Path) -> None:
    """A mask's problem names its field."""
    mask = encode(np.zeros((24, 32), np.uint8))
    for name, data in (("images", FILES["PNG"]), ("masks", mask[: len(mask) // 2])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.png").write_bytes(data)
    source = open_source(tmp_path / "images", fields=[parse_choice("mask=masks/")])

    with pytest.raises(SourceError, match=f"field 'mask' {SENTENCE}"):
        pack(source, tmp_path / "s.lmdb")


def test_what_was_packed_is_copied(tmp_path: Path) -> None:
    """A store of an earlier version may hold some: its bytes stay."""
    values = [FILES["JPEG"], FILES["PNG"][:-30]]
    old = write_store(tmp_path / "old.lmdb", values, np.arange(2))

    pack(open_source(old), tmp_path / "new.h5")

    with open_store(tmp_path / "new.h5") as store:
        assert values == [view.tobytes() for view in store.spans("image", np.arange(2)).views()]


WRITERS: dict[str, Callable[[Path, list[bytes]], object]] = {
    "pack": lambda path, values: fastio.pack([{"image": value} for value in values], path),
    "jobs": lambda path, values: fastio.pack([{"image": value} for value in values * 20], path, jobs=2),
}


@pytest.mark.parametrize("how", WRITERS)
def test_python_writes_none(tmp_path: Path, how: str) -> None:
    """fastio.pack names the sample, in workers too."""
    with pytest.raises(SampleError, match=SENTENCE):
        WRITERS[how](tmp_path / "s.lmdb", [FILES["JPEG"], FILES["GIF"][:-200]])


def test_a_write_raises_for_its_own_sample(tmp_path: Path) -> None:
    """A program that guards each write goes on with the next sample."""
    with fastio.Writer(tmp_path / "s.lmdb", {"image": "image"}) as out:
        with pytest.raises(SampleError, match=SENTENCE):
            out.write({"image": FILES["PNG"][:-100]}, key="bad")
        out.write({"image": FILES["PNG"]}, key="good")

    assert 1 == out.report.packed
