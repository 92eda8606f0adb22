"""Ids widened into slots, compared with numpy; slots and spans that cannot be are refused or marked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastio import _native
from fastio._native import ThreadPool
from tests.codec.conformance import spans_of

lists = st.lists(st.tuples(st.lists(st.integers(0, 65_535), max_size=70), st.integers(0, 9)), max_size=20)


def fill(values: list[bytes], slots: NDArray[np.int64], **options: Any) -> dict[str, NDArray[Any]]:
    """The three buffers and the statuses."""
    spans = spans_of(values)
    total = int(slots[-1])
    out: dict[str, NDArray[Any]] = {
        "ids": np.full(total, -1, np.int64),
        "mask": np.full(total, 9, np.uint8),
        "positions": np.full(total, -1, np.int64),
        "status": np.full(len(values), -1, np.int32),
    }
    _native.fill_tokens(
        spans,
        slots,
        out["ids"],
        out["status"],
        options.pop("pool", None),
        mask=out["mask"],
        positions=out["positions"],
        **options,
    ).wait()
    return out


@settings(max_examples=60, deadline=None)
@given(lists, st.booleans(), st.sampled_from([2, 4]), st.sampled_from([0, 1, 3]))
def test_slots_hold_ids_and_padding(
    samples: list[tuple[list[int], int]], at_end: bool, item_bytes: int, threads: int
) -> None:
    """Whatever the lengths, widths, alignment and threads, slots are what numpy makes of them."""
    values = [np.array(ids, f"<u{item_bytes}").tobytes() for ids, _ in samples]
    slots = np.concatenate(([0], np.cumsum([len(ids) + spare for ids, spare in samples]))).astype(np.int64)
    pool = ThreadPool(threads) if threads else None
    out = fill(values, slots, item_bytes=item_bytes, pad_id=77, at_end=at_end, pool=pool)

    expected: dict[str, list[int]] = {"ids": [], "mask": [], "positions": []}
    for ids, spare in samples:
        parts = {"ids": (ids, 77), "mask": ([1] * len(ids), 0), "positions": ([*range(len(ids))], 0)}
        for name, (filled, pad) in parts.items():
            expected[name] += [pad] * spare + filled if at_end else filled + [pad] * spare
    assert expected == {name: out[name].tolist() for name in expected}
    assert not out["status"].any()


def test_bad_samples_are_padding() -> None:
    """Half an id, more ids than the slot holds and an id beyond the vocabulary are marked, their slots hold none."""
    values = [np.array(ids, "<u2").tobytes() for ids in ([1, 2], [3, 4, 5], [6, 50])] + [b"\1\2\3"]
    out = fill(values, np.array([0, 2, 4, 6, 8]), item_bytes=2, pad_id=9, vocabulary=50)

    assert out["status"].tolist() == [_native.OK, _native.BAD_SHAPE, _native.CORRUPT, _native.BAD_SHAPE]
    assert out["ids"].tolist() == [1, 2, 9, 9, 9, 9, 9, 9]
    assert out["mask"].tolist() == [1, 1, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("slots", [[0, 3, 2], [0, 1, 99], [-1, 1, 2], [0, 1]])
def test_slots_outside_are_refused(slots: list[int]) -> None:
    """Slots that descend or leave the buffer are refused before anything is written."""
    spans = spans_of([b"\1\0", b"\2\0"])
    ids, status = np.full(4, -1, np.int64), np.empty(2, np.int32)
    with pytest.raises(ValueError, match="slot"):
        _native.fill_tokens(spans, np.array(slots), ids, status, item_bytes=2)
    assert (ids == -1).all()


def test_short_buffers_are_refused() -> None:
    """A mask or positions shorter than the ids, and ids of a width that is none, are refused."""
    spans = spans_of([b"\1\0"])
    slots = np.array([0, 2])
    ids, status = np.empty(2, np.int64), np.empty(1, np.int32)
    with pytest.raises(ValueError, match="mask has 1 entries, expected 2"):
        _native.fill_tokens(spans, slots, ids, status, mask=np.empty(1, np.uint8), item_bytes=2)
    with pytest.raises(ValueError, match="none of 1, 2, 4, 8"):
        _native.fill_tokens(spans, slots, ids, status, item_bytes=3)


@given(st.lists(st.lists(st.integers(0, 65_535), max_size=9), max_size=9), st.sampled_from([2, 4]))
def test_ids_of_encodings_are_joined(ids: list[list[int]], item_bytes: int) -> None:
    """Lists of ids become one array, in order, with the length of each."""
    data, lengths = _native.encoded_ids([SimpleNamespace(ids=each) for each in ids], item_bytes)

    assert [len(each) for each in ids] == lengths.tolist()
    assert [one for each in ids for one in each] == data.view(f"<u{item_bytes}").tolist()


@pytest.mark.parametrize(
    ("ids", "item_bytes", "error", "sentence"),
    [
        ([65_536], 2, ValueError, "id 65536 does not fit into 2 bytes"),
        ([1 << 32], 4, ValueError, "id 4294967296 does not fit into 4 bytes"),
        ([-1], 2, OverflowError, "negative"),
        ((1, 2), 2, TypeError, "ids is not a list"),
        ([1], 3, ValueError, "item_bytes is neither 2 nor 4"),
    ],
)
def test_ids_that_are_none(ids: Any, item_bytes: int, error: type[Exception], sentence: str) -> None:
    """No id is cut to what its place holds."""
    with pytest.raises(error, match=sentence):
        _native.encoded_ids([SimpleNamespace(ids=ids)], item_bytes)
