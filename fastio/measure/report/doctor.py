"""The page of ``doctor``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from fastio.measure.report.loop import ms, rate, timeline_plot
from fastio.measure.report.page import (
    Code,
    Heading,
    Page,
    Part,
    Plot,
    Portion,
    Prose,
    Section,
    Series,
    Shares,
    Table,
    verdict_of,
)
from fastio.types.units import counted, gain, percent, quantity

__all__ = [
    "doctor_page",
]


_ROLES: Mapping[str, Literal["loading", "training"]] = {"waiting for data": "loading", "training": "training"}


def doctor_page(report: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.doctor``."""
    steps = report["steps"]
    verdict = None
    if report["pattern"] is not None:
        first = f"{steps[0]['title']}: {gain(steps[0]['gain'], is_bound=steps[0]['is_bound'])}" if steps else ""
        evidence = [report["summary"], *report["reasons"]]
        verdict = verdict_of({"bound": report["pattern"], "headroom": None, "evidence": evidence, "next_step": first})
    return Page("What limits this training?", report["command"], list(_sections(report)), verdict, _figures(report))


def _figures(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    step = report["facts"]["step"] or {}
    figures = [] if report["part"] is None else [("slow part of loading", report["part"].replace("_", " "))]
    if step.get("steps"):
        figures.append(("without a profiler", counted(step["steps"], "step")))
    loading, training = step.get("loading_s"), step.get("training_s")
    if loading is not None and training:
        figures += [("waits for data", f"{loading / (loading + training):.1%}"), ("training per step", ms(training))]
        if step["samples_per_step"]:
            figures.append(("rate", rate(step["samples_per_step"] / (loading + training))))
    return figures


def _sections(report: Mapping[str, Any]) -> Iterator[Section]:
    if report["pattern"] is None:
        title = "No verdict" if report["failure"] is None else "The training ended early"
        yield Section(title, [Prose(report["summary"])])
    if report["failure"] is not None:
        failure = report["failure"]
        yield Section("How it ended", [Prose(f"Early: {failure['message']}"), Code(failure["text"])], said=True)
    if report["steps"]:
        yield Section("What to do, by expected gain", list(_steps(report["steps"])))
    yield from _evidence(report["evidence"])
    placement = (report["facts"]["loader"] or {}).get("placement")
    if placement:
        yield Section("Where batches are made", [Prose(line) for line in placement])
    plot = None if report["timeline"] is None else timeline_plot(report["timeline"])
    if plot is not None:
        yield Section("Step by step", [plot])
    if len(report["samples"]) > 1:
        yield Section("Utilisation", [_utilisation(report["samples"])])
    if report["cautions"]:
        rows = [(caution["title"], caution["reason"], caution["source"]) for caution in report["cautions"]]
        yield Section("Warnings", [Table(("what", "why", "source"), rows)])
    if report["unknown"]:
        yield Section("Not seen", [Prose(line) for line in report["unknown"]])


def _steps(steps: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    for number, step in enumerate(steps, 1):
        yield Heading(f"{number}. {step['title']} ({gain(step['gain'], is_bound=step['is_bound'])})")
        yield Prose(step["reason"])
        if step["code"]:
            yield Code(step["code"])


def _evidence(evidence: Sequence[Mapping[str, Any]]) -> Iterator[Section]:
    """Yield parts of a whole as divided bars, other figures as a table."""
    parts: list[Part] = []
    for group, caption in (("step", "Of a step"), ("batch", "Of the time to make a batch")):
        shares = [fact for fact in evidence if fact["group"] == group and fact["share"] is not None]
        if shares:
            portions = [
                Portion(fact["name"], fact["value"], ms(fact["value"]), _ROLES.get(fact["name"])) for fact in shares
            ]
            parts.append(Shares(caption, "mean", portions))
    others = [
        (fact["group"], fact["name"], quantity(fact["value"], fact["unit"]))
        for fact in evidence
        if fact["share"] is None
    ]
    if others:
        parts.append(Table(("", "figure", "mean"), others, right=(2,)))
    if parts:
        yield Section("Evidence", parts)


def _utilisation(samples: Sequence[Mapping[str, Any]]) -> Plot:
    """Return CPUs and GPUs, in percent, over the timed steps."""
    begun = samples[0]["time_s"] - samples[0]["seconds"]
    cpu = [sum(sample["cpu_percents"]) / len(sample["cpu_percents"]) for sample in samples]
    memory = [100 * sample["memory_used_bytes"] / sample["memory_total_bytes"] for sample in samples]
    series = [Series("all CPUs", cpu, "loading"), Series("memory", memory, "memory")]
    for number, gpu in enumerate(samples[0]["gpus"]):
        shown = [sample["gpus"][number : number + 1] for sample in samples]  # a GPU may disappear meanwhile
        used = [shown_gpu[0]["utilization_percent"] if shown_gpu else None for shown_gpu in shown]
        series.append(Series(f"GPU {gpu['index']}", used, "device"))
    return Plot(
        "The whole machine while steps were timed, including other programs",
        f"{counted(len(samples), 'sample')}: all CPUs {percent(sum(cpu) / len(cpu))} busy, "
        f"memory {percent(max(memory))}.",
        "s",
        [sample["time_s"] - begun for sample in samples],
        "%",
        series,
        limit=100,
    )
