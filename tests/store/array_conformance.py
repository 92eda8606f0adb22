"""What every format must do with arrays of several free sizes: they come back, and the index has their shapes."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from fastio.errors import SchemaError, StoreError
from fastio.store import SampleBatch, create_store, open_store
from fastio.store.index.store import SealedStore
from fastio.store.index.verify import verify_store
from fastio.store.protocol import read_values
from fastio.types.bfloat16 import BFLOAT16
from fastio.types.field_types import field_of
from fastio.types.npy import npy_array, npy_file
from fastio.types.schema import Schema
from fastio.types.spans import ListSpans
from tests.store.build import make_spans
from tests.store.format_case import FormatCase

SCHEMA = Schema(
    (field_of("latent", "float16[2,*,*]"), field_of("maps", "bfloat16[*,*][*]"), field_of("caption", "text"))
)


def as_bfloat16(bits: NDArray[np.uint16]) -> NDArray[Any]:
    """The same bits, as stores keep them."""
    return bits.view(BFLOAT16)


_LATENTS = arrays.arrays("<f2", st.tuples(st.just(2), st.integers(0, 9), st.integers(0, 9)))
_MAPS = st.lists(arrays.arrays("<u2", st.tuples(st.integers(0, 4), st.integers(0, 40))).map(as_bfloat16), max_size=3)
Sample = tuple[NDArray[Any], list[NDArray[Any]]]


def array_batch(samples: list[Sample], first: int = 0) -> SampleBatch:
    """A batch of SCHEMA, whose keys count from ``first``."""
    maps = ListSpans(
        make_spans([npy_file(each) for _, maps in samples for each in maps]),
        np.array([len(maps) for _, maps in samples], np.int64),
    )
    return SampleBatch(
        keys=[f"dir/{first + i:05d}.png" for i in range(len(samples))],
        spans={
            "latent": make_spans([npy_file(latent) for latent, _ in samples]),
            "caption": make_spans([b"c" * i for i in range(len(samples))]),
        },
        lists={"maps": maps},
    )


def array_samples(count: int) -> list[Sample]:
    """Samples whose arrays differ in every free size."""
    rng = np.random.default_rng(3)
    return [
        (
            rng.normal(size=(2, 4 + i % 5, 6 + i % 3)).astype("<f2"),
            [as_bfloat16(np.full((i % 4, 2 + j), i, "<u2")) for j in range(i % 3)],
        )
        for i in range(count)
    ]


def write_arrays(path: str | Path, samples: list[Sample], *, batch_size: int = 16) -> str:
    """A store of these samples; its path."""
    with create_store(path, SCHEMA) as writer:
        for at in range(0, len(samples), batch_size):
            writer.append(array_batch(samples[at : at + batch_size], at))
    return str(path)


def read_arrays(store: SealedStore) -> list[Sample]:
    """All samples, in order."""
    every = np.arange(len(store))
    elements = store.elements("maps")
    which, counts = elements.of(every)
    left = iter(read_values(elements, "maps", which).views())
    return [
        (
            npy_array(SCHEMA["latent"], view.data),
            [npy_array(SCHEMA["maps"].element, next(left).data) for _ in range(count)],
        )
        for view, count in zip(read_values(store, "latent", every).views(), counts.tolist(), strict=True)
    ]


def same(expected: list[Sample], found: list[Sample]) -> bool:
    """Whether shapes, dtypes and bytes are equal."""

    def plain(samples: list[Sample]) -> list[Any]:
        return [[(each.shape, each.dtype, each.tobytes()) for each in (latent, *maps)] for latent, maps in samples]

    return plain(expected) == plain(found)


class ArrayConformance(FormatCase):
    """What StoreConformance inherits about arrays of several free sizes."""

    @settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    @given(st.lists(st.tuples(_LATENTS, _MAPS), max_size=7), st.integers(1, 8))
    def test_any_arrays_come_back(self, samples: list[Sample], batch_size: int) -> None:
        """Arrays of any free sizes come back, whatever the batches, and the index has their shapes."""
        with TemporaryDirectory() as folder:
            path = write_arrays(Path(folder) / f"out{self.suffix}", samples, batch_size=batch_size)
            with open_store(path) as store:
                assert same(samples, read_arrays(store))
                assert verify_store(store) == []
                assert [list(latent.shape) for latent, _ in samples] == store.shapes("latent").tolist()
                shapes = store.elements("maps").shapes("maps").tolist()
                assert [list(each.shape) for _, maps in samples for each in maps] == shapes

    @pytest.mark.parametrize(
        ("value", "words"),
        [
            (b"no array", "is no array: it is not an npy file"),
            (npy_file(np.zeros((2, 3, 4), "<f4")), r"is an array of float32 \(2, 3, 4\), expected float16\[2,\*,\*\]"),
            (npy_file(np.zeros((3, 3, 4), "<f2")), r"is an array of float16 \(3, 3, 4\), expected"),
            (npy_file(np.zeros((2, 3), "<f2")), r"is an array of float16 \(2, 3\), expected"),
            (npy_file(np.zeros((2, 3, 4), "<f2"))[:-1], "is no array: it is an npy file of 175 bytes, expected 176"),
            (npy_file(np.zeros((2, 3, 4), "<f2"))[:50], "is no array: it is not an npy file"),
        ],
    )
    def test_what_is_no_such_array(self, path: str, value: bytes, words: str) -> None:
        """A value that is no array of the field's type is refused by its key, and the writer goes on."""
        samples = array_samples(3)
        with create_store(path, SCHEMA) as writer:
            batch = array_batch(samples)
            spans = {**batch.spans, "latent": make_spans([npy_file(samples[0][0]), value, npy_file(samples[2][0])])}
            with pytest.raises(SchemaError, match=rf"'latent' of 'dir/00001.png': {words}"):
                writer.append(SampleBatch(batch.keys, spans, lists=batch.lists))
            writer.append(batch)
        with open_store(path) as store:
            assert same(samples, read_arrays(store))

    def test_every_flipped_bit_of_arrays_is_seen(self, path: str) -> None:
        """Any single flipped bit is seen by opening or verifying, and any cut by opening."""
        data = bytearray(Path(write_arrays(path, array_samples(20))).read_bytes())
        rng = random.Random(5)
        silent = []
        for place in (rng.randrange(len(data)) for _ in range(125)):
            bit = 1 << rng.randrange(8)
            data[place] ^= bit
            Path(path).write_bytes(data)
            if not self.seen(path):
                silent.append(place)
            data[place] ^= bit
        assert silent == []
        for size in (rng.randrange(len(data)) for _ in range(25)):
            Path(path).write_bytes(data[:size])
            with pytest.raises(StoreError, match="out"):
                open_store(path)
