"""``fastio doctor``: what limits a training, why, and what to do about it."""

from __future__ import annotations

import dataclasses
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fastio.cli.options import command_argument
from fastio.cli.result import html_option, show
from fastio.cli.screen import begun, printable
from fastio.types.units import counted

if TYPE_CHECKING:
    from fastio.measure.doctor.diagnosis import Diagnosis
    from fastio.measure.doctor.facts import Facts
    from fastio.measure.doctor.session import Failure, Observation, ObservationPlan
    from fastio.measure.loop.step_timer import Timeline
    from fastio.measure.machine.monitor import Sample

__all__ = ["doctor"]


@dataclasses.dataclass(frozen=True, slots=True)
class _Case:
    """The facts about one training, and how its run ended."""

    name: str
    facts: Facts
    timeline: Timeline | None = None
    samples: tuple[Sample, ...] = ()
    failure: Failure | None = None


@click.command(context_settings={"ignore_unknown_options": True})
@command_argument()
@click.option(
    "--from", "saved", multiple=True, metavar="FILE", help="Read FILE instead of running a training; may be repeated."
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    default=10,
    show_default=True,
    help="How long to watch the training loop, from its first step on.",
)
@click.option(
    "--profiled",
    type=click.IntRange(min=0),
    metavar="N",
    default=5,
    show_default=True,
    help="How many of its steps to profile; fewer if time is short.",
)
@click.option("--json", "as_json", is_flag=True, help="Print diagnosis and figures as JSON.")
@html_option
@click.pass_context
def doctor(
    ctx: click.Context,
    command: tuple[str, ...],
    *,
    saved: tuple[str, ...],
    seconds: float,
    profiled: int,
    as_json: bool,
) -> None:
    """
    Find out what limits a training, why, and what to do about it.

    COMMAND is a script or -m MODULE with its arguments, after "--"; or MODULE:FUNCTION, which trains, or returns a
    loader and a step(batch) as a pair. The doctor stops it at the first step that ends after --seconds; Ctrl-C stops
    it earlier.

    Instead of running a training, --from reads the JSON of bench both, bench disk, profile, monitor, doctor or
    StepTimer.write_json, and traces of torch.profiler.

    \b
    Example:
      fastio doctor -- train.py --epochs 1
      fastio doctor train.py:loader_and_step
      fastio doctor --from both.json --from monitor.jsonl
    """
    from fastio.measure.doctor.diagnosis import diagnose
    from fastio.measure.report.doctor import doctor_page

    if bool(command) == bool(saved):
        raise click.UsageError("give a training (-- SCRIPT.py, or MODULE:FUNCTION) or --from FILE")
    case = _read(saved) if saved else _run(command, seconds, profiled)
    diagnosis = diagnose(case.facts, ended=None if case.failure is None else case.failure.message)
    if case.failure is not None:
        _print_failure(case.failure, has_verdict=diagnosis.pattern is not None)
    show("doctor", _as_dict(case, diagnosis), doctor_page, as_json=as_json)
    if case.failure is not None:
        ctx.exit(case.failure.code)


def _read(saved: tuple[str, ...]) -> _Case:
    from fastio.measure.doctor.saved import load_facts

    return _Case(", ".join(saved), load_facts(saved))


def _run(command: tuple[str, ...], seconds: float, profiled: int) -> _Case:
    from fastio.measure.doctor.session import ObservationPlan
    from fastio.measure.loop.user_code import is_function_name, takes_arguments, without_python

    first, *rest = without_python(command)
    arguments = tuple(rest)
    is_function = is_function_name(first) and not Path(first).exists()
    if arguments and not takes_arguments(first):
        raise click.UsageError(f"{first}: only a script.py or -m MODULE takes arguments ({' '.join(arguments)})")
    plan = f"{seconds:g} s from the first step on, including {counted(profiled, 'profiled step')}"
    begun(f"watching {printable(first)}: {plan} (Ctrl-C stops it earlier)")
    with redirect_stdout(sys.stderr):  # what the training prints does not belong in the report
        return _observed(first, arguments, ObservationPlan(seconds, profiled), is_function=is_function)


def _observed(name: str, arguments: tuple[str, ...], plan: ObservationPlan, *, is_function: bool) -> _Case:
    from fastio.measure.doctor.gather import facts_of
    from fastio.measure.doctor.session import function_training, observe
    from fastio.measure.doctor.watch import Watcher
    from fastio.measure.loop.user_code import run_script

    def training(watcher: Watcher) -> None:
        if is_function:
            function_training(name, watcher.watched, lambda: bool(watcher.watches))()
        else:
            run_script(name, arguments)

    def case(observation: Observation) -> _Case:
        samples = () if observation.surroundings is None else tuple(observation.surroundings.samples)
        return _Case(name, facts_of(observation), observation.timeline, samples, observation.failure)

    return observe(training, plan, case)


def _as_dict(case: _Case, diagnosis: Diagnosis) -> dict[str, object]:
    return {
        "command": case.name,
        **dataclasses.asdict(diagnosis),
        "failure": None if case.failure is None else dataclasses.asdict(case.failure),
        "timeline": None if case.timeline is None else dataclasses.asdict(case.timeline),
        "samples": [dataclasses.asdict(sample) for sample in case.samples],
        "facts": dataclasses.asdict(case.facts),
    }


def _print_failure(failure: Failure, *, has_verdict: bool) -> None:
    """Print the training's own traceback on stderr, and that it ended early where nothing else says so."""
    lines = [failure.text.rstrip("\n")] if failure.text else []
    if has_verdict or not failure.text:
        end = "" if failure.text else f": {failure.message}"
        lines += ["", f"the training ended early{end}" + ("; what was measured until then:" if has_verdict else "")]
    click.echo("\n".join([*lines, ""]), err=True)
