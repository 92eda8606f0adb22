"""The page of ``doctor``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from fastio.report.page import (
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
from fastio.report.steps import ms, rate, timeline_plot
from fastio.types.units import counted, gain, quantity

__all__ = ["doctor_page"]

_ROLES: Mapping[str, Literal["loading", "training"]] = {"waiting for data": "loading", "training": "training"}


def doctor_page(said: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.doctor``."""
    steps = said["steps"]
    verdict = None
    if said["pattern"] is not None:
        first = f"{steps[0]['title']}: {gain(steps[0]['gain'], is_bound=steps[0]['is_bound'])}" if steps else ""
        evidence = [said["summary"], *said["reasons"]]
        verdict = verdict_of({"bound": said["pattern"], "headroom": None, "evidence": evidence, "next_step": first})
    return Page("What limits this training?", said["command"], list(_sections(said)), verdict, _figures(said))


def _figures(said: Mapping[str, Any]) -> list[tuple[str, str]]:
    step = said["facts"]["step"] or {}
    found = [] if said["part"] is None else [("slow part of loading", said["part"].replace("_", " "))]
    loading, training = step.get("loading_s"), step.get("training_s")
    if loading is not None and training:
        found += [("waits for data", f"{loading / (loading + training):.1%}"), ("training per step", ms(training))]
        if step["samples_per_step"]:
            found.append(("rate", rate(step["samples_per_step"] / (loading + training))))
    return found


def _sections(said: Mapping[str, Any]) -> Iterator[Section]:
    if said["pattern"] is None:
        yield Section("No verdict", [Prose(said["summary"])])
    if said["failure"] is not None:
        failure = said["failure"]
        yield Section("How it ended", [Prose(f"Early: {failure['message']}"), Code(failure["text"])])
    if said["steps"]:
        yield Section("What to do, by expected gain", list(_steps(said["steps"])))
    yield from _evidence(said["evidence"])
    plot = None if said["timeline"] is None else timeline_plot(said["timeline"])
    if plot is not None:
        yield Section("Step by step", [plot])
    if len(said["samples"]) > 1:
        yield Section("Utilisation", [_utilisation(said["samples"])])
    if said["cautions"]:
        rows = [(each["title"], each["reason"], each["source"]) for each in said["cautions"]]
        yield Section("Warnings", [Table(("what", "why", "source"), rows)])
    if said["unknown"]:
        yield Section("Not seen", [Prose(line) for line in said["unknown"]])


def _steps(steps: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    for place, step in enumerate(steps, 1):
        yield Heading(f"{place}. {step['title']} ({gain(step['gain'], is_bound=step['is_bound'])})")
        yield Prose(step["reason"])
        if step["code"]:
            yield Code(step["code"])


def _evidence(evidence: Sequence[Mapping[str, Any]]) -> Iterator[Section]:
    """Yield parts of a whole as divided bars, other figures as a table."""
    parts: list[Part] = []
    for group, caption in (("step", "Of a step"), ("batch", "Of the time to make a batch")):
        shares = [each for each in evidence if each["group"] == group and each["share"] is not None]
        if shares:
            found = [
                Portion(each["name"], each["value"], ms(each["value"]), _ROLES.get(each["name"])) for each in shares
            ]
            parts.append(Shares(caption, "mean", found))
    others = [
        (each["group"], each["name"], quantity(each["value"], each["unit"]))
        for each in evidence
        if each["share"] is None
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
    for place, gpu in enumerate(samples[0]["gpus"]):
        shown = [sample["gpus"][place : place + 1] for sample in samples]  # a GPU may disappear meanwhile
        used = [each[0]["utilization_percent"] if each else None for each in shown]
        series.append(Series(f"GPU {gpu['index']}", used, "device"))
    return Plot(
        "The whole machine while steps were timed, including other programs",
        f"{counted(len(samples), 'sample')}: all CPUs {sum(cpu) / len(cpu):.0f} % busy, memory {max(memory):.0f} %.",
        "s",
        [sample["time_s"] - begun for sample in samples],
        "%",
        series,
        limit=100,
    )
