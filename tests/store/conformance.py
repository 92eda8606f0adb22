"""What every format must do: a test class per format inherits this one and names its suffix."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import resource
import struct
import threading
import zlib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastio.errors import SampleError, SchemaError, StoreCorrupt, StoreError, StoreIncomplete, StoreNotFound
from fastio.store import FORMATS, SampleBatch, create_store, format_of, open_store
from fastio.store.seal import SEAL_SIZE
from fastio.store.verify import verify_store
from fastio.types.schema import COLUMN, RAW, Field, Schema
from fastio.types.spans import Spans
from tests.store.build import (
    IMAGE_FIELD,
    LABELLED,
    METADATA,
    TWO_PAYLOADS,
    hidden,
    in_fork,
    make_batch,
    make_samples,
    make_spans,
    names,
    read_all,
    read_labels,
    visible,
    write,
)

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


class StoreConformance:
    """Inherited by the tests of each format."""

    suffix = ""

    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        """Where a store of this format may be written."""
        return str(tmp_path / f"out{self.suffix}")

    @pytest.fixture
    def samples(self) -> dict[str, bytes]:
        """Sixty samples of awkward sizes."""
        return make_samples(60)

    # Round trips

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

    # Reading

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

    # Writing

    def test_nothing_before_close(self, path: str) -> None:
        """Nothing lies under the final name before close; afterwards nothing beside it."""
        folder = Path(path).parent
        writer = create_store(path, LABELLED)
        writer.append(make_batch(["a"], [b"1"]))
        assert visible(folder) == []
        writer.close()
        writer.close()
        writer.abort()
        assert ([Path(path).name], []) == (visible(folder), hidden(folder))

    def test_abort(self, path: str) -> None:
        """An aborted writer leaves nothing and takes nothing more."""
        writer = create_store(path, LABELLED)
        writer.append(make_batch(["a"], [b"1"]))
        writer.abort()
        writer.abort()
        assert names(Path(path).parent) == []
        with pytest.raises(StoreError, match="closed or aborted"):
            writer.append(make_batch(["b"], [b"1"]))

    @pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
    def test_exception_in_the_block(self, path: str, kind: type[BaseException]) -> None:
        """An exception in the block removes everything."""
        with pytest.raises(kind), create_store(path, LABELLED) as writer:  # noqa: PT012
            writer.append(make_batch(["a"], [b"1"]))
            raise kind
        assert names(Path(path).parent) == []

    def test_existing_target(self, path: str) -> None:
        """An existing file is kept, unless it is to be overwritten."""
        write(path, {"old": b"1"})
        with pytest.raises(StoreError, match="exists"):
            create_store(path, LABELLED)
        writer = create_store(path, LABELLED, overwrite=True)
        writer.append(make_batch(["new"], [b"2"]))
        with open_store(path) as store:
            assert read_all(store) == {"old": b"1"}
        writer.close()
        with open_store(path) as store:
            assert read_all(store) == {"new": b"2"}
        assert hidden(Path(path).parent) == []

    def test_target_that_appears_meanwhile(self, path: str) -> None:
        """A file that appears while we pack is not replaced."""
        writer = create_store(path, LABELLED)
        Path(path).write_bytes(b"precious")
        with pytest.raises(StoreError, match="exists"):
            writer.close()
        assert Path(path).read_bytes() == b"precious"
        assert hidden(Path(path).parent) == []

    def test_folder_missing(self, tmp_path: Path) -> None:
        """A folder that does not exist is named."""
        with pytest.raises(StoreError, match="no folder does not exist"):
            create_store(tmp_path / "no folder" / f"out{self.suffix}", LABELLED)

    def test_refused_batches_leave_the_writer_usable(self, path: str) -> None:
        """A batch that does not fit is refused as a whole; the next one is taken."""
        good = make_batch(["a"], [b"1"])
        outside = Spans(good.spans["image"].buffers, np.zeros(1, np.int32), np.array([0]), np.array([9]))
        wrong = Spans(
            *(getattr(good.spans["image"], n) for n in ("buffers", "shard", "starts", "sizes")), np.array([7], "u4")
        )
        bad = [
            (SchemaError, "comes twice", make_batch(["b", "b"], [b"1", b"2"])),
            (SchemaError, "comes twice", make_batch(["b", "a"], [b"1", b"2"])),
            (SchemaError, "no NUL", make_batch(["b", ""], [b"1", b"2"])),
            (SchemaError, "no NUL", make_batch(["b\0c"], [b"1"])),
            (SchemaError, "UTF-8", make_batch(["\ud800"], [b"1"])),
            (SchemaError, "expected 2 values", make_batch(["b", "c"], [b"1"])),
            (SchemaError, "expected fields", SampleBatch(["b"], good.spans, {})),
            (SchemaError, "expected fields", SampleBatch(["b"], {}, good.columns)),
            (SchemaError, "expected shape", SampleBatch(["b"], good.spans, {"label": np.zeros((1, 1), np.int64)})),
            (SchemaError, "values that fit", SampleBatch(["b"], good.spans, {"label": np.array([1.5])})),
            (SchemaError, "expected dtype", SampleBatch(["b"], good.spans, {"label": np.array([None])})),
            (SchemaError, "outside its buffer", SampleBatch(["b"], {"image": outside}, good.columns)),
            (SampleError, "CRC-32 00000007", SampleBatch(["b"], {"image": wrong}, good.columns)),
        ]
        with create_store(path, LABELLED) as writer:
            writer.append(good)
            for kind, message, batch in bad:
                with pytest.raises(kind, match=message):
                    writer.append(batch)
            writer.append(make_batch(["z"], [b"9"], [7]))
        with open_store(path) as store:
            assert read_all(store) == {"a": b"1", "z": b"9"}
            assert store.column("label").tolist() == [0, 7]

    def test_metadata_that_is_no_json(self, path: str) -> None:
        """Metadata that JSON cannot hold are refused by name, and nothing stays."""
        with pytest.raises(SchemaError, match="JSON"):
            create_store(path, LABELLED).close({"classes": {1, 2}})
        assert names(Path(path).parent) == []

    def test_taken_field_names(self, path: str) -> None:
        """Field names that meet names of the index are refused."""
        for name in ("keys", "metadata", "image_starts"):
            with pytest.raises(SchemaError, match="taken"):
                create_store(path, Schema((IMAGE_FIELD, Field(name, COLUMN, "<i8", ()))))
        assert names(Path(path).parent) == []

    def test_disk_full(self, path: str, samples: dict[str, bytes]) -> None:
        """A disk that is full, wherever the file stands then, is one error that names the path; nothing stays."""
        size = Path(write(path, samples)).stat().st_size
        Path(path).unlink()
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        for limit in range(0, size, size // 20):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old[1]))
            try:
                with pytest.raises(StoreError, match=r"out\..*full.*free space"):
                    write(path, samples)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, old)
            assert names(Path(path).parent) == []

    # Damage

    def test_missing(self, path: str) -> None:
        """A missing store is StoreNotFound, and FileNotFoundError to those who know only that."""
        with pytest.raises(StoreNotFound, match="no such file"):
            open_store(path)

    @pytest.mark.parametrize("content", [b"", b"short", bytes(5000), random.Random(1).randbytes(10_000)])
    def test_not_sealed(self, path: str, content: bytes) -> None:
        """What is not sealed is refused by name."""
        Path(path).write_bytes(content)
        with pytest.raises(StoreError, match="out"):
            open_store(path)

    def test_newer_version(self, path: str) -> None:
        """A newer version of the format is refused as that."""
        write(path, {"a": b"1"})
        data = bytearray(Path(path).read_bytes())
        at = self.seal_start(bytes(data))
        body = bytearray(data[at : at + SEAL_SIZE - 4])
        struct.pack_into("<I", body, 8, 3)
        data[at : at + SEAL_SIZE] = body + struct.pack("<I", zlib.crc32(body))
        Path(path).write_bytes(data)
        with pytest.raises(StoreError, match=r"version 3.*upgrade fastio") as caught:
            open_store(path)
        assert not isinstance(caught.value, StoreIncomplete | StoreCorrupt)

    def test_other_format_under_this_suffix(self, path: str, tmp_path: Path) -> None:
        """A store under another format's suffix is refused, not misread."""
        for other in FORMATS.values():
            if other.name == format_of(path):
                continue
            written = write(tmp_path / f"other{other.suffixes[0]}", {"a": b"1"})
            Path(path).write_bytes(Path(written).read_bytes())
            with pytest.raises(StoreError, match="out"):
                open_store(path)

    def test_truncations(self, path: str, samples: dict[str, bytes]) -> None:
        """A store cut off anywhere is refused by name."""
        data = Path(write(path, samples)).read_bytes()
        rng = random.Random(2)
        for size in [*(rng.randrange(len(data)) for _ in range(100)), 0, 1, 128, len(data) - 1, len(data) - 1024]:
            Path(path).write_bytes(data[:size])
            with pytest.raises(StoreError, match="out"):
                open_store(path)

    def test_grown(self, path: str, samples: dict[str, bytes]) -> None:
        """A store with something behind its end is refused by name."""
        data = Path(write(path, samples)).read_bytes()
        for more in (b"\0", bytes(512), bytes(4096), data):
            Path(path).write_bytes(data + more)
            with pytest.raises(StoreError, match="out"):
                open_store(path)

    def test_every_flipped_bit_is_seen(self, path: str, samples: dict[str, bytes]) -> None:
        """Any single flipped bit, in whatever part of the file, is seen by opening or verifying."""
        data = bytearray(Path(write(path, samples)).read_bytes())
        rng = random.Random(3)
        places = [*(rng.randrange(len(data)) for _ in range(300)), *self.regions(bytes(data))]
        silent = []
        for place in places:
            bit = 1 << rng.randrange(8)
            data[place] ^= bit
            Path(path).write_bytes(data)
            if not self.seen(path):
                silent.append(place)
            data[place] ^= bit
        assert silent == []

    def test_damaged_sample_is_named(self, path: str, samples: dict[str, bytes]) -> None:
        """Verifying names key, field and bytes of a damaged sample, and of no other."""
        write(path, samples)
        with open_store(path) as store:
            spans = store.spans("image", np.array([12]))
            start, size, key = int(spans.starts[0]), int(spans.sizes[0]), store.keys([12])[0]
        _flip(path, start + size // 2)
        with open_store(path) as store:
            (damage,) = verify_store(store)
        found = (damage.shard, damage.key, damage.field, damage.start, damage.stop)
        assert found == (path, key, "image", start, start + size)
        assert repr(key) in str(damage)

    def test_damage_outside_of_samples(self, path: str) -> None:
        """Damaged padding is reported as such."""
        write(path, {"a": b"1" * 2500, "b": b"2" * 2500})
        with open_store(path) as store:
            place = self.padding(store.spans("image", np.array([0, 1])))
        if place is None:
            pytest.skip("this format has no padding between samples")
        _flip(path, place)
        with open_store(path) as store:
            (damage,) = verify_store(store)
        assert damage.key is None
        assert "padding or structure" in str(damage)

    # What a format's test overrides

    @staticmethod
    def prepare() -> None:
        """Runs in each new process, for a format that only tests know."""

    def seal_start(self, data: bytes) -> int:
        """Where the seal of a file lies."""
        seal_at = FORMATS[format_of(f"x{self.suffix}")].seal_at
        return seal_at(len(data), lambda start, size: data[start : start + size])

    def regions(self, data: bytes) -> list[int]:
        """Places in each part of a file: every byte of the seal, the first and last bytes, and the format's own."""
        seal = self.seal_start(data)
        return [*range(seal, seal + SEAL_SIZE), *range(64), *range(len(data) - 64, len(data))]

    def padding(self, spans: Spans) -> int | None:
        """A byte between two samples that belongs to none; None where a format has no such byte."""
        end = int(spans.starts[0] + spans.sizes[0])
        return end if end < spans.starts[1] else None

    def seen(self, path: str) -> bool:
        """Whether opening or verifying notices damage."""
        try:
            with open_store(path) as store:
                return bool(verify_store(store))
        except StoreError:
            return True


def _flip(path: str, place: int) -> None:
    with Path(path).open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))
