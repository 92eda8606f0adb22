"""Each kind: the contract that all share, and the rules of its own."""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from fastio.converters import SOURCES, open_source, pack
from fastio.converters.inspect.verify import verify
from fastio.converters.sources import files
from fastio.converters.sources import source as cut
from fastio.errors import SourceError
from tests.converters.sources.conformance import MAKERS, SourceConformance, read_all
from tests.converters.trees import CLASSES, class_folders, flat, foreign_tar, pickled, picture

SAMPLES = [name for name, kind in SOURCES.items() if kind.open]


class TestConformance(SourceConformance):
    """All sources of the table."""

    @pytest.fixture(params=sorted(SAMPLES))
    def source(self, request, tmp_path):
        """One source of each kind."""
        return MAKERS[request.param](tmp_path)


def problems(source):
    """Key and sentence of every problem, those of scanning and those of reading."""
    found = list(source.problems)
    for piece in source.chunks(1 << 20, 100):
        found += source.begin(piece)().problems
    return {problem.key: problem.problem for problem in found}


# flat


def test_flat_is_sorted_by_name(tmp_path):
    """The order depends on names alone."""
    labels = flat(tmp_path / "f", 12)
    source = open_source(tmp_path / "f", labels=pickled(tmp_path / "l.pkl", labels))

    assert sorted(labels.items()) == [(key, label) for key, _, label in read_all(source, 100, 5)]


def test_flat_without_labels_has_no_label_column(tmp_path):
    """Nothing is invented where no labels are given."""
    flat(tmp_path / "f")

    assert ["image"] == [field.name for field in open_source(tmp_path / "f").schema.fields]


def test_label_file_among_the_files_is_no_sample(tmp_path):
    """A label file inside the folder is left out, and only that one."""
    labels = flat(tmp_path / "f")
    pickled(tmp_path / "f" / "labels.pkl", labels)
    pickled(tmp_path / "f" / "old.pkl", labels)
    source = open_source(tmp_path / "f", labels=tmp_path / "f" / "labels.pkl")

    assert ["old.pkl"] == list(problems(source))


def test_forgotten_label_file_is_pointed_at(tmp_path):
    """Without --labels, a label file among the files is a problem that says what to do."""
    pickled(tmp_path / "labels.pkl", flat(tmp_path / "f"))
    (tmp_path / "labels.pkl").rename(tmp_path / "f" / "labels.pkl")

    assert "--labels" in problems(open_source(tmp_path / "f"))["labels.pkl"]


@pytest.mark.parametrize("folder", ["train/", "./train/", "./", "data/train/", "{root}/data/train/"])
def test_labels_by_path(tmp_path, folder):
    """A name may carry the end of the folder's own path, or all of it."""
    (tmp_path / "data").mkdir()
    said = flat(tmp_path / "data" / "train")
    labels = {folder.format(root=tmp_path) + name: label for name, label in said.items()}
    source = open_source(tmp_path / "data" / "train", labels=pickled(tmp_path / "l.pkl", labels))

    assert {} == problems(source)
    assert [0, 1, 2] == [label for *_, label in read_all(source, 1000, 9)][:3]


@pytest.mark.parametrize("folder", ["test/", "rain/", "train/deep/", "other/train/", "/train/"])
def test_labels_of_another_folder(tmp_path, folder):
    """A label of another split is not taken for a file of the same name; both are named."""
    said = flat(tmp_path / "train", 2)
    labels = {f"{folder}0000.png": 2, "train/0001.png": said["0001.png"]}
    found = problems(open_source(tmp_path / "train", labels=pickled(tmp_path / "l.pkl", labels)))

    assert {"0000.png", f"{folder}0000.png"} == set(found)
    assert "the folder in its name is not 'train'" in found[f"{folder}0000.png"]


def test_labels_that_become_one_name_must_agree(tmp_path):
    """f/0000.png and 0000.png with two labels are a contradiction, named with both."""
    labels = {**flat(tmp_path / "f"), "f/0000.png": 2, "f/0001.png": 1}
    found = problems(open_source(tmp_path / "f", labels=pickled(tmp_path / "l.pkl", labels)))

    assert ["0000.png"] == list(found)
    assert "f/0000.png" in found["0000.png"]


def test_labels_and_files_that_miss_each_other(tmp_path):
    """Both sides are named; found is the union of the two."""
    labels = flat(tmp_path / "f", 4)
    del labels["0002.png"]
    labels["9999.png"] = 1
    source = open_source(tmp_path / "f", labels=pickled(tmp_path / "l.pkl", labels))

    assert 5 == len(source)
    assert {
        "0002.png": "has no label in l.pkl",
        "9999.png": "has a label in l.pkl, but there is no such file",
    } == problems(source)


def test_contradicting_labels_count_once(tmp_path):
    """A file with two labels is one problem; so is a name with two labels and no file."""
    flat(tmp_path / "f", 2)
    (tmp_path / "l.csv").write_text("0000.png,0\n0001.png,1\n0001.png,2\nx.png,1\nx.png,2\n")
    source = open_source(tmp_path / "f", labels=tmp_path / "l.csv")

    assert (3, ["0001.png", "x.png"]) == (len(source), sorted(problems(source)))


# class folders


def test_imagefolder_order_and_labels(tmp_path):
    """Sorted classes, files in the order of their folders and names, labels by class."""
    keys = class_folders(tmp_path / "c")
    source = open_source(tmp_path / "c")

    assert list(CLASSES) == source.metadata["classes"]
    assert [(key, CLASSES.index(key.split("/")[0])) for key in keys] == [
        (key, label) for key, _, label in read_all(source, 500, 4)
    ]


def test_imagefolder_order_is_that_of_os_walk(tmp_path):
    """Folders sorted as whole paths ("a-b" before "a/b"), as sorted(os.walk(...)) has them."""
    root = tmp_path / "c"
    for key in ("x/a/b/1.png", "x/a-b/1.png", "x/a/1.png", "x/2.png", "x/B/1.png"):
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(picture(1))
    expected = [
        str(Path(folder, name).relative_to(root))
        for folder, _, names in sorted(os.walk(root / "x", followlinks=True))
        for name in sorted(names)
    ]

    assert expected == list(open_source(root, kind="imagefolder").keys)


def test_imagefolder_with_kinds_that_torchvision_leaves_out(tmp_path, caplog):
    """A class folder of GIFs is a class; a warning counts the pictures that shift the numbers of the others."""
    class_folders(tmp_path / "c")
    assert list(CLASSES) == open_source(tmp_path / "c").metadata["classes"]
    assert "" == caplog.text
    (tmp_path / "c" / "ant").mkdir()
    for name, kind in (("1.gif", "GIF"), ("2.GIF", "GIF"), ("3.jfif", "JPEG"), ("4.pnm", "PPM")):
        (tmp_path / "c" / "ant" / name).write_bytes(picture(1, kind=kind))
    source = open_source(tmp_path / "c")

    assert ["ant/1.gif", "ant/2.GIF", "ant/3.jfif", "ant/4.pnm"] == list(source.keys)[:4]
    assert {} == problems(source)
    assert "4 pictures (.gif, .jfif, .pnm) that torchvision's ImageFolder leaves out" in caplog.text


def test_imagefolder_follows_links(tmp_path):
    """A linked class folder is a class; a linked file is a file."""
    class_folders(tmp_path / "c")
    (tmp_path / "c" / "ant").symlink_to(tmp_path / "c" / "bee")
    source = open_source(tmp_path / "c")

    assert ["ant", *CLASSES] == source.metadata["classes"]
    assert {} == problems(source)


def test_class_folder_without_images(tmp_path, caplog):
    """It is named, and stays a class: the labels of those after it stay what they are; a warning says so."""
    class_folders(tmp_path / "c")
    (tmp_path / "c" / "ape").mkdir()
    (tmp_path / "c" / "cow").symlink_to(tmp_path)
    with caplog.at_level("WARNING"):
        source = open_source(tmp_path / "c")

    assert "1 class folder without an image: 'ape'" in caplog.text
    assert ["ape", "bee", "cat", "cow", "dog"] == source.metadata["classes"]
    assert {1, 2, 4} == {label for *_, label in read_all(source, 500, 4)}
    assert {"cow": "is a link back to a folder above it"} == problems(source)
    assert [("ape/", "is a class folder without an image, and stays a class")] == [
        (each.key, each.problem) for each in source.left_out
    ]
    assert 9 + 1 == len(source)


def test_labels_do_not_go_with_class_folders(tmp_path):
    """Two sources of labels would contradict each other."""
    class_folders(tmp_path / "c")
    with pytest.raises(SourceError, match="--labels"):
        open_source(tmp_path / "c", labels=tmp_path / "l.pkl")


def test_loop_of_links(tmp_path):
    """A link to a folder above it ends the walk with a problem, at any depth."""
    class_folders(tmp_path / "c")
    (tmp_path / "c" / "bee" / "deep" / "again").symlink_to(tmp_path / "c")
    (tmp_path / "c" / "cat" / "self").symlink_to(tmp_path / "c" / "cat")
    (tmp_path / "c" / "dog" / "above").symlink_to("/")
    source = open_source(tmp_path / "c")

    assert {"bee/deep/again", "cat/self", "dog/above"} == set(problems(source))
    assert 9 + 3 == len(source)


def test_files_beside_the_class_folders(tmp_path):
    """They have no class; each is named."""
    class_folders(tmp_path / "c")
    (tmp_path / "c" / "notes.npy").write_text("x")
    found = problems(open_source(tmp_path / "c"))

    assert ["notes.npy"] == list(found)

    (tmp_path / "c" / "stray.png").write_bytes(picture(1))
    found = problems(open_source(tmp_path / "c", kind="imagefolder"))

    assert "has no class" in found["stray.png"]


# each kind of bad file, in both kinds


def bad_files(folder):
    """One of each kind; what the sentence about it must say."""
    (folder / "empty.png").touch()
    (folder / "notes.npy").write_text("x")
    (folder / "noext").write_text("x")
    (folder / "noise.png").write_bytes(b"this is no picture at all")
    (folder / "cut.png").write_bytes(picture(1)[:20])
    (folder / "gone.png").symlink_to(folder / "nowhere")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    os.mkfifo(folder / "pipe.png")
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(folder)  # socket names are short
        try:
            server.bind("socket.png")
        finally:
            os.chdir(here)
    (folder / "null.png").symlink_to("/dev/null")
    (folder / os.fsdecode(b"caf\xe9.png")).write_bytes(picture(1))
    return {
        "empty.png": "empty",
        "notes.npy": "extension '.npy'",
        "noext": "no extension",
        "noise.png": "not an image",
        "cut.png": "PNG",
        "gone.png": "is a broken link",
        "loop.png": "cannot be followed",
        "pipe.png": "named pipe",
        "socket.png": "a socket",
        "null.png": "character device",
        "caf\\xe9.png": "not UTF-8",
    }


@pytest.mark.parametrize("kind", ["flat", "imagefolder"])
def test_every_kind_of_bad_file_is_named(tmp_path, kind):
    """Each is one problem with its key, the good ones stay, and nothing is lost."""
    if kind == "flat":
        flat(tmp_path / "s", 5)
        expected = bad_files(tmp_path / "s")
        good = 5
    else:
        good = len(class_folders(tmp_path / "s"))
        expected = {f"cat/{key}": text for key, text in bad_files(tmp_path / "s" / "cat").items()}
    source = open_source(tmp_path / "s", kind=kind)
    found = problems(source)

    assert expected.keys() == found.keys()
    assert [] == [(key, found[key]) for key, text in expected.items() if text not in found[key]]
    assert good + len(expected) == len(source)


def test_a_file_larger_than_memory(tmp_path, monkeypatch):
    """It is named, and stops the run whatever is to be skipped: another machine would have packed it."""

    class Full:
        def acquire(self, size: int) -> None:
            raise MemoryError(size)

    flat(tmp_path / "s", 2)
    with (tmp_path / "s" / "0001.png").open("ab") as file:
        file.truncate(1 << 20)
    monkeypatch.setattr(files._native, "BufferRing", lambda _: Full())
    with pytest.raises(SourceError, match=r"s/0001\.png: there is not enough memory for its 1,048,576 bytes"):
        pack(open_source(tmp_path / "s"), tmp_path / "out.lmdb", on_error="skip")


def test_large_files_are_looked_at_before_they_are_read(tmp_path, monkeypatch):
    """A file of gigabytes that is no picture, or that has holes only behind its head, is named and not read."""
    flat(tmp_path / "s", 4)
    for name, content in {"0001.png": b"", "0002.png": b"no picture"}.items():
        with (tmp_path / "s" / name).open("ab" if not content else "wb") as file:
            file.write(content)
            file.truncate(6 << 30)
    monkeypatch.setattr(files, "check_memory", lambda size: pytest.fail(f"{size:,} bytes read") if size > 1e6 else None)
    report = pack(open_source(tmp_path / "s"), tmp_path / "out.lmdb", on_error="skip")
    problems = {each.key: each.problem for each in report.skipped}

    assert (2, {"0001.png", "0002.png"}) == (report.packed, problems.keys())
    assert re.fullmatch(r"claims 6,442,450,944 bytes, but [\d,]+ cannot hold them", problems["0001.png"])
    assert "is not an image" in problems["0002.png"]
    assert not verify(tmp_path / "out.lmdb", against=open_source(tmp_path / "s")).problems


def test_large_pictures_are_packed(tmp_path, monkeypatch):
    """What is larger than usual is packed if it is a picture, whatever its size."""
    flat(tmp_path / "s", 3)
    monkeypatch.setattr(files, "LARGE_BYTES", 10)

    assert 3 == pack(open_source(tmp_path / "s"), tmp_path / "out.lmdb").packed


def test_more_than_is_free(tmp_path, monkeypatch):
    """Memory is asked for before a large file is read: Linux would promise it."""
    flat(tmp_path / "s", 1)
    monkeypatch.setattr(cut, "LARGE_BYTES", 10)
    monkeypatch.setattr(cut, "available_memory", lambda: 20)
    with pytest.raises(SourceError, match=r"s/0000\.png: there is not enough memory for its \d+ bytes"):
        pack(open_source(tmp_path / "s"), tmp_path / "out.lmdb", on_error="skip")


def test_labels_of_names_that_are_no_text(tmp_path):
    """Half a character, as JSON can hold it, is shown by its number."""
    flat(tmp_path / "s", 1)
    (tmp_path / "l.json").write_text('{"0000.png": 1, "\\ud800.png": 2}')
    source = open_source(tmp_path / "s", labels=tmp_path / "l.json")

    assert ["\\ud800.png"] == list(problems(source))


def test_a_folder_whose_name_is_not_utf8(tmp_path):
    """Its files are problems, so that no key is kept that no text can hold; its class stays."""
    class_folders(tmp_path / "s")
    folder = tmp_path / "s" / os.fsdecode(b"caf\xe9")
    (folder / "deep").mkdir(parents=True)
    (folder / "a.png").write_bytes(picture(1))
    (folder / "deep" / "b.png").write_bytes(picture(1))
    source = open_source(tmp_path / "s")

    assert ["caf\\xe9/a.png", "caf\\xe9/deep/b.png"] == list(problems(source))
    assert {"is in a folder whose name is not UTF-8: rename the folder"} == set(problems(source).values())
    assert "caf\\xe9" in source.metadata["classes"]


@contextmanager
def as_nobody():
    """Without the rights of root, who may read everything."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        if me == 0:
            os.seteuid(me)


def test_unreadable_files_and_folders():
    """What may not be read is named, with the system's reason."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    try:
        class_folders(root / "c")
        (root / "c" / "bee" / "0.png").chmod(0)
        (root / "c" / "cat" / "deep").chmod(0)
        with as_nobody():
            found = problems(open_source(root / "c"))
    finally:
        shutil.rmtree(root)

    assert {
        "bee/0.png": "cannot be read: Permission denied",
        "cat/deep": "is a folder that cannot be listed: Permission denied",
    } == found


@pytest.mark.parametrize("kind", ["auto", "flat", "imagefolder"])
def test_a_source_that_may_not_be_listed(kind):
    """One sentence with the path as it was given."""
    root = Path(tempfile.mkdtemp())
    try:
        root.chmod(0)
        with as_nobody(), pytest.raises(SourceError, match=f"{root}: the folder cannot be listed: Permission denied"):
            open_source(root, kind=kind)
    finally:
        root.rmdir()


def test_label_file_beside_folders(tmp_path):
    """A flat folder named one level too high is pointed at."""
    pickled(tmp_path / "labels.pkl", flat(tmp_path / "png"))

    assert "--labels" in problems(open_source(tmp_path, kind="imagefolder"))["labels.pkl"]
    with pytest.raises(SourceError, match=r"`fastio pack .*/png .* --labels .*/labels.pkl` packs its pictures"):
        open_source(tmp_path)


def test_folder_in_a_flat_source(tmp_path):
    """A folder among the files is named, not silently left out."""
    flat(tmp_path / "f")
    (tmp_path / "f" / "more").mkdir()

    assert "is a folder" in problems(open_source(tmp_path / "f", kind="flat"))["more"]


def test_file_that_changes_between_scan_and_read(tmp_path):
    """Grown, shrunk and vanished files are named; what is read is whole."""
    flat(tmp_path / "f", 4)
    source = open_source(tmp_path / "f")
    (tmp_path / "f" / "0000.png").write_bytes(picture(0) + b"more")
    (tmp_path / "f" / "0001.png").write_bytes(picture(1)[:-3])
    (tmp_path / "f" / "0002.png").unlink()
    found = problems(source)

    assert ["0000.png", "0001.png", "0002.png"] == list(found)
    assert "changed" in found["0000.png"]
    assert "changed" in found["0001.png"]
    assert "No such file" in found["0002.png"]


# what auto decides


def test_auto(tmp_path):
    """Each kind is recognised by its names."""
    flat(tmp_path / "flat")
    class_folders(tmp_path / "classes")
    (tmp_path / "shards").mkdir()
    foreign_tar(tmp_path / "shards" / "a-000000.tar")

    assert "flat" == open_source(tmp_path / "flat").kind
    assert "imagefolder" == open_source(tmp_path / "classes").kind
    assert "store" == open_source(tmp_path / "shards").kind
    assert "store" == open_source(tmp_path / "shards" / "a-{000000..000000}.tar").kind


def test_auto_does_not_guess(tmp_path):
    """Images beside folders could be either; the error names the option."""
    class_folders(tmp_path / "c")
    (tmp_path / "c" / "stray.png").write_bytes(picture(1))
    with pytest.raises(SourceError, match=r"holds 1 image, 3 folders, .*--source-kind flat or imagefolder"):
        open_source(tmp_path / "c")


def test_an_empty_folder_and_a_compressed_file(tmp_path):
    """Each is called what it is."""
    (tmp_path / "e").mkdir()
    (tmp_path / "s.tar.gz").touch()
    with pytest.raises(SourceError, match="e: is empty: there is nothing to pack"):
        open_source(tmp_path / "e")
    with pytest.raises(SourceError, match="found a compressed file: decompress it first"):
        open_source(tmp_path / "s.tar.gz")


@pytest.mark.parametrize("kind", ["auto", *SAMPLES])
def test_no_source_there(tmp_path, kind):
    """A path that does not exist, or is no folder, is named."""
    (tmp_path / "file.bin").write_bytes(b"x")
    for name in ("nothing", "file.bin"):
        with pytest.raises(SourceError, match=name):
            open_source(tmp_path / name, kind=kind)


def test_unknown_kind(tmp_path):
    """The kinds that exist are listed."""
    with pytest.raises(SourceError, match=r"auto, flat, imagefolder, .*store"):
        open_source(tmp_path, kind="unheard-of")


# tar


def test_foreign_members_that_are_no_samples_are_problems(tmp_path):
    """What the scan of a shard left out counts as found and is named."""
    import tarfile

    foreign_tar(tmp_path / "s.tar")
    with tarfile.open(tmp_path / "s.tar", "a") as archive:
        archive.addfile(tarfile.TarInfo("README"))
    source = open_source(tmp_path / "s.tar")

    assert (6, ["README"]) == (len(source), list(problems(source)))


def test_damaged_sample_of_a_sealed_shard(tmp_path):
    """Damage is not packed under a new, right checksum."""
    class_folders(tmp_path / "c")
    pack(open_source(tmp_path / "c"), tmp_path / "a.tar")
    image = picture(1, size=(8, 4))
    data = (tmp_path / "a.tar").read_bytes()
    at = data.index((tmp_path / "c" / "bee" / "0.png").read_bytes()) + len(image) // 2
    (tmp_path / "a.tar").write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])

    assert {"bee/0.png": "has a field 'image' that differs from its checksum"} == problems(
        open_source(tmp_path / "a.tar")
    )


def test_package_refuses_its_other_name():
    """Imported as top-level ``converters`` the package says how it is called."""
    import subprocess
    import sys
    from pathlib import Path

    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", "import converters"], cwd=root, capture_output=True, text=True, check=False
    )

    assert 1 == done.returncode
    assert "import fastio.converters" in done.stderr
