"""``fastio profile``: where the time of a training step goes."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from fastio.cli.options import command_argument
from fastio.cli.result import echo_json, html_option, write_html
from fastio.cli.screen import printable, table
from fastio.types.units import counted, number, size

if TYPE_CHECKING:
    from fastio.measure.trace.cpu_profiler import CpuProfile, FunctionTime, Tool
    from fastio.measure.trace.profiler import ProfilingCost, Recording
    from fastio.measure.trace.trace import OperatorTime, StepBreakdown
    from fastio.measure.trace.training import Schedule

__all__ = [
    "profile",
]


_TRACES = (".json", ".json.gz")
_OUT = {None: "trace.json.gz", "cprofile": "profile.pstats", "py-spy": "profile.speedscope.json"}

_RECORDING = (
    click.option("--record-shapes", is_flag=True, help="Record input shapes and count floating point operations."),
    click.option(
        "--profile-memory/--no-profile-memory", default=True, show_default=True, help="Record memory over time."
    ),
    click.option("--with-stack", is_flag=True, help="Record Python functions too; makes traces much larger."),
    click.option("--with-flops", is_flag=True, help="Same as --record-shapes."),
)


def _recording_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add torch.profiler's switches to a command, which gets them as one argument ``recording``."""

    @wraps(command)
    def with_options(
        *args: Any, record_shapes: bool, profile_memory: bool, with_stack: bool, with_flops: bool, **rest: Any
    ) -> None:
        # Before torch is imported: with a memory curve it warns of each process's blocks from before the recording.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        # Set before fastio.loader.ranges is imported, so that nsys and ncu see the loader's ranges too.
        os.environ.setdefault("FASTIO_NVTX", "1")
        from fastio.measure.trace.profiler import Recording

        recording = Recording(
            record_shapes=record_shapes, profile_memory=profile_memory, with_stack=with_stack, with_flops=with_flops
        )
        command(*args, recording=recording, **rest)

    for option in reversed(_RECORDING):
        with_options = option(with_options)
    return with_options


@click.command(context_settings={"ignore_unknown_options": True})
@command_argument(required=True)
@click.option(
    "--schedule",
    "plan",
    default="1/1/5/1",
    show_default=True,
    metavar="W/W/A[/R]",
    help="How many steps to wait, to warm up and to record (active), and how often to repeat that.",
)
@click.option(
    "-o",
    "--out",
    metavar="FILE",
    help="The file to write.  [default: trace.json.gz; with --cpu profile.pstats or profile.speedscope.json]",
)
@click.option("--top", type=click.IntRange(min=0), metavar="N", default=10, show_default=True, help="Rows per table.")
@_recording_options
@click.option(
    "--cpu",
    type=click.Choice(["cprofile", "py-spy"]),
    help="Profile Python functions with this tool instead of torch.profiler.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=10,
    show_default=True,
    help="With --cpu: record for at least this time.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@html_option
def profile(
    command: tuple[str, ...],
    *,
    plan: str,
    out: str | None,
    top: int,
    recording: Recording,
    cpu: Tool | None,
    seconds: float,
    as_json: bool,
) -> None:
    """
    Record a few steps of a training and break down their time.

    COMMAND is a script or -m MODULE with its arguments, after "--"; or MODULE:FUNCTION, which trains, or returns a
    loader and a step(batch) as a pair; or traces recorded before (.json, .json.gz), for example one per rank.

    The training stops once its steps are recorded and a few more are timed without the profiler. Open the trace in
    https://ui.perfetto.dev; fastio's native threads have their own lines. A trace above 256 MiB loses its last steps.

    --cpu cprofile counts the calls in the training's own thread. --cpu py-spy samples all threads from outside, and
    shows whether the loader or the training holds the GIL.

    \b
    Example:
      fastio profile -- train.py --epochs 1
      fastio profile --schedule 10/3/3 train.py:loader_and_step
      fastio profile --cpu py-spy -- train.py
      fastio profile trace.json.gz
    """
    cpu_profile, traces, steps_cut, cost = None, [], 0, None
    if all(word.endswith(_TRACES) for word in command):
        traces = [Path(word) for word in command]
    else:
        path = _checked(Path(out or _OUT[cpu]), cpu)
        with redirect_stdout(sys.stderr):  # what the training prints does not belong in the report
            if cpu is None:
                traces, steps_cut, cost = _recorded(command, _schedule(plan), path, recording)
            else:
                cpu_profile = _watched(command, _schedule(plan), path, (cpu, seconds))
    from fastio.measure.report.profile import profile_page
    from fastio.measure.trace.trace import read_trace

    breakdowns = [read_trace(trace) for trace in traces]
    functions = None if cpu_profile is None else dataclasses.asdict(cpu_profile)
    report = {
        "command": command,
        "traces": [_as_dict(breakdown) for breakdown in breakdowns],
        "cpu": functions,
        "cost": None if cost is None else dataclasses.asdict(cost),
    }
    write_html(lambda: profile_page(report))
    if as_json:
        echo_json("profile", report)
        return
    for breakdown in breakdowns:
        print_trace(breakdown, top)
    if len(breakdowns) > 1:
        print_ranks(breakdowns)
    if cpu_profile is not None:
        print_cpu(cpu_profile, top)
    if cost is not None:
        print_cost(cost)
    if steps_cut:
        click.echo(f"\n{counted(steps_cut, 'step')} cut off: the trace would have exceeded 256 MiB")


def _checked(out: Path, cpu: Tool | None) -> Path:
    from fastio.errors import FastioError
    from fastio.measure.report.html import check_target

    if cpu is None and not out.name.endswith(_TRACES):
        raise FastioError(f"{out}: a trace is .json or .json.gz; choose a name with that ending")
    return check_target(out)


def _schedule(text: str) -> Schedule:
    from fastio.measure.trace.training import Schedule

    try:
        return Schedule(*(int(word) for word in text.split("/")))
    except (TypeError, ValueError) as exc:
        raise click.UsageError(f"--schedule {text}: expected WAIT/WARMUP/ACTIVE or WAIT/WARMUP/ACTIVE/REPEAT") from exc


def _recorded(
    command: tuple[str, ...], plan: Schedule, out: Path, recording: Recording
) -> tuple[list[Path], int, ProfilingCost | None]:
    from fastio.measure.trace.profiler import TraceRecorder
    from fastio.measure.trace.training import run_training

    recorder = TraceRecorder(plan, out, recording)
    run_training(command, recorder)
    return recorder.traces, recorder.steps_cut, recorder.cost


def _watched(
    command: tuple[str, ...], plan: Schedule, out: Path, how: tuple[Literal["cprofile", "py-spy"], float]
) -> CpuProfile:
    from fastio.measure.trace.cpu_profiler import CprofileRecorder, PySpyRecorder
    from fastio.measure.trace.training import run_training

    tool, seconds = how
    recorder = (CprofileRecorder if tool == "cprofile" else PySpyRecorder)(plan, out, seconds=seconds)
    run_training(command, recorder)
    return recorder.result()


def _as_dict(breakdown: StepBreakdown) -> dict[str, object]:
    from fastio.measure.loop.verdict import verdict

    return dataclasses.asdict(breakdown) | {"verdict": dataclasses.asdict(verdict(shares=breakdown.shares))}


# What ``fastio profile`` prints for people.

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
