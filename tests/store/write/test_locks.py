"""One work writes a set at a time: claims that are shared, refused, and left by processes that were killed."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from fastio.errors import StoreError
from fastio.store.write.locks import claimed, turns
from tests.forking import in_fork
from tests.store.faults import kill

LOCK = ".x.fastio-set.packing.lock"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """The set object that is to be written."""
    return str(tmp_path / "x.fastio-set")


def left(path: str) -> list[str]:
    """What lies beside the set object."""
    return sorted(each.name for each in Path(path).parent.iterdir())


def test_the_same_work_shares_a_claim(path: str) -> None:
    """Parts of one plan go together; the last one leaves nothing."""
    with claimed(path, "plan"):
        with claimed(path, "plan"):
            pass
        assert [LOCK] == left(path)
    assert [] == left(path)


@pytest.mark.parametrize("work", ["", "another"])
@pytest.mark.parametrize("first", ["", "plan"])
def test_other_work_is_refused(path: str, first: str, work: str) -> None:
    """The error names the process that is at work; when it has ended, the other one may begin."""
    with (
        claimed(path, first),
        pytest.raises(StoreError, match=rf"another process is packing this set \(process {os.getpid()} of "),
        claimed(path, work),
    ):
        raise AssertionError("it is refused")
    with claimed(path, work):
        pass


def test_a_killed_process_has_no_claim(path: str) -> None:
    """What it leaves is taken over, and removed."""

    def die() -> None:
        with claimed(path):
            kill()

    assert 0 > in_fork(die)
    with claimed(path):
        assert [LOCK] == left(path)
    assert [] == left(path)


def test_an_error_before_the_claim_leaves_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full as the claim is noted."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(StoreError, match="full"), claimed(path):
            raise AssertionError("it has no claim")
    assert [] == left(path)


def test_without_locks_the_file_is_the_claim(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other work is refused while it is there, and the error says what to do if nobody is at work."""

    def no_locks(*_: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with claimed(path, "plan"):
        with claimed(path, "plan"):
            pass
        with claimed(path, "plan"), pytest.raises(StoreError, match=rf"no locks: remove .*{LOCK}"), claimed(path):
            raise AssertionError("it is refused")
    assert [] == left(path)


def test_turns_of_one_file_by_two_names(path: str) -> None:
    """A set object that is named twice is locked once."""
    (Path(path).parent / "folder").mkdir()
    with turns([path, str(Path(path).parent / "folder" / ".." / "x.fastio-set")]):
        pass
