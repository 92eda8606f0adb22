"""The page of ``info``: what a store holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.report.page import Bar, Bars, Code, Page, Part, PictureGrid, Prose, ReferenceLine, Section, Table
from fastio.types.units import number, size

__all__ = ["store_page"]

_BARS = 20  # classes shown as bars; more of them make a table


def store_page(said: Mapping[str, Any], pictures: PictureGrid | None) -> Page:
    """Build the page from the form that ``fastio info --json`` prints, and a few sample pictures."""
    sections = [] if pictures is None else [Section("Samples", [pictures])]
    sections += [Section(f"Field {name}", _field(field)) for name, field in said["fields"].items()]
    if said["classes"]:
        sections.append(Section("Classes", _classes(said["classes"])))
    if said["labels"]:
        sections.append(Section("Labels", [_labels(said["labels"])]))
    if said["shuffle"] is not None:
        sections.append(Section("Shuffling", _shuffling(said["shuffle"])))
    sections.append(Section("Where it comes from", _origin(said)))
    if said["read_without_fastio"]:
        sections.append(Section("Reading it without fastio", [Code(said["read_without_fastio"].rstrip())]))
    figures = [
        ("samples", number(said["samples"])),
        ("size", size(said["size_bytes"])),
        ("format", said["format"]),
        ("shards", number(said["shards"])),
    ]
    if said["classes"]:
        figures.append(("classes", number(len(said["classes"]))))
    figures.append(("skipped", number(said["skipped"])))
    return Page("A store of training data", said["path"], sections, figures=figures)


def _field(field: Mapping[str, Any]) -> list[Part]:
    unit = field.get("unit")
    measured = (
        ("bytes", field["size_bytes"]),
        (unit, field.get("length") if unit != "bytes" else None),
        ("height", field.get("height")),
        ("width", field.get("width")),
    )
    rows = [
        (str(name), *(number(numbers[each]) for each in ("min", "median", "mean", "max")))
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
    total = sum(each["samples"] for each in histogram)
    bars = [
        Bar(
            number(each["from"]) if each["from"] == each["to"] else f"{number(each['from'])} to {number(each['to'])}",
            each["samples"],
            f"{number(each['samples'])} ({each['samples'] / total:.1%})",
            "training",
        )
        for each in histogram
    ]
    return Bars(f"How many samples have how many {unit}", bars)


def _classes(classes: list[dict[str, Any]]) -> list[Part]:
    if len(classes) <= _BARS:
        bars = [Bar(_class(each), each["samples"], number(each["samples"]), "training") for each in classes]
        return [Bars("Samples of each class", bars)]
    rows = [(str(each["label"]), each["name"] or "", number(each["samples"])) for each in classes]
    counts = sorted(each["samples"] for each in classes)
    spread = f"{number(counts[0])} to {number(counts[-1])} samples per class."
    return [Prose(spread), Table(("label", "class", "samples"), rows, (0, 2), "All classes", folded=True)]


def _labels(labels: Mapping[str, Any]) -> Table:
    """Return labels that are numbers, not classes."""
    rows = [
        (str(each["title"] or f"label {i}"), *(f"{each[name]:.6g}" for name in ("min", "mean", "max")))
        for i, each in enumerate(labels["numbers"])
    ]
    return Table((labels["dtype"], "least", "mean", "most"), rows, range(1, 4))


def _class(said: Mapping[str, Any]) -> str:
    return str(said["name"] or f"label {said['label']}")


def _shuffling(said: Mapping[str, Any]) -> list[Part]:
    text = Prose(f"{said['text']}.")
    if said["mixing"] is None:
        return [text]
    bars = Bars(
        "Distinct classes in a batch of 256, as a share of those in a full shuffle:",
        [Bar("shuffle=True", said["mixing"], f"{said['mixing']:.2f}", "training")],
        ReferenceLine(1.0, "full shuffle"),
    )
    return [bars, text]


def _origin(said: Mapping[str, Any]) -> list[Part]:
    source = said["source"] or {}
    rows = [(name, str(value)) for name, value in source.items() if value is not None]
    rows.append(("bytes of the samples", size(said["payload_bytes"])))
    if said["overhead_bytes_per_sample"] is not None:
        overhead = f"{number(said['overhead_bytes_per_sample'])} B a sample: {said['overhead_reason']}"
        rows.append(("on top", overhead))
    parts: list[Part] = [Table((), rows)]
    parts += [Prose(line) for line in said["packing"]]
    for name, entries in said["ledger"].items():
        lines = [(str(entry["key"]), str(entry["problem"])) for entry in entries]
        parts.append(Table(("sample", "problem"), lines, caption=f"{name}: {number(len(lines))}", folded=True))
    return parts
