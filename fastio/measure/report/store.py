"""The page of ``info``: what a store holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.measure.report.page import Bar, Bars, Code, Page, Part, PictureGrid, Prose, ReferenceLine, Section, Table
from fastio.types.units import number, size

__all__ = [
    "store_page",
]


_BARS = 20  # classes shown as bars; more of them make a table


def store_page(report: Mapping[str, Any], pictures: PictureGrid | None) -> Page:
    """Build the page from the form that ``fastio info --json`` prints, and a few sample pictures."""
    sections = [] if pictures is None else [Section("Samples", [pictures])]
    if "types" in report:
        sections += _overview(report)
    sections += [Section(f"Field {name}", _field(field)) for name, field in report["fields"].items()]
    if report["classes"]:
        sections.append(Section("Classes", _classes(report["classes"])))
    if report["labels"]:
        sections.append(Section("Labels", [_labels(report["labels"])]))
    if report["shuffle"] is not None:
        sections.append(Section("Shuffling", _shuffling(report["shuffle"])))
    sections.append(Section("Where it comes from", _origin(report)))
    if report.get("read_with_fastio"):
        sections.append(Section("Reading it with fastio", [Code(report["read_with_fastio"].rstrip())]))
    if report["read_without_fastio"]:
        sections.append(Section("Reading it without fastio", [Code(report["read_without_fastio"].rstrip())]))
    figures = [
        ("samples", number(report["samples"])),
        ("size", size(report["size_bytes"])),
        ("format", report["format"]),
        ("shards", number(report["shards"])),
    ]
    if report["classes"]:
        figures.append(("classes", number(len(report["classes"]))))
    figures.append(("skipped", number(report["skipped"])))
    return Page("A store of training data", report["path"], sections, figures=figures)


def _overview(report: Mapping[str, Any]) -> list[Section]:
    """Return the types of many fields, and one sample."""
    sections = [Section("Fields", [Table(("field", "type"), list(report["types"].items()))])]
    if report["example"] is not None:
        rows = list(report["example"]["values"].items())
        sections.append(Section("The first sample", [Prose(report["example"]["key"]), Table((), rows)]))
    return sections


def _field(field: Mapping[str, Any]) -> list[Part]:
    unit = field.get("unit")
    measured = (
        ("bytes", field["size_bytes"]),
        (unit, field.get("length") if unit != "bytes" else None),
        ("height", field.get("height")),
        ("width", field.get("width")),
    )
    rows = [
        (str(name), *(number(numbers[statistic]) for statistic in ("min", "median", "mean", "max")))
        for name, numbers in measured
        if numbers
    ]
    parts: list[Part] = [Table(("", "least", "median", "mean", "most"), rows, range(1, 5))]
    if field.get("histogram"):
        parts.append(_lengths(field["histogram"], str(unit)))
    if "kinds" in field:
        kinds = ", ".join(f"{number(count)} {kind}" for kind, count in field["kinds"].items())
        channels = ", ".join(f"{number(count)} with {name}" for name, count in field["channels"].items())
        parts.append(Prose(f"Kinds: {kinds} (of {number(field['kinds_of'])} examined). Channels: {channels}."))
    return parts


def _lengths(histogram: list[dict[str, int]], unit: str) -> Bars:
    total = sum(bar["samples"] for bar in histogram)
    bars = [
        Bar(
            number(bar["from"]) if bar["from"] == bar["to"] else f"{number(bar['from'])} to {number(bar['to'])}",
            bar["samples"],
            f"{number(bar['samples'])} ({bar['samples'] / total:.1%})",
            "training",
        )
        for bar in histogram
    ]
    return Bars(f"How many samples have how many {unit}", bars)


def _classes(classes: list[dict[str, Any]]) -> list[Part]:
    if len(classes) <= _BARS:
        bars = [Bar(_class(row), row["samples"], number(row["samples"]), "training") for row in classes]
        return [Bars("Samples of each class", bars)]
    rows = [(str(row["label"]), row["name"] or "", number(row["samples"])) for row in classes]
    counts = sorted(row["samples"] for row in classes)
    spread = f"{number(counts[0])} to {number(counts[-1])} samples per class."
    return [Prose(spread), Table(("label", "class", "samples"), rows, (0, 2), "All classes", folded=True)]


def _labels(labels: Mapping[str, Any]) -> Table:
    """Return labels that are numbers, not classes."""
    rows = [
        (str(column["title"] or f"label {i}"), *(f"{column[name]:.6g}" for name in ("min", "mean", "max")))
        for i, column in enumerate(labels["numbers"])
    ]
    return Table((labels["dtype"], "least", "mean", "most"), rows, range(1, 4))


def _class(row: Mapping[str, Any]) -> str:
    return str(row["name"] or f"label {row['label']}")


def _shuffling(shuffle: Mapping[str, Any]) -> list[Part]:
    text = Prose(f"{shuffle['text']}.")
    if shuffle["mixing"] is None:
        return [text]
    bars = Bars(
        "Distinct classes in a batch of 256, as a share of those in a full shuffle:",
        [Bar("shuffle=True", shuffle["mixing"], f"{shuffle['mixing']:.2f}", "training")],
        ReferenceLine(1.0, "full shuffle"),
    )
    return [bars, text]


def _origin(report: Mapping[str, Any]) -> list[Part]:
    source = report["source"] or {}
    rows = [(name, str(value)) for name, value in source.items() if value is not None]
    rows.append(("bytes of the samples", size(report["payload_bytes"])))
    if report["overhead_bytes_per_sample"] is not None:
        overhead = f"{number(report['overhead_bytes_per_sample'])} B a sample: {report['overhead_reason']}"
        rows.append(("on top", overhead))
    parts: list[Part] = [Table((), rows)]
    parts += [Prose(line) for line in report["packing"]]
    for name, entries in report["ledger"].items():
        lines = [(str(entry["key"]), str(entry["problem"])) for entry in entries]
        parts.append(Table(("sample", "problem"), lines, caption=f"{name}: {number(len(lines))}", folded=True))
    return parts
