"""Ranges of objects on the disk: found again whole, or not at all."""

from __future__ import annotations

import errno
import logging
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastio.store.files.remote.range_cache import RangeCache, object_id
from fastio.store.files.remote.range_cache_files import TRAILER_BYTES
from fastio.store.files.remote_options import Remote
from tests.forking import fork, in_fork, status_of
from tests.store.faults import CALLS, fault, kill

DATA = np.random.default_rng(15).integers(0, 256, 10_000, dtype=np.uint8)
NAME = "0123456789abcdef-fedcba9876543210"


def cache_of(folder: Path, limit: int | None = None) -> RangeCache:
    """A cache as another process has it: nothing known yet."""
    return RangeCache(str(folder), limit)


def keep(cache: RangeCache, start: int, stop: int, name: str = NAME) -> None:
    """Keep a range of DATA."""
    cache.keep(name, start, stop, DATA[start:stop])


def found(cache: RangeCache, start: int, stop: int, name: str = NAME) -> NDArray[np.uint8] | None:
    """A range, which if it is found is DATA's."""
    data = cache.find(name, start, stop)
    assert data is None or data.tobytes() == DATA[start:stop].tobytes()
    return data


def files(folder: Path) -> list[Path]:
    """What lies in the folder of the object."""
    return sorted(path for path in (folder / NAME).glob("*") if not path.name.startswith("."))


def in_children(count: int, work: Callable[[int], None]) -> None:
    """Run ``work(number)`` in so many processes at once; none may fail."""
    children = [fork(partial(work, number)) for number in range(count)]
    assert [0] * count == [status_of(child) for child in children]


def test_what_was_kept_is_found(tmp_path: Path) -> None:
    """Any part of a range, also by another process; nothing else."""
    keep(cache_of(tmp_path), 100, 900)
    other = cache_of(tmp_path)

    assert found(other, 100, 900) is not None
    assert found(other, 250, 251) is not None
    assert found(other, 99, 900) is None
    assert found(other, 100, 900, "another-object") is None


def test_found_ranges_are_read_only(tmp_path: Path) -> None:
    """Nobody changes the file by changing an array."""
    cache = cache_of(tmp_path)
    keep(cache, 0, 50)
    keep(cache, 50, 100)
    for start, stop in ((0, 50), (20, 80)):
        data = cache.find(NAME, start, stop)
        assert data is not None
        assert not data.flags.writeable


@given(
    kept=st.lists(st.tuples(st.integers(0, 9000), st.integers(1, 999)), max_size=8),
    asked=st.tuples(st.integers(0, 9000), st.integers(0, 999)),
)
def test_pieces(kept: list[tuple[int, int]], asked: tuple[int, int], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Pieces are the range, without gaps or overlaps, and hold exactly the bytes that were kept; no byte lies twice."""
    folder = tmp_path_factory.mktemp("cache")
    cache, is_kept = cache_of(folder), np.zeros(len(DATA), bool)
    for start, size in kept:
        keep(cache, start, start + size)
        is_kept[start : start + size] = True
    start, stop = asked[0], sum(asked)
    pieces = cache.pieces(NAME, start, stop)

    assert [start, *(last for _, last, _ in pieces)][: len(pieces)] == [first for first, _, _ in pieces]
    assert [stop] == [last for _, last, _ in pieces][-1:] or start == stop
    for first, last, data in pieces:
        assert is_kept[first:last].tolist() == [data is not None] * (last - first)
        assert data is None or data.tobytes() == DATA[first:last].tobytes()
    assert (found(cache, start, stop) is not None) == is_kept[start:stop].all()
    assert is_kept.sum() == sum(path.stat().st_size - TRAILER_BYTES for path in files(folder))


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-1],
        lambda raw: raw[: len(raw) // 2],
        lambda raw: b"",
        lambda raw: bytes(len(raw)),
        lambda raw: raw + b"\0",
        lambda raw: raw[:300] + bytes([raw[300] ^ 1]) + raw[301:],
        lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
    ],
    ids=["cut", "half", "empty", "zeros", "longer", "flipped", "flipped-length"],
)
def test_damage_is_a_miss(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """A torn or flipped file is removed, and kept anew."""
    keep(cache_of(tmp_path), 0, 800)
    (file,) = files(tmp_path)
    file.write_bytes(damage(file.read_bytes()))
    cache = cache_of(tmp_path)

    assert found(cache, 10, 20) is None
    assert [] == files(tmp_path)
    keep(cache, 0, 800)
    assert found(cache, 10, 20) is not None


def test_renamed_file_is_a_miss(tmp_path: Path) -> None:
    """A range under another range's name, or another object's, is not taken for it."""
    keep(cache_of(tmp_path), 0, 800)
    (file,) = files(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "0-800").write_bytes(file.read_bytes())
    file.rename(file.with_name("100-900"))

    assert found(cache_of(tmp_path), 100, 900) is None
    assert found(cache_of(tmp_path), 0, 800, "other") is None


def test_dropped_ranges_are_gone(tmp_path: Path) -> None:
    """Those that share a byte with the bad sample go, others stay."""
    cache = cache_of(tmp_path)
    for start in (0, 100, 200):
        keep(cache, start, start + 100)
    cache.drop(NAME, 99, 101)

    assert ["200-300"] == [path.name for path in files(tmp_path)]
    assert [(0, 200, False), (200, 300, True)] == [
        (start, stop, data is not None) for start, stop, data in cache.pieces(NAME, 0, 300)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_the_kept_fraction_is_hit_every_epoch(seed: int, tmp_path: Path) -> None:
    """Whatever the order and the cuts of its ranges: hits are the kept bytes, in each epoch, and no byte more."""
    rng = np.random.default_rng(seed)
    limit = 5_000
    cache = cache_of(tmp_path, limit)
    hits = []
    for _ in range(4):
        cuts = np.unique(np.concatenate(([0, len(DATA)], rng.integers(1, len(DATA), 30))))
        before = cache.hit_bytes
        for i in rng.permutation(len(cuts) - 1).tolist():
            for start, stop, data in cache.pieces(NAME, int(cuts[i]), int(cuts[i + 1])):
                if data is None:
                    keep(cache, start, stop)
        hits.append(cache.hit_bytes - before)

    assert [0, *[cache.kept_bytes] * 3] == hits
    assert sum(path.stat().st_size for path in files(tmp_path)) <= limit
    assert cache.kept_bytes > 0.8 * limit


def test_a_full_cache_keeps_what_it_has(tmp_path: Path) -> None:
    """At the limit nothing goes and nothing comes."""
    cache = cache_of(tmp_path, 2 * (100 + TRAILER_BYTES))
    for start in (0, 100, 200, 300):
        keep(cache, start, start + 100)

    assert ["0-100", "100-200"] == [path.name for path in files(tmp_path)]


def test_other_versions_go_first(tmp_path: Path) -> None:
    """A replaced object's ranges make room at the limit; other objects' ranges stay."""
    options = Remote()
    old, new = (object_id("s3://b/in.tar", options, size=10_000, version=version) for version in ("1", "2"))
    other = object_id("s3://b/other.tar", options, size=10_000, version="1")
    assert old is not None
    assert new is not None
    assert other is not None
    cache = cache_of(tmp_path, 2 * (100 + TRAILER_BYTES))
    for name in (old, other):
        keep(cache, 0, 100, name)
    later = cache_of(tmp_path, 2 * (100 + TRAILER_BYTES))
    keep(later, 0, 100, new)

    assert found(later, 0, 100, new) is not None
    assert found(later, 0, 100, other) is not None
    assert not (tmp_path / old).exists()


def test_what_nobody_opened_for_long_makes_room(tmp_path: Path) -> None:
    """Objects of other stores go after a week, but only at the limit."""
    keep(cache_of(tmp_path), 0, 100, "old-1")
    os.utime(tmp_path / "old-1", (0, 0))
    keep(cache_of(tmp_path, 300), 0, 100, "new-1")
    assert (tmp_path / "old-1").exists()
    keep(cache_of(tmp_path, 300), 100, 200, "new-1")

    assert not (tmp_path / "old-1").exists()
    assert found(cache_of(tmp_path), 0, 200, "new-1") is not None


def test_versions_have_names_of_their_own() -> None:
    """URL, server, size and ETag tell objects apart; credentials do not; without a version nothing is kept."""

    def name(url: str = "s3://b/k", size: int = 1, version: str = "e", **storage: str) -> str | None:
        return object_id(url, Remote(storage), size=size, version=version)

    assert 5 == len({name(), name("s3://b/l"), name(size=2), name(version="f"), name(endpoint="http://h")})
    assert name() == name(secret_access_key="s")
    assert name(version="") is None


def test_two_processes(tmp_path: Path) -> None:
    """Four processes keep and find at once: all that is found is right, and nothing is lost."""

    def work(seed: int) -> None:
        rng, cache = np.random.default_rng(seed), cache_of(tmp_path)
        for start in rng.integers(0, 9000, 150).tolist():
            if found(cache, start, start + 700) is None:
                keep(cache, start, start + 500)
            assert found(cache, start + 100, start + 400) is not None

    in_children(4, work)

    assert [] == list((tmp_path / NAME).glob(".*"))


def test_a_full_disk_turns_writing_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One warning, no error; what was kept is still found, and no half-written file stays."""
    cache = cache_of(tmp_path)
    keep(cache, 0, 100)

    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with fault(2, full, calls=("write",), lasting=True), caplog.at_level(logging.WARNING):
        for start in (100, 200, 300):
            keep(cache, start, start + 100)

    assert 1 == len(caplog.records)
    assert "No space left" in caplog.text
    assert found(cache, 0, 100) is not None
    assert ["0-100"] == [path.name for path in (tmp_path / NAME).iterdir()]


def test_a_folder_that_cannot_be_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file in the place of the folder: nothing is kept, reading goes on, one warning."""
    (tmp_path / "taken").write_text("")
    cache = cache_of(tmp_path / "taken")
    keep(cache, 0, 100)

    assert found(cache, 0, 100) is None
    assert b"fetched" == cache.once(NAME, 0, 7, lambda: b"fetched", wait_s=1).tobytes()
    assert 1 == len(caplog.records)


@pytest.mark.parametrize("at", range(1, 8))
def test_killed_while_writing(at: int, tmp_path: Path) -> None:
    """A process killed at any call to the system leaves ranges that are whole, or no range."""
    keep(cache_of(tmp_path), 0, 50)

    def write() -> None:
        with fault(at, kill, calls=CALLS):
            keep(cache_of(tmp_path), 0, 200)

    status = in_fork(write)
    cache = cache_of(tmp_path)

    assert status in (0, -signal.SIGKILL)
    assert found(cache, 0, 50) is not None
    found(cache, 0, 200)  # right if it is there
    keep(cache, 0, 200)
    assert found(cache, 0, 200) is not None


def test_leavings_of_killed_writers_go(tmp_path: Path) -> None:
    """Hidden files that are an hour old are removed when the folder is read."""
    keep(cache_of(tmp_path), 0, 50)
    for name, age_s in ((".50-90.1-ab", 4000), (".50-90.2-cd", 0)):
        (tmp_path / NAME / name).write_bytes(b"torn")
        if age_s:
            os.utime(tmp_path / NAME / name, (0, 0))
    found(cache_of(tmp_path), 50, 90)

    assert [".50-90.2-cd", "0-50"] == sorted(path.name for path in (tmp_path / NAME).iterdir())


def test_an_index_is_fetched_once(tmp_path: Path) -> None:
    """Of four processes that need a range at the same time, one fetches it, limit or not."""

    def work(number: int) -> None:
        def fetch() -> bytes:
            (tmp_path / f"fetched-{number}").touch()
            return DATA[:5000].tobytes()

        data = cache_of(tmp_path / "cache", 10).once(NAME, 0, 5000, fetch, wait_s=60)
        assert data.tobytes() == DATA[:5000].tobytes()

    in_children(4, work)

    assert 1 == len(list(tmp_path.glob("fetched-*")))


def hang(pipe: int) -> bytes:
    """Write a byte to a pipe and wait for a signal."""
    os.write(pipe, b"!")
    signal.pause()
    raise AssertionError("nobody killed this process")


def test_a_dead_fetcher_blocks_nobody(tmp_path: Path) -> None:
    """A process killed while it fetches an index, or one that hangs there, lets the next one fetch."""
    reading, writing = os.pipe()
    child = fork(lambda: cache_of(tmp_path).once(NAME, 0, 7, lambda: hang(writing), wait_s=60))
    os.read(reading, 1)
    cache = cache_of(tmp_path)
    hanging = cache.once(NAME, 0, 5, lambda: b"12345", wait_s=0.05).tobytes()
    os.kill(child, signal.SIGKILL)
    dead = cache.once(NAME, 0, 7, lambda: b"1234567", wait_s=60).tobytes()
    status_of(child)

    assert (b"12345", b"1234567") == (hanging, dead)


def test_a_failed_fetch_is_raised(tmp_path: Path) -> None:
    """And the next one may try."""
    cache = cache_of(tmp_path)
    with pytest.raises(ZeroDivisionError):
        cache.once(NAME, 0, 7, lambda: 1 // 0, wait_s=1)

    assert b"1234567" == cache.once(NAME, 0, 7, lambda: b"1234567", wait_s=1).tobytes()


def test_one_cache_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options name it; without a folder or with a limit of 0 there is none."""
    monkeypatch.chdir(tmp_path)
    cache = RangeCache.of(Remote(cache_dir="x", cache_limit=1_000_000))

    assert cache is not None
    assert cache is RangeCache.of(Remote(cache_dir=str(tmp_path / "x"), cache_limit=1_000_000))
    assert RangeCache.of(Remote()) is None
    assert RangeCache.of(Remote(cache_dir=str(tmp_path), cache_limit=0)) is None
