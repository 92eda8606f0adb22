"""Decoders side by side: the same pictures, rates of each, differences that are true."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastio.errors import FastioError, SampleError
from fastio.measure.settings import decode
from fastio.measure.settings.decode import compare_decoders, sample_pictures
from tests.conftest import encode, pictures, write_store


def photos(count: int = 6) -> list[bytes]:
    """JPEGs of different sizes that are smooth, as photos are."""
    made = []
    for number in range(count):
        small = Image.fromarray(pictures(1, (9, 12, 3), seed=number)[0])
        made.append(encode(np.asarray(small.resize((200 + 8 * number, 160), Image.Resampling.BICUBIC)), "JPEG"))
    return made


def test_png_is_exact() -> None:
    """Without a crop: Pillow and fastio give the same pixels, and there is no fast mode."""
    rates = compare_decoders([encode(pixels) for pixels in pictures(5)], rounds=2, seconds=0.01)
    ours = rates[-1]

    assert ours.name == "fastio, exact"
    assert rates[0].name.startswith("Pillow")
    assert (ours.mean_difference, ours.p99_difference, ours.max_difference) == (0.0, 0.0, 0)
    assert all(
        0 < rate.slowest_images_per_cpu_s <= rate.images_per_cpu_s <= rate.fastest_images_per_cpu_s for rate in rates
    )


def test_different_sizes_without_a_crop() -> None:
    """Pictures of different sizes are decoded one by one."""
    assert compare_decoders(photos(), rounds=1, seconds=0.01)[-1].max_difference <= 2


def test_a_crop_has_a_fast_mode() -> None:
    """Exact stays next to Pillow; fast may differ, and by how much is measured."""
    rates = {rate.name: rate for rate in compare_decoders(photos(), crop=24, rounds=1, seconds=0.01)}

    assert rates["fastio, exact"].max_difference <= 2
    assert rates["fastio, fast"].mean_difference >= rates["fastio, exact"].mean_difference


def test_photos_have_start_points(caplog: pytest.LogCaptureFixture) -> None:
    """As pack gives them: so nobody is told to add them to a store that goes away."""
    photo = encode(pictures(1, (400, 500))[0], "JPEG")
    compare_decoders([photo] * 3, crop=32, rounds=1, seconds=0)

    assert [] == caplog.messages


def test_differences_are_counted() -> None:
    """Mean, 99th percentile and maximum of all values, from a planted difference."""
    zeros = np.zeros((10, 10, 3), np.uint8)
    other = zeros.copy()
    other[0, 0, 0], other[0, 0, 1:] = 200, 7

    assert decode._difference([zeros], iter([other])) == (pytest.approx(214 / 300), 0.0, 200)
    with pytest.raises(FastioError, match="another decoder"):
        decode._difference([zeros], iter([other[1:]]))


def test_opencv_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenCV joins in, in one thread, with its BGR turned round."""
    reference = pictures(3)
    answers = iter([pixels[:, :, ::-1] for pixels in reference])
    fake = types.ModuleType("cv2")
    fake.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
    fake.__version__ = "4.0"  # type: ignore[attr-defined]
    fake.IMREAD_COLOR = fake.IMREAD_IGNORE_ORIENTATION = fake.COLOR_BGR2RGB = 0  # type: ignore[attr-defined]
    fake.setNumThreads = lambda count: None  # type: ignore[attr-defined]
    fake.imdecode = lambda data, flags: next(answers, None)  # type: ignore[attr-defined]
    fake.cvtColor = lambda pixels, code: pixels[:, :, ::-1]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cv2", fake)
    found = list(decode._opencv_pictures([b"x"] * 3, None))

    assert all(np.array_equal(*pair) for pair in zip(reference, found, strict=True))
    with pytest.raises(SampleError, match="OpenCV cannot decode"):
        list(decode._opencv_pictures([b"x"], None))


def test_pictures_of_a_store_and_of_a_folder(tmp_path: Path) -> None:
    """Spread evenly, first and last included, never more than there are."""
    values = [encode(pixels) for pixels in pictures(9)]
    for number, value in enumerate(values):
        (tmp_path / f"{number}.png").write_bytes(value)
    store = write_store(tmp_path / "s.lmdb", values)

    assert [values[0], values[4], values[8]] == sample_pictures(str(store), 3) == sample_pictures(str(tmp_path), 3)
    assert len(sample_pictures(str(store), 100)) == 9


def test_a_broken_picture_is_named() -> None:
    """The comparison ends with the picture's number."""
    with pytest.raises(SampleError, match="picture 1 of 2"):
        compare_decoders([encode(pictures(1)[0]), b"nothing"], rounds=1, seconds=0.01)
