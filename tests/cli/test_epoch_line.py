"""Why no rate was measured is said as one reason, not as a choice of two."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastio.cli.epoch_line import epoch_line, shard_bytes
from fastio.measure.machine import disk_kind
from fastio.store import open_store
from tests.commands import run


@pytest.mark.parametrize(
    ("size_bytes", "reason"),
    [
        (24_800, "its samples lie in 24.8 kB, and a rate takes at least 4.2 MB to measure"),
        (1 << 30, "its file system cannot be read past the page cache"),
    ],
)
def test_why_nothing_was_measured(size_bytes: int, reason: str) -> None:
    """A small store is told apart from a file system that does not do it."""
    assert f"epoch:  not measured: {reason}" == epoch_line(None, size_bytes)


def test_the_set_object_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards below the limit are too small, also where the set object lifts the store above it."""
    source, out = tmp_path / "corpus", tmp_path / "out-%06d.tar"
    source.mkdir()
    for number in range(20):
        (source / f"{number}.txt").write_text(f"text {number}")
    run("pack", source, out, "--shard-size", "10kB")
    with open_store(out) as store:
        shards = sum(Path(path).stat().st_size for path in store.shard_paths)
        assert shards == shard_bytes(store) < store.size_bytes
    monkeypatch.setattr(disk_kind, "LEAST_BYTES", shards + 1)
    words = "epoch:  not measured: its samples lie in "

    assert words in run("info", out)
    assert words in run("pack", source, out, "--shard-size", "10kB", "--overwrite")
