"""LMDB files of other programs as sources."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest

from fastio.converters import open_source, pack
from fastio.errors import FastioError
from tests.converters.sources.packed import packed, refused
from tests.converters.trees import picture

PAGE = 4096


def write(path: Path, values: Mapping[bytes, bytes], *, subdir: bool = False, **options: Any) -> Path:
    """An LMDB file, as py-lmdb writes it."""
    environment = lmdb.open(str(path), subdir=subdir, map_size=1 << 24, lock=False, **options)
    with environment as env, env.begin(write=True) as txn:
        for key, value in values.items():
            txn.put(key, value)
    return path


@pytest.mark.parametrize("subdir", [False, True])
@pytest.mark.parametrize("count", [1, 3, 400])
def test_pictures_under_numbers(tmp_path: Path, count: int, subdir: bool) -> None:
    """Numbers are in their order, whatever their width; sizes on both sides of a page; what counts them is left out."""
    pictures = [picture(i, size=(4 + i % 40, 4 + i % 30)) for i in range(count)]
    path = write(
        tmp_path / "in.mdb", {b"%d" % i: p for i, p in enumerate(pictures)} | {b"__len__": b"3"}, subdir=subdir
    )
    types, samples, _ = packed(path, tmp_path / "o.lmdb")

    assert {"image": "image"} == types
    assert {str(i): {"image": each} for i, each in enumerate(pictures)} == samples
    assert [str(i) for i in range(count)] == list(samples)


def test_the_newest_version_of_the_file(tmp_path: Path) -> None:
    """Several transactions, deletions included, leave what py-lmdb reads."""
    path = write(tmp_path / "in.mdb", {b"%05d" % i: picture(i) for i in range(100)})
    with lmdb.open(str(path), subdir=False, map_size=1 << 24, lock=False) as env:
        for i in range(0, 100, 3):
            with env.begin(write=True) as txn:
                txn.delete(b"%05d" % i)
        with env.begin() as txn:
            expected = {key.decode(): value for key, value in txn.cursor()}
    _, samples, _ = packed(path, tmp_path / "o.tar")

    assert expected == {key: sample["image"] for key, sample in samples.items()}


def test_arbitrary_keys(tmp_path: Path) -> None:
    """Paths stay, bytes that are no text are shown in hexadecimal; values that are no pictures are problems."""
    path = write(tmp_path / "in.mdb", {b"a/x.png": picture(1), b"\xff\x00": picture(2), b"z": b"no picture"})
    _, samples, skipped = packed(path, tmp_path / "o.lmdb", skip=True)

    assert {"a/x.png", "ff00"} == set(samples)
    assert ["z"] == list(skipped)


def datum(
    *, data: bytes = b"", floats: bytes = b"", label: int | None = 3, shape: Any = (3, 2, 2), **more: int
) -> bytes:
    """A Datum in the wire format of Protocol Buffers."""
    out = b"".join(bytes([number << 3]) + varint(size) for number, size in enumerate(shape, 1))
    out += b"\x22" + varint(len(data)) + data if data else b""
    out += b"\x28" + varint(label & (1 << 64) - 1) if label is not None else b""
    out += b"\x32" + varint(len(floats)) + floats if floats else b""
    return out + (b"\x38\x01" if more.get("encoded") else b"")


def varint(value: int) -> bytes:
    """A number of the wire format."""
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def test_datums(tmp_path: Path) -> None:
    """Raw pixels have their channels last, encoded pictures stay, floats keep their shape; labels may be negative."""
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2)
    raw = write(tmp_path / "raw.mdb", {b"%08d" % i: datum(data=p.tobytes(), label=i - 1) for i, p in enumerate(pixels)})
    types, samples, _ = packed(raw, tmp_path / "r.h5")
    assert {"image": "uint8[2,2,3]", "label": "int"} == types
    assert [p.transpose(1, 2, 0).tobytes() for p in pixels] == [s["image"] for s in samples.values()]
    assert [-1, 0] == [s["label"] for s in samples.values()]

    coded = write(
        tmp_path / "enc.mdb", {b"a": datum(data=picture(1), encoded=1), b"b": datum(data=picture(2), encoded=1)}
    )
    types, samples, _ = packed(coded, tmp_path / "e.lmdb")
    assert ({"image": "image", "label": "int"}, [picture(1), picture(2)]) == (
        types,
        [s["image"] for s in samples.values()],
    )

    floats = np.arange(12, dtype="<f4")
    path = write(tmp_path / "f.mdb", {b"a": datum(floats=floats.tobytes(), label=None), b"b": b"\x08"})
    types, samples, skipped = packed(path, tmp_path / "f.lmdb", skip=True)
    assert ({"image": "float32[3,2,2]"}, floats.tobytes()) == (types, samples["a"]["image"])
    assert "is not a Datum of Caffe: it is cut off" in skipped["b"]


def test_datums_without_labels(tmp_path: Path) -> None:
    """Where the first Datum has no label, one that has is a problem: its label would be lost."""
    one, other = datum(data=picture(1), encoded=1, label=None), datum(data=picture(2), encoded=1)
    for first, second, words in ((one, other, "has a label, while the first has none"), (other, one, "has no label")):
        path = write(tmp_path / f"{words[:5]}.mdb", {b"0": first, b"1": second})
        assert f"1: is a Datum that {words}" in refused(path)


def test_pictures_are_no_bookkeeping(tmp_path: Path) -> None:
    """Whatever their keys."""
    names = [b"__cat__", b"keys", b"length", b"num_samples"]
    path = write(tmp_path / "in.mdb", {**{name: picture(i) for i, name in enumerate(names)}, b"__len__": b"4"})
    _, samples, _ = packed(path, tmp_path / "o.lmdb")

    assert [name.decode() for name in names] == list(samples)


def test_text_recognition(tmp_path: Path) -> None:
    """Pictures and texts by number; what lacks its partner, and what num-samples promises, is a problem."""
    values = {b"image-%09d" % i: picture(i) for i in range(1, 6)} | {b"num-samples": b"7", b"wh-000000001": b"6_5"}
    values |= {b"label-%09d" % i: f"wört {i}".encode() for i in (1, 2, 4, 6)} | {b"label-000000005": b"\xff"}
    types, samples, skipped = packed(write(tmp_path / "in.mdb", values), tmp_path / "o.zip", skip=True)

    assert {"image": "image", "text": "text"} == types
    assert {f"image-{i:09d}": {"image": picture(i), "text": f"wört {i}".encode()} for i in (1, 2, 4)} == samples
    assert {"image-000000003", "label-000000006", "image-000000005", "image-000000007"} == set(skipped)
    assert "num-samples is 4, but there are 6" in refused(write(tmp_path / "n.mdb", values | {b"num-samples": b"4"}))


def test_keys_of_one_number(tmp_path: Path) -> None:
    """Two pictures of one number are both problems: nothing tells which one its text belongs to."""
    values = {b"image-%09d" % i: picture(i) for i in range(1, 4)} | {b"image-2": picture(9), b"num-samples": b"3"}
    values |= {b"label-%09d" % i: b"word" for i in range(1, 4)}
    _, samples, skipped = packed(write(tmp_path / "in.mdb", values), tmp_path / "o.zip", skip=True)

    assert ["image-000000001", "image-000000003"] == sorted(samples)
    assert {"image-000000002", "image-2", "label-000000002"} == set(skipped)
    assert "has the number of another key" in skipped["image-2"]


def test_pickled_pairs(tmp_path: Path) -> None:
    """Pairs, dicts and arrays are read as data; what would run code is a problem of its sample."""
    pairs = {b"%d" % i: pickle.dumps((picture(i), i)) for i in range(3)}
    evil = {b"3": b"\x80\x02cos\nsystem\nU\x04echo\x85R."}
    types, samples, skipped = packed(write(tmp_path / "p.mdb", pairs | evil), tmp_path / "p.lmdb", skip=True)
    assert ({"image": "image", "label": "int"}, 3) == (types, len(samples))
    assert {"image": picture(2), "label": 2} == samples["2"]
    assert "asks for os.system" in skipped["3"]

    dicts = {b"%d" % i: pickle.dumps({"img": np.full((2, 2, 3), i, np.uint8), "caption": f"é{i}"}) for i in range(3)}
    types, samples, _ = packed(write(tmp_path / "d.mdb", dicts), tmp_path / "d.lmdb")
    assert ({"img": "uint8[2,2,3]", "caption": "text"}, "é1".encode()) == (types, samples["1"]["caption"])


def test_values_whose_type_is_named(tmp_path: Path) -> None:
    """Raw arrays and texts without a mark of what they are, by --field."""
    arrays = write(tmp_path / "a.mdb", {b"%d" % i: bytes([i] * 12) for i in range(3)} | {b"3": b"short"})
    assert "--field image=value:uint8[32,32,3]" in refused(arrays)
    types, samples, skipped = packed(arrays, tmp_path / "a.lmdb", "image=value:uint8[2,2,3]", skip=True)
    assert ({"image": "uint8[2,2,3]"}, bytes([2] * 12), ["3"]) == (types, samples["2"]["image"], list(skipped))
    assert "name that one and its type" in refused(arrays, "image=data:image")

    texts = write(tmp_path / "t.mdb", {b"a": "é".encode(), b"b": b"\xff"})
    types, samples, skipped = packed(texts, tmp_path / "t.lmdb", "text=value:text", skip=True)
    assert ({"text": "text"}, {"a": {"text": "é".encode()}}, ["b"]) == (types, samples, list(skipped))


def test_what_is_not_read(tmp_path: Path) -> None:
    """Named databases and empty files."""
    with lmdb.open(str(tmp_path / "named.mdb"), subdir=False, max_dbs=2, lock=False) as env:
        env.open_db(b"train")
    write(tmp_path / "empty.mdb", {})

    assert "'train' has a database of its own" in refused(tmp_path / "named.mdb")
    assert "without any key" in refused(tmp_path / "empty.mdb")


def _damages() -> dict[str, Any]:
    """Bytes to write into a file of 60 pictures, by what they damage."""
    found: dict[str, Any] = {f"cut to {share:.0%}": share for share in (0.0, 0.001, 0.1, 0.5, 0.9, 0.99)}
    for name, at, data in (
        ("root", 16 + 24 + 48 + 40, struct.pack("<Q", 10**9)),
        ("root 1", 16 + 24 + 48 + 40, struct.pack("<Q", 1)),
        ("entries", 16 + 24 + 48 + 32, struct.pack("<Q", 59)),
        ("depth", 16 + 24 + 48 + 6, struct.pack("<H", 99)),
        ("page size", 16 + 24, struct.pack("<I", 4095)),
        ("huge pages", 16 + 24, struct.pack("<I", 1 << 31)),
        ("last page", 16 + 24 + 96, struct.pack("<Q", 1 << 60)),
        ("version", 16 + 4, struct.pack("<I", 2)),
    ):
        found[name] = [(at, data), (PAGE + at, data)]
    return found


DAMAGES = _damages()


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_first_pages(tmp_path: Path, name: str) -> None:
    """A file that is cut or whose meta pages are wrong is refused by a line that names it."""
    path = write(tmp_path / "in.mdb", {b"%d" % i: picture(i, size=(40, 30)) for i in range(60)})
    data = bytearray(path.read_bytes())
    damage = DAMAGES[name]
    if isinstance(damage, float):
        data = data[: int(len(data) * damage)]
    else:
        for at, value in damage:
            data[at : at + len(value)] = value
    path.write_bytes(data)

    assert str(path) in refused(path, kind="lmdb")


def test_a_damaged_meta_page(tmp_path: Path) -> None:
    """The other one may be that of the transaction before, which lacks samples."""
    path = write(tmp_path / "in.mdb", {b"%d" % i: picture(i) for i in range(9)})
    write(path, {b"%d" % i: picture(i) for i in range(9, 12)})
    data = bytearray(path.read_bytes())
    assert data[16 + 24 + 96 + 8] == 2  # the number of the last transaction, whose page is the first
    for at in (16, PAGE + 16):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert "or one of its first two pages is damaged" in refused(path, kind="lmdb")


@pytest.mark.parametrize("key", [b"a5", b"a0", b"b5"])
def test_keys_that_changed(tmp_path: Path, key: bytes) -> None:
    """A key that no longer ascends, or is there twice, is damage; so is another size, which moves what follows."""
    path = write(tmp_path / "in.mdb", {b"a%d" % i: picture(i) for i in range(9)})
    data = path.read_bytes()
    path.write_bytes(data.replace(b"a4\x89PNG", key + b"\x89PNG"))
    assert "out of its order" in refused(path, kind="lmdb")
    path.write_bytes(data.replace(b"\x02\0a4\x89PNG", b"\x06\0a4\x89PNG"))
    assert "nodes that overlap" in refused(path, kind="lmdb")


@pytest.mark.parametrize("seed", range(60))
def test_damaged_pages(tmp_path: Path, seed: int) -> None:
    """Flipped bytes of a page are an error or a problem, or change nothing that is read; the process stays."""
    rng = np.random.default_rng(seed)
    values = {b"%d" % i: picture(i, size=(4 + i % 40, 4)) for i in range(60)}
    path = write(tmp_path / "in.mdb", values)
    data = bytearray(path.read_bytes())
    page = rng.integers(2, len(data) // PAGE)
    for at in rng.integers(0, 64, 4):
        data[page * PAGE + at] = rng.integers(0, 256)
    path.write_bytes(data)
    try:
        source = open_source(path)
        report = pack(source, tmp_path / "o.lmdb", on_error="skip")
    except FastioError as exc:
        message = str(exc)
    else:
        message = f"{path}: {report.packed + len(report.skipped)} of {len(source)}"
    assert message.startswith(str(path))
    assert "of" not in message.split()[2:3] or message.endswith("60 of 60")
