"""Sets made of the shards of others."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastio.errors import SchemaError, StoreCorrupt, StoreError
from fastio.store import create_store, open_store
from fastio.store.files.remote_options import Remote
from fastio.store.folders import folder_of
from fastio.store.index import arrays
from fastio.store.sets.merge import merge_stores
from fastio.store.sets.seal import sealed_member
from fastio.store.sets.set_object import write_set as write_set_object
from fastio.store.write.atomic import PartialFile
from tests.servers.fixtures import Bucket
from tests.store.build import LABELLED, TWO_PAYLOADS, make_batch, make_spans, write
from tests.store.small_set import write_set


def _values(path: str | Path) -> dict[str, bytes]:
    with open_store(path) as store:
        every = np.arange(len(store))
        return dict(zip(store.keys(every), (v.tobytes() for v in store.spans("image", every).views()), strict=True))


def test_samples_of_all(tmp_path: Path) -> None:
    """The merged set has the samples of all, in their order, and of each its labels."""
    first, second = write_set(tmp_path / "a", ["a", "b"]), write_set(tmp_path / "b", ["c", "d", "e"])
    report = merge_stores([first, second], str(tmp_path / "all.fastio-set"))
    assert _values(tmp_path / "all.fastio-set") == {key: key.encode() for key in "abcde"}
    with open_store(tmp_path / "all.fastio-set") as store:
        assert store.column("label").tolist() == [0, 1, 0, 1, 0]
        assert store.metadata["classes"] == ["cat", "dog"]
    assert (report.shards, report.samples, report.generation) == (5, 5, 1)
    assert [(each.shards, each.samples) for each in report.merged] == [(2, 2), (3, 3)]


def test_names(tmp_path: Path) -> None:
    """Shards beside the merged set are listed by name and move with it; others stay where they are."""
    home = tmp_path / "home"
    first, second = write_set(home, ["a"]), write_set(tmp_path / "b", ["b"])
    merge_stores([first, second], str(home / "all.fastio-set"))
    home.rename(tmp_path / "moved")
    assert list(_values(tmp_path / "moved/all.fastio-set")) == ["a", "b"]


def test_single_files(tmp_path: Path) -> None:
    """A store of one tar file is a shard."""
    with create_store(tmp_path / "a.tar", LABELLED) as writer:
        writer.append(make_batch(["a"], [b"1"]))
        writer.close({"classes": ["cat", "dog"]})
    merge_stores([str(tmp_path / "a.tar"), write_set(tmp_path / "b", ["b"])], str(tmp_path / "all.fastio-set"))
    assert _values(tmp_path / "all.fastio-set") == {"a": b"1", "b": b"b"}


def test_merged_again(tmp_path: Path) -> None:
    """Merged sets may be merged, and remember the sets that were first."""
    sets = [write_set(tmp_path / name, [name]) for name in "abc"]
    merge_stores(sets[:2], str(tmp_path / "ab.fastio-set"))
    merge_stores([str(tmp_path / "ab.fastio-set"), sets[2]], str(tmp_path / "abc.fastio-set"))
    with open_store(tmp_path / "abc.fastio-set") as store:
        assert [entry["samples"] for entry in store.metadata["merged"]] == [1, 1, 1]
        assert len(store) == 3


def test_repeated_key(tmp_path: Path) -> None:
    """A key of two sets is an error that names it and their shards, and writes nothing."""
    first, second = write_set(tmp_path / "a", ["a", "b"]), write_set(tmp_path / "b", ["c", "b"])
    with pytest.raises(SchemaError, match=r"key 'b' is in .*a/x-000001\.tar and in .*b/x-000001\.tar"):
        merge_stores([first, second], str(tmp_path / "all.fastio-set"))
    assert not (tmp_path / "all.fastio-set").exists()


def test_the_same_set_twice(tmp_path: Path) -> None:
    """That is said of the set, not of the first of its keys."""
    path = write_set(tmp_path / "a", ["a", "b"])
    with pytest.raises(StoreError, match=r"x\.fastio-set: is named twice"):
        merge_stores([path, path], str(tmp_path / "all.fastio-set"))


def test_longer_classes(tmp_path: Path) -> None:
    """A longer list of classes is kept; another list is an error."""
    first, longer = (
        write_set(tmp_path / "a", ["a"]),
        write_set(tmp_path / "b", ["b"], metadata=b'{"classes": ["cat", "dog", "cow"]}'),
    )
    merge_stores([first, longer], str(tmp_path / "all.fastio-set"))
    with open_store(tmp_path / "all.fastio-set") as store:
        assert store.metadata["classes"] == ["cat", "dog", "cow"]
    other = write_set(tmp_path / "c", ["c"], metadata=b'{"classes": ["dog", "cat"]}')
    with pytest.raises(SchemaError, match="label 0 is 'cat'"):
        merge_stores([first, other], str(tmp_path / "other.fastio-set"))


def test_metadata(tmp_path: Path) -> None:
    """What both say stays, lists of skipped samples are joined, and the rest is kept for each."""
    metadata = [
        b'{"source": {"kind": "flat", "name": "%s"}, "skipped": [{"key": "%s"}], "packing": {"n": 1}, "x": %d, "y": 1}'
        % t
        for t in ((b"one", b"p", 1), (b"two", b"q", 2))
    ]
    sets = [write_set(tmp_path / name, [name], metadata=each) for name, each in zip("ab", metadata, strict=True)]
    merge_stores(sets, str(tmp_path / "all.fastio-set"))
    with open_store(tmp_path / "all.fastio-set") as store:
        said = dict(store.metadata)
    assert said["source"] == {"kind": "flat", "name": "one + two"}
    assert said["skipped"] == [{"key": "p"}, {"key": "q"}]
    assert said["packing_before"] == [{"n": 1}, {"n": 1}]
    assert "x" not in said
    assert said["y"] == 1
    assert [entry["metadata"]["x"] for entry in said["merged"]] == [1, 2]


def test_other_fields(tmp_path: Path) -> None:
    """Sets of other fields are refused by the names of the fields."""
    first = write_set(tmp_path / "a", ["a"])
    with create_store(tmp_path / "b.tar", TWO_PAYLOADS) as writer:
        batch = make_batch(["b"], [b"b"])
        writer.append(type(batch)(batch.keys, {**batch.spans, "caption": make_spans([b"x"])}, {}))
    with pytest.raises(SchemaError, match=r"b\.tar: holds .*caption"):
        merge_stores([first, str(tmp_path / "b.tar")], str(tmp_path / "all.fastio-set"))


def test_what_is_no_shard(tmp_path: Path) -> None:
    """Stores that are always one file, and tar files of others, are refused with what to do."""
    first, lmdb = write_set(tmp_path / "a", ["a"]), write(tmp_path / "b.lmdb", {"b": b"1"})
    with pytest.raises(StoreError, match=r"b\.lmdb: an LMDB file is not a shard: .* fastio pack .*b\.lmdb NAME"):
        merge_stores([first, lmdb], str(tmp_path / "all.fastio-set"))
    with tarfile.open(tmp_path / "foreign.tar", "w") as file:
        file.add(first, "a.png")
    with pytest.raises(StoreError, match=r"foreign\.tar: was not packed by fastio"):
        merge_stores([first, str(tmp_path / "foreign.tar")], str(tmp_path / "all.fastio-set"))


def test_existing_name(tmp_path: Path) -> None:
    """An existing set object is replaced only when asked, by its next generation."""
    sets = [write_set(tmp_path / name, [name]) for name in "abc"]
    out = str(tmp_path / "all.fastio-set")
    merge_stores(sets[:2], out)
    with pytest.raises(StoreError, match=r"all\.fastio-set: exists"):
        merge_stores(sets, out)
    assert len(_values(out)) == 2
    assert merge_stores(sets, out, overwrite=True).generation == 2
    assert len(_values(out)) == 3


def test_names_that_cannot_be(tmp_path: Path) -> None:
    """A merge needs two stores, and the name of a set object."""
    first, second = write_set(tmp_path / "a", ["a"]), write_set(tmp_path / "b", ["b"])
    with pytest.raises(StoreError, match=r"all\.tar: .* ends in \.fastio-set"):
        merge_stores([first, second], str(tmp_path / "all.tar"))
    with pytest.raises(StoreError, match="two stores"):
        merge_stores([first], str(tmp_path / "all.fastio-set"))
    with pytest.raises(StoreError, match=r"lies on this machine.*copy the shards"):
        merge_stores([first, second], "s3://nowhere/all.fastio-set")


def test_removed_shard(tmp_path: Path) -> None:
    """A merged set of which a shard is gone does not open, and names it."""
    first, second = write_set(tmp_path / "a", ["a"]), write_set(tmp_path / "b", ["b"])
    merge_stores([first, second], str(tmp_path / "all.fastio-set"))
    (tmp_path / "b/x-000000.tar").unlink()
    with pytest.raises(StoreError, match=r"b/x-000000\.tar"):
        open_store(tmp_path / "all.fastio-set")


def test_numbers_and_names(tmp_path: Path) -> None:
    """A store whose labels are bare numbers does not join one whose classes have names, in either order."""
    with create_store(tmp_path / "a.tar", LABELLED) as writer:
        writer.append(make_batch(["a"], [b"1"]))
    stores = [str(tmp_path / "a.tar"), write_set(tmp_path / "b", ["b"])]
    for order in (stores, stores[::-1]):
        with pytest.raises(SchemaError, match=r"a\.tar: its labels are numbers, .*names \(0 is 'cat'\).*pack both"):
            merge_stores(order, str(tmp_path / "all.fastio-set"))
    assert not (tmp_path / "all.fastio-set").exists()


def test_here_and_behind_a_url(tmp_path: Path, bucket: Bucket) -> None:
    """One set is not read from a disk and an object store at once, so no such set is made."""
    remote = Remote(bucket.options)
    folder, _ = folder_of(f"{bucket.url}/a.tar", remote)
    for name in ("a", "b"):
        with create_store(tmp_path / f"{name}.tar", LABELLED) as writer:
            writer.append(make_batch([name], [b"1"]))
    folder.put("a.tar", tmp_path / "a.tar")
    with pytest.raises(
        StoreError, match=r"b\.tar has shards on this machine, s3://.*a\.tar behind a URL.*fastio stage"
    ):
        merge_stores([f"{bucket.url}/a.tar", str(tmp_path / "b.tar")], str(tmp_path / "all.fastio-set"), remote=remote)
    assert not (tmp_path / "all.fastio-set").exists()


def test_a_start_behind_the_end_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts become as narrow as the sizes of files allow; one that is no place in its file is refused, never cut."""
    monkeypatch.setattr(arrays, "LARGE_FROM", 0)
    with (
        open_store(write(tmp_path / "a.tar", {"a": b"1"})) as first,
        open_store(write(tmp_path / "b.tar", {"b": b"2"})) as second,
    ):
        good, other = first.shards[0], second.shards[0]
        assert good.seal is not None
        bad = replace(other, starts={"image": other.starts["image"] + (1 << 40)})
        file = PartialFile(str(tmp_path / "all.fastio-set"))
        members = [sealed_member(name, good.seal) for name in ("a.tar", "b.tar")]
        with pytest.raises(StoreCorrupt, match="'image_starts' of a shard has 10995"):
            write_set_object(file, [good, bad], members, form="tar", generation=1, metadata=b"{}")
        file.discard()
