"""Plans: what a digest covers, and that a shard is a pure function of its plan and its number."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio.converters import ListedSource, Part, Raw, Transcode, open_source, pack
from fastio.converters.packing import plan as plan_module
from fastio.converters.packing.plan import plan_of
from fastio.converters.sources.source import split_by_bytes
from fastio.errors import SchemaError
from fastio.store import FORMATS
from fastio.store.write import keys as key_ledger
from tests.converters.packing.sources import PATTERN, SHARD_BYTES, files, keys, packed, source_in
from tests.converters.trees import flat, picture

TAR = FORMATS["tar"]


def digest(source, **options):
    """The digest of a plan for small shards."""
    return plan_of(source, TAR, **{"shard_bytes": SHARD_BYTES, **options}).digest


def listed(count):
    """A source that is never read."""
    names = [f"{number:06d}.png" for number in range(count)]
    return ListedSource(
        path="x",
        kind="flat",
        schema=source_schema(),
        metadata={"classes": None, "source": {"kind": "flat", "name": "x"}},
        keys_at=lambda indices: [names[i] for i in indices.tolist()],
        sizes=np.arange(count, dtype=np.int64) * 7 % 5000,
        read=lambda indices, pool: None,
        disk_bytes=0,
        files_opened=count,
        columns={"label": np.arange(count, dtype=np.int64) % 10},
    )


def source_schema():
    """Pictures with a label."""
    from fastio.converters.sources.files import IMAGE_FIELD, LABEL_FIELD
    from fastio.types.schema import Schema

    return Schema((IMAGE_FIELD, LABEL_FIELD))


def test_the_digest_of_a_known_source():
    """It is the same on every machine and Python, for good: shards that lie there are compared with it."""
    plan = plan_of(listed(1000), TAR, shard_bytes=1 << 20)

    assert (10672816603440680597, [0, 347, 558, 749, 1000]) == (plan.digest, plan.cuts.tolist())


def test_shards_cover_the_source():
    """Each sample lies in one shard; none is larger than asked for unless a single sample is."""
    source = listed(1000)
    plan = plan_of(source, TAR, shard_bytes=20_000)
    costs = TAR.sample_bytes(source.schema, {"image": source.sizes}, 1000)

    assert list(range(1000)) == [i for number in range(len(plan)) for i in plan.samples_of(number)]
    assert max(costs[plan.cuts[k] : plan.cuts[k + 1]].sum() for k in range(len(plan))) <= 20_000


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": np.arange(1000, dtype=np.int64)},
        {"columns": {"label": np.zeros(1000, np.int64)}},
        {"keys_at": lambda indices: [f"{i:06d}.jpg" for i in indices.tolist()]},
        {"metadata": {"classes": ["a"], "source": {"kind": "flat", "name": "x"}}},
        {"order": np.arange(999)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_digest_covers_what_is_known_of_the_source(change):
    """Another key, size, label, class or order is another plan."""
    assert digest(listed(1000)) != digest(replace(listed(1000), **change))


def test_the_digest_covers_the_options(tmp_path):
    """What is done to pictures, the size of shards and the seed of the order change it; the path does not."""
    source = source_in(tmp_path)
    options = [{}, {"pictures": Transcode(restart=8)}, {"pictures": Transcode(restart=4)}, {"shard_bytes": 9000}]
    digests = [digest(source, **each) for each in options]
    digests += [digest(source.shuffled(0)), digest(source.shuffled(1))]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "classes").symlink_to(tmp_path / "classes")

    assert len(digests) == len(set(digests))
    assert digests[0] == digest(open_source(tmp_path / "elsewhere" / "classes"))


@pytest.mark.parametrize("table", [key_ledger.TABLE_NAMES, 16])
def test_a_key_that_comes_twice_is_found_before_anything_is_packed(table, monkeypatch):
    """In rising order and in any other, also far from the first, in memory and by runs on disk."""
    monkeypatch.setattr(key_ledger, "TABLE_NAMES", table)
    monkeypatch.setattr(plan_module, "_BLOCK", 20)
    for order in (list(range(300)), random.Random(0).sample(range(300), 300)):
        order[250] = order[3]
        source = replace(listed(300), order=np.array(order))
        with pytest.raises(SchemaError, match=f"key '{order[3]:06d}.png' comes twice"):
            digest(source)


def test_cuts_of_blocks_are_those_of_all(monkeypatch):
    """Shards end where they would if all sizes were known at once, whatever the blocks that are looked at."""
    rng = np.random.default_rng(0)
    for limit in (1, 5, 20, 100):
        costs = rng.integers(0, 30, 200)
        expected = [0, *(piece.stop for piece in split_by_bytes(costs, limit, len(costs)))]
        for block in (1, 7, 200):
            cuts = plan_module._Cuts(limit)
            for start in range(0, len(costs), block):
                cuts.add(costs[start : start + block])
            assert expected == cuts.every().tolist()


def spoiled(tmp_path):
    """A flat folder in which some pictures are bad, one is misnamed, and some names differ in their extension alone."""
    folder = tmp_path / "mixed"
    flat(folder, 30)
    for number in (3, 4, 5, 17):
        (folder / f"{number:04d}.png").write_bytes(b"no picture")
    (folder / "0008.jpg").write_bytes(picture(8, size=(40, 30)))  # a PNG
    (folder / "0009.png").write_bytes(picture(9, size=(40, 30)))
    (folder / "0010.png").write_bytes(picture(10, size=(40, 30)))
    (folder / "0010.jpg").write_bytes(picture(11, kind="JPEG", size=(40, 30)))
    (folder / "notes.txt").write_text("left out")
    return open_source(folder)


PICTURES = [None, Transcode(restart=1), Transcode(short_side=4), Transcode(resize=(5, 5)), Raw((4, 4)), Raw()]


@pytest.mark.parametrize("pictures", PICTURES, ids=str)
def test_a_set_is_the_same_bytes_by_whatever_parts(tmp_path, pictures):
    """Any division, order and number of threads, and any rerun, gives the files of one process, to the byte."""
    source = spoiled(tmp_path).shuffled(1)
    one = files(packed(tmp_path, "one", source, pictures=pictures, on_error="skip"))
    draw = random.Random(str(pictures))
    for count in (2, 3, 50):
        order = draw.sample(range(count), count)
        for index in [*order, order[0]]:
            part = Part(index, count)
            jobs = draw.choice((1, 2, 5))
            folder = packed(tmp_path, f"parts{count}", source, pictures=pictures, on_error="skip", part=part, jobs=jobs)

        assert one == files(folder)


def test_a_set_says_what_a_single_file_says(tmp_path):
    """The joined metadata of shards are those of a store of one file: ledgers, counts, the first of each kind."""
    from fastio.store import open_store

    for number, pictures in enumerate(PICTURES):
        source = spoiled(tmp_path) if number == 0 else open_source(tmp_path / "mixed")
        folder = packed(tmp_path, f"set{number}", source, pictures=pictures, on_error="skip")
        report = pack(source, tmp_path / f"one{number}.tar", pictures=pictures, on_error="skip")
        with open_store(tmp_path / f"one{number}.tar") as one, open_store(folder / "out.fastio-set") as many:
            assert one.metadata == many.metadata
            assert list(one.metadata) == list(many.metadata)
            assert one.keys(range(len(one))) == many.keys(range(len(many)))
        again = pack(source, folder / PATTERN, shard_bytes=SHARD_BYTES, pictures=pictures, on_error="skip", resume=True)
        for name in ("found", "packed", "skipped", "left_out", "payload_bytes", "source_bytes", "packing"):
            assert getattr(report, name) == getattr(again, name), name


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 40), st.integers(0, 200))
def test_parts_are_all_shards_once(count, shards):
    """Each shard belongs to one part, and parts differ by at most one shard."""
    parts = [Part(index, count).numbers(shards) for index in range(count)]

    assert list(range(shards)) == [number for part in parts for number in part]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_set_has_the_order_of_its_source(tmp_path):
    """Shuffled or not, the keys of a set are those of the source, one after the other."""
    source = source_in(tmp_path).shuffled(5)

    assert source.keys == keys(packed(tmp_path, "out", source))
