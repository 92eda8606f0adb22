"""The places of restart intervals in the index: kept with their samples, optional, refused where they contradict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastio._native import Buffers
from fastio.errors import SchemaError, StoreCorrupt
from fastio.store import SampleBatch, create_store, open_store
from fastio.store.spool import Spool
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
    rows, in_all = Spool.rows, sum(map(len, PLACES))

    def lose_a_place(self: Spool, *part: int) -> NDArray[Any]:
        is_places = not part and self._dtype == np.uint32 and len(self) == in_all
        return rows(self, *part)[: len(self) - is_places]

    monkeypatch.setattr(Spool, "rows", lose_a_place)
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
