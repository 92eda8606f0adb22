"""Keys that come once, in memory and in runs on disk, and stores whose index went through spools."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio.errors import SchemaError
from fastio.store import SampleBatch, create_store, open_store
from fastio.store.sets.merge import merge_stores
from fastio.store.write import keys as key_ledger
from fastio.store.write import spool
from fastio.store.write.keys import KeyLedger, KeyRange, UniqueKeys, fixed_keys, key_pieces, places_of
from fastio.store.write.spool import Spool
from fastio.store.write.writer import DuplicateKeyError
from tests.conftest import SUFFIXES
from tests.store.build import LABELLED, TWO_PAYLOADS, make_batch, make_spans, write

KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So little stays in memory that a few rows go to files."""
    monkeypatch.setattr(spool, "SPOOL_BYTES", 50)
    monkeypatch.setattr(spool, "_PARTS", 3)
    monkeypatch.setattr(spool, "BLOCK_BYTES", 50)


@pytest.fixture
def small_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few keys fill the table of names."""
    monkeypatch.setattr(key_ledger, "TABLE_NAMES", 8)
    monkeypatch.setattr(key_ledger, "_READ_ROWS", 3)
    monkeypatch.setattr(key_ledger, "_MERGED_ROWS", 10)


@settings(max_examples=100)
@given(st.lists(st.lists(KEYS, min_size=1, max_size=8), max_size=6))
def test_keys_beside_a_set(batches: list[list[str]]) -> None:
    """A batch is refused at the first key that is there already, and then wholly."""
    ledger, seen, taken = KeyLedger(beside="x"), set[str](), list[str]()
    for keys in batches:
        twice = next((i for i, key in enumerate(keys) if key in seen or key in keys[:i]), None)
        assert ledger.add("\0".join(keys).encode()) == twice
        if twice is None:
            seen.update(keys)
            taken += keys
    joined = "\0".join(taken).encode()
    part = KeyRange(
        0, len(joined) + 1 if taken else 0, len(taken), max((len(key.encode()) for key in taken), default=0)
    )
    array = ledger.array(part, fixed=False)
    assert array.part(0, array.shape[0]).tobytes() == joined
    if taken:
        assert ledger.array(part, fixed=True).part(0, len(taken)).tolist() == [key.encode() for key in taken]
    ledger.close()


@settings(max_examples=100)
@given(st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=6), max_size=20))
def test_runs_on_disk_find_what_a_set_finds(batches: list[list[int]]) -> None:
    """At once or at the end, whatever the order: a key comes twice exactly if a set of all keys says so."""
    taken: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_ledger, "TABLE_NAMES", 8)
        patch.setattr(key_ledger, "_READ_ROWS", 3)
        patch.setattr(key_ledger, "_MERGED_ROWS", 10)
        keys = UniqueKeys(lambda: [b"\0".join(taken)] if taken else [], beside=None)
        for batch in batches:
            some = [b"%d" % number for number in batch]
            twice = keys.add(b"\0".join(some))
            if twice is None:
                taken += some
            else:
                assert some[twice] in taken + some[:twice]
        found = keys.repeated()
        keys.close()
    assert (found is not None) == (len(set(taken)) < len(taken))
    assert found is None or places_of(found, [b"\0".join(taken)]) == [i for i, k in enumerate(taken) if k == found][:2]


@given(st.lists(st.binary(min_size=1, max_size=9).filter(lambda key: b"\0" not in key)), st.integers(1, 20))
def test_pieces_of_keys(keys: list[bytes], piece_bytes: int) -> None:
    """All keys in order, whatever the size of pieces; ended by NUL or joined by it."""
    for end in (b"", b"\0") if keys else (b"",):
        rows = Spool(np.uint8, beside=None)
        rows.append(np.frombuffer(b"\0".join(keys) + end, np.uint8))
        assert keys == [key for piece in key_pieces(rows, piece_bytes) for key in piece.split(b"\0")]
        rows.close()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_key_far_from_the_first_is_found_at_the_end(suffix: str, tmp_path: Path, small_table: None) -> None:
    """The error names both samples; nothing is left."""
    numbers = np.random.default_rng(0).permutation(100).tolist()
    path = tmp_path / f"out.{suffix}"
    writer = create_store(path, LABELLED)
    for start in range(0, 100, 7):
        keys = [f"{number}.png" for number in numbers[start : start + 7]]
        writer.append(make_batch(keys, [b"x"] * len(keys)))
    writer.append(make_batch([f"{numbers[3]}.png"], [b"x"]))

    with pytest.raises(DuplicateKeyError, match=rf"samples 3 and 100 have the same key, '{numbers[3]}\.png'"):
        writer.close()
    assert [] == list(tmp_path.iterdir())


def test_names_of_members_far_apart(tmp_path: Path, small_table: None) -> None:
    """Two keys that would be one name in a tar file or zip archive, too far apart to be told so in time."""
    numbers = [*range(40, 60), *range(20)]
    keys = [f"{number}.png" for number in numbers]
    for suffix, last in (("tar", "40.jpg"), ("zip", "40.png.caption")):
        path = tmp_path / f"out.{suffix}"
        writer = create_store(path, TWO_PAYLOADS)
        for key in [*keys, last]:
            writer.append(SampleBatch([key], {"image": make_spans([b"x"]), "caption": make_spans([b"y"])}))
        with pytest.raises(SchemaError, match=r"out\..*(40\.png' and '40\.jpg|name of a field behind it)"):
            writer.close()
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("is_late", [False, True])
def test_a_key_of_two_merged_stores(is_late: bool, tmp_path: Path, small_table: None) -> None:
    """Both shards are named, whether the key is found at once or by merging runs."""
    write(tmp_path / "a.tar", {f"{number:02d}": b"x" for number in range(20, 40)})
    others = [5, 20, *range(6, 16)] if not is_late else [*range(5, 16), 20]
    write(tmp_path / "b.tar", {f"{number:02d}": b"x" for number in others})

    with pytest.raises(SchemaError, match=r"key '20' is in .*/a\.tar and in .*/b\.tar"):
        merge_stores([str(tmp_path / "a.tar"), str(tmp_path / "b.tar")], str(tmp_path / "ab.fastio-set"))
    assert ["a.tar", "b.tar"] == sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("order", ["rising", "numbers", "falling"])
def test_stores_whose_index_was_spooled(suffix: str, order: str, tmp_path: Path, small: None) -> None:
    """The same bytes as from memory, for keys in any order."""
    numbers = range(200) if order != "falling" else range(199, -1, -1)
    keys = [f"{i:03d}.png" if order == "rising" else f"{i}.png" for i in numbers]

    def write(path: Path) -> bytes:
        with create_store(path, LABELLED) as writer:
            for start in range(0, 200, 17):
                some = keys[start : start + 17]
                writer.append(make_batch(some, [key.encode() * 3 for key in some]))
            with pytest.raises(SchemaError, match=r"key '[0-9]+\.png' comes twice"):
                writer.append(make_batch(["new", keys[60]], [b"x"] * 2))
        return path.read_bytes()

    spooled = write(tmp_path / f"a.{suffix}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "SPOOL_BYTES", 8 << 20)
        patch.setattr(spool, "BLOCK_BYTES", 8 << 20)
        assert write(tmp_path / f"b.{suffix}") == spooled
    with open_store(tmp_path / f"a.{suffix}") as store:
        assert store.keys(np.arange(200)) == keys


def test_shards_take_their_part_of_the_index(tmp_path: Path, small: None) -> None:
    """Keys and labels of each shard are its own."""
    keys = [f"{i}.png" for i in range(50)]
    with create_store(tmp_path / "s-%06d.tar", LABELLED, shard_bytes=20_000) as writer:
        for start in range(0, 50, 7):
            some = keys[start : start + 7]
            writer.append(make_batch(some, [key.encode() for key in some]))
    assert len(list(tmp_path.iterdir())) > 2
    with open_store(tmp_path / "s-*.tar") as store:
        assert store.keys(np.arange(50)) == keys


def test_fixed_keys() -> None:
    """Strings of one width, without the NULs that numpy adds."""
    assert fixed_keys("a\0übc\0d".encode(), 5).tolist() == [b"a", "übc".encode(), b"d"]
