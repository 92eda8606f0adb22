"""Keys of two stores matched: as a dict would, whatever their order, number and layout, and however digests collide."""

from __future__ import annotations

import tracemalloc
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastio import _native
from fastio.store import SampleBatch, create_store, open_store
from fastio.store.beside import match
from fastio.store.beside.match import match_keys
from fastio.store.index.views import join_stores
from fastio.types.schema import BYTES, Field, Schema
from tests.store.build import make_spans

_KEYS = st.lists(st.text("ab01./é", min_size=1, max_size=6), min_size=1, max_size=30, unique=True)
_SCHEMA = Schema((Field("value", BYTES, "|u1", (None,)),))


def write(path: Path, keys: list[str], *, shard_bytes: int | None = None) -> Path:
    """A store with these keys, in this order; each value is its key."""
    with create_store(path, _SCHEMA, shard_bytes=shard_bytes) as writer:
        for key in keys:
            writer.append(SampleBatch([key], {"value": make_spans([key.encode()])}))
    return path


def plain(first: list[str], other: list[str]) -> tuple[list[int], set[str], set[str]]:
    """The rows by a dict, and the keys that only one has."""
    places = {key: number for number, key in reversed(list(enumerate(other)))}
    return [places.get(key, -1) for key in first], set(first) - places.keys(), places.keys() - set(first)


def check(first: list[str], other: list[str], suffixes: tuple[str, str], shard_bytes: int | None = None) -> None:
    """Matching is what a dict says."""
    with TemporaryDirectory() as folder:
        names = [
            f"{name}-%03d.{suffix}" if suffix == "tar" else f"{name}.{suffix}"
            for name, suffix in zip("ab", suffixes, strict=True)
        ]
        paths = [
            write(Path(folder, name), keys, shard_bytes=shard_bytes if "%" in name else None)
            for name, keys in zip(names, (first, other), strict=True)
        ]
        with open_store(paths[0]) as a, open_store(paths[1]) as b:
            found = match_keys(a, b)
    rows, missing, extra = plain(first, other)
    got = list(range(len(first))) if found.rows is None else found.rows.tolist()
    assert (rows, len(missing), len(extra), 0) == (got, found.missing.count, found.extra.count, found.double.count)
    assert set(found.missing.first) <= missing
    assert set(found.extra.first) <= extra
    assert min(3, len(missing)) == len(found.missing.first)
    assert min(3, len(extra)) == len(found.extra.first)


@settings(max_examples=40, deadline=None)
@given(
    keys=_KEYS,
    data=st.data(),
    suffixes=st.tuples(st.sampled_from(["lmdb", "h5", "tar"]), st.sampled_from(["h5", "zip", "tar"])),
    bits=st.sampled_from([2, 64]),
)
def test_as_a_dict_matches(keys: list[str], data: Any, suffixes: tuple[str, str], bits: int) -> None:
    """Any order, any part of the keys, several shards, several ranges of digests, and digests of two bits."""
    first = data.draw(st.permutations(keys))[: data.draw(st.integers(1, len(keys)))]
    other = data.draw(st.permutations(keys))[: data.draw(st.integers(1, len(keys)))]
    whole = match._Keys.digests

    def short(self: Any, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        digests = whole(self, rows)
        return digests if bits == 64 else digests << np.uint64(64 - bits)

    with (
        mock.patch.object(match, "_PIECE", 4),
        mock.patch.object(match, "_TOGETHER", 8),
        mock.patch.object(match._Keys, "digests", short),
    ):
        check(first, other, suffixes, shard_bytes=2_000)


@settings(max_examples=40, deadline=None)
@given(keys=_KEYS, data=st.data(), suffixes=st.tuples(st.sampled_from(["lmdb", "tar"]), st.sampled_from(["h5", "tar"])))
def test_stems_as_pathlib_sees_them(keys: list[str], data: Any, suffixes: tuple[str, str]) -> None:
    """What comes before the last dot of a name that begins with something else; a dict of these is what matches."""
    other = data.draw(st.permutations(keys))
    with TemporaryDirectory() as folder, mock.patch.object(match, "_PIECE", 4):
        paths = [Path(folder, f"{name}.{suffix}") for name, suffix in zip("ab", suffixes, strict=True)]
        for path, own in zip(paths, (keys, other), strict=True):
            write(path, own)
        with open_store(paths[0]) as a, open_store(paths[1]) as b:
            found = match_keys(a, b, stems=True)
    of_other = {stem(key): number for number, key in reversed(list(enumerate(other)))}
    expected = [of_other[stem(key)] for key in keys]
    assert expected == (list(range(len(keys))) if found.rows is None else found.rows.tolist())
    assert (0, 0) == (found.missing.count, found.extra.count)
    counts = [list(map(stem, keys)).count(each) for each in {*map(stem, keys)}]
    assert sum(count > 1 for count in counts) == found.double.count


def stem(key: str) -> str:
    """A key without its extension."""
    folder, slash, name = key.rpartition("/")
    before, dot, _ = name.rpartition(".")
    return folder + slash + (before if dot and before else name)


def test_equal_order_needs_no_rows(tmp_path: Path) -> None:
    """The map is None then, whatever the layout of the keys."""
    keys = [f"{number:05d}.jpg" for number in range(100)]
    paths = [write(tmp_path / name, keys) for name in ("a.lmdb", "b.h5")]
    with open_store(paths[0]) as a, open_store(paths[1]) as b:
        assert match_keys(a, b).rows is None


@pytest.mark.parametrize("stems", [False, True])
def test_memory_does_not_grow_with_keys(tmp_path: Path, *, stems: bool) -> None:
    """What has an entry per key lies in files, which the kernel may write out;"""
    keys = [f"{number:x}/{'x' * (number % 3)}.jpg" for number in range(20_000)]
    with open_store(write(tmp_path / "a.lmdb", keys)) as a, closing(_native.ThreadPool(1)) as pool:
        assert not a.shards[0].keys.are_fixed
        tracemalloc.start()
        try:
            found = match._Keys(a, pool, stems=stems)
            assert tracemalloc.get_traced_memory()[0] < 80_000  # 8 bytes a key are twice that
        finally:
            tracemalloc.stop()
        rows = np.array([0, 17, 19_999])
        expected = [stem(keys[row]) if stems else keys[row] for row in rows]
        assert expected == [each.decode() for each in found.values(rows)]


@pytest.mark.parametrize("is_first", [True, False])
def test_double_keys_are_counted(tmp_path: Path, *, is_first: bool) -> None:
    """A key that one of the two has twice; its first sample counts, and none is missing."""
    once = open_store(write(tmp_path / "once.h5", ["b", "a", "c"]))
    some = open_store(write(tmp_path / "some.h5", ["c", "a"]))
    twice = join_stores([once, some], ["value"])
    pair = (twice, once) if is_first else (once, twice)

    found = match_keys(*pair)

    assert (["a", "c"], 2) == (sorted(found.double.first), found.double.count)
    assert (0, 0) == (found.missing.count, found.extra.count)
    assert found.rows is None or ([0, 1, 2, 2, 1] if is_first else [0, 1, 2]) == found.rows.tolist()
