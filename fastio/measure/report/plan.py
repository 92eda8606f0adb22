"""The page of ``plan``: what the epochs of a training will read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastio.measure.report.page import Page, Prose, Section, Table
from fastio.types.units import counted, number, size

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
    whole = max(1, plan["sample_bytes"])
    rows = []
    for epoch in plan["epochs"]:
        asked = _sum(epoch, "asked_bytes")
        rows.append([str(epoch["epoch"]), number(_sum(epoch, "reads")), size(asked), f"{asked / whole:.3f} x"])
    epochs = Table(["epoch", "reads", "asked for", "of the store"], rows, range(1, 4), shown=_MOST_ROWS)
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


def _nodes(plan: Mapping[str, Any]) -> Table:
    """Return what each node reads, on average of the epochs."""
    count = len(plan["epochs"])
    rows = []
    for node in range(plan["nodes"]):
        reads, asked = (
            sum(epoch["nodes"][node][name] for epoch in plan["epochs"]) / count for name in ("reads", "asked_bytes")
        )
        rows.append([str(node), number(round(reads)), size(asked)])
    return Table(["node", "reads an epoch", "asked for"], rows, range(1, 3))


def _conclusions(plan: Mapping[str, Any]) -> list[str]:
    if not plan["is_held"]:
        return [_EXACT]
    memory = f" ({size(plan['order']['memory_bytes'])})" if plan["order"] else ""
    return [_EXACT, f"memory{memory} holds the store: after the first epoch it answers all of this"]


def _sum(epoch: Mapping[str, Any], name: str) -> int:
    nodes: Sequence[Mapping[str, int]] = epoch["nodes"]
    return sum(node[name] for node in nodes)
