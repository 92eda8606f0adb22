"""Many short rows: what is packed, the first batch of fastio and torch, the chart."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from benchmarks.scale import billion, of_fastio, of_torch, packing
from benchmarks.scale.chart import draw
from benchmarks.scale.measure import first_batch
from benchmarks.scale.rows import blocks, numbers_of
from fastio.store import open_store
from fastio.store.sets.merge import merge_stores
from tests.commands import run


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


def test_rows_packed_in_parts(tmp_path: Path) -> None:
    """The rows of parts that are merged are those of the whole, wherever a part begins."""
    paths = [str(tmp_path / f"{start}.tar") for start in (0, 301, 700)]
    for path, stop in zip(paths, (301, 700, 1000), strict=True):
        billion.pack(path, int(Path(path).stem), stop)
    merge_stores(paths, str(tmp_path / "all.fastio-set"))
    assert billion.check(str(tmp_path / "all.fastio-set")) == {"compared": 10_000}
    assert [billion.row(number) for number in (0, 1, 2, 3)] == [[0], [1, 2], [3], [4, 5]]


def test_rows_have_keys_by_a_rule_or_none(tmp_path: Path) -> None:
    for keys, first in (("rule", "000000000"), ("sha1", "b6589fc6ab0dc82cf12099d1c2d40ab994e8410c")):
        packing.pack_rows(str(tmp_path / f"{keys}.h5"), 10_000, packing.KEYS[keys])
        with open_store(tmp_path / f"{keys}.h5") as store:
            assert len(store) == 10_000
            assert store.keys([0]) == [first]


def test_shards_are_read_anywhere(tmp_path: Path) -> None:
    """Figures are of samples that were compared; other ones are an error."""
    lines = tmp_path / "lines.txt"
    for begins, message in (("line", ""), ("other", "other samples than were packed")):
        lines.write_text("".join(f"{begins} {number}\n" for number in range(70)))
        run("pack", lines, tmp_path / "lines.lmdb", "--overwrite")
        run("pack", tmp_path / "lines.lmdb", tmp_path / "t-%06d.tar", "--shard-size", 32, "--overwrite")
        with pytest.raises(RuntimeError, match=message) if message else nullcontext():
            figures = packing.opened(str(tmp_path / "t.fastio-set"))
            assert (figures["shards"], figures["read"]) == (70, 70)


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
