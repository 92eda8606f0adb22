"""Rounds of fresh processes: turns, failures by name, medians."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from benchmarks.report import summary
from benchmarks.rounds import CaseError, interleaved, reason_in, run_process


def test_rounds_take_turns() -> None:
    """Every case is measured once before any is measured again."""
    calls: list[str] = []

    def measure(name: str) -> dict[str, Any]:
        calls.append(name)
        return {"samples": len(calls)}

    results = interleaved(["a", "b"], measure, rounds=2)

    assert ["a", "b", "a", "b"] == calls
    assert {"a": [{"samples": 1}, {"samples": 3}], "b": [{"samples": 2}, {"samples": 4}]} == results.runs


def test_a_case_that_fails_is_reported_and_not_tried_again() -> None:
    """Its reason is kept, its earlier runs are dropped, the other cases go on."""
    calls: list[str] = []

    def measure(name: str) -> dict[str, Any]:
        calls.append(name)
        if name == "bad" and len(calls) > 2:
            raise CaseError("no such library")
        return {}

    results = interleaved(["bad", "good"], measure, rounds=4)

    assert {"bad": "no such library"} == results.failed
    assert {"good": [{}] * 4} == results.runs
    assert 2 == calls.count("bad")


def test_summary_is_of_medians() -> None:
    """Rates per CPU-second and wall are medians of the rounds; the spread is the slowest and the fastest."""
    runs = [
        {"samples": 100, "cpu_s": 2.0, "wall_s": 1.0, "first_batch_s": 0.3, "peak_rss_mb": 10.0},
        {"samples": 100, "cpu_s": 1.0, "wall_s": 4.0, "first_batch_s": 0.1, "peak_rss_mb": 30.0},
        {"samples": 400, "cpu_s": 5.0, "wall_s": 2.0, "first_batch_s": 0.2, "peak_rss_mb": 20.0},
    ]

    found = summary(runs)

    assert (80.0, 50.0, 100.0) == (found.per_cpu_second, found.slowest, found.fastest)
    assert (100.0, 12_500.0) == (found.per_second, found.cpu_us)
    assert (0.2, 20.0) == (found.first_batch_s, found.peak_rss_mb)


def test_what_was_not_measured_is_none() -> None:
    """Packings have no first batch."""
    assert summary([{"samples": 1, "cpu_s": 1.0, "wall_s": 1.0}]).first_batch_s is None


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (
            "ModuleNotFoundError: No module named 'ffcv'",
            "Traceback\n  import ffcv\nModuleNotFoundError: No module named 'ffcv'\n",
        ),
        ("ERROR: No matching distribution", "ERROR: No matching distribution\n[notice] A new release of pip\n"),
        ("libavcodec.so.59: cannot open", "loading\nlibavcodec.so.59: cannot open\n\n"),
        ("ended with status -9 without a word", "\n"),
    ],
)
def test_the_reason_is_one_line(reason: str, text: str) -> None:
    """The line that names the error, whatever was said after it."""
    assert reason == reason_in(text, status=-9)


def test_a_process_gives_the_json_on_its_last_line() -> None:
    """What it prints before does not matter; the memory of the process is added."""
    found = run_process([sys.executable, "-c", "print('hello'); print('{\"samples\": 3}')"])

    assert 3 == found["samples"]
    assert "peak_rss_mb" in found


@pytest.mark.parametrize(
    ("reason", "program"),
    [
        ("ValueError: broken", "raise ValueError('broken')"),
        ("done", "print('done')"),
        ("did not end within 0.2 s", "import time; time.sleep(60)"),
    ],
)
def test_a_process_that_fails_says_why(reason: str, program: str) -> None:
    """An exception, no result, or no end: a CaseError of one line."""
    with pytest.raises(CaseError) as caught:
        run_process([sys.executable, "-c", program], timeout_s=0.2 if "sleep" in program else 300)

    assert reason == str(caught.value)
