"""The page of ``profile``: where the time of a step goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastio.measure.report.page import (
    Page,
    Part,
    Plot,
    Portion,
    Prose,
    Role,
    Section,
    Series,
    Shares,
    Table,
    verdict_of,
)
from fastio.types.units import counted, number, size

__all__ = [
    "profile_page",
]


_COLOURS: tuple[Role, ...] = ("c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7")  # the same colours as those of the mean
_LISTED = 25  # operators, kernels and functions listed per table
_LONGEST_NAME = 60  # on a terminal: names of kernels contain whole templates
_OPENED_WITH = {"cprofile": "python -m pstats", "py-spy": "https://www.speedscope.app"}


def profile_page(report: Mapping[str, Any], *, shown: int = _LISTED) -> Page:
    """Build the page from the form ``fastio.profile``; a terminal lists ``shown`` operators, kernels and functions."""
    traces, cpu = report["traces"], report["cpu"]
    several = len(traces) > 1
    sections = []
    for position, trace in enumerate(traces):
        name = f", trace {position} (rank {trace['rank']})" if several else ""
        sections += _trace(trace, name, shown)
    if several:
        sections.append(Section("Ranks", [_ranks(traces)]))
    if cpu is not None:
        sections += _cpu(cpu, shown)
    first = traces[0] if traces else None
    verdict = None if first is None else verdict_of(first["verdict"])
    figures = _figures(first) if first else []
    if report["cost"] is not None:
        sections.append(Section("What profiling itself cost", [Table((), _cost(report["cost"]))]))
    if report["steps_cut"]:
        line = f"{counted(report['steps_cut'], 'step')} cut off: the trace would have exceeded 256 MiB"
        sections.append(Section("Not in the trace", [Prose(line)]))
    return Page("Where the time of a step goes", " ".join(report["command"]), sections, verdict, figures)


def _figures(trace: Mapping[str, Any]) -> list[tuple[str, str]]:
    figures = [("a step", _ms(trace["total_us"] / max(trace["steps"], 1))), ("steps", number(trace["steps"]))]
    for name, key in (
        ("idle", "idle_us"),
        ("compute", "compute_us"),
        ("non-compute", "non_compute_us"),
    ):
        if trace[key] is not None:
            figures.append((f"device {name}", f"{trace[key] / trace['total_us']:.1%}"))
    if trace["tensor_core_share"] is not None:
        figures.append(("Tensor cores, of kernels, by their names", f"{trace['tensor_core_share']:.1%}"))
    peaks = [curve["peak_allocated_bytes"] for curve in trace["memory"]]
    return figures + ([("most memory", size(max(peaks)))] if peaks else [])


def _cost(cost: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what profiling itself cost."""
    with_it = ("a step under the profiler", _ms(cost["step_s"] * 1e6))
    traces = ("size of the traces", size(cost["trace_bytes"]))
    if cost["step_without_s"] is None:
        return [with_it, ("a step without it", "none followed to compare with"), traces]
    medians = f"medians of {cost['steps']} and {cost['steps_without']}"
    ratio = cost["step_s"] / cost["step_without_s"]
    without = f"{_ms(cost['step_without_s'] * 1e6)} ({ratio:.2f} times, {medians})"
    return [with_it, ("a step without it", without), traces]


def _trace(trace: Mapping[str, Any], name: str, shown: int) -> list[Section]:
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
            sections.append(Section(f"{title}{name}", [_operators(trace[key], steps, shown)]))
    return sections


def _ranks(traces: Sequence[Mapping[str, Any]]) -> Table:
    """Return the device's parts of all traces side by side."""
    rows = [
        (
            str(trace["rank"]),
            trace["path"],
            _ms(trace["total_us"] / max(trace["steps"], 1)),
            *(_part(trace[key], trace["total_us"]) for key in ("idle_us", "compute_us", "non_compute_us")),
        )
        for trace in sorted(traces, key=lambda trace: trace["rank"])
    ]
    return Table(("rank", "trace", "a step", "idle", "compute", "non-compute"), rows, (0, 2, 3, 4, 5))


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
    if curve["peak_reserved_bytes"] is None:
        summary += " since recording began"
    else:
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


def _operators(operators: Sequence[Mapping[str, Any]], steps: int, shown: int) -> Table:
    has_flops = any(operator["flops"] is not None for operator in operators)
    rows = [
        (
            operator["name"],
            number(operator["calls"]),
            *(f"{operator[key] / steps / 1e3:,.3f}" for key in ("self_us", "total_us")),
            *([_gigaflops(operator)] if has_flops else []),
        )
        for operator in operators
    ]
    caption = f"Longest own time first, {min(len(operators), _LISTED)} of {len(operators)}"
    titles = ("name", "calls", "own ms/step", "ms/step with callees", *(["GFLOP/s"] if has_flops else []))
    return Table(titles, rows[:_LISTED], range(1, len(titles)), caption, shown=shown, longest=_LONGEST_NAME)


def _gigaflops(operator: Mapping[str, Any]) -> str:
    flops, total_us = operator["flops"], operator["total_us"]
    return "-" if flops is None or total_us <= 0 else number(flops / total_us / 1e3)


def _cpu(cpu: Mapping[str, Any], shown: int) -> list[Section]:
    sections = []
    if cpu["gil"] is not None:
        parts = [Portion(name, value, f"{value:.1%}") for name, value in cpu["gil"].items()]
        sections.append(Section("Who holds the GIL", [Shares("Parts of the time", "of the time", parts)]))
    counts = ["calls"] if cpu["tool"] == "cprofile" else []  # py-spy does not count calls
    rows = [
        (
            function["name"],
            _where(function),
            *([number(function["calls"])] if counts else []),
            f"{function['self_s']:.2f}",
            _part(function["self_s"], cpu["seconds"]),
            _part(function["total_s"], cpu["seconds"]),
        )
        for function in cpu["functions"][:_LISTED]
    ]
    titles = ("function", "where", *counts, "own s", "own", "with calls")
    whose = "the training's own thread" if cpu["tool"] == "cprofile" else "threads of this process, not of workers"
    caption = f"{cpu['tool']} ({whose}): {counted(cpu['steps'], 'step')} in {cpu['seconds']:.1f} s"
    how = Prose(f"Open {cpu['path']} with {_OPENED_WITH[cpu['tool']]}.")
    table = Table(titles, rows, range(2, len(titles)), caption, shown=shown)
    return [*sections, Section("Python's functions", [table, how])]


def _where(function: Mapping[str, Any]) -> str:
    """Return the file with its folder, and the line; of what is built in, a dash."""
    file = Path(function["file"])
    return f"{file.parent.name}/{file.name}:{function['line']}".removeprefix("/") if function["line"] else "-"


def _part(value: float | None, total: float) -> str:
    return "-" if value is None or total <= 0 else f"{value / total:.1%}"


def _ms(us: float) -> str:
    return f"{us / 1e3:,.2f} ms"
