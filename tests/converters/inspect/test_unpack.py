"""Unpacking: the same tree, and never a byte outside of it."""

from __future__ import annotations

import errno
import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest

import fastio
from fastio.converters import Raw, open_source, pack
from fastio.converters.inspect.unpack import check_key, partial_folder, unpack
from fastio.converters.labels.file import read_labels
from fastio.converters.sources.files import LABEL_FIELD
from fastio.errors import StoreCorrupt, StoreError
from fastio.store import SampleBatch, create_store, open_store
from fastio.types.schema import BYTES, COLUMN, IMAGE, Field, Schema
from tests.conftest import SUFFIXES, as_spans
from tests.converters.trees import class_folders, files_below, flat, foreign_tar, pickled, picture
from tests.store.build import hidden, names


@pytest.fixture(params=SUFFIXES)
def packed(request, tmp_path):
    """Class folders and their store."""
    class_folders(tmp_path / "c")
    path = tmp_path / f"out.{request.param}"
    pack(open_source(tmp_path / "c"), path)
    return path


def test_the_tree_comes_back(tmp_path, packed):
    """Every file, byte by byte, and nothing else."""
    with open_store(packed) as store:
        report = unpack(store, tmp_path / "again")

    assert files_below(tmp_path / "c") == files_below(tmp_path / "again")
    assert 9 == report.files
    assert ["again", "c"] == sorted(p.name for p in tmp_path.iterdir() if p.is_dir())


def test_names_that_are_hard(tmp_path):
    """Blanks, dots, quotes, newlines and other alphabets survive each format."""
    (tmp_path / "f").mkdir()
    names = [
        "a b.png",
        "a.b.c.png",
        "%2E.png",
        "ä'\".png",
        "日本.PNG",
        "-rf.png",
        ".hidden.png",
        "tab\t.png",
        "x" * 200 + ".png",
    ]
    for i, name in enumerate(names):
        (tmp_path / "f" / name).write_bytes(picture(i))
    for suffix in SUFFIXES:
        pack(open_source(tmp_path / "f"), tmp_path / f"out.{suffix}")
        with open_store(tmp_path / f"out.{suffix}") as store:
            unpack(store, tmp_path / suffix)

        assert files_below(tmp_path / "f") == files_below(tmp_path / suffix)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "json", "jsonl"])
def test_labels_are_written_when_asked_for(tmp_path, suffix):
    """A label file that reads back as the one that was packed, outside of the tree."""
    labels = {name: ("ant", "bee", "cat")[label] for name, label in flat(tmp_path / "f").items()}
    pack(open_source(tmp_path / "f", labels=pickled(tmp_path / "l.pkl", labels)), tmp_path / "out.lmdb")
    with open_store(tmp_path / "out.lmdb") as store:
        unpack(store, tmp_path / "again", labels=tmp_path / f"again.{suffix}")
    first, second = read_labels(tmp_path / "l.pkl"), read_labels(tmp_path / f"again.{suffix}")

    assert (first.by_name, first.classes) == (second.by_name, second.classes)
    assert files_below(tmp_path / "f") == files_below(tmp_path / "again")


def test_foreign_shards_get_extensions(tmp_path):
    """A key without extension gets that of its image."""
    with open_store(foreign_tar(tmp_path / "s.tar", 2)) as store:
        unpack(store, tmp_path / "out")

    assert {"0000.png": picture(0), "0001.png": picture(1)} == files_below(tmp_path / "out")


def store_of(path, keys):
    """A store with these keys, as a hostile packer could write it."""
    fields = (Field("image", IMAGE, "|u1", (None, None, None)), Field("label", COLUMN, "<i8", ()))
    with create_store(path, Schema(fields)) as writer:
        spans = {"image": as_spans([picture(i) for i in range(len(keys))])}
        writer.append(SampleBatch(keys, spans, {"label": np.zeros(len(keys), np.int64)}))
        writer.close({})
    return open_store(path)


@pytest.mark.parametrize(
    "key", ["../out.png", "a/../../out.png", "/etc/out.png", "..", ".", "a//b.png", "a/./b.png", "a/", "/"]
)
def test_keys_that_lead_elsewhere(tmp_path, key):
    """Refused by name; nothing is written anywhere."""
    (tmp_path / "in").mkdir()
    with store_of(tmp_path / "s.h5", ["good.png", key]) as store, pytest.raises(StoreError, match="plain path"):
        unpack(store, tmp_path / "in" / "out")

    assert [] == list((tmp_path / "in").iterdir())
    assert ["in", "s.h5"] == sorted(p.name for p in tmp_path.iterdir())


@pytest.mark.parametrize("key", ["", "a\0b", "../a", "/a"])
def test_check_key(key):
    """Only a plain path below a folder passes."""
    assert "a/b..c" == check_key("a/b..c")
    with pytest.raises(StoreError):
        check_key(key)


@pytest.mark.parametrize("keys", [["a.png", "a.png/b.png"], ["a.png/b.png", "a.png"]])
def test_a_key_that_is_a_folder_and_a_file(tmp_path, keys):
    """Refused, whichever comes first."""
    with store_of(tmp_path / "s.lmdb", keys) as store, pytest.raises(StoreError):
        unpack(store, tmp_path / "out")

    assert ["s.lmdb"] == [p.name for p in tmp_path.iterdir()]


@pytest.mark.parametrize("key", ["x" * 256, "x" * 300 + "/a.png"])
def test_names_that_are_too_long(tmp_path, key):
    """The key is named: another file system, or tool, may have room for it."""
    with store_of(tmp_path / "s.lmdb", ["a.png", key]) as store, pytest.raises(StoreError, match=r"key 'xxx.*longer"):
        unpack(store, tmp_path / "out")

    assert ["s.lmdb"] == names(tmp_path)


@pytest.mark.parametrize("key", ["x" * 256, "x" * 250, "ä" * 128, "x" * 300 + "/a", "x/" * 2048 + "a", "x" * 5000])
@pytest.mark.parametrize("suffix", ["tar", "zip", "h5"])
def test_names_that_are_too_long_are_left_out(tmp_path, suffix, key):
    """Asked to, unpack restores all other samples, and lists these with all their fields."""
    path = tmp_path / f"s.{suffix}"
    with fastio.Writer(path, {"image": "image", "caption": "text"}) as writer:
        for each in ("a.png", key, "x" * 240):
            writer.write({"image": picture(1), "caption": "a"}, key=each)
    with open_store(path) as store:
        report = unpack(store, tmp_path / "out", on_error="skip")

    expected = {"a.png", "a.png.caption.txt", "x" * 240 + ".png", "x" * 240 + ".caption.txt"}
    assert expected == files_below(tmp_path / "out").keys()
    assert [(key, "is longer than a file's name may be here")] == [(p.key, p.problem) for p in report.skipped]


def test_folders_nested_deeper_than_calls(tmp_path, monkeypatch):
    """As deep as a path may be, there and back."""
    key = "d/" * 1500 + "a.png"
    monkeypatch.chdir(tmp_path)
    try:
        with store_of("s.lmdb", [key]) as store:
            unpack(store, "out")
            unpack(store, "out", overwrite=True)
        source = open_source("out", kind="imagefolder")
        pack(source, "again.lmdb")

        assert [] == source.problems
        with open_store("again.lmdb") as store:
            assert [key] == store.keys([0])
        assert [] == hidden(tmp_path)
    finally:
        subprocess.run(["rm", "-rf", *names(tmp_path)], check=True)  # pytest's own cleaning calls itself at each folder


def test_the_root_of_all_files(packed):
    """There is no place beside it."""
    with open_store(packed) as store, pytest.raises(StoreError, match="choose a folder in it"):
        unpack(store, "/")


@pytest.mark.parametrize("what", ["out", "labels"])
def test_folders_that_are_missing(tmp_path, packed, what):
    """Found out before anything is written."""
    places = {"out": tmp_path / "out", "labels": tmp_path / "l.csv", what: tmp_path / "none" / "l.csv"}
    with open_store(packed) as store, pytest.raises(StoreError, match=r"none/l.csv: the folder .* does not exist"):
        unpack(store, places["out"], labels=places["labels"])

    assert not places["out"].exists()


def test_a_place_that_takes_nothing(packed):
    """One sentence: the path as it was given, the reason, and no hidden name."""
    with open_store(packed) as store, pytest.raises(StoreError) as caught:
        unpack(store, "/proc/again")

    assert "/proc/again: cannot be written (No such file or directory); free space, or choose another place" == str(
        caught.value
    )


def test_existing_files_are_kept(tmp_path, packed):
    """Without overwrite nothing changes; with it, the store's files win and others stay."""
    (tmp_path / "out" / "bee").mkdir(parents=True)
    (tmp_path / "out" / "bee" / "0.png").write_text("mine")
    (tmp_path / "out" / "other.txt").write_text("mine")
    before = files_below(tmp_path / "out")
    with open_store(packed) as store:
        with pytest.raises(StoreError, match=r"bee/0\.png: exists"):
            unpack(store, tmp_path / "out")
        assert before == files_below(tmp_path / "out")

        unpack(store, tmp_path / "out", overwrite=True)

    assert {**files_below(tmp_path / "c"), "other.txt": b"mine"} == files_below(tmp_path / "out")


@pytest.mark.parametrize("overwrite", [True, False])
def test_links_in_the_target_are_not_followed(tmp_path, packed, overwrite):
    """A link where a folder of the tree belongs would lead outside: refused."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "dog").symlink_to(tmp_path / "elsewhere")
    with open_store(packed) as store, pytest.raises(StoreError, match="in the way"):
        unpack(store, tmp_path / "out", overwrite=overwrite)

    assert [] == list((tmp_path / "elsewhere").iterdir())
    assert ["dog"] == [p.name for p in (tmp_path / "out").iterdir()]


def test_a_link_in_place_of_a_file_is_replaced_not_followed(tmp_path, packed):
    """With overwrite the link goes, what it led to stays."""
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "out" / "bee").mkdir(parents=True)
    (tmp_path / "out" / "bee" / "0.png").symlink_to(tmp_path / "victim")
    with open_store(packed) as store:
        unpack(store, tmp_path / "out", overwrite=True)

    assert "mine" == (tmp_path / "victim").read_text()
    assert files_below(tmp_path / "c") == files_below(tmp_path / "out")


def test_damaged_bytes_are_not_given_back(tmp_path):
    """A sample that differs from its checksum is named; nothing is unpacked."""
    flat(tmp_path / "f")
    pack(open_source(tmp_path / "f"), tmp_path / "s.lmdb")
    damage(tmp_path / "s.lmdb", picture(3))
    with open_store(tmp_path / "s.lmdb") as store, pytest.raises(StoreCorrupt, match=r"0003\.png"):
        unpack(store, tmp_path / "out")

    assert not (tmp_path / "out").exists()


def damage(path, content):
    """Flip a bit of a value in a store."""
    data = bytearray(path.read_bytes())
    data[data.index(content) + 50] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_left_of_a_damaged_store(tmp_path, suffix):
    """Asked to, unpack leaves out damaged samples, lists them, and writes the labels of the others."""
    labels = {name: ("ant", "bee", "cat")[label] for name, label in flat(tmp_path / "f").items()}
    path = tmp_path / f"s.{suffix}"
    pack(open_source(tmp_path / "f", labels=pickled(tmp_path / "l.pkl", labels)), path)
    damage(path, picture(3))
    with open_store(path) as store:
        report = unpack(store, tmp_path / "out", labels=tmp_path / "l.csv", on_error="skip")
    expected = {name: data for name, data in files_below(tmp_path / "f").items() if name != "0003.png"}

    assert expected == files_below(tmp_path / "out")
    assert [("0003.png", "field 'image': bytes differ from their checksum")] == [
        (each.key, each.problem) for each in report.skipped
    ]
    assert {name: labels[name] for name in expected} == dict(
        line.split(",") for line in (tmp_path / "l.csv").read_text().splitlines()[1:]
    )


def test_nothing_is_left(tmp_path):
    """A store of which every sample is damaged leaves no empty folder behind."""
    flat(tmp_path / "f", 1)
    pack(open_source(tmp_path / "f"), tmp_path / "s.lmdb")
    damage(tmp_path / "s.lmdb", picture(0))
    with open_store(tmp_path / "s.lmdb") as store, pytest.raises(StoreCorrupt, match="all 1 samples are damaged"):
        unpack(store, tmp_path / "out", on_error="skip")

    assert not (tmp_path / "out").exists()


def test_a_damaged_field_takes_its_sample_along(tmp_path):
    """A picture whose caption is damaged is left out whole."""
    fields = (Field("image", IMAGE, "|u1", (None, None, None)), Field("caption", BYTES, "|u1", (None,)))
    captions = [b"a bee that hums in the garden, all day long, and is tired" * 2, b"a cat"]
    with create_store(tmp_path / "s.lmdb", Schema(fields)) as writer:
        values = {"image": as_spans([picture(1), picture(2)]), "caption": as_spans(captions)}
        writer.append(SampleBatch(["a.png", "b.png"], values))
        writer.close({})
    damage(tmp_path / "s.lmdb", captions[0])
    with open_store(tmp_path / "s.lmdb") as store:
        report = unpack(store, tmp_path / "out", on_error="skip")

    assert {"b.png": picture(2), "b.png.caption": b"a cat"} == files_below(tmp_path / "out")
    assert ["a.png"] == [each.key for each in report.skipped]


def test_labels_that_cannot_be_written_are_found_out_first(tmp_path, packed):
    """No tree appears when the label file is refused."""
    with open_store(packed) as store:
        for name in ("labels.txt", "out.lmdb" if packed.suffix == ".lmdb" else packed.name):
            with pytest.raises((StoreError, ValueError)):
                unpack(store, tmp_path / "again", labels=tmp_path / name)

    assert not (tmp_path / "again").exists()


def test_other_payload_fields_lie_beside(tmp_path):
    """A second payload field becomes a file with the field's name behind the key."""
    fields = (Field("image", IMAGE, "|u1", (None, None, None)), Field("caption", BYTES, "|u1", (None,)))
    with create_store(tmp_path / "s.lmdb", Schema(fields)) as writer:
        writer.append(SampleBatch(["a.png"], {"image": as_spans([picture(1)]), "caption": as_spans([b"a bee"])}))
        writer.close({})
    with open_store(tmp_path / "s.lmdb") as store:
        unpack(store, tmp_path / "out")

    assert {"a.png": picture(1), "a.png.caption": b"a bee"} == files_below(tmp_path / "out")


def test_labels_name_the_files_that_were_written(tmp_path):
    """Of shards without extensions and of raw pixels as well: what is unpacked can be packed again."""
    flat(tmp_path / "f", 3)
    (tmp_path / "f" / "0003.bmp").write_bytes(picture(3, kind="BMP"))
    labels = pickled(tmp_path / "l.pkl", {f"000{i}.{'png' if i < 3 else 'bmp'}": i for i in range(4)})
    pack(open_source(tmp_path / "f", labels=labels), tmp_path / "raw.h5", pictures=Raw())
    foreign_tar(tmp_path / "old.tar", 3)
    for name in ("raw.h5", "old.tar"):
        with open_store(tmp_path / name) as store:
            unpack(store, tmp_path / "again", labels=tmp_path / "again.json", overwrite=True)
            source = open_source(tmp_path / "again", labels=tmp_path / "again.json")

            assert (len(store), []) == (len(source), list(source.problems))
            assert store.column("label").tolist() == source.columns["label"].tolist()
        shutil.rmtree(tmp_path / "again")


def test_labels_beyond_the_classes(tmp_path):
    """A negative number is not counted from the end of the classes."""
    with create_store(tmp_path / "s.lmdb", Schema((Field("image", BYTES, "|u1", (None,)), LABEL_FIELD))) as writer:
        writer.append(SampleBatch(["a"], {"image": as_spans([b"x"])}, {"label": np.array([-1])}))
        writer.close({"classes": ["ant", "bee"]})
    with open_store(tmp_path / "s.lmdb") as store, pytest.raises(StoreError, match="beyond its 2 classes"):
        unpack(store, tmp_path / "again", labels=tmp_path / "again.csv")

    assert ["s.lmdb"] == names(tmp_path)


def test_columns_that_no_file_holds_are_named(tmp_path, packed):
    """Labels of class folders are in the paths; those of a flat folder are said, unless they are written too."""
    pack(open_source(tmp_path / "f", labels=pickled(tmp_path / "l.pkl", flat(tmp_path / "f"))), tmp_path / "flat.h5")
    with open_store(packed) as folders, open_store(tmp_path / "flat.h5") as store:
        assert [] == unpack(folders, tmp_path / "1").notes
        assert ["in the store, but in none of these files: label; --labels FILE writes the labels"] == unpack(
            store, tmp_path / "2"
        ).notes
        assert [] == unpack(store, tmp_path / "3", labels=tmp_path / "3.csv").notes


def test_what_a_killed_process_left_is_removed(tmp_path, packed):
    """The next run into the same folder clears it away, whatever the pid; other folders stay."""
    for name in (f".again.partial-{os.getpid()}-0", ".again.partial-1-0", ".other.partial-1-0", ".again.partial-mine"):
        (tmp_path / name / "x").mkdir(parents=True)
    with open_store(packed) as store:
        unpack(store, tmp_path / "again")

    assert files_below(tmp_path / "c") == files_below(tmp_path / "again")
    assert [".again.partial-mine", ".other.partial-1-0"] == hidden(tmp_path)


def test_what_a_living_process_fills_is_left_alone(tmp_path, packed):
    """Two runs into the same folder at once: the second does not touch what the first has so far."""
    with open_store(packed) as store, partial_folder(tmp_path / "again") as first:
        (first / "x").touch()
        unpack(store, tmp_path / "again")

        assert [first / "x"] == list(first.iterdir())
    assert [] == hidden(tmp_path)


def test_names_that_no_label_file_can_hold(tmp_path):
    """They are refused before anything is written; without labels they come back."""
    name = os.fsdecode(b"caf\xe9.png")
    with tarfile.open(tmp_path / "old.tar", "w") as archive:
        for member, data in ((name, picture(1)), (name.replace("png", "cls"), b"3")):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    with open_store(tmp_path / "old.tar") as store:
        with pytest.raises(StoreError, match=r"caf\\xe9 is not UTF-8"):
            unpack(store, tmp_path / "again", labels=tmp_path / "labels.csv")

        assert ["old.tar", "old.tar.fastio-index"] == names(tmp_path)
        unpack(store, tmp_path / "again")

    assert [picture(1)] == list(files_below(tmp_path / "again").values())


@pytest.mark.parametrize("failing", ["folder", "labels"])
def test_a_label_file_appears_whole_or_not_at_all(tmp_path, monkeypatch, failing):
    """A failure while files or labels are written leaves nothing under the label file's name, nor a partial file."""
    labels = flat(tmp_path / "f")
    pack(open_source(tmp_path / "f", labels=pickled(tmp_path / "l.pkl", labels)), tmp_path / "out.lmdb")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if failing == "folder":
        monkeypatch.setattr(Path, "rename", full)
    else:
        monkeypatch.setattr(os, "fsync", full)
    with open_store(tmp_path / "out.lmdb") as store, pytest.raises(StoreError, match="No space"):
        unpack(store, tmp_path / "again", labels=tmp_path / "again.csv")

    assert ["f", "l.pkl", "out.lmdb"] == names(tmp_path)
