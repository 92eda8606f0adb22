"""Hostile files: an index that fits all its checksums and lies all the same."""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete
from fastio.store import open_store
from fastio.store.index.seal import HEADER_VERSION, SEAL_SIZE, Seal, set_checksum, unsealed_regions
from tests.store.build import make_samples, write

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An LMDB store of thirty samples."""
    return Path(write(tmp_path / "out.lmdb", make_samples(30)))


def _seal(path: Path) -> Seal:
    data = path.read_bytes()
    start = len(data) - 4080
    return Seal.unpack(data[start : start + SEAL_SIZE], path=str(path), start=start, file_size=len(data))


def _reseal(path: Path, data: bytearray, **changes: Any) -> None:
    """Write the seal anew, every CRC-32 right."""
    seal = dataclasses.replace(_seal(path), **changes)
    header = bytes(data[seal.header_start : seal.header_start + seal.header_size])
    crc = 0
    for start, stop in unsealed_regions(
        file_size=len(data), seal_start=len(data) - 4080, head_size=min(seal.head_size, len(data))
    ):
        crc = zlib.crc32(data[start:stop], crc)
    seal = dataclasses.replace(seal, header_crc=zlib.crc32(header), file_crc=crc)
    set_crc = set_checksum([(seal.count, seal.file_size, crc)])
    data[len(data) - 4080 : len(data) - 4080 + SEAL_SIZE] = dataclasses.replace(seal, set_crc=set_crc).pack()
    path.write_bytes(data)


def _edit_header(path: Path, edit: Edit) -> None:
    """Change the header within the room it has (its page), and seal again."""
    seal, data = _seal(path), bytearray(path.read_bytes())
    parsed = json.loads(data[seal.header_start : seal.header_start + seal.header_size])
    edit(parsed)
    header = json.dumps(parsed, separators=(",", ":")).encode()
    assert len(header) <= 4080
    data[seal.header_start : seal.header_start + len(header)] = header
    _reseal(path, data, header_size=len(header))


def _edit_array(path: Path, name: str, edit: Callable[[np.ndarray[Any, Any]], object]) -> None:
    """Change an index array, its CRC-32 and the seal."""
    seal, data = _seal(path), bytearray(path.read_bytes())
    header = json.loads(data[seal.header_start : seal.header_start + seal.header_size])
    place = header["arrays"][name]
    count = int(np.prod(place["shape"]))
    array = np.frombuffer(data, place["dtype"], count=count, offset=place["start"])
    edit(array)
    crc = zlib.crc32(array.tobytes())
    del array
    path.write_bytes(data)
    _edit_header(path, lambda parsed: parsed["arrays"][name].update(crc32=crc))


def test_resealed_unchanged(path: Path) -> None:
    """The tools of this test change nothing by themselves."""
    _edit_header(path, lambda header: None)
    _edit_array(path, "image_starts", lambda array: None)
    open_store(path).close()


def _place(**changes: Any) -> Edit:
    return lambda header: header["arrays"]["image_starts"].update(changes)


HEADERS: dict[str, Edit] = {
    "array far outside": _place(start=1 << 62),
    "array at a negative place": _place(start=-8),
    "array at no number": _place(start="0"),
    "array beyond the end": _place(start=10**6, shape=[30]),
    "huge shape": _place(shape=[1 << 62, 1 << 62]),
    "wrong count": _place(shape=[29]),
    "objects": _place(dtype="|O"),
    "no dtype": _place(dtype="what"),
    "another dtype": _place(dtype="<u8"),
    "dtype that is no Python": _place(dtype="(,)f4"),
    "dtype of too many bytes": _place(dtype="<U" + "9" * 12),
    "dtype of too many digits": _place(dtype="<U" + "9" * 3000),
    "too many dimensions": _place(shape=[0] * 70, crc32=0),
    "a dimension too long": _place(shape=[0, (1 << 63) - 1, (1 << 63) - 1], crc32=0),
    "structured dtype": _place(dtype="<i4,<i4"),
    "empty dtype": _place(dtype="|V0"),
    "array missing": lambda header: header["arrays"].pop("image_starts"),
    "keys missing": lambda header: header["arrays"].pop("keys"),
    "keys of another kind": lambda header: header["arrays"].update(keys=header["arrays"]["label"]),
    "column missing": lambda header: header["arrays"].pop("label"),
    "arrays no object": lambda header: header.update(arrays=[]),
    "base far outside": lambda header: header.update(base=1 << 62),
    "base no number": lambda header: header.update(base=None),
    "newer header": lambda header: header.update(fastio=HEADER_VERSION + 1),
    "newer schema": lambda header: header["schema"].update(version=9),
    "schema no object": lambda header: header.update(schema=[]),
    "field of another name": lambda header: header["schema"]["fields"][0].update(name="picture"),
    "field with a dtype that is no Python": lambda header: header["schema"]["fields"][0].update(dtype="(,)f4"),
    "field with a dtype of too many digits": lambda header: header["schema"]["fields"][0].update(dtype="<U" + "9" * 99),
    "raw field of another size": lambda header: header["schema"]["fields"][0].update(codec="raw", shape=[7]),
}


@pytest.mark.parametrize("name", HEADERS)
def test_lying_headers(path: Path, name: str) -> None:
    """A header that lies is refused by name, whatever its checksums say."""
    _edit_header(path, HEADERS[name])
    with pytest.raises(StoreError, match=r"out\.lmdb"):
        open_store(path)


@pytest.mark.parametrize("value", [-1, -(1 << 63), (1 << 63) - 1, 1 << 40])
@pytest.mark.parametrize("name", ["image_starts", "image_sizes"])
def test_lying_spans(path: Path, name: str, value: int) -> None:
    """A span that leaves the file is refused, with its sample."""
    _edit_array(path, name, lambda array: array.__setitem__(17, value))
    with pytest.raises(StoreCorrupt, match=r"sample 17, field 'image'.*do not fit"):
        open_store(path)


def test_keys_that_are_too_many(path: Path) -> None:
    """Keys are as many as samples."""
    _edit_array(path, "keys", lambda array: array.__setitem__(3, 0))
    with pytest.raises(StoreCorrupt, match="31 keys, expected 30"):
        open_store(path)


@pytest.mark.parametrize("text", [b"[" * 4000, b"[]", b"null", b"\xff\xfe", b'{"fastio":1e999}'])
def test_header_that_is_none(path: Path, text: bytes) -> None:
    """JSON that is not ours, or nested without end, is refused."""
    seal, data = _seal(path), bytearray(path.read_bytes())
    data[seal.header_start : seal.header_start + len(text)] = text
    _reseal(path, data, header_size=len(text))
    with pytest.raises(StoreCorrupt, match="header"):
        open_store(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 29},
        {"count": 1 << 60, "set_count": 1 << 60},
        {"set_count": 31},
        {"shard": 1},
        {"shards": 0},
        {"shards": 2},
        {"header_start": 1 << 60},
        {"header_size": 1 << 60},
        {"head_size": 1 << 60},
        {"head_size": 100},
        {"file_size": 10},
        {"seal_start": 0},
        {"format": "hdf5"},
    ],
)
def test_lying_seals(path: Path, changes: dict[str, Any]) -> None:
    """A seal that contradicts the file or itself is refused, whatever its checksum says."""
    data = bytearray(path.read_bytes())
    seal = dataclasses.replace(_seal(path), **changes)
    data[len(data) - 4080 : len(data) - 4080 + SEAL_SIZE] = seal.pack()
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"out\.lmdb"):
        open_store(path)


def test_metadata_that_is_no_json(path: Path) -> None:
    """Metadata are parsed when they are asked for, and refused by name."""
    _edit_array(path, "metadata", lambda array: array.__setitem__(0, ord("x")))
    with open_store(path) as store, pytest.raises(StoreCorrupt, match="metadata"):
        assert store.metadata


def test_seal_of_billions_of_shards(path: Path) -> None:
    """A seal that claims four billion shards is refused as soon as one of them is missing."""
    _reseal(path, bytearray(path.read_bytes()), shards=4_000_000_000)
    with pytest.raises(
        StoreCorrupt, match=r"4000000000 shards, got 1; missing \(counted from 0\): 1, 2, .* 10, \.{3}:"
    ):
        open_store(path)


@pytest.mark.parametrize(("has", "called"), [("lmdb", "h5"), ("h5", "lmdb"), ("tar", "h5"), ("lmdb", "hdf5")])
def test_a_store_under_the_suffix_of_another_format(tmp_path: Path, has: str, called: str) -> None:
    """What the content looks like is said, and what to do."""
    written = Path(write(tmp_path / f"s.{has}", make_samples(3)))
    written.rename(tmp_path / f"t.{called}")
    looks = {"h5": "hdf5"}.get(has, has)
    with pytest.raises(StoreIncomplete, match=f"its content looks like {looks}, .* give it the right suffix"):
        open_store(tmp_path / f"t.{called}")


def test_a_file_that_is_no_store(tmp_path: Path) -> None:
    """In plain words first."""
    (tmp_path / "s.lmdb").write_bytes(b"nothing" * 1000)
    with pytest.raises(StoreIncomplete, match=r"s\.lmdb: is not a complete fastio store: "):
        open_store(tmp_path / "s.lmdb")
