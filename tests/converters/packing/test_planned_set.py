"""Going on: only what is missing or damaged is packed, nothing of others is touched, and whoever is told what to do."""

from __future__ import annotations

import re
import shutil
import threading
import zipfile

import pytest

from fastio.converters import Part, Transcode, open_source, pack, seal
from fastio.converters.fields.types import parse_choice
from fastio.converters.packing.plan import PackPlan
from fastio.converters.packing.repair import repair
from fastio.converters.sources.derived import TokenizedSource
from fastio.converters.sources.listed import ListedSource
from fastio.converters.text.encode import Sequences, TextTokens
from fastio.converters.text.tokenizer import BytesTokenizer
from fastio.errors import SourceError, StoreError, StoreIncomplete
from fastio.store import open_store
from fastio.store.index.verify import verify_store
from fastio.store.sets.merge import merge_stores
from tests.converters.packing.sources import PATTERN, SHARD_BYTES, files, keys, others, packed, source_in
from tests.converters.trees import foreign_tar, picture


def go_on(tmp_path, name="out", **options):
    """Pack again what is missing."""
    return pack(
        source_in(tmp_path), tmp_path / name / PATTERN, **{"shard_bytes": SHARD_BYTES, "resume": True, **options}
    )


def whole(tmp_path):
    """The files of a pack that was not interrupted."""
    return files(packed(tmp_path, "whole", source_in(tmp_path)))


def unsealed(tmp_path, name="out", missing=()):
    """A folder with the shards of a pack that was killed: no set object, and some shards less."""
    folder = packed(tmp_path, name, source_in(tmp_path))
    (folder / "out.fastio-set").unlink()
    for number in missing:
        (folder / (PATTERN % number)).unlink()
    return folder


@pytest.fixture
def read_samples(monkeypatch):
    """The numbers of all samples that are read of a source, as they are read."""
    numbers = []
    begin = ListedSource.begin

    def count(self, chunk, pool=None):
        numbers.extend(chunk)
        return begin(self, chunk, pool)

    monkeypatch.setattr(ListedSource, "begin", count)
    return numbers


def test_only_what_is_missing_is_packed(tmp_path, read_samples):
    """No sample of a whole shard is read, and the set is the same to the byte."""
    expected = whole(tmp_path)
    folder = unsealed(tmp_path, missing=(1, 4))
    read_samples.clear()
    report = go_on(tmp_path)

    assert expected == files(folder)
    assert (len(expected) - 1, len(expected) - 3, 18) == (report.shards, report.kept_shards, report.packed)
    assert len(read_samples) == 18 - report.kept_samples


def test_another_shard_size_of_a_whole_set(tmp_path):
    """What differs is said, and what to do; nothing changes."""
    before = files(packed(tmp_path, "out", source_in(tmp_path)))
    with pytest.raises(StoreError, match=r"--shard-size was 8\.0 kB, now 9\.0 kB.* or pack all again with --overwrite"):
        go_on(tmp_path, shard_bytes=9000)

    assert before == files(tmp_path / "out")


@pytest.mark.parametrize("damage", ["cut", "empty", "seal", "index"])
def test_a_damaged_shard_is_packed_again(tmp_path, damage):
    """One that is cut off, empty, or whose seal or index differs from its checksum; also in a set that was sealed."""
    expected = whole(tmp_path)
    for folder in (unsealed(tmp_path), packed(tmp_path, "sealed", source_in(tmp_path))):
        shard = folder / (PATTERN % 2)
        data = bytearray(shard.read_bytes())
        flipped = {"seal": data.rindex(b"\x89fastio\n") + 20, "index": data.rindex(b"image_starts") - 40}.get(damage)
        if flipped is not None:
            data[flipped] ^= 1
        shard.write_bytes({"cut": data[:-3000], "empty": b""}.get(damage, data))
        report = go_on(tmp_path, folder.name)

        assert expected == files(folder)
        assert report.kept_shards == report.shards - 1


def test_a_set_that_is_complete_is_left_alone(tmp_path, read_samples):
    """Going on with it reads nothing and writes nothing."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    read_samples.clear()
    report = go_on(tmp_path)
    part = pack(source_in(tmp_path), folder / PATTERN, shard_bytes=SHARD_BYTES, part=Part(1, 2))

    assert before == {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert ([], 18, 0) == (read_samples, report.kept_samples, len(part.missing))


def test_a_pack_that_did_not_finish_is_not_begun_anew_silently(tmp_path):
    """Without --resume or --overwrite, the error says which of them to add; with --overwrite all is packed again."""
    expected = whole(tmp_path)
    folder = unsealed(tmp_path, missing=(0,))
    for words in (rf"{len(expected) - 2} shards of a pack that was interrupted are there", "1 shard .* is there"):
        with pytest.raises(StoreError, match=rf"{words}, e\.g\. .*--resume.*--overwrite"):
            pack(source_in(tmp_path), folder / PATTERN, shard_bytes=SHARD_BYTES)
        for number in range(2, len(expected) - 1):
            (folder / (PATTERN % number)).unlink(missing_ok=True)
    packed(tmp_path, "out", source_in(tmp_path), overwrite=True)

    assert expected == files(folder)


def renamed(folder):
    """Another name for a picture, which keeps its place."""
    (folder / "cat" / "0.png").rename(folder / "cat" / "00.png")


CHANGES = {
    r"the source had 18 samples, now 19; the first key that differs: was 'bee/0.png', now 'bee/!.png'": lambda folder: (
        folder / "bee" / "!.png"
    ).write_bytes(picture(1)),
    r"the first key that differs: was 'cat/0.png', now 'cat/00.png'": renamed,
    r"files have other sizes: 'dog/2.jpg' had [\d,]+ bytes, now ": lambda folder: (
        folder / "dog" / "2.jpg"
    ).write_bytes(picture(9, kind="JPEG", size=(50, 50))),
    r"classes, or what else is known of the source, differ": lambda folder: (folder / "zebra").mkdir(),
}


@pytest.mark.parametrize("message", CHANGES)
def test_a_source_that_changed_is_refused(tmp_path, message):
    """The shards stay, and the error says what is different, the first key by name."""
    folder = unsealed(tmp_path, missing=(5,))
    before = files(folder)
    if "cat/0.png" in message:  # the first shard that is there is the one that differs
        for number in range(6):
            with pytest.MonkeyPatch.context():
                path = folder / (PATTERN % number)
                if path.exists() and b"cat/0." not in path.read_bytes():
                    path.unlink()
        before = files(folder)
    CHANGES[message](tmp_path / "classes")
    options = {"on_error": "skip"}
    for again in ({}, {"part": Part(0, 1)}):
        with pytest.raises(StoreError, match=rf"out-00000\d\.tar.*{message}.*--overwrite"):
            go_on(tmp_path, **options, **again)

    assert before == files(folder)


def zip_of(tmp_path, other=-1):
    """A source: a zip of 18 stored pictures, one of which may have other pixels in as many bytes."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(18):
            archive.writestr(f"{number:02d}.bmp", picture(number + 100 * (number == other), kind="BMP"))
    return open_source(path)


def store_of(tmp_path, other=-1):
    """A source: the same pictures in a store."""
    pack(zip_of(tmp_path, other), tmp_path / "a.lmdb", overwrite=True)
    return open_source(tmp_path / "a.lmdb")


@pytest.mark.parametrize("again", [{"resume": True}, {"part": Part(1, 2)}], ids=lambda each: next(iter(each)))
@pytest.mark.parametrize("is_sealed", [True, False])
@pytest.mark.parametrize("source", [zip_of, store_of])
def test_a_sample_of_the_same_size_that_differs_by_its_checksum(tmp_path, source, is_sealed, again):
    """The source carries checksums: the sample is named, and nothing changes; with the former content, it goes on."""
    folder = packed(tmp_path, "out", source(tmp_path))
    expected = files(folder)
    if not is_sealed:
        (folder / "out.fastio-set").unlink()
        (folder / max(expected.keys() - {"out.fastio-set"})).unlink()
    before = files(folder)
    message = (
        r"out-00000\d\.tar.*contents of its samples differ, by their checksums: the first is '06\.bmp'.*--overwrite"
    )
    with pytest.raises(StoreError, match=message):
        packed(tmp_path, "out", source(tmp_path, other=6), **again)
    assert before == files(folder)
    packed(tmp_path, "out", source(tmp_path), **again)
    assert expected == files(folder)


def test_parts_of_other_contents_are_not_sealed(tmp_path):
    """Two machines had archives of the same names and sizes: neither the last part nor fastio seal makes a set."""
    folder = packed(tmp_path, "out", zip_of(tmp_path), part=Part(0, 2))
    other = packed(tmp_path, "other", zip_of(tmp_path, other=17), part=Part(1, 2))
    for path in other.iterdir():
        shutil.copy(path, folder)
    with pytest.raises(StoreError, match=r"contents of the source, by its checksums, changed between the parts"):
        seal(folder / PATTERN)
    with pytest.raises(StoreError, match=r"contents of its samples differ, by their checksums"):
        packed(tmp_path, "out", zip_of(tmp_path), part=Part(0, 2))

    assert not (folder / "out.fastio-set").exists()


def test_shards_of_older_versions_know_no_contents(tmp_path, monkeypatch):
    """Going on with them packs what is missing, and what was made of both can be repaired from the source."""
    with monkeypatch.context() as older:
        older.setattr(PackPlan, "with_contents", lambda plan, _: plan)
        folder = packed(tmp_path, "out", zip_of(tmp_path), part=Part(0, 2))
    assert all(b'"contents"' not in data for data in files(folder).values())
    packed(tmp_path, "out", zip_of(tmp_path), resume=True)
    expected = {name: data for name, data in files(folder).items() if name.endswith(".tar")}
    assert {True, False} == {b'"contents"' in data for data in expected.values()}

    for name, data in expected.items():
        (folder / name).write_bytes(data[:-100])
        report = repair(str(folder / "out.fastio-set"), str(tmp_path / "a.zip"))
        assert ((), data) == (report.left, (folder / name).read_bytes())


def test_files_that_were_exchanged_are_named(tmp_path):
    """All bytes together are as many as before: the first file of another size is named, whichever shard has it."""
    folder = unsealed(tmp_path, missing=(1,))
    two = [tmp_path / "classes" / "dog" / name for name in ("0.png", "2.jpg")]
    contents = [path.read_bytes() for path in two]
    for path, content in zip(two, reversed(contents), strict=True):
        path.write_bytes(content)

    message = f"'dog/0.png' had {len(contents[0])} bytes, now {len(contents[1])}"
    with pytest.raises(StoreError, match=rf"out-000000\.tar.*files have other sizes: {message}\. .*--overwrite"):
        go_on(tmp_path)
    assert 5 == len(files(folder))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shard_bytes": 9000}, "--shard-size was 8.0 kB, now 9.0 kB"),
        ({"pictures": Transcode(restart=4)}, "what is done to pictures was none, now restart=4"),
    ],
)
def test_other_options_are_refused(tmp_path, options, message):
    """They would make other shards; the error says what they were."""
    unsealed(tmp_path, missing=(1,))
    with pytest.raises(StoreError, match=message):
        go_on(tmp_path, **options)


def test_a_bad_sample_of_a_pack_that_goes_on_keeps_shards(tmp_path):
    """It may be skipped in the next run, whose plan is the same; a pack from the beginning removes what it made."""
    source = source_in(tmp_path)
    (tmp_path / "classes" / "dog" / "2.jpg").write_bytes(b"no picture" * 30)
    (tmp_path / "out").mkdir()
    with pytest.raises(SourceError, match=r"dog/2\.jpg"):
        go_on(tmp_path, resume=False)
    assert {} == files(tmp_path / "out")
    with pytest.raises(SourceError, match=r"dog/2\.jpg") as failed:
        go_on(tmp_path)
    finished = len(files(tmp_path / "out"))
    report = go_on(tmp_path, on_error="skip")

    assert finished == report.kept_shards > 0
    assert (
        f"{finished} of {report.shards} shards are finished and stay: go on with --resume" in failed.value.__notes__[0]
    )
    assert (18, 17) == (report.found, report.packed)
    assert len(source) == 18


def test_an_interrupt_keeps_finished_shards(tmp_path):
    """Ctrl-C leaves whole shards and no set, says so, and the next run goes on from there."""
    expected = whole(tmp_path)
    (tmp_path / "out").mkdir()
    threads, samples = threading.active_count(), []

    def interrupt(count, _):
        samples.append(count)
        if sum(samples) >= 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as interrupted:
        go_on(tmp_path, resume=False, progress=interrupt)
    left = files(tmp_path / "out")
    assert left
    assert left.items() <= expected.items() - {("out.fastio-set", expected["out.fastio-set"])}
    assert re.search(r"\d of \d shards are finished and stay: go on with --resume", interrupted.value.__notes__[0])
    assert threading.active_count() <= threads
    report = go_on(tmp_path)

    assert expected == files(tmp_path / "out")
    assert report.kept_shards >= len(left)


def test_files_of_others_are_not_replaced(tmp_path):
    """A tar of another program, or a store of fastio's that is no shard, under a name that a shard would get."""
    (tmp_path / "out").mkdir()
    other = foreign_tar(tmp_path / "out" / (PATTERN % 3))
    before = other.read_bytes()
    with pytest.raises(StoreError, match=r"out-000003\.tar: exists"):
        go_on(tmp_path)
    assert before == other.read_bytes()
    other.unlink()
    pack(source_in(tmp_path), tmp_path / "single.tar")
    shutil.copy(tmp_path / "single.tar", other)
    with pytest.raises(StoreError, match=r"out-000003\.tar.*not packed by a plan"):
        go_on(tmp_path)

    assert (tmp_path / "single.tar").read_bytes() == other.read_bytes()


@pytest.mark.parametrize("options", [{"resume": True}, {"part": Part(0, 2)}])
@pytest.mark.parametrize("name", ["out.lmdb", "out.h5", "out.zip", "out.tar"])
def test_single_files_are_packed_as_a_whole(tmp_path, name, options):
    """The error says how shards are named."""
    with pytest.raises(StoreError, match=r"is a single file.*name-%06d\.tar"):
        pack(source_in(tmp_path), tmp_path / name, **options)


def test_parts_at_once_do_no_harm(tmp_path):
    """Two processes' worth of the same part, at the same time: the same files, no error, nothing hidden left."""
    expected = whole(tmp_path)
    (tmp_path / "out").mkdir()
    barrier, errors = threading.Barrier(4), []

    def run(index):
        source = source_in(tmp_path)
        barrier.wait()
        try:
            pack(source, tmp_path / "out" / PATTERN, shard_bytes=SHARD_BYTES, part=Part(index % 2, 2), jobs=1)
        except BaseException as exc:
            errors.append(exc)

    parts = [threading.Thread(target=run, args=(index,)) for index in range(4)]
    for each in parts:
        each.start()
    for each in parts:
        each.join()

    assert [] == errors
    assert expected == files(tmp_path / "out")


def test_overwriting_goes_on_as_well(tmp_path):
    """The old set stays as it is until the new one is complete, and then its shards go."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    before = files(folder)
    renamed(tmp_path / "classes")
    source = source_in(tmp_path)
    for index in (0, 1, 2):
        packed(tmp_path, "out", source, part=Part(index, 4), overwrite=True)
        assert before.items() <= files(folder).items()
    go_on(tmp_path, overwrite=True)

    assert source.keys == keys(folder)
    assert not before.items() & files(folder).items()


def test_overwriting_leaves_shards_that_another_set_lists(tmp_path):
    """A merged set stays whole, however often the sets are overwritten of whose shards it was made."""
    source, folder = source_in(tmp_path), packed(tmp_path, "out", source_in(tmp_path))
    pack(others(tmp_path, "y"), folder / "y-%06d.tar")
    merge_stores([str(folder / "out.fastio-set"), str(folder / "y.fastio-set")], str(folder / "z.fastio-set"))
    for _ in range(3):
        pack(source, folder / PATTERN, shard_bytes=SHARD_BYTES + 1, overwrite=True)

        with open_store(folder / "z.fastio-set") as store:
            assert [] == verify_store(store)


def test_sealing_needs_all_shards(tmp_path):
    """Those that are missing or damaged are named; with all of them the set is that of one process."""
    expected = whole(tmp_path)
    folder = unsealed(tmp_path)
    lost = (folder / (PATTERN % 3)).rename(tmp_path / "lost.tar")
    data = (folder / (PATTERN % 1)).read_bytes()
    (folder / (PATTERN % 1)).write_bytes(data[:-1000])
    count = len(expected) - 1
    with pytest.raises(
        StoreIncomplete,
        match=rf"{count - 2} of {count} shards are whole; missing: out-000001\.tar \(damaged\), out-000003\.tar: wait",
    ):
        seal(folder / PATTERN)
    assert not (folder / "out.fastio-set").exists()
    lost.rename(folder / (PATTERN % 3))
    (folder / (PATTERN % 1)).write_bytes(data)
    sealed = seal(folder / PATTERN)
    again = seal(folder / PATTERN)

    assert expected == files(folder)
    assert (18, sealed.identity) == (len(sealed), again.identity)


def test_shards_of_two_plans_are_not_a_set(tmp_path):
    """A source that changed between the parts is named; nothing is sealed."""
    folder, other = unsealed(tmp_path), tmp_path / "other"
    renamed(tmp_path / "classes")
    packed(tmp_path, "other", source_in(tmp_path))
    shutil.copy(other / (PATTERN % 2), folder / (PATTERN % 2))
    with pytest.raises(StoreError, match=r"belong to 2 plans.*the source or the options changed between the parts"):
        seal(folder / PATTERN)
    with pytest.raises(StoreError, match=r"out-00000\d\.tar: its shards were packed from another state"):
        go_on(tmp_path)

    assert not (folder / "out.fastio-set").exists()


def test_a_shard_under_another_number_is_named(tmp_path):
    """A copy under a wrong name is no shard that is there."""
    folder = unsealed(tmp_path, missing=(3,))
    shutil.copy(folder / (PATTERN % 2), folder / (PATTERN % 3))
    with pytest.raises(StoreError, match=r"out-000003\.tar is shard 2 of its plan under another number"):
        seal(folder / PATTERN)
    with pytest.raises(StoreError, match=r"out-000003\.tar"):
        go_on(tmp_path)


def test_nothing_to_seal(tmp_path):
    """An empty folder, or a name without a number."""
    with pytest.raises(StoreIncomplete, match="no shards to seal"):
        seal(tmp_path / PATTERN)
    with pytest.raises(StoreError, match="name all shards at once"):
        seal(tmp_path / "out.lmdb")


def test_a_table_with_tokens_is_packed_by_plan(tmp_path):
    """Text in a field becomes token ids shard by shard; what was truncated is counted as in one file."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    texts = [f"{number} " * (number % 50) + "end" for number in range(300)]
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "t.parquet")
    (tmp_path / "out").mkdir()

    def source():
        opened = open_source(tmp_path / "t.parquet", fields=[parse_choice("text=text:text")])
        tokens = TextTokens(BytesTokenizer(), Sequences(max_length=40, over="truncate"))
        return TokenizedSource(opened, {"text": tokens.field("text")}, tokens)

    for index in (2, 0, 1):
        pack(source(), tmp_path / "out" / PATTERN, shard_bytes=50_000, part=Part(index, 3))
    pack(source(), tmp_path / "one.lmdb")
    with open_store(tmp_path / "one.lmdb") as one, open_store(tmp_path / "out" / "out.fastio-set") as many:
        assert one.metadata == many.metadata
        assert 300 == one.metadata["tokenizer"]["options"]["documents"]
        assert 0 < one.metadata["tokenizer"]["options"]["cut"]["documents"]


@pytest.mark.parametrize("at", [100, -200, -20], ids=["index", "header", "seal"])
def test_a_damaged_set_object_is_made_anew(tmp_path, at):
    """Opening it names fastio seal, which makes the same set object of the shards that lie there."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    expected, path = files(folder), folder / "out.fastio-set"
    content = bytearray(expected["out.fastio-set"])
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"out\.fastio-set: .*by fastio seal"):
        open_store(path)
    assert 18 == len(seal(folder / PATTERN))
    assert expected == files(folder)


def test_a_damaged_set_object_stays_while_a_shard_is_missing(tmp_path):
    """Nothing is removed before the set can be made."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    path = folder / "out.fastio-set"
    path.write_bytes(path.read_bytes()[:-5])
    (folder / (PATTERN % 1)).unlink()
    expected = files(folder)
    with pytest.raises(StoreIncomplete, match=r"out\.fastio-set: .*by fastio seal"):
        open_store(path)
    with pytest.raises(StoreIncomplete, match=r"out-000001\.tar"):
        seal(folder / PATTERN)

    assert expected == files(folder)


def test_a_damaged_set_object_hides_no_error(tmp_path):
    """A pack that ends at a bad sample says so, also if the old set object was damaged meanwhile."""
    out = packed(tmp_path, "out", source_in(tmp_path))
    last = sorted((tmp_path / "classes").glob("*/*.*"))[-1]
    last.write_bytes(b"no picture")

    def damage(samples: int, nbytes: int) -> None:
        (out / "out.fastio-set").write_bytes(b"damaged")

    with pytest.raises(SourceError, match=last.name):
        packed(tmp_path, "out", source_in(tmp_path), overwrite=True, progress=damage)
