"""The page of ``make demo``: rates, the verdict, sample pictures, and what was checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastio.measure.report.loop import rate, timeline_plot
from fastio.measure.report.page import (
    Bar,
    Bars,
    Heading,
    Page,
    PageVerdict,
    Part,
    PictureGrid,
    Plot,
    Prose,
    ReferenceLine,
    Section,
    Table,
    headline,
)
from fastio.types.units import counted, number, per_second

__all__ = ["demo_page", "verdict_sentence"]


def demo_page(report: Mapping[str, Any], pictures: PictureGrid | None) -> Page:
    """
    Build the page from what the demo measured.

    ``report`` has ``folder``; ``rows``, one for each way of reading, files first; and ``checked``, what ``fastio
    verify`` reported of each store. Rows with ``training`` were also read under a mock training.
    """
    rows, checked = report["rows"], report["checked"]
    trained = [row for row in rows if "training" in row]
    sections = [
        Section("The same pictures, read four ways", _reading(rows)),
        Section("Loading against training", _training(trained)),
        Section("Checked", _checked(checked)),
    ]
    if pictures is not None:
        sections.insert(2, Section("Pictures and labels, as the store holds them", [pictures]))
    compared, problems = (sum(store[name] for store in checked) for name in ("compared", "problems"))
    opened = max(int(row["opened"]) for row in rows[1:])
    figures = (
        ("packed, compared with files", f"{_times_as_fast(rows)} times as fast"),
        ("files opened", f"{number(opened)} instead of {number(rows[0]['opened'])}"),
        ("samples checked", number(compared)),
        ("problems found", number(problems)),
    )
    return Page("fastio demo", report["folder"], sections, _verdict(trained), figures)


def verdict_sentence(trained: Sequence[Mapping[str, Any]]) -> str:
    """
    Say what limits the training from each source, in one sentence.

    >>> rates = {"io_samples_per_s": 500, "training_samples_per_s": 1000}
    >>> files, store = ({"name": name, "training": {"bound": bound, **rates}} for name, bound in
    ...                 (("files", "io_bound"), ("LMDB", "compute_bound")))
    >>> verdict_sentence([files, store])
    'From files, training waits for data; from LMDB, training is the limit'
    """
    limits: dict[str, list[str]] = {}
    for row in trained:
        limits.setdefault(_limit(row["training"]), []).append(row["name"])
    sentence = "; ".join(f"from {' and '.join(names)}, {limit}" for limit, names in limits.items())
    return sentence[:1].upper() + sentence[1:]


def _times_as_fast(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the least and the greatest ratio to files: one run does not say which store is the fastest."""
    ratios = [f"{row['samples_per_s'] / rows[0]['samples_per_s']:.1f}" for row in rows[1:]]
    least, greatest = min(ratios, key=float), max(ratios, key=float)
    return least if least == greatest else f"{least} to {greatest}"


def _limit(training: Mapping[str, Any]) -> str:
    """Return what limits a loop, as a clause."""
    limit = headline(training["bound"], training["io_samples_per_s"] / training["training_samples_per_s"] - 1)
    return limit[:1].lower() + limit[1:]


def _lacks_cpus(training: Mapping[str, Any]) -> bool:
    """Return whether a loop waited for a loader that keeps up when alone."""
    return training["bound"] == "io_bound" and training["io_samples_per_s"] > training["training_samples_per_s"]


def _verdict(trained: Sequence[Mapping[str, Any]]) -> PageVerdict:
    limits = {row["name"]: "CPUs busy" if _lacks_cpus(row["training"]) else row["training"]["bound"] for row in trained}
    could_use = _could_use(trained)
    evidence = [_evidence(row["name"], row["training"], could_use) for row in trained]
    next_step = "pack your own pictures, `fastio pack ./photos train.lmdb`, and run `fastio doctor -- train.py`"
    names = ", ".join(f"{name}: {limit}" for name, limit in limits.items())
    last = trained[-1]["training"]
    colour = "" if _lacks_cpus(last) else last["bound"]
    return PageVerdict(verdict_sentence(trained), names, evidence, next_step, colour)


def _evidence(name: str, training: Mapping[str, Any], could_use: float) -> str:
    """Return what the loop over one source reached; if the CPUs were busy, that the loader alone is faster."""
    alone = (
        f"; alone, the loader gets {rate(training['io_samples_per_s'])}: the CPUs were busy with other programs, so "
        "run this again when they are idle"
    )
    return (
        f"{name}: {rate(training['loop_samples_per_s'])} of the {per_second(could_use)} that training could use; the "
        f"loop waits for data {training['loading_share']:.0%} of the time{alone if _lacks_cpus(training) else ''}"
    )


def _could_use(trained: Sequence[Mapping[str, Any]]) -> float:
    return max(float(row["training"]["training_samples_per_s"]) for row in trained)


def _reading(rows: Sequence[Mapping[str, Any]]) -> Sequence[Part]:
    bars = [
        Bar(row["name"], row["samples_per_s"], rate(row["samples_per_s"]), "plain" if row is rows[0] else "loading")
        for row in rows
    ]
    table = [
        (
            f"{row['name']}: {row['how']}",
            f"{row['samples_per_s'] / rows[0]['samples_per_s']:.1f}",
            f"{row['disk_bytes'] / 1e6:.1f}",
            number(row["opened"]),
        )
        for row in rows
    ]
    titles = ("read from", "ratio", "MB", "opened")
    text = (
        "Each is read once, by a process of its own, and its rate includes the start of the loader. The three stores "
        "are read by the same code: which of them is ahead in a single run is mostly chance."
    )
    caption = f"One epoch of {counted(rows[0]['samples'], 'picture')}, decoded into batches"
    return [
        Prose(text),
        Bars(caption, bars),
        Table(titles, table, (1, 2, 3), "Rate divided by that of files, megabytes on disk, files opened"),
    ]


def _training(trained: Sequence[Mapping[str, Any]]) -> Sequence[Part]:
    step_ms, batch_size = (trained[0]["training"][name] for name in ("step_ms", "batch_size"))
    could_use = _could_use(trained)
    bars: list[Bar] = []
    plots: list[Plot | None] = []
    for row in trained:
        training, name = row["training"], row["name"]
        bars += [
            Bar(f"{name}: loading alone", training["io_samples_per_s"], rate(training["io_samples_per_s"]), "loading"),
            Bar(f"{name}: the loop", training["loop_samples_per_s"], rate(training["loop_samples_per_s"]), "both"),
        ]
        plots.append(timeline_plot(training["timeline"]))
    bars.append(Bar("training alone", could_use, rate(could_use), "training"))
    text = (
        f"A mock trainer takes {step_ms:g} ms for a batch of {batch_size}, as a GPU might; alone, it gets the same "
        "batch again and again from a mock loader. Loading alone has no training step; its rate is that of a loader "
        "that runs already, without the start that is part of the rates above."
    )
    parts: list[Part] = [
        Prose(text),
        Bars("Samples per second", bars, ReferenceLine("what training could use", could_use, rate(could_use))),
    ]
    for row, plot in zip(trained, plots, strict=True):
        if plot is not None:
            parts += [Heading(f"The loop over {row['name']}"), plot]
    return parts


def _checked(checked: Sequence[Mapping[str, Any]]) -> Sequence[Part]:
    rows = [
        (store["name"], number(store["samples"]), number(store["compared"]), number(store["problems"]))
        for store in checked
    ]
    text = "`fastio verify --against` compared the checksum, the key, the bytes and the label of each with the files."
    return [Prose(text), Table(("store", "samples", "compared with the files", "problems"), rows, (1, 2, 3))]
