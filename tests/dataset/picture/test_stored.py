"""Large photos of a store with start points: several threads decode one, to the pixels that one thread gives."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader

from fastio import FastDataset, _native
from fastio.converters import open_source, pack
from fastio.dataset.picture import stored
from fastio.types.spans import Spans

WIDTH, HEIGHT = 1300, 1000  # more than the million pixels from which on a photo is shared out


def photo(width: int, height: int) -> Image.Image:
    """A photo of noise, decoded from the JPEG that the stores have."""
    pixels = np.random.default_rng(0).integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels.repeat(8, 0).repeat(8, 1)[:height, :width]).save(file, "JPEG")
    return Image.open(file)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A large and a small photo, with and without start points."""
    folder = tmp_path_factory.mktemp("photos")
    (folder / "photos" / "a").mkdir(parents=True)
    for name, size in (("large", (WIDTH, HEIGHT)), ("small", (300, 200))):
        picture = photo(*size)
        assert picture.fp is not None
        picture.fp.seek(0)
        (folder / "photos" / "a" / f"{name}.jpg").write_bytes(picture.fp.read())
    for name, jump in (("jump", True), ("plain", False)):
        pack(open_source(folder / "photos", kind="imagefolder"), folder / f"{name}.lmdb", jump=jump)
    return {name: folder / f"{name}.lmdb" for name in ("jump", "plain")}


@pytest.fixture(scope="module", autouse=True)
def four_cpus() -> Iterator[None]:
    """Four CPUs, however many there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "available_cpus", lambda: 4)
        yield


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many threads a process has lent, one entry for each time."""
    pools, counts = [], list[int]()

    def new_pool(count: int) -> _native.ThreadPool:
        counts.append(count)
        pools.append(_native.ThreadPool(count))
        return pools[-1]

    monkeypatch.setattr(stored, "_threads", lambda _, count: new_pool(count))
    yield counts
    for pool in pools:
        pool.close()


PHOTO = photo(WIDTH, HEIGHT)


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_pixels_are_pillows(stores: dict[str, Path], data: st.DataObject) -> None:
    """Of any box at any size, mirrored or not."""
    left, top = data.draw(st.integers(0, WIDTH - 1)), data.draw(st.integers(0, HEIGHT - 1))
    right, bottom = data.draw(st.integers(left + 1, WIDTH)), data.draw(st.integers(top + 1, HEIGHT))
    size = data.draw(st.none() | st.tuples(st.integers(1, 300), st.integers(1, 300)))
    is_mirrored = data.draw(st.booleans())

    def pixels(picture: Image.Image) -> bytes:
        part = picture.crop((left, top, right, bottom))
        part = part if size is None else part.resize(size, Image.Resampling.BILINEAR)
        part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if is_mirrored else part
        return np.asarray(part).tobytes()

    assert pixels(PHOTO) == pixels(FastDataset(stores["jump"])[0][0])


def test_whole_photos_are_pillows(stores: dict[str, Path], lent: list[int]) -> None:
    """Four threads decode the large one."""
    assert np.asarray(PHOTO).tobytes() == np.asarray(FastDataset(stores["jump"])[0][0]).tobytes()
    assert [4] == lent


def test_other_photos_are_left_to_one_thread(stores: dict[str, Path], lent: list[int]) -> None:
    """Small ones, those without start points, and all where there is one CPU."""
    np.asarray(FastDataset(stores["jump"])[1][0])
    np.asarray(FastDataset(stores["plain"])[0][0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "available_cpus", lambda: 1)
        np.asarray(FastDataset(stores["jump"])[0][0])

    assert [] == lent


def test_threads_are_lent_to_one_at_a_time(stores: dict[str, Path], lent: list[int]) -> None:
    """Another Python thread decodes alone meanwhile."""
    dataset = FastDataset(stores["jump"])
    spans: Spans = dataset.store.spans("image", np.arange(1))
    with stored.free_threads(spans, WIDTH * HEIGHT) as first, ThreadPoolExecutor(1) as other:
        assert first is not None
        assert np.asarray(PHOTO).tobytes() == other.submit(lambda: np.asarray(dataset[0][0]).tobytes()).result()
    assert [4] == lent


def _lends(sample: tuple[Image.Image, int]) -> bool:
    """Whether threads are lent in this process."""
    spans = Spans.joined(np.zeros(8, np.uint8), np.array([8]))
    with stored.free_threads(Spans.joined(np.zeros(8, np.uint8), np.array([8]), intervals=spans), 1 << 24) as pool:
        return pool is not None


def test_workers_decode_alone(stores: dict[str, Path]) -> None:
    """DataLoader's workers share the CPUs."""
    dataset = FastDataset(stores["jump"])
    workers = DataLoader(dataset, batch_size=None, num_workers=1, collate_fn=_lends)

    assert [False, False] == list(workers)
    assert _lends(dataset[0])
