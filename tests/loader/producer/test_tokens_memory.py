"""Memory of batches of token ids: what is estimated is used, and reading ahead fits what the process may take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastio import FastDataset, FastLoader, LengthBucketSampler, _native
from fastio.errors import StoreCorrupt
from fastio.loader.producer import tokens
from fastio.types.spans import Spans
from tests.loader.producer.test_tokens import write_tokens

CHUNK = 1 << 14


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 samples of very different lengths: padded, they take several times their tokens."""
    lengths = np.random.default_rng(0).geometric(0.05, 2000)
    return write_tokens(tmp_path_factory.mktemp("memory") / "a.h5", [np.ones(length) for length in lengths])


@pytest.mark.parametrize("depth", [1, 4, 40])
@pytest.mark.parametrize("is_bucketed", [True, False])
@pytest.mark.parametrize("read", ["map", "pread"])
def test_the_estimate_is_what_is_used(
    path: Path, depth: int, is_bucketed: bool, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Buffers take about what is estimated, however many batches are asked ahead."""
    monkeypatch.setattr(tokens, "JOB_BYTES", CHUNK)
    monkeypatch.setattr(tokens, "LOOKED_UP_BYTES", CHUNK)
    dataset = FastDataset(path, read=read)
    sampler = LengthBucketSampler(dataset.lengths, batch_size=8) if is_bucketed else None
    options: dict[str, Any] = {"batch_sampler": sampler} if is_bucketed else {"batch_size": 8, "shuffle": "full"}
    with FastLoader(dataset, threads=1, prefetch_batches=depth, **options) as loader:
        used = max(loader.stats.buffer_bytes for _ in range(2) for _ in loader)
        estimated = loader.stats.estimated_bytes

    assert 0.3 * estimated <= used <= 1.5 * estimated


def test_a_chunk_counts_its_padding(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk of batches takes about what it should, although most of it is padding."""
    monkeypatch.setattr(tokens, "JOB_BYTES", CHUNK)
    with FastLoader(path, 8, threads=1, prefetch_batches=1, shuffle="full") as loader:
        used = [loader.stats.buffer_bytes for _ in range(2) for _ in loader]
        assert loader.stats.padding > 0.55

    assert used[-1] <= 4 * 2 * CHUNK


def test_lengths_that_are_kept_keep_no_ids(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that collects the lengths of all batches needs no more buffers than one that does not."""
    monkeypatch.setattr(tokens, "JOB_BYTES", CHUNK)
    with FastLoader(path, 8, threads=1, prefetch_batches=1, shuffle="full") as loader:
        used = [(batch["lengths"], loader.stats.buffer_bytes)[1] for batch in loader]
        kept = [(batch["lengths"], loader.stats.buffer_bytes) for batch in loader]

    assert len(kept) == 250
    assert kept[-1][1] <= 1.5 * used[-1]


@pytest.mark.parametrize(("free", "is_whole"), [(1 << 40, True), (10_000, False)])
def test_reading_ahead_goes_by_what_the_process_may_take(
    path: Path, free: int, is_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store is read ahead as a whole where half of the memory that cgroups leave holds it."""
    monkeypatch.setattr(tokens, "available_memory", lambda: free)
    source = tokens.TokenSource(FastDataset(path), ("tokens",), checksums=True)

    assert is_whole == (source._whole is not None)
    source.close()


@pytest.mark.parametrize("read", ["map", "pread"])
def test_a_store_that_memory_holds_is_read_behind_the_first_batch(
    path: Path, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it, once: before the first batch, the kernel is asked for no more than samples of its look-up."""
    name = "read_ahead" if read == "map" else "read_files_ahead"
    real, asked = getattr(_native, name), list[tuple[int, int]]()

    def read_ahead(spans: Spans, *rest: Any) -> Any:
        asked.extend(zip(spans.starts.tolist(), (spans.starts + spans.sizes).tolist(), strict=True))
        return real(spans, *rest)

    monkeypatch.setattr(_native, name, read_ahead)
    monkeypatch.setattr(tokens, "_READ_AHEAD_BYTES", CHUNK)
    monkeypatch.setattr(tokens, "_LOOKED_UP_FIRST", 1)
    monkeypatch.setattr(tokens, "LOOKED_UP_BYTES", CHUNK // 8)
    dataset = FastDataset(path, read=read)
    spans = dataset.store.spans("tokens", np.arange(len(dataset)))
    with FastLoader(dataset, 8, shuffle=True) as loader:
        batches = iter(loader)
        next(batches)
        assert sum(stop - start for start, stop in asked) < spans.sizes.sum() / 10
        assert 1 + sum(1 for _ in batches) == len(dataset) // 8
    covered = np.zeros(int((spans.starts + spans.sizes).max()), bool)
    for start, stop in asked:
        covered[start:stop] = True
    assert all(covered[start : start + size].all() for start, size in zip(spans.starts, spans.sizes, strict=True))


def test_damage_that_reading_a_whole_store_meets_ends_no_epoch(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look-up of the samples that have it says so; here none has."""

    def damaged(*_: Any, **__: Any) -> Any:
        raise StoreCorrupt("of an index")
        yield

    monkeypatch.setattr(tokens, "stretches", damaged)
    monkeypatch.setattr(tokens, "_READ_AHEAD_BYTES", CHUNK)
    monkeypatch.setattr(tokens, "LOOKED_UP_BYTES", CHUNK // 8)
    with FastLoader(path, 8, shuffle="full") as loader:
        assert sum(1 for _ in loader) == 2000 // 8
