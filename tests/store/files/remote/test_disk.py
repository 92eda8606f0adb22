"""What is there of objects on the disk: found again as it was fetched, or not at all."""

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

from fastio.store.files.remote.disk import DiskObject
from fastio.store.files.remote.range_cache import RangeCache, object_id
from fastio.store.files.remote_options import Remote
from tests.forking import fork, in_fork, status_of
from tests.store.faults import CALLS, fault, kill

DATA = np.random.default_rng(15).integers(0, 256, 10_000, dtype=np.uint8)
PAGE = 4096  # what a cache takes of the disk is counted in
NAME = "0123456789abcdef-fedcba9876543210"


def cache_of(folder: Path, limit: int | None = None) -> RangeCache:
    """A cache as another process has it: nothing known yet."""
    return RangeCache(str(folder), limit)


def keep(cache: RangeCache, start: int, stop: int, name: str = NAME) -> None:
    """Keep a range of DATA."""
    cache.object(name, len(DATA)).keep(start, DATA[start:stop])


def found(cache: RangeCache, start: int, stop: int, name: str = NAME) -> NDArray[np.uint8] | None:
    """A range, which if it is found is DATA's."""
    data = cache.object(name, len(DATA)).find(start, stop)
    assert data is None or data.tobytes() == DATA[start:stop].tobytes()
    return data


def pieces(cache: RangeCache, start: int, stop: int) -> list[tuple[int, int, NDArray[np.uint8] | None]]:
    """A range in pieces."""
    return cache.object(NAME, len(DATA)).pieces(start, stop)


def there(cache: RangeCache) -> list[tuple[int, int]]:
    """What is there of the object."""
    return [(start, stop) for start, stop, data in pieces(cache, 0, len(DATA)) if data is not None]


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
        data = found(cache, start, stop)
        assert data is not None
        assert not data.flags.writeable


@given(
    kept=st.lists(st.tuples(st.integers(0, 9000), st.integers(1, 999)), max_size=8),
    asked=st.tuples(st.integers(0, 9000), st.integers(0, 999)),
)
def test_pieces(kept: list[tuple[int, int]], asked: tuple[int, int], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Pieces are the range, without gaps or overlaps, and hold exactly the bytes that were kept; none is kept twice."""
    folder = tmp_path_factory.mktemp("cache")
    cache, is_kept = cache_of(folder), np.zeros(len(DATA), bool)
    for start, size in kept:
        keep(cache, start, start + size)
        is_kept[start : start + size] = True
    start, stop = asked[0], sum(asked)
    for reader in (cache, cache_of(folder)):
        parts = pieces(reader, start, stop)
        assert [start, *(last for _, last, _ in parts)][: len(parts)] == [first for first, _, _ in parts]
        assert [stop] == [last for _, last, _ in parts][-1:] or start == stop
        for first, last, data in parts:
            assert is_kept[first:last].tolist() == [data is not None] * (last - first)
            assert data is None or data.tobytes() == DATA[first:last].tobytes()
        assert (found(reader, start, stop) is not None) == is_kept[start:stop].all()
    assert is_kept.sum() == cache.kept_bytes


def change(path: Path, damage: Callable[[bytes], bytes]) -> None:
    """Damage a file in place, as a disk does."""
    raw = damage(path.read_bytes())
    with path.open("r+b") as file:
        file.truncate(len(raw))
        file.write(raw)


@pytest.mark.parametrize("suffix", ["bytes", "ranges"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-1],
        lambda raw: raw[: len(raw) // 2],
        lambda raw: b"",
        lambda raw: bytes(len(raw)),
        lambda raw: raw[:30] + bytes([raw[30] ^ 1]) + raw[31:],
        lambda raw: raw[:70] + bytes([raw[70] ^ 1]) + raw[71:],
    ],
    ids=["cut", "half", "empty", "zeros", "flipped", "flipped-later"],
)
def test_damage_is_a_miss(damage: Callable[[bytes], bytes], suffix: str, tmp_path: Path) -> None:
    """Torn or flipped bytes are not found, and kept anew; nothing wrong is ever found."""
    keep(cache_of(tmp_path), 0, 800)
    change(tmp_path / f"{NAME}.{suffix}", damage)
    cache = cache_of(tmp_path)
    before = found(cache, 0, 800)
    keep(cache, 0, 800)

    assert before is None
    assert found(cache, 0, 800) is not None
    assert found(cache_of(tmp_path), 10, 20) is not None


def test_a_renamed_file_is_a_miss(tmp_path: Path) -> None:
    """What is there of one object is not taken for another one."""
    keep(cache_of(tmp_path), 0, 800)
    for suffix in ("bytes", "ranges"):
        (tmp_path / f"{NAME}.{suffix}").rename(tmp_path / f"other.{suffix}")

    assert found(cache_of(tmp_path), 0, 800, "other") is None


def test_files_made_anew_are_read_anew(tmp_path: Path) -> None:
    """A process that knows what was there does not find it in files that another one began after they were removed."""
    cache = cache_of(tmp_path)
    keep(cache, 0, 800)
    assert found(cache, 0, 800) is not None
    for path in tmp_path.iterdir():
        path.unlink()
    keep(cache_of(tmp_path), 5000, 6000)

    assert [(5000, 6000)] == there(cache)


def test_dropped_ranges_are_gone(tmp_path: Path) -> None:
    """Those that share a byte with the bad sample go, for other processes too; others stay."""
    cache, other = cache_of(tmp_path), cache_of(tmp_path)
    for start in (0, 100, 200):
        keep(cache, start, start + 100)
    assert [(0, 300)] == there(other)
    cache.object(NAME, len(DATA)).drop(99, 101)

    assert [(200, 300)] == there(cache) == there(other)
    keep(other, 0, 200)
    assert [(0, 300)] == there(cache) == there(other)


def test_a_folder_that_can_only_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is found, a range that is damaged is not read again, and fetching is not kept from anybody."""
    keep(cache_of(tmp_path), 0, 800)
    keep(cache_of(tmp_path), 800, 900)
    change(tmp_path / f"{NAME}.bytes", lambda raw: raw[:850] + bytes([raw[850] ^ 1]) + raw[851:])
    real = os.open

    def refuse(path: str, flags: int, *args: int) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, flags, *args)

    monkeypatch.setattr(os, "open", refuse)
    cache = cache_of(tmp_path)

    assert [(0, 800)] == there(cache)
    assert cache.object(NAME, len(DATA)).claim(0, 10) is not None
    keep(cache, 800, 900)
    assert [(0, 800)] == there(cache)


@pytest.mark.parametrize("seed", range(4))
def test_the_kept_fraction_is_hit_every_epoch(seed: int, tmp_path: Path) -> None:
    """Whatever the order and the cuts of its ranges: hits are the kept bytes, in each epoch, and no byte more."""
    rng = np.random.default_rng(seed)
    data, limit = rng.integers(0, 256, 4 << 20, dtype=np.uint8), 2 << 20
    cache = cache_of(tmp_path, limit)
    kept = cache.object(NAME, len(data))
    hits = []
    for _ in range(4):
        cuts = np.unique(np.concatenate(([0, len(data)], rng.integers(1, len(data), 30))))
        before = cache.hit_bytes
        for i in rng.permutation(len(cuts) - 1).tolist():
            for start, stop, there in kept.pieces(int(cuts[i]), int(cuts[i + 1])):
                if there is None:
                    kept.keep(start, data[start:stop])
        hits.append(cache.hit_bytes - before)

    assert [0, *[cache.kept_bytes] * 3] == hits
    assert sum(512 * path.stat().st_blocks for path in tmp_path.iterdir()) <= limit + 2 * PAGE
    assert cache.kept_bytes > 0.8 * limit


def test_a_full_cache_keeps_what_it_has(tmp_path: Path) -> None:
    """At the limit nothing goes and nothing comes."""
    cache = cache_of(tmp_path, 3 * PAGE + 200)
    for start, stop in ((0, 100), (100, 200), (5000, 10_000)):
        keep(cache, start, stop)

    assert [(0, 200)] == there(cache)


def test_other_versions_go_first(tmp_path: Path) -> None:
    """A replaced object's ranges make room at the limit; other objects' ranges stay."""
    options = Remote()
    old, new = (object_id("s3://b/in.tar", options, size=10_000, version=version) for version in ("1", "2"))
    other = object_id("s3://b/other.tar", options, size=10_000, version="1")
    assert old is not None
    assert new is not None
    assert other is not None
    cache = cache_of(tmp_path, 5 * PAGE)
    for name in (old, other):
        keep(cache, 0, 100, name)
    later = cache_of(tmp_path, 5 * PAGE)
    keep(later, 0, 100, new)

    assert found(later, 0, 100, new) is not None
    assert found(later, 0, 100, other) is not None
    assert [] == list(tmp_path.glob(f"{old}.*"))


def test_what_nobody_opened_for_long_makes_room(tmp_path: Path) -> None:
    """Objects of other stores go after a week, but only at the limit."""
    keep(cache_of(tmp_path), 0, 100, "old-1")
    os.utime(tmp_path / "old-1.ranges", (0, 0))
    keep(cache_of(tmp_path, 4 * PAGE), 0, 100, "new-1")
    assert (tmp_path / "old-1.bytes").exists()
    keep(cache_of(tmp_path, 4 * PAGE), 5000, 5100, "new-1")

    assert [] == list(tmp_path.glob("old-1.*"))
    assert found(cache_of(tmp_path), 0, 100, "new-1") is not None
    assert found(cache_of(tmp_path), 5000, 5100, "new-1") is not None


def test_a_folder_of_the_last_release(tmp_path: Path) -> None:
    """Its folders of ranges are not read, and make room with the first write; what others put beside them stays."""
    former = tmp_path / NAME
    former.mkdir()
    (former / "0-800").write_bytes(DATA[:800].tobytes() + b"fior".ljust(16, b"\0"))
    (former / ".lock").touch()
    (tmp_path / "mine").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    cache = cache_of(tmp_path)
    assert found(cache, 0, 800) is None
    keep(cache, 0, 800)

    assert found(cache, 0, 800) is not None
    assert [f"{NAME}.bytes", f"{NAME}.ranges", "mine", "notes.txt"] == sorted(path.name for path in tmp_path.iterdir())


def test_versions_have_names_of_their_own() -> None:
    """URL, server, size and ETag tell objects apart; credentials do not; without a version nothing is kept."""

    def name(url: str = "s3://b/k", size: int = 1, version: str = "e", **storage: str) -> str | None:
        return object_id(url, Remote(storage), size=size, version=version)

    assert 5 == len({name(), name("s3://b/l"), name(size=2), name(version="f"), name(endpoint="http://h")})
    assert name() == name(secret_access_key="s")
    assert name(version="") is None


def test_several_processes(tmp_path: Path) -> None:
    """Four processes keep, drop and find at once: all that is found is right, and nothing is lost."""

    def work(seed: int) -> None:
        rng, cache = np.random.default_rng(seed), cache_of(tmp_path)
        for step, start in enumerate(rng.integers(0, 9000, 100).tolist()):
            keep(cache, start, start + 500)
            found(cache, start + 100, start + 400)
            if seed == 0 and step % 20 == 0:
                cache.object(NAME, len(DATA)).drop(start, start + 1)

    in_children(4, work)
    cache = cache_of(tmp_path)
    keep(cache, 0, len(DATA))

    assert found(cache, 0, len(DATA)) is not None


def test_a_full_disk_turns_writing_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One warning, no error; what was kept is still found, and nothing that was not written."""
    cache = cache_of(tmp_path)
    keep(cache, 0, 100)

    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with fault(1, full, calls=("pwrite",), lasting=True), caplog.at_level(logging.WARNING):
        for start in (100, 200, 300):
            keep(cache, start, start + 100)

    assert 1 == len(caplog.records)
    assert "No space left" in caplog.text
    assert [(0, 100)] == there(cache) == there(cache_of(tmp_path))


def test_a_folder_that_cannot_be_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file in the place of the folder: nothing is kept, reading goes on, one warning."""
    (tmp_path / "taken").write_text("")
    cache = cache_of(tmp_path / "taken")
    keep(cache, 0, 100)

    assert found(cache, 0, 100) is None
    assert b"fetched" == once(cache, 7, lambda: b"fetched", wait_s=1).tobytes()
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


def test_what_a_crash_left_of_an_entry(tmp_path: Path) -> None:
    """The next one is written over it."""
    keep(cache_of(tmp_path), 0, 50)
    with (tmp_path / f"{NAME}.ranges").open("ab") as record:
        record.write(b"torn")
    keep(cache_of(tmp_path), 50, 90)
    keep(cache_of(tmp_path), 90, 99)

    assert [(0, 99)] == there(cache_of(tmp_path))


def test_what_a_power_failure_took(tmp_path: Path) -> None:
    """An entry without its bytes is not believed."""
    keep(cache_of(tmp_path), 0, 50)
    keep(cache_of(tmp_path), 50, 90)
    change(tmp_path / f"{NAME}.bytes", lambda raw: raw[:50] + bytes(len(raw) - 50))

    assert [(0, 50)] == there(cache_of(tmp_path))


def test_one_holds_a_file_for_itself(tmp_path: Path) -> None:
    """While a copy is checked nobody else adds to it; a process that is killed then lets others go on."""

    def files(*, makes: bool) -> DiskObject:
        return DiskObject(tmp_path / "x", tmp_path / "x.ranges", size=len(DATA), content="1", makes=makes)

    assert 0 == files(makes=False).write(0, DATA[:10])  # nobody copies
    reading, writing = os.pipe()

    def hold() -> None:
        holder = files(makes=True)
        holder.hold(1)
        holder.write(0, DATA[:100])
        hang(writing)

    child = fork(hold)
    os.read(reading, 1)
    other = files(makes=False)
    while_held = other.write(100, DATA[100:200])
    os.kill(child, signal.SIGKILL)
    status_of(child)

    assert (0, 100) == (while_held, other.write(100, DATA[100:200]))
    assert [] == other.gaps(0, 200)


def once(cache: RangeCache, size: int, fetch: Callable[[], bytes], *, wait_s: float) -> NDArray[np.uint8]:
    """The first bytes, as an index is read."""
    return cache.object(NAME, len(DATA)).once(0, size, fetch, wait_s=wait_s)


def test_an_index_is_fetched_once(tmp_path: Path) -> None:
    """Of four processes that need a range at the same time, one fetches it, limit or not."""

    def work(number: int) -> None:
        def fetch() -> bytes:
            (tmp_path / f"fetched-{number}").touch()
            return DATA[:5000].tobytes()

        data = once(cache_of(tmp_path / "cache", 10), 5000, fetch, wait_s=60)
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
    child = fork(lambda: once(cache_of(tmp_path), 7, lambda: hang(writing), wait_s=60))
    os.read(reading, 1)
    cache = cache_of(tmp_path)
    hanging = once(cache, 5, lambda: b"12345", wait_s=0.05).tobytes()
    os.kill(child, signal.SIGKILL)
    dead = once(cache, 7, lambda: b"1234567", wait_s=60).tobytes()
    status_of(child)

    assert (b"12345", b"1234567") == (hanging, dead)


def test_a_failed_fetch_is_raised(tmp_path: Path) -> None:
    """And the next one may try."""
    cache = cache_of(tmp_path)
    with pytest.raises(ZeroDivisionError):
        once(cache, 7, lambda: bytes(1 // 0), wait_s=1)

    assert b"1234567" == once(cache, 7, lambda: b"1234567", wait_s=1).tobytes()


def test_one_cache_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options name it; without a folder or with a limit of 0 there is none."""
    monkeypatch.chdir(tmp_path)
    cache = RangeCache.of(Remote(cache_dir="x", cache_limit=1_000_000))

    assert cache is not None
    assert cache is RangeCache.of(Remote(cache_dir=str(tmp_path / "x"), cache_limit=1_000_000))
    assert RangeCache.of(Remote()) is None
    assert RangeCache.of(Remote(cache_dir=str(tmp_path), cache_limit=0)) is None
