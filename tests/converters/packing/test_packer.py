"""Packing: the same bytes every time, nothing lost without a word, nothing left behind."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from fastio.converters import open_source, pack
from fastio.converters.inspect.verify import verify
from fastio.converters.packing import pipeline
from fastio.errors import SourceError, StoreError
from fastio.store import open_store
from tests.converters.trees import class_folders, flat, foreign_tar, pickled, picture

OUTPUTS = ("out.lmdb", "out.h5", "out.tar", "out-%06d.tar")


@pytest.fixture(params=OUTPUTS)
def out(request, tmp_path):
    """A name of each format that can be written."""
    return tmp_path / request.param


@pytest.fixture
def small_chunks(monkeypatch):
    """Pieces of a few samples, so that small sources have many."""
    monkeypatch.setattr(pipeline, "CHUNK_SAMPLES", 2)


def visible(folder):
    """Everything in a folder, hidden leftovers as well."""
    return sorted(p.name for p in folder.iterdir() if p.name.lstrip(".").startswith("out"))


def contents(path):
    """Key, image and label of every sample of a store."""
    with open_store(path) as store:
        every = np.arange(len(store))
        spans = store.spans("image", every)
        images = [spans.view(i).tobytes() for i in range(len(store))]
        return list(zip(store.keys(every), images, store.column("label").tolist(), strict=True))


def test_every_byte_and_label_is_kept(tmp_path, out, small_chunks):
    """Keys, bytes, labels, classes and shapes come out as they went in."""
    keys = class_folders(tmp_path / "c")
    report = pack(open_source(tmp_path / "c"), out)
    expected = [(key, (tmp_path / "c" / key).read_bytes(), ("bee", "cat", "dog").index(key[:3])) for key in keys]

    assert expected == contents(out)
    assert (9, 9, 0) == (report.found, report.packed, len(report.skipped))
    assert sum(len(image) for _, image, _ in expected) == report.payload_bytes
    with open_store(out) as store:
        assert ["bee", "cat", "dog"] == store.metadata["classes"]
        assert [4, 8, 3] == store.shapes("image")[0].tolist()


def test_labels_that_are_numbers_stay(tmp_path, out):
    """Whole numbers are stored as they are, however far apart."""
    flat(tmp_path / "f", 3)
    labels = {"0000.png": -5, "0001.png": 2**40, "0002.png": 7}
    pack(open_source(tmp_path / "f", labels=pickled(tmp_path / "l.pkl", labels)), out)

    assert list(labels.values()) == [label for *_, label in contents(out)]


def test_the_same_bytes_every_time(tmp_path, out, small_chunks):
    """Twice, with one thread or four: the files are equal."""
    class_folders(tmp_path / "c", 7)
    written = []
    for jobs in (1, 4, 4):
        pack(open_source(tmp_path / "c"), out, jobs=jobs)
        paths = sorted(tmp_path.glob("out*"))
        written.append([path.read_bytes() for path in paths])
        for path in paths:
            path.unlink()

    assert written[0] == written[1] == written[2]


def test_shards_are_cut_at_the_size(tmp_path, small_chunks):
    """A set of shards holds all samples in order."""
    keys = class_folders(tmp_path / "c", 5)
    report = pack(open_source(tmp_path / "c"), tmp_path / "out-%06d.tar", shard_bytes=4000)

    assert report.shards > 1
    assert keys == [key for key, *_ in contents(tmp_path / "out-%06d.tar")]


def test_tar_to_any_format(tmp_path, out):
    """Existing shards are packed again: labels come along."""
    pack(open_source(foreign_tar(tmp_path / "s.tar")), out)

    assert [(f"{i:04d}", picture(i), i % 3) for i in range(5)] == contents(out)


def spoil(folder):
    """A flat folder of six with three bad files, one of which only reading finds."""
    labels = flat(folder, 6)
    (folder / "0001.png").write_bytes(b"")
    (folder / "0003.png").write_bytes(b"no picture")
    (folder / "notes.npy").write_text("x")
    return labels


def test_raise_stops_at_the_first(tmp_path, out):
    """The error names the file, and nothing lies under the final name."""
    spoil(tmp_path / "f")
    with pytest.raises(SourceError, match=r"f/0001\.png: is empty.*first of 2.*--on-error skip"):
        pack(open_source(tmp_path / "f"), out)

    assert [] == visible(tmp_path)


def test_raise_at_a_problem_found_while_reading(tmp_path, out, small_chunks):
    """What has been written before is removed."""
    flat(tmp_path / "f", 6)
    (tmp_path / "f" / "0005.png").write_bytes(b"no picture")
    with pytest.raises(SourceError, match=r"f/0005\.png: is not an image"):
        pack(open_source(tmp_path / "f"), out)

    assert [] == visible(tmp_path)


def test_skip_packs_the_rest_and_keeps_the_ledger(tmp_path, out, small_chunks):
    """found = packed + skipped; the ledger is in the report and in the store, sorted by key."""
    labels = spoil(tmp_path / "f")
    labels["lost.png"] = 1
    source = open_source(tmp_path / "f", labels=pickled(tmp_path / "l.pkl", labels))
    report = pack(source, out, on_error="skip")

    assert (8, 4) == (report.found, report.packed)
    assert ["0001.png", "0003.png", "lost.png", "notes.npy"] == [problem.key for problem in report.skipped]
    assert ["0000.png", "0002.png", "0004.png", "0005.png"] == [key for key, *_ in contents(out)]
    with open_store(out) as store:
        ledger = [(problem.key, problem.problem) for problem in report.skipped]
        assert ledger == [(entry["key"], entry["problem"]) for entry in store.metadata["skipped"]]


def test_ledger_does_not_depend_on_jobs(tmp_path, small_chunks):
    """Threads do not change what is skipped, nor the bytes of the store."""
    spoil(tmp_path / "f")
    for jobs in (1, 4):
        pack(open_source(tmp_path / "f"), tmp_path / f"out{jobs}.lmdb", jobs=jobs, on_error="skip")

    assert (tmp_path / "out1.lmdb").read_bytes() == (tmp_path / "out4.lmdb").read_bytes()


@pytest.mark.parametrize("content", [None, b"", b"no picture"])
def test_nothing_left_to_pack(tmp_path, out, content):
    """An empty folder, or one of bad files alone, is an error even where bad ones are skipped."""
    (tmp_path / "f").mkdir()
    if content is not None:
        (tmp_path / "f" / "a.png").write_bytes(content)
    with pytest.raises(SourceError, match="nothing"):
        pack(open_source(tmp_path / "f", kind="flat"), out, on_error="skip")

    assert [] == visible(tmp_path)


def test_existing_store_is_kept(tmp_path, out):
    """Without overwrite an existing store stays; with it, a failing run leaves the old one."""
    class_folders(tmp_path / "c")
    pack(open_source(tmp_path / "c"), out)
    before = contents(out)
    with pytest.raises(StoreError, match="exists"):
        pack(open_source(tmp_path / "c"), out)
    (tmp_path / "c" / "dog" / "2.jpg").write_bytes(b"no picture")
    with pytest.raises(SourceError):
        pack(open_source(tmp_path / "c"), out, overwrite=True)

    assert before == contents(out)


def test_an_interrupt_leaves_nothing(tmp_path, out, small_chunks):
    """KeyboardInterrupt at any piece: no file, no thread."""
    class_folders(tmp_path / "c", 5)
    threads = threading.active_count()

    def interrupt(samples, size_bytes):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(open_source(tmp_path / "c"), out, jobs=3, progress=interrupt)

    assert [] == visible(tmp_path)
    assert threading.active_count() <= threads


def test_an_error_while_reading_arrives(tmp_path, out, monkeypatch, small_chunks):
    """What a source raises is raised by pack; nothing is left."""
    from fastio.converters import ListedSource

    class_folders(tmp_path / "c", 5)

    def fail(self, chunk, pool):
        raise OSError("the disk is gone")

    monkeypatch.setattr(ListedSource, "begin", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        pack(open_source(tmp_path / "c"), out)

    assert [] == visible(tmp_path)


def test_progress_counts_every_sample(tmp_path, small_chunks):
    """The pieces told to progress are all samples and all bytes."""
    class_folders(tmp_path / "c")
    told = []
    report = pack(open_source(tmp_path / "c"), tmp_path / "out.lmdb", progress=lambda *piece: told.append(piece))

    assert (9, report.payload_bytes) == (sum(n for n, _ in told), sum(size for _, size in told))


@pytest.mark.parametrize("wrong", [{"jobs": 0}, {"on_error": "ignore"}])
def test_arguments_are_checked(tmp_path, wrong):
    """A wrong argument is named before anything is read."""
    flat(tmp_path / "f")
    with pytest.raises(ValueError, match=next(iter(wrong))):
        pack(open_source(tmp_path / "f"), tmp_path / "out.lmdb", **wrong)


@pytest.mark.parametrize("kind", ["WEBP", "BMP", "TIFF", "PPM", "GIF"])
def test_kinds_that_the_native_core_leaves_to_pillow(tmp_path, kind):
    """They are packed as they are, their size from their header."""
    extension = {"WEBP": "webp", "BMP": "bmp", "TIFF": "tif", "PPM": "pnm", "GIF": "gif"}[kind]
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / f"a.{extension}").write_bytes(picture(1, kind=kind))
    pack(open_source(tmp_path / "f"), tmp_path / "out.lmdb")

    with open_store(tmp_path / "out.lmdb") as store:
        assert [[5, 6, 3]] == store.shapes("image").tolist()


def test_a_source_that_loses_samples_is_not_packed(tmp_path, out, small_chunks):
    """Found is packed and skipped together, or nothing is kept."""
    flat(tmp_path / "f")
    source = open_source(tmp_path / "f")
    whole = type(source).chunks
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(source), "chunks", lambda *args: whole(*args)[1:])
        with pytest.raises(SourceError, match="7 samples were found, but 5 packed and 0 skipped"):
            pack(source, out)

    assert [] == visible(tmp_path)


def test_keys_that_come_again_in_another_shard(tmp_path, out):
    """The first of two samples with one key is packed, the second is skipped and named with its shard."""
    (tmp_path / "s").mkdir()
    foreign_tar(tmp_path / "s" / "a.tar", 2)
    foreign_tar(tmp_path / "s" / "b.tar", 3)
    with pytest.raises(SourceError, match=r"0000: comes again in b\.tar, after a\.tar"):
        pack(open_source(tmp_path / "s"), out)
    report = pack(open_source(tmp_path / "s"), out, on_error="skip")

    assert (5, 3) == (report.found, report.packed)
    assert ["0000", "0001"] == [problem.key for problem in report.skipped]
    assert [("0000", picture(0), 0), ("0001", picture(1), 1), ("0002", picture(2), 2)] == contents(out)
    assert [] == verify(out, against=open_source(tmp_path / "s")).problems


@pytest.mark.parametrize("path", [["a.png", "b.png"], None, {}, 5, b"x"])
def test_what_is_no_path(path):
    """A list of files, None, a number: one line says what to give instead."""
    got = "None" if path is None else type(path).__name__
    with pytest.raises(TypeError, match=rf"expected one path to pack: a folder, .* for several files, got {got}"):
        open_source(path)


def test_what_is_no_source_or_option(tmp_path):
    """Paths for sources, lists for paths, numbers as text: one line each, and nothing is written."""
    flat(tmp_path / "f", 1)
    source = open_source(tmp_path / "f")
    with pytest.raises(TypeError, match="expected a source, got str: pack\\(open_source"):
        pack(str(tmp_path / "f"), tmp_path / "o.lmdb")
    with pytest.raises(TypeError, match=r"expected the name of one store to write, .* got list"):
        pack(source, ["o.lmdb"])
    with pytest.raises(ValueError, match="jobs='4': expected a whole number from 1 on"):
        pack(source, tmp_path / "o.lmdb", jobs="4")
    with pytest.raises(TypeError, match="expected the path of a label file as labels=, got dict"):
        open_source(tmp_path / "f", labels={"0000.png": 1})

    assert ["f"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("name", ["x.lmdb", "dog/x-%06d.tar"])
def test_no_store_among_its_own_files(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be one of the files to pack the next time; beside the folder there is a place for it."""
    class_folders(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SourceError, match=f"lies in photos, .*write it beside that folder, as {Path(name).name}$"):
        pack(open_source("photos"), f"photos/{name}")

    assert before == sorted(tmp_path.rglob("*"))
