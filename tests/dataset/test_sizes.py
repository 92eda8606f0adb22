"""Sizes of pictures as columns: from the index alone, or from the heads of pictures of other tools' files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import Subset

from fastio import FastDataset, FastLoader, SchemaError
from fastio.store.files import StoreFiles
from tests.conftest import encode, write_store
from tests.dataset.many_fields import TYPES, make_samples, write_fields

SIZES = [(20, 300), (31, 17), (9, 9), (200, 100)]


def files() -> list[bytes]:
    """Pictures of these sizes, of noise, so that they are larger than their heads."""
    draw = np.random.default_rng(1)
    return [encode(draw.integers(0, 256, (*size, 3), np.uint8)) for size in SIZES]


def test_sizes_of_a_packed_store(tmp_path: Path) -> None:
    """Heights come first; width and height are columns, also of a part; the label is still one of the store's own."""
    shapes = np.array([(*size, 3) for size in SIZES], np.int32)
    dataset = FastDataset(write_store(tmp_path / "a.lmdb", files(), np.arange(4), shapes=shapes))
    part = FastLoader(dataset, 1, indices=[3, 1]).dataset

    assert dataset.sizes().dtype == np.int64
    assert dataset.sizes().tolist() == [list(size) for size in SIZES]
    assert dataset.column("height").tolist() == [20, 31, 9, 200]
    assert dataset.column("width").tolist() == [300, 17, 9, 100]
    assert part.sizes().tolist() == [[200, 100], [31, 17]]
    assert part.column("width").tolist() == [100, 17]
    assert not isinstance(part, FastDataset)
    assert isinstance(part, Subset)


def test_no_picture_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes in the index are all that is looked at."""
    shapes = np.array([(*size, 3) for size in SIZES], np.int32)
    dataset = FastDataset(write_store(tmp_path / "a.lmdb", files(), shapes=shapes), read="pread")
    monkeypatch.setattr(type(dataset.store.files), "fetch", None)

    assert dataset.sizes().tolist() == [list(size) for size in SIZES]


def test_unknown_sizes_are_read_from_heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without sizes in the index, the first 16 KiB of each picture are fetched, once."""
    path, fetched = write_store(tmp_path / "a.lmdb", files()), list[int]()
    dataset = FastDataset(path, read="pread")
    fetch = type(dataset.store.files).fetch

    def noting(self: StoreFiles, spans: Any, **options: Any) -> Any:
        fetched.extend(spans.sizes.tolist())
        return fetch(self, spans, **options)

    monkeypatch.setattr(type(dataset.store.files), "fetch", noting)

    assert dataset.sizes().tolist() == [list(size) for size in SIZES]
    assert [min(len(value), 1 << 14) for value in files()] == fetched
    assert max(fetched) == 1 << 14 < max(map(len, files()))
    assert dataset.sizes().tolist() == [list(size) for size in SIZES]
    assert len(fetched) == 4


def test_a_long_header_is_read_whole(tmp_path: Path) -> None:
    """A JPEG whose size stands behind 30 KB of comments, and a damaged one, of which nothing is known."""
    picture = encode(np.zeros((40, 30, 3), np.uint8), "JPEG")
    comment = b"\xff\xfe\x75\x30" + bytes(0x7530 - 2)
    values = [picture[:2] + comment + picture[2:], b"\xff\xd8\xff" + bytes(40_000), picture]
    dataset = FastDataset(write_store(tmp_path / "a.lmdb", values))

    assert dataset.sizes().tolist() == [[40, 30], [0, 0], [40, 30]]


def test_sizes_of_a_field(tmp_path: Path) -> None:
    """Of a sample with several pictures, field= names one; masks and raw pictures have sizes, too."""
    names = ["image", "depth", "caption", "thumbnail"]
    dataset = FastDataset(write_fields(tmp_path / "s.h5", make_samples(3), {name: TYPES[name] for name in names}))

    assert dataset.sizes().tolist() == [[90, 70], [91, 70], [92, 70]]
    assert dataset.sizes("depth").tolist() == dataset.sizes("image").tolist()
    assert dataset.sizes("thumbnail").tolist() == [[4, 5]] * 3
    with pytest.raises(SchemaError, match="sizes are those of pictures, but 'caption' has none"):
        dataset.sizes("caption")
    with pytest.raises(SchemaError, match=r"sizes\('mask'\): no such field among 'image'"):
        dataset.sizes("mask")


def test_samples_without_pictures_have_no_width(tmp_path: Path) -> None:
    """Asked for its width, a store of numbers says which columns it has."""
    names = ["embedding", "weight"]
    dataset = FastDataset(write_fields(tmp_path / "s.h5", make_samples(3), {name: TYPES[name] for name in names}))
    with pytest.raises(SchemaError, match="no column 'width'; this store has 'weight'"):
        dataset.column("width")
