"""Zip archives of other programs as sources."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from fastio import FastDataset
from tests.commands import run
from tests.converters.sources.packed import packed, refused
from tests.converters.trees import files_below, picture

STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED


def write(path: Path, files: Mapping[str, bytes], method: int = DEFLATED) -> Path:
    """An archive of these files, with an entry for each folder, as zip writes it."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for folder in sorted({name.rpartition("/")[0] + "/" for name in files if "/" in name}):
            archive.writestr(folder, b"")
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def classes(top: str = "") -> dict[str, bytes]:
    """Two classes of three pictures."""
    return {f"{top}{c}/{i}.png": picture(i + 10 * (c == "dog")) for c in ("cat", "dog") for i in range(3)}


@pytest.mark.parametrize("method", [STORED, DEFLATED])
@pytest.mark.parametrize("top", ["", "data/", "a/b/"])
def test_class_folders(tmp_path: Path, top: str, method: int) -> None:
    """Folders are classes, below the folder that all lie in; unpacking gives the tree."""
    junk = {"__MACOSX/._x.png": b"\0\5\x16\7", f"{top}README.md": b"x", f"{top}.DS_Store": b"x"}
    types, samples, skipped = packed(write(tmp_path / "a.zip", classes(top) | junk, method), tmp_path / "o.lmdb")

    assert ({"image": "image", "label": "int"}, {}) == (types, skipped)
    assert {n: {"image": p, "label": int(n.startswith("dog"))} for n, p in classes().items()} == samples
    run("unpack", tmp_path / "o.lmdb", tmp_path / "tree")
    assert classes() == files_below(tmp_path / "tree")


def test_flat(tmp_path: Path) -> None:
    """Pictures beside each other have no labels; all else is left out or a problem, by name."""
    files = {"a.png": picture(1), "b.JPG": picture(2, kind="JPEG"), "notes.txt": b"x"}
    odd = {"c.bin": b"x", "d.png": b"", "e.png": b"no picture", ".git/f.png": picture(3), ".git/g": b"x"}
    types, samples, skipped = packed(write(tmp_path / "a.zip", files | odd), tmp_path / "o.tar", skip=True)

    assert ({"image": "image"}, {"a.png", "b.JPG"}) == (types, set(samples))
    assert {"c.bin", "d.png", "e.png", ".git/f.png"} == set(skipped)


def test_fields_by_stem(tmp_path: Path) -> None:
    """Folders of an archive are fields; what has no partner is a problem."""
    files = {f"d/images/{i}.jpg": picture(i, kind="JPEG") for i in range(4)}
    files |= {f"d/masks/{i}_mask.png": picture(i, mode="L") for i in (0, 1, 2, 9)}
    files |= {f"d/captions/{i}.txt": f"é{i}".encode() for i in range(4)} | {"d/meta/0.json": b"{}"}
    files |= {f"d/boxes/{i}.json": json.dumps([[0, 0, i, i]]).encode() for i in range(4)}
    path = write(tmp_path / "a.zip", files)
    asked = ("image=images/", "mask=masks/{stem}_mask.png", "caption=captions/", "boxes=boxes")
    types, samples, skipped = packed(path, tmp_path / "o.zip", *asked, skip=True)

    assert {"image": "image", "mask": "mask", "caption": "text", "boxes": "json"} == types
    assert {f"images/{i}.jpg" for i in range(3)} == set(samples)
    assert picture(1, mode="L") == samples["images/1.jpg"]["mask"]
    assert "é2".encode() == samples["images/2.jpg"]["caption"]
    assert {"images/3.jpg", "masks/9_mask.png"} == set(skipped)
    assert "no such file" in refused(path, "mask=nowhere/")
    assert "which pictures are meant" in refused(path, "caption=captions/")


def test_what_could_be_meant_in_two_ways(tmp_path: Path) -> None:
    """Splits and folders of equal names are refused, with what to type; --root takes one of them."""
    splits = write(
        tmp_path / "s.zip", {f"{top}/{name}": p for top in ("train", "val") for name, p in classes().items()}
    )
    pairs = write(tmp_path / "p.zip", {f"{top}/{i}.png": picture(i) for top in ("images", "masks") for i in range(3)})

    assert "train" in refused(splits)
    assert "--field mask=masks/" in refused(pairs)
    _, samples, _ = packed(splits, tmp_path / "o.lmdb", root="val")
    assert set(classes()) == set(samples)
    assert "no such folder" in refused(splits, root="test")


@pytest.mark.parametrize("name", ["../a.png", "/a.png", "a/../../b.png", "c\\d.png", "C:/a.png", "a/..", "b/../c.png"])
def test_hostile_names(tmp_path: Path, name: str) -> None:
    """A name that leads elsewhere is a problem, and never a key."""
    path = write(tmp_path / "a.zip", {"good.png": picture(0)})
    with zipfile.ZipFile(path, "a") as archive:
        info = zipfile.ZipInfo("x")
        info.filename = name
        archive.writestr(info, picture(1))
    _, samples, skipped = packed(path, tmp_path / "o.lmdb", skip=True)

    assert (["good.png"], [name]) == (list(samples), list(skipped))


def _flip(marker: bytes, offset: int, value: bytes) -> Callable[[bytes], bytes]:
    """Overwrite what lies ``offset`` bytes behind the last ``marker``."""

    def change(data: bytes) -> bytes:
        at = data.rindex(marker) + offset
        return data[:at] + value + data[at + len(value) :]

    return change


ENTRY, LOCAL, END = b"PK\1\2", b"PK\3\4", b"PK\5\6"
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "no end": lambda data: data[:-22],
    "cut": lambda data: data[: len(data) // 2],
    "encrypted": _flip(ENTRY, 8, b"\1"),
    "method": _flip(ENTRY, 10, b"\x0e"),
    "local header": _flip(LOCAL, 0, b"XX"),
    "size": _flip(ENTRY, 24, b"\xff\xff\xff\x7f"),
    "packed size": _flip(ENTRY, 20, b"\xff\xff\xff\x7f"),
    "a byte more": lambda data: _flip(ENTRY, 24, bytes([data[data.rindex(ENTRY) + 24] ^ 1]))(data),
    "checksum": _flip(ENTRY, 16, b"\0\0\0\0"),
    "offset": _flip(ENTRY, 42, b"\xff\xff\xff\x7f"),
    "same offset": _flip(ENTRY, 42, b"\0\0\0\0"),
    "directory offset": _flip(END, 16, b"\xff\xff\xff\x7f"),
    "no name": _flip(ENTRY, 28, b"\0\0\0\0\5\0"),
    "entries": _flip(END, 10, b"\xff\x7f"),
    "content": _flip(LOCAL, 70, b"\x55\xaa\x55\xaa"),
    "text": lambda _: b"PK\3\4 is no archive",
}


@pytest.mark.parametrize("method", [STORED, DEFLATED])
@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_or_hostile(tmp_path: Path, name: str, method: int) -> None:
    """Damage is an error, or a problem of the member that has it; sizes are not believed."""
    path = write(tmp_path / "a.zip", {f"{i}.png": picture(i, size=(20, 20)) for i in range(3)}, method)
    path.write_bytes(DAMAGES[name](path.read_bytes()))

    assert str(path) in refused(path)


@pytest.mark.parametrize("name", ["1.png", "é.png"])
def test_names_that_changed(tmp_path: Path, name: str) -> None:
    """A member has its name twice, in the directory and before its bytes: where these differ, it is a problem."""
    path = write(
        tmp_path / "a.zip", {"cat/0.png": picture(0), f"cat/{name}": picture(1), "dog/2.png": picture(2)}, STORED
    )
    data, old, new = path.read_bytes(), f"cat/{name}".encode(), f"bat/{name}".encode()
    for at in (data.index(old), data.rindex(old)):
        path.write_bytes(data[:at] + new + data[at + len(new) :])
        _, samples, skipped = packed(path, tmp_path / f"{at}.lmdb", skip=True)
        assert ["cat/0.png", "dog/2.png"] == list(samples)
        (problem,) = skipped.values()
        assert "another name before its bytes than in the directory" in problem
    dataset = FastDataset(path)
    assert ["cat/0.png", "dog/2.png"] == dataset.keys


def test_bombs(tmp_path: Path) -> None:
    """What inflates to more than its entry says is stopped there; members that share bytes are refused."""
    bomb = write(tmp_path / "a.zip", {"a.png": bytes(50 << 20)})
    data = bomb.read_bytes()
    at = data.rindex(ENTRY) + 24
    bomb.write_bytes(data[:at] + (1000).to_bytes(4, "little") + data[at + 4 :])

    assert "more than the 1,000 bytes" in refused(bomb)
    assert "is not an image" in refused(write(tmp_path / "b.zip", {"a.png": bytes(5 << 20)}))


def test_zip64_and_comments(tmp_path: Path) -> None:
    """Archives that stream, with ZIP64 records, data descriptors, extra fields and a comment, are read."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.comment = b"hello"
        for i in range(3):
            with archive.open(f"{i}.png", "w", force_zip64=True) as member:
                member.write(picture(i))
    path = tmp_path / "a.zip"
    path.write_bytes(b"#!self-extracting\n" + file.getvalue())
    (tmp_path / "b.zip").write_bytes(file.getvalue())
    _, samples, _ = packed(tmp_path / "b.zip", tmp_path / "o.lmdb")

    assert {f"{i}.png": {"image": picture(i)} for i in range(3)} == samples
    assert np.all([len(samples)])
