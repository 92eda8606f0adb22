"""LMDB stores, and what plain py-lmdb makes of them."""

from __future__ import annotations

import random
import shutil
import zlib
from dataclasses import replace
from pathlib import Path

import lmdb
import numpy as np
import pytest

from fastio.errors import SchemaError, StoreError
from fastio.store import SampleBatch, create_store, open_store
from fastio.store.formats.lmdb import LmdbWriter, _groups
from fastio.store.write.atomic import PartialFile
from fastio.types.schema import BYTES, Field, Schema
from tests.store.build import LABELLED, make_samples, make_spans, read_all, write
from tests.store.conformance import StoreConformance

_EDGES = [0, 1, 2, *range(2010, 2060), 4079, 4080, 4081, 8175, 8176, 8177, 1 << 20]


class TestLmdb(StoreConformance):
    """The conformance suite on LMDB."""

    suffix = ".lmdb"

    def regions(self, data: bytes) -> list[int]:
        """The meta pages' fields, and the header of every page."""
        pages = range(0, len(data), 4096)
        return [
            *super().regions(data),
            *range(4096, 4096 + 160),
            *(page + i for page in pages for i in (0, 10, 13, 15)),
        ]


def plain(path: str | Path) -> dict[bytes, bytes]:
    """All samples as py-lmdb sees them, by cursor."""
    with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
        return {key: value for key, value in txn.cursor() if key < b"_"}


def cases() -> list[list[int]]:
    """Sizes that make trees of depth 1 to 3, pages that are just full, and runs of overflow pages."""
    rng = random.Random(4)
    return [[], [0], [1, 2], _EDGES, [rng.randrange(3000) for _ in range(2000)], [2300] * 300, [4] * 25_000]


@pytest.mark.parametrize("sizes", cases(), ids=lambda sizes: f"{len(sizes)}")
class TestPlainLmdb:
    """What py-lmdb reads and writes."""

    @pytest.fixture
    def samples(self, sizes: list[int]) -> dict[str, bytes]:
        """One sample of each size."""
        return {f"{i}": random.Random(i).randbytes(size) for i, size in enumerate(sizes)}

    @pytest.fixture
    def path(self, tmp_path: Path, samples: dict[str, bytes]) -> str:
        """The store of these samples."""
        return write(tmp_path / "out.lmdb", samples, batch_size=1000)

    def test_cursor_and_get(self, path: str, samples: dict[str, bytes]) -> None:
        """A cursor sees the samples in order, get finds each, stat counts them."""
        expected = {b"%010d/image" % i: value for i, value in enumerate(samples.values())}
        assert list(expected.items()) == list(plain(path).items())
        with lmdb.open(path, subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
            assert all(txn.get(key) == value for key, value in expected.items())
            assert txn.get(b"%010d/image" % len(samples)) is None
            extra = sum(1 for key, _ in txn.cursor() if key >= b"_")
            assert len(samples) + extra == txn.stat()["entries"]
            assert env.info()["last_pgno"] == Path(path).stat().st_size // 4096 - 1

    def test_compact_copy(self, path: str, tmp_path: Path) -> None:
        """A compacting copy walks the whole tree and finds the same."""
        with (
            lmdb.open(path, subdir=False, readonly=True, lock=False) as env,
            (tmp_path / "copy.lmdb").open("wb") as file,
        ):
            env.copyfd(file.fileno(), compact=True)
        assert plain(path) == plain(tmp_path / "copy.lmdb")
        with pytest.raises(StoreError, match=r"copy\.lmdb"):
            open_store(tmp_path / "copy.lmdb")

    def test_write_transaction(self, path: str, tmp_path: Path) -> None:
        """liblmdb can delete, replace and add in a copy, and our reader refuses what comes out."""
        expected = plain(path)
        copy = str(tmp_path / "copy.lmdb")
        shutil.copy(path, copy)
        with lmdb.open(copy, subdir=False, map_size=1 << 28, sync=False) as env, env.begin(write=True) as txn:
            for i, key in enumerate(list(expected)):
                if i % 3 == 0:
                    assert txn.delete(key)
                    del expected[key]
                elif i % 3 == 1:
                    expected[key] = bytes(i % 5000)
                    assert txn.put(key, expected[key])
            assert txn.put(b"zz", b"new")
        assert expected == plain(copy)
        with pytest.raises(StoreError, match=r"copy\.lmdb"):
            open_store(copy)

    def test_delete_everything(self, path: str, tmp_path: Path) -> None:
        """liblmdb can merge all pages away."""
        copy = str(tmp_path / "copy.lmdb")
        shutil.copy(path, copy)
        with lmdb.open(copy, subdir=False, map_size=1 << 28, sync=False) as env, env.begin(write=True) as txn:
            for key in plain(path):
                assert txn.delete(key)
        assert plain(copy) == {}


@pytest.mark.parametrize(
    ("count", "depth"), [(0, 1), (1, 2), (7, 2), (8, 2), (50, 3), (60, 3), (350, 3), (600, 4), (4000, 5)]
)
def test_deep_trees(tmp_path: Path, count: int, depth: int) -> None:
    """Keys of 500 bytes leave seven children a page: trees of many levels, sound to read and to empty."""
    field = Field("f" * 489, BYTES, "|u1", (None,))
    path, values = str(tmp_path / "out.lmdb"), [b"%d" % i for i in range(count)]
    with create_store(path, Schema((field,))) as writer:
        writer.append(SampleBatch([f"{i}" for i in range(count)], {field.name: make_spans(values)}))
    with lmdb.open(path, subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
        assert depth == txn.stat()["depth"]
        assert values == [txn.get(b"%010d/%s" % (i, field.name.encode())) for i in range(count)]
    assert values == list(plain(path).values())
    keys = list(plain(path))
    with lmdb.open(path, subdir=False, map_size=1 << 28, sync=False) as env, env.begin(write=True) as txn:
        for key in keys[::-1]:
            assert txn.delete(key)
        assert txn.put(b"0" * 400, b"x" * 5000)
    assert plain(path) == {b"0" * 400: b"x" * 5000}


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 14, 15, 16, 17, 100])
def test_no_page_of_one_node(count: int) -> None:
    """Pages are cut so that none but a lone one holds a single node."""
    groups = _groups([500] * count)
    assert list(range(count)) == [i for group in groups for i in range(count)[group]]
    assert all(2 <= group.stop - group.start <= 8 for group in groups) or count == 1


def test_index_is_aligned(tmp_path: Path) -> None:
    """Index arrays are read in place, without a copy."""
    samples = make_samples(40)
    with open_store(write(tmp_path / "out.lmdb", samples)) as store:
        (shard,) = store.shards
        assert np.shares_memory(shard.starts["image"], shard.data.memory)
        assert np.shares_memory(store.column("label"), shard.data.memory)
        assert samples == read_all(store)


def test_values_beyond_the_format(tmp_path: Path) -> None:
    """LMDB counts a value's bytes in 32 bits; more is refused, not cut off."""
    file = PartialFile(str(tmp_path / "out.lmdb"))
    with pytest.raises(SchemaError, match="up to 4294967295 bytes"):
        LmdbWriter(file, LABELLED)._write_run(b"", 1 << 32)
    file.discard()


def test_samples_beyond_the_format(tmp_path: Path) -> None:
    """A sample's value is refused by its size, before its bytes are looked at."""
    file = PartialFile(str(tmp_path / "out.lmdb"))
    spans = replace(make_spans([b"", b""]), sizes=np.array([0, 1 << 32]))
    with pytest.raises(SchemaError, match="up to 4294967295 bytes"):
        LmdbWriter(file, LABELLED).append(["a", "b"], {"image": spans}, {}, {})
    file.discard()


_LONG = [4079, 4080, 4081, 8175, 8176, 8177, 100_000, 0, 3]


# CRC-32 of whole files as the first version of the writer wrote them, one value and one leaf at a time in Python.
@pytest.mark.parametrize(
    ("sizes", "fields", "batch_size", "crc"),
    [
        ([], ["image"], 16, 0x46324C8C),
        ([], [], 4, 0x6D5E7BE8),
        ([0, 1, 2, *range(2000, 2032), *range(2008, 2020), 0, 5000], ["image"], 16, 0x924AD672),
        (_LONG, ["image"], 4, 0x58610C12),
        ([0, 1, 2, *range(2000, 2032), *range(2008, 2020), 0, 5000, *_LONG], ["image"], 1000, 0x3AD8E712),
        ([0, 1, 2, *range(2000, 2032), *range(2008, 2020), 0, 5000, *_LONG], ["b", "a", "c"], 7, 0x6886FD1F),
        (list(range(0, 4000, 37)), ["x" * 400], 10, 0x17CE9113),
        ([4] * 3000, ["z", "f" * 489], 999, 0x64C53E5E),
        ([3000, 10] * 500, ["image"], 64, 0xFB02D3E9),
    ],
)
def test_golden_files(tmp_path: Path, sizes: list[int], fields: list[str], batch_size: int, crc: int) -> None:
    """The same samples give the same file in every version, to the bit, however they are cut into batches."""
    rng = random.Random(7)
    values = {name: [rng.randbytes(size) for size in (sizes[::-1] if i else sizes)] for i, name in enumerate(fields)}
    schema = Schema(tuple(Field(name, BYTES, "|u1", (None,)) for name in fields))
    for name, step in (("a.lmdb", batch_size), ("b.lmdb", 11)):
        with create_store(tmp_path / name, schema) as writer:
            for at in range(0, len(sizes), step):
                keys = [f"{i}" for i in range(at, min(at + step, len(sizes)))]
                spans = {field: make_spans(each[at : at + step]) for field, each in values.items()}
                writer.append(SampleBatch(keys, spans))
        assert crc == zlib.crc32((tmp_path / name).read_bytes())


def test_pieces_of_a_large_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is turned into pages piece by piece, which nobody sees in the file."""
    samples = make_samples(300)
    whole = Path(write(tmp_path / "whole.lmdb", samples, batch_size=300)).read_bytes()
    monkeypatch.setattr("fastio.store.formats.lmdb.PIECE_BYTES", 5000)
    assert whole == Path(write(tmp_path / "pieces.lmdb", samples, batch_size=300)).read_bytes()


def test_folder_of_an_environment(tmp_path: Path) -> None:
    """An LMDB environment that others wrote is refused by name."""
    lmdb.open(str(tmp_path / "env.lmdb")).close()
    with pytest.raises(StoreError, match=r"env\.lmdb"):
        open_store(tmp_path / "env.lmdb")
    with lmdb.open(str(tmp_path / "file.lmdb"), subdir=False) as env, env.begin(write=True) as txn:
        txn.put(b"a", b"1")
    with pytest.raises(StoreError, match=r"file\.lmdb.*value of 'a' is neither"):
        open_store(tmp_path / "file.lmdb")
