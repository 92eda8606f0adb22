"""What every format must do: a test class per format inherits this one and names its suffix."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import threading
import zlib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastio.errors import SchemaError, StoreError
from fastio.store import SampleBatch, create_store, format_of, open_store
from fastio.store.index.verify import verify_store
from fastio.types.schema import COLUMN, RAW, Field, Schema
from tests.forking import in_fork
from tests.store.array_conformance import ArrayConformance
from tests.store.build import (
    IMAGE_FIELD,
    LABELLED,
    METADATA,
    TWO_PAYLOADS,
    make_batch,
    make_samples,
    make_spans,
    names,
    read_all,
    read_labels,
    write,
)
from tests.store.damage_conformance import DamageConformance
from tests.store.list_conformance import ListConformance
from tests.store.writing_conformance import WritingConformance

_KEYS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40) | st.text(
    "a./%_ é\n", min_size=1, max_size=12
)
_SIZES = st.integers(0, 40) | st.integers(2005, 2045) | st.integers(4070, 4100)
DTYPES = [
    "|b1",
    "|i1",
    "|u1",
    "<i2",
    "<u2",
    "<i4",
    "<u4",
    "<i8",
    "<u8",
    "<f2",
    "<f4",
    "<f8",
    "<c8",
    "<c16",
    "|S5",
    "<U3",
]


class StoreConformance(WritingConformance, DamageConformance, ListConformance, ArrayConformance):
    """Inherited by the tests of each format; here is what comes back of a store, and who may read it at once."""

    # Inherited by several classes on purpose: each is its own executor.
    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    @given(st.dictionaries(_KEYS, _SIZES, max_size=12), st.integers(1, 13))
    def test_any_samples_come_back(self, sizes: dict[str, int], batch_size: int) -> None:
        """Any keys and sizes come back, in order, however they were cut into batches."""
        samples = {key: random.Random(key).randbytes(size) for key, size in sizes.items()}
        with TemporaryDirectory() as folder:
            path = write(Path(folder) / f"out{self.suffix}", samples, batch_size=batch_size)
            with open_store(path) as store:
                assert list(samples.items()) == list(read_all(store).items())
                assert verify_store(store) == []

    @pytest.mark.parametrize("count", [0, 1, 2, 17, 700])
    def test_counts(self, path: str, count: int) -> None:
        """Empty stores and large ones keep count, labels, metadata and format."""
        samples = make_samples(count)
        with open_store(write(path, samples)) as store:
            assert count == len(store)
            assert samples == read_all(store)
            assert list(range(count)) == store.column("label").tolist()
            assert dict(store.metadata) == METADATA
            assert store.format == format_of(path)
            assert [path] == list(store.shard_paths)
            assert store.schema == LABELLED

    def test_checksums_are_those_of_zlib(self, path: str, samples: dict[str, bytes]) -> None:
        """The index holds each value's CRC-32."""
        with open_store(write(path, samples)) as store:
            checksums = store.spans("image", np.arange(len(store))).checksums
        assert checksums is not None
        assert [zlib.crc32(value) for value in samples.values()] == checksums.tolist()

    def test_two_payload_fields(self, path: str) -> None:
        """Two fields of each sample are kept apart."""
        keys, images, captions = ["a.png", "b.png"], [b"x" * 3000, b""], [b"", "Käfer".encode()]
        with create_store(path, TWO_PAYLOADS) as writer:
            writer.append(SampleBatch(keys, {"image": make_spans(images), "caption": make_spans(captions)}))
        with open_store(path) as store:
            assert images == list(read_all(store, "image").values())
            assert captions == list(read_all(store, "caption").values())

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("shape", [(), (2, 3)])
    def test_column_dtypes(self, path: str, dtype: str, shape: tuple[int, ...]) -> None:
        """Columns of any plain dtype come back bit by bit, read-only."""
        values = np.arange(3 * int(np.prod(shape)), dtype="i4").reshape(3, *shape).astype(dtype)
        with create_store(path, Schema((IMAGE_FIELD, Field("weight", COLUMN, dtype, shape)))) as writer:
            writer.append(SampleBatch(["a", "b", "c"], {"image": make_spans([b"1", b"2", b"3"])}, {"weight": values}))
        with open_store(path) as store:
            column = store.column("weight")
        assert (values.dtype, values.tolist()) == (column.dtype, column.tolist())
        assert not column.flags.writeable

    @pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", "<c8", "<c16"])
    def test_numbers_that_are_none(self, path: str, dtype: str) -> None:
        """NaN and infinities of float and complex columns come back bit by bit."""
        values = np.array([np.nan, np.inf, -np.inf], dtype)
        with create_store(path, Schema((IMAGE_FIELD, Field("weight", COLUMN, dtype, ())))) as writer:
            writer.append(SampleBatch(["a", "b", "c"], {"image": make_spans([b"1", b"2", b"3"])}, {"weight": values}))
        with open_store(path) as store:
            assert values.tobytes() == store.column("weight").tobytes()

    @pytest.mark.parametrize(
        ("values", "dtype"), [(["é"], "|S5"), ([b"\xff"], "<U5"), (["abc"], "<f4"), (["long"], "<U3"), ([1j], "<f4")]
    )
    def test_columns_of_another_kind(self, path: str, values: list[object], dtype: str) -> None:
        """Values that have no equal in the column's dtype are a SchemaError that names the field."""
        writer = create_store(path, Schema((IMAGE_FIELD, Field("weight", COLUMN, dtype, ()))))
        batch = SampleBatch(["a"], {"image": make_spans([b"1"])}, {"weight": np.array(values)})
        with pytest.raises(SchemaError, match=r"'weight': expected .*, got"):
            writer.append(batch)
        writer.close()
        with open_store(path) as store:
            assert len(store) == 0

    @pytest.mark.parametrize("dtype", ["<U3", "|S3", "<c8", "|b1"])
    def test_raw_arrays_of_any_dtype(self, path: str, dtype: str) -> None:
        """Raw fields may have any plain dtype."""
        array = np.array([["a", "bc"]]).astype(dtype) if dtype[1] in "US" else np.ones((1, 2), dtype)
        with create_store(path, Schema((Field("pixels", RAW, dtype, (1, 2)),))) as writer:
            writer.append(SampleBatch(["a"], {"pixels": make_spans([array.tobytes()])}))
        with open_store(path) as store:
            assert verify_store(store) == []
            assert {"a": array.tobytes()} == read_all(store, "pixels")

    def test_columns_alone(self, path: str) -> None:
        """A store may have no payload at all."""
        with create_store(path, Schema((Field("label", COLUMN, "<i8", ()),))) as writer:
            writer.append(SampleBatch(["a", "b"], {}, {"label": np.array([5, 6])}))
        assert read_labels(path) == [5, 6]

    @pytest.mark.parametrize("count", [0, 1, 5])
    def test_raw_arrays(self, path: str, count: int) -> None:
        """Raw arrays of fixed shape come back as their bytes."""
        arrays = np.arange(count * 6, dtype="<i2").reshape(count, 3, 2)
        with create_store(path, Schema((Field("pixels", RAW, "<i2", (3, 2)),))) as writer:
            writer.append(
                SampleBatch([f"{i}" for i in range(count)], {"pixels": make_spans([a.tobytes() for a in arrays])})
            )
        with open_store(path) as store:
            assert [a.tobytes() for a in arrays] == list(read_all(store, "pixels").values())

    def test_shapes(self, path: str) -> None:
        """Shapes of images come back, zeros where a batch gave none."""
        with create_store(path, LABELLED) as writer:
            batch = make_batch(["a"], [b"1"])
            writer.append(SampleBatch(batch.keys, batch.spans, batch.columns, {"image": np.array([[4, 5, 3]])}))
            writer.append(make_batch(["b"], [b"2"]))
        with open_store(path) as store:
            assert store.shapes("image").tolist() == [[4, 5, 3], [0, 0, 0]]

    def test_unknown_shapes_are_zeros(self, path: str, samples: dict[str, bytes]) -> None:
        """Where no batch gave shapes, all are zeros."""
        with open_store(write(path, samples)) as store:
            assert store.shapes("image").shape == (len(samples), 3)
            assert not store.shapes("image").any()

    def test_same_samples_same_bytes(self, tmp_path: Path, samples: dict[str, bytes]) -> None:
        """The same input gives the same file, whatever its batches."""
        first = write(tmp_path / f"a{self.suffix}", samples, batch_size=7)
        second = write(tmp_path / f"b{self.suffix}", samples, batch_size=60)
        assert Path(first).read_bytes() == Path(second).read_bytes()

    def test_names_that_are_not_utf8(self, path: str) -> None:
        """A file name that is not UTF-8 comes back as the system gave it."""
        key = os.fsdecode(b"d\xff/\xe4.png")
        with open_store(write(path, {key: b"1"})) as store:
            assert [key] == store.keys([0])

    def test_chosen_samples(self, path: str, samples: dict[str, bytes]) -> None:
        """Spans and keys of any indices, in any order, more than once."""
        indices = np.array([5, 0, 59, 5])
        keys = list(samples)
        with open_store(write(path, samples)) as store:
            spans = store.spans("image", indices)
            assert [samples[keys[i]] for i in indices] == [spans.view(i).tobytes() for i in range(4)]
            assert [keys[i] for i in indices] == store.keys(indices)
            assert store.keys([]) == []
            assert len(store.spans("image", np.array([], np.int64))) == 0
            assert store.value_bytes("image").tolist() == [len(value) for value in samples.values()]

    @pytest.mark.parametrize("bad", [-1, 60, 1 << 40])
    def test_index_outside(self, path: str, samples: dict[str, bytes], bad: int) -> None:
        """An index outside 0..len-1 is an IndexError, negative ones too."""
        with open_store(write(path, samples)) as store:
            with pytest.raises(IndexError, match=r"0\.\.59"):
                store.spans("image", np.array([0, bad]))
            with pytest.raises(IndexError, match=r"0\.\.59"):
                store.keys([bad])

    def test_unknown_field(self, path: str) -> None:
        """A field that the store lacks is named, with those it has."""
        with open_store(write(path, {"a": b"1"})) as store:
            with pytest.raises(SchemaError, match=r"'depth'.*'image'"):
                store.spans("depth", np.array([0]))
            with pytest.raises(SchemaError, match=r"'depth'.*'image'"):
                store.value_bytes("depth")
            with pytest.raises(SchemaError, match=r"'image'.*'label'"):
                store.column("image")

    def test_close_twice(self, path: str) -> None:
        """A closed store may be closed again; what it handed out stays valid, the store does not."""
        store = open_store(write(path, {"a": b"payload"}))
        spans, labels = store.spans("image", np.array([0])), store.column("label")
        store.close()
        store.close()
        assert spans.view(0).tobytes() == b"payload"
        assert labels.tolist() == [0]
        with pytest.raises(StoreError, match="closed"):
            store.spans("image", np.array([0]))

    def test_open_twice(self, path: str, samples: dict[str, bytes]) -> None:
        """One file may be opened twice in one process."""
        write(path, samples)
        with open_store(path) as first, open_store(path) as second:
            assert read_all(first) == read_all(second) == samples

    def test_no_descriptor_stays_open(self, path: str) -> None:
        """An open store holds no file descriptor, a closed one no mapping."""
        write(path, {"a": b"1"})
        before = len(names("/proc/self/fd"))
        with open_store(path):
            assert before == len(names("/proc/self/fd"))
            assert path in Path("/proc/self/maps").read_text()
        assert path not in Path("/proc/self/maps").read_text()

    def test_threads(self, path: str, samples: dict[str, bytes]) -> None:
        """Threads share a store."""
        results: list[bool] = []
        with open_store(write(path, samples)) as store:
            threads = [threading.Thread(target=lambda: results.append(read_all(store) == samples)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert results == [True] * 4

    def test_fork(self, path: str, samples: dict[str, bytes]) -> None:
        """A store goes on working in a forked child."""
        with open_store(write(path, samples)) as store:
            assert in_fork(lambda: read_all(store) == samples or 1 / 0) == 0

    def test_spawn(self, path: str, samples: dict[str, bytes]) -> None:
        """A spawned process opens the store by its path."""
        write(path, samples)
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=self.prepare) as pool:
            assert list(range(60)) == pool.submit(read_labels, path).result()

    def test_pickle(self, path: str, samples: dict[str, bytes]) -> None:
        """A store is pickled by path; another content under that path is refused."""
        with open_store(write(path, samples)) as store:
            pickled = pickle.dumps(store)
        assert len(pickled) < 1000
        with pickle.loads(pickled) as copy:
            assert samples == read_all(copy)
        write(path, {"other": b""}, overwrite=True)
        with pytest.raises(StoreError, match="replaced"):
            pickle.loads(pickled)
