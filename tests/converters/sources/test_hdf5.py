"""HDF5 files of other programs as sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fastio.converters import open_source, pack
from fastio.converters.sources import source as cut
from fastio.errors import FastioError, SourceError
from tests.converters.sources.packed import packed, refused
from tests.converters.trees import picture

X = np.random.default_rng(0).integers(0, 256, (30, 5, 7, 3), np.uint8)
Y = np.arange(30) % 4


@pytest.mark.parametrize(
    "options", [{}, {"chunks": (7, 5, 7, 3)}, {"compression": "gzip", "shuffle": True}, {"fletcher32": True}]
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_arrays(tmp_path: Path, options: dict[str, Any], shuffle: bool) -> None:
    """Rows are those that h5py reads, however they are kept, in any order."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=X, **options)
        file["labels"] = Y.astype(np.uint8)
        file["score"] = np.linspace(0, 1, 30).astype("<f4")
        file["note"] = "one"
    types, samples, _ = packed(tmp_path / "a.h5", tmp_path / "o.lmdb")

    assert {"image": "uint8[5,7,3]", "label": "int", "score": "float32"} == types
    assert [f"{i:02d}" for i in range(30)] == list(samples)
    assert [row.tobytes() for row in X] == [sample["image"] for sample in samples.values()]
    assert Y.tolist() == [sample["label"] for sample in samples.values()]
    if shuffle:
        from fastio.converters import open_source, pack
        from fastio.store import open_store

        pack(open_source(tmp_path / "a.h5").shuffled(1), tmp_path / "s.lmdb")
        with open_store(tmp_path / "s.lmdb") as store:
            order = [int(key) for key in store.keys(np.arange(30))]
            assert [X[i].tobytes() for i in order] == [v.tobytes() for v in store.spans("image", np.arange(30)).views()]


def test_values_of_any_length(tmp_path: Path) -> None:
    """Encoded pictures as bytes or opaque arrays, strings, ragged arrays; labels that are text are classes."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, dtype in (("images", h5py.vlen_dtype(np.uint8)), ("points", h5py.vlen_dtype("<f4"))):
            data = file.create_dataset(name, (3,), dtype=dtype)
            for i in range(3):
                data[i] = np.frombuffer(picture(i), np.uint8) if name == "images" else np.arange(i, dtype="<f4")
        file["caption"] = ["é", "", "three"]
        file["y"] = ["dog", "cat", "dog"]
        file["fixed"] = np.array([b"ab", b"c", b""], "S2")
    types, samples, _ = packed(tmp_path / "a.h5", tmp_path / "o.lmdb")

    assert {
        "image": "image",
        "caption": "text",
        "fixed": "text",
        "points": "float32[*]",
        "label": "int",
    } == types
    assert [picture(i) for i in range(3)] == [sample["image"] for sample in samples.values()]
    assert (["é".encode(), b"", b"three"], [1, 0, 1]) == (
        [sample["caption"] for sample in samples.values()],
        [sample["label"] for sample in samples.values()],
    )
    assert np.arange(2, dtype="<f4").tobytes() == samples["2"]["points"]


def test_groups(tmp_path: Path) -> None:
    """Arrays of several groups are asked for; channels first are turned; a mask becomes a mask."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for split, count in (("train", 30), ("test", 5)):
            file[f"{split}/x"] = X[:count].transpose(0, 3, 1, 2)
            file[f"{split}/y"] = Y[:count]
        file["train/mask"] = X[..., 0]
    said = refused(tmp_path / "a.h5")
    assert "--field image=" in said
    assert "train/x (uint8, 30x3x5x7)" in said

    asked = ("image=train/x", "label=train/y", "mask=train/mask:mask")
    types, samples, _ = packed(tmp_path / "a.h5", tmp_path / "o.lmdb", *asked)
    assert {"image": "uint8[5,7,3]", "mask": "mask", "label": "int"} == types
    assert X[7].tobytes() == samples["07"]["image"]
    types, _, _ = packed(tmp_path / "a.h5", tmp_path / "p.lmdb", "image=train/x:image")
    assert {"image": "image"} == types
    assert "there is no array 'x'" in refused(tmp_path / "a.h5", "image=x")


def test_what_is_left_out(tmp_path: Path) -> None:
    """Single values, structs, references and links to other files are no samples."""
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = X
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = X
        file["one"] = 1
        file["struct"] = np.zeros(30, [("a", "<i4")])
        file["ref"] = np.array([file["x"].ref] * 30, h5py.ref_dtype)
        file["elsewhere"] = h5py.ExternalLink("other.h5", "x")
        layout = h5py.VirtualLayout((30, 5, 7, 3), np.uint8)
        layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "x", (30, 5, 7, 3))
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("outside", (3,), "<i4", external=[(str(tmp_path / "raw"), 0, 12)])
    types, _, _ = packed(tmp_path / "a.h5", tmp_path / "o.lmdb")

    assert {"image": "uint8[5,7,3]"} == types


def test_big_endian_values_of_any_length(tmp_path: Path) -> None:
    """They are left out by name: h5py returns their bytes as little-endian numbers, which are others."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = X[:3]
        for name, dtype in (("points", ">f4"), ("flags", "|b1")):
            data = file.create_dataset(name, (3,), dtype=h5py.vlen_dtype(dtype))
            for i in range(3):
                data[i] = np.ones(1 + i, dtype)
    types, samples, _ = packed(tmp_path / "a.h5", tmp_path / "o.lmdb")

    assert {"image": "uint8[5,7,3]", "flags": "bool[*]"} == types
    assert [b"\1", b"\1\1", b"\1\1\1"] == [sample["flags"] for sample in samples.values()]
    assert "points holds big-endian numbers of any length" in refused(tmp_path / "a.h5", "x=points")


def test_strings_that_are_no_text(tmp_path: Path) -> None:
    """A caption that is not UTF-8 is a problem of its sample."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = X[:2]
        data = file.create_dataset("caption", (2,), dtype=h5py.string_dtype())
        data[0], data[1] = b"good", b"\xff\xfe"
    _, samples, skipped = packed(tmp_path / "a.h5", tmp_path / "o.lmdb", skip=True)

    assert (["0"], ["1"]) == (list(samples), list(skipped))
    assert "not UTF-8" in skipped["1"]


@pytest.mark.parametrize("share", [0.01, 0.1, 0.3, 0.6, 0.9, 0.999])
def test_cut(tmp_path: Path, share: float) -> None:
    """A file that is cut off is refused."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = X
    data = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "a.h5").write_bytes(data[: int(len(data) * share)])

    assert "a.h5" in refused(tmp_path / "a.h5")


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_chunk_is_a_problem(tmp_path: Path, seed: int) -> None:
    """Rows whose chunk fails its checksum are named; the others are packed."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=X, chunks=(1, 5, 7, 3), fletcher32=True)
        chunk = file["x"].id.get_chunk_info(seed)
        at, index = chunk.byte_offset, chunk.chunk_offset[0]
    data = bytearray((tmp_path / "a.h5").read_bytes())
    data[at + seed] ^= 1 << seed % 8
    (tmp_path / "a.h5").write_bytes(data)
    _, samples, skipped = packed(tmp_path / "a.h5", tmp_path / "o.lmdb", skip=True)

    assert [f"{index:02d}"] == list(skipped)
    assert "cannot be read" in skipped[f"{index:02d}"]
    assert {f"{i:02d}": X[i].tobytes() for i in range(30) if i != index} == {k: s["image"] for k, s in samples.items()}


FILTERS: list[dict[str, Any]] = [
    {},
    {"compression": "gzip", "chunks": (4,)},
    {"compression": "lzf", "shuffle": True},
    {"compression": "szip"},
    {"maxshape": (None,), "chunks": (5,)},
]


@pytest.mark.parametrize("options", FILTERS, ids=["plain", "gzip", "lzf and shuffle", "szip", "growing"])
@pytest.mark.parametrize("bit", range(3))
@pytest.mark.parametrize("dtype", [h5py.vlen_dtype("u1"), h5py.string_dtype()], ids=["bytes", "text"])
def test_a_damaged_size_in_the_heap(
    tmp_path: Path, bit: int, dtype: np.dtype[np.object_], options: dict[str, Any]
) -> None:
    """Sizes that do not lead from value to value, from which HDF5 does not return, are refused before it reads them."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("values", (6,), dtype=dtype, **options)
        for i in range(6):
            data[i] = np.arange(20 + i, dtype=np.uint8) if h5py.check_string_dtype(dtype) is None else "a" * (20 + i)
        file["label"] = np.arange(6)
    raw = bytearray((tmp_path / "a.h5").read_bytes())
    raw[raw.index(b"GCOL") + 16 + 8 + 1] ^= 1 << bit  # of the first value's size
    (tmp_path / "a.h5").write_bytes(raw)

    assert "a.h5: is damaged (the file's heap does not hold it" in refused(tmp_path / "a.h5")


@pytest.mark.parametrize("options", FILTERS, ids=["plain", "gzip", "lzf and shuffle", "szip", "growing"])
@pytest.mark.parametrize("written", [0, 3, 13])
def test_filtered_values_of_any_length(tmp_path: Path, written: int, options: dict[str, Any]) -> None:
    """All are those that h5py reads, also in chunks that were never written."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("points", (13,), dtype=h5py.vlen_dtype("<f4"), **options)
        for i in range(written):
            data[i] = np.arange(i * 3 % 7, dtype="<f4")
        expected = [row.tobytes() for row in data[:]]
        file["label"] = np.arange(13)
    _, samples, _ = packed(tmp_path / "a.h5", tmp_path / "o.lmdb")

    assert expected == [sample["points"] for sample in samples.values()]


def test_a_damaged_filter(tmp_path: Path) -> None:
    """References whose chunk gzip's own checksum refuses are problems of their rows."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("points", (8,), dtype=h5py.vlen_dtype("<f4"), compression="gzip", chunks=(4,))
        for i in range(8):
            data[i] = np.arange(i, dtype="<f4")
        chunk = data.id.get_chunk_info(1)
        file["label"] = np.arange(8)
    raw = bytearray((tmp_path / "a.h5").read_bytes())
    raw[chunk.byte_offset + chunk.size - 1] ^= 1
    (tmp_path / "a.h5").write_bytes(raw)
    _, samples, skipped = packed(tmp_path / "a.h5", tmp_path / "o.lmdb", skip=True)

    assert [*"0123"] == list(samples)
    assert [*"4567"] == list(skipped)


def test_several_values_of_any_length_a_row(tmp_path: Path) -> None:
    """Refused in a line that names the file and what leaves them out."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("texts", data=np.array([["a", "b"]] * 30, object), dtype=h5py.string_dtype())
        file["x"] = X
    assert (
        "a.h5: texts (values of any length, 30x2): expected one value a sample, got (2,); --without texts"
        in refused(tmp_path / "a.h5")
    )


def test_what_the_heap_keeps_after_deletions(tmp_path: Path) -> None:
    """A heap with free space, with collections of one value, and with empty ones, is read as ever."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("points", (40,), dtype=h5py.vlen_dtype("<i4"))
        for size in (3, 90, 5):
            for i in range(40):
                data[i] = np.arange((size + i) * (i % 7 != 0) * (1 + 300 * (i == 9)), dtype="<i4")
        expected = [row.tobytes() for row in data[:]]
        file["label"] = np.arange(40)
    _, samples, _ = packed(tmp_path / "a.h5", tmp_path / "o.lmdb")

    assert expected == [sample["points"] for sample in samples.values()]


def test_arrays_that_were_never_written(tmp_path: Path) -> None:
    """A row of gigabytes of which nothing is stored is named, and not read; it may have been left unwritten."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = X
        file.create_dataset("rows", (30, 1 << 33), np.uint8, chunks=(1, 1 << 20), compression="gzip")
        file.create_dataset("chunks", (1 << 12, 1 << 20), np.uint8, chunks=(1 << 11, 1 << 20), compression="gzip")
        file.create_dataset("later", (30, 4), np.uint8)
    source = open_source(tmp_path / "a.h5")
    reasons = {each.key: each.problem for each in source.left_out}
    types, _, _ = packed(tmp_path / "a.h5", tmp_path / "o.lmdb")

    assert {"image": "uint8[5,7,3]", "later": "uint8[4]"} == types
    assert "claims 8,589,934,592 bytes, but 0 cannot hold them: it was never written" == reasons["rows"]
    assert "claims 2,147,483,648 bytes, but 0 cannot hold them: it was never written" == reasons["chunks"]
    assert "--field x=rows: rows claims 8,589,934,592 bytes" in refused(tmp_path / "a.h5", "x=rows")


def test_rows_larger_than_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stop the run, also where bad samples are skipped: another machine would pack them."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=X, chunks=(1, 5, 7, 3))
    monkeypatch.setattr(cut, "LARGE_BYTES", 10)
    monkeypatch.setattr(cut, "available_memory", lambda: 1000)
    with pytest.raises(SourceError, match=r"a\.h5: there is not enough memory for 30 rows of x \(3,150 bytes\)"):
        pack(open_source(tmp_path / "a.h5"), tmp_path / "o.lmdb", on_error="skip")


@pytest.mark.parametrize("seed", range(40))
def test_damaged_files(tmp_path: Path, seed: int) -> None:
    """Whatever h5py says of a damaged file is our error, which names the file, or a problem of a sample."""
    random = np.random.default_rng(seed)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=X[:5], **({}, {"chunks": (2, 5, 7, 3), "compression": "gzip"})[seed % 2])
        file["y"] = ["a", "b", "c", "d", "e"]
    data = np.fromfile(tmp_path / "a.h5", np.uint8)
    data[random.integers(0, min(len(data), 2500), 6)] = random.choice(np.array([0, 127, 255], np.uint8), 6)
    data.tofile(tmp_path / "a.h5")
    try:
        pack(open_source(tmp_path / "a.h5"), tmp_path / "o.lmdb", on_error="skip")
    except FastioError as exc:
        assert str(tmp_path / "a.h5") in str(exc)  # noqa: PT017 - many of these files are still good


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    """An array whose name has become other bytes is shown with their numbers."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = X
        file[b"caf\xe9"] = Y
    types, _, _ = packed(tmp_path / "a.h5", tmp_path / "o.lmdb")

    assert {"image": "uint8[5,7,3]", "caf_xe9": "int"} == types
