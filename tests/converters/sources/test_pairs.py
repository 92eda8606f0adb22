"""Folders of fields: pictures, and masks, texts and arrays of the same stems beside them."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from fastio.cli import cli
from fastio.converters import Source, open_source, pack
from fastio.converters.fields.types import parse_choice
from fastio.converters.inspect.unpack import unpack
from fastio.converters.inspect.verify import verify
from fastio.converters.sources.record import recorded_root
from fastio.errors import FastioError, SourceError
from fastio.store import open_store
from fastio.store.protocol import read_values
from tests.converters.trees import files_below, picture


def mask(seed: int, dtype: str = "uint8") -> bytes:
    """A grey PNG of class numbers, 6 wide and 5 high."""
    pixels = np.random.default_rng(seed).integers(0, 12, (5, 6)).astype(dtype)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    """The bytes of a .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def tree(root: Path, files: dict[str, bytes]) -> Path:
    """Write these files below ``root``."""
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def pairs(root: Path, count: int = 3) -> Path:
    """``images/i.png`` with ``masks/i.png``, ``texts/i.txt``, ``boxes/i.npy`` and ``meta/i.json``."""
    files = {}
    for i in range(count):
        files[f"images/{i}.png"] = picture(i)
        files[f"masks/{i}.png"] = mask(i)
        files[f"texts/{i}.txt"] = f"picture {i}".encode()
        files[f"boxes/{i}.npy"] = npy(np.arange(4 * i, dtype=np.float32).reshape(i, 4))
        files[f"meta/{i}.json"] = f'{{"id": {i}}}'.encode()
    return tree(root, files)


def opened(path: Path, *fields: str, **options: str) -> Source:
    """The source with these ``--field``s."""
    return open_source(path, fields=[parse_choice(words) for words in fields], **options)


ALL = ("mask=masks/", "text=texts", "boxes=boxes:xyxy", "meta=meta")


@pytest.mark.parametrize("suffix", [".lmdb", ".h5", ".tar", ".zip"])
def test_every_field_comes_back(tmp_path: Path, suffix: str) -> None:
    """Pictures, masks, texts, boxes and JSON are packed, compared, and unpacked as the same files."""
    root = pairs(tmp_path / "set")
    source = opened(root, "image=images", *ALL)
    report = pack(source, tmp_path / f"out{suffix}")

    assert 3 == report.packed == report.found
    with open_store(tmp_path / f"out{suffix}") as store:
        assert ["image", "mask", "text", "boxes", "meta"] == [field.name for field in store.schema.fields]
        assert mask(1) == read_values(store, "mask", np.array([1])).view(0).tobytes()
        assert b"picture 2" == read_values(store, "text", np.array([2])).view(0).tobytes()
        unpack(store, tmp_path / "again")
    assert files_below(root) == files_below(tmp_path / "again")
    assert not verify(tmp_path / f"out{suffix}", against=source).problems


def test_folders_beside_the_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder may be named from where one is, from the pictures' folder, or beside it."""
    root = pairs(tmp_path / "set")
    monkeypatch.chdir(tmp_path)
    for words in ("mask=masks", "mask=set/masks", f"mask={root}/masks/", "mask=../masks"):
        assert ["0.png", "1.png", "2.png"] == opened(root / "images", words).keys


def test_a_folder_in_two_places_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that could be one here or one beside the pictures is refused; a root decides."""
    root = pairs(tmp_path / "set")
    (tmp_path / "masks").mkdir()
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SourceError, match=r"could be .*masks' or 'masks': write the whole path, or add --root"):
        opened(root / "images", "mask=masks")
    assert 3 == len(opened(root / "images", "mask=masks", root="set"))


def test_it_is_compared_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a store records of its source opens it again after a move."""
    source = opened(pairs(tmp_path / "set") / "images", *ALL)
    pack(source, tmp_path / "out.lmdb")
    (tmp_path / "set").rename(tmp_path / "moved")
    monkeypatch.chdir("/")
    with open_store(tmp_path / "out.lmdb") as store:
        record = store.metadata["source"]
    path = str(tmp_path / "moved" / "images")
    again = opened(path, *record["fields"], root=recorded_root(record, path))

    assert not verify(tmp_path / "out.lmdb", against=again).problems
    (tmp_path / "moved/masks/1.png").write_bytes(mask(77))
    assert ["1.png"] == [each.key for each in verify(tmp_path / "out.lmdb", against=again).problems]


def test_files_of_one_folder(tmp_path: Path) -> None:
    """Pictures and captions side by side are told apart by a pattern."""
    root = tree(
        tmp_path / "set",
        {
            f"{i}{end}": data
            for i in range(2)
            for end, data in ((".jpg", picture(i, kind="JPEG")), ("_seg.png", mask(i)), (".txt", b"a bee"))
        },
    )
    source = opened(root, "mask={stem}_seg.png", "caption={stem}.txt")

    assert (["0.jpg", "1.jpg"], 0) == (source.keys, len(source.problems))
    pack(source, tmp_path / "out.lmdb")
    with open_store(tmp_path / "out.lmdb") as store:
        unpack(store, tmp_path / "again")
    assert files_below(root) == files_below(tmp_path / "again")


@pytest.mark.parametrize(
    ("name", "data", "type_"),
    [
        ("mask", mask(1), "mask"),
        ("gt", mask(1, "uint16"), "mask16"),
        ("right", picture(1), "image"),
        ("depth", npy(np.ones((2, 3), np.float32)), "float32[2,3]"),
        ("age", npy(np.array(3, np.int64)), "int"),
        ("audio", b"RIFF", "bytes"),
    ],
)
def test_types_follow_names_and_content(tmp_path: Path, name: str, data: bytes, type_: str) -> None:
    """Masks by the field's name, arrays by their headers, anything else as bytes."""
    extension = "png" if data[1:4] == b"PNG" else "npy" if data[1:6] == b"NUMPY" else "wav"
    root = tree(tmp_path / "set", {"images/a.png": picture(1), f"other/a.{extension}": data})
    source = opened(root / "images", f"{name}=other")

    assert [f"{name}=../other:{type_}"] == source.metadata["source"]["fields"]
    assert [] == pack(source, tmp_path / "out.lmdb").skipped


# What is put into the folders of ``pairs``, the key of the problem, and a part of its sentence.
DAMAGE: dict[str, tuple[dict[str, bytes | None], str, str]] = {
    "no mask": ({"masks/1.png": None}, "images/1.png", "has no mask: expected masks/1.*"),
    "no picture": ({"images/1.png": None}, "masks/1.png", "has no image of the same stem"),
    "two masks": ({"masks/1.jpg": picture(1, kind="JPEG")}, "masks/1.jpg", "same stem"),
    "two pictures": ({"images/1.bmp": picture(1, kind="BMP")}, "images/1.bmp", "same stem"),
    "empty mask": ({"masks/1.png": b""}, "masks/1.png", "is empty (0 bytes)"),
    "empty picture": ({"images/1.png": b""}, "images/1.png", "is empty (0 bytes)"),
    "empty text": ({"texts/1.txt": b""}, "texts/1.txt", "is empty (0 bytes)"),
    "cut mask": ({"masks/1.png": mask(1)[:20]}, "images/1.png", "field 'mask'"),
    "mask that is text": ({"masks/1.png": b"not a picture at all"}, "images/1.png", "field 'mask'"),
    "picture that is text": ({"images/1.png": b"not a picture at all"}, "images/1.png", "not an image"),
    "mask of 16 bits": ({"masks/1.png": mask(1, "uint16")}, "images/1.png", "16-bit numbers, but masks of 8 bits"),
    "latin text": ({"texts/1.txt": b"caf\xe9"}, "images/1.png", "is not UTF-8: byte 3 is 0xe9"),
    "utf-16 text": ({"texts/1.txt": "bee".encode("utf-16")}, "images/1.png", "is not UTF-8"),
    "cut JSON": ({"meta/1.json": b'{"id": '}, "images/1.png", "is not a JSON document"),
    "deep JSON": ({"meta/1.json": b"[" * 100_000}, "images/1.png", "is not a JSON document"),
    "latin JSON": ({"meta/1.json": b'"caf\xe9"'}, "images/1.png", "is not a JSON document"),
    "array of text": ({"boxes/1.npy": b"1 2 3 4"}, "images/1.png", "is not a .npy file"),
    "cut array": ({"boxes/1.npy": npy(np.zeros((2, 4), np.float32))[:-1]}, "images/1.png", "promises 32 bytes"),
    "long array": ({"boxes/1.npy": npy(np.zeros((2, 4), np.float32)) + b"x"}, "images/1.png", "promises 32 bytes"),
    "array of five": ({"boxes/1.npy": npy(np.zeros((2, 5), np.float32))}, "images/1.png", "expected xyxy"),
    "array of objects": ({"boxes/1.npy": npy(np.array([{}]))}, "images/1.png", "Python objects"),
    "array of words": ({"boxes/1.npy": npy(np.array(["a"]))}, "images/1.png", "expected numbers"),
    "huge array": (
        {"boxes/1.npy": npy(np.zeros((1, 4), np.float32)).replace(b"(1, 4)", b"(9**9,)")[:128]},
        "images/1.png",
        "is not a .npy file",
    ),
    "array of version 9": ({"boxes/1.npy": b"\x93NUMPY\x09\x00" + bytes(60)}, "images/1.png", "version is 9.0"),
    "other file among masks": ({"masks/x.npy": b"1"}, "masks/x.npy", "is not an image"),
    "other file among texts": ({"texts/1.doc": b"1"}, "texts/1.doc", ""),
    "picture in a hidden folder": ({"masks/.old/1.png": mask(1)}, "masks/.old/1.png", "hidden folder"),
    "mask in another folder": ({"masks/1.png": None, "masks/in/1.png": mask(1)}, "masks/in/1.png", "has no image"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_one_problem(tmp_path: Path, name: str) -> None:
    """Whatever is wrong is listed with a sentence, everything else is packed, and the counts agree."""
    files, key, sentence = DAMAGE[name]
    root = pairs(tmp_path / "set")
    for path, data in files.items():
        (root / path).unlink() if data is None else tree(root, {path: data})
    fields = [each if "text" not in each else "text=texts:text" for each in ALL]
    source = opened(root, "image=images", *fields)
    with pytest.raises(SourceError, match=r"correct it, or skip"):
        pack(source, tmp_path / "no.lmdb")
    report = pack(source, tmp_path / "out.lmdb", on_error="skip")

    assert report.found == report.packed + len(report.skipped) + len(report.left_out)
    assert {"0", "2"} <= {Path(each).stem for each in open_store(tmp_path / "out.lmdb").keys(np.arange(report.packed))}
    assert [sentence in each.problem for each in report.skipped if each.key == key] == [True]
    assert not verify(tmp_path / "out.lmdb", against=source).problems


@pytest.mark.parametrize(
    ("make", "key", "sentence"),
    [
        (lambda p: p.symlink_to("nowhere"), "masks/1.png", "is a broken link"),
        (lambda p: os.mkfifo(p), "masks/1.png", "is a named pipe"),
        (lambda p: p.symlink_to(".."), "masks/1.png", "is a link back to a folder above it"),
        (lambda p: p.mkdir(), "images/1.png", "has no mask"),
        (lambda p: p.symlink_to(p), "masks/1.png", "is a link that cannot be followed"),
        (lambda p: Path(os.fsdecode(bytes(p)[:-5] + b"\xff.png")).write_bytes(mask(1)), "masks/\\xff.png", "UTF-8"),
    ],
)
def test_entries_that_are_no_files(tmp_path: Path, make: Callable[[Path], object], key: str, sentence: str) -> None:
    """Links, pipes and names that are not UTF-8 are problems of their own."""
    root = pairs(tmp_path / "set")
    (root / "masks/1.png").unlink()
    make(root / "masks/1.png")
    report = pack(opened(root, "image=images", "mask=masks"), tmp_path / "out.lmdb", on_error="skip")

    assert 2 == report.packed
    assert any(each.key == key and sentence in each.problem for each in report.skipped)


def test_names_that_are_hard(tmp_path: Path) -> None:
    """Spaces, line ends, several dots and folders in names are kept, and pair by the whole path."""
    names = ["a b", "line\nend", "v1.0.final", "in/deep/é", "in/a b", "{stem}"]
    root = tree(tmp_path / "set", {f"images/{n}.png": picture(i) for i, n in enumerate(names)})
    tree(root, {f"masks/{n}.png": mask(i) for i, n in enumerate(names)})
    report = pack(opened(root, "image=images", "mask=masks"), tmp_path / "out.tar")
    with open_store(tmp_path / "out.tar") as store:
        unpack(store, tmp_path / "again")

    assert (6, files_below(root)) == (report.packed, files_below(tmp_path / "again"))


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        (
            "caption=masks/:text",
            "images/0.png has no caption: masks/0.png is not a text file (has the extension '.png'; expected .txt)",
        ),
        ("caption=meta:mask", "images/0.png has no caption: meta/0.json is not an image (has the extension '.json'; "),
        ("caption=masks/:float32[4]", "images/0.png has no caption: masks/0.png is not a NumPy array"),
    ],
)
def test_files_of_another_type(tmp_path: Path, field: str, sentence: str) -> None:
    """A folder that holds other files than the type asks for: they are there, and named."""
    with pytest.raises(SourceError) as caught:
        opened(pairs(tmp_path / "set"), "image=images", field)
    assert sentence in str(caught.value)


def test_a_folder_with_texts_is_packed_by_fields(tmp_path: Path) -> None:
    """``--field`` asks for pairs, though the first folder holds texts, which would be packed as text without it."""
    files = {f"images/{i}.jpg": picture(i, kind="JPEG") for i in range(3)}
    root = tree(tmp_path / "set", {**files, **{f"captions/{i}.txt": b"a bee" for i in range(3)}})
    arguments = ["--field", "image=images", "--field", "caption=captions"]
    result = CliRunner().invoke(cli, ["pack", str(root), str(tmp_path / "out.lmdb"), *arguments])
    assert 0 == result.exit_code, result.output
    with open_store(tmp_path / "out.lmdb") as store:
        assert ["image", "caption"] == [field.name for field in store.schema.fields]


def test_what_lies_elsewhere_is_left_out_by_name(tmp_path: Path) -> None:
    """Files and folders that are in no field are listed."""
    root = tree(pairs(tmp_path / "set"), {"list.csv": b"1", "old/9.png": picture(9), "masks/Thumbs.db": b"1"})
    source = opened(root, "image=images", "mask=masks")

    expected = ["boxes/", "list.csv", "masks/Thumbs.db", "meta/", "old/", "texts/"]
    assert expected == [each.key for each in source.left_out]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (["mask=nowhere"], "there is no folder 'nowhere'"),
        (["mask=masks", "mask=texts"], "--field mask: comes twice"),
        (["label=masks"], "call a field of files mask"),
        (["mask=masks/{stem}{stem}"], r"expected \{stem\} once"),
        (["other=../images"], "another field has the same files"),
        (["mask=texts/{stem}_no.png"], "no sample has a file of the same stem"),
        (["x=mixed"], "files of different kinds"),
        (["x=arrays"], "the first arrays have 2 dtypes"),
        (["x=empty"], "no sample has a file"),
    ],
)
def test_fields_that_cannot_be(tmp_path: Path, fields: list[str], sentence: str) -> None:
    """A field without a folder, or without files of one type, is refused in words."""
    root = pairs(tmp_path / "set", 2)
    tree(
        root,
        {
            "mixed/0.txt": b"1",
            "mixed/1.json": b"1",
            "arrays/0.npy": npy(np.ones(1)),
            "arrays/1.npy": npy(np.ones(1, int)),
        },
    )
    (root / "empty").mkdir()

    with pytest.raises(FastioError, match=sentence):
        opened(root / "images", *fields)


def test_ambiguous_folders_say_the_command(tmp_path: Path) -> None:
    """Two folders of the same names are refused with the command that packs them as fields, and it works."""
    root = tree(tmp_path / "set", {f"{f}/s{i * 7}.png": picture(i) for i in range(3) for f in ("masks", "images")})
    with pytest.raises(SourceError, match="parts of one sample") as caught:
        open_source(root)
    command = str(caught.value).split("`")[1]

    assert command == f"fastio pack {root}/images set.lmdb --field mask={root}/masks/"
