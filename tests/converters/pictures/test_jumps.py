"""Jump tables: JPEGs keep their bytes, crops have the same pixels from every store, damage is found while packing."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

import fastio
from fastio import _native
from fastio.cli import cli
from fastio.converters import Part, open_source, pack, seal
from fastio.converters.packing.options import PackOptions
from fastio.converters.packing.plan import plan_of
from fastio.converters.packing.planned_set import PlannedSet
from fastio.errors import SampleError, SourceError, StoreError
from fastio.store import open_store
from fastio.store.files.remote_options import Remote
from fastio.store.formats import FORMATS
from fastio.store.jump_tables import JumpRule, begin_jump_tables
from fastio.types.spans import Spans
from tests.servers.fixtures import Bucket

TAG = 0xFFFF_FF01  # of the first word of a table


def jpeg(seed: int, **options: object) -> bytes:
    """A photo of noise, 200x160."""
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 50, 3), np.uint8).repeat(4, 0).repeat(4, 1)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", **options)
    return file.getvalue()


def folder(path: Path, **files: bytes) -> Path:
    """A folder of these pictures."""
    path.mkdir(parents=True)
    for name, data in files.items():
        (path / f"{name}.jpg").write_bytes(data)
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three kinds of JPEGs."""
    return folder(
        tmp_path / "photos",
        plain=jpeg(0),
        progressive=jpeg(1, progressive=True),
        restart=jpeg(2, restart_marker_blocks=8),
        small=jpeg(3, subsampling=0),
    )


def tables(path: Path) -> list[NDArray[np.uint32]]:
    """The words that each sample has."""
    with open_store(path) as store:
        intervals = store.spans("image", np.arange(len(store))).intervals
        return [] if intervals is None else [view.view("<u4") for view in intervals.views()]


def crops(spans: Spans, box: tuple[int, int, int, int]) -> tuple[NDArray[np.uint8], list[int]]:
    """The pixels of a box (x, y, width, height) of each picture, as they are, and status."""
    x, y, width, height = box
    plan = np.array([(x, y, width, height, width, height, 0, 0, width, height, 0, 0, 0)] * len(spans), np.int32)
    out, status = np.zeros((len(spans), height, width, 3), np.uint8), np.zeros(len(spans), np.int32)
    _native.decode_transformed(spans, plan, out, status, filter=0, fill=b"\0\0\0").wait()
    return out, status.tolist()


@pytest.mark.parametrize("name", ["s.lmdb", "s.h5", "s.zip", "s.tar", "s-%02d.tar"])
def test_every_store_keeps_them(tmp_path: Path, source: Path, name: str) -> None:
    """Baseline JPEGs without markers have tables; bytes stay, and so do the pixels of crops."""
    pack(open_source(source), tmp_path / name)
    pack(open_source(source), tmp_path / "plain.lmdb", jump=False)

    words = tables(next(tmp_path.glob("s.fastio-set"), tmp_path / name))
    assert [TAG, None, None, TAG] == [each[0] if len(each) else None for each in words]
    assert [] == tables(tmp_path / "plain.lmdb")
    with (
        open_store(next(tmp_path.glob("s.fastio-set"), tmp_path / name)) as store,
        open_store(tmp_path / "plain.lmdb") as plain,
    ):
        spans, expected = store.spans("image", np.arange(4)), plain.spans("image", np.arange(4))
        assert [view.tobytes() for view in expected.views()] == [view.tobytes() for view in spans.views()]
        box = (100, 50, 60, 70)
        assert crops(expected, box)[0].tobytes() == crops(spans, box)[0].tobytes()
        assert [0, 0, 0, 0] == crops(spans, box)[1]


def test_a_copied_store_keeps_them(tmp_path: Path, source: Path) -> None:
    """From store to store, also where nobody asks for them again."""
    pack(open_source(source), tmp_path / "a.lmdb")
    pack(open_source(tmp_path / "a.lmdb"), tmp_path / "b.h5", jump=False)

    assert [each.tolist() for each in tables(tmp_path / "a.lmdb")] == [
        each.tolist() for each in tables(tmp_path / "b.h5")
    ]


def test_shards_are_the_same_bytes(tmp_path: Path, source: Path) -> None:
    """However they are packed; other shards are refused by name."""
    names = ("a", "b")
    pack(open_source(source), tmp_path / "a-%d.tar", shard_bytes=60_000, jobs=1)
    (tmp_path / "a-0.tar").rename(tmp_path / "kept.tar")
    pack(open_source(source), tmp_path / "a-%d.tar", shard_bytes=60_000, resume=True)
    pack(open_source(source), tmp_path / "b-%d.tar", shard_bytes=60_000, jobs=2)

    assert len(list(tmp_path.glob("a-*.tar"))) > 1
    first, second = ([file.read_bytes() for file in sorted(tmp_path.glob(f"{name}-*.tar"))] for name in names)
    assert first == second
    (tmp_path / "a.fastio-set").unlink()
    with pytest.raises(StoreError, match="--jump was every 8 MCUs, now off"):
        pack(open_source(source), tmp_path / "a-%d.tar", shard_bytes=60_000, resume=True, jump=False)


@pytest.mark.parametrize("rule", [None, JumpRule(0)])
def test_a_set_goes_on_as_it_was_begun(tmp_path: Path, source: Path, rule: JumpRule | None) -> None:
    """Shards of an older fastio, without start points or with some in small pictures too, are completed alike."""
    plan = plan_of(open_source(source), FORMATS["tar"], shard_bytes=60_000).with_jump(rule)
    options = PackOptions(shard_bytes=60_000)
    with PlannedSet.begin(plan, open_source(source), str(tmp_path / "a-%d.tar"), options) as old:
        assert [0] == list(old.pack([0]))
    pack(open_source(source), tmp_path / "a-%d.tar", shard_bytes=60_000, resume=True)

    with open_store(tmp_path / "a.fastio-set") as store:
        assert store.set_object is not None
        assert [plan.digest] * len(plan) == [member.plan for member in store.set_object.members]
    pack(open_source(source), tmp_path / "a-%d.tar", shard_bytes=60_000, part=Part(0, 2))
    if rule is None:
        with pytest.raises(StoreError, match="--jump was off, now every 8 MCUs"):
            pack(open_source(source), tmp_path / "a-%d.tar", shard_bytes=60_000, resume=True, jump=True)


def test_a_shard_of_an_older_fastio_is_made_anew(tmp_path: Path) -> None:
    """``repair`` packs it by its own plan, with start points in small pictures too, to the same bytes."""
    source = folder(tmp_path / "photos", a=jpeg(0), small=jpeg(1, quality=1))
    plan = plan_of(open_source(source), FORMATS["tar"], shard_bytes=1 << 20).with_jump(JumpRule(0))
    options = PackOptions(shard_bytes=1 << 20)
    with PlannedSet.begin(plan, open_source(source), str(tmp_path / "a-%d.tar"), options) as old:
        assert [0] == list(old.pack([0]))
    seal(str(tmp_path / "a-%d.tar"))
    before = (tmp_path / "a-0.tar").read_bytes()
    (tmp_path / "a-0.tar").write_bytes(before[:3000] + b"damage" + before[3006:])
    run = ("repair", str(tmp_path / "a.fastio-set"), "--against", str(source))
    assert 0 == CliRunner().invoke(cli, run, catch_exceptions=False).exit_code

    assert before == (tmp_path / "a-0.tar").read_bytes()
    assert [TAG, TAG] == [each[0] for each in tables(tmp_path / "a.fastio-set")]


def test_a_set_without_them_grows_by_shards_that_have_them(tmp_path: Path) -> None:
    """``append`` leaves the old shards alone."""
    old = folder(tmp_path / "old", a=jpeg(0), b=jpeg(1), c=jpeg(2))
    pack(open_source(old), tmp_path / "a-%d.tar", jump=False)
    pack(open_source(folder(tmp_path / "more", new=jpeg(7))), tmp_path / "a-%d.tar", append=True)

    assert [0, 0, 0, TAG] == [each[0] if len(each) else 0 for each in tables(tmp_path / "a.fastio-set")]


def test_small_pictures_have_none(tmp_path: Path) -> None:
    """Files below 8 KiB: nothing is gained there, so not a byte is added and no code is read."""
    small = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(small).save(file, "JPEG", quality=95)
    source = folder(tmp_path / "photos", a=file.getvalue(), b=file.getvalue()[:-200] + b"\xff\xd9")
    pack(open_source(source), tmp_path / "s.h5")
    pack(open_source(source), tmp_path / "t.h5", jump=False)

    assert (tmp_path / "t.h5").read_bytes() == (tmp_path / "s.h5").read_bytes()


def test_small_pictures_among_large_ones(tmp_path: Path) -> None:
    """Each keeps its own, or none."""
    small = jpeg(5, quality=1)
    assert len(small) < 8192
    source = folder(tmp_path / "photos", a=small, b=jpeg(0), c=small, d=jpeg(1))
    pack(open_source(source), tmp_path / "s.lmdb")
    pack(open_source(source), tmp_path / "t.lmdb", jump=False)

    assert [0, TAG, 0, TAG] == [each[0] if len(each) else 0 for each in tables(tmp_path / "s.lmdb")]
    with open_store(tmp_path / "s.lmdb") as store, open_store(tmp_path / "t.lmdb") as plain:
        box, every = (100, 50, 60, 70), np.arange(4)
        expected = crops(plain.spans("image", every), box)[0]
        assert expected.tobytes() == crops(store.spans("image", every), box)[0].tobytes()


def test_a_store_is_copied_with_its_damage(tmp_path: Path) -> None:
    """What fastio has packed already stays, without start points."""
    source = folder(tmp_path / "photos", cut=jpeg(1)[:-200] + b"\xff\xd9", good=jpeg(0))
    pack(open_source(source), tmp_path / "a.lmdb", jump=False)
    pack(open_source(tmp_path / "a.lmdb"), tmp_path / "b.lmdb")

    assert [0, TAG] == [each[0] if len(each) else 0 for each in tables(tmp_path / "b.lmdb")]


def test_damage_is_found_while_packing(tmp_path: Path) -> None:
    """A damaged JPEG stops the run, which says the ways out, or is listed; with ``jump=False`` nobody looks."""
    cut, changed = jpeg(1)[:-200] + b"\xff\xd9", bytearray(jpeg(2))
    changed[-300:-298] = b"\xff\xd4"
    source = folder(tmp_path / "photos", changed=bytes(changed), cut=cut, good=jpeg(0))

    with pytest.raises(
        SourceError, match=r"changed\.jpg.* skip such samples with --on-error skip, or pack them unchecked.* --no-jump"
    ):
        pack(open_source(source), tmp_path / "s.lmdb")
    report = pack(open_source(source), tmp_path / "s.lmdb", on_error="skip")
    assert ["changed.jpg", "cut.jpg"] == [each.key for each in report.skipped]
    for each, size in zip(report.skipped, (len(changed), len(cut)), strict=True):
        found = re.fullmatch(
            "cannot be decoded: its data are damaged, "
            r"from byte ([\d,]+) of ([\d,]+) on, in row (\d+) of 10 of its blocks",
            each.problem,
        )
        assert found is not None, each.problem
        byte, of, row = (int(number.replace(",", "")) for number in found.groups())
        assert size == of
        assert size - 400 < byte < size  # where it was done, or a little before or behind
        assert row in (9, 10)
    assert 3 == pack(open_source(source), tmp_path / "t.lmdb", jump=False).packed


def test_the_writer_takes_them_too(tmp_path: Path) -> None:
    """fastio.Writer and fastio.pack, with damage as a wrong sample."""
    with fastio.Writer(tmp_path / "w.lmdb", {"image": "image"}) as writer:
        writer.write({"image": jpeg(0)})
    fastio.pack([{"image": jpeg(0)}], tmp_path / "p.lmdb")

    assert TAG == tables(tmp_path / "w.lmdb")[0][0] == tables(tmp_path / "p.lmdb")[0][0]
    writer = fastio.Writer(tmp_path / "x.lmdb")
    writer.write({"image": jpeg(0)}, key="good")
    writer.write({"image": jpeg(1)[:-200] + b"\xff\xd9"}, key="bad")
    with pytest.raises(SampleError, match=r"'bad'.*damaged"):
        writer.close()


def test_pictures_that_are_rewritten_keep_their_markers(tmp_path: Path, source: Path) -> None:
    """Only those without places of restart intervals get tables."""
    run = ("pack", str(source), str(tmp_path / "s.lmdb"), "--restart", "4")
    assert 0 == CliRunner().invoke(cli, run, catch_exceptions=False).exit_code

    assert all(len(each) and each[0] != TAG for each in tables(tmp_path / "s.lmdb"))


def test_the_commands_say_it(tmp_path: Path, source: Path) -> None:
    """``pack --jump`` and ``info``."""
    packed = CliRunner().invoke(cli, ("pack", str(source), str(tmp_path / "s.lmdb")), catch_exceptions=False)
    info = CliRunner().invoke(cli, ("info", str(tmp_path / "s.lmdb")), catch_exceptions=False)

    for result in (packed, info):
        assert "start points within 2 of 4 pictures of 'image'" in result.output
        assert "; the others: 1 progressive, 1 with restart markers\n" in result.output


def test_shards_of_other_tools(tmp_path: Path, source: Path) -> None:
    """``fastio index --jump`` puts the tables into the set object; the shards stay as they are."""
    import tarfile

    with tarfile.open(tmp_path / "x-0.tar", "w") as tar:
        tar.add(source / "plain.jpg", "0.jpg")
    before = (tmp_path / "x-0.tar").read_bytes()
    run = ("index", str(tmp_path / "x-0.tar"), "--to", str(tmp_path / "i"))
    assert 0 == CliRunner().invoke(cli, run, catch_exceptions=False).exit_code

    assert [TAG] == [each[0] for each in tables(next((tmp_path / "i").iterdir()))]
    assert before == (tmp_path / "x-0.tar").read_bytes()


def large_jpeg(seed: int, **options: object) -> bytes:
    """A photo of noise, 400x320."""
    with Image.open(io.BytesIO(jpeg(seed))) as small:
        file = io.BytesIO()
        small.resize((400, 320)).save(file, "JPEG", **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([{}, {}, {}], True),
        ([{}, {}, {"progressive": True}], True),
        ([{}, {"progressive": True}, {"restart_marker_blocks": 8}], False),
    ],
)
def test_who_gains_is_told_of_jump(tmp_path: Path, options: list[dict[str, object]], expected: bool) -> None:
    """If most photos are baseline JPEGs without markers; by ``info``."""
    source = folder(tmp_path / "photos", **{f"p{i}": large_jpeg(i, **chosen) for i, chosen in enumerate(options)})
    run = ("pack", str(source), str(tmp_path / "s.lmdb"), "--no-jump")
    packed = CliRunner().invoke(cli, run, catch_exceptions=False)
    info = CliRunner().invoke(cli, ("info", str(tmp_path / "s.lmdb")), catch_exceptions=False)

    assert 0 == packed.exit_code
    assert "tip for the pictures" not in packed.output  # who left them out on purpose
    assert expected == ("tip for the pictures of 'image': with start points, random crops" in info.output)


def test_who_has_tables_or_small_pictures_is_not_told(tmp_path: Path, source: Path) -> None:
    """Nothing is recommended that was done, or that was not measured."""
    photos = folder(tmp_path / "large", p=large_jpeg(0))
    for run in ((str(photos), str(tmp_path / "a.lmdb")), (str(source), str(tmp_path / "b.lmdb"))):
        packed = CliRunner().invoke(cli, ("pack", *run), catch_exceptions=False)
        assert 0 == packed.exit_code
        assert "no start points" not in packed.output


def test_what_is_packed_behind_a_url_has_start_points(bucket: Bucket, source: Path) -> None:
    """``pack`` reads them from its shards, so that the set object has them, and says so."""
    options = [word for name, value in bucket.options.items() for word in ("--storage-option", f"{name}={value}")]
    line = "start points within 2 of 4 pictures of 'image'"
    packed = CliRunner().invoke(cli, ("pack", str(source), f"{bucket.url}/j-%d.tar", *options), catch_exceptions=False)
    run = ("pack", str(source), f"{bucket.url}/p-%d.tar", "--no-jump", *options)
    plain = CliRunner().invoke(cli, run, catch_exceptions=False)

    assert line in packed.output
    assert 0 == plain.exit_code
    assert "start points within" not in plain.output


PHOTOS = [np.frombuffer(jpeg(seed, quality=60 + 10 * seed, subsampling=seed % 3), np.uint8) for seed in range(3)]
NOTED = begin_jump_tables(Spans.joined(np.concatenate(PHOTOS), np.array([len(photo) for photo in PHOTOS])))()[0]


@given(st.data())
@settings(deadline=None)
def test_wrong_tables_change_no_pixel(data: st.DataObject) -> None:
    """Words that are changed, cut, added, or of another picture: the pixels are those without them."""
    assert NOTED.intervals is not None
    words = [view.view("<u4").copy() for view in NOTED.intervals.views()]
    for i in range(len(words)):
        kind = data.draw(st.sampled_from(["keep", "change", "cut", "add", "other"]))
        at = data.draw(st.integers(0, len(words[i]) - 1))
        if kind == "change":
            words[i][at] ^= np.uint32(data.draw(st.integers(0, 2**32 - 1)))
        elif kind == "cut":
            words[i] = words[i][:at]
        elif kind == "add":
            words[i] = np.insert(words[i], at, data.draw(st.integers(0, 2**32 - 1)))
        elif kind == "other":
            words[i] = words[data.draw(st.integers(0, len(words) - 1))]
    sizes = np.array([4 * len(each) for each in words], np.int64)
    forged = replace(NOTED, intervals=Spans.joined(np.concatenate([*words, np.zeros(1, "<u4")]).view(np.uint8), sizes))
    x, y = data.draw(st.integers(0, 190)), data.draw(st.integers(0, 150))
    box = (x, y, data.draw(st.integers(1, 200 - x)), data.draw(st.integers(1, 160 - y)))
    plain, status = crops(replace(NOTED, intervals=None), box)

    assert [0, 0, 0] == status
    assert plain.tobytes() == crops(forged, box)[0].tobytes()


def test_tables_are_not_read_behind_a_url(bucket: Bucket, tmp_path: Path, source: Path) -> None:
    """Opening a set in an object store leaves them where they are."""
    options = Remote(storage_options=bucket.options)
    pack(open_source(source), f"{bucket.url}/s-%d.tar", remote=options)
    with open_store(f"{bucket.url}/s.fastio-set", remote=options) as store:
        assert store.spans("image", np.arange(4)).intervals is None

    pack(open_source(source), tmp_path / "s-%d.tar")
    assert TAG == tables(tmp_path / "s.fastio-set")[0][0]
