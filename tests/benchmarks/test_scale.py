"""Many short rows: what is packed, the first batch of fastio and torch, the chart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.scale import of_fastio, of_torch
from benchmarks.scale.chart import draw
from benchmarks.scale.measure import first_batch
from benchmarks.scale.rows import blocks, numbers_of


def test_rows_are_the_digits_of_their_numbers() -> None:
    rows = np.concatenate(list(blocks(100_002)))
    assert rows.shape == (100_002, 10)
    assert rows.dtype == np.uint16
    assert rows[-1].astype("u1").tobytes() == b"0000100001"
    assert numbers_of(rows) == list(range(100_002))


def test_first_batches_are_shuffled_rows(tmp_path: Path) -> None:
    for peer, batches in ((of_torch, "batches"), (of_fastio, "full"), (of_fastio, "data_loader")):
        folder = tmp_path / peer.__name__
        if not folder.exists():
            folder.mkdir()
            peer.pack(folder, 1000)
        figures = first_batch(peer, folder, 1000, "opened", batches)
        assert figures["first_wall_s"] >= figures["opened_wall_s"] > 0


def test_a_batch_of_other_rows_is_refused(tmp_path: Path) -> None:
    of_torch.pack(tmp_path, 1000)
    with pytest.raises(RuntimeError, match="rows of the set in the first batch, not 256"):
        first_batch(of_torch, tmp_path, 500, "opened", "batches")


def test_chart_is_drawn(tmp_path: Path) -> None:
    figures = {"first_private_mb": 1.0, "first_dirty_mb": 0.5, "first_wall_s": 0.1, "first_cpu_s": 0.1}
    rows = [{"name": name, "rows": count, **figures} for name in ("fastio", "another") for count in (10_000, 100_000)]
    report = {"date": "2026-11-28", "machine": {"cpu": "a CPU"}, "settings": {"rounds": 1}, "rows": rows}
    draw(report, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
