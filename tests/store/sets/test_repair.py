"""Sets whose shards are missing or damaged, and what mends them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fastio.errors import StoreError
from fastio.store.folders import LocalFolder
from fastio.store.sets.repair import Copies, Offer, RepairReport, repair_set
from fastio.store.sets.set_object import SetMember, SetObject, read_set
from tests.store.faults import fail, fault, full
from tests.store.small_set import write_set

KEYS = list("abcd")


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """The folder of a set of four shards, beside a whole copy of it."""
    write_set(tmp_path / "set", KEYS)
    shutil.copytree(tmp_path / "set", tmp_path / "copy")
    return tmp_path / "set"


def _read(folder: Path) -> SetObject:
    return read_set(LocalFolder(str(folder)).open("x.fastio-set"))


def _repair(folder: Path, other: str = "copy") -> RepairReport:
    found = _read(folder)
    return repair_set(found, [Copies(str(folder.parent / other), found)])


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".lock"}


def _flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


def test_nothing_to_do(damaged: Path) -> None:
    """A whole set stays as it is, whatever the other copy is."""
    before = {path: path.stat() for path in damaged.iterdir()}
    report = _repair(damaged, "copy/x.fastio-set")
    assert (report.shards, report.repaired, report.left) == (4, (), ())
    assert before == {path: path.stat() for path in damaged.iterdir()}


@pytest.mark.parametrize("copy", ["copy", "copy/", "copy/x-%06d.tar", "copy/x.fastio-set"])
def test_missing_and_damaged(damaged: Path, copy: str) -> None:
    """Missing, flipped and cut shards become what they were, byte for byte; each is reported with what was wrong."""
    (damaged / "x-000000.tar").unlink()
    _flip(damaged / "x-000001.tar", 3000)
    (damaged / "x-000003.tar").write_bytes((damaged / "x-000003.tar").read_bytes()[:-600])
    report = _repair(damaged, copy)
    assert _contents(damaged) == _contents(damaged.parent / "copy")
    assert [Path(shard.path).name for shard in report.repaired] == [f"x-00000{n}.tar" for n in (0, 1, 3)]
    assert report.repaired[0].problem == "missing"
    assert "CRC-32" in report.repaired[1].problem
    assert [shard.source for shard in report.repaired] == [
        str(damaged.parent / "copy" / f"x-00000{n}.tar") for n in (0, 1, 3)
    ]
    assert report.left == ()


def test_every_flip(damaged: Path) -> None:
    """No byte of a shard can change without being mended."""
    shard, whole = damaged / "x-000002.tar", (damaged / "x-000002.tar").read_bytes()
    for at in range(0, len(whole), 997):
        _flip(shard, at)
        assert len(_repair(damaged).repaired) == 1, at
        assert shard.read_bytes() == whole


def test_copy_without_set_object(damaged: Path) -> None:
    """Shards are told by their seals, whatever their names: the other copy needs no set object."""
    copy = damaged.parent / "copy"
    (copy / "x.fastio-set").unlink()
    (copy / "x-000001.tar").rename(copy / "other-000009.tar")
    (damaged / "x-000001.tar").unlink()
    report = _repair(damaged)
    assert report.repaired[0].source == str(copy / "other-000009.tar")


def test_damaged_copy(damaged: Path) -> None:
    """A copy that is damaged itself is not taken, and the shard is named with both reasons."""
    for folder in (damaged, damaged.parent / "copy"):
        _flip(folder / "x-000001.tar", 3000)
    before = _contents(damaged)
    report = _repair(damaged)
    assert report.repaired == ()
    assert "copy/x-000001.tar: expected CRC-32" in str(report.left[0].reason)
    assert _contents(damaged) == before


def test_no_copy(damaged: Path) -> None:
    """A shard that the other copy does not have is left, and the others are mended."""
    (damaged.parent / "copy/x-000001.tar").unlink()
    (damaged / "x-000001.tar").unlink()
    (damaged / "x-000002.tar").unlink()
    report = _repair(damaged)
    assert [Path(shard.path).name for shard in report.left] == ["x-000001.tar"]
    assert [Path(shard.path).name for shard in report.repaired] == ["x-000002.tar"]


def test_shard_of_another_set(damaged: Path) -> None:
    """A whole shard with other content under the name is damage, too."""
    write_set(damaged.parent / "other", list("wxyz"))
    shutil.copy(damaged.parent / "other/x-000001.tar", damaged / "x-000001.tar")
    report = _repair(damaged)
    assert "another shard" in report.repaired[0].problem
    assert _contents(damaged) == _contents(damaged.parent / "copy")


class _Wrong:
    """Makes a shard of other bytes."""

    def offers(self, number: int, member: SetMember) -> Iterator[Offer]:
        yield Offer("wrong", lambda file: file.write_bytes(bytes(member.size)) and None)

    def check(self) -> None:
        """It seems to have everything."""


def test_wrong_bytes(damaged: Path) -> None:
    """Other bytes than those that the set lists never get the name, and the next source is asked."""
    found = _read(damaged)
    (damaged / "x-000001.tar").unlink()
    report = repair_set(found, [_Wrong()])
    assert report.repaired == ()
    assert [shard.problem for shard in report.left] == ["missing"]
    assert not (damaged / "x-000001.tar").exists()
    report = repair_set(found, [_Wrong(), Copies(str(damaged.parent / "copy"), found)])
    assert report.left == ()
    assert _contents(damaged) == _contents(damaged.parent / "copy")


@pytest.mark.parametrize("at", range(1, 4))
def test_failing_disk(damaged: Path, at: int) -> None:
    """A disk that fails meanwhile is an error, and the shard is missing or whole, never half-written."""
    (damaged / "x-000001.tar").unlink()
    with fault(at, fail, calls=("fsync", "link", "rename"), lasting=True), pytest.raises(StoreError):
        _repair(damaged)
    whole = _contents(damaged.parent / "copy")
    assert _contents(damaged).get("x-000001.tar", whole["x-000001.tar"]) == whole["x-000001.tar"]
    _repair(damaged)
    assert _contents(damaged) == whole


@pytest.mark.parametrize("act", [fail, full])
@pytest.mark.parametrize("call", ["open", "fsync", "rename", "unlink", "close"])
def test_a_damaged_shard_on_a_failing_disk(
    damaged: Path, monkeypatch: pytest.MonkeyPatch, call: str, act: Callable[[], None]
) -> None:
    """Whichever call fails, a shard is only reported as written again if it is whole."""
    (damaged.parent / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(damaged.parent / "scratch"))
    _flip(damaged / "x-000001.tar", 3000)
    before, whole = _contents(damaged), _contents(damaged.parent / "copy")
    with fault(0, act, calls=(call,)) as calls:
        _repair(damaged)
    assert calls.made
    for at in range(1, calls.made + 1):
        (damaged / "x-000001.tar").write_bytes(before["x-000001.tar"])
        try:
            with fault(at, act, calls=(call,)):
                report = _repair(damaged)
        except (StoreError, OSError):
            assert _contents(damaged)["x-000001.tar"] in (before["x-000001.tar"], whole["x-000001.tar"])
        else:
            assert (_contents(damaged) == whole) == (not report.left), (call, at, report)


def test_a_damaged_shard_that_changes_meanwhile(damaged: Path) -> None:
    """A file that became another one, and is as damaged, is not taken for the shard that was to be written."""
    _flip(damaged / "x-000001.tar", 3000)
    found = _read(damaged)
    maker = Copies(str(damaged.parent / "copy"), found)
    offers = list(maker.offers(1, found.members[1]))

    def write(file: Path) -> None:
        offers[0].write(file)
        _flip(damaged / "x-000001.tar", 3001)

    maker.offers = lambda number, member: iter([Offer("copy", write)])  # type: ignore[method-assign, assignment]
    with pytest.raises(StoreError, match=r"x-000001\.tar: was replaced by another process meanwhile"):
        repair_set(found, [maker])


def test_a_shard_of_another_set_stays(damaged: Path) -> None:
    """A name that is another set's by now, whose folder this is, is not written over, whoever still lists it."""
    (damaged / "x.fastio-set").rename(damaged / "old.fastio-set")
    write_set(damaged.parent / "other", list("wxyz"))
    for path in (damaged.parent / "other").iterdir():
        shutil.copy(path, damaged)
    before = _contents(damaged)
    found = read_set(LocalFolder(str(damaged)).open("old.fastio-set"))
    report = repair_set(found, [Copies(str(damaged.parent / "copy"), found)])

    assert before == _contents(damaged)
    assert 4 == len(report.left)
    assert "x.fastio-set lists what has the name now" in str(report.left[0].reason)
