"""The doctor's page: what to do, evidence, timeline, utilisation, warnings."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from fastio.measure.doctor.diagnosis import diagnose
from fastio.measure.doctor.facts import Facts
from fastio.measure.report.doctor import doctor_page
from fastio.measure.report.html import html_of
from fastio.measure.report.page import Plot
from tests.measure.doctor.test_diagnosis import CAUTIONS, LOADER, MAKING, PUBLISHED, STEP
from tests.measure.doctor.test_saved import SAMPLE

TIMELINE = {"first_step": 3, "is_first": [False] * 3, "loading_s": [0.1] * 3, "training_s": [0.2] * 3}


def form(facts: Facts, **more: Any) -> dict[str, Any]:
    """The doctor's JSON of these facts."""
    said = {"command": "train.py", "failure": None, "timeline": None, "samples": [], "facts": asdict(facts)}
    return said | asdict(diagnose(facts)) | more


def test_everything_that_was_seen_is_there() -> None:
    """Sections for steps, evidence, timeline, utilisation and warnings; the verdict on top."""
    facts = Facts(step=STEP, loader=replace(LOADER, making=replace(MAKING, queued_s=0.1)), unknown=("this",))
    page = doctor_page(form(facts, timeline=TIMELINE, samples=[SAMPLE, SAMPLE]))
    html = html_of(page, {})

    titles = ["What to do, by expected gain", "Evidence", "Step by step", "Utilisation", "Warnings", "Not seen"]
    assert titles == [section.title for section in page.sections]
    assert page.verdict is not None
    assert "fastio pack" in html
    assert 2 == html.count('data-chart="shares"')
    assert 2 == html.count('data-chart="plot"')


def test_a_gpu_that_was_lost_on_the_way() -> None:
    """Its curve ends."""
    gpu = {"index": 0, "name": "G", "utilization_percent": 50.0}
    page = doctor_page(form(Facts(step=STEP), samples=[SAMPLE | {"gpus": [gpu]}, SAMPLE | {"gpus": []}]))
    (plot,) = next(section for section in page.sections if section.title == "Utilisation").parts
    assert isinstance(plot, Plot)

    assert ("GPU 0", [50.0, None]) == (plot.series[-1].name, plot.series[-1].values)


@pytest.mark.parametrize("facts", [*(facts for *_, facts in PUBLISHED), *(facts for _, facts in CAUTIONS)])
def test_any_diagnosis_becomes_a_page(facts: Facts) -> None:
    """With and without a verdict, steps and figures."""
    failure = {"message": "RuntimeError: no", "text": "Traceback", "code": 1}
    page = doctor_page(form(facts, failure=failure))

    assert (page.verdict is None) == (diagnose(facts).pattern is None)
    assert "RuntimeError: no" in html_of(page, {})
