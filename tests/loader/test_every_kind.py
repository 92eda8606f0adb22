"""Every kind of picture in one store: samples, lazy pictures and batches have Pillow's pixels; damage is named."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fastio import FastDataset, FastLoader, SampleError
from fastio.transforms import CenterCrop
from tests.conftest import write_store

SIZE = (66, 75)  # height and width, large enough for dataset[i] to be lazy


def files() -> dict[str, bytes]:
    """The same picture, of colours that change slowly, in every kind."""
    y, x = np.indices(SIZE)
    pixels = np.stack([x * 3 + y, y * 3, 255 - x - y * 2], -1).clip(0, 255).astype(np.uint8)
    image = Image.fromarray(pixels)
    deep = Image.fromarray(pixels[..., 0].astype(np.uint16) * 2)
    kinds = {
        "JPEG": (image, "JPEG", {}),
        "progressive JPEG": (image, "JPEG", {"progressive": True}),
        "CMYK JPEG": (image.convert("CMYK"), "JPEG", {}),
        "PNG": (image, "PNG", {}),
        "16-bit PNG": (deep, "PNG", {}),
        "lossy WebP": (image, "WEBP", {}),
        "lossless WebP": (image, "WEBP", {"lossless": True}),
        "BMP": (image, "BMP", {}),
        "GIF": (image.quantize(16), "GIF", {}),
        "bits": (image.convert("1"), "PPM", {}),
        "grey PNM": (image.convert("L"), "PPM", {}),
        "PNM": (image, "PPM", {}),
        "TIFF": (image, "TIFF", {}),
    }
    written = {}
    for name, (picture, kind, options) in kinds.items():
        file = io.BytesIO()
        picture.save(file, kind, **options)
        written[name] = file.getvalue()
    deep_pnm = b"P5 %d %d 65535\n" % deep.size + np.asarray(deep).astype(">u2").tobytes()  # Pillow 10 writes none
    return written | {"16-bit PNM": deep_pnm}


FILES = files()
DAMAGED = [file[: len(file) // 2] for file in FILES.values()]


def by_pillow(file: bytes) -> Image.Image:
    """The picture in RGB."""
    return Image.open(io.BytesIO(file)).convert("RGB")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store: each kind, and behind them each kind cut in the middle."""
    values = [*FILES.values(), *DAMAGED]
    shapes = np.array([(*SIZE, 3)] * len(values), np.int32)
    return write_store(tmp_path_factory.mktemp("kinds") / "s.lmdb", values, np.arange(len(values)), shapes=shapes)


def pixels_of(image: object) -> NDArray[np.uint8]:
    """A PIL image's pixels."""
    return np.asarray(image, np.uint8)


@pytest.mark.parametrize("index", range(len(FILES)), ids=list(FILES))
def test_samples_and_lazy_pictures(path: Path, index: int) -> None:
    """dataset[i], and a crop and a resize of it that are asked for before anything is decoded."""
    expected, dataset = by_pillow([*FILES.values()][index]), FastDataset(path)
    box = (5, 9, 61, 50)

    np.testing.assert_array_equal(pixels_of(expected), pixels_of(dataset[index][0]))
    np.testing.assert_array_equal(pixels_of(expected.crop(box)), pixels_of(dataset[index][0].crop(box)))
    smaller = expected.crop(box).resize((20, 30), Image.Resampling.BILINEAR)
    lazy = dataset[index][0].crop(box).resize((20, 30), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(pixels_of(smaller), pixels_of(lazy))


@pytest.mark.parametrize("size", [None, (40, 51)])
def test_batches(path: Path, size: tuple[int, int] | None) -> None:
    """FastLoader gives the same pixels, whole and cropped, and leaves out all that is damaged, by name."""
    transforms = [] if size is None else [CenterCrop(size)]
    top, left = (0, 0) if size is None else (13, 12)
    height, width = size or SIZE
    with FastLoader(path, 5, threads=2, transforms=transforms, on_error="skip") as loader:
        rows = {int(label): row.clone() for images, labels in loader for label, row in zip(labels, images, strict=True)}
        skipped = {error.key for error in loader.skipped}

    assert [*range(len(FILES))] == sorted(rows)
    assert skipped == {f"a/{index:04d}.png" for index in range(len(FILES), 2 * len(FILES))}
    for index, (name, file) in enumerate(FILES.items()):
        expected = pixels_of(by_pillow(file))[top : top + height, left : left + width]
        np.testing.assert_array_equal(expected, rows[index].numpy().transpose(1, 2, 0), err_msg=name)


@pytest.mark.parametrize("kind", range(len(FILES)), ids=list(FILES))
def test_damage_is_named(path: Path, kind: int) -> None:
    """A sample that is cut raises SampleError with its key, as a picture and as a crop of its lowest rows."""
    index = len(FILES) + kind
    for box in ((0, 0, *SIZE[::-1]), (0, SIZE[0] - 2, SIZE[1], SIZE[0])):
        with pytest.raises(SampleError, match=f"{index:04d}") as caught:
            FastDataset(path)[index][0].crop(box).load()
        assert caught.value.key == f"a/{index:04d}.png"
