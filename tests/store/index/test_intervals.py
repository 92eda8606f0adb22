"""
The places of restart intervals in the index: kept with their samples, optional, refused where they contradict; wrong
ones change no pixel.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fastio import _native
from fastio._native import Buffers
from fastio.errors import SchemaError, StoreCorrupt
from fastio.store import SampleBatch, create_store, open_store
from fastio.store.write.spool import Spool
from fastio.types.spans import Spans
from tests.store.build import LABELLED, make_batch

PLACES = [[7, 9], [], [100, 200, 300], [5]]


def spans_of(places: list[list[int]]) -> Spans:
    """Places as spans over one buffer of uint32."""
    flat = np.array([place for each in places for place in each], "<u4")
    sizes = np.array([4 * len(each) for each in places], np.int64)
    return Spans(Buffers([flat.view(np.uint8)]), np.zeros(len(places), np.int32), np.cumsum(sizes) - sizes, sizes)


def batch_of(places: list[list[int]] | None, first: int = 0) -> SampleBatch:
    """Samples of LABELLED that come with these places."""
    count = 4 if places is None else len(places)
    batch = make_batch([f"{first + i}.jpg" for i in range(count)], [bytes(500)] * count)
    if places is not None:
        spans = batch.spans["image"]
        known = Spans(spans.buffers, spans.shard, spans.starts, spans.sizes, None, spans_of(places))
        return SampleBatch(batch.keys, {"image": known}, batch.columns)
    return batch


def read(path: Path, indices: list[int]) -> list[list[int]]:
    """The places of these samples."""
    with open_store(path) as store:
        spans = store.spans("image", np.array(indices))
        assert spans.intervals is not None
        return [view.view("<u4").tolist() for view in spans.intervals.views()]


@pytest.mark.parametrize("name", ["s.lmdb", "s.h5", "s.tar", "s-%02d.tar"])
def test_places_stay_with_their_samples(tmp_path: Path, name: str) -> None:
    """In any order, over shards, and where only some batches have them."""
    shard_bytes = 2000 if "%" in name else None
    with create_store(tmp_path / name, LABELLED, shard_bytes=shard_bytes) as writer:
        writer.append(batch_of(PLACES))
        writer.append(batch_of(None, first=4))
        writer.append(batch_of(PLACES[::-1], first=8))

    expected = [*PLACES, [], [], [], [], *PLACES[::-1]]
    order = [11, 2, 0, 6, 3, 9]
    assert [expected[i] for i in order] == read(tmp_path / name, order)


def test_without_places_there_is_nothing(tmp_path: Path) -> None:
    """A store of other pictures has no such arrays."""
    with create_store(tmp_path / "s.lmdb", LABELLED) as writer:
        writer.append(batch_of(None))
    with open_store(tmp_path / "s.lmdb") as store:
        assert store.spans("image", np.arange(4)).intervals is None
    assert b"image_interval" not in (tmp_path / "s.lmdb").read_bytes()


def test_counts_that_do_not_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """StoreCorrupt on opening where the index contradicts itself."""
    append = Spool.append

    def lose_a_place(self: Spool, rows: NDArray[Any]) -> None:
        is_places = self.dtype == np.uint32 and np.array_equal(rows, PLACES[-1])
        append(self, rows[: len(rows) - is_places])

    monkeypatch.setattr(Spool, "append", lose_a_place)
    with create_store(tmp_path / "s.lmdb", LABELLED) as writer:
        writer.append(batch_of(PLACES))

    with pytest.raises(StoreCorrupt, match="'image_intervals' and '_interval_counts' differ"):
        open_store(tmp_path / "s.lmdb")


def test_places_of_odd_sizes_are_refused(tmp_path: Path) -> None:
    """A writer takes whole numbers of four bytes only."""
    odd = Spans(Buffers([np.zeros(5, np.uint8)]), np.zeros(1, np.int32), np.zeros(1, np.int64), np.array([5]))
    spans = make_batch(["a"], [b"x"]).spans["image"]
    known = Spans(spans.buffers, spans.shard, spans.starts, spans.sizes, None, odd)
    with (
        create_store(tmp_path / "s.lmdb", LABELLED) as writer,
        pytest.raises(SchemaError, match="intervals of 4 bytes"),
    ):
        writer.append(SampleBatch(["a"], {"image": known}, {"label": np.zeros(1, np.int64)}))


def marked_jpeg(seed: int) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """A JPEG of noise, 200x160, with a restart marker behind every MCU, and the words that say where they are."""
    file = io.BytesIO()
    noise = np.random.default_rng(seed).integers(0, 256, (20, 25, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    Image.fromarray(noise).save(file, "JPEG")
    made = _native.Transcoded(1)
    plain = np.frombuffer(file.getvalue(), np.uint8)
    _native.transcode_images(Spans.of(plain, np.zeros(1, np.int64), np.array([len(plain)])), made, restart=1).wait()
    data, _, _, words, _ = made.take(_native.BufferRing(1))
    return data.copy(), words.copy()


def crops(data: NDArray[np.uint8], hints: list[NDArray[np.uint32]] | None, *, count: int = 1) -> NDArray[np.uint8]:
    """The same crop ``count`` times, or once with each of the hints; all must be sound."""
    count = count if hints is None else len(hints)
    places = None
    if hints is not None:
        joined = np.concatenate([*hints, np.zeros(1, np.uint32)])
        places = Spans.joined(joined.view(np.uint8), np.array([4 * len(each) for each in hints]))
    spans = Spans.of(data, np.zeros(count, np.int64), np.full(count, len(data)), intervals=places)
    plan = np.tile(np.array([80, 90, 90, 60, 90, 60, 0, 0, 90, 60, 0, 0, 0], np.int32), (count, 1))
    out, status = np.zeros((count, 60, 90, 3), np.uint8), np.ones(count, np.int32)
    _native.decode_transformed(spans, plan, out, status, filter=0, fill=b"\0\0\0").wait()
    assert [0] * count == status.tolist()
    return out


def flipped(words: NDArray[np.uint32]) -> list[NDArray[np.uint32]]:
    """The words with each bit flipped."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    return [
        np.concatenate([words[:i], words[i : i + 1] ^ bit, words[i + 1 :]]) for i in range(len(words)) for bit in bits
    ]


def of_another_file(words: NDArray[np.uint32]) -> list[NDArray[np.uint32]]:
    """The words of other JPEGs."""
    return [marked_jpeg(seed)[1] for seed in range(1, 9)]


def cut_and_moved(words: NDArray[np.uint32]) -> list[NDArray[np.uint32]]:
    """The words without one of them, or up to one, or with two of them exchanged."""
    moved = [np.delete(words, i) for i in range(len(words))] + [words[:i] for i in range(len(words))]
    return moved + [np.concatenate([words[:i], words[i : i + 2][::-1], words[i + 2 :]]) for i in range(len(words) - 1)]


def without_a_checksum(words: NDArray[np.uint32]) -> list[NDArray[np.uint32]]:
    """Places alone, as fastio 0.1.0 wrote them: right, and an entry off."""
    places = ~words[2:]
    return [places, places[1:], places[::-1].copy()]


@pytest.mark.parametrize("wrong", [flipped, of_another_file, cut_and_moved, without_a_checksum])
def test_wrong_places_change_no_pixel(wrong: Callable[[NDArray[np.uint32]], list[NDArray[np.uint32]]]) -> None:
    """Nor do they make a sound JPEG a damaged one: markers are searched for instead."""
    data, words = marked_jpeg(0)
    hints = wrong(words)

    assert np.array_equal(crops(data, None, count=len(hints)), crops(data, hints))


def test_places_are_used() -> None:
    """Damage between two places is not met by a crop behind it, where the decoder jumps; searching meets it."""
    data, words = marked_jpeg(0)
    places = (~words[2:]).astype(np.int64)
    sound = crops(data, [words])
    data[places[0] - 1] = 0xD0  # a wrong marker: RST0 for RST7

    assert np.array_equal(sound, crops(data, [words]))
    with pytest.raises(AssertionError):
        crops(data, None)
