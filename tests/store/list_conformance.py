"""What every format must do with lists and values that may be missing: they come back, and damage in them is named."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastio.errors import SampleError, SchemaError, StoreError
from fastio.store import FORMATS, SampleBatch, create_store, format_of, open_store
from fastio.store.index.store import SealedStore
from fastio.store.index.verify import verify_store
from fastio.store.protocol import read_values
from fastio.types.field_types import field_of
from fastio.types.schema import Schema
from fastio.types.spans import ListSpans
from tests.store.build import make_spans
from tests.store.format_case import FormatCase

Sample = Mapping[str, Sequence[bytes]]  # by field; of a field without lists one value

SCHEMA = Schema(
    (
        field_of("caption", "text"),
        field_of("images", "bytes[*]"),
        field_of("control", "bytes?"),
        field_of("ids", "tokens16[*]"),
        field_of("label", "label"),
    )
)
_SIZES = st.integers(0, 40) | st.sampled_from([511, 512, 513, 2013, 2014, 4080, 4081, 9000])
_SHAPES = st.tuples(st.lists(_SIZES, max_size=4), st.lists(_SIZES, max_size=1), st.lists(st.integers(0, 5), max_size=3))


def list_batch(schema: Schema, samples: Mapping[str, Sample], first: int = 0) -> SampleBatch:
    """A batch of samples, labelled from ``first`` on."""
    values = list(samples.values())
    single = [f.name for f in schema.payload if not f.is_list]
    lists = {
        field.name: ListSpans(
            make_spans([value for sample in values for value in sample[field.name]]),
            np.array([len(sample[field.name]) for sample in values], np.int64),
        )
        for field in schema.lists
    }
    return SampleBatch(
        keys=list(samples),
        spans={name: make_spans([sample[name][0] for sample in values]) for name in single},
        columns={"label": np.arange(first, first + len(values))} if "label" in schema else {},
        lists=lists,
    )


def list_samples(count: int, seed: int = 0) -> dict[str, Sample]:
    """Samples with none, one and many elements, of sizes on both sides of every border that a format has."""
    rng = random.Random(seed)
    sizes = [0, 1, 511, 512, 513, 2013, 2014, 4080, 4081, 9000]

    def values(most: int, unit: int = 1) -> list[bytes]:
        return [rng.randbytes(unit * (rng.choice(sizes) // unit)) for _ in range(rng.randint(0, most))]

    return {
        f"dir {i % 3}/näme.{i:05d}.png": {
            "caption": [f"Käfer {i}".encode()],
            "images": values(4),
            "control": values(1),
            "ids": values(3, 2),
        }
        for i in range(count)
    }


def write_lists(
    path: str | Path,
    samples: Mapping[str, Sample],
    *,
    schema: Schema = SCHEMA,
    batch_size: int = 16,
    shard_bytes: int | None = None,
) -> str:
    """A store of these samples; its path."""
    with create_store(path, schema, shard_bytes=shard_bytes) as writer:
        for at in range(0, len(samples), batch_size):
            part = dict(list(samples.items())[at : at + batch_size])
            writer.append(list_batch(schema, part, at))
    return str(path)


def read_lists(store: SealedStore) -> dict[str, Sample]:
    """Every sample by key, in order, by several ways of asking."""
    every = np.arange(len(store))
    samples: dict[str, dict[str, list[bytes]]] = {key: {} for key in store.keys(every)}
    for field in store.schema.payload:
        if not field.is_list:
            for key, view in zip(samples, read_values(store, field.name, every).views(), strict=True):
                samples[key][field.name] = [view.tobytes()]
            continue
        elements = store.elements(field.name)
        which, counts = elements.of(every)
        assert elements.owners(which).tolist() == np.repeat(every, counts).tolist()
        views = iter(read_values(elements, field.name, which).views())
        for key, count in zip(samples, counts.tolist(), strict=True):
            samples[key][field.name] = [next(views).tobytes() for _ in range(count)]
    return dict(samples)


class ListConformance(FormatCase):
    """What StoreConformance inherits about lists."""

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    @given(st.lists(_SHAPES, max_size=8), st.integers(1, 9))
    def test_any_lists_come_back(self, shapes: list[tuple[list[int], list[int], list[int]]], batch_size: int) -> None:
        """Lists of any numbers of elements of any size come back, in order, however they were cut into batches."""
        rng = random.Random(7)
        samples = {
            f"{i}.x": {
                "caption": [b"c" * i],
                "images": [rng.randbytes(size) for size in images],
                "control": [rng.randbytes(size) for size in control],
                "ids": [rng.randbytes(2 * size) for size in ids],
            }
            for i, (images, control, ids) in enumerate(shapes)
        }
        with TemporaryDirectory() as folder:
            path = write_lists(Path(folder) / f"out{self.suffix}", samples, batch_size=batch_size)
            with open_store(path) as store:
                assert samples == read_lists(store)
                assert verify_store(store) == []
                assert list(range(len(samples))) == store.column("label").tolist()

    @pytest.mark.parametrize("type_", ["bytes[*]", "text[*]", "tokens[*]", "float32[2][*]", "float32[*,2]?", "bytes?"])
    def test_lists_alone(self, path: str, type_: str) -> None:
        """A store may have one field of lists and nothing else, some of its samples empty."""
        schema = Schema((field_of("values", type_),))
        samples = {f"{i}": {"values": [b"12345678" for _ in range(i % 2)]} for i in range(5)}
        with open_store(write_lists(path, samples, schema=schema, batch_size=2)) as store:
            assert samples == read_lists(store)
            assert (store.schema, 5) == (schema, len(store))
            assert verify_store(store) == []

    def test_same_lists_same_bytes(self, tmp_path: Path) -> None:
        """The same input gives the same file, whatever its batches."""
        samples = list_samples(40)
        first = write_lists(tmp_path / f"a{self.suffix}", samples, batch_size=7)
        second = write_lists(tmp_path / f"b{self.suffix}", samples, batch_size=40)
        assert Path(first).read_bytes() == Path(second).read_bytes()

    def test_lists_in_shards(self, tmp_path: Path) -> None:
        """Shards of lists open as one store, and samples are not cut."""
        if not FORMATS[format_of(f"x{self.suffix}")].has_shards:
            pytest.skip("a store of this format is one file")
        samples = list_samples(40)
        pattern = tmp_path / f"out-%03d{self.suffix}"
        write_lists(pattern, samples, shard_bytes=60_000)
        with open_store(pattern) as store:
            assert samples == read_lists(store)
            assert len(store.shard_paths) > 2
            assert all(shard.data.size < 300_000 for shard in store.shards)
            assert verify_store(store) == []

    def test_lists_are_no_single_values(self, path: str) -> None:
        """Who asks for one value a sample is told that there are lists; elements are asked for by their own store."""
        with open_store(write_lists(path, list_samples(5))) as store:
            with pytest.raises(SchemaError, match=r"out.*'images' holds lists of bytes in 'images'"):
                store.spans("images", np.array([0]))
            with pytest.raises(SchemaError, match="'caption' holds text in 'caption', no lists"):
                store.elements("caption")
            with pytest.raises(IndexError, match="element 1000 of"):
                store.elements("images").spans("images", np.array([1000]))

    def test_impossible_lists(self, path: str) -> None:
        """Counts that are not those of the values, and two values that may be missing, are refused by field."""
        samples = list_samples(3)
        writer = create_store(path, SCHEMA)
        batch = list_batch(SCHEMA, samples)
        lists = dict(batch.lists)
        lists["images"] = ListSpans(lists["images"].spans, lists["images"].counts + 1)
        with pytest.raises(SchemaError, match=r"'images': expected \d+ elements, got"):
            writer.append(SampleBatch(batch.keys, batch.spans, batch.columns, lists=lists))
        lists = {**batch.lists, "control": ListSpans(make_spans([b"1"] * 6), np.array([2, 2, 2], np.int64))}
        with pytest.raises(SchemaError, match=r"'control': expected 3 counts of 0 to 1 elements"):
            writer.append(SampleBatch(batch.keys, batch.spans, batch.columns, lists=lists))
        spans = batch.lists["images"].spans
        wrong = ListSpans(
            type(spans)(spans.buffers, spans.shard, spans.starts, spans.sizes, np.zeros(len(spans), np.uint32)),
            batch.lists["images"].counts,
        )
        with pytest.raises(SampleError, match=r"field 'images': expected bytes with CRC-32 00000000") as caught:
            writer.append(SampleBatch(batch.keys, batch.spans, batch.columns, lists={**batch.lists, "images": wrong}))
        assert caught.value.key == batch.keys[caught.value.index]
        writer.close()

    def test_every_flipped_bit_of_lists_is_seen(self, path: str) -> None:
        """Any single flipped bit is seen by opening or verifying, and any cut by opening."""
        data = bytearray(Path(write_lists(path, list_samples(30))).read_bytes())
        rng = random.Random(4)
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

    def test_damaged_element_is_named(self, path: str) -> None:
        """Verifying names the sample of a damaged element, its field and its bytes."""
        samples = list_samples(30)
        write_lists(path, samples)
        with open_store(path) as store:
            elements = store.elements("images")
            sizes = elements.spans("images", np.arange(len(elements))).sizes
            which = int(np.flatnonzero(sizes > 100)[3])
            span = elements.spans("images", np.array([which]))
            key, receipt = elements.keys([which])[0], store.receipt()
            start, size = int(span.starts[0]), int(span.sizes[0])
        data = bytearray(Path(path).read_bytes())
        data[start + size // 2] ^= 1
        Path(path).write_bytes(data)
        with open_store(path) as store:
            (damage,) = verify_store(store)
            assert receipt == store.receipt() is not None
        assert (key, "images", start, start + size) == (damage.key, damage.field, damage.start, damage.stop)
