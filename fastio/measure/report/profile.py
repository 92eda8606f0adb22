"""The page of ``profile``: where the time of a step goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastio.measure.report.page import Page, Part, Plot, Portion, Role, Section, Series, Shares, Table, verdict_of
from fastio.types.units import counted, number, size

__all__ = [
    "profile_page",
]


_COLOURS: tuple[Role, ...] = ("c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7")  # the same colours as those of the mean
_LISTED = 25  # operators, kernels and functions listed per table


def profile_page(report: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.profile``."""
    traces, cpu = report["traces"], report["cpu"]
    several = len(traces) > 1
    sections = []
    for position, trace in enumerate(traces):
        name = f", trace {position} (rank {trace['rank']})" if several else ""
        sections += _trace(trace, name)
    if cpu is not None:
        sections += _cpu(cpu)
    first = traces[0] if traces else None
    verdict = None if first is None else verdict_of(first["verdict"])
    return Page(
        "Where the time of a step goes",
        " ".join(report["command"]),
        sections,
        verdict,
        _figures(first) if first else (),
    )


def _figures(trace: Mapping[str, Any]) -> list[tuple[str, str]]:
    figures = [("a step", _ms(trace["total_us"] / max(trace["steps"], 1))), ("steps", number(trace["steps"]))]
    if trace["idle_us"] is not None:
        figures.append(("device idle", f"{trace['idle_us'] / trace['total_us']:.1%}"))
    if trace["tensor_core_share"] is not None:
        figures.append(("Tensor cores, of kernels", f"{trace['tensor_core_share']:.1%}"))
    peaks = [curve["peak_allocated_bytes"] for curve in trace["memory"]]
    return figures + ([("most memory", size(max(peaks)))] if peaks else [])


def _trace(trace: Mapping[str, Any], name: str) -> list[Section]:
    steps = max(trace["steps"], 1)
    parts: list[Part] = [
        Shares(
            f"The mean of {counted(trace['steps'], 'step')}; each moment belongs to one part",
            "ms per step",
            [Portion(row, us, f"{us / steps / 1e3:,.3f}") for row, us in trace["rows_us"].items()],
        )
    ]
    if len(trace["per_step"]) > 1:
        parts.append(_per_step(trace["per_step"]))
    sections = [Section(f"Breakdown{name}", parts)]
    if trace["memory"]:
        sections.append(Section(f"Memory{name}", [_memory(curve) for curve in trace["memory"]]))
    for title, key in (("Operators", "operators"), ("Kernels", "kernels")):
        if trace[key]:
            sections.append(Section(f"{title}{name}", [_operators(trace[key])]))
    return sections


def _per_step(steps: Sequence[Mapping[str, Any]]) -> Plot:
    roles: dict[str, Role] = dict(zip(steps[0]["rows_us"], _COLOURS, strict=True))
    rows = [row for row in roles if any(step["rows_us"][row] for step in steps)]
    totals = [step["total_us"] for step in steps]
    return Plot(
        "Each step",
        f"{counted(len(steps), 'step')}, from {_ms(min(totals))} to {_ms(max(totals))}.",
        "step",
        [step["number"] for step in steps],
        "ms",
        [Series(row, [step["rows_us"][row] / 1e3 for step in steps], roles[row]) for row in rows],
        look="stack",
    )


def _memory(curve: Mapping[str, Any]) -> Plot:
    curves = [Series("allocated", curve["allocated_bytes"], "memory")]
    if curve["reserved_bytes"] is not None:
        curves.append(Series("reserved", curve["reserved_bytes"], "device"))
    summary = f"{curve['device']}: at most {size(curve['peak_allocated_bytes'])} allocated"
    if curve["peak_reserved_bytes"] is not None:
        summary += f", {size(curve['peak_reserved_bytes'])} reserved"
    return Plot(
        f"Memory of {curve['device']}",
        summary + ".",
        "ms",
        [us / 1e3 for us in curve["times_us"]],
        "bytes",
        curves,
        look="held",
    )


def _operators(operators: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        (operator["name"], number(operator["calls"]), _ms(operator["self_us"]), _ms(operator["total_us"]))
        for operator in operators
    ]
    caption = f"Longest own time first, {min(len(operators), _LISTED)} of {len(operators)}"
    return Table(("name", "calls", "own time", "with callees"), rows[:_LISTED], (1, 2, 3), caption)


def _cpu(cpu: Mapping[str, Any]) -> list[Section]:
    sections = []
    if cpu["gil"] is not None:
        parts = [Portion(name, value, f"{value:.1%}") for name, value in cpu["gil"].items()]
        sections.append(Section("Who holds the GIL", [Shares("Parts of the time", "of the time", parts)]))
    rows = [
        (
            function["name"],
            f"{function['file']}:{function['line']}",
            "" if function["calls"] is None else number(function["calls"]),
            f"{function['self_s'] * 1e3:,.1f}",
            f"{function['total_s'] * 1e3:,.1f}",
        )
        for function in cpu["functions"][:_LISTED]
    ]
    titles = ("function", "file", "calls", "own ms", "with callees, ms")
    caption = f"{cpu['tool']}, {counted(cpu['steps'], 'step')} in {cpu['seconds']:.1f} s"
    return [*sections, Section("Python's functions", [Table(titles, rows, (2, 3, 4), caption)])]


def _ms(us: float) -> str:
    return f"{us / 1e3:,.2f} ms"
