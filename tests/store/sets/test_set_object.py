"""Shards that were sealed alone, and the object that makes a set of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastio.errors import StoreCorrupt, StoreError
from fastio.store import FORMATS, create_shard, open_store
from fastio.store.index.seal import set_checksum
from fastio.store.sets.names import set_path
from fastio.store.sets.seal import seal_set
from fastio.store.sets.set_object import SetMember, SetMembers
from tests.store.build import LABELLED, make_batch

PLAN = 0xFEDCBA9876543210


def _shard(folder: Path, number: int) -> str:
    name = f"in-{number:06d}.tar"
    with create_shard(folder / name, LABELLED, plan=PLAN, number=number) as writer:
        writer.append(make_batch([f"{number}/a.png", f"{number}/b.png"], [b"first %d" % number, b"second"]))
    return name


def _set(folder: Path, shards: int = 3) -> str:
    path = set_path(str(folder / "in-%06d.tar"))
    names = [_shard(folder, number) for number in range(shards)]
    seal_set(path, names, FORMATS["tar"], metadata=b'{"classes": null}')
    return path


def test_samples(tmp_path: Path) -> None:
    """A set has the samples of its shards, in their order."""
    with open_store(_set(tmp_path)) as store:
        assert store.keys(range(6)) == [f"{number}/{name}.png" for number in range(3) for name in "ab"]
        values = store.spans("image", np.arange(6)).views()
        assert [value.tobytes() for value in values[::2]] == [b"first 0", b"first 1", b"first 2"]
        assert store.column("label").tolist() == [0, 1, 0, 1, 0, 1]
        assert dict(store.metadata) == {"classes": None}


def test_missing_shard(tmp_path: Path) -> None:
    """A set of which a shard is gone does not open, and says which."""
    path = _set(tmp_path)
    (tmp_path / "in-000001.tar").unlink()
    with pytest.raises(StoreError, match=r"in-000001\.tar"):
        open_store(path)


def test_flipped_bytes(tmp_path: Path) -> None:
    """No byte of the set object can change without being noticed."""
    path = Path(_set(tmp_path))
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        path.write_bytes(damaged)
        try:
            open_store(path).close()
        except StoreError:
            continue
        assert not any(whole[at : at + 1])  # between the arrays


def test_cut_off(tmp_path: Path) -> None:
    """A set object that was cut off is none."""
    path = Path(_set(tmp_path))
    whole = path.read_bytes()
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        with pytest.raises(StoreError):
            open_store(path)


def test_same_bytes(tmp_path: Path) -> None:
    """The same shards give the same set object."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    assert Path(_set(first)).read_bytes() == Path(_set(second)).read_bytes()


def test_other_shard_under_the_name(tmp_path: Path) -> None:
    """A shard of another size than listed is refused."""
    path = _set(tmp_path)
    with (tmp_path / "in-000000.tar").open("ab") as file:
        file.write(b"more")
    with pytest.raises((StoreCorrupt, StoreError), match=r"in-000000\.tar"):
        open_store(path)


def test_listed_members() -> None:
    """Arrays that give back what was listed, whatever a file may be named."""
    listed = [
        SetMember("a-0.tar", 1, 2**40, 2**32 - 1, 2**64 - 1),
        SetMember("../b\udcff.tar", 0, 512, 0),
        SetMember("/c/grün.tar", 7, 10_240, 5, 6),
    ]
    members = SetMembers.of(iter(listed))
    assert [*members, members[-1], *members[:2]] == [*listed, listed[-1], *listed[:2]]
    assert [members.name(number) for number in range(3)] == members.names() == [each.name for each in listed]
    assert (members.samples, listed[1] in members, SetMember("a-0.tar", 1, 2, 3) in members) == (8, True, False)
    assert members.checksum == set_checksum((each.count, each.size, each.file_crc) for each in listed)
    assert members == SetMembers.of(listed)
    assert members is SetMembers.of(members)
    for number in range(3):
        assert members != SetMembers.of(listed[:number])
        assert members != SetMembers.of([replace(each, plan=1) if each is listed[number] else each for each in listed])
    assert [*members.renamed("xyz")] == [replace(each, name=name) for each, name in zip(listed, "xyz", strict=True)]
    assert [*SetMembers.of([])] == []
