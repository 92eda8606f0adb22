"""Files that every tool leaves out are left out and counted; pictures never are."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio.cli import cli
from fastio.converters import open_source, pack
from fastio.errors import SourceError
from fastio.store import open_store
from tests.converters.trees import class_folders, files_below, flat, pickled, picture

APPLE_DOUBLE = b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        "
JUNK = (".DS_Store", "Thumbs.db", "desktop.ini", ".gitkeep", "README", "README.md", "LICENSE", "notes.txt", "list.csv")


def left_out(source):
    """Keys of what is left out, with the reasons."""
    return {each.key: each.problem for each in source.left_out}


def test_junk_in_every_folder(tmp_path):
    """Beside class folders and in them; labels, classes and samples are those without."""
    keys = class_folders(tmp_path / "c")
    for folder in ("", "cat/", "dog/deep/"):
        for name in JUNK:
            (tmp_path / "c" / f"{folder}{name}").write_bytes(b"x")
    (tmp_path / "c" / "list.csv").unlink()
    source = open_source(tmp_path / "c")

    assert keys == list(source.keys)
    assert ["bee", "cat", "dog"] == source.metadata["classes"]
    assert ([], 3 * len(JUNK) - 1) == (list(source.problems), len(left_out(source)))
    assert "is a file of the operating system" == left_out(source)["cat/Thumbs.db"]


def test_found_is_packed_and_skipped_and_left_out(tmp_path):
    """The report, the store and the command say the same; unpack gives the pictures' bytes."""
    labels = flat(tmp_path / "f", 5)
    pictures = files_below(tmp_path / "f")
    (tmp_path / "f" / ".DS_Store").write_bytes(b"x")
    (tmp_path / "f" / "README.txt").write_bytes(b"x")
    (tmp_path / "f" / "bad.npy").write_bytes(b"x")
    source = open_source(tmp_path / "f", labels=pickled(tmp_path / "l.pkl", labels))
    report = pack(source, tmp_path / "s.lmdb", on_error="skip")

    assert (8, 5, 1, 2) == (report.found, report.packed, len(report.skipped), len(report.left_out))
    said = CliRunner().invoke(cli, ["info", str(tmp_path / "s.lmdb")]).output
    assert "left out: 2 files: .DS_Store (is a file of the operating system); README.txt (" in said
    listed = CliRunner().invoke(cli, ["info", str(tmp_path / "s.lmdb"), "--skipped"]).output
    assert all(name in listed for name in (".DS_Store", "README.txt", "bad.npy"))
    CliRunner().invoke(cli, ["unpack", str(tmp_path / "s.lmdb"), str(tmp_path / "again")])
    assert pictures == files_below(tmp_path / "again")


def test_no_picture_is_left_out(tmp_path):
    """A picture with the name of a hidden file is packed; macOS's companion of one is left out by its content."""
    flat(tmp_path / "f", 2)
    (tmp_path / "f" / ".hidden.png").write_bytes(picture(3))
    (tmp_path / "f" / "._real.png").write_bytes(picture(4))
    (tmp_path / "f" / "._0000.png").write_bytes(APPLE_DOUBLE)
    (tmp_path / "f" / "README.png").write_bytes(picture(5))
    source = open_source(tmp_path / "f")

    assert ["._real.png", ".hidden.png", "0000.png", "0001.png", "README.png"] == list(source.keys)
    assert {"._0000.png": "is a file of the operating system"} == left_out(source)


@pytest.mark.parametrize("kind", ["flat", "imagefolder"])
def test_hidden_folders_are_no_classes(tmp_path, kind):
    """What lies in them is left out, but pictures are problems: somebody may miss them."""
    root = tmp_path / "s"
    flat(root) if kind == "flat" else class_folders(root)
    for name in ("__MACOSX/cat", ".git", ".ipynb_checkpoints"):
        (root / name).mkdir(parents=True)
    (root / "__MACOSX" / "cat" / "._0.png").write_bytes(APPLE_DOUBLE)
    (root / ".git" / "config").write_bytes(b"x")
    source = open_source(root)
    found = left_out(source)

    assert kind == source.kind
    assert [] == list(source.problems)
    assert {"__MACOSX/cat/._0.png", ".git/config", ".ipynb_checkpoints"} == set(found)
    assert kind == "flat" or ["bee", "cat", "dog"] == source.metadata["classes"]

    (root / ".ipynb_checkpoints" / "0-checkpoint.png").write_bytes(picture(1))
    with pytest.raises(
        SourceError, match=r"\.ipynb_checkpoints/0-checkpoint\.png: is an image in a hidden folder: move"
    ):
        pack(open_source(root), tmp_path / "s.lmdb")


def test_a_label_file_is_no_junk(tmp_path):
    """A .csv in a flat folder without labels, or beside class folders, is pointed at; with --labels it is left out."""
    labels = flat(tmp_path / "f", 2)
    (tmp_path / "f" / "labels.csv").write_text("".join(f"{k},{v}\n" for k, v in labels.items()))
    (problem,) = open_source(tmp_path / "f").problems
    source = open_source(tmp_path / "f", labels=pickled(tmp_path / "l.pkl", labels))

    assert "pass it with --labels" in problem.problem
    assert ["labels.csv"] == list(left_out(source))
    assert {} == left_out(open_source(tmp_path / "f", labels=tmp_path / "f" / "labels.csv"))


def test_only_junk(tmp_path):
    """A folder without pictures is no source."""
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / ".DS_Store").write_bytes(b"x")
    with pytest.raises(SourceError, match=r"of no kind that fastio packs: found 1 file \(1 without extension\)"):
        open_source(tmp_path / "f")
    with pytest.raises(SourceError, match="has no samples; 1 files are not samples"):
        pack(open_source(tmp_path / "f", kind="flat"), tmp_path / "s.lmdb")


NAMES = st.sampled_from([*JUNK, "a.png", "b.PNG", "c.npy", "d", ".e.png", "._f.png", "empty.png", "gif.gif"])


@given(st.dictionaries(NAMES, st.sampled_from([b"", b"noise", picture(1), picture(2, kind="JPEG"), APPLE_DOUBLE])))
@settings(max_examples=40, deadline=None)
def test_every_file_is_packed_or_named(tmp_path_factory, files):
    """found = packed + skipped + left out, whatever lies in a folder; what is packed has the file's bytes."""
    root = tmp_path_factory.mktemp("s") / "f"
    flat(root, 1)
    for name, data in files.items():
        (root / name).write_bytes(data)
    report = pack(open_source(root, kind="flat"), root.parent / "s.lmdb", on_error="skip")

    with open_store(root.parent / "s.lmdb") as store:
        keys = store.keys(range(len(store)))
        packed = {key: store.spans("image", [i]).view(0).tobytes() for i, key in enumerate(keys)}
    named = {each.key for each in (*report.skipped, *report.left_out)}
    assert {*packed, *named} == {"0000.png", *files}
    assert len(files) + 1 == report.found == len(packed) + len(named)
    assert {key: data for key, data in files_below(root).items() if key in packed} == packed
    assert not any(
        data[:4] == b"\x89PNG" and name.lower().endswith("png") for name, data in files.items() if name in named
    )
