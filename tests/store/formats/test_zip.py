"""Zip stores, and what zipfile, numpy and unzip make of them."""

from __future__ import annotations

import random
import shutil
import subprocess
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastio._native import crc32
from fastio.errors import StoreIncomplete
from fastio.store import SampleBatch, create_store, open_store
from fastio.store.formats import zip_archive
from fastio.store.index.seal import SEAL_SIZE
from fastio.store.index.verify import verify_store
from fastio.types.schema import BYTES, COLUMN, RAW, TEXT, TOKENS, Field, Schema
from tests.store.build import IMAGE_FIELD, make_samples, make_spans, read_all, write
from tests.store.conformance import StoreConformance


class TestZip(StoreConformance):
    """The conformance suite on zip."""

    suffix = ".zip"

    def regions(self, data: bytes) -> list[int]:
        """The central directory; the end record lies in the last bytes."""
        return [*super().regions(data), *range(self.seal_start(data) + SEAL_SIZE, len(data), 37)]


def members(path: str | Path) -> dict[str, bytes]:
    """What zipfile reads of the samples, having compared every member with its checksum."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = [name for name in archive.namelist() if not name.startswith("__fastio__/")]
        assert len(set(archive.namelist())) == len(archive.namelist())
        return {name: archive.read(name) for name in names}


@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_zipfile_sees_the_files(tmp_path: Path, count: int) -> None:
    """Members are called as the keys are, hold the same bytes, and come in order; numpy loads the columns."""
    samples = make_samples(count)
    path = write(tmp_path / "out.zip", samples)
    with np.load(path) as arrays:
        assert list(range(count)) == arrays["__fastio__/label"].tolist()
    assert list(samples.items()) == list(members(path).items())


@pytest.mark.skipif(shutil.which("unzip") is None, reason="unzip is not installed")
def test_unzip(tmp_path: Path) -> None:
    """unzip finds no fault, and extracts files that their owner may read."""
    samples = {"dog/a.png": b"first", "cat/b.png": b"2nd", "ü.png": b""}
    path = write(tmp_path / "out.zip", samples)
    tested = subprocess.run(["unzip", "-tq", path], capture_output=True, text=True, check=False)
    subprocess.run(["unzip", "-q", path, "*.png", "-d", tmp_path / "x"], check=True)

    assert (0, f"No errors detected in compressed data of {path}.\n", "") == (
        tested.returncode,
        tested.stdout,
        tested.stderr,
    )
    assert samples == {name: (tmp_path / "x" / name).read_bytes() for name in samples}
    assert {0o644} == {(tmp_path / "x" / name).stat().st_mode & 0o777 for name in samples}


@pytest.mark.parametrize(
    "key",
    ["/etc/passwd", "../up.png", "a//b", "a/./b", "dir/", "back\\slash", "new\nline", "__fastio__/x", "\udcff.png"],
)
def test_keys_that_are_no_names(tmp_path: Path, key: str) -> None:
    """They get a number; the key itself is in the index."""
    path = write(tmp_path / "out.zip", {"a.png": b"1", key: b"2", "b.png": b"3"})
    extension = ".png" if key.endswith(".png") else ""
    with open_store(path) as store:
        assert {"a.png": b"1", key: b"2", "b.png": b"3"} == read_all(store)
    assert ["a.png", f"__odd__/0000000001{extension}", "b.png"] == list(members(path))


# A name that another sample's second field would have, names of our own, and whatever else.
_KEYS = st.sampled_from(["a", "a.caption", "a.caption.caption", "__odd__/0000000001", "__odd__/x"]) | st.text(
    "a./\\%_ é\n", min_size=1, max_size=6
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_KEYS, unique=True, max_size=8), st.integers(1, 9))
def test_any_keys_are_members_once(keys: list[str], batch_size: int) -> None:
    """Whatever the keys, each sample has its two members, and no name comes twice."""
    images = [random.Random(key).randbytes(9) for key in keys]
    captions = [key.encode() for key in keys]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "out.zip"
        with create_store(path, Schema((IMAGE_FIELD, Field("caption", BYTES, "|u1", (None,))))) as writer:
            for at in range(0, len(keys), batch_size):
                part = slice(at, at + batch_size)
                spans = {"image": make_spans(images[part]), "caption": make_spans(captions[part])}
                writer.append(SampleBatch(keys[part], spans))
        with open_store(path) as store:
            assert dict(zip(keys, captions, strict=True)) == read_all(store, "caption")
        contents = list(members(path).values())
    assert images == contents[::2]
    assert captions == contents[1::2]


def test_fields_of_all_kinds(tmp_path: Path) -> None:
    """Each field of a sample is a member with the extension of its kind; arrays are npy files."""
    fields = (
        Field("depth", RAW, "<f4", (2, 1)),
        IMAGE_FIELD,
        Field("tokens", TOKENS, "<u2", (None,)),
        Field("text", TEXT, "|u1", (None,)),
        Field("weight", COLUMN, "<f8", (2,)),
    )
    depth, ids = np.array([[1.5], [2]], "<f4"), np.array([7, 8, 9], "<u2")
    values = {"depth": depth.tobytes(), "image": b"png", "tokens": ids.tobytes(), "text": "Käfer".encode()}
    path = tmp_path / "out.zip"
    with create_store(path, Schema(fields)) as writer:
        spans = {name: make_spans([value]) for name, value in values.items()}
        writer.append(SampleBatch(["a.png"], spans, {"weight": np.array([[1, 2]], "<f8")}))
    with open_store(path) as store:
        assert verify_store(store) == []
        assert values == {name: store.spans(name, np.array([0])).view(0).tobytes() for name in values}
    assert ["a.png.depth.npy", "a.png", "a.png.tokens.npy", "a.png.text.txt"] == list(members(path))
    with np.load(path) as arrays:
        assert (depth.tolist(), ids.tolist()) == (arrays["a.png.depth"].tolist(), arrays["a.png.tokens"].tolist())
        assert [[1, 2]] == arrays["__fastio__/weight"].tolist()


def test_zip64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes, offsets and counts that 32 and 16 bits do not hold are in records that zipfile reads."""
    monkeypatch.setattr(zip_archive, "_WIDE", 600)
    monkeypatch.setattr(zip_archive, "_MANY", 10)
    samples = make_samples(60)
    path = write(tmp_path / "out.zip", samples)

    assert samples == members(path)
    with open_store(path) as store:
        assert samples == read_all(store)
        assert verify_store(store) == []
    with zipfile.ZipFile(path) as archive:
        assert {20, 45} == {info.extract_version for info in archive.infolist()}


def test_the_checksum_of_a_seal_is_known(tmp_path: Path) -> None:
    """Whatever a seal says, its CRC-32 is that of anything that ends with its own CRC-32."""
    seals = []
    for count in (1, 2):
        with zipfile.ZipFile(write(tmp_path / f"{count}.zip", make_samples(count))) as archive:
            seals.append(archive.read("__fastio__/seal"))

    assert seals[0] != seals[1]
    assert [0x2144DF1C, 0x2144DF1C] == [crc32(seal) for seal in seals]


def test_index_arrays_are_aligned(tmp_path: Path) -> None:
    """They begin at a multiple of 64, so that they are read in place."""
    with open_store(write(tmp_path / "out.zip", make_samples(5))) as store:
        (shard,) = store.shards
        assert {0} == {array.ctypes.data % 64 for array in (shard.starts["image"], shard.sizes["image"])}


def test_an_archive_of_others(tmp_path: Path) -> None:
    """It is read as what it is, if that can be; a comment behind a store of ours is noticed too."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", b"1")
    path = write(tmp_path / "b.zip", {"a.png": b"1"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"x" * SEAL_SIZE
    for name, words in {"a.zip": "no sample in", "b.zip": "was packed by fastio, but is damaged"}.items():
        with pytest.raises(StoreIncomplete, match=words):
            open_store(tmp_path / name)
