"""The page of ``plan``: what the epochs of a training will read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastio.measure.report.page import Page, Prose, Section, Table
from fastio.types.units import counted, duration, number, size

__all__ = [
    "plan_page",
]


_MOST_ROWS = 8  # epochs that a terminal shows
_EXACT = (
    "exact: what the loader asks the files for, with this seed, on any machine; what memory answers of it depends on "
    "the machine"
)


def plan_page(plan: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.plan``."""
    first = plan["epochs"][0]
    world = plan["nodes"] * plan["ranks"]
    columns = _columns(plan)
    rows = [[str(epoch["epoch"]), *(cell(epoch) for _, cell in columns)] for epoch in plan["epochs"]]
    epochs = Table(["epoch", *(title for title, _ in columns)], rows, range(len(columns) + 1), shown=_MOST_ROWS)
    how = [
        ("world", f"{counted(plan['nodes'], 'node')} of {counted(plan['ranks'], 'rank')}"),
        ("batches", f"of {counted(plan['batch_size'], 'sample')} a rank"),
        ("an epoch", _steps(first, plan["batch_size"] * world)),
        ("order", plan["order_text"]),
    ]
    how += [("repeated in an epoch", f"{number(first['repeated'])} ({_cause(plan)})")] if first["repeated"] else []
    how += [("left out of an epoch", f"{number(first['dropped'])} ({_cause(plan)})")] if first["dropped"] else []
    sections = [Section("The training", [Table((), how)]), Section("Epochs", [epochs])]
    if plan["nodes"] > 1:
        sections.append(Section("Nodes", [_nodes(plan)]))
    sections.append(Section("In short", [Prose(line) for line in _conclusions(plan)]))
    figures = [
        ("samples", number(plan["samples"])),
        ("bytes", size(plan["sample_bytes"])),
        ("epochs", number(len(plan["epochs"]))),
        ("steps of an epoch", number(first["steps"])),
    ]
    return Page("What the epochs will read", plan["store"], sections, figures=figures)


def _steps(epoch: Mapping[str, Any], full: int) -> str:
    """Return how many steps an epoch has and of how many samples, of which the last may have fewer than ``full``."""
    last = epoch["samples"] - (epoch["steps"] - 1) * full
    if epoch["steps"] == 1:
        return f"1 step of {counted(last, 'sample')}"
    rest = f", the last of {number(last)}" if last < full else ""
    return f"{counted(epoch['steps'], 'step')} of {counted(full, 'sample')}{rest}"


def _cause(plan: Mapping[str, Any]) -> str:
    """Return the options that make an epoch repeat or leave out samples."""
    first = plan["epochs"][0]
    is_uneven = first["repeated"] or (plan["uneven"] == "drop" and plan["nodes"] * plan["ranks"] > 1)
    causes = [f"uneven={plan['uneven']!r}"] if is_uneven else []
    causes += ["drop_last=True"] if first["dropped"] and plan["drop_last"] else []
    return ", ".join(causes)


def _columns(plan: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return titles, and what a cell shows of an epoch."""
    whole = max(1, plan["sample_bytes"])
    columns = [
        ("reads", lambda epoch: number(_sum(epoch, "reads"))),
        ("asked for", lambda epoch: size(_sum(epoch, "asked_bytes"))),
        ("of the store", lambda epoch: f"{_sum(epoch, 'asked_bytes') / whole:.3f} x"),
    ]
    if plan["cache_bytes"] is not None:
        columns.append(("from cache", lambda epoch: f"{_cached(epoch):.1%}"))
        columns.append(("from disk", lambda epoch: size(_sum(epoch, "read_bytes"))))
    if plan["epochs"][0]["mixing"] is not None:
        columns.append(("mixing", lambda epoch: f"{epoch['mixing']:.3f}"))
        columns.append(("drift", lambda epoch: f"{epoch['drift']:.3f}"))
    if plan["epochs"][0]["waits"] is not None:
        columns += [
            ("takes", lambda epoch: duration(epoch["waits"]["seconds"])),
            ("waits at start", lambda epoch: _seconds(epoch["waits"]["start_s"])),
            ("later", lambda epoch: _seconds(epoch["waits"]["later_s"])),
            ("first at step", lambda epoch: _step(epoch["waits"]["first_step"])),
        ]
    return columns


def _nodes(plan: Mapping[str, Any]) -> Table:
    """Return what each node reads, on average of the epochs."""
    has_cache = plan["cache_bytes"] is not None
    count = len(plan["epochs"])
    rows = []
    for node in range(plan["nodes"]):
        reads = [epoch["nodes"][node] for epoch in plan["epochs"]]
        asked, read = (sum(part[name] for part in reads) for name in ("asked_bytes", "read_bytes"))
        row = [str(node), number(round(sum(part["reads"] for part in reads) / count)), size(asked / count)]
        rows.append(row + ([f"{1 - read / max(1, asked):.1%}", size(read / count)] if has_cache else []))
    titles = ["node", "reads an epoch", "asked for", *(["from cache", "from disk"] if has_cache else [])]
    return Table(titles, rows, range(len(titles)))


def _conclusions(plan: Mapping[str, Any]) -> list[str]:
    lines = [_EXACT]
    if plan["is_held"] and plan["cache_bytes"] is None:
        lines.append(
            f"memory ({size(plan['order']['memory_bytes'])}) holds the store: after the first epoch it answers all of "
            "this"
            if plan["order"]
            else "memory holds the store: after the first epoch it answers all of this"
        )
    if plan["cache_bytes"] is not None:
        lines.append(f"a cache of {size(plan['cache_bytes'])} a node keeps the samples that were read last")
    if plan["disk_bytes_per_s"] is not None:
        lines.append(_waiting(plan))
    return lines


def _waiting(plan: Mapping[str, Any]) -> str:
    waits = [(epoch["epoch"], epoch["waits"]) for epoch in plan["epochs"]]
    total = sum(wait["seconds"] for _, wait in waits)
    later, start = (sum(wait[name] for _, wait in waits) for name in ("later_s", "start_s"))
    rates = f"at {number(plan['samples_per_s'])} samples/s and {size(plan['disk_bytes_per_s'])}/s a node"
    first = next(((epoch, wait["first_step"]) for epoch, wait in waits if wait["first_step"] is not None), None)
    begins = f"beginnings of epochs wait {_seconds(start)} in all"
    if first is None:
        return f"{rates}, {duration(total)}: no step waits for a disk; {begins}"
    steps = sum(wait["steps"] for _, wait in waits)
    return (
        f"{rates}, {duration(total)}: step {number(first[1])} of epoch {first[0]} is the first that waits for a disk; "
        f"{counted(steps, 'step')} wait {_seconds(later)} in all ({later / total:.1%}); {begins}"
    )


def _sum(epoch: Mapping[str, Any], name: str) -> int:
    nodes: Sequence[Mapping[str, int]] = epoch["nodes"]
    return sum(node[name] for node in nodes)


def _cached(epoch: Mapping[str, Any]) -> float:
    return 1 - _sum(epoch, "read_bytes") / max(1, _sum(epoch, "asked_bytes"))


def _seconds(seconds: float) -> str:
    return duration(seconds) if seconds > 0 else "0 s"


def _step(step: int | None) -> str:
    return "-" if step is None else number(step)
