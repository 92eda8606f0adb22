"""``pack --resize``: every picture has one exact size, with the pixels that Pillow's resize gives."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastio import FastDataset, FastLoader
from fastio.converters import Raw, Transcode, open_source, pack
from fastio.converters.inspect.verify import verify
from fastio.converters.pictures import raw
from fastio.store import open_store
from tests.commands import run
from tests.converters.trees import class_folders, picture


def encoded(image, kind, **options):
    """A picture's bytes."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def noise(mode, size, seed=0):
    """A picture of this mode and (width, height)."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 4), np.uint8)
    return Image.fromarray(pixels, "RGBA").convert(mode)


MIXED = {
    "a/cmyk.jpg": encoded(noise("CMYK", (30, 21)), "JPEG"),
    "a/exact.jpg": encoded(noise("RGB", (20, 12)), "JPEG"),
    "a/exact.png": encoded(noise("RGB", (20, 12)), "PNG"),
    "a/grey.jpg": encoded(noise("L", (50, 40)), "JPEG"),
    "a/photo.jpg": encoded(noise("RGB", (64, 48)), "JPEG", quality=95),
    "a/small.png": encoded(noise("RGB", (5, 7)), "PNG"),
    "b/alpha.png": encoded(noise("RGBA", (40, 31)), "PNG"),
    "b/bitmap.bmp": encoded(noise("RGB", (33, 22)), "BMP"),
    "b/grey.png": encoded(noise("L", (33, 22)), "PNG"),
    "b/grey_alpha.png": encoded(noise("LA", (33, 22)), "PNG"),
    "b/palette.png": encoded(noise("RGB", (33, 22)).quantize(16), "PNG"),
    "b/really_png.jpg": encoded(noise("RGB", (33, 22)), "PNG"),
    "b/web.webp": encoded(noise("RGB", (33, 22)), "WEBP"),
}
SIZE = (12, 20)  # height, width


@pytest.fixture
def mixed(tmp_path):
    """Class folders with pictures of every kind and size."""
    for name, data in MIXED.items():
        (tmp_path / "m" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "m" / name).write_bytes(data)
    return tmp_path / "m"


def resized(data, mode=None, size=SIZE):
    """What Pillow makes of a picture."""
    with Image.open(io.BytesIO(data)) as image:
        plain = {"P": "RGB", "CMYK": "RGB"}.get(image.mode, image.mode) if mode is None else mode
        if image.size == size[::-1]:
            return np.asarray(image.convert(plain))
        return np.asarray(image.convert(plain).resize(size[::-1], Image.Resampling.BILINEAR))


@pytest.mark.parametrize("out", ["s.lmdb", "s.h5", "s.tar"])
def test_every_picture_has_the_size(mixed, tmp_path, out):
    """PNGs to the bit, JPEGs as JPEGs of Pillow's pixels; names and the report say what became of them."""
    said = run("pack", mixed, tmp_path / out, "--resize", "12x20", "--quality", 90, "--subsampling", "4:4:4")
    with open_store(tmp_path / out) as store:
        keys, shapes = store.keys(range(len(store))), store.shapes("image")
        values = {key: store.spans("image", [i]).view(0).tobytes() for i, key in enumerate(keys)}
    renamed = {"b/bitmap.bmp": "b/bitmap.png", "b/really_png.jpg": "b/really_png.png", "b/web.webp": "b/web.png"}

    assert {renamed.get(name, name) for name in MIXED} == set(keys)
    assert {SIZE} == {tuple(shape[:2]) for shape in shapes.tolist()}
    assert "resized, with loss: 11 pictures to 12x20, 8 of them as PNG; JPEG quality 90, 4:4:4, a restart" in said
    assert "unchanged: 2 pictures, of that size already" in said
    assert "named wrongly" not in said
    for name, data in MIXED.items():
        value = values[renamed.get(name, name)]
        with Image.open(io.BytesIO(value)) as image:
            expected = resized(data)
            if image.format == "PNG":
                assert np.array_equal(expected, np.asarray(image)), name
            else:
                assert value == data if "exact" in name else expected.shape == np.asarray(image).shape
                assert np.abs(expected.astype(int) - np.asarray(image)).mean() < 12, name
    assert "packing the source again with the same options" in run("verify", tmp_path / out, "--against", mixed)
    assert "resized, with loss: 11 pictures to 12x20" in run("info", tmp_path / out)


def test_jpegs_are_those_of_short_side(tmp_path):
    """A photo resized to the size that --short-side computes has the very same bytes."""
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "a.jpg").write_bytes(MIXED["a/photo.jpg"])
    values = []
    for name, options in (("a", Transcode(short_side=24)), ("b", Transcode(resize=(24, 32)))):
        pack(open_source(tmp_path / "f"), tmp_path / f"{name}.lmdb", pictures=options)
        with open_store(tmp_path / f"{name}.lmdb") as store:
            values.append(store.spans("image", [0]).view(0).tobytes())

    assert values[0] == values[1]


def test_mixed_pictures_become_raw(mixed, tmp_path):
    """RGB pixels of one size, to the bit Pillow's; lost transparency is counted."""
    said = run("pack", mixed, tmp_path / "s.h5", "--resize", "12x20", "--raw")
    dataset = FastDataset(tmp_path / "s.h5")

    assert "decoded: 13 pictures, resized to 12x20, RGB, as raw pixels; the original bytes are not kept" in said
    assert "2 pictures lost transparency" in said
    for index, key in enumerate(dataset.keys):
        assert np.array_equal(resized(MIXED[key], "RGB"), np.asarray(dataset[index][0])), key
    assert (13, 3, *SIZE) == tuple(next(iter(FastLoader(dataset, 13)))[0].shape)
    assert "packing the source again with the same options" in run("verify", tmp_path / "s.h5", "--against", mixed)


@given(
    st.sampled_from(["JPEG", "PNG"]),
    st.sampled_from(["L", "RGB", "RGBA"]),
    st.tuples(st.integers(1, 70), st.integers(1, 70)),
    st.tuples(st.integers(1, 70), st.integers(1, 70)),
)
@settings(max_examples=40, deadline=None)
def test_raw_pixels_are_pillows(tmp_path_factory, kind, mode, before, after):
    """Larger, smaller, narrower: any size from any size."""
    folder = tmp_path_factory.mktemp("r")
    data = encoded(noise("RGB" if (kind, mode) == ("JPEG", "RGBA") else mode, before), kind)
    (folder / "f").mkdir()
    (folder / "f" / f"a.{kind.lower()}").write_bytes(data)
    pack(open_source(folder / "f"), folder / "s.lmdb", pictures=Raw(after))
    with open_store(folder / "s.lmdb") as store:
        pixels = store.spans("image", [0]).view(0).reshape(*after, 3)

    assert np.array_equal(resized(data, "RGB", after), pixels)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("deep.png", encoded(Image.fromarray(np.zeros((4, 4), np.uint16)), "PNG"), "more than 8 bits per channel"),
        (
            "film.webp",
            encoded(noise("RGB", (9, 9)), "WEBP", save_all=True, append_images=[noise("RGB", (9, 9), 1)]),
            "several frames",
        ),
        ("cut.png", MIXED["b/grey.png"][:200], "cannot be decoded: its data end too early"),
        ("cut.jpg", MIXED["a/photo.jpg"][:900], "cannot be decoded"),
    ],
    ids=["deep", "film", "cut PNG", "cut JPEG"],
)
def test_what_cannot_be_resized_is_a_problem(tmp_path, name, data, words):
    """It is named; with --on-error skip the others are packed."""
    class_folders(tmp_path / "c")
    (tmp_path / "c" / "bee" / name).write_bytes(data)

    assert words in run("pack", tmp_path / "c", tmp_path / "s.lmdb", "--resize", "5x5", code=1)
    report = pack(open_source(tmp_path / "c"), tmp_path / "s.lmdb", pictures=Transcode(resize=(5, 5)), on_error="skip")
    assert [f"bee/{name}"] == [each.key for each in report.skipped]
    assert (10, 9) == (report.found, report.packed)


def test_a_name_that_is_taken(tmp_path):
    """A bitmap that would get the name of a PNG that is there."""
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "a.bmp").write_bytes(MIXED["b/bitmap.bmp"])
    (tmp_path / "f" / "a.png").write_bytes(picture(1))
    report = pack(open_source(tmp_path / "f"), tmp_path / "s.tar", pictures=Transcode(resize=(4, 4)), on_error="skip")

    assert ["a.bmp"] == [each.key for each in report.skipped]
    assert {"resized": 1, "as_png": 1} == report.packing["pictures"]
    assert [] == list(verify(tmp_path / "s.tar", decode=True).problems)


def test_rows_are_bounded_by_what_they_become(tmp_path, monkeypatch):
    """Small files that become large rows are decoded a part at a time."""
    (tmp_path / "f").mkdir()
    for i in range(8):
        (tmp_path / "f" / f"{i}.png").write_bytes(picture(i))
    monkeypatch.setattr(raw, "PART_BYTES", 2 * 3 * 100 * 100)
    stage = Raw((100, 100)).stage()
    source = open_source(tmp_path / "f")
    chunk = source.begin(source.chunks(1 << 20, 512)[0])()

    assert [2, 2, 2, 2] == [len(part.batch.keys) for part in stage.parts(chunk, source.schema)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--resize", "12"), "expected height and width in pixels, as in 224x224"),
        (("--resize", "0x4"), "expected height and width"),
        (("--resize", "4x99999"), "expected height and width"),
        (("--resize", "4x4", "--short-side", 3), "--short-side and --resize set different sizes"),
        (("--resize", "4x4", "--raw", "--quality", 3), "--quality is for resized JPEGs"),
    ],
)
def test_options_that_do_not_go_together(mixed, tmp_path, options, words):
    """One line, and nothing is written."""
    assert words in run("pack", mixed, tmp_path / "s.lmdb", *options, code=2)
    assert not (tmp_path / "s.lmdb").exists()


@pytest.mark.parametrize("size", [(0, 1), (1, 70_000)])
def test_sizes_that_cannot_be(size):
    """ValueError from Python."""
    for make in (Raw, lambda size: Transcode(resize=size)):
        with pytest.raises(ValueError, match="expected 1 to 65500"):
            make(size)
