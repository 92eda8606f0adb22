"""``fastio profile``: where the time of a training step goes."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from fastio.cli.options import command_argument
from fastio.cli.result import html_option, show

if TYPE_CHECKING:
    from fastio.measure.trace.cpu_profiler import CpuProfile, Tool
    from fastio.measure.trace.profiler import ProfilingCost, Recording
    from fastio.measure.trace.trace import StepBreakdown
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
)


def _recording_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add torch.profiler's switches to a command, which gets them as one argument ``recording``."""

    @wraps(command)
    def with_options(*args: Any, record_shapes: bool, profile_memory: bool, with_stack: bool, **rest: Any) -> None:
        # Before torch is imported: with a memory curve it warns of each process's blocks from before the recording.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        # Set before fastio.loader.ranges is imported, so that nsys and ncu see the loader's ranges too.
        os.environ.setdefault("FASTIO_NVTX", "1")
        from fastio.measure.trace.profiler import Recording

        recording = Recording(record_shapes=record_shapes, profile_memory=profile_memory, with_stack=with_stack)
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
        "steps_cut": steps_cut,
    }
    show("profile", report, partial(profile_page, shown=top), as_json=as_json)


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
