"""Pages about loops: loading, training, and both one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastio.measure.report.page import Bar, Bars, Page, Plot, Prose, ReferenceLine, Section, Series, Table, verdict_of
from fastio.types.units import counted, number, per_second, size

__all__ = [
    "halves_page",
    "loading_page",
    "ms",
    "opened",
    "rate",
    "timeline_plot",
    "training_page",
]


_BY_THREADS = ("store", "in place")  # kinds of data that this process alone reads
_WITHOUT_WORKERS = "CPU time, without the workers'"


def loading_page(report: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.bench.io``."""
    every = [report, *report["beside"]]
    bars = Bars(
        "Samples per second",
        (
            Bar("with the first batch", report["samples_per_s"], rate(report["samples_per_s"]), "loading"),
            Bar(
                "after the first batch", report["steady_samples_per_s"], rate(report["steady_samples_per_s"]), "loading"
            ),
        ),
    )
    figures = [
        ("samples", number(report["samples"])),
        ("batches", number(report["batches"])),
        ("time", f"{report['seconds']:.2f} s"),
        ("CPU time" if report["kind"] in _BY_THREADS else _WITHOUT_WORKERS, f"{report['cpu_seconds']:.2f} s"),
        ("first batch after", ms(report["first_batch_s"])),
    ]
    if report["bytes_per_s"] is not None:
        what = "store" if report["kind"] == "store" else "files"
        figures.append((f"bytes of the {what}", f"{size(report['bytes_per_s'])}/s"))
    if report["opens_per_s"] is not None:
        figures.append(("files opened", f"{per_second(report['opens_per_s'])}/s" if report["opens_per_s"] else "one"))
    sections = [Section("Rates", [bars])]
    if len(every) > 1:
        sections.append(Section("Side by side", [_side_by_side(every)]))
    subject = ", ".join(measured["data"] for measured in every)
    return Page("How fast data can be loaded", subject, sections, figures=figures)


def _side_by_side(every: Sequence[Mapping[str, Any]]) -> Table:
    first = every[0]["samples_per_s"]
    rows = [
        (
            measured["data"],
            per_second(measured["samples_per_s"]),
            f"{measured['samples_per_s'] / first:.2g} x",
            per_second(measured["steady_samples_per_s"]),
            "-" if measured["bytes_per_s"] is None else f"{size(measured['bytes_per_s'])}/s",
            opened(measured["opens_per_s"]),
            f"{measured['cpu_seconds']:.2f}",
            ms(measured["first_batch_s"]),
        )
        for measured in every
    ]
    titles = (
        "data", "samples/s", "of the first", "after the first batch", "bytes", "files opened/s", "CPU s", "first batch"
    )  # fmt: skip
    return Table(titles, rows, right=range(1, len(titles)))


def opened(per_s: float | None) -> str:
    """Return how many files were opened per second; a function of the user's does not say."""
    return "-" if per_s is None else per_second(per_s)


# The page of ``bench train``.


def training_page(report: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.bench.train``."""
    ranks = [(f"rank {i}" if len(report["ranks"]) > 1 else "", summary) for i, summary in enumerate(report["ranks"])]
    sections = []
    if len(ranks) > 1:
        rates = [(name, summary["steady_samples_per_s"], summary["loading_share"]) for name, summary in ranks]
        bars = [
            Bar(name, value, f"{per_second(value)}, waits for data {share:.1%}", "training")
            for name, value, share in rates
        ]
        sections.append(Section("Ranks", [Bars("Samples per second of each rank", bars)]))
    plot = timeline_plot(report["timeline"])
    if plot is not None:
        sections.append(Section("Step by step", [plot]))
    if report["losses"]:
        sections.append(Section("Loss", [losses_plot(report["losses"])]))
    first = report["ranks"][0]
    timed = f"{counted(first['steps'], 'step')} of {number(round(first['samples'] / first['steps']))} samples timed"
    sections.append(Section("Times", [times_table(ranks), Prose(f"{timed}, after {report['warm_up']} to warm up")]))
    verdict = None
    if report["verdict"] is None:
        line = "nothing was loaded: compare this limit of training with DATA of your own"
        sections.append(Section("No verdict", [Prose(line)]))
    else:
        verdict = verdict_of(report["verdict"])
    return Page(f"Training {report['model']}", report["data"], sections, verdict, _training_figures(report))


def _training_figures(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    ranks = report["ranks"]
    first = ranks[0]
    precision = ("TF32" if report["tf32"] else "float32") if report["amp"] == "off" else report["amp"]
    switches = ["channels_last"] * report["channels_last"] + ["compiled"] * report["compiled"]
    figures = [
        ("samples/s" + (", all ranks" if len(ranks) > 1 else ""), per_second(report["samples_per_s"])),
        ("waits for data", f"{max(summary['loading_share'] for summary in ranks):.1%}"),
        ("training per step", ms(first["training"]["mean_s"])),
        ("loss, first tenth", f"{report['first_loss']:.4f}"),
        ("loss, last tenth", f"{report['last_loss']:.4f}"),
        ("parameters", number(report["parameters"])),
        ("precision", ", ".join([precision, *switches])),
        ("device", report["device"]),
    ]
    if report["peak_bytes"] is not None:
        figures.append(("memory of the device", size(report["peak_bytes"])))
    if report["test_accuracy"] is not None:
        figures.append(("accuracy", f"{report['test_accuracy']:.2%}"))
    return figures


# The page of ``bench both``.


def halves_page(report: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.bench.both``."""
    io, training, loop = (report[f"{name}_samples_per_s"] for name in ("io", "training", "loop"))
    bars = Bars(
        "Samples per second",
        (
            Bar("loading alone", io, rate(io), "loading"),
            Bar("training alone", training, rate(training), "training"),
            Bar("both, the real loop", loop, rate(loop), "both"),
        ),
        ReferenceLine("what training could use", training, rate(training)),
    )
    plot = timeline_plot(report["timeline"])
    sections = [
        Section("Rates", [bars]),
        *([Section("Step by step", [plot])] if plot else []),
        Section("Times", [times_table([("real loop", report["loop"]), ("training alone", report["training"])])]),
    ]
    figures = (
        ("waits for data", f"{report['loop']['loading_share']:.1%}"),
        ("loading per step", ms(report["loop"]["loading"]["mean_s"])),
        ("training per step", ms(report["loop"]["training"]["mean_s"])),
        ("first batch after", ms(report["io"]["first_batch_s"])),
    )
    return Page("Loading or training?", report["data"], sections, verdict_of(report["verdict"]), figures)


# Parts that pages about steps share: rates as bars, the timeline, the times of a summary.

_TITLES = ("", "mean", "p50", "p90", "p99", "longest")
_PARTS = ("mean_s", "p50_s", "p90_s", "p99_s", "max_s")


def ms(seconds: float) -> str:
    """
    Format seconds as milliseconds.

    >>> ms(0.01234)
    '12.34 ms'
    """
    return f"{seconds * 1e3:,.2f} ms"


def rate(samples_per_s: float) -> str:
    """Format a rate in whole samples per second."""
    return f"{per_second(samples_per_s)} samples/s"


def timeline_plot(timeline: Mapping[str, Any]) -> Plot | None:
    """Return loading and training of each step, stacked; None without steps."""
    loading, training = timeline["loading_s"], timeline["training_s"]
    if not loading:
        return None
    first = timeline["first_step"]
    longest = max(range(len(loading)), key=loading.__getitem__)
    waits = f"longest wait {ms(loading[longest])} before step {first + longest:,}"
    if timeline["is_first"][longest]:
        waits += ", the first one of an epoch"
    return Plot(
        "Time of each step: waiting for the batch, and on top of it, training",
        f"{counted(len(loading), 'step')}: {sum(loading):.2f} s of loading, {sum(training):.2f} s of training; "
        f"{waits}.",
        "step",
        list(range(first, first + len(loading))),
        "ms",
        (
            Series("loading", [seconds * 1e3 for seconds in loading], "loading"),
            Series("training", [seconds * 1e3 for seconds in training], "training"),
        ),
        look="stack",
    )


def times_table(summaries: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """Return loading and training of each summary: mean and percentiles."""
    rows = [
        (f"{name}, {part}".strip(", "), *(f"{summary[part][statistic] * 1e3:,.2f}" for statistic in _PARTS))
        for name, summary in summaries
        for part in ("loading", "training")
    ]
    return Table(_TITLES, rows, range(1, 6), "Milliseconds per step, without first batches of epochs")


def losses_plot(losses: Sequence[float]) -> Plot:
    """Return a plot of the loss of each step."""
    return Plot(
        "Loss of each step",
        f"{counted(len(losses), 'step')}: from {losses[0]:.4f} to {losses[-1]:.4f}.",
        "step",
        list(range(len(losses))),
        "",
        (Series("loss", losses, "both"),),
    )
