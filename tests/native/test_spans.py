"""Spans as native functions take them: which objects they accept, and what they refuse before a thread starts."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fastio import _native
from fastio.types.spans import Spans

NAMES = ("buffers", "shard", "starts", "sizes", "checksums", "intervals")


def spans() -> Spans:
    """Three values with checksums."""
    data = np.arange(60, dtype=np.uint8)
    sums = [zlib.crc32(data[start : start + 20].tobytes()) for start in (0, 20, 40)]
    return Spans.of(data, np.array([0, 20, 40]), np.full(3, 20), checksums=np.array(sums, np.uint32))


def checksum(values: Any) -> None:
    _native.checksum(values, np.empty(3, np.uint32)).wait()


def gather(values: Any) -> None:
    _native.gather(values, np.empty((3, 20), np.uint8), np.empty(3, np.int32)).wait()


def decode(values: Any) -> None:
    _native.decode_images(values, np.empty((3, 1, 1, 3), np.uint8), np.empty(3, np.int32)).wait()


def transform(values: Any) -> None:
    plan, status = np.array([[0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0]] * 3, np.int32), np.empty(3, np.int32)
    _native.decode_transformed(values, plan, np.empty((3, 1, 1, 3), np.uint8), status, filter=0, fill=b"\0\0\0").wait()


FUNCTIONS: list[Callable[[Any], None]] = [
    checksum,
    gather,
    decode,
    transform,
    lambda values: _native.probe_images(values, np.empty((3, 5), np.int32)).wait() and None,
    lambda values: _native.read_ahead(values).wait() and None,
    lambda values: _native.transcode_images(values, _native.Transcoded(3)).wait() and None,
]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("name", "bad"), [("starts", -1), ("sizes", 1 << 62), ("sizes", -1), ("shard", 1), ("shard", -1)]
)
def test_a_span_outside_its_buffer_is_refused(function: Callable[[Any], None], name: str, bad: int) -> None:
    """IndexError names the span."""
    values = spans()
    getattr(values, name)[1] = bad

    with pytest.raises(IndexError, match="span 1"):
        function(values)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_arrays_of_unequal_length_are_refused(function: Callable[[Any], None]) -> None:
    """Each array has as many entries as starts."""
    with pytest.raises(ValueError, match="expected 3 as starts has"):
        function(replace(spans(), sizes=np.full(2, 20)))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    "bad",
    [
        None,
        SimpleNamespace(buffers=None),
        replace(spans(), buffers=np.zeros(60, np.uint8)),  # type: ignore[arg-type]
        replace(spans(), starts=np.zeros(3, np.int32)),  # type: ignore[arg-type]
        replace(spans(), sizes=np.zeros(6, np.int64)[::2]),
    ],
)
def test_other_objects_are_refused(function: Callable[[Any], None], bad: Any) -> None:
    """What is no Spans, or has arrays of another kind, is a TypeError: nothing is converted."""
    with pytest.raises(TypeError):
        function(bad)


@pytest.mark.parametrize("function", [gather, decode, transform])
def test_wrong_checksums_are_refused(function: Callable[[Any], None]) -> None:
    """Of another dtype, or not as many as there are values."""
    with pytest.raises(TypeError, match=r"spans\.checksums"):
        function(replace(spans(), checksums=np.zeros(3, np.int64)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="checksums has 2 entries"):
        function(replace(spans(), checksums=np.zeros(2, np.uint32)))


def test_wrong_intervals_are_refused() -> None:
    """Intervals are Spans with as many entries."""
    with pytest.raises(TypeError, match=r"spans\.intervals"):
        transform(replace(spans(), intervals=7))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="intervals has 2 entries"):
        transform(replace(spans(), intervals=spans().part(0, 2)))
    with pytest.raises(IndexError, match="span 2"):
        transform(replace(spans(), intervals=replace(spans(), starts=np.array([0, 1, 99]))))


def test_verify_compares_with_the_checksums() -> None:
    """A value that differs is BAD_CHECKSUM, unless verify is off."""
    values = spans()
    assert values.checksums is not None
    values.checksums[1] ^= 1
    out, status = np.empty((3, 20), np.uint8), np.empty(3, np.int32)

    _native.gather(values, out, status).wait()
    assert [_native.OK, _native.BAD_CHECKSUM, _native.OK] == status.tolist()

    _native.gather(values, out, status, verify=False).wait()
    assert [_native.OK] * 3 == status.tolist()


def test_any_class_with_these_attributes_will_do() -> None:
    """Classes with and without slots take turns, as a subclass does."""

    class Slotted:
        __slots__ = NAMES[::-1]

    class Derived(Spans):
        pass

    values = spans()
    slotted = Slotted()
    for name in NAMES:
        setattr(slotted, name, getattr(values, name))
    plain = SimpleNamespace(**{name: getattr(values, name) for name in NAMES})
    derived = Derived(*(getattr(values, name) for name in NAMES))
    for other in (values, slotted, plain, values, derived, slotted, values):
        sums = np.empty(3, np.uint32)
        _native.checksum(other, sums).wait()  # type: ignore[arg-type]
        assert np.array_equal(values.checksums, sums)
    del slotted.sizes
    with pytest.raises(TypeError):
        checksum(slotted)


def test_the_buffers_live_as_long_as_the_job() -> None:
    """A job keeps the memory that it reads from, whatever becomes of the spans."""
    pool = _native.ThreadPool(1)
    out, status = np.zeros((3, 20), np.uint8), np.full(3, -1, np.int32)

    job = _native.gather(spans(), out, status, pool)
    assert job.wait()
    assert [*range(60)] == out.reshape(-1).tolist()
    assert not status.any()
