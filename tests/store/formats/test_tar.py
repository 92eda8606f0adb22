"""Tar shards, and what webdataset, tarfile and GNU tar make of them."""

from __future__ import annotations

import gc
import io
import json
import random
import shutil
import subprocess
import tarfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import webdataset
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fastio._native import tar_members
from fastio.errors import SchemaError, StoreCorrupt, StoreError, StoreNotFound
from fastio.store import SampleBatch, create_store, open_store
from fastio.store.formats.tar_file import MemberNames, _NumberedKeys, member_header
from fastio.store.index.verify import verify_store
from fastio.types.schema import BYTES, COLUMN, IMAGE, RAW, Field, Schema
from tests.store.build import (
    IMAGE_FIELD,
    LABELLED,
    METADATA,
    hidden,
    make_batch,
    make_samples,
    make_spans,
    names,
    read_all,
    visible,
    write,
)
from tests.store.conformance import StoreConformance
from tests.store.version_1 import make_version_1

_KEYS = st.text("ab01./%_é\n\x7fPNG", min_size=1, max_size=14) | st.sampled_from(
    [
        "__a__/b.png",
        "__a__",
        "__a.b__",
        "a.cls",
        "a.CLS",
        ".png",
        "a.",
        "a..png",
        "a.png",
        "a.jpg",
        "a.PNG",
        "a%2Epng.x",
    ]
)


class TestTar(StoreConformance):
    """The conformance suite on a single tar."""

    suffix = ".tar"

    def regions(self, data: bytes) -> list[int]:
        """The fields of the first headers, and those of the index."""
        index = data.rindex(b"__fastio__/keys.npy")
        return [*super().regions(data), *range(512), *range(1024, 1536, 5), *range(index, index + 700, 7)]


def webdataset_samples(url: str) -> list[dict[str, object]]:
    """All samples as webdataset groups them, undecoded."""
    with warnings.catch_warnings():  # webdataset leaves its files to the garbage collector
        warnings.simplefilter("ignore", ResourceWarning)
        samples = list(webdataset.WebDataset(url, shardshuffle=False, empty_check=False))
        gc.collect()
    return samples


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_KEYS, unique=True, max_size=12))
def test_webdataset_sees_exactly_the_samples(keys: list[str]) -> None:
    """Whatever the keys, webdataset finds one sample for each, in order, with its bytes and label."""
    samples = {key: random.Random(i).randbytes(i) for i, key in enumerate(keys)}
    with TemporaryDirectory() as folder:
        path = write(Path(folder) / "out.tar", samples)
        found = webdataset_samples(path)
        assert len(found) == len({sample["__key__"] for sample in found}) == len(samples)
        for i, (sample, value) in enumerate(zip(found, samples.values(), strict=True)):
            names = {name for name in sample if not name.startswith("__")}
            (image,) = names - {"cls"}
            assert (value, b"%d" % i) == (sample[image], sample["cls"])
        with tarfile.open(path) as tar:
            names_ = [m.name for m in tar.getmembers()]
        assert len(names_) == len(set(names_))
        assert all(not n.startswith("/") and ".." not in n.split("/") for n in names_)


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([np.nan, np.inf, -np.inf, 1.5], "<f4", ["NaN", "Infinity", "-Infinity", 1.5]),
        ([[np.nan, 1.0], [2.0, 3.0]], "<f8", [["NaN", 1.0], [2.0, 3.0]]),
        ([1 + 2j, complex(0, np.inf)], "<c8", [[1.0, 2.0], [0.0, "Infinity"]]),
        ([[1j, 2]], "<c16", [[[0.0, 1.0], [2.0, 0.0]]]),
        (["é", ""], "<U3", ["é", ""]),
    ],
)
def test_columns_are_json(tmp_path: Path, values: list[object], dtype: str, expected: list[object]) -> None:
    """Members of columns are JSON as the standard has it: no bare NaN; complex numbers are pairs."""
    column = np.array(values, dtype)
    schema = Schema((IMAGE_FIELD, Field("weight", COLUMN, dtype, column.shape[1:])))
    with create_store(tmp_path / "out.tar", schema) as writer:
        keys = [f"{i}.png" for i in range(len(column))]
        writer.append(SampleBatch(keys, {"image": make_spans([b"1"] * len(column))}, {"weight": column}))

    def refuse(name: str) -> None:
        raise AssertionError(name)

    found = [sample["weight.json"] for sample in webdataset_samples(str(tmp_path / "out.tar"))]
    assert expected == [json.loads(bytes(each), parse_constant=refuse) for each in found]  # type: ignore[call-overload]


def test_names_of_ordinary_files(tmp_path: Path) -> None:
    """Ordinary keys keep their names; dots, twins and odd extensions are escaped."""
    keys = [
        "d.x/0001.jpg",
        "d.x/0001.png",
        "d.x/a.b.JPG",
        "c",
        "a.cls",
        "50%.png",
        "./e.png",
        "__x__/f.png",
        "g.tar gz",
    ]
    path = write(tmp_path / "out.tar", dict.fromkeys(keys, b"1"))
    with tarfile.open(path) as tar:
        found = [
            m.name for m in tar.getmembers() if not m.name.startswith("__fastio__") and not m.name.endswith(".cls")
        ]
    assert found == [
        "d.x/0001.jpg",
        "d.x/0001%2Epng.png",
        "d.x/a%2Eb.jpg",
        "c.image",
        "a%2Ecls.image",
        "50%25.png",
        "%2E%2Fe.png",
        "%5F_x__/f.png",
        "g%2Etar gz.image",
    ]
    with open_store(path) as store:
        assert keys == store.keys(range(len(keys)))


@settings(max_examples=200)
@given(st.lists(_KEYS | st.text("a.01/_%", min_size=1, max_size=8) | st.text("/.01", min_size=1, max_size=4)))
@example(["/.0", "/.1"])
@example(["a//.9", "a//.10"])
@example(["\n/b.1", "\n/b.2"])
def test_numbered_keys_are_split_as_all_others(keys: list[str]) -> None:
    """What is remembered of the last key changes no name, whatever folders keys have."""
    quick, plain = (MemberNames(["", "cls"], {"image", "cls"}, image="image") for _ in range(2))
    for key in keys:
        plain._numbered = _NumberedKeys()
        assert quick.of([key]) == plain.of([key])


def test_numbers_behind_an_escape() -> None:
    """A number that is an extension leaves the escape before it whole."""
    assert ["%2F.0", "%2F%2E1.1"] == MemberNames([""], {"image"}, image="image").of(["/.0", "/.1"])


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 1200)), max_size=8), st.integers(1, 3))
def test_native_members_are_the_plain_ones(sizes: list[tuple[int, int]], columns: int) -> None:
    """Header, content, padding, to the bit."""
    rng = random.Random(1)
    values = [[(rng.randbytes(a), rng.randbytes(b)) for a, b in sizes] for _ in range(columns)]
    names = [f"s{row}.{column}" for row in range(len(sizes)) for column in range(columns)]
    parts = [(make_spans([a for a, _ in column]), make_spans([b for _, b in column])) for column in values]
    expected = io.BytesIO()
    places = []
    for row in range(len(sizes)):
        for column in range(columns):
            places.append(expected.tell())
            content = b"".join(values[column][row])
            expected.write(member_header(names[len(places) - 1], len(content)) + content + bytes(-len(content) % 512))
    out = np.full(expected.tell(), 7, np.uint8)
    tar_members("\0".join(names).encode(), parts, np.array(places, np.int64), out)
    assert out.tobytes() == expected.getvalue()


def test_members_that_fit_no_header() -> None:
    """ValueError, and nothing is written, for a long name, a small buffer, a wrong count."""
    part = (make_spans([b""]), make_spans([b"x"]))
    out = np.full(1024, 7, np.uint8)
    for name, place in (("n" * 101, 0), ("n", 1), ("n", -1), ("a\0b", 0)):
        with pytest.raises(ValueError, match=r"member 0 fits no ustar header|names"):
            tar_members(name.encode(), [part], np.array([place]), out)
    assert (out == 7).all()


def test_gnu_tar_extracts_it(tmp_path: Path) -> None:
    """GNU tar lists and extracts a shard without a word, long and foreign names included."""
    samples = {**make_samples(30), "long/" * 60 + "name.png": b"deep", "é" * 80 + ".png": b"wide"}
    path = write(tmp_path / "out.tar", samples)
    (tmp_path / "x").mkdir()
    done = subprocess.run(["tar", "xf", path, "-C", str(tmp_path / "x")], capture_output=True, check=True, text=True)
    assert done.stdout + done.stderr == ""
    assert (tmp_path / "x" / ("long/" * 60) / "name.png").read_bytes() == b"deep"
    for key, value in samples.items():
        folder, _, name = key.rpartition("/")
        escaped = name.removesuffix(".png").replace(".", "%2E") + ".png"
        assert value == (tmp_path / "x" / folder / escaped).read_bytes()


def test_all_kinds_of_fields(tmp_path: Path) -> None:
    """Raw arrays are npy members, bytes and columns go by their names, and the bytes of an image stay."""
    schema = Schema(
        (
            Field("image", IMAGE, "|u1", (None, None, None)),
            Field("depth", RAW, "<f4", (2, 2)),
            Field("text", BYTES, "|u1", (None,)),
            Field("label", COLUMN, "<i4", ()),
            Field("box", COLUMN, "<f4", (4,)),
        )
    )
    depth = np.arange(4, dtype="<f4").reshape(2, 2)
    spans = {"image": make_spans([b"jpeg"]), "depth": make_spans([depth.tobytes()]), "text": make_spans([b"hello"])}
    columns = {"label": np.array([-3], np.int32), "box": np.array([[0, 1, 2, 3.5]], np.float32)}
    with create_store(tmp_path / "out.tar", schema) as writer:
        writer.append(SampleBatch(["a.jpg"], spans, columns))
    (sample,) = webdataset_samples(str(tmp_path / "out.tar"))
    assert tuple(sample[n] for n in ("jpg", "text", "cls", "box.json")) == (
        b"jpeg",
        b"hello",
        b"-3",
        b"[0.0, 1.0, 2.0, 3.5]",
    )
    assert np.array_equal(depth, np.load(io.BytesIO(sample["depth.npy"])))
    with open_store(tmp_path / "out.tar") as store:
        assert depth.tobytes() == store.spans("depth", np.array([0])).view(0).tobytes()
        assert verify_store(store) == []


def test_fields_that_share_an_extension(tmp_path: Path) -> None:
    """Two fields may not become one extension."""
    schema = Schema((Field("cls", BYTES, "|u1", (None,)), Field("label", COLUMN, "<i8", ())))
    with pytest.raises(SchemaError, match="share an extension"):
        create_store(tmp_path / "out.tar", schema)
    assert names(tmp_path) == []


def test_index_as_npy(tmp_path: Path) -> None:
    """The index members are ordinary npy files."""
    path = write(tmp_path / "out.tar", make_samples(5))
    with tarfile.open(path) as tar:
        member = tar.extractfile("__fastio__/label.npy")
        assert member is not None
        assert np.load(io.BytesIO(member.read())).tolist() == [0, 1, 2, 3, 4]


# Shards


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A set of shards of 60 samples."""
    write(tmp_path / "s-%06d.tar", make_samples(60), shard_bytes=20_000)
    return tmp_path


def test_shards_are_cut(shards: Path) -> None:
    """Shards hold all samples in order; none is larger than asked, by its samples."""
    *names, set_object = visible(shards)
    assert [f"s-{i:06d}.tar" for i in range(len(names))] == names
    assert set_object == "s.fastio-set"
    assert len(names) > 3
    with open_store(shards / "s-%06d.tar") as store:
        assert make_samples(60) == read_all(store)
        assert list(range(60)) == store.column("label").tolist()
        assert dict(store.metadata) == METADATA
        assert verify_store(store) == []
        assert len(names) == len(store.shard_paths)
        assert all(shard.count > 0 for shard in store.shards)
        for shard in store.shards:
            assert shard.count == 1 or sum((shard.sizes["image"] + 511) // 512 * 512 + 1536) <= 20_000


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", ["s-*.tar", "s-%06d.tar", "s-{000000..%s}.tar", "", "*.tar", "s.fastio-set"])
def test_shards_by_any_name(shards: Path, name: str, version: int) -> None:
    """A glob, a number, a brace range, the folder and the set object name the same set."""
    last = _last(shards)
    if version == 1:
        make_version_1(shards / "s-%06d.tar")
        if name.endswith("set"):
            pytest.skip("there were none")
    with open_store(str(shards / name.replace("%s", last))) as store:
        assert make_samples(60) == read_all(store)


def _last(shards: Path) -> str:
    return max(shards.glob("s-*.tar")).name.removeprefix("s-").removesuffix(".tar")


def test_webdataset_reads_shards(shards: Path) -> None:
    """webdataset reads a whole set by its brace range."""
    last = _last(shards)
    samples = webdataset_samples(str(shards / f"s-{{000000..{last}}}.tar"))
    assert list(make_samples(60).values()) == [sample["png"] for sample in samples]


def test_incomplete_sets_are_refused(shards: Path) -> None:
    """A set of version 1 that lacks a shard is refused, and so is one shard alone."""
    make_version_1(shards / "s-%06d.tar")
    with pytest.raises(StoreCorrupt, match=r"missing \(counted from 0\): 0, 2, .*, 10: .*by s-\*\.tar"):
        open_store(shards / "s-000001.tar")
    (shards / "s-000001.tar").rename(shards / "alone.tar")
    with pytest.raises(StoreCorrupt, match=r"alone\.tar: .*, 10: copy the missing ones"):
        open_store(shards / "alone.tar")
    with pytest.raises(StoreCorrupt, match=r"missing \(counted from 0\): 1: copy the missing ones"):
        open_store(shards / "s-*.tar")
    with pytest.raises(StoreNotFound, match="s-000001"):
        open_store(shards / "s-{000000..000002}.tar")


def test_mixed_sets_are_refused(shards: Path, tmp_path: Path) -> None:
    """Shards of two sets of version 1 are refused by name, and so is one shard twice."""
    other = tmp_path / "other"
    other.mkdir()
    write(other / "s-%06d.tar", make_samples(60, seed=1), shard_bytes=20_000)
    for folder in (shards, other):
        make_version_1(folder / "s-%06d.tar")
    shutil.copy(shards / "s-000000.tar", other / "s-000000.tar")
    with pytest.raises(StoreCorrupt, match="different sets"):
        open_store(other)
    shutil.copy(shards / "s-000000.tar", shards / "s-000001.tar")
    with pytest.raises(StoreCorrupt, match="both shard 0"):
        open_store(shards / "s-*.tar")


def test_overwriting_a_longer_set(shards: Path) -> None:
    """The shards of the set that is replaced are removed, and nothing else."""
    with pytest.raises(StoreError, match="exists"):
        write(shards / "s-%06d.tar", make_samples(3))
    (shards / "s-other.tar").write_bytes(b"not a shard")
    write(shards / "s-%06d.tar", make_samples(3), overwrite=True)
    assert visible(shards) == ["s-000011.tar", "s-other.tar", "s.fastio-set"]
    assert hidden(shards) == []


def test_one_sample_larger_than_a_shard(tmp_path: Path) -> None:
    """A sample above the size of a shard has one of its own."""
    write(tmp_path / "s-%02d.tar", {"a": b"1", "b": bytes(5000), "c": b"3"}, shard_bytes=2000)
    assert visible(tmp_path) == ["s-00.tar", "s-01.tar", "s-02.tar", "s.fastio-set"]


@pytest.mark.parametrize(
    ("name", "shard_bytes", "message"),
    [
        ("a.tar", 10, "name-%06d.tar"),
        ("a-%06d.tar", 0, "from 1 on"),
        ("a-%06d.lmdb", None, "one file"),
        ("a.rar", None, r"\.lmdb, \.h5, \.hdf5, \.tar"),
        ("a", None, r"ends in one of"),
    ],
)
def test_impossible_targets(tmp_path: Path, name: str, shard_bytes: int | None, message: str) -> None:
    """A target that cannot be is refused, with what can."""
    with pytest.raises(StoreError, match=message):
        create_store(tmp_path / name, LABELLED, shard_bytes=shard_bytes)


def test_patterns_that_find_nothing(tmp_path: Path) -> None:
    """A pattern without shards is StoreNotFound; an empty folder and a range that descends are errors."""
    for name in ("s-*.tar", "s-%06d.tar"):
        with pytest.raises(StoreNotFound):
            open_store(str(tmp_path / name))
    with pytest.raises(StoreError, match="is empty"):
        open_store(tmp_path)
    with pytest.raises(StoreError, match="ascending"):
        open_store(tmp_path / "s-{5..2}.tar")


def test_writer_alone_gives_no_warning(tmp_path: Path) -> None:
    """An aborted set of shards leaves nothing, however many there were."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer = create_store(tmp_path / "s-%06d.tar", LABELLED, shard_bytes=2000)
        for i in range(5):
            writer.append(make_batch([f"{i}"], [bytes(3000)]))
        assert (len(visible(tmp_path)), len(hidden(tmp_path))) == (4, 3)  # the next, the set object, the claim
        writer.abort()
    assert names(tmp_path) == []


def test_stems_stay_apart_over_batches(tmp_path: Path) -> None:
    """A stem that is taken gets the extension, then a number; none is of those that WebDataset takes for its own."""
    keys = [["a.png", "__fastio__/b.png"], ["a.jpg", "__fastio__/b.jpg", "c.png"], ["a%2Ejpg.bmp", "a.jpg.bmp"]]
    with create_store(tmp_path / "s.tar", LABELLED) as writer:
        for batch in keys:
            writer.append(make_batch(batch, [key.encode() for key in batch]))
    with tarfile.open(tmp_path / "s.tar") as archive:
        stems = [name.partition(".")[0] for name in archive.getnames() if name.endswith(".cls")]

    assert ["a", "%5F_fastio__/b", "a%2Ejpg", "%5F_fastio__/b%2Ejpg", "c"] == stems[:5]
    assert len(stems) == len(set(stems)) == 7


class _OneByOne(MemberNames):
    def _of_plain_files(self, keys: Sequence[str]) -> list[str]:
        return []


@given(
    batches=st.lists(st.lists(st.text("ab/_.%1", max_size=5).map(lambda key: key + ".png"), max_size=5), max_size=4),
    ends=st.sampled_from(["png", "JPG", "gif", "cls", "x", "tar.gz"]),
    image=st.sampled_from(["image", ""]),
)
def test_names_of_a_batch_at_once(batches: list[list[str]], ends: str, image: str) -> None:
    """Plain names are made for a whole batch at once: the same as one by one, whatever came before."""
    suffixes = ["" if image else "tokens.npy", "cls"]
    kind = lambda _row, _column: "webp"  # noqa: E731
    at_once, one_by_one = (each(suffixes, ["cls"], image=image) for each in (MemberNames, _OneByOne))
    for number, batch in enumerate(batches):
        keys = [key[:-3] + ends for key in batch] if number % 2 else batch
        assert one_by_one.of(keys, kind) == at_once.of(keys, kind)
