"""The page of ``plan``: what the epochs of a training will read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.measure.report.page import Page, Section, Table
from fastio.types.units import counted, duration, number, size

__all__ = [
    "plan_page",
]


def plan_page(plan: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.plan``."""
    has_cache, has_waits = plan["cache_bytes"] is not None, plan["epochs"][0]["waits"] is not None
    titles = ["epoch", "reads", "asked for"]
    titles += ["from disk"] if has_cache else []
    titles += ["mixing"] if plan["epochs"][0]["mixing"] is not None else []
    titles += ["takes", "waits at start", "waits later"] if has_waits else []
    rows = [_row(epoch, has_cache=has_cache) for epoch in plan["epochs"]]
    epochs = Table(tuple(titles), rows, range(1, len(titles)), "All nodes together")
    node_titles = ("node", "reads", "asked for", *(["from disk"] if has_cache else []))
    nodes = [
        (str(node), number(part["reads"]), size(part["asked_bytes"]), size(part["read_bytes"]))[: len(node_titles)]
        for node, part in enumerate(plan["epochs"][-1]["nodes"])
    ]
    by_node = Table(node_titles, nodes, range(1, len(node_titles)), "The last epoch")
    figures = [
        ("samples", number(plan["samples"])),
        ("bytes", size(plan["sample_bytes"])),
        ("world", f"{counted(plan['nodes'], 'node')} of {counted(plan['ranks'], 'rank')}"),
        ("steps of an epoch", number(plan["epochs"][0]["steps"])),
        ("repeated in an epoch", number(plan["epochs"][0]["repeated"])),
    ]
    sections = [Section("Epochs", [epochs]), Section("Nodes", [by_node])]
    return Page("What the epochs will read", f"{plan['store']}, {plan['order_text']}", sections, figures=figures)


def _row(epoch: Mapping[str, Any], *, has_cache: bool) -> tuple[str, ...]:
    sums = {name: sum(node[name] for node in epoch["nodes"]) for name in ("reads", "asked_bytes", "read_bytes")}
    row = [str(epoch["epoch"]), number(sums["reads"]), size(sums["asked_bytes"])]
    row += [size(sums["read_bytes"])] if has_cache else []
    row += [f"{epoch['mixing']:.3f}"] if epoch["mixing"] is not None else []
    if epoch["waits"] is not None:
        waits = epoch["waits"]
        row += [duration(waits["seconds"]), duration(waits["start_s"]), duration(waits["later_s"])]
    return tuple(row)
