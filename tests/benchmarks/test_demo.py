"""The demo's page: rates, verdict, pictures and what was checked, in one small file; and the run that makes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import demo, demo_epoch
from benchmarks.demo_page import demo_page, verdict_sentence
from benchmarks.synthetic import make_pngs
from fastio.cli import cli
from fastio.measure.report.html import html_of

TIMELINE = {"first_step": 0, "is_first": [True, False], "loading_s": [0.2, 0.1], "training_s": [0.01, 0.01]}


def training(bound: str, io: float) -> dict[str, Any]:
    """What a row has that was read under a training."""
    rates = {"io_samples_per_s": io, "training_samples_per_s": 1000.0, "loop_samples_per_s": min(io, 1000.0)}
    return {**rates, "step_ms": 10.0, "batch_size": 128, "loading_share": 0.5, "bound": bound, "timeline": TIMELINE}


def row(name: str, rate: float, **more: Any) -> dict[str, Any]:
    """One way of reading."""
    measured = {"samples": 40, "samples_per_s": rate, "opened": 40 if name == "files" else 1, "disk_bytes": 4096}
    return {"name": name, "how": f"how {name} are read", **measured, **more}


ROWS = [
    row("files", 500.0, training=training("io_bound", 500.0)),
    row("LMDB", 5000.0, training=training("compute_bound", 5000.0)),
    row("HDF5", 4000.0),
    row("tar", 3000.0),
]


def test_the_page_has_what_was_measured() -> None:
    """Four rates, the verdict in one sentence, loading next to training, and how many samples were checked."""
    checked = [{"name": name, "samples": 40, "compared": 40, "problems": 0} for name in ("LMDB", "HDF5", "tar")]
    page = demo_page({"folder": "demo", "rows": ROWS, "checked": checked}, None)
    html = html_of(page, {})

    assert page.verdict is not None
    assert "From files, training waits for data; from LMDB, training is the limit" == page.verdict.headline
    assert [
        ("packed, compared with files", "6.0 to 10.0 times as fast"),
        ("files opened", "1 instead of 40"),
        ("samples checked", "120"),
        ("problems found", "0"),
    ] == list(page.figures)
    assert "Samples per second; the dashed line is what training could use: " in html
    for text in ("500 samples/s", "5,000 samples/s", "4,000 samples/s", "3,000 samples/s", "1,000 samples/s"):
        assert text in html
    assert (2, 2) == (html.count('data-chart="bars"'), html.count('data-chart="plot"'))


def test_the_same_limit_twice_is_one_clause() -> None:
    """Sources with one limit share a clause."""
    rows = [row(name, 1.0, training=training("io_bound", 1.0)) for name in ("files", "LMDB")]

    assert "From files and LMDB, training waits for data" == verdict_sentence(rows)


def test_a_busy_machine_is_not_the_loader() -> None:
    """A loader that is faster than training is not called the limit where the loop waits: it lacks CPUs."""
    rows = [row("files", 1.0, training=training("io_bound", 1.0)), row("LMDB", 2.0, training=training("io_bound", 2e3))]

    page = demo_page({"folder": "demo", "rows": rows, "checked": []}, None)
    assert page.verdict is not None

    assert "From files, training waits for data; from LMDB, loading alone would keep up, but the CPUs were busy" == (
        verdict_sentence(rows)
    )
    assert "files: io_bound, LMDB: CPUs busy" == page.verdict.name
    assert [False, True] == ["the loader gets 2,000 samples/s: the CPUs" in line for line in page.verdict.evidence]


def test_reading_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sample is read once, and the loop is measured for a while; the hook that counts files never ends."""
    monkeypatch.setattr(demo_epoch, "_count_opens", lambda _: type("Counter", (), {"value": 5}))
    labels = make_pngs(tmp_path / "pngs", 130)
    line = demo_epoch.measure("files", tmp_path / "pngs", labels, workers=0, step_ms=1.0, seconds=0.02)

    assert (130, 5) == (line["samples"], line["opened"])
    assert line["training"]["io_samples_per_s"] > 0
    assert line["training"]["timeline"]["loading_s"]


def test_the_demo_ends_with_the_path_of_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three stores are packed and compared, and the page with their pictures is the last line."""
    rows = {each["name"]: each for each in ROWS}
    monkeypatch.setattr(demo, "_read", lambda name, *_: rows[name])
    monkeypatch.setattr(demo, "_fastio", lambda *arguments: CliRunner().invoke(cli, arguments).stdout)
    result = CliRunner().invoke(demo.main, ["--folder", str(tmp_path), "--count", "40"], catch_exceptions=False)
    page = Path(result.stdout.splitlines()[-1])
    html = page.read_text()

    assert tmp_path / "report.html" == page
    assert demo.PICTURES_SHOWN == html.count('src="data:image/jpeg')
    assert "<dd>120</dd>" in html
    assert len(html) < 1_000_000
