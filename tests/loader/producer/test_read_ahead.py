"""Loaders over files that no page cache keeps: what is requested, held, and let go, and the same batches."""

from __future__ import annotations

import gc
import logging
import re
from itertools import count, pairwise
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch

from fastio import FastDataset, FastLoader
from fastio.loader.producer.read_ahead import HeldReader, WindowReader
from fastio.samplers.batches import Batches
from fastio.store import SampleBatch, create_store
from fastio.store.files import KINDS
from fastio.store.files.remote.remote_files import RemoteFiles
from fastio.transforms import RandomCrop
from fastio.types.schema import TOKENS, Field, Schema
from fastio.types.spans import Spans
from tests.conftest import encode, pictures, write_store
from tests.store.build import make_spans
from tests.store.files.holding_toy import HoldingBucket, HoldingFiles
from tests.store.files.range_server import Response, range_server
from tests.store.files.toy import SCHEME


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> HoldingBucket:
    """Known to KINDS."""
    bucket = HoldingBucket()
    monkeypatch.setitem(KINDS, "toy", bucket.kind())
    return bucket


COUNT = 3000
TOKEN_ROWS = Schema((Field("tokens", TOKENS, "<u2", (None,)),))
LANES = "200000"  # bytes that an order may count on: 64 lanes of a few blocks


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 3,000 PNGs of 8 x 8 pixels, 270 bytes each."""
    values = [encode(pixels) for pixels in pictures(COUNT)]
    return write_store(tmp_path_factory.mktemp("held") / "x.h5", values, np.arange(COUNT, dtype=np.int64) % 3)


@pytest.fixture
def url(bucket: HoldingBucket, local: Path) -> str:
    """The same store as an object."""
    bucket.put(f"{SCHEME}x.h5", local.read_bytes())
    return f"{SCHEME}x.h5"


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store counts as one that memory does not hold."""
    monkeypatch.setattr("fastio.loader.producer.read_ahead._LEAST_BYTES", 500)
    monkeypatch.setattr("fastio.loader.producer.read_ahead._UNIT_BYTES", 5_000)
    monkeypatch.setattr("fastio.samplers.choice._LEAST_BLOCK_BYTES", 100)
    monkeypatch.setenv("FASTIO_SHUFFLE_MEMORY", LANES)


def _epoch(loader: FastLoader) -> list[torch.Tensor]:
    return [torch.cat([torch.flatten(images), labels.to(torch.uint8)]) for images, labels in loader]


def _compared(url: str, local: Path, **options: Any) -> None:
    """Two epochs of each of two ranks: the tensors and the receipts are equal."""
    options |= {"transforms": [RandomCrop(8, padding=2)], "threads": 1, "seed": 3}
    for rank in range(2):
        with (
            FastLoader(FastDataset(url), 8, rank=rank, world_size=2, **options) as held,
            FastLoader(FastDataset(local), 8, rank=rank, world_size=2, **options) as plain,
        ):
            for _ in range(2):
                for got, expected in zip(_epoch(held), _epoch(plain), strict=True):
                    assert torch.equal(expected, got)
                assert plain.receipt(own=True) == held.receipt(own=True)


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("shuffle", [False, True, "full"])
def test_a_small_store_is_held_whole(bucket: HoldingBucket, url: str, local: Path, shuffle: Any, depth: int) -> None:
    """Its batches are those of the local file, in any order, and one request of an epoch has all samples."""
    before = len(bucket.reads)
    _compared(url, local, shuffle=shuffle, prefetch_batches=depth)
    assert bucket.missed == 0
    assert 4 <= len(bucket.reads) - before <= 4 + 2 * 4  # an epoch each, and the opening of two datasets
    gc.collect()
    assert not list(bucket.held)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("shuffle", [False, True])
def test_windows_are_held(bucket: HoldingBucket, url: str, local: Path, shuffle: Any, depth: int) -> None:
    """Windows have every sample before it is needed, and are let go; the batches are those of the local file."""
    _compared(url, local, shuffle=shuffle, prefetch_batches=depth)
    assert bucket.missed == 0
    assert bucket.found == 4 * COUNT // 2
    gc.collect()
    assert not list(bucket.held)


@pytest.mark.usefixtures("large")
def test_single_samples(bucket: HoldingBucket, url: str, local: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An order of single samples has no windows: it fetches what it needs, gives the same batches, and says so once."""
    with caplog.at_level(logging.WARNING):
        _compared(url, local, shuffle="full")
    assert bucket.found == 0
    assert bucket.missed == 4 * COUNT // 2
    lines = [record.getMessage() for record in caplog.records if "request of its own" in record.getMessage()]
    assert len(lines) == 2  # one a loader
    assert "toy://x.h5" in lines[0]
    assert "shuffle=True" in lines[0]


@pytest.mark.usefixtures("large")
def test_the_memory_that_is_advised_is_enough(
    bucket: HoldingBucket, url: str, local: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the variable set as the line says, nothing is a request of its own."""
    with caplog.at_level(logging.WARNING):
        _compared(url, local, shuffle="full")
    name, value = re.findall(r"(FASTIO_SHUFFLE_MEMORY)=(\w+)", caplog.text)[0]
    monkeypatch.setenv(name, value)
    before = bucket.missed
    _compared(url, local, shuffle="full")
    assert bucket.missed == before


def test_a_full_shuffle_reads_everything_once_if_memory_may_hold_it(
    bucket: HoldingBucket, url: str, local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two ranks, too, whose samples have gaps between them; with less memory, it takes single samples."""
    monkeypatch.setattr("fastio.loader.producer.read_ahead._UNIT_BYTES", 5_000)
    monkeypatch.setattr("fastio.loader.producer.read_ahead._LEAST_BYTES", 500)
    with FastLoader(url, 8, shuffle="full", threads=1) as loader:
        assert list(loader)
        assert loader.stats.held is not None
        needed = loader.stats.held.size_bytes
    monkeypatch.setenv("FASTIO_SHUFFLE_MEMORY", str(needed + COUNT))
    _compared(url, local, shuffle="full")
    assert bucket.missed == 0
    monkeypatch.setenv("FASTIO_SHUFFLE_MEMORY", str(needed // 3))
    _compared(url, local, shuffle="full")
    assert bucket.missed == 4 * COUNT // 2


@pytest.mark.parametrize("shuffle", [True, "full"])
def test_the_first_batch_is_looked_up_alone(
    bucket: HoldingBucket, url: str, monkeypatch: pytest.MonkeyPatch, shuffle: Any
) -> None:
    """They are asked for before all else, and looked up alone."""
    monkeypatch.setattr("fastio.loader.producer.read_ahead._LEAST_WAITED_BYTES", 0)
    monkeypatch.setattr("fastio.loader.producer.read_ahead._GAP_BYTES", 0)
    fetched: list[int] = []
    fetch = HoldingFiles.fetch

    def counted(files: HoldingFiles, spans: Spans, **options: Any) -> Any:
        fetched.append(len(spans))
        return fetch(files, spans, **options)

    monkeypatch.setattr(HoldingFiles, "fetch", counted)
    with FastLoader(url, 8, shuffle=shuffle, threads=1) as loader:
        before = len(bucket.reads)
        assert COUNT // 8 == len(list(loader))
    assert 8 == fetched[0]
    first = bucket.reads[before : before + 8]
    assert all(stop - start < 400 for _, start, stop in first)
    assert bucket.missed == 0


def test_long_ranges_are_cut(bucket: HoldingBucket, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that lie side by side are several requests, none much longer than a unit, with every byte once."""
    monkeypatch.setattr("fastio.loader.producer.read_ahead._UNIT_BYTES", 10_000)
    monkeypatch.setattr("fastio.loader.producer.read_ahead._LEAST_BYTES", 500)
    monkeypatch.setenv("FASTIO_SHUFFLE_MEMORY", "2MB")
    with FastLoader(url, 8, shuffle="full", threads=1) as loader:
        before = len(bucket.reads)
        assert list(loader)
        held = loader.stats.held
    reads = sorted(bucket.reads[before:])
    assert held is not None
    assert all(stop - start <= 15_000 + 400 for _, start, stop in reads)
    assert all(stop <= start for (_, _, stop), (_, start, _) in pairwise(reads))


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("shuffle", [False, True])
def test_requests_and_memory_are_those_of_the_arithmetic(bucket: HoldingBucket, url: str, shuffle: Any) -> None:
    """``stats.held`` says how many requests an epoch takes, for how many bytes, and how many are in memory at most."""
    with FastLoader(url, 8, shuffle=shuffle, threads=1, prefetch_batches=1) as loader:
        assert loader.stats.held is None
        before = len(bucket.reads)
        for batch in loader:
            del batch
        reads, held = bucket.reads[before:], loader.stats.held
        assert held is not None
        assert len(reads) == held.requests
        assert sum(stop - start for _, start, stop in reads) == held.size_bytes
        assert bucket.most_held == held.memory_bytes < len(bucket.objects[url][0]) // 2


@pytest.mark.usefixtures("large")
def test_the_first_batch_waits_for_little(bucket: HoldingBucket, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked for far ahead is asked for after the samples of the first batch have come."""
    begun: list[int] = []
    fetch = HoldingFiles.fetch

    def counted(files: HoldingFiles, spans: Spans, **options: Any) -> Any:
        begun.append(len(bucket.reads))
        return fetch(files, spans, **options)

    monkeypatch.setattr(HoldingFiles, "ahead_bytes", 400_000)
    monkeypatch.setattr(HoldingFiles, "fetch", counted)
    with FastLoader(url, 8, shuffle=False, threads=1) as loader:
        before = len(bucket.reads)
        for batch in loader:
            del batch
    samples = 3 * HoldingFiles.chunk_bytes // 270
    assert begun[0] - before <= 1 + samples * 270 // 5_000
    assert max(begun) - before > 400_000 // 5_000


@pytest.fixture
def single(monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples of a first batch are asked for alone if the windows around them are four times as large."""
    monkeypatch.setattr("fastio.loader.producer.read_ahead._LEAST_WAITED_BYTES", 0)
    monkeypatch.setattr("fastio.loader.producer.read_ahead._GAP_BYTES", 0)
    monkeypatch.setattr(HoldingFiles, "chunk_bytes", 1000)


@pytest.mark.usefixtures("large", "single")
@pytest.mark.parametrize("depth", [1, 4])
def test_the_first_batch_waits_for_its_own_samples(
    bucket: HoldingBucket, url: str, local: Path, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In lanes they are asked for alone, before the blocks around them; the count of requests is that of the plan."""
    planned: list[Batches] = []
    plan = HeldReader.plan
    monkeypatch.setattr(HeldReader, "plan", lambda reader, batches: planned.append(batches) or plan(reader, batches))
    options: dict[str, Any] = {"shuffle": True, "threads": 1, "seed": 3, "prefetch_batches": depth}
    with FastLoader(url, 8, **options) as loader, FastLoader(local, 8, **options) as plain:
        before = len(bucket.reads)
        for got, expected in zip(loader, plain, strict=True):
            assert torch.equal(expected[0], got[0])
        reads, held = bucket.reads[before:], loader.stats.held
    assert held is not None
    assert bucket.missed == 0
    assert len(reads) == held.requests
    assert sum(stop - start for _, start, stop in reads) == held.size_bytes
    store = FastDataset(local).store
    spans = store.spans("image", planned[0].indices[:8])
    assert held.size_bytes == store.spans("image", np.arange(COUNT)).sizes.sum() + spans.sizes.sum()
    firsts = [start for _, start, _ in reads[:8]]
    assert sorted(spans.starts.tolist()) == firsts
    assert sum(stop - start for _, start, stop in reads[:8]) == spans.sizes.sum()
    gc.collect()
    assert not list(bucket.held)


@pytest.mark.usefixtures("large", "single")
@pytest.mark.parametrize("name", ["_LEAST_WAITED_BYTES", "_MOST_SINGLE", "_SINGLE_SHARE"])
def test_when_the_first_batch_waits_for_windows(
    bucket: HoldingBucket, url: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """That is when its windows are small, its samples many, or a large part of the epoch: no byte comes twice then."""
    monkeypatch.setattr(f"fastio.loader.producer.read_ahead.{name}", 1 << 40 if name == "_LEAST_WAITED_BYTES" else 0)
    with FastLoader(url, 8, shuffle=True, threads=1, seed=3) as loader:
        before = len(bucket.reads)
        for batch in loader:
            del batch
        shuffle, reads = loader.stats.shuffle, bucket.reads[before:]
    assert shuffle is not None
    assert len(set(reads)) == len(reads)
    assert sum(stop - start for _, start, stop in reads) <= shuffle.store_bytes


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(("shuffle", "come"), [(False, 80), (True, 450)])  # half of the requests of an epoch
def test_batches_are_made_while_the_rest_arrives(
    local: Path, monkeypatch: pytest.MonkeyPatch, shuffle: Any, come: int
) -> None:
    """A batch waits for its own samples, not for others that were asked for with them."""
    monkeypatch.setattr(RemoteFiles, "chunk_bytes", 10_000)
    may_come, answers = Event(), count()

    def held_back(_: Response) -> None:
        if next(answers) >= come:
            may_come.wait(300)

    with range_server() as server:
        url = server.put("x.h5", local.read_bytes())
        with FastLoader(url, 8, shuffle=shuffle, threads=1, prefetch_batches=1) as loader:
            server.always = held_back
            batches = iter(loader)
            firsts = [next(batches)[1] for _ in range(4)]
            may_come.set()
            labels = torch.cat([*firsts, *(labels for _, labels in batches)])
    assert COUNT == len(labels)


@pytest.mark.usefixtures("large")
def test_one_request_a_block(bucket: HoldingBucket, url: str) -> None:
    """A block of an order in lanes is one request, though windows begin within blocks; each byte comes once."""
    with FastLoader(url, 8, shuffle=True, threads=1) as loader:
        for batch in loader:
            del batch
        shuffle, held = loader.stats.shuffle, loader.stats.held
        assert shuffle is not None
        assert held is not None
        assert shuffle.kind == "lanes"
        blocks = shuffle.store_bytes // shuffle.block_bytes
        assert held.requests <= 1.05 * blocks
        assert held.size_bytes <= 1.05 * shuffle.store_bytes


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("shuffle", [False, True])
def test_resume(bucket: HoldingBucket, url: str, local: Path, shuffle: Any) -> None:
    """A state saved on local files goes on behind a URL."""
    options: dict[str, Any] = {"shuffle": shuffle, "threads": 1, "seed": 3}
    with FastLoader(local, 8, **options) as plain, FastLoader(url, 8, **options) as held:
        batches = iter(plain)
        for _ in range(20):
            next(batches)
        held.load_state_dict(plain.state_dict())
        rest = [(images.clone(), labels) for images, labels in batches]
        for (got, labels), (expected, expected_labels) in zip(held, rest, strict=True):
            assert torch.equal(expected, got)
            assert torch.equal(expected_labels, labels)
    assert bucket.missed == 0


@pytest.mark.usefixtures("large")
def test_leaving_an_epoch_lets_go(bucket: HoldingBucket, url: str) -> None:
    """A loop that breaks off holds nothing afterwards."""
    with FastLoader(url, 8, shuffle=True, threads=1) as loader:
        for _ in loader:
            break
        gc.collect()
        assert not [each for each in bucket.held if each.nbytes]


@pytest.mark.usefixtures("large")
def test_a_transform_of_pillow(bucket: HoldingBucket, url: str, local: Path) -> None:
    """Python threads that make samples find them in what is held, however late they come."""
    for shuffle in (False, True):
        options: dict[str, Any] = {"shuffle": shuffle, "threads": 2, "seed": 3}
        transform = ToSum()
        with (
            FastLoader(FastDataset(url, transform), 8, **options) as held,
            FastLoader(FastDataset(local, transform), 8, **options) as plain,
        ):
            for (got, _), (expected, _) in zip(held, plain, strict=True):
                assert torch.equal(expected, got)
    assert bucket.missed == 0


class ToSum:
    """The sum of a picture's pixels."""

    def __call__(self, picture: Any) -> int:
        """One number."""
        return int(np.asarray(picture).sum())


# Windows of files that the page cache keeps.


ROWS = 4000


@pytest.fixture(scope="module")
def token_rows(tmp_path_factory: pytest.TempPathFactory) -> FastDataset:
    """A set of rows of one to three ids in eight shards and more."""
    folder, rng = tmp_path_factory.mktemp("rows"), np.random.default_rng(0)
    with create_store(folder / "x-%06d.tar", TOKEN_ROWS, shard_bytes=2000) as writer:
        values = [rng.bytes(2 * int(ids)) for ids in rng.integers(1, 4, ROWS)]
        writer.append(SampleBatch([f"{i:05d}" for i in range(ROWS)], {"tokens": make_spans(values)}))
        writer.close({})
    dataset = FastDataset(folder / "x.fastio-set")
    assert len(dataset.store.shards) >= 8
    return dataset


@pytest.mark.parametrize("job_bytes", [100, 1 << 20])
@pytest.mark.parametrize("step", [1, 7, 100])
def test_windows_over_many_files(
    job_bytes: int, step: int, token_rows: FastDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Stretches of files are asked for, in order, that cover all samples of a store or a subset once. A window that goes
    over files is cut there, not into its samples; one of scattered samples is.
    """
    monkeypatch.setattr("fastio.loader.producer.read_ahead._JOB_BYTES", job_bytes)
    wanted = np.arange(0, ROWS, step)
    reader = WindowReader(token_rows, None if step == 1 else wanted)
    batches = reader.with_windows(Batches(wanted, np.array([0, len(wanted)])), is_held=True)
    assert batches.windows is not None
    spans, runs = reader.extents(batches.windows, 4)
    assert (np.diff(runs) >= 0).all()
    places = spans.shard.astype(np.int64) << 40 | spans.starts
    assert (np.diff(places) > 0).all()
    own = token_rows.store.spans("tokens", wanted)
    which = np.searchsorted(places, own.shard.astype(np.int64) << 40 | own.starts, side="right") - 1
    assert (spans.shard[which] == own.shard).all()
    assert (own.starts + own.sizes <= spans.starts[which] + spans.sizes[which]).all()
    assert np.array_equal(np.unique(which), np.arange(len(spans)))
    if step == 1:
        assert int(spans.sizes.sum()) == int(own.sizes.sum())
        assert len(spans) < ROWS // 5
    if step == 100:
        assert len(spans) == len(wanted)
