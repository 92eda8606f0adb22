"""An index is compared where it is touched, and entries are picked by one pass."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastio import _native

POOL = _native.ThreadPool(1)


def index_of(count: int, **options: Any) -> _native.SpanIndex:
    """An index of two shards; sample i has i % 5 bytes from 3 * i on."""
    numbers = np.arange(count, dtype=np.int64)
    ends = np.array([count // 2, count], np.int64)
    limits = np.full(2, 4 * count, np.int64)
    sums = np.arange(count, dtype=np.uint32) * 7
    return _native.SpanIndex(ends, limits, 3 * numbers, numbers % 5, sums, **options)


def picked(
    index: _native.SpanIndex, chosen: NDArray[np.int64], *, checksums: bool = True
) -> tuple[int | None, list[NDArray[Any]]]:
    """What ``pick`` says and writes."""
    count = len(chosen)
    out: list[Any] = [np.empty(count, np.int32), np.empty(count, np.int64), np.empty(count, np.int64)]
    sums = np.empty(count, np.uint32) if checksums else None
    return index.pick(chosen, *out, sums), [*out, *([] if sums is None else [sums])]


@pytest.mark.parametrize(("unit", "base"), [(1, 0), (1, 9), (2, 0), (4, 100)])
def test_spans_are_picked(unit: int, base: int) -> None:
    """The entries of any samples, in any order and twice, in bytes, with the shard that each lies in."""
    numbers = np.arange(100, dtype=np.int64)
    limits = np.full(2, 10_000, np.int64)
    sums = np.arange(100, dtype=np.uint32) * 7
    ends = np.array([50, 100], np.int64)
    index = _native.SpanIndex(ends, limits, 3 * numbers, numbers % 5, sums, unit=unit, base=base)
    chosen = np.random.default_rng(0).integers(0, 100, 300)
    bad, (shard, starts, sizes, found) = picked(index, chosen)
    assert bad is None
    assert shard.tolist() == (chosen >= 50).tolist()
    assert starts.tolist() == (3 * chosen * unit + base).tolist()
    assert sizes.tolist() == (chosen % 5 * unit).tolist()
    assert found.tolist() == (7 * chosen).tolist()


def test_many_samples_of_a_large_index() -> None:
    """They are looked up in the order of the index and written in that asked for; the first bad one is told."""
    count, asked = (2 << 20) + 77, 10_000
    index = index_of(count)
    chosen = np.random.default_rng(1).integers(0, count, asked)
    chosen[[17, 4_000, 9_999]] = [count - 1, 0, count - 1]
    for some in (chosen, np.sort(chosen), chosen[:4_095], chosen[:4_096]):
        bad, (shard, starts, sizes, sums) = picked(index, some)
        assert bad is None
        assert np.array_equal(shard, some >= count // 2)
        assert np.array_equal(starts, 3 * some)
        assert np.array_equal(sizes, some % 5)
        assert np.array_equal(sums, (7 * some).astype(np.uint32))
    odd = chosen // 5 * 5  # which have no bytes
    odd[[5_000, 7_000]] = [count // 5 * 5 - 2, 3]  # three, and the first of both lies further back in the index
    assert picked(index_of(count, multiple=2), odd)[0] == 5_000
    for outside in (-1, count, 2**62):
        chosen[[6_000, 6_001]] = [outside, count + 1]
        with pytest.raises(IndexError, match=f"sample {outside} of {count}"):
            picked(index, chosen)


@pytest.mark.parametrize("bad", [-1, 100, 2**62])
def test_samples_that_there_are_not(bad: int) -> None:
    """A sample outside the index is named."""
    with pytest.raises(IndexError, match=f"sample {bad} of 100"):
        picked(index_of(100), np.array([3, bad]))


def test_values_that_cannot_be() -> None:
    """A value outside of its file, or of a size that it cannot have, is told by its position."""
    assert picked(index_of(100, base=200), np.array([0, 66, 67]))[0] == 2
    assert picked(index_of(100, exact=3), np.array([3, 8, 9]))[0] == 2
    assert picked(index_of(100, multiple=2), np.array([4, 2, 3]))[0] == 2


def test_arrays_that_do_not_match_are_refused() -> None:
    """Outputs of another length, checksums of an index that has none, and pieces of other bytes are refused."""
    chosen = np.zeros(2, np.int64)
    out: list[Any] = [np.empty(2, np.int32), np.empty(2, np.int64), np.empty(2, np.int64), np.empty(2, np.uint32)]
    for number in range(4):
        short = [each[:1] if position == number else each for position, each in enumerate(out)]
        with pytest.raises(ValueError, match="expected 2"):
            index_of(100).pick(chosen, *short)
    ends, places = np.array([3], np.int64), np.zeros(3, np.int64)
    with pytest.raises(ValueError, match="no checksums"):
        _native.SpanIndex(ends, ends, places, places).pick(chosen, *out)
    with pytest.raises(ValueError, match="bytes of pieces"):
        _native.SpanIndex(ends, ends, places, places, start_pieces=pieces_of(b"12345678", 8))
    with pytest.raises(ValueError, match="expected"):
        _native.Pieces(np.zeros(8, np.uint8), np.zeros(3, np.uint32), 4)
    for size in (0, 3):
        with pytest.raises(ValueError, match="a power of two"):
            _native.Pieces(np.zeros(9, np.uint8), np.zeros(3, np.uint32), size)


def pieces_of(data: bytes, piece: int) -> _native.Pieces:
    """Bytes with right checksums."""
    sums = [zlib.crc32(data[at : at + piece]) for at in range(0, len(data), piece)]
    return _native.Pieces(np.frombuffer(data, np.uint8), np.array(sums, np.uint32), piece)


def test_pieces_are_compared_where_they_are_touched() -> None:
    """Only the pieces of the bytes asked for, and each until it was found right."""
    data = np.arange(10, dtype=np.uint8)
    sums = np.array([zlib.crc32(data[at : at + 4]) for at in (0, 4, 8)], np.uint32)
    pieces = _native.Pieces(data, sums, 4)
    data[5] ^= 1
    assert len(pieces) == 3
    assert pieces.compare(0, 4) is None
    assert pieces.compare(8, 10) is None
    assert pieces.compare(3, 10) == 1
    assert pieces.compare(5, 5) is None
    assert not pieces.is_whole
    data[5] ^= 1
    assert pieces.compare(0, 10) is None
    assert pieces.is_whole
    with pytest.raises(ValueError, match="bytes 3 to 11 of 10"):
        pieces.compare(3, 11)


def checked(starts: NDArray[np.int64]) -> tuple[_native.SpanIndex, _native.Pieces]:
    """An index of values of one byte, and its starts in pieces of two; those on disk may be damaged later."""
    numbers = np.arange(len(starts), dtype=np.int64)
    sums = [zlib.crc32(numbers[at : at + 2].tobytes()) for at in range(0, len(numbers), 2)]
    pieces = _native.Pieces(starts.view(np.uint8), np.array(sums, np.uint32), 16)
    ends, ones = np.array([len(starts)], np.int64), np.ones_like(starts)
    return _native.SpanIndex(ends, ends, starts, ones, start_pieces=pieces), pieces


@given(st.data())
def test_a_look_ahead_changes_nothing(data: st.DataObject) -> None:
    """Pieces are compared before a look-up needs them; it finds the same, and the damage at the same sample."""
    starts = np.arange(data.draw(st.integers(1, 2500)), dtype=np.int64)
    chosen = np.array(data.draw(st.lists(st.integers(0, len(starts) - 1), max_size=60)), np.int64)
    damaged = data.draw(st.lists(st.integers(0, len(starts) - 1), max_size=3))
    starts[damaged] ^= 64
    plain, ahead = checked(starts)[0], checked(starts)[0]
    job = ahead.look_ahead(chosen, data.draw(st.sampled_from([None, POOL])), checksums=False)
    assert job is not None
    assert job.wait()
    bad, expected = picked(plain, chosen, checksums=False)
    found, values = picked(ahead, chosen, checksums=False)
    assert found == bad
    assert [each[:bad].tolist() for each in values] == [each[:bad].tolist() for each in expected]


def test_what_was_compared_needs_no_look_ahead() -> None:
    """A job compares; once all is, there is none. Samples that there are not are left to the look-up."""
    index, pieces = checked(np.arange(6, dtype=np.int64))
    job = index.look_ahead(np.array([0, 3, -1, 6], np.int64), checksums=False)
    assert job is not None
    assert job.wait()
    assert not pieces.is_whole
    assert index.look_ahead(np.array([5]), POOL, checksums=True) is not None
    index.pick(np.array([5]), np.empty(1, np.int32), np.empty(1, np.int64), np.empty(1, np.int64), None)
    assert pieces.is_whole
    assert index.look_ahead(np.array([0]), POOL, checksums=True) is None
    assert index_of(3).look_ahead(np.array([0]), POOL, checksums=True) is None


def test_a_damaged_piece_is_told_by_the_sample_that_needs_it() -> None:
    """Samples of other pieces are picked as ever; damaged checksums count where they are asked for."""
    numbers = np.arange(4, dtype=np.int64)
    sums = np.arange(4, dtype=np.uint32)
    whole = numbers.tobytes()
    start_sums = np.array([zlib.crc32(whole[:16]), zlib.crc32(whole[16:])], np.uint32)
    sum_sums = np.array([0, zlib.crc32(sums[2:].tobytes())], np.uint32)  # the first is wrong
    starts = numbers.copy()
    index = _native.SpanIndex(
        np.array([4], np.int64),
        np.array([9], np.int64),
        starts,
        numbers,
        sums,
        start_pieces=_native.Pieces(starts.view(np.uint8), start_sums, 16),
        checksum_pieces=_native.Pieces(sums.view(np.uint8), sum_sums, 8),
    )
    starts[3] ^= 1
    assert picked(index, np.array([0, 1]), checksums=False)[0] is None
    assert picked(index, np.array([0, 2]), checksums=False)[0] == 1
    assert picked(index, np.array([1]))[0] == 0
