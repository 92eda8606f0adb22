"""A large index is compared piece by piece, where it is touched: here each index is large."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastio import FastDataset, FastLoader, beside
from fastio._native import ThreadPool, crc32
from fastio.errors import SampleError, StoreCorrupt, StoreError
from fastio.loader.producer.chunks import Upcoming
from fastio.store import open_store
from fastio.store.files.mapped import InPlaceFiles
from fastio.store.formats import FORMATS
from fastio.store.index import arrays
from fastio.store.index.arrays import CHECKSUMS, KEY_STARTS, IndexArray, Keys, Tables
from fastio.store.index.seal import NARROW
from fastio.store.index.store import SealedStore
from fastio.store.index.verify import verify_store
from fastio.store.index.views import SelectedStore
from fastio.store.protocol import SampleStore
from fastio.types.schema import RAW, TOKENS, Field
from tests.conftest import write_store
from tests.forking import answer_of_fork
from tests.store.build import make_samples, read_all, write
from tests.store.list_conformance import list_samples, write_lists

FORMS = ["out.lmdb", "out.h5", "out.zip", "out-%06d.tar"]
COUNT = 200
POOL = ThreadPool(1)
LOADED = (Field("tokens", TOKENS, "<u2", (None,)), Field("image", RAW, "|u1", (4, 4, 3)))  # one for each producer


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every index has tables, of small pieces."""
    monkeypatch.setattr(arrays, "LARGE_FROM", 0)
    monkeypatch.setattr(arrays, "PIECE_BYTES", 128)
    monkeypatch.setattr(arrays, "KEYS_TOGETHER", 16)


@pytest.fixture(params=FORMS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of each format; that of tar is a set of shards."""
    shard_bytes = 100_000 if "%" in request.param else None
    return write(tmp_path / request.param, make_samples(COUNT), shard_bytes=shard_bytes)


def index_file(path: str) -> Path:
    """The file that has the index: of a set its set object."""
    return Path(path.replace("-%06d.tar", ".fastio-set"))


@contextmanager
def flipped(file: Path, place: int) -> Iterator[None]:
    """One bit of a file is wrong for a while."""
    _flip(file, place)
    yield
    _flip(file, place)


def _flip(file: Path, place: int) -> None:
    with file.open("r+b") as handle:
        handle.seek(place)
        byte = handle.read(1)[0]
        handle.seek(place)
        handle.write(bytes([byte ^ 4]))


def header_of(path: str) -> dict[str, Any]:
    """The header of the index."""
    data = index_file(path).read_bytes()
    start = data.rindex(b'{"fastio')
    header: dict[str, Any] = json.JSONDecoder().raw_decode(data[start:].decode("latin-1"))[0]
    return header


def places_of(path: str) -> dict[str, tuple[int, int]]:
    """Where each array of the index begins and ends."""
    header = header_of(path)
    found = {}
    for name, place in header["arrays"].items():
        size = int(np.prod(place["shape"])) * np.dtype(place["dtype"]).itemsize
        found[name] = place["start"], place["start"] + size
    return found


def test_all_is_as_without_tables(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples, keys, columns and receipt are those of a store whose index is compared when it is opened."""
    assert {CHECKSUMS} <= places_of(path).keys()
    monkeypatch.setattr(arrays, "LARGE_FROM", 1 << 40)
    (tmp_path / "plain").mkdir()
    plain = write(
        tmp_path / "plain" / Path(path).name, make_samples(COUNT), shard_bytes=100_000 if "%" in path else None
    )
    assert CHECKSUMS not in places_of(plain)
    with open_store(path) as store, open_store(plain) as other:
        assert read_all(store) == read_all(other) == make_samples(COUNT)
        assert np.array_equal(store.column("label"), other.column("label"))
        assert np.array_equal(store.value_bytes("image"), other.value_bytes("image"))
        assert store.receipt() == other.receipt()
        assert store.keys([7, COUNT - 1, 7]) == other.keys([7, COUNT - 1, 7])
        for ours, theirs in zip(store.shards, other.shards, strict=True):
            assert ours.keys.joined(0, ours.count) == theirs.keys.joined(0, theirs.count)
        assert verify_store(store) == []
        store.check_index()


def test_numbers_are_narrow(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts and sizes are as narrow as they may be, of a merged set, too; readers that do not know that refuse it."""
    header = header_of(path)
    assert header.get("fastio", header.get("fastio_set")) == (3 if "fastio" in header else 2)
    types = {name: place["dtype"] for name, place in header["arrays"].items()}
    assert types["image_starts"] == "<u4"
    assert types["image_sizes"] in ("|u1", "<u2")
    assert types["label"] == "<i8"
    with open_store(path) as store:
        assert store.value_bytes("image").dtype == np.int64
        assert store.shards[0].starts["image"].dtype == np.int64
    monkeypatch.setattr(arrays, "LARGE_FROM", 1 << 40)
    (tmp_path / "small").mkdir()
    write(tmp_path / "small" / "out.h5", make_samples(COUNT))
    assert header_of(str(tmp_path / "small" / "out.h5"))["fastio"] == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_plain_libraries_read_narrow_numbers(path: str) -> None:
    """The lines that `fastio info` prints find the same samples."""
    with open_store(path) as store:
        code = FORMATS[store.format].plain_reader(store.schema)
    shards = len(list(Path(path).parent.glob("*.tar")))
    names: dict[str, Any] = {"path": path.replace("-%06d", f"-{{000000..{shards - 1:06d}}}")}
    exec(compile(code, "formats.md", "exec"), names)
    assert list(make_samples(COUNT).values()) == names["images"]


@given(st.lists(st.integers(0, 2**33), max_size=9), st.sampled_from(["<i8", "<u4", "<i4"]))
def test_the_narrowest_type(numbers: list[int], dtype: str) -> None:
    """It holds all numbers, and no narrower one does; numbers below zero stay what they are."""
    wide = np.array(numbers, np.int64)
    parts = [wide[:2], wide[2:]]
    found = arrays.narrowest(np.dtype(dtype), parts)
    narrower = [each for each in NARROW if np.dtype(each).itemsize < np.dtype(dtype).itemsize]
    expected = next((each for each in narrower if max(numbers, default=0) <= np.iinfo(each).max), dtype)
    assert found.str == expected
    assert arrays.narrowest(np.dtype(dtype), [*parts, np.array([-1])]).str == dtype
    most = max(numbers, default=0)
    for bound in (most, most + 1, 300 * most):
        assert arrays.narrowest(np.dtype(dtype), parts, most=bound).str == expected


def test_a_bound_ends_the_search() -> None:
    """Where no further number can change the type, no further part is looked at."""
    parts = iter([np.array([70_000]), np.array([1])])
    assert arrays.narrowest(np.dtype("<i8"), parts, most=100_000).str == "<u4"
    assert [1] == next(parts).tolist()


def touched(store: SealedStore) -> int:
    """How many entries of the starts may be used without another look at checksums."""
    starts = store._opened().index.starts["image"]
    assert starts.pieces is not None
    return sum(not isinstance(_seen(starts, entry), StoreCorrupt) for entry in range(len(starts)))


def _seen(array: IndexArray, entry: int) -> StoreCorrupt | None:
    try:
        array.compare(entry, entry + 1)
    except StoreCorrupt as exc:
        return exc
    return None


def test_opening_compares_nothing(path: str) -> None:
    """What nobody asks for is not looked at, and a sample needs the pieces that it lies in."""
    with open_store(path) as store:
        index = store._opened().index
        each = [index.starts["image"], index.sizes["image"], index.checksums["image"], index.columns["label"]]
        assert not any(array.is_compared for array in each)
        store.spans("image", np.arange(COUNT))
        assert [array.is_compared for array in each] == [True, True, True, False]


def test_a_part_is_compared_where_it_is_touched() -> None:
    """A part of an array is what the array has there, and damage elsewhere does not matter to it."""
    numbers = np.arange(4096, dtype="<u4")
    raw = numbers.view(np.uint8).copy()
    size = arrays.PIECE_BYTES
    sums = np.array([crc32(raw[at : at + size]) for at in range(0, len(raw), size)], np.uint32)
    raw[3 * 4096] ^= 1  # entry 3072
    whole = IndexArray(raw.view("<u4"), pieces=arrays.pieces_of(raw, sums), path="p", name="n").of_type("<i8")
    part = whole.in_bytes(2, 5).cut(1000, 4000).cut(24, 2500)
    assert (len(part), part.is_compared, part.pieces) == (2476, False, None)
    assert (part.part(0, 2048) == 2 * numbers[1024:3072] + 5).all()
    touches: list[Callable[[], object]] = [lambda: part.part(2048, 2049), part.all, lambda: part.stored]
    for touch in touches:
        with pytest.raises(StoreCorrupt, match=r"p: index array 'n' \(bytes 12288 to 12416, entries 3072 to 3103\)"):
            touch()
    raw[3 * 4096] ^= 1
    assert (part.stored == numbers[1024:3500]).all()
    whole.all()
    assert part.is_compared


def test_damage_is_named_where_it_is_touched(path: str) -> None:
    """A sample of another piece is read as ever; one of the damaged piece says file, array, bytes and entries."""
    start, stop = places_of(path)["image_starts"]
    good, keys = np.array([0, 100, 199]), list(make_samples(COUNT))
    assert stop - start == 4 * COUNT
    with flipped(index_file(path), start + 4 * 40 + 1), open_store(path) as store:
        assert touched(store) == COUNT - 32
        assert store.keys(good) == [keys[i] for i in good]
        assert len(store.spans("image", good)) == 3
        what = r"index array 'image_starts' \(bytes .*, entries 32 to 63\): differs"
        with pytest.raises(StoreCorrupt, match=what) as caught:
            store.spans("image", np.array([0, 40]))
        assert str(caught.value).startswith(str(index_file(path)))
        with pytest.raises(StoreCorrupt, match=what):
            store.check_index()
        with pytest.raises(StoreCorrupt, match=what):
            FastDataset(path, verify="all")
        with pytest.raises(StoreCorrupt, match="image_starts"):
            open_store(path, read="pread")  # whoever copies an index compares it as a whole
        (damage,) = verify_store(store)
        assert damage.shard == str(index_file(path))
        assert "image_starts" in damage.problem


def test_a_loader_ends_at_a_damaged_index(path: str) -> None:
    """Whatever ``on_error`` says of samples: a piece of the index has the places of hundreds."""
    start, stop = places_of(path)["image_sizes"]
    with flipped(index_file(path), start + (stop - start) * 150 // COUNT):
        dataset = FastDataset(path)
        with (
            FastLoader(dataset, 4, on_error="skip", shuffle=True) as loader,
            pytest.raises(StoreCorrupt, match="sizes"),
        ):
            list(loader)


BACKWARDS = np.arange(COUNT)[::-1].copy()
MADE: dict[str, Callable[[SealedStore, SealedStore], tuple[SampleStore, str, NDArray[np.int64]]]] = {
    "itself": lambda one, _: (one, "image", np.arange(COUNT)),
    "a part": lambda one, _: (SelectedStore(one, BACKWARDS, None), "image", BACKWARDS),
    "beside": lambda one, lists: (beside(lists, one, fields={"label": None}), "image", np.arange(COUNT)),
    "elements": lambda _, lists: (lists.elements("images"), "images", np.arange(COUNT)),
    "elements of a part": lambda _, lists: (
        SelectedStore(lists, BACKWARDS, None).elements("images"),
        "images",
        lists.elements("images").of(BACKWARDS)[0],
    ),
}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("is_ahead", [True, False])
def test_what_was_compared_ahead_is_not_compared_again(made: str, is_ahead: bool, tmp_path: Path) -> None:
    """By a look-up in a store that is made of others, too: it does not see damage that came in between."""
    samples = make_samples(COUNT)
    one = write(tmp_path / "one.h5", samples)
    lists = write_lists(tmp_path / "lists.h5", dict(zip(samples, list_samples(COUNT).values(), strict=True)))
    with open_store(one) as first, open_store(lists) as second:
        store, field, entries = MADE[made](first, second)
        number = np.array([5])
        job = store.look_ahead(field, number, POOL) if is_ahead else None
        assert job is None or job.wait()
        path = lists if field == "images" else one
        with flipped(Path(path), places_of(path)[f"{field}_checksums"][0] + 4 * int(entries[5])):
            if is_ahead:
                assert store.spans(field, number).checksums is not None
            else:
                with pytest.raises(StoreCorrupt, match="checksums"):
                    store.spans(field, number)


@pytest.mark.parametrize("field", LOADED, ids=["tokens", "rows"])
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), array=st.sampled_from(["starts", "sizes", "checksums"]))
def test_damage_that_a_look_ahead_meets_comes_with_its_look_up(
    field: Field, place: float, array: str, tmp_path: Path
) -> None:
    """After as many batches as if nobody had looked before, and in the same words."""
    path = tmp_path / "a.h5"
    if not path.exists():
        write_store(path, [bytes(48)] * COUNT, np.arange(COUNT), field=field)
    start, stop = places_of(str(path))[f"{field.name}_{array}"]

    def ending() -> tuple[int, str]:
        count = 0
        try:
            with FastLoader(FastDataset(path), 4, shuffle="full") as loader:
                for _ in loader:
                    count += 1
        except StoreCorrupt as exc:
            return count, str(exc)
        return count, ""

    with flipped(path, start + int(place * (stop - start))), pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastio.loader.producer.tokens.LOOKED_UP_BYTES", 200)
        patch.setattr("fastio.loader.producer.tokens._LOOKED_UP_FIRST", 8)
        patch.setattr("fastio.loader.producer.tokens._FIRST_BATCHES", 1)
        patch.setattr(InPlaceFiles, "chunk_bytes", 400)
        found = ending()
        patch.setattr(Upcoming, "read", lambda _: None)
        assert found == ending()
        assert "differs from its CRC-32" in found[1]


@pytest.mark.parametrize(("field", "first"), [(LOADED[0], 1), (LOADED[1], 2)], ids=["tokens", "rows"])
def test_each_look_up_but_the_first_ones_is_read_ahead(
    field: Field, first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of two chunks; and a forked child, which has no threads of its parent, goes on as well."""
    monkeypatch.setattr("fastio.loader.producer.tokens.LOOKED_UP_BYTES", 400)
    monkeypatch.setattr("fastio.loader.producer.tokens._LOOKED_UP_FIRST", 4)
    monkeypatch.setattr("fastio.loader.producer.tokens._FIRST_BATCHES", 1)
    monkeypatch.setattr(InPlaceFiles, "chunk_bytes", 400)
    dataset = FastDataset(write_store(tmp_path / "a.h5", [bytes(48)] * COUNT, np.arange(COUNT), field=field))
    calls: list[tuple[str, list[int]]] = []

    def noting(name: str) -> Callable[..., Any]:
        call = getattr(dataset.store, name)

        def noted(field: str, indices: NDArray[np.int64], *args: Any, checksums: bool = True) -> Any:
            if checksums:
                calls.append((name, indices.tolist()))
            return call(field, indices, *args, checksums=checksums)

        return noted

    for name in ("spans", "look_ahead"):
        monkeypatch.setattr(dataset.store, name, noting(name))
    with FastLoader(dataset, 4, shuffle="full") as loader:
        iterator = iter(loader)
        next(iterator)
        assert answer_of_fork(lambda: sum(1 for _ in iterator)) == COUNT // 4 - 1
        assert sum(1 for _ in iterator) == COUNT // 4 - 1
    chunks = [samples for name, samples in calls if name == "spans"]
    assert len(chunks) > 5
    assert [samples for name, samples in calls if name == "look_ahead"] == chunks[first:]
    for number, samples in enumerate(chunks[2:], 2):
        assert calls.index(("look_ahead", samples)) < calls.index(("spans", chunks[number - 1])) or number < 4
        assert calls.index(("spans", chunks[first - 1])) < calls.index(("look_ahead", samples))


def test_every_flipped_bit_of_an_index_is_seen(path: str) -> None:
    """By opening, by what is asked for, or by verify; and what is given without an error is right."""
    samples = make_samples(COUNT)
    rng, silent = random.Random(1), []
    file = index_file(path)
    ranges = list(places_of(path).values())
    for _ in range(60):
        start, stop = rng.choice([each for each in ranges if each[1] > each[0]])
        place = rng.randrange(start, stop)
        with flipped(file, place):
            if not _is_seen(path, samples):
                silent.append(place)
    assert silent == []


def _is_seen(path: str, samples: dict[str, bytes]) -> bool:
    seen = False
    keys = list(samples)
    try:
        with open_store(path) as store:
            for index in range(0, len(samples), 7):
                try:
                    spans = store.spans("image", np.array([index]))
                    assert spans.view(0).tobytes() == samples[keys[index]]
                    assert store.keys([index]) == [keys[index]]
                except (StoreError, SampleError):
                    seen = True
            seen = bool(verify_store(store)) or seen
    except StoreError:
        seen = True
    return seen


def test_an_index_that_lies(tmp_path: Path) -> None:
    """A place outside of the file is refused with its sample, though every checksum fits."""
    path = write(tmp_path / "out.lmdb", make_samples(COUNT))
    with open_store(path) as store:
        index = store._opened().index
        lying = np.array(index.starts["image"].all())
        lying[17] = 1 << 40
        index.starts["image"]._array = lying
        refused = index.refused(store.schema["image"], 17, with_checksum=True)
    assert "sample 17, field 'image'" in str(refused)
    assert "do not fit" in str(refused)


def test_tables_that_do_not_fit(path: str) -> None:
    """Checksums of fewer pieces, or places of other keys, are refused."""
    with pytest.raises(StoreCorrupt, match="expected 3"):
        arrays.pieces_by_name({"a": 300, CHECKSUMS: 8}, np.zeros(2, np.uint32), path=path)
    keys = IndexArray(np.frombuffer(b"a\0b\0c", np.uint8))
    for starts in ([0, 4], [5], []):
        table = IndexArray(np.array(starts, np.int64))
        with pytest.raises(StoreCorrupt, match="index"):
            Keys(keys, 3, path=path, starts=table).compare()
    with pytest.raises(StoreCorrupt, match="3 keys from number 0 on, expected 4"):
        Keys(keys, 4, path=path, starts=IndexArray(np.zeros(1, np.int64)))[0]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the same for every example
@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=5), max_size=70))
def test_keys_by_a_table(keys: list[str]) -> None:
    """Each key, and any run of them, from the place of every 16th."""
    joined = np.frombuffer("\0".join(keys).encode(), np.uint8)
    tables = Tables()
    tables.add("keys", [joined[:9], joined[9:]])
    found = Keys(IndexArray(joined), len(keys), path="p", starts=IndexArray(tables.arrays()[KEY_STARTS]))
    found.compare()
    assert [found[i].decode() for i in range(len(keys))] == keys
    for start in range(0, len(keys), 5):
        assert found.joined(start, len(keys)).decode() == "\0".join(keys[start:])
        assert found.joined(start, start) == b""
    fixed = Keys.of(np.array([key.encode() for key in keys], "S20"), len(keys), path="p")
    if not any(key.endswith("\0") for key in keys):
        assert [fixed[i].decode() for i in range(len(keys))] == keys
