"""Each codec in the conformance suite, and the table that names them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastio import _native
from fastio.codec import CODECS, Codec, describe_status
from fastio.errors import SchemaError
from tests.codec.conformance import CodecTests


class TestImageCodec(CodecTests):
    """Pictures."""

    @pytest.fixture
    def codec(self) -> Codec:
        return CODECS["image"]

    @pytest.fixture(params=[1, 3, 4])
    def values(self, request: pytest.FixtureRequest) -> list[NDArray[Any]]:
        return list(np.random.default_rng(0).integers(0, 256, (9, 5, 7, request.param), np.uint8))


class TestRawCodec(CodecTests):
    """Arrays of bytes."""

    @pytest.fixture
    def codec(self) -> Codec:
        return CODECS["raw"]

    @pytest.fixture(params=[(3072,), (4, 5, 3), (1,)])
    def values(self, request: pytest.FixtureRequest) -> list[NDArray[Any]]:
        return list(np.random.default_rng(0).integers(0, 256, (9, *request.param), np.uint8))


class TestPlanarCodec(CodecTests):
    """Pictures whose channels lie one behind the other."""

    @pytest.fixture
    def codec(self) -> Codec:
        return CODECS["planar"]

    @pytest.fixture(params=[(32, 32, 3), (5, 7, 4), (4, 5, 1)])
    def values(self, request: pytest.FixtureRequest) -> list[NDArray[Any]]:
        return list(np.random.default_rng(0).integers(0, 256, (9, *request.param), np.uint8))


class TestTokensCodec(CodecTests):
    """Token ids."""

    @pytest.fixture
    def codec(self) -> Codec:
        return CODECS["tokens"]

    @pytest.fixture(params=["<u2", "<u4"])
    def values(self, request: pytest.FixtureRequest) -> list[NDArray[Any]]:
        ids = np.random.default_rng(0).integers(0, 1 << 32, (9, 5), np.uint32)
        return list(ids.astype(request.param))


class TestTextCodec(CodecTests):
    """UTF-8."""

    @pytest.fixture
    def codec(self) -> Codec:
        return CODECS["text"]

    @pytest.fixture
    def values(self) -> list[NDArray[Any]]:
        return [np.frombuffer(f"zo\u00eb {number}".encode(), np.uint8) for number in range(9)]


@pytest.mark.parametrize("value", [np.zeros(3, np.int64), np.zeros((2, 2), np.uint16), np.zeros(2, ">u2"), np.zeros(2)])
def test_what_are_no_tokens_is_not_encoded(value: NDArray[Any]) -> None:
    """Only little-endian uint16 or uint32 of one dimension are token ids."""
    with pytest.raises(SchemaError, match="token ids are"):
        CODECS["tokens"].encode(value)


@pytest.mark.parametrize("value", [np.array([0xC3], np.uint8), np.zeros((2, 2), np.uint8), np.zeros(2, np.uint16)])
def test_what_is_no_text_is_not_encoded(value: NDArray[Any]) -> None:
    """Only bytes of valid UTF-8 are text."""
    with pytest.raises(SchemaError, match="text is"):
        CODECS["text"].encode(value)


def test_every_status_has_words() -> None:
    """Each status is described by words of its own."""
    statuses = [getattr(_native, name) for name in dir(_native) if name.isupper()]
    assert sorted(statuses) == list(range(12))
    assert len({describe_status(status) for status in statuses}) == len(statuses)


@pytest.mark.parametrize("value", [np.zeros((2, 2), np.float32), np.zeros(4, np.uint8), np.zeros((2, 2, 5), np.uint8)])
def test_what_is_no_picture_is_not_encoded(value: NDArray[Any]) -> None:
    """Only uint8 of two dimensions, or three with 1 to 4 channels, is a picture."""
    with pytest.raises(SchemaError, match="a picture as uint8"):
        CODECS["image"].encode(value)
