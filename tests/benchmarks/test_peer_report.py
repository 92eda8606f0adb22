"""The report of a run with peers: who is in it, in which order, and what is said of one that could not be run."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from rich.console import Console

from benchmarks.chart import draw_charts
from benchmarks.peer_report import case_name, rows, tables


def peer(environment: str, size_bytes: int | None = None) -> dict[str, Any]:
    """What a report keeps of a peer."""
    packing = {"failed": "no"} if size_bytes is None else {"size_bytes": size_bytes}
    return {"environment": environment, "remark": "as it is", "keeps_pixels": True, "packing": packing}


def run(samples: int, **more: float) -> dict[str, Any]:
    """One round of ``samples`` in one second of one CPU."""
    return {"samples": samples, "cpu_s": 1.0, "wall_s": 0.5, "first_batch_s": 0.1, "peak_rss_mb": 7.0, **more}


@pytest.fixture
def report() -> dict[str, Any]:
    """Three peers at photos, one of which could not be installed."""
    names = {"slow": peer("slow", 2_000_000), "broken": peer("broken"), "fast": peer("", 1_000_000)}
    photos = {"title": "crops", "batch_size": 8, "peers": names}
    return {
        "date": "2026-01-01",
        "machine": {"cpu": "a processor"},
        "settings": {"rounds": 2, "threads": 2},
        "tasks": {"random_224": photos, "center_224": photos},
        "runs": {
            "random_224: slow": [run(10), run(12)],
            "random_224: fast": [run(40), run(60)],
            "center_224: slow": [run(5, error=0.5), run(5, error=0.5)],
            "center_224: fast": [run(20, error=0.0), run(20, error=0.0)],
        },
        "failed": {"random_224: broken": "ERROR: no wheel", "center_224: broken": "ERROR: no wheel"},
    }


def test_the_least_cpu_time_comes_first_and_failures_last(report: dict[str, Any]) -> None:
    """Every peer has a row."""
    found = rows(report, "random_224")

    assert ["fast", "slow", "broken"] == [row.name for row in found]
    assert (None, "ERROR: no wheel") == (found[2].summary, found[2].reason)
    assert (2.0, None) == (found[1].size_mb, found[2].size_mb)


def test_an_error_is_the_distance_from_pillow(report: dict[str, Any]) -> None:
    """Random crops have nothing to be compared with."""
    assert [0.0, 0.5, None] == [row.error for row in rows(report, "center_224")]
    assert [None, None, None] == [row.error for row in rows(report, "random_224")]


def test_tables_say_why_a_peer_was_not_run(report: dict[str, Any]) -> None:
    """One table a task; the reason stands in the peer's own row."""
    console = Console(file=StringIO(), width=200)
    for table in tables(report):
        console.print(table)
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()

    assert 2 == text.count("not run: ERROR: no wheel")
    assert "not run" not in text.replace("not run: ERROR: no wheel", "")


def test_charts_are_drawn(report: dict[str, Any], tmp_path: Path) -> None:
    """Also with a peer that could not be run."""
    paths = list(draw_charts(report, tmp_path))

    assert ["peers-photos.png"] == [path.name for path in paths]
    for path in paths:
        with Image.open(path) as image:
            assert image.width > 600


def test_a_part_has_its_charts_only(report: dict[str, Any], tmp_path: Path) -> None:
    """Without the tasks that it shows there is no chart."""
    report["tasks"]["webp"] = report["tasks"].pop("random_224")
    del report["tasks"]["center_224"]

    assert [] == list(draw_charts(report, tmp_path))


def test_cases_have_the_name_of_task_and_peer() -> None:
    """The same peer may do several tasks."""
    assert "webp: DALI" == case_name("webp", "DALI")
