"""What every codec must do: a suite that the tests of each one inherit."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastio import _native
from fastio._native import Buffers, ThreadPool
from fastio.codec import Codec
from fastio.types.spans import Spans

__all__ = ["CodecTests", "spans_of"]


def spans_of(values: Sequence[bytes], *, checksums: bool = False) -> Spans:
    """Spans over two buffers, the values dealt out in turn, with a gap before each."""
    parts: list[bytearray] = [bytearray(), bytearray()]
    starts = []
    for position, value in enumerate(values):
        part = parts[position % 2]
        part += b"gap"
        starts.append(len(part))
        part += value
    buffers = Buffers([np.frombuffer(bytes(part) or b"\0", np.uint8) for part in parts])
    sums = np.array([zlib.crc32(value) for value in values], np.uint32) if checksums else None
    shard = (np.arange(len(values)) % 2).astype(np.int32)
    sizes = np.array([len(value) for value in values], np.int64)
    return Spans(buffers, shard, np.array(starts, np.int64), sizes, sums)


class CodecTests:
    """Inherit it, and give ``codec`` and ``values``: arrays of one shape that the codec can encode without loss."""

    @pytest.fixture
    def codec(self) -> Codec:
        raise NotImplementedError

    @pytest.fixture
    def values(self) -> list[NDArray[Any]]:
        raise NotImplementedError

    @pytest.mark.parametrize("threads", [0, 1, 3])
    @pytest.mark.parametrize("checksums", [False, True])
    def test_decode_gives_back_what_was_encoded(
        self, codec: Codec, values: list[NDArray[Any]], threads: int, checksums: bool
    ) -> None:
        """decode(encode(x)) is x, with and without threads and checksums."""
        spans = spans_of([codec.encode(value) for value in values], checksums=checksums)
        out, status = self.empty(values)
        pool = ThreadPool(threads) if threads else None
        assert codec.decode(spans, out, status, pool=pool).wait()
        assert not status.any()
        np.testing.assert_array_equal(np.stack(values), out)

    def test_probe_reads_a_header_for_each_value(self, codec: Codec, values: list[NDArray[Any]]) -> None:
        """Good values are OK; a size that is told is that of the decoded array."""
        headers = codec.probe(spans_of([codec.encode(value) for value in values]))
        assert not headers.status.any()
        assert len(headers) == len(values)
        for header, value in zip(headers, values, strict=True):
            assert (header.height, header.width) in ((0, 0), value.shape[:2])
        assert len(codec.probe(spans_of([]))) == 0

    def test_no_samples(self, codec: Codec, values: list[NDArray[Any]]) -> None:
        """A batch of none is done at once."""
        out, status = self.empty(values)
        assert codec.decode(spans_of([]), out[:0], status[:0], pool=ThreadPool(1)).wait()

    def test_a_wrong_checksum_is_seen(self, codec: Codec, values: list[NDArray[Any]]) -> None:
        """A value that differs from its checksum is BAD_CHECKSUM, its neighbours are not."""
        spans = spans_of([codec.encode(value) for value in values], checksums=True)
        assert spans.checksums is not None
        spans.checksums[1] ^= 1
        out, status = self.empty(values)
        codec.decode(spans, out, status).wait()
        assert [1] == np.flatnonzero(status == _native.BAD_CHECKSUM).tolist()
        assert np.count_nonzero(status) == 1

    def test_verify_off_ignores_checksums(self, codec: Codec, values: list[NDArray[Any]]) -> None:
        """verify=False does not look at checksums."""
        spans = spans_of([codec.encode(value) for value in values], checksums=True)
        assert spans.checksums is not None
        spans.checksums[:] = 0
        out, status = self.empty(values)
        codec.decode(spans, out, status, verify=False).wait()
        assert not status.any()

    def test_another_size_is_bad_shape(self, codec: Codec, values: list[NDArray[Any]]) -> None:
        """A value that does not fit its row is BAD_SHAPE, never cut or stretched."""
        spans = spans_of([codec.encode(value) for value in values])
        out = np.zeros((len(values), values[0].shape[0] + 1, *values[0].shape[1:]), values[0].dtype)
        status = np.full(len(values), -1, np.int32)
        codec.decode(spans, out, status).wait()
        assert (status == _native.BAD_SHAPE).all()

    def test_spans_outside_their_buffer_are_refused(self, codec: Codec, values: list[NDArray[Any]]) -> None:
        """Hostile offsets raise IndexError that names the sample, before anything runs."""
        out, status = self.empty(values)
        for array, bad in (("starts", -1), ("sizes", 1 << 62), ("sizes", -1), ("shard", 2), ("shard", -1)):
            spans = spans_of([codec.encode(value) for value in values])
            getattr(spans, array)[2] = bad
            with pytest.raises(IndexError, match="span 2"):
                codec.decode(spans, out, status)
        assert (status == -1).all()

    @staticmethod
    def empty(values: list[NDArray[Any]]) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """Rows and statuses to decode into."""
        shape = (len(values), *values[0].shape)
        return np.zeros(shape, values[0].dtype), np.full(len(values), -1, np.int32)
