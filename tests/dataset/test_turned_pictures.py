"""Pictures whose size in the file is not the one that Pillow decodes them to."""

from __future__ import annotations

import io
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fastio import FastDataset, FastLoader
from fastio.converters import open_source, pack
from fastio.converters.contact_sheet import shown_samples
from fastio.converters.verify import verify
from fastio.store import open_store
from tests.conftest import pictures, write_store

ORIENTATION = 274
PIXELS = pictures(1, (6, 9, 3))[0]


def tiff(orientation: int, **options: Any) -> bytes:
    """Pixels of 6 x 9 (height x width) under this orientation."""
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "TIFF", tiffinfo={ORIENTATION: orientation}, **options)
    return file.getvalue()


def gif(screen: tuple[int, int]) -> bytes:
    """A first frame of 9 x 6 (width x height) on a logical screen of another size."""
    file = io.BytesIO()
    Image.fromarray(PIXELS).convert("P").save(file, "GIF", comment=b"before the frame")
    data = bytearray(file.getvalue())
    data[6:10] = struct.pack("<HH", *screen)
    return bytes(data)


def by_pillow(file: bytes) -> NDArray[np.uint8]:
    """The pixels as Pillow gives them."""
    return np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))


TIFFS = {str(orientation): tiff(orientation) for orientation in range(1, 9)}
TIFFS |= {"6-lzw": tiff(6, compression="tiff_lzw")}
GIFS = {"small": gif((4, 3)), "large": gif((12, 7))}


@pytest.mark.parametrize("name", TIFFS)
def test_read_as_pillow_gives_them(tmp_path: Path, name: str) -> None:
    """The dataset, the loader, verify and show agree with Pillow about the picture's size and pixels."""
    file = TIFFS[name]
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.tiff").write_bytes(file)
    store = tmp_path / "s.lmdb"
    pack(open_source(folder), store)
    expected = by_pillow(file)

    with open_store(store) as opened:
        assert expected.shape[:2] == tuple(opened.shapes("image")[0, :2].tolist())
        (shown,) = shown_samples(opened, count=1, size=32)
    assert isinstance(shown.picture, Image.Image)
    np.testing.assert_array_equal(expected, np.asarray(FastDataset(store)[0]))
    (batch,) = FastLoader(FastDataset(store), batch_size=1)
    np.testing.assert_array_equal(expected, batch[0].permute(1, 2, 0).numpy())
    assert [] == list(verify(store, decode=True).problems)


@pytest.mark.parametrize(("suffix", "file"), [("tiff", TIFFS["6"]), *(("gif", file) for file in GIFS.values())])
def test_read_from_shards_of_others(tmp_path: Path, suffix: str, file: bytes) -> None:
    """Without an index of ours the size comes from the header, and is the same."""
    shard = tmp_path / "s.tar"
    with tarfile.open(shard, "w") as archive:
        member = tarfile.TarInfo(f"a.{suffix}")
        member.size = len(file)
        archive.addfile(member, io.BytesIO(file))

    np.testing.assert_array_equal(by_pillow(file), np.asarray(FastDataset(shard)[0]))


def test_verify_decodes_to_the_size_in_the_index(tmp_path: Path) -> None:
    """A picture that could not be read, for its index says another size, does not pass."""
    file = tiff(6)
    store = write_store(tmp_path / "s.lmdb", [file], shapes=np.array([[6, 9, 3]], np.int32))

    (problem,) = verify(store, decode=True).problems

    assert "field 'image' is 9x6 (height x width), but the index says 6x9; pack it again" == problem.problem
