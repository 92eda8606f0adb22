"""``fastio profile``: where the time of a training step goes."""

from __future__ import annotations

import dataclasses
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fastio.cli.json_form import echo_json
from fastio.cli.screen import counted, number, printable, table

if TYPE_CHECKING:
    from fastio.measure.profiler import Schedule
    from fastio.measure.trace import OperatorTime, StepBreakdown

__all__ = ["profile"]


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--schedule", "plan", default="1/1/5/1", show_default=True, metavar="W/W/A[/R]", help="Wait/warmup/active/repeat."
)
@click.option("-o", "--out", default="trace.json.gz", show_default=True, metavar="FILE", help="The trace to write.")
@click.option("--top", type=click.IntRange(min=0), default=10, show_default=True, help="Operators and kernels shown.")
@click.option("--json", "as_json", is_flag=True, help="The breakdown for machines.")
def profile(command: tuple[str, ...], *, plan: str, out: str, top: int, as_json: bool) -> None:
    """
    Record some steps of a training, and break them down. By torch.profiler and its trace.

    COMMAND is a script with its arguments, after "--"; MODULE:FUNCTION, which trains, or returns a pair of loader and
    step(batch); or a trace that was recorded before (.json, .json.gz). The training ends when its steps are recorded.
    Schedules of the courses: 1/1/5/1, 1/1/3/2, 10/10/10, 10/3/3. The trace opens in https://ui.perfetto.dev.

    \b
    Example:
      fastio profile -- train.py --epochs 1
      fastio profile --schedule 10/3/3 train.py:loader_and_step
      fastio profile trace.json.gz
    """
    from fastio.measure.trace import read_trace

    with redirect_stdout(sys.stderr):  # what the training prints is no part of the report
        traces = _recorded(command, plan, Path(out))
    found = [read_trace(trace) for trace in traces]
    if as_json:
        echo_json("profile", {"command": command, "traces": [_as_dict(each) for each in found], "cpu": None})
        return
    for each in found:
        _print(each, top)


def _recorded(command: tuple[str, ...], plan: str, out: Path) -> list[Path]:
    """The traces of a command, or the one that it names."""
    from fastio.errors import FastioError
    from fastio.measure.profiler import profile_function, profile_script
    from fastio.measure.user_code import is_function_name

    first, rest = command[0], command[1:]
    is_function = is_function_name(first) and not Path(first).exists()
    if rest and not first.endswith(".py"):
        raise click.UsageError(f"{first}: only a script.py takes arguments ({' '.join(rest)})")
    if first.endswith((".json", ".json.gz")):
        return [Path(first)]
    if not out.name.endswith((".json", ".json.gz")):
        raise FastioError(f"{out}: a trace is .json or .json.gz; choose a name that ends so")
    if is_function:
        return profile_function(first, plan=_schedule(plan), out=out)
    return profile_script(first, rest, plan=_schedule(plan), out=out)


def _schedule(text: str) -> Schedule:
    from fastio.measure.profiler import Schedule

    try:
        return Schedule(*(int(word) for word in text.split("/")))
    except (TypeError, ValueError) as exc:
        raise click.UsageError(f"--schedule {text}: expected WAIT/WARMUP/ACTIVE or WAIT/WARMUP/ACTIVE/REPEAT") from exc


def _as_dict(found: StepBreakdown) -> dict[str, object]:
    from fastio.measure.verdict import verdict

    return dataclasses.asdict(found) | {"verdict": dataclasses.asdict(verdict(shares=found.shares))}


def _print(found: StepBreakdown, top: int) -> None:
    from fastio.measure.trace import ROWS
    from fastio.measure.verdict import verdict

    click.echo(f"{printable(found.path)}: {counted(found.steps, 'step')}, rank {found.rank}\n")
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
    _print_top("operator", found.operators[:top], found)
    _print_top("kernel", found.kernels[:top], found)
    said = verdict(shares=found.shares)
    click.echo(f"\n{said.bound}")
    for line in said.evidence:
        click.echo(f"  {line}")
    click.echo(f"next: {said.next_step}")


def _print_top(title: str, times: tuple[OperatorTime, ...], found: StepBreakdown) -> None:
    if not times:
        return
    click.echo()
    rows = [
        (each.name, number(each.calls), _us(each.self_us / found.steps), _us(each.total_us / found.steps))
        for each in times
    ]
    table((title, "calls", "own us/step", "us/step"), rows, right=(1, 2, 3))


def _us(microseconds: float) -> str:
    return f"{microseconds:,.0f}"
