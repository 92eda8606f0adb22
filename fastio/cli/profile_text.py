"""What ``fastio profile`` prints for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fastio.cli.screen import counted, number, printable, size, table
from fastio.cli.verdict_text import echo_verdict

if TYPE_CHECKING:
    from fastio.measure.trace.cpu_profile import CpuProfile, FunctionTime
    from fastio.measure.trace.profiler import ProfilingCost
    from fastio.measure.trace.trace import OperatorTime, StepBreakdown

__all__ = ["print_cost", "print_cpu", "print_ranks", "print_trace"]

_LONGEST_NAME = 60  # names of kernels contain whole templates


def print_trace(found: StepBreakdown, top: int) -> None:
    """Print the eight rows, the device's parts, memory, top operators and kernels, and the verdict."""
    from fastio.measure.loop.verdict import verdict
    from fastio.measure.trace.trace import ROWS

    times = [step.total_us / 1e3 for step in found.per_step]
    click.echo(
        f"{printable(found.path)}: {counted(found.steps, 'step')} of {min(times):,.1f} to {max(times):,.1f} ms, "
        f"rank {found.rank}\n"
    )
    per_step = found.total_us / found.steps
    rows = [
        (name, _us(found.rows_us[name] / found.steps), f"{found.rows_us[name] / found.total_us:.2%}") for name in ROWS
    ]
    table(("step time", "us/step", "share"), [*rows, ("total", _us(per_step), "100.00%")], right=(1, 2))
    if found.idle_us is not None and found.compute_us is not None and found.non_compute_us is not None:
        parts = (("idle", found.idle_us), ("compute", found.compute_us), ("non-compute", found.non_compute_us))
        click.echo("\ndevice: " + ", ".join(f"{part / found.total_us:.1%} {name}" for name, part in parts))
    if found.tensor_core_share is not None:
        click.echo(f"kernel time on Tensor cores, by the kernels' names: {found.tensor_core_share:.1%}")
    _print_memory(found)
    _print_top("operator", found.operators[:top], found)
    _print_top("kernel", found.kernels[:top], found)
    echo_verdict(verdict(shares=found.shares))


def print_cost(cost: ProfilingCost) -> None:
    """Print what profiling itself cost."""
    step = f"a step took {cost.step_s * 1e3:,.2f} ms under the profiler"
    if cost.ratio is None or cost.step_without_s is None:
        step += "; no step without it followed to compare with"
    else:
        step += f" and {cost.step_without_s * 1e3:,.2f} ms without it ({cost.ratio:.2f} times"
        step += f", medians of {cost.steps} and {cost.steps_without})"
    click.echo(f"\nprofiling itself: {step}; {size(cost.trace_bytes)} of traces")


def print_ranks(found: Sequence[StepBreakdown]) -> None:
    """Print the device's parts of all traces side by side."""
    rows = [
        (
            str(each.rank),
            each.path,
            _us(each.total_us / each.steps),
            *(_part(part, each.total_us) for part in (each.idle_us, each.compute_us, each.non_compute_us)),
        )
        for each in sorted(found, key=lambda each: each.rank)
    ]
    click.echo()
    table(("rank", "trace", "us/step", "idle", "compute", "non-compute"), rows, right=(0, 2, 3, 4, 5))


def print_cpu(seen: CpuProfile, top: int) -> None:
    """Print the functions with the longest own time, and who held the GIL."""
    click.echo(
        f"{printable(seen.path)}: {counted(seen.steps, 'step')} in {seen.seconds:.1f} s, by {seen.tool}"
        + (" (the training's own thread)" if seen.tool == "cprofile" else " (threads of this process, not of workers)")
    )
    click.echo()
    counts = ["calls"] if seen.tool == "cprofile" else []  # py-spy does not count calls
    titles = ("function", "where", *counts, "own s", "own", "with calls")
    rows = [_function_row(function, seen) for function in seen.functions[:top]]
    table(titles, rows, right=range(2, len(titles)))
    if seen.gil is not None:
        gil = seen.gil
        click.echo(f"\nGIL: the loader held it for {gil.loader:.0%} of the time, the training for {gil.training:.0%}")
    how = "python -m pstats" if seen.tool == "cprofile" else "https://www.speedscope.app"
    click.echo(f"\nopen {printable(seen.path)} with {how}")


def _function_row(function: FunctionTime, seen: CpuProfile) -> tuple[str, ...]:
    where = f"{Path(function.file).parent.name}/{Path(function.file).name}:{function.line}".removeprefix("/")
    return (
        function.name,
        where if function.line else "-",  # built in
        *([] if function.calls is None else [number(function.calls)]),
        f"{function.self_s:.2f}",
        _part(function.self_s, seen.seconds),
        _part(function.total_s, seen.seconds),
    )


def _print_memory(found: StepBreakdown) -> None:
    if found.memory:
        click.echo()
    for curve in found.memory:
        reserved = "" if curve.peak_reserved_bytes is None else f", {size(curve.peak_reserved_bytes)} reserved"
        what = " since recording began" if curve.peak_reserved_bytes is None else ""
        click.echo(f"memory of {curve.device}: peak of {size(curve.peak_allocated_bytes)} allocated{what}{reserved}")


def _print_top(title: str, times: tuple[OperatorTime, ...], found: StepBreakdown) -> None:
    if not times:
        return
    click.echo()
    has_flops = any(each.flops is not None for each in times)
    rows = [
        (
            each.name if len(each.name) <= _LONGEST_NAME else f"{each.name[: _LONGEST_NAME - 3]}...",
            number(each.calls),
            _us(each.self_us / found.steps),
            _us(each.total_us / found.steps),
            *([_gigaflops(each)] if has_flops else []),
        )
        for each in times
    ]
    titles = (title, "calls", "own us/step", "us/step", *(["GFLOP/s"] if has_flops else []))
    table(titles, rows, right=range(1, len(titles)))


def _gigaflops(each: OperatorTime) -> str:
    return "-" if each.flops is None or each.total_us <= 0 else number(each.flops / each.total_us / 1e3)


def _part(value: float | None, total: float) -> str:
    return "-" if value is None or total <= 0 else f"{value / total:.1%}"


def _us(microseconds: float) -> str:
    return f"{microseconds:,.0f}"
