"""Packing into an object store: the same shards, going on, parts, and sealing there."""

from __future__ import annotations

import itertools
import re
import tempfile
from collections import Counter
from contextlib import ExitStack, suppress

import pytest
from click.testing import CliRunner

from fastio.cli import cli
from fastio.converters import Part, pack, seal
from fastio.converters.packing.options import PackOptions
from fastio.converters.packing.packer import plan_for
from fastio.converters.packing.planned_set import PlannedSet
from fastio.errors import StoreError, StoreIncomplete
from fastio.store import create_store, open_store
from fastio.store.files.remote_options import Remote
from fastio.store.folders import folder_of
from fastio.store.index.verify import verify_store
from fastio.store.remote_folder import RemoteFolder
from tests.converters.packing.sources import PATTERN, SHARD_BYTES, files, others, packed, source_in
from tests.store.build import LABELLED


@pytest.fixture
def remote(bucket):
    """The options of the bucket."""
    return Remote(bucket.options)


def objects(bucket, remote):
    """Everything that lies in the bucket."""
    folder, _ = folder_of(f"{bucket.url}/{PATTERN}", remote)
    contents = {}
    for name in folder.entries():
        file = folder.open(name)
        contents[name] = file.read(0, file.size).tobytes()
    return contents


def test_shards_there_are_those_that_lie_here(tmp_path, bucket, remote):
    """To the byte, by parts, also when one is packed again; a missing one is packed by resume, or named by seal."""
    source, out = source_in(tmp_path), f"{bucket.url}/{PATTERN}"
    expected = files(packed(tmp_path, "here", source))
    options = {"shard_bytes": SHARD_BYTES, "remote": remote}
    for index in (1, 0, 0):
        report = pack(source, out, part=Part(index, 2), **options)
    assert expected == objects(bucket, remote)
    assert ((), report.shards) == (report.missing, report.kept_shards)

    folder, _ = folder_of(out, remote)
    for name in ("out.fastio-set", PATTERN % 1):
        folder.remove(name)
    with pytest.raises(StoreIncomplete, match=r"missing: out-000001\.tar"):
        seal(out, remote=remote)
    with pytest.raises(StoreError, match="--resume"):
        pack(source, out, **options)
    report = pack(source, out, resume=True, **options)
    assert 1 == report.shards - report.kept_shards
    assert expected == objects(bucket, remote)
    with open_store(out, remote=remote) as store:
        assert source.keys == store.keys(range(18))


def test_the_commands(tmp_path, bucket):
    """pack, resume and seal take URLs with the options of requests; a single file is refused."""
    source_in(tmp_path)
    given = [f"--storage-option={name}={value}" for name, value in bucket.options.items()]
    out = f"{bucket.url}/{PATTERN}"
    for words in (
        ["pack", str(tmp_path / "classes"), out, "--shard-size", "8kB", *given],
        ["pack", str(tmp_path / "classes"), out, "--shard-size", "8kB", "--resume", *given],
        ["seal", out, *given],
    ):
        result = CliRunner().invoke(cli, words)
        assert 0 == result.exit_code, result.output
    single = CliRunner().invoke(cli, ["pack", str(tmp_path / "classes"), f"{bucket.url}/x.lmdb", *given])

    assert 1 == single.exit_code
    assert "only shards are packed into object stores" in single.output


def test_packed_to_a_bucket(bucket, tmp_path, monkeypatch):
    """Shards and set object are those of a local pack, byte for byte; nothing is left in TMPDIR."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    expected = files(packed(tmp_path, "here", source_in(tmp_path)))
    remote, out = Remote(bucket.options), f"{bucket.url}/x/{PATTERN}"
    report = pack(source_in(tmp_path), out, shard_bytes=SHARD_BYTES, remote=remote)
    folder, _ = folder_of(out, remote)

    assert report.packed == 18
    assert {
        name: folder.open(name).read(0, entry.size).tobytes() for name, entry in folder.entries().items()
    } == expected
    assert list((tmp_path / "tmp").iterdir()) == []
    with pytest.raises(StoreError, match="exists"):
        pack(source_in(tmp_path), out, shard_bytes=SHARD_BYTES, remote=remote)
    lost = sorted(expected)[1]
    folder.remove(lost)
    report = pack(source_in(tmp_path), out, shard_bytes=SHARD_BYTES, remote=remote, resume=True)
    assert (report.shards - report.kept_shards, lost in folder.entries()) == (1, True)
    pack(source_in(tmp_path), out, shard_bytes=SHARD_BYTES, remote=remote, overwrite=True)
    with open_store(out, remote=remote) as store:
        assert len(store) == 18


def test_what_is_not_packed_to_a_bucket():
    """Single files and streams are refused before a request is sent."""
    with pytest.raises(StoreError, match="what is streamed"):
        create_store("s3://bucket/x-%06d.tar", LABELLED)
    with pytest.raises(StoreError, match="what is streamed"):
        create_store("s3://bucket/x.lmdb", LABELLED)


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_only_shards_that_are_uploaded_count_as_finished(tmp_path, bucket, remote, monkeypatch, allowed):
    """An upload that is refused ends the pack; the note counts what is in the bucket, and is left out for nothing."""
    put, calls = RemoteFolder.put, []

    def refuse(folder, name, file, **conditions):
        calls.append(name)
        if len(calls) > allowed:
            raise StoreError(f"{folder.full(name)}: access denied")
        put(folder, name, file, **conditions)

    monkeypatch.setattr(RemoteFolder, "put", refuse)
    with pytest.raises(StoreError, match="access denied") as failed:
        pack(source_in(tmp_path), f"{bucket.url}/{PATTERN}", shard_bytes=SHARD_BYTES, remote=remote)
    words = ["1 of 6 shards is finished and stays", "2 of 6 shards are finished and stay"][:allowed][-1:]

    assert allowed == len(objects(bucket, remote))
    assert words == [note.partition(": ")[2].partition(": go")[0] for note in getattr(failed.value, "__notes__", [])]


def letters(out, remote):
    """How many samples a set has of each source, all of whose bytes are right."""
    with open_store(out, remote=remote) as store:
        assert [] == verify_store(store)
        keys = [key.rpartition("/")[2] for key in store.keys(range(len(store)))]
    return Counter(key[0] if key[0] in "ab" else "o" for key in keys)


@pytest.mark.parametrize("first", ["append", "overwrite"])
@pytest.mark.parametrize("second", ["append", "overwrite"])
def test_two_writers_of_one_set(tmp_path, bucket, remote, monkeypatch, first, second):
    """Wherever the second one comes between, one of them wins, and the set is whole and what the winner made."""
    out, put = f"{bucket.url}/{PATTERN}", RemoteFolder.put
    options = {"shard_bytes": 3000, "remote": remote}
    sources = {"o": source_in(tmp_path), "a": others(tmp_path, "a"), "b": others(tmp_path, "b")}
    messages, calls = {}, []

    def ended(name, kind):
        try:
            pack(sources[name], out, **{kind: True}, **options)
        except StoreError as exc:
            return str(exc)
        return ""

    def disturbed(folder, name, file, **conditions):
        calls.append(name)
        if len(calls) == at:
            messages["b"] = ended("b", second)
        put(folder, name, file, **conditions)

    for at in itertools.count(1):
        folder, _ = folder_of(out, remote)
        for name in folder.entries():
            folder.remove(name)
        pack(sources["o"], out, **options)
        messages.clear()
        calls.clear()
        with monkeypatch.context() as patched:
            patched.setattr(RemoteFolder, "put", disturbed)
            messages["a"] = ended("a", first)
        if "b" not in messages:
            break
        (winner,) = [name for name, text in messages.items() if not text]
        expected = {"o": 18, winner: 6} if (first if winner == "a" else second) == "append" else {winner: 6}
        assert expected == letters(out, remote), (at, messages)
        assert all(re.search("exists|replaced|(is|are) there", text) for text in messages.values() if text)
    assert at > 3


@pytest.mark.parametrize("options", [{"overwrite": True}, {"overwrite": True, "part": Part(0, 1)}, {"append": True}])
def test_a_writer_that_begins_before_another_ends(tmp_path, bucket, remote, monkeypatch, options):
    """It has seen shards that no set listed yet: it takes none of them, whatever becomes of its own."""
    out, put = f"{bucket.url}/{PATTERN}", RemoteFolder.put
    pack(source_in(tmp_path), out, shard_bytes=SHARD_BYTES, remote=remote)
    begun, form = ExitStack(), PackOptions(shard_bytes=3000, remote=remote, **options)
    source = others(tmp_path, "b")
    plan = plan_for(source, out, None, form)
    planned = []

    def late(folder, name, file, **conditions):
        if name == "out.fastio-set":
            with suppress(StoreError):
                planned.append(begun.enter_context(PlannedSet.begin(plan, source, out, form)))
        put(folder, name, file, **conditions)

    with monkeypatch.context() as patched:
        patched.setattr(RemoteFolder, "put", late)
        pack(others(tmp_path, "a"), out, shard_bytes=3000, remote=remote, overwrite=True)
    for each in planned:
        with begun, suppress(StoreError):
            list(each.pack(range(len(plan))))

    assert {"a": 6} == letters(out, remote)
    assert bool(planned) == ("overwrite" in options)
