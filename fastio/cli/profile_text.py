"""What ``fastio profile`` prints for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fastio.cli.screen import printable, table
from fastio.types.units import counted, number, size

if TYPE_CHECKING:
    from fastio.measure.trace.cpu_profile import CpuProfile, FunctionTime
    from fastio.measure.trace.profiler import ProfilingCost
    from fastio.measure.trace.trace import OperatorTime, StepBreakdown

__all__ = ["print_cost", "print_cpu", "print_ranks", "print_trace"]

_LONGEST_NAME = 60  # names of kernels contain whole templates


def print_trace(breakdown: StepBreakdown, top: int) -> None:
    """Print the eight rows, the device's parts, memory, top operators and kernels, and the verdict."""
    from fastio.measure.loop.verdict import verdict
    from fastio.measure.trace.trace import ROWS

    times = [step.total_us / 1e3 for step in breakdown.per_step]
    click.echo(
        f"{printable(breakdown.path)}: {counted(breakdown.steps, 'step')} of {min(times):,.1f} to "
        f"{max(times):,.1f} ms, rank {breakdown.rank}\n"
    )
    per_step = breakdown.total_us / breakdown.steps
    rows = [
        (name, _us(breakdown.rows_us[name] / breakdown.steps), f"{breakdown.rows_us[name] / breakdown.total_us:.2%}")
        for name in ROWS
    ]
    table(("step time", "us/step", "share"), [*rows, ("total", _us(per_step), "100.00%")], right=(1, 2))
    if breakdown.idle_us is not None and breakdown.compute_us is not None and breakdown.non_compute_us is not None:
        parts = (
            ("idle", breakdown.idle_us),
            ("compute", breakdown.compute_us),
            ("non-compute", breakdown.non_compute_us),
        )
        click.echo("\ndevice: " + ", ".join(f"{part / breakdown.total_us:.1%} {name}" for name, part in parts))
    if breakdown.tensor_core_share is not None:
        click.echo(f"kernel time on Tensor cores, by the kernels' names: {breakdown.tensor_core_share:.1%}")
    _print_memory(breakdown)
    _print_top("operator", breakdown.operators[:top], breakdown)
    _print_top("kernel", breakdown.kernels[:top], breakdown)
    click.echo(f"\n{verdict(shares=breakdown.shares)}")


def print_cost(cost: ProfilingCost) -> None:
    """Print what profiling itself cost."""
    step = f"a step took {cost.step_s * 1e3:,.2f} ms under the profiler"
    if cost.ratio is None or cost.step_without_s is None:
        step += "; no step without it followed to compare with"
    else:
        step += f" and {cost.step_without_s * 1e3:,.2f} ms without it ({cost.ratio:.2f} times"
        step += f", medians of {cost.steps} and {cost.steps_without})"
    click.echo(f"\nprofiling itself: {step}; {size(cost.trace_bytes)} of traces")


def print_ranks(breakdowns: Sequence[StepBreakdown]) -> None:
    """Print the device's parts of all traces side by side."""
    rows = [
        (
            str(breakdown.rank),
            breakdown.path,
            _us(breakdown.total_us / breakdown.steps),
            _part(breakdown.idle_us, breakdown.total_us),
            _part(breakdown.compute_us, breakdown.total_us),
            _part(breakdown.non_compute_us, breakdown.total_us),
        )
        for breakdown in sorted(breakdowns, key=lambda breakdown: breakdown.rank)
    ]
    click.echo()
    table(("rank", "trace", "us/step", "idle", "compute", "non-compute"), rows, right=(0, 2, 3, 4, 5))


def print_cpu(profile: CpuProfile, top: int) -> None:
    """Print the functions with the longest own time, and who held the GIL."""
    click.echo(
        f"{printable(profile.path)}: {counted(profile.steps, 'step')} in {profile.seconds:.1f} s, by {profile.tool}"
        + (
            " (the training's own thread)"
            if profile.tool == "cprofile"
            else " (threads of this process, not of workers)"
        )
    )
    click.echo()
    counts = ["calls"] if profile.tool == "cprofile" else []  # py-spy does not count calls
    titles = ("function", "where", *counts, "own s", "own", "with calls")
    rows = [_function_row(function, profile) for function in profile.functions[:top]]
    table(titles, rows, right=range(2, len(titles)))
    if profile.gil is not None:
        gil = profile.gil
        click.echo(f"\nGIL: the loader held it for {gil.loader:.0%} of the time, the training for {gil.training:.0%}")
    how = "python -m pstats" if profile.tool == "cprofile" else "https://www.speedscope.app"
    click.echo(f"\nopen {printable(profile.path)} with {how}")


def _function_row(function: FunctionTime, profile: CpuProfile) -> tuple[str, ...]:
    where = f"{Path(function.file).parent.name}/{Path(function.file).name}:{function.line}".removeprefix("/")
    return (
        function.name,
        where if function.line else "-",  # built in
        *([] if function.calls is None else [number(function.calls)]),
        f"{function.self_s:.2f}",
        _part(function.self_s, profile.seconds),
        _part(function.total_s, profile.seconds),
    )


def _print_memory(breakdown: StepBreakdown) -> None:
    if breakdown.memory:
        click.echo()
    for curve in breakdown.memory:
        reserved = "" if curve.peak_reserved_bytes is None else f", {size(curve.peak_reserved_bytes)} reserved"
        what = " since recording began" if curve.peak_reserved_bytes is None else ""
        click.echo(f"memory of {curve.device}: peak of {size(curve.peak_allocated_bytes)} allocated{what}{reserved}")


def _print_top(title: str, times: tuple[OperatorTime, ...], breakdown: StepBreakdown) -> None:
    if not times:
        return
    click.echo()
    has_flops = any(operator.flops is not None for operator in times)
    rows = [
        (
            operator.name if len(operator.name) <= _LONGEST_NAME else f"{operator.name[: _LONGEST_NAME - 3]}...",
            number(operator.calls),
            _us(operator.self_us / breakdown.steps),
            _us(operator.total_us / breakdown.steps),
            *([_gigaflops(operator)] if has_flops else []),
        )
        for operator in times
    ]
    titles = (title, "calls", "own us/step", "us/step", *(["GFLOP/s"] if has_flops else []))
    table(titles, rows, right=range(1, len(titles)))


def _gigaflops(operator: OperatorTime) -> str:
    return "-" if operator.flops is None or operator.total_us <= 0 else number(operator.flops / operator.total_us / 1e3)


def _part(value: float | None, total: float) -> str:
    return "-" if value is None or total <= 0 else f"{value / total:.1%}"


def _us(microseconds: float) -> str:
    return f"{microseconds:,.0f}"
