"""Tar shards that webdataset and GNU tar wrote."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import logging
import os
import random
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest
import webdataset
from hypothesis import given
from hypothesis import strategies as st

from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete
from fastio.store import open_store
from fastio.store.files import open_file
from fastio.store.foreign.scan import scan
from fastio.store.foreign.sidecar import write_sidecar
from fastio.store.foreign.tar import _split, open_foreign
from fastio.store.sets.names import SIDECAR_SUFFIX
from tests.store.build import make_samples, read_all, write


def add(tar: tarfile.TarFile, name: str, data: bytes = b"", **attributes: object) -> None:
    """Add one member."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in attributes.items():
        setattr(info, key, value)
    tar.addfile(info, io.BytesIO(data))


def archive(path: Path, members: dict[str, bytes], **options: object) -> Path:
    """A tar of these regular members."""
    with tarfile.open(path, "w", **options) as tar:  # type: ignore[call-overload]
        for name, data in members.items():
            add(tar, name, data)
    return path


def _webdataset(path: Path, folder: str) -> None:
    """A shard as webdataset writes it."""
    with webdataset.TarWriter(str(path)) as tar:
        for i in range(20):
            key = f"{folder}/{i:04d}"
            tar.write({"__key__": key, "jpg": b"\xff" * (i * 100), "cls": i, "txt": "hello", "seg.png": b"p"})


@pytest.fixture
def wds(tmp_path: Path) -> Path:
    """A shard as webdataset writes it."""
    _webdataset(tmp_path / "w.tar", "d.x")
    return tmp_path / "w.tar"


def test_webdataset_shard(wds: Path) -> None:
    """Extensions become fields, cls the label, the stem the key."""
    for _ in ("scanned", "from its index"):
        with open_store(wds) as store:
            assert [f.name for f in store.schema.fields] == ["image", "seg", "text", "label"]
            assert list(range(20)) == store.column("label").tolist()
            assert {f"d.x/{i:04d}": b"\xff" * (i * 100) for i in range(20)} == read_all(store)
            assert {b"hello"} == set(read_all(store, "text").values())
            assert store.spans("image", np.array([0])).checksums is None
            assert not store.shapes("image").any()
            assert store.metadata["skipped"] == []


def test_index_beside_the_archive(wds: Path) -> None:
    """The index is written once, used again, and rebuilt when the archive or the index changes."""
    sidecar = Path(f"{wds}{SIDECAR_SUFFIX}")
    open_store(wds).close()
    first = sidecar.stat()
    open_store(wds).close()
    assert first == sidecar.stat()
    os.link(sidecar, f"{sidecar}.kept")  # its inode is not given to the next file
    first = sidecar.stat()
    sidecar.write_bytes(sidecar.read_bytes()[:-1] + b"\0")
    open_store(wds).close()
    assert first.st_size == sidecar.stat().st_size
    assert first.st_ino != sidecar.stat().st_ino
    changed = random.Random(0).randbytes(1900)
    with webdataset.TarWriter(str(wds)) as tar:
        tar.write({"__key__": "new", "jpg": changed})
    with open_store(wds) as store:
        assert {"new.jpg": changed} == read_all(store)


def test_index_of_another_archive(wds: Path, tmp_path: Path) -> None:
    """An index is not believed for another archive, not even one of the same size and time."""
    open_store(wds).close()
    info = wds.stat()
    other = tmp_path / "other.tar"
    _webdataset(other, "d.y")
    assert info.st_size == other.stat().st_size
    other.replace(wds)
    os.utime(wds, ns=(info.st_atime_ns, info.st_mtime_ns))
    with open_store(wds) as store:
        assert store.keys([0]) == ["d.y/0000"]


def test_folder_that_cannot_be_written(wds: Path) -> None:
    """Where no index can be kept, the archive opens all the same."""
    Path(f"{wds}{SIDECAR_SUFFIX}").mkdir()
    with open_store(wds) as store:
        assert len(store) == 20


@pytest.mark.parametrize(
    "options", ["--format=gnu", "--format=posix", "--format=ustar", "--format=v7", "--format=oldgnu"]
)
def test_gnu_tar_of_class_folders(tmp_path: Path, options: str) -> None:
    """An archive of plain picture files: keys are paths, folders no samples, labels none."""
    files = {
        f"{c}/{c} {i}.x.{e}": random.Random(i).randbytes(i * 300) for c in "ab" for i, e in enumerate(["JPEG", "png"])
    }
    for name, data in files.items():
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).write_bytes(data)
    subprocess.run(["tar", options, "-cf", str(tmp_path / "g.tar"), "-C", str(tmp_path / "src"), "."], check=True)
    with open_store(tmp_path / "g.tar") as store:
        assert files == read_all(store)
        assert [f.name for f in store.schema.fields] == ["image"]


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names(tmp_path: Path, kind: int) -> None:
    """GNU long names and PAX paths."""
    members = {"d/" * 90 + "a.png": b"1", "ü" * 120 + ".png": b"22", os.fsdecode(b"\xff.png"): b"333"}
    archive(tmp_path / "l.tar", members, format=kind, encoding="utf-8", errors="surrogateescape")
    with open_store(tmp_path / "l.tar") as store:
        assert members == read_all(store)


def test_sizes_in_base_256(tmp_path: Path) -> None:
    """GNU's binary sizes are read, and one beyond the file is refused."""
    path = archive(tmp_path / "b.tar", {"a.png": b"1234"})
    data = bytearray(path.read_bytes())

    def rewrite(size: int) -> None:
        data[124:136] = b"\x80" + size.to_bytes(11, "big")
        data[148:156] = b" " * 8
        data[148:156] = b"%06o\0 " % sum(data[:512])
        path.write_bytes(data)

    rewrite(4)
    with open_store(path) as store:
        assert read_all(store) == {"a.png": b"1234"}
    for size in (1 << 20, 1 << 63, (1 << 87) - 1):
        rewrite(size)
        with pytest.raises(StoreCorrupt, match="truncated"):
            open_store(path)


def test_pictures_beside_other_files(tmp_path: Path) -> None:
    """A label file in an archive of plain pictures is named, not lost."""
    archive(tmp_path / "p.tar", {"x/labels.pkl": b"1", "x/a.png": b"2", "x/a.jpg": b"3"})
    with open_store(tmp_path / "p.tar") as store:
        assert read_all(store) == {"x/a.png": b"2", "x/a.jpg": b"3"}
        assert [entry["key"] for entry in store.metadata["skipped"]] == ["x/labels.pkl"]


def test_nothing_is_dropped_in_silence(tmp_path: Path) -> None:
    """Links, devices, twins, wrong labels and incomplete samples are each named in the ledger."""
    with tarfile.open(tmp_path / "s.tar", "w") as tar:
        for i in range(6):
            add(tar, f"{i}.png", b"x")
            add(tar, f"{i}.cls", b"%d\n" % i)
        add(tar, "folder", type=tarfile.DIRTYPE)
        add(tar, "link.png", type=tarfile.SYMTYPE, linkname="/etc/passwd")
        add(tar, "hard.png", type=tarfile.LNKTYPE, linkname="1.png")
        add(tar, "device.png", type=tarfile.CHRTYPE)
        add(tar, "fifo.png", type=tarfile.FIFOTYPE)
        add(tar, "noextension", b"1")
        add(tar, ".hidden", b"1")
        add(tar, "__meta__/x.png", b"1")
        add(tar, "lonely.png", b"1")
        add(tar, "1.png", b"again")
        for name in ("twice.png", "twice.jpg", "twice.cls", "word.png"):
            add(tar, name, b"1")
        add(tar, "word.cls", b"cat")
        add(tar, "more.png", b"1")
        add(tar, "more.cls", b"9")
        add(tar, "more.json", b"{}")
    with open_store(tmp_path / "s.tar") as store:
        assert store.keys(range(len(store))) == ["0", "1", "2", "3", "4", "5", "more"]
        problems = {entry["key"]: entry["problem"] for entry in store.metadata["skipped"]}
        assert store.metadata["left_out"] == [{"key": "more", "problem": "has a field 'json' that most samples lack"}]
    expected = {
        "link.png": "symbolic link",
        "hard.png": "hard link",
        "device.png": "character device",
        "fifo.png": "FIFO",
        "noextension": "no extension",
        ".hidden": "no extension",
        "__meta__/x.png": "reserves",
        "lonely": "lacks label",
        "1.png": "comes again as part of '1'",
        "twice": "two members",
        "word": "expected an integer",
    }
    assert expected.keys() == problems.keys()
    assert all(words in problems[key] for key, words in expected.items())


def test_members_that_come_again_have_no_vote(tmp_path: Path) -> None:
    """What was appended to a sample later is named by its own name; the sample stays, and so does its label."""
    with tarfile.open(tmp_path / "s.tar", "w") as tar:
        for name in ("a.png", "a.cls", "c.png", "a.txt"):
            add(tar, name, b"1")
    with open_store(tmp_path / "s.tar") as store:
        assert (["a"], [1]) == (store.keys([0]), store.column("label").tolist())
        assert ["a.txt", "c"] == sorted(entry["key"] for entry in store.metadata["skipped"])


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
def test_compressed(tmp_path: Path, kind: str) -> None:
    """Compressed archives are refused, with what to do."""
    with tarfile.open(tmp_path / "c.tar", f"w:{kind}") as tar:
        add(tar, "a.png", b"1")
    with pytest.raises(StoreError, match=r"compressed.*decompress"):
        open_store(tmp_path / "c.tar")


def test_sparse(tmp_path: Path) -> None:
    """Sparse members have no plain bytes to point at."""
    with (tmp_path / "hole.png").open("wb") as file:
        file.truncate(1 << 20)
        file.write(b"1")
    for kind in ("gnu", "posix"):
        path = tmp_path / f"{kind}.tar"
        subprocess.run(["tar", f"--format={kind}", "-cSf", str(path), "-C", str(tmp_path), "hole.png"], check=True)
        with pytest.raises(StoreError, match="sparse"):
            open_store(path)


def test_truncations(wds: Path) -> None:
    """An archive cut off anywhere before its end is refused by name."""
    data = wds.read_bytes()
    whole = data.rstrip(b"\0")
    for size in [random.Random(5).randrange(len(whole)) for _ in range(100)]:
        wds.write_bytes(data[:size])
        with pytest.raises(StoreError, match=r"w\.tar"):
            open_store(wds)


def test_damaged_headers(wds: Path) -> None:
    """A flipped bit in any header is refused by name."""
    data = bytearray(wds.read_bytes())
    rng = random.Random(6)
    headers = [member.start - 512 for member in scan(open_file(str(wds)))]
    for _ in range(100):
        field = rng.choice([*range(154), *range(156, 500)])  # all but what ends the checksum's digits
        place, bit = rng.choice(headers) + field, 1 << rng.randrange(8)
        data[place] ^= bit
        wds.write_bytes(data)
        with pytest.raises(StoreError, match=r"w\.tar"):
            open_store(wds)
        data[place] ^= bit


@pytest.mark.parametrize("content", [b"", b"no tar at all" * 100, bytes(10_240), random.Random(7).randbytes(5000)])
def test_no_tar(tmp_path: Path, content: bytes) -> None:
    """Files that are no tar, or an empty one, are refused by name."""
    (tmp_path / "n.tar").write_bytes(content)
    with pytest.raises(StoreError, match=r"n\.tar"):
        open_store(tmp_path / "n.tar")


@pytest.mark.parametrize("magic", [b"ustar\x0000", bytes(8)])
def test_the_first_member_is_a_file_of_another_format(tmp_path: Path, magic: bytes) -> None:
    """An HDF5 file at byte 512 has the mark of an HDF5 file behind a user block; old tars have no mark of their own."""
    path = archive(tmp_path / "a.tar", {"a.h5": b"\x89HDF\r\n\x1a\n", "b.h5": b"2"}, format=tarfile.USTAR_FORMAT)
    data = bytearray(path.read_bytes())
    for at in (0, 1024):
        data[at + 257 : at + 265] = magic
        data[at + 148 : at + 156] = b" " * 8
        data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])
    path.write_bytes(data)
    with open_store(path) as store:
        assert ["a", "b"] == store.keys([0, 1])


def test_concatenated(wds: Path) -> None:
    """What follows the end of the archive is not silently lost."""
    wds.write_bytes(wds.read_bytes() * 2)
    with pytest.raises(StoreError, match="concatenated"):
        open_store(wds)


def test_shards_with_different_fields(tmp_path: Path) -> None:
    """Shards of one set must have the same fields."""
    archive(tmp_path / "s-0.tar", {"a.png": b"1", "a.cls": b"1"})
    archive(tmp_path / "s-1.tar", {"b.png": b"1"})
    with pytest.raises(StoreError, match="fields"):
        open_store(tmp_path / "s-*.tar")


def test_shards_of_one_set(tmp_path: Path) -> None:
    """A folder of foreign shards is one store, with one ledger."""
    for i in range(3):
        archive(tmp_path / f"s-{i}.tar", {f"{i}.png": b"%d" % i, f"{i}.cls": b"7", f"lonely{i}.png": b""})
    with open_store(tmp_path) as store:
        assert {f"{i}": b"%d" % i for i in range(3)} == read_all(store)
        assert [f"lonely{i}" for i in range(3)] == [entry["key"] for entry in store.metadata["skipped"]]


@pytest.mark.parametrize("beside", ["p.png", "s-1.tar.gz", "s-1.tgz", "cats/p.jpg", "old/s-9.tar"])
def test_samples_beside_shards(tmp_path: Path, beside: str, caplog: pytest.LogCaptureFixture) -> None:
    """What a folder of shards holds besides them is named; nothing is where the shards are."""
    archive(tmp_path / "s-0.tar", {"a.png": b"1"})
    for name in ("notes.txt", "labels.csv.gz", "empty/notes.txt", beside):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"?")
    with open_store(tmp_path) as store:
        assert ["a.png"] == store.keys([0])
    (told,) = caplog.messages
    assert repr(beside.partition("/")[0]) in told
    assert f"name the shards, as in {tmp_path}/*.tar" in told
    caplog.clear()
    open_store(tmp_path / "s-*.tar").close()
    assert not caplog.messages


def test_ours_beside_foreign(tmp_path: Path) -> None:
    """Sealed and foreign shards are not one store."""
    write(tmp_path / "a.tar", {"a.png": b"1"})
    archive(tmp_path / "b.tar", {"b.png": b"1"})
    with pytest.raises(StoreError, match="was not"):
        open_store(tmp_path)


def test_our_torso_is_no_foreign_tar(tmp_path: Path) -> None:
    """A store of ours that lost its seal is not taken for somebody else's archive, whatever follows the cut."""
    path = Path(write(tmp_path / "out.tar", make_samples(30)))
    data = path.read_bytes()
    for member in scan(open_file(str(path))):
        path.write_bytes(data[: member.start - 512] + bytes(len(data) - member.start + 512))
        with pytest.raises(StoreIncomplete if member.start > 512 else StoreError, match=r"out\.tar"):
            open_store(path)


def test_gzip_of_ours(tmp_path: Path) -> None:
    """A compressed store of ours is refused as that."""
    path = write(tmp_path / "out.tar", {"a.png": b"1"})
    data = Path(path).read_bytes()
    Path(path).write_bytes(gzip.compress(data))
    with pytest.raises(StoreError, match="gzip"):
        open_store(path)
    shutil.rmtree(tmp_path)


def _warnings(path: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What is logged while a store opens, by scanning and then from its index."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="fastio"):
        open_store(path).close()
        first = [record.getMessage() for record in caplog.records]
        caplog.clear()
        open_store(path).close()
    assert first == [record.getMessage() for record in caplog.records]
    return first


def test_samples_without_label_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where most samples have a label, those without are no samples, and one line says so."""
    members = {f"{i}.png": b"x" for i in range(10)} | {f"{i}.cls": b"%d" % i for i in range(6)}
    archive(tmp_path / "s.tar", dict(sorted(members.items())))
    (said,) = _warnings(tmp_path / "s.tar", caplog)
    assert "samples: 6; no samples: 4, e.g. '6' lacks label" in said


def test_labels_that_most_samples_lack_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Labels of a minority are left out, and one line says so before anything else."""
    members = {f"{i}.png": b"x" for i in range(10)} | {"1.txt": b""} | {f"{i}.cls": b"7" for i in (3, 5)}
    archive(tmp_path / "s.tar", dict(sorted(members.items())))
    (said,) = _warnings(tmp_path / "s.tar", caplog)
    assert "samples: 10; members left out: 3, e.g. '3' has a field 'label' that most samples lack" in said


def test_one_warning_a_set(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The ledgers of all shards are one warning; a set without ledger is opened without a word."""
    for i in range(3):
        archive(tmp_path / f"s-{i}.tar", {f"{i}.png": b"1", f"{i}.cls": b"7", f"lonely{i}.png": b""})
        archive(tmp_path / f"good-{i}.tar", {f"{i}.png": b"1", f"{i}.cls": b"7"})
    (said,) = _warnings(tmp_path / "s-*.tar", caplog)
    assert "samples: 3; no samples: 3, " in said
    assert _warnings(tmp_path / "good-*.tar", caplog) == []


@pytest.mark.parametrize("pattern", ["s-%03d.tar", "s-*.tar", ""])
def test_a_shard_that_the_numbers_count(tmp_path: Path, pattern: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is named, and stops packing; numbers that are dates count nothing."""
    for number in (0, 1, 3):
        archive(tmp_path / f"s-{number:03d}.tar", {f"{number}.png": b"1"})
    (said,) = _warnings(tmp_path / pattern, caplog)
    assert "samples: 3; no samples: 1, e.g. 's-002.tar' is missing: there are shards 000 to 003" in said
    with open_store(tmp_path / pattern) as store:
        assert ["s-002.tar"] == [entry["key"] for entry in store.metadata["skipped"]]
    (tmp_path / "days").mkdir()
    for number in (20261130, 20261201, 20261202):
        archive(tmp_path / "days" / f"{number}.tar", {f"{number}.png": b"1"})
    assert [] == _warnings(tmp_path / "days", caplog)


def test_labels_alone(tmp_path: Path) -> None:
    """Labels without anything that they belong to are refused by name."""
    archive(tmp_path / "l.tar", {"a.cls": b"1"})
    with pytest.raises(StoreError, match=r"l\.tar: has labels"):
        open_store(tmp_path / "l.tar")


@pytest.mark.parametrize("metadata", [[], 7, {}, {"skipped": [], "left_out": [{"key": 1, "problem": ""}]}])
def test_index_with_strange_metadata(wds: Path, metadata: object) -> None:
    """A sealed index whose ledger is not one is built anew."""
    shard = open_foreign(open_file(str(wds)))
    sidecar = Path(f"{wds}{SIDECAR_SUFFIX}")
    good = sidecar.read_bytes()
    kept = {"archive": {}, **metadata} if isinstance(metadata, dict) else metadata
    real = json.dumps
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            json,
            "dumps",
            lambda *args, **options: real(kept, **options) if "archive" in args[0] else real(*args, **options),
        )
        write_sidecar(dataclasses.replace(shard, metadata=b"{}"), shard.data)
    assert sidecar.read_bytes() != good
    with open_store(wds) as store:
        assert len(store) == 20
    assert sidecar.read_bytes() == good


# Slow or greedy on purpose


@given(st.text(alphabet="ab./\n", max_size=12))
def test_stems_as_webdataset_cuts_them(name: str) -> None:
    """Stem and extension are those of WebDataset's own expression, which takes quadratic time."""
    found = re.fullmatch(r"((?:.*/)?[^./][^.]*)\.([^/]*)", name, re.DOTALL)
    assert (found and found.groups()) == _split(name)


def test_name_of_many_folders() -> None:
    """A name as long as a header allows is split at once: the expression would take hours."""
    assert _split("a/" * 500_000) is None
    assert _split("a/" * 500_000 + "b.png") == ("a/" * 500_000 + "b", "png")


def _pax(path: Path, header: bytes) -> Path:
    """An archive whose one member has this PAX header."""
    archive(path, {"x": header, "a.png": b"1"})
    data = bytearray(path.read_bytes())
    data[156:157] = b"x"
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    path.write_bytes(data)
    return path


def test_many_pax_records(tmp_path: Path) -> None:
    """A PAX header of 200,000 records is read in one pass, and none of them is kept."""
    with open_store(_pax(tmp_path / "p.tar", b"5 a=\n" * 200_000)) as store:
        assert read_all(store) == {"a.png": b"1"}


@pytest.mark.parametrize(
    "header",
    [
        b"9" * 5000 + b" a=1\n",
        b"9" * 5000,
        b" a=1\n",
        b"x",
        b"5 a=\n9 b",
        b"5013 size=" + b"9" * 5002 + b"\n",
        b"17 size=12x45678\n",
        b"-5 a=\n",
    ],
)
def test_damaged_pax_headers(tmp_path: Path, header: bytes) -> None:
    """Lengths and sizes that are none are damage, however many digits they have."""
    with pytest.raises(StoreCorrupt, match=r"p\.tar"):
        open_store(_pax(tmp_path / "p.tar", header))
