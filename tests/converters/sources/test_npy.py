"""Arrays of NumPy as sources."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastio.converters.sources import source as cut
from tests.converters.sources.packed import packed, refused

X = np.random.default_rng(0).integers(0, 256, (6, 5, 7, 3), np.uint8)
Y = np.array([2, 0, 1, 2, 0, 1])


def npy(array: Any, **options: Any) -> bytes:
    """The bytes of an .npy file."""
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path: Path, save: Any) -> None:
    """Every array is a field, bit by bit as numpy loads it."""
    emb, mask = np.arange(12, dtype="<f4").reshape(6, 2), np.arange(6 * 20, dtype=np.uint8).reshape(6, 5, 4)
    save(tmp_path / "a.npz", x=X, y=Y, emb=emb, mask=mask, weight=np.arange(6) / 4, name=3)
    types, samples, _ = packed(tmp_path / "a.npz", tmp_path / "o.lmdb")

    assert {
        "image": "uint8[5,7,3]",
        "emb": "float32[2]",
        "mask": "mask",
        "label": "int",
        "weight": "float",
    } == types
    assert [f"{i}" for i in range(6)] == list(samples)
    for i, sample in enumerate(samples.values()):
        assert X[i].tobytes() == sample["image"]
        assert emb[i].tobytes() == sample["emb"]
        assert (Y[i], i / 4) == (sample["label"], sample["weight"])
        assert np.array_equal(mask[i], np.array(Image.open(io.BytesIO(sample["mask"]))))


@pytest.mark.parametrize(
    "array",
    [
        X.transpose(0, 3, 1, 2),
        np.asfortranarray(X),
        X.astype(">u2").astype(np.uint8),
        np.ascontiguousarray(X.transpose(0, 3, 1, 2)),
    ],
)
def test_layouts(tmp_path: Path, array: Any) -> None:
    """Channels first and Fortran's order become rows of height, width and channels."""
    np.save(tmp_path / "x.npy", array)
    types, samples, _ = packed(tmp_path / "x.npy", tmp_path / "o.h5")

    assert {"image": "uint8[5,7,3]"} == types
    assert [row.tobytes() for row in X] == [sample["image"] for sample in samples.values()]


def test_further_files(tmp_path: Path) -> None:
    """A field may lie in another file; encoded as pictures, pixels stay."""
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    types, samples, _ = packed(tmp_path / "x.npy", tmp_path / "o.tar", "image=x.npy:image", "label=y.npy")

    assert {"image": "image", "label": "int"} == types
    assert np.array_equal(X[3], np.array(Image.open(io.BytesIO(samples["3"]["image"]))))
    assert Y.tolist() == [sample["label"] for sample in samples.values()]


def test_a_folder_of_arrays(tmp_path: Path) -> None:
    """Files with as many rows are one dataset; a folder of others is not taken for one."""
    (tmp_path / "d").mkdir()
    np.save(tmp_path / "d" / "x.npy", X)
    np.save(tmp_path / "d" / "y.npy", Y)
    types, samples, _ = packed(tmp_path / "d", tmp_path / "o.zip")

    assert ({"image": "uint8[5,7,3]", "label": "int"}, 6) == (types, len(samples))
    np.save(tmp_path / "d" / "z.npy", Y[:3])
    assert "different numbers of rows" in refused(tmp_path / "d", kind="npy")
    assert "3 files (3 .npy); nearest: arrays of NumPy, for 3 files: of a folder, at most 64" in refused(tmp_path / "d")


def test_big_endian(tmp_path: Path) -> None:
    """Numbers stay, in little endian."""
    np.savez(tmp_path / "a.npz", x=X, f=np.arange(12, dtype=">f8").reshape(6, 2), y=Y.astype(">i4"))
    types, samples, _ = packed(tmp_path / "a.npz", tmp_path / "o.lmdb")

    assert ("float64[2]", "int") == (types["f"], types["label"])
    assert np.array([2.0, 3.0]).tobytes() == samples["1"]["f"]


def members(path: Path, content: dict[str, bytes]) -> Path:
    """An .npz of these members."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_changed_byte_of_an_npz(tmp_path: Path, save: Any) -> None:
    """What differs from the checksum of its member is not packed, as numpy does not load it."""
    save(tmp_path / "a.npz", image=X, label=Y)
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[data.index(b"image.npy") + 200] ^= 1
    (tmp_path / "a.npz").write_bytes(data)

    with pytest.raises((zipfile.BadZipFile, zlib.error)):
        np.load(tmp_path / "a.npz")["image"]
    assert "a.npz: image.npy: " in refused(tmp_path / "a.npz")


def test_asked_for(tmp_path: Path) -> None:
    """What cannot be meant says what there is."""
    np.savez(tmp_path / "a.npz", train_x=X, train_y=Y, test_x=X[:2], test_y=Y[:2])

    assert "different numbers of rows" in refused(tmp_path / "a.npz")
    assert "there is no array 'x'; there is train_x" in refused(tmp_path / "a.npz", "image=x")
    assert "different numbers of rows" in refused(tmp_path / "a.npz", "image=train_x", "label=test_y")
    assert "comes twice" in refused(tmp_path / "a.npz", "image=train_x", "image=test_x")
    assert "train_y (int64, 6): has one number a sample; a sample needs a picture" in refused(
        tmp_path / "a.npz", "label=train_y"
    )
    types, samples, _ = packed(tmp_path / "a.npz", tmp_path / "o.lmdb", "image=test_x", "label=test_y")
    assert ({"image": "uint8[5,7,3]", "label": "int"}, 2) == (types, len(samples))


GOOD = npy(X)
BROKEN = {
    "empty": b"",
    "magic": b"\x93NUMPX" + GOOD[6:],
    "version": GOOD[:6] + b"\x09" + GOOD[7:],
    "cut header": GOOD[:40],
    "no header": GOOD[:9],
    "cut": GOOD[:-1],
    "longer": GOOD + b"x",
    "code": GOOD.replace(b"'|u1'", b"exit("),
    "objects": npy(np.array([{}, 1], object), allow_pickle=True),
    "strings": npy(np.array(["a", "b"])),
    "dates": npy(np.array(["2020-01-01"], "M8[D]")),
    "structs": npy(np.zeros(3, [("a", "i4")])),
    "scalar": npy(3),
    "negative": GOOD.replace(b"(6, 5", b"(-6,5"),
    "twice negative": GOOD.replace(b"(6, 5, 7, 3)", b"(-6,-5,7,3)"),
    "truth": GOOD.replace(b"(6, 5, 7, 3)", b"(True,630) "),
    "huge and empty": npy(np.zeros((6, 0))).replace(b"(6, 0), }" + b" " * 20, b"(%s, 0), } " % (b"9" * 20)),
    "huge": GOOD.replace(b"(6, 5, 7, 3)", b"(9**99,2, 3)"),
    "wide": GOOD.replace(b"(6, 5, 7, 3), ", b"(6, 5, 7, 33),"),
    "header size": GOOD[:8] + b"\xff\xff" + GOOD[10:],
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("wrapped", [False, True])
def test_damaged_or_hostile(tmp_path: Path, name: str, wrapped: bool) -> None:
    """Each is one line that names the file; nothing is unpickled, nothing allocated for what a header promises."""
    path = tmp_path / ("a.npz" if wrapped else "a.npy")
    if wrapped:
        members(path, {"a.npy": BROKEN[name]})
    else:
        path.write_bytes(BROKEN[name])

    assert str(path) in refused(path)


def test_hostile_archives(tmp_path: Path) -> None:
    """ZipMembers twice, encrypted or cut, and archives without arrays."""
    with zipfile.ZipFile(tmp_path / "twice.npz", "w") as archive:
        archive.writestr("x.npy", GOOD)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("x.npy", GOOD)
    np.savez_compressed(tmp_path / "good.npz", x=X, y=Y)
    data = (tmp_path / "good.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(data[:-30])
    (tmp_path / "flipped.npz").write_bytes(data[:90] + bytes([data[90] ^ 255]) + data[91:])
    members(tmp_path / "none.npz", {"a.txt": b"x"})

    assert "twice" in refused(tmp_path / "twice.npz")
    assert "is cut off at" in refused(tmp_path / "cut.npz")
    assert "x.npy" in refused(tmp_path / "flipped.npz")
    assert "holds no array" in refused(tmp_path / "none.npz")


@pytest.mark.parametrize("kind", ["idx", "npy"])
def test_more_rows_than_memory_lists(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that take no bytes, of which a few bytes can promise billions, are refused in one line."""
    count, path = 1 << 20, tmp_path / {"idx": "train-images-idx3-ubyte", "npy": "x.npy"}[kind]
    if kind == "idx":
        path.write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, count, 0, 28))
    else:
        np.save(path, np.zeros((count, 0, 28), np.uint8))
    monkeypatch.setattr(cut, "LARGE_BYTES", 10)
    monkeypatch.setattr(cut, "available_memory", lambda: 20)

    assert re.search(rf"{path.name}: .* not enough memory to list 1,048,576 rows", refused(path))
