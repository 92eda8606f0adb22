"""MDS shards and chunks of LitData as sources: samples, parts, and what is refused."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastio import FastDataset
from fastio.converters import LabelOptions, open_source
from fastio.errors import SourceError, StoreError
from fastio.store import open_store
from tests.commands import run
from tests.converters.sources.packed import packed, refused
from tests.converters.sources.shard_files import KINDS, dictionary, pairs_of_kind, row, write_litdata, write_mds
from tests.converters.trees import picture

BOTH = pytest.mark.parametrize("kind", KINDS)
SHARDS = {"mds": "shard.{:05d}.mds", "litdata": "chunk-0-{}.bin", "tables": "chunk-0-{}.bin"}
NAMES = {"mds": "mds", "litdata": "litdata", "tables": "litdata"}


def key(kind: str, shard: int, sample: int) -> str:
    """The key of a sample in the shard of this number."""
    return f"{SHARDS[kind].format(shard).rpartition('.')[0]}/{sample}"


@BOTH
def test_pictures_and_labels(kind: str, tmp_path: Path) -> None:
    """Bytes as they are, under the names of their shards; the column called class is the label."""
    types, samples, _ = packed(pairs_of_kind(kind, tmp_path / "set"), tmp_path / "o.lmdb")

    assert {"image": "image", "label": "int"} == types
    expected = {key(kind, i // 4, i % 4): {"image": picture(i), "label": i % 3} for i in range(10)}
    assert expected == samples


def test_a_picture_among_bytes(tmp_path: Path) -> None:
    """One of the first values that is a picture makes the column one of pictures; what is none is a problem."""
    samples = [{"x": b"note"}, *({"x": picture(i)} for i in range(4))]
    _, found, problems = packed(write_mds(tmp_path / "set", {"x": "bytes"}, samples), tmp_path / "o.lmdb", skip=True)

    assert ["shard.00000/0"] == list(problems)
    assert [{"image": picture(i)} for i in range(4)] == list(found.values())


@BOTH
def test_parts_are_folders(kind: str, tmp_path: Path) -> None:
    """A root of train and val asks which is meant; one part alone is meant."""
    pairs_of_kind(kind, tmp_path / "set" / "train")
    assert 10 == len(open_source(tmp_path / "set"))
    pairs_of_kind(kind, tmp_path / "set" / "val", 3)

    assert "holds several splits, train, val: choose one with --split" in refused(tmp_path / "set")
    assert 3 == len(open_source(tmp_path / "set", split="val"))
    assert f"({NAMES[kind]}), not packed" in run("info", tmp_path / "set" / "val")


@BOTH
def test_fields_and_filters(kind: str, tmp_path: Path) -> None:
    """Fields, the key and filters are columns, as those of tables."""
    path = pairs_of_kind(kind, tmp_path / "set")
    types, samples, _ = packed(path, tmp_path / "o.lmdb", "raw=image:bytes", "n=class:float")
    assert {"raw": "bytes", "n": "float"} == types
    assert {"raw": picture(4), "n": 1.0} == samples[key(kind, 1, 0)]

    filtered = LabelOptions(filters=(("class", "2"),))
    types, samples, _ = packed(path, tmp_path / "p.lmdb", label_options=filtered)
    assert [key(kind, i // 4, i % 4) for i in (2, 5, 8)] == list(samples)
    assert "there is no such column among 'image'" in refused(path, "x=y").replace("'class' (int), ", "")
    assert "column 'image' holds pictures" in refused(path, "n=class")


def test_names_are_classes(tmp_path: Path) -> None:
    """Labels that are text become the sorted names of classes."""
    names = ["dog", "cat", "dog", "ant"] * 3
    samples = [{"x": picture(i), "label": name.encode()} for i, name in enumerate(names)]
    path = write_mds(tmp_path / "set", {"x": "png", "label": "str"}, samples)
    _, packed_samples, _ = packed(path, tmp_path / "o.lmdb")

    assert [2, 1, 2, 0] * 3 == [each["label"] for each in packed_samples.values()]
    with open_store(tmp_path / "o.lmdb") as store:
        assert ["ant", "cat", "dog"] == store.metadata["classes"]


# Every encoding of MDS: the column's encoding, the bytes of a value, the field's type, and the value in a store.
ARRAY = np.arange(6, dtype=np.int16).reshape(2, 3)
PIXELS = np.arange(90, dtype=np.uint8).reshape(6, 5, 3)
PIL = struct.pack("<III", 5, 6, 3) + b"RGB" + PIXELS.tobytes()
OF_MDS: dict[str, tuple[bytes, int | None, str, Any]] = {
    "bytes": (b"a\0c", None, "bytes", b"a\0c"),
    "str": ("zürich".encode(), None, "text", "zürich".encode()),
    "json": (b'{"a": [1]}', None, "json", b'{"a": [1]}'),
    "int": (struct.pack("<q", -7), 8, "int", -7),
    "uint8": (b"\x05", 1, "uint8", 5),
    "float16": (np.float16(1.5).tobytes(), 2, "float16", 1.5),
    "float64": (struct.pack("<d", 2.5), 8, "float", 2.5),
    "str_int": (b"31", None, "int", 31),
    "str_float": (b"0.5", None, "float", 0.5),
    "str_decimal": (b"1.10", None, "text", b"1.10"),
    "png": (picture(1), None, "image", picture(1)),
    "jpeg": (picture(2, kind="JPEG"), None, "image", picture(2, kind="JPEG")),
    "ndarray:int16:2,3": (ARRAY.tobytes(), 12, "int16[2,3]", ARRAY.tobytes()),
    "ndarray:int16": (b"\x08\x02\x03" + ARRAY.tobytes(), None, "int16[2,3]", ARRAY.tobytes()),
    "ndarray": (b"\x11\x09\x02\x00\x03\x00" + ARRAY.tobytes(), None, "int16[2,3]", ARRAY.tobytes()),
}


@pytest.mark.parametrize("encoding", OF_MDS)
def test_encodings_of_mds(encoding: str, tmp_path: Path) -> None:
    """Each of them becomes the field that holds the same."""
    data, size, type_, value = OF_MDS[encoding]
    samples = [{"v": data, "text": b"%d" % i} for i in range(5)]
    sizes = {} if size is None else {"v": size}
    path = write_mds(tmp_path / "set", {"v": encoding, "text": "str"}, samples, sizes=sizes)
    types, found, _ = packed(path, tmp_path / "o.lmdb")
    name = "image" if type_ == "image" else "v"

    assert {name: type_, "text": "text"} == types
    assert [{name: value, "text": b"%d" % i} for i in range(5)] == list(found.values())


def tensor(array: np.ndarray[Any, Any], code: int, order: str) -> bytes:
    """An array of LitData with its head."""
    return struct.pack(f"{order}{2 + array.ndim}I", code, array.ndim, *array.shape) + array.tobytes()


OF_LITDATA: dict[str, tuple[bytes, str, Any]] = {
    "bytes": (b"a\0c", "bytes", b"a\0c"),
    "str": ("zürich".encode(), "text", "zürich".encode()),
    "json": (b"[1, 2]", "json", b"[1, 2]"),
    "int": (struct.pack("<q", -7), "int", -7),
    "float": (struct.pack("<d", 2.5), "float", 2.5),
    "bool": (b"\x01", "bool", True),
    "jpeg": (picture(2, kind="JPEG"), "image", picture(2, kind="JPEG")),
    "image:png": (picture(2), "image", picture(2)),
    "numpy": (tensor(ARRAY, 1, "<"), "int16[2,3]", ARRAY.tobytes()),
    "tensor": (tensor(ARRAY, 14, ">"), "int16[2,3]", ARRAY.tobytes()),
    "no_header_numpy:1": (ARRAY.tobytes(), "int16[6]", ARRAY.tobytes()),
    "no_header_tensor:14": (ARRAY.tobytes(), "int16[6]", ARRAY.tobytes()),
}


@pytest.mark.parametrize("form", OF_LITDATA)
def test_formats_of_litdata(form: str, tmp_path: Path) -> None:
    """Each of them becomes the field that holds the same; columns are named by the keys that lead to them."""
    data, type_, value = OF_LITDATA[form]
    tree = dictionary(a=dictionary(v=None), b=row(None))
    path = write_litdata(tmp_path / "set", [form, "str"], tree, [(data, b"%d" % i) for i in range(5)])
    types, found, _ = packed(path, tmp_path / "o.lmdb")
    name = "image" if type_ == "image" else "a_v"

    assert {name: type_, "b_0": "text"} == types
    assert [{name: value, "b_0": b"%d" % i} for i in range(5)] == list(found.values())


@pytest.mark.parametrize("kind", ["mds", "litdata"])
def test_pixels_become_pngs(kind: str, tmp_path: Path) -> None:
    """What Pillow had decoded keeps every pixel."""
    if kind == "mds":
        path = write_mds(tmp_path / "set", {"v": "pil"}, [{"v": PIL}] * 2)
    else:
        path = write_litdata(
            tmp_path / "set", ["pil"], {"type": None, "context": None, "children_spec": []}, [(PIL,)] * 2
        )
    types, found, _ = packed(path, tmp_path / "o.lmdb")

    assert {"image": "image"} == types
    (tmp_path / "a.png").write_bytes(next(iter(found.values()))["image"])
    with Image.open(tmp_path / "a.png") as image:
        np.testing.assert_array_equal(PIXELS, np.asarray(image))


def test_arrays_of_different_lengths(tmp_path: Path) -> None:
    """They are rows; where only a later one differs, the sample is a problem that says what to type."""
    arrays = [np.arange(n, dtype="<i4") for n in (3, 0, 300, 2)]
    heads = [b"\x04\x03", b"\x04\x00", b"\x05\x2c\x01", b"\x04\x02"]
    samples = [{"ids": head + each.tobytes()} for head, each in zip(heads, arrays, strict=True)]
    path = write_mds(tmp_path / "set", {"ids": "ndarray:int32"}, samples)
    types, found, _ = packed(path, tmp_path / "o.lmdb")
    assert {"ids": "int32[*]"} == types
    assert [each.tobytes() for each in arrays] == [each["ids"] for each in found.values()]

    later = write_mds(tmp_path / "later", {"ids": "ndarray:int32"}, [samples[0]] * 70 + samples, per_shard=100)
    _, _, problems = packed(later, tmp_path / "p.lmdb", skip=True)
    assert ["shard.00000/71", "shard.00000/72", "shard.00000/73"] == list(problems)
    assert "if arrays differ in their first size, name the type, as int32[*]" in problems["shard.00000/71"]
    _, found, _ = packed(later, tmp_path / "q.lmdb", "ids=ids:int32[*]")
    assert 74 == len(found)


def test_pairs_without_names(tmp_path: Path) -> None:
    """Samples that are a picture and a number are pictures and labels."""
    samples = [(picture(i), struct.pack("<q", i % 2)) for i in range(5)]
    types, found, _ = packed(
        write_litdata(tmp_path / "set", ["bytes", "int"], row(None, None), samples), tmp_path / "o.lmdb"
    )

    assert {"image": "image", "label": "int"} == types
    assert [{"image": picture(i), "label": i % 2} for i in range(5)] == list(found.values())


def test_chunks_of_token_ids(tmp_path: Path) -> None:
    """Those of TokensLoader have no sizes: each sample is a row of ids, which a store keeps as token ids, too."""
    documents = [np.arange(n, dtype="<i8") for n in (4, 7, 1)]
    leaf = {"type": None, "context": None, "children_spec": []}
    rows = [(each.tobytes(),) for each in documents]
    path = write_litdata(tmp_path / "set", ["no_header_tensor:18"], leaf, rows, item_loader="TokensLoader")
    types, found, _ = packed(path, tmp_path / "o.lmdb")
    assert {"value": "int64[*]"} == types
    assert [each.tobytes() for each in documents] == [each["value"] for each in found.values()]

    types, found, _ = packed(path, tmp_path / "p.lmdb", "input_ids=value:tokens16")
    assert {"input_ids": "tokens16"} == types


def test_shards_are_found_by_their_hashes(tmp_path: Path) -> None:
    """A flipped byte of a value is noticed if the index lists a hash of the shard."""
    samples = [{"x": bytes([i]) * 20} for i in range(8)]
    path = write_mds(tmp_path / "set", {"x": "bytes"}, samples, hashes=["sha1"])
    with (path / "shard.00001.mds").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"!")
    _, found, problems = packed(path, tmp_path / "o.lmdb", skip=True)

    assert [f"shard.00001/{i}" for i in range(4)] == list(problems)
    assert "whose sha1 is not the one in index.json" in problems["shard.00001/0"]
    assert 4 == len(found)


def rewrite(path: Path, change: Callable[[Any], object]) -> Path:
    """Change the index of a folder."""
    index = json.loads((path / "index.json").read_text())
    change(index)
    (path / "index.json").write_text(json.dumps(index))
    return path


REFUSED: dict[str, tuple[str, Callable[[Any], object], str]] = {
    "compressed": (
        "mds",
        lambda index: index["shards"][0].update(
            compression="zstd", zip_data={"basename": "shard.00000.mds.zstd"}, raw_data={"basename": "gone.mds"}
        ),
        "are compressed with zstd .*: decompress them beside their index first: zstd -d",
    ),
    "encoding": (
        "mds",
        lambda index: [each.update(column_encodings=["int", "pkl"]) for each in index["shards"]],
        "has other columns than index.json says",
    ),
    "missing": (
        "mds",
        lambda index: index["shards"][1]["raw_data"].update(basename="shard.00009.mds"),
        r"shard\.00009\.mds.*index\.json lists it",
    ),
    "elsewhere": (
        "mds",
        lambda index: index["shards"][1]["raw_data"].update(basename="../shard.mds"),
        "names a shard '../shard.mds', expected a file below the folder",
    ),
    "twice": ("mds", lambda index: index["shards"].append(index["shards"][0]), r"shard\.00000\.mds: is listed twice"),
    "table twice": (
        "tables",
        lambda index: index["chunks"].append(index["chunks"][1]),
        r"chunk-0-1\.bin: is listed twice",
    ),
    "chunk twice": (
        "litdata",
        lambda index: index["chunks"].append(index["chunks"][0]),
        r"chunk-0-0\.bin: is listed twice",
    ),
    "size": (
        "mds",
        lambda index: index["shards"][1]["raw_data"].update(bytes=7),
        "index.json says 7: get the shard again",
    ),
    "count": ("mds", lambda index: index["shards"][1].update(samples=7), "holds 4 samples, index.json says 7"),
    "widths": (
        "mds",
        lambda index: [each.update(column_sizes=[4, None]) for each in index["shards"]],
        r"column 'class' \(int\) has values of 4 bytes, expected 8",
    ),
    "negative widths": (
        "mds",
        lambda index: [each.update(column_sizes=[-8, None]) for each in index["shards"]],
        "are not those of MDS",
    ),
    "columns": ("mds", lambda index: index["shards"][0].update(column_names=[1, 2]), "are not those of MDS"),
    "format": ("mds", lambda index: index["shards"][1].update(format="json"), "of the format 'json', expected mds"),
    "compression": ("litdata", lambda index: index["config"].update(compression="zstd"), "have the compression zstd"),
    "encryption": ("litdata", lambda index: index["config"].update(encryption={"a": 1}), "have the encryption"),
    "loader": (
        "litdata",
        lambda index: index["config"].update(item_loader="ParquetLoader"),
        "are those of 'ParquetLoader'",
    ),
    "pickle": (
        "litdata",
        lambda index: index["config"].update(data_format=["bytes", "pickle"]),
        "column 'class' has the encoding pickle, which is a pickle.*--without class leaves it out",
    ),
    "spec": ("litdata", lambda index: index["config"].update(data_spec="gASV"), "data_spec is no tree of dictionaries"),
    "object": (
        "litdata",
        lambda index: index["config"].update(data_spec='[1, {"type": "a.B", "context": "0", "children_spec": [0]}]'),
        "it holds 'a.B'",
    ),
    "formats": ("litdata", lambda index: index["config"].update(data_format=["bytes"]), "but data_format 1"),
    "chunk": (
        "litdata",
        lambda index: index["chunks"][1].update(chunk_bytes=7),
        "index.json says 7: get the chunk again",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    """One line that names the folder or shard, and what to do."""
    kind, change, expected = REFUSED[name]
    path = rewrite(pairs_of_kind(kind, tmp_path / "set"), change)

    with pytest.raises(SourceError, match=expected) as caught:
        open_source(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@BOTH
@pytest.mark.parametrize("seed", range(3))
def test_damage_is_noticed_or_changes_bytes_alone(kind: str, seed: int, tmp_path: Path) -> None:
    """Each shard with a flipped bit, or cut off anywhere: an error that names it, a problem, or another value."""
    path = pairs_of_kind(kind, tmp_path / "set", 8)
    shard = path / SHARDS[kind].format(1)
    data, random = shard.read_bytes(), np.random.default_rng(seed)
    for _ in range(40):
        at = int(random.integers(len(data)))
        is_cut = bool(random.integers(2))
        flipped = data[:at] + bytes([data[at] ^ 1 << int(random.integers(8))]) + data[at + 1 :]
        shard.write_bytes(data[:at] if is_cut else flipped)
        with suppress(SourceError):
            source = open_source(path)
            chunk = source.begin(source.chunks(1 << 30, 100)[0])()
            assert not is_cut
            assert 8 == len(chunk.batch.keys) + len(chunk.problems)
            continue
        with pytest.raises(SourceError, match=shard.name):
            open_source(path)


@BOTH
def test_the_index_is_the_dataset(kind: str, tmp_path: Path) -> None:
    """Named by itself, it stands for the samples that it lists."""
    path = pairs_of_kind(kind, tmp_path / "set")

    assert 10 == len(open_source(path / "index.json"))
    assert f"({NAMES[kind]}), not packed" in run("info", path / "index.json")


@BOTH
def test_a_shard_that_is_not_listed(kind: str, tmp_path: Path) -> None:
    """A writer was killed, or the index is an old one: its samples would be missing. What else lies there is named."""
    path = pairs_of_kind(kind, tmp_path / "set")
    first, extra = SHARDS[kind].format(0), SHARDS[kind].format(77)
    (path / extra).write_bytes((path / first).read_bytes())
    (path / "old.h5").write_text("a\n")

    assert f"{extra}: is a shard that index.json does not list: merge the indexes" in refused(path)
    with open_store(path) as store:
        assert [extra] == [each["key"] for each in store.metadata["skipped"]]
        assert [{"key": "old.h5", "problem": "is not in index.json"}] == store.metadata["left_out"]
    assert 10 == len(packed(path, tmp_path / "o.lmdb", skip=True)[1])
    (path / extra).unlink()
    with open_store(path) as store:
        assert [] == store.metadata["skipped"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"version": 2, "shards": []}', b"\xff"])
def test_a_damaged_index(tmp_path: Path, content: bytes) -> None:
    """Beside shards of MDS it is called that of MDS, by itself and in a part, and no table or text."""
    path = pairs_of_kind("mds", tmp_path / "data/train")
    (path / "index.json").write_bytes(content)

    for place in (path, path / "index.json", path.parent):
        assert f"{path}/index.json: is damaged" in refused(place)
        with pytest.raises(StoreError, match=r"train/index\.json: is damaged"):
            FastDataset(place)


def test_a_shard_is_part_of_a_dataset(tmp_path: Path) -> None:
    """A shard of MDS alone is answered with its folder."""
    path = pairs_of_kind("mds", tmp_path / "set")

    assert "which its folder holds with the others: name that" in refused(path / "shard.00000.mds")
