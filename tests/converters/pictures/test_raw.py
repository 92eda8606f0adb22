"""Decoded pixels in the place of pictures: those that Pillow gives, in bounded memory."""

from __future__ import annotations

import io
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastio._native import ThreadPool
from fastio.converters import Raw, open_source, pack
from fastio.converters.inspect.unpack import unpack
from fastio.converters.pictures import raw
from fastio.converters.pictures.raw import RawStage
from fastio.converters.sources.source import Chunk
from fastio.errors import SourceError
from fastio.store import SampleBatch, open_store
from tests.codec.png_writer import chunk
from tests.conftest import as_spans
from tests.converters.pictures.test_transcode import folder, jpeg, packed, photo, pixels
from tests.converters.trees import files_below, picture


@pytest.mark.parametrize("suffix", [".lmdb", ".h5", ".tar"])
def test_raw_keeps_the_pixels(tmp_path, suffix):
    """Decoded pixels of JPEG, PNG and BMP, as Pillow gives them."""
    files = {
        "a.jpg": jpeg(1, (20, 10)),
        "b.png": picture(2, size=(20, 10)),
        "c.bmp": picture(3, kind="BMP", size=(20, 10)),
    }
    out = tmp_path / f"out{suffix}"
    new = packed(folder(tmp_path / "in", files), out, Raw())

    assert {key: pixels(data).tobytes() for key, data in files.items()} == new
    with open_store(out) as store:
        assert ("raw", (10, 20, 3)) == (store.schema["image"].codec, store.schema["image"].shape)


@pytest.mark.parametrize("part_bytes", [1, 1 << 20])
def test_a_source_that_knows_no_sizes(tmp_path, monkeypatch, part_bytes):
    """Pictures whose sizes a source does not tell are looked at; one without a header is a problem by name."""
    monkeypatch.setattr(raw, "PART_BYTES", part_bytes)
    files = {f"{name}.png": picture(number, size=(20, 10)) for number, name in enumerate("abcd")}
    source = open_source(folder(tmp_path / "in", files))
    whole = source.begin(range(4))().batch
    spans = as_spans([*(value.tobytes() for value in whole.spans["image"].views()), b"no picture"])
    unsized = SampleBatch([*whole.keys, "e.png"], {"image": spans}, {}, {})
    stage, pool = RawStage(Raw()), ThreadPool(1)
    parts = [stage.begin(each, source.schema, pool)() for each in stage.parts(Chunk(unsized, ()), source.schema)]
    found = [bytes(row) for part in parts for row in part.batch.spans["image"].views()]

    assert [pixels(data).tobytes() for data in files.values()] == found
    assert [("e.png", "is not an image: its first bytes are those of no known kind")] == [
        (problem.key, problem.problem) for part in parts for problem in part.problems
    ]


def test_raw_pictures_are_unpacked_as_png(tmp_path):
    """Files with the same pixels, under names that are true, and the report says that they are not the originals."""
    files = {"a.jpg": jpeg(1, (20, 10)), "b.png": picture(2, size=(20, 10))}
    packed(folder(tmp_path / "in", files), tmp_path / "s.lmdb", Raw())
    with open_store(tmp_path / "s.lmdb") as store:
        report = unpack(store, tmp_path / "again")
    found = files_below(tmp_path / "again")

    assert ["a.jpg.png", "b.png"] == list(found)
    assert all(b"\x89PNG" == data[:4] for data in found.values())
    assert [pixels(data).tolist() for data in files.values()] == [pixels(data).tolist() for data in found.values()]
    assert "the original bytes are not kept" in report.notes[0]


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"data": picture(1, size=(7, 5))}, r"b\.png: is 5x7x3, but 'a\.png' is 5x6x3 \(height x width x channels\)"),
        ({"data": picture(1, mode="L")}, r"b\.png: is 5x6x1, but 'a\.png' is 5x6x3"),
        ({"data": "deep"}, r"b\.png: has 16 bits per channel"),
        ({"data": "cut"}, r"b\.png: cannot be decoded: its data"),
    ],
)
def test_raw_names_what_does_not_fit(tmp_path, second, words):
    """Another size, other channels, more bits, damage: the error names the picture, skipping puts it on record."""
    data = second["data"]
    if data == "deep":
        file = io.BytesIO()
        Image.fromarray(np.zeros((5, 6), np.uint16)).save(file, "PNG")
        data = file.getvalue()
    elif data == "cut":
        data = picture(1)[:60]
    source = folder(tmp_path / "in", {"a.png": picture(0), "b.png": data})
    with pytest.raises(SourceError, match=words):
        packed(source, tmp_path / "out.lmdb", Raw())
    new = packed(source, tmp_path / "out.lmdb", Raw(), on_error="skip")

    assert ["a.png"] == list(new)


def test_raw_decodes_no_more_than_a_part_at_once(tmp_path, monkeypatch):
    """Small files of large pictures are cut by their pixels; the store is the same."""
    blank = io.BytesIO()
    Image.new("RGB", (200, 100)).save(blank, "PNG")
    source = folder(tmp_path / "in", {f"{i}.png": blank.getvalue() for i in range(9)} | {"cut.png": damaged_png()})
    pack(open_source(source), tmp_path / "whole.tar", pictures=Raw(), on_error="skip")
    counts = []
    begin = RawStage.begin

    def counting(stage: RawStage, chunk: Chunk, *rest: Any) -> Any:
        counts.append(len(chunk.batch.keys))
        return begin(stage, chunk, *rest)

    monkeypatch.setattr(RawStage, "begin", counting)
    monkeypatch.setattr(raw, "PART_BYTES", 4 * 200 * 100 * 3)
    pack(open_source(source), tmp_path / "parts.tar", pictures=Raw(), on_error="skip")

    assert [4, 4, 2] == counts
    assert (tmp_path / "whole.tar").read_bytes() == (tmp_path / "parts.tar").read_bytes()


def damaged_png() -> bytes:
    """A PNG of 200 x 100 pixels with whole chunks, of which the pixels end too early."""
    file = io.BytesIO()
    photo(1, (200, 100)).save(file, "PNG")
    pixels = zlib.compress(bytes(100 * (1 + 3 * 200)))
    return file.getvalue()[:33] + chunk(b"IDAT", pixels[: len(pixels) // 2]) + chunk(b"IEND", b"")


def test_no_memory_for_pixels_is_one_line(tmp_path, monkeypatch):
    """Raw pixels that do not fit in memory stop the run, also when bad samples are skipped."""

    class Full:
        def acquire(self, size: int) -> Any:
            raise MemoryError

    monkeypatch.setattr(raw._native, "BufferRing", lambda _: Full())
    stage = Raw().stage()
    monkeypatch.undo()
    monkeypatch.setattr(Raw, "stage", lambda *_: stage)
    source = folder(tmp_path / "in", {"a.png": picture(0)})
    with pytest.raises(SourceError, match=r"not enough memory for the pixels of 1 pictures of 5x6x3 \(90 bytes\)"):
        packed(source, tmp_path / "out.lmdb", Raw(), on_error="skip")
