"""Bytes that a process leaves for the one that copies: taken once and whole, or fetched again."""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fastio.errors import StoreError
from fastio.store.index.seal import always_at
from fastio.store.staging import arrived_ranges
from fastio.store.staging import arrived_ranges as handover
from fastio.store.staging.arrived_ranges import (
    ArrivedRanges,
    Handed,
    accept_handed,
    hand_over,
    handed_over,
    refuse_handed,
)
from fastio.store.staging.plan import CopyContent
from tests.forking import fork, status_of

PLENTY = 1 << 40
CONTENT = CopyContent("in-000001.tar", 1000, 0x1A2B3C4D, always_at(-128))


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes are handed over, too."""
    monkeypatch.setattr(handover, "_LEAST_BYTES", 1)


def waiting(folder: Path) -> list[str]:
    """All names below a folder."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_what_is_handed_over_is_taken_once(tmp_path: Path) -> None:
    """With its place, and without leaving anything."""
    accept_handed(tmp_path, PLENTY)
    hand_over(tmp_path, CONTENT, 7, b"abc")
    hand_over(tmp_path, CONTENT, 7, b"abc")

    assert [Handed("in-000001.tar", 0x1A2B3C4D, 7, b"abc")] == list(handed_over(tmp_path))
    assert [] == list(handed_over(tmp_path))
    refuse_handed(tmp_path)
    assert [] == waiting(tmp_path)


def test_names_of_any_kind(tmp_path: Path) -> None:
    """Hyphens, line breaks and digits in the name of a file do not matter; one that is too long is not handed over."""
    accept_handed(tmp_path, PLENTY)
    for name in ("1-2-00000000-x", "a\nb", "ä"):
        hand_over(tmp_path, CopyContent(name, 10, 5, CONTENT.seal_at), 0, b"x")
        assert [Handed(name, 5, 0, b"x")] == list(handed_over(tmp_path))
    hand_over(tmp_path, CopyContent("x" * 250, 10, 5, CONTENT.seal_at), 0, b"x")
    assert [".fastio-stage.arrived"] == waiting(tmp_path)


def test_nothing_is_left_for_nobody(tmp_path: Path) -> None:
    """Where nobody copies, no longer copies, or the disk is nearly full."""
    hand_over(tmp_path, CONTENT, 0, b"abc")
    accept_handed(tmp_path, 1 << 20)
    hand_over(tmp_path, CONTENT, 0, b"abc")
    accept_handed(tmp_path, PLENTY)
    refuse_handed(tmp_path)
    hand_over(tmp_path, CONTENT, 0, b"abc")

    assert [] == waiting(tmp_path)


def test_what_waits_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copier that stands still does not let the disk fill up."""
    monkeypatch.setattr(handover, "_MOST_WAITING", 3)
    accept_handed(tmp_path, PLENTY)
    for start in range(9):
        hand_over(tmp_path, CONTENT, start, b"x")

    assert 3 == len(list(handed_over(tmp_path)))


def test_few_bytes_and_files_without_checksums_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file for some hundred bytes costs more than a request; versions of unsealed files cannot be told apart."""
    monkeypatch.setattr(handover, "_LEAST_BYTES", 4)
    accept_handed(tmp_path, PLENTY)
    hand_over(tmp_path, CONTENT, 0, b"abc")
    hand_over(tmp_path, CopyContent("foreign.tar", 1000, 0, None), 0, b"abcde")

    assert [] == list(handed_over(tmp_path))


def test_several_processes_at_once(tmp_path: Path) -> None:
    """Each of their ranges arrives, whole."""
    accept_handed(tmp_path, PLENTY)

    def work(number: int) -> None:
        for start in range(number, 200, 4):
            hand_over(tmp_path, CONTENT, start, bytes([start]) * 5)

    children = [fork(partial(work, number)) for number in range(4)]
    assert [0] * 4 == [status_of(child) for child in children]
    arrived = {handed.start: handed.data for handed in handed_over(tmp_path)}

    assert {start: bytes([start]) * 5 for start in range(200)} == arrived


@pytest.mark.parametrize(
    ("entry", "data"),
    [
        ("0-3-1a2b3c4d-in-000001.tar", b"ab"),  # torn
        ("0-3-00000000-in-000001.tar", b"abc"),  # of another version of the shard
        ("998-1001-1a2b3c4d-in-000001.tar", b"abc"),  # beyond its end
        ("0-3-1a2b3c4d-in-000002.tar", b"abc"),  # of a shard that is not copied now
        ("notes.txt", b"abc"),
    ],
)
def test_what_does_not_fit_is_not_written(tmp_path: Path, entry: str, data: bytes) -> None:
    """All of the shard stays to be fetched."""
    partial_copy = tmp_path / ".in-000001.tar.partial"
    arrived = ArrivedRanges()
    accept_handed(tmp_path, PLENTY)
    (tmp_path / ".fastio-stage.arrived" / entry).write_bytes(data)
    arrived.begin(CONTENT, partial_copy)
    file = arrived.of(CONTENT.name)
    assert file is not None

    assert [(0, 1000)] == file.take(0, 1000)
    assert not partial_copy.exists()


def test_what_fits_is_written(tmp_path: Path) -> None:
    """Before the next block is fetched, which then lacks it."""
    arrived = ArrivedRanges()
    accept_handed(tmp_path, PLENTY)
    arrived.begin(CONTENT, tmp_path / "partial")
    hand_over(tmp_path, CONTENT, 10, b"abc")
    file = arrived.of(CONTENT.name)
    assert file is not None

    assert [(0, 10), (13, 500)] == file.take(0, 500)
    assert bytes(10) + b"abc" == (tmp_path / "partial").read_bytes()


def test_what_a_full_disk_refuses_is_still_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block with a hole in it must not be noted as one that is there."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    arrived = ArrivedRanges()
    accept_handed(tmp_path, PLENTY)
    arrived.begin(CONTENT, tmp_path / "partial")
    hand_over(tmp_path, CONTENT, 10, b"abc")
    file = arrived.of(CONTENT.name)
    assert file is not None
    with monkeypatch.context() as patch:
        patch.setattr(arrived_ranges, "pwrite_all", full)
        with pytest.raises(StoreError, match="No space left"):
            file.take(0, 500)
        with pytest.raises(OSError, match="No space left"):
            file.write(20, b"abc")

    assert [(0, 500)] == file.take(0, 500)
