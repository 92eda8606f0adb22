"""Pages about the machine: bandwidths, buses, disks, and what a monitor saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from fastio.measure.machine.disk import EXPECTED_DISK, EXPECTED_NVME, expected_rate
from fastio.measure.machine.disk_kind import DiskKind, kind_in_words
from fastio.measure.report.page import Bar, Bars, Page, Part, Plot, Prose, ReferenceLine, Section, Series, Table
from fastio.types.units import duration, number, per_second, percent, size

__all__ = [
    "bandwidth_page",
    "bus_page",
    "disk_page",
    "monitor_page",
]


def bandwidth_page(report: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.bandwidth``."""
    links = report["links"]
    bars = [
        Bar(link["link"], link["bytes_per_s"], f"{size(link['bytes_per_s'])}/s", _ROLES[link["measured"]])
        for link in links
    ]
    is_measured = any(link["measured"] for link in links)
    caption = "Bytes per second, as a course publishes them" + (
        "; another colour: measured on this machine" * is_measured
    )
    rows = [
        (link["link"], f"{size(link['bytes_per_s'])}/s", _SOURCES[link["measured"]], duration(link["seconds"]))
        for link in links
    ]
    table = Table(("link", "rate", "source", f"time for {size(report['size_bytes'])}"), rows, (1, 3))
    subject = f"{size(report['size_bytes'])} over each link"
    return Page(
        "How long data takes", subject, [Section("Time", [table]), Section("Rates", [Bars(caption, bars, tabled=True)])]
    )


_ROLES: Mapping[bool, Any] = {True: "training", False: "plain"}
_SOURCES = {True: "measured here", False: "published"}


# The page of ``bench bus``.


def bus_page(report: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.bench.bus``."""
    title, subject = "How fast the bus to the GPU is", "copies between host memory and the CUDA device"
    rates = report["rates"]
    if not rates:
        return Page(title, subject, [Section("Nothing was measured", [Prose(str(report["skipped"]))])])
    sections = []
    figures = []
    for direction in dict.fromkeys(rate["direction"] for rate in rates):
        one_way = [rate for rate in rates if rate["direction"] == direction]
        sections.append(Section(str(direction).capitalize(), _copies(one_way)))
        for memory in dict.fromkeys(rate["memory"] for rate in one_way):
            best = max(rate["bytes_per_s"] for rate in one_way if rate["memory"] == memory)
            figures.append((f"{direction}, {memory}", f"{size(best)}/s"))
    return Page(title, subject, sections, figures=figures)


def _copies(rates: list[Mapping[str, Any]]) -> list[Part]:
    """Return pinned and pageable memory, size by size, so that both directions compare on one page."""
    ordered = sorted(rates, key=lambda rate: (rate["size_bytes"], rate["memory"] != "pinned"))
    bars = [
        Bar(
            f"{rate['memory']}, {size(rate['size_bytes'])}",
            rate["bytes_per_s"],
            f"{size(rate['bytes_per_s'])}/s",
            "training" if rate["memory"] == "pinned" else "loading",
            (rate["slowest_bytes_per_s"], rate["fastest_bytes_per_s"]),
        )
        for rate in ordered
    ]
    rows = [
        (
            rate["memory"],
            size(rate["size_bytes"]),
            *(f"{size(rate[name])}/s" for name in ("bytes_per_s", "slowest_bytes_per_s", "fastest_bytes_per_s")),
        )
        for rate in ordered
    ]
    return [
        Bars("Bytes per second by the size of a copy: median, slowest and fastest of ten", bars, tabled=True),
        Table(("memory", "size of a copy", "median", "slowest", "fastest"), rows, range(1, 5)),
    ]


# The page of ``bench disk``.

_CACHES = {"cold": "From the disk", "warm": "From memory"}
_KINDS = {"nvme": "NVMe", "flash": "flash, no NVMe", "rotating": "rotating", None: "not told"}


def disk_page(report: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.bench.disk``."""
    kind = report.get("kind")
    sections = []
    for cache, title in _CACHES.items():
        rates = [rate for rate in report["rates"] if rate["cache"] == cache]
        if rates:
            sections.append(Section(title, _reads(rates, kind, is_cold=cache == "cold")))
    sequential = report["sequential_bytes_per_s"]
    sections.insert(0, Section("Nothing was cold" if sequential is None else "In short", [_judged(sequential, kind)]))
    figures = [
        ("sequential, cold", "unknown" if sequential is None else f"{size(sequential)}/s"),
        ("written and synced", f"{size(report['write_bytes_per_s'])}/s"),
        ("kind of disk", _KINDS[kind]),
        ("file", size(report["size_bytes"])),
        ("small files", number(report["files"])),
    ]
    return Page("How fast the disk is", str(Path(report["path"]).resolve()), sections, figures=figures)


def _judged(sequential: float | None, kind: DiskKind | None) -> Prose:
    """Return the rate of cold reads in order, beside what such a disk should reach."""
    if sequential is None:
        return Prose(
            "nothing could be read cold: this file system keeps its pages in memory (tmpfs, or one that ignores "
            "posix_fadvise), so these figures are those of memory"
        )
    expected = expected_rate(kind)
    if expected is not None:
        what = f"{sequential / expected:.2f}x of what to expect ({size(expected)}/s)"
    else:
        what = f"expect {size(EXPECTED_DISK)}/s from a hard disk, {size(EXPECTED_NVME)}/s from an NVMe drive"
    return Prose(f"cold, sequential: {size(sequential)}/s; the disk is {kind_in_words(kind)}: {what}")


def _reads(rates: list[Mapping[str, Any]], kind: DiskKind | None, *, is_cold: bool) -> list[Part]:
    bars = [
        Bar(_name(rate), rate["bytes_per_s"], f"{size(rate['bytes_per_s'])}/s", "loading" if is_cold else "memory")
        for rate in rates
    ]
    rows = [
        (
            _name(rate),
            f"{size(rate['bytes_per_s'])}/s",
            per_second(rate["reads_per_s"]),
            *(f"{rate[name] * 1e6:,.0f}" for name in ("p50_s", "p99_s", "max_s")),
        )
        for rate in rates
    ]
    mark = None
    if is_cold:
        expected = expected_rate(kind) or EXPECTED_DISK
        what = "a hard disk" if kind is None else kind_in_words(kind)
        mark = ReferenceLine(f"what to expect of {what}, read in order", expected, f"{size(expected)}/s")
    titles = ("read", "rate", "reads/s", "p50 us", "p99 us", "longest us")
    return [Bars("Bytes per second", bars, mark, tabled=True), Table(titles, rows, range(1, 6))]


def _name(rate: Mapping[str, Any]) -> str:
    return str(rate["access"]) + (f", {rate['threads']} threads" if rate["threads"] > 1 else "")


# The page of ``monitor``: what the machine did, as curves.

_POINTS = 1000  # points of a curve; with more samples, the means of neighbours
_CPUS_SHOWN = 8

Unit = Literal["%", "bytes", "bytes/s", ""]
Sample = Mapping[str, Any]
_Figure = tuple[str, Callable[[Sample], float | None]]


def monitor_page(subject: str, samples: Sequence[Sample]) -> Page:
    """Build the page from lines of the form ``fastio.monitor``; ``subject`` is what was watched."""
    if not samples:
        return Page("What the machine did", subject, [Section("No figures", [Prose(_NOTHING)])])
    last = samples[-1]
    curves = _Curves(samples)
    cpus = range(len(last["cpu_percents"]))
    processor: list[_Figure] = [("all CPUs", _mean_cpu)]
    if len(cpus) <= _CPUS_SHOWN:
        processor += [(f"CPU {i}", lambda sample, i=i: sample["cpu_percents"][i]) for i in cpus]  # type: ignore[misc]
    memory: list[_Figure] = [("machine", lambda sample: sample["memory_used_bytes"])]
    disks: list[_Figure] = [(name, _of(f"disk_{name}_bytes_per_s")) for name in ("read", "written")]
    networks: list[_Figure] = [(name, _of(f"network_{name}_bytes_per_s")) for name in ("received", "sent")]
    if any(sample["process"] is not None for sample in samples):
        memory.append(("process", _of("process", "rss_bytes")))
        disks += [(f"process, {name}", _of("process", f"disk_{name}_bytes_per_s")) for name in ("read", "written")]
    sections = [
        Section("CPUs", curves.plots([("Utilisation", processor, "%", 100.0)])),
        Section("Memory", curves.plots([("Memory used", memory, "bytes", None)])),
        Section("Disks", curves.plots([("Bytes read and written", disks, "bytes/s", None)])),
        Section("Networks", curves.plots([("Bytes received and sent", networks, "bytes/s", None)])),
    ]
    names = [f"{_named(gpu)}: {gpu['name']}" for gpu in last["gpus"]]
    gpus = [Section(name, curves.plots(_gpu(number))) for number, name in enumerate(names)]
    return Page("What the machine did", subject, [*gpus, *sections], figures=_summary(samples, curves.seconds))


_NOTHING = "It ended before the first sample; try a shorter --interval."


class _Curves:
    """Figures of all samples over their times, in at most ``_POINTS`` points."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        samples_per_point = -(-len(samples) // _POINTS)
        self._groups = [
            samples[start : start + samples_per_point] for start in range(0, len(samples), samples_per_point)
        ]
        begun = samples[0]["time_s"] - samples[0]["seconds"]
        self._times = [group[-1]["time_s"] - begun for group in self._groups]
        self.seconds = self._times[-1]

    def plots(self, wanted: Sequence[tuple[str, Sequence[_Figure], Unit, float | None]]) -> list[Part]:
        """Return a plot for each caption; unknown figures are left out."""
        made = [self._plot(caption, figures, unit, limit) for caption, figures, unit, limit in wanted]
        return [plot for plot in made if plot is not None] or [Prose("Not available.")]

    def _plot(self, caption: str, figures: Sequence[_Figure], unit: Unit, limit: float | None) -> Plot | None:
        series = [Series(name, [_mean(group, figure) for group in self._groups]) for name, figure in figures]
        series = [curve for curve in series if any(value is not None for value in curve.values)]
        if not series:
            return None
        summary = "; ".join(f"{curve.name}: {_mean_and_most(curve.values, unit)}" for curve in series[:4])
        return Plot(caption, f"{summary}.", "s", self._times, unit, series, limit=limit)


def _named(gpu: Mapping[str, Any]) -> str:
    """Return a GPU's name by its index, and that of its MIG slice."""
    return f"GPU {gpu['index']}" + ("" if gpu["mig_index"] is None else f" slice {gpu['mig_index']}")


def _gpu(number: int) -> list[tuple[str, Sequence[_Figure], Unit, float | None]]:
    def of(name: str) -> Callable[[Sample], float | None]:
        return lambda sample: sample["gpus"][number][name] if number < len(sample["gpus"]) else None

    activity = ("utilization", "sm_active", "sm_occupancy", "tensor_active", "dram_active")
    return [
        ("Activity", [(name.replace("_", " "), of(f"{name}_percent")) for name in activity], "%", 100.0),
        ("Memory used", [("memory", of("memory_used_bytes"))], "bytes", None),
        ("Temperature in degrees Celsius", [("temperature", of("temperature_c"))], "", None),
        ("PCIe", [(name, of(f"pcie_{name}_bytes_per_s")) for name in ("received", "sent")], "bytes/s", None),
    ]


def _summary(samples: Sequence[Sample], seconds: float) -> list[tuple[str, str]]:
    last = samples[-1]
    busy = sum(map(_mean_cpu, samples)) / len(samples)
    most = max(sample["memory_used_bytes"] for sample in samples)
    figures = [
        ("watched for", duration(seconds)),
        ("samples", number(len(samples))),
        ("all CPUs, mean", percent(busy, 1)),
        (f"most memory used, of {size(last['memory_total_bytes'])}", size(most)),
        ("this monitor (100%: one core)", percent(sum(s["own_cpu_percent"] for s in samples) / len(samples), 1)),
    ]
    if last["gpu_source"] is None:
        return [*figures, ("GPUs", "none seen")]
    for index, gpu in enumerate(last["gpus"]):
        used = [sample["gpus"][index]["utilization_percent"] for sample in samples if index < len(sample["gpus"])]
        known = [percent for percent in used if percent is not None]
        if known:
            figures.append((f"{_named(gpu)}, mean utilization", percent(sum(known) / len(known), 1)))
    return [*figures, ("GPU figures from", " and ".join(filter(None, (last["gpu_source"], last["sm_source"]))))]


def _of(*names: str) -> Callable[[Sample], float | None]:
    """Return a function that gets a figure by its path of names; None if the path ends early."""

    def figure(sample: Sample) -> float | None:
        value: Any = sample
        for name in names:
            value = None if value is None else value[name]
        return None if value is None else float(value)

    return figure


def _mean_cpu(sample: Sample) -> float:
    percents = sample["cpu_percents"]
    return float(sum(percents) / len(percents))


def _mean(group: Sequence[Sample], figure: Callable[[Sample], float | None]) -> float | None:
    known = [value for value in map(figure, group) if value is not None]
    return round(sum(known) / len(known), 3) if known else None


def _mean_and_most(values: Sequence[float | None], unit: Unit) -> str:
    known = [value for value in values if value is not None]
    mean, most = sum(known) / len(known), max(known)
    if unit == "bytes":
        return f"mean {size(mean)}, at most {size(most)}"
    if unit == "bytes/s":
        return f"mean {size(mean)}/s, at most {size(most)}/s"
    return f"mean {mean:.1f}{unit}, at most {most:.1f}{unit}"
