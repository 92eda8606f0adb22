"""``fastio monitor``: what the machine does while a training runs."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from fastio.cli.options import command_argument
from fastio.cli.result import form, html_option, write_html
from fastio.cli.screen import printable, table
from fastio.types.units import counted, number, percent, size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fastio.measure.machine.gpus import GpuSample
    from fastio.measure.machine.monitor import Monitor, Sample
    from fastio.measure.trackers import Tracker

__all__ = [
    "MonitorScreen",
    "monitor",
]


# The options of ``fastio monitor`` that send figures elsewhere, gathered into one argument.

_OPTIONS = (
    click.option("--csv", metavar="FILE", help="Also append every sample to FILE as a row of CSV."),
    click.option("--tensorboard", metavar="DIR", help="Also write figures to DIR for TensorBoard."),
    click.option("--wandb", metavar="PROJECT", help="Also log figures to a new run of Weights & Biases."),
    click.option("--mlflow", is_flag=True, help="Also log figures to a new run of MLflow (MLFLOW_TRACKING_URI, ...)."),
    click.option(
        "--metrics-port",
        type=click.IntRange(0, 65_535),
        metavar="N",
        help="Also serve figures at http://127.0.0.1:N/metrics for Prometheus; 0: any free port.",
    ),
    click.option(
        "--metrics-host",
        metavar="HOST",
        help="Address for --metrics-port. Others can read the figures at 0.0.0.0.  [default: 127.0.0.1]",
    ),
)


@dataclass(frozen=True, slots=True)
class TrackerArguments:
    """The options as given on the command line, under the options' names."""

    csv: str | None
    tensorboard: str | None
    wandb: str | None
    mlflow: bool
    metrics_port: int | None
    metrics_host: str | None

    def check(self) -> None:
        """Raise UsageError for a host without a port."""
        if self.metrics_host is not None and self.metrics_port is None:
            raise click.UsageError("--metrics-host needs a port: add --metrics-port N")

    def opened(self) -> list[Tracker]:
        """Open all that were asked for. Raises FastioError. Says on stderr where figures are served."""
        from fastio.measure.trackers import CSV, MLflow, OpenMetrics, TensorBoard, WandB

        trackers: list[Tracker] = []
        if self.metrics_port is not None:
            server = OpenMetrics(self.metrics_port, self.metrics_host or "127.0.0.1")
            click.echo(f"figures: {server.url}", err=True)
            trackers.append(server)
        if self.csv is not None:
            trackers.append(CSV(self.csv))
        if self.tensorboard is not None:
            trackers.append(TensorBoard(self.tensorboard))
        if self.wandb is not None:
            trackers.append(WandB(self.wandb))
        if self.mlflow:
            trackers.append(MLflow())
        return trackers


def tracker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command, which gets them as one argument ``trackers``."""

    @wraps(command)
    def with_options(*args: Any, **options: Any) -> None:
        trackers = TrackerArguments(**{name: options.pop(name) for name in TrackerArguments.__slots__})
        trackers.check()
        command(*args, trackers=trackers, **options)

    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options


_NOT_FOUND = 127  # the exit codes of a shell
_SHOWN_CPUS = 8  # shown one by one; the log has all CPUs
_BUSY, _FULL = 70, 90  # percent from which a bar is yellow, red


@click.command(context_settings={"ignore_unknown_options": True})
@command_argument()
@click.option(
    "--pid", type=click.IntRange(min=1), metavar="N", help="Watch this process and its children until it ends."
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.05),
    metavar="SECONDS",
    default=1,
    show_default=True,
    help="Seconds between samples.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Stop after this time.  [default: when COMMAND or --pid ends, or at Ctrl-C]",
)
@click.option("-o", "--out", metavar="FILE", help="Also write every sample to FILE as a line of JSON.")
@click.option("--json", "as_json", is_flag=True, help="Print samples as lines of JSON instead of tables.")
@tracker_options
@html_option
@click.pass_context
def monitor(
    ctx: click.Context,
    command: tuple[str, ...],
    *,
    pid: int | None,
    interval: float,
    seconds: float | None,
    out: str | None,
    as_json: bool,
    trackers: TrackerArguments,
) -> None:
    """
    Watch CPUs, memory, disk, network and GPUs. With COMMAND (after "--"), starts it, watches while it runs and exits
    with its code.

    Without COMMAND, a terminal shows a screen that is kept up to date, and anything else gets a line per sample. At
    the end, the mean and maximum of each figure are printed. The output of COMMAND is not touched.

    \b
    Example:
      fastio monitor
      fastio monitor --pid 4242 --out log.jsonl
      fastio monitor --tensorboard runs/machine -- python train.py
      fastio monitor --metrics-port 9096
    """
    from fastio.measure.machine.monitor import Monitor
    from fastio.measure.report.machine import monitor_page

    if command and pid is not None:
        raise click.UsageError("give --pid or a command, not both")
    samples: list[Sample] = []
    subject = " ".join(command) or ("this machine" if pid is None else f"process {pid}")
    problems = _Problems()
    with _written(out) as log, _tracked(trackers, problems) as track, _running(command) as started:
        watched = started.pid if started is not None else pid
        is_shown = not command and not as_json
        with Monitor(watched) as watching, _shown(subject, problems, is_shown=is_shown) as show:

            def take(sample: Sample) -> None:
                samples.append(sample)
                track(sample)
                line = json.dumps(form("monitor", dataclasses.asdict(sample)))
                log(line)
                if as_json:
                    click.echo(line)
                else:
                    show(sample)

            # The normal way to end it; the command gets the same signal from the terminal.
            with suppress(KeyboardInterrupt):
                _watch(watching, started, interval, seconds, take)
        if not as_json:
            _summarise(samples, watching.sources)
        write_html(lambda: monitor_page(subject, [dataclasses.asdict(sample) for sample in samples]))
        if started is not None:
            code = started.wait()
            ctx.exit(code if code >= 0 else 128 - code)  # a shell's exit code for death by a signal


class _Problems:
    """Prints problems on stderr; while a screen covers the terminal, keeps them in ``lines`` instead."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.is_covered = False

    def __call__(self, problem: str) -> None:
        if self.is_covered:
            self.lines.append(problem)
        else:
            click.echo(f"warning: {problem}", err=True)

    def uncover(self) -> None:
        """Print what was kept."""
        self.is_covered = False
        for problem in self.lines:
            self(problem)


@contextmanager
def _running(command: tuple[str, ...]) -> Iterator[subprocess.Popen[bytes] | None]:
    """Start the command; it does not outlive a monitor that is terminated."""
    if not command:
        yield None
        return
    try:
        started = subprocess.Popen(command)  # noqa: S603 - it is the user's own command line
    except OSError as exc:
        click.echo(f"error: {command[0]}: cannot be started ({exc.strerror})", err=True)
        sys.exit(_NOT_FOUND)
    try:
        yield started
    finally:
        if started.poll() is None:
            started.terminate()
            started.wait()


@contextmanager
def _written(out: str | None) -> Iterator[Callable[[str], None]]:
    """
    Yield a function that writes a line to the file at once, or does nothing if there is no file.

    The file is created before the command is started.
    """
    if out is None:
        yield lambda _: None
        return
    from fastio.errors import FastioError

    def refused(exc: OSError) -> FastioError:
        return FastioError(f"{out}: cannot be written ({exc.strerror}); choose another place")

    try:
        file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    except OSError as exc:
        raise refused(exc) from exc

    def write(line: str) -> None:
        data = f"{line}\n".encode()
        try:
            while data:
                data = data[os.write(file, data) :]
        except OSError as exc:
            raise refused(exc) from exc

    try:
        yield write
    finally:
        os.close(file)


@contextmanager
def _shown(subject: str, problems: _Problems, *, is_shown: bool) -> Iterator[Callable[[Sample], None]]:
    """Yield a function that shows a sample: on a terminal's screen, else as a line; or not at all."""
    if not is_shown:
        yield lambda _: None
        return
    if not sys.stdout.isatty():
        yield lambda sample: click.echo(_line(sample))
        return
    from rich.live import Live

    screen = MonitorScreen(subject, problems.lines)
    try:
        with Live(screen, screen=True, auto_refresh=False) as live:
            problems.is_covered = True

            def show(sample: Sample) -> None:
                screen.add(sample)
                live.refresh()

            yield show
    finally:
        problems.uncover()


@dataclass(slots=True)
class MonitorScreen:
    """
    The latest sample as bars and rates, drawn by rich anew for each size of the terminal; what does not fit is cut off.

    ``problems`` is a list that may grow, whose last line is shown.
    """

    subject: str
    problems: Sequence[str] = ()
    _sample: Sample | None = None
    _seconds: float = 0.0
    _highest: dict[str, float] = field(default_factory=dict)

    def add(self, sample: Sample) -> None:
        """Show this sample from the next drawing on."""
        self._sample = sample
        self._seconds += sample.seconds
        for name, rate in _rates(sample).items():
            self._highest[name] = max(rate, self._highest.get(name, 0.0))

    def __rich__(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        sample = self._sample
        if sample is None:
            return Text("the first sample is on its way", style="dim")
        minutes, seconds = divmod(int(self._seconds), 60)
        head = Table.grid("", "", expand=True, padding=(0, 2))
        head.columns[1].justify = "right"
        time_text = f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
        head.add_row(Text.assemble(("fastio monitor  ", "bold"), printable(self.subject)), time_text)
        bars = Table.grid("", "", "", "", expand=True, padding=(0, 2, 0, 0))
        bars.columns[1].ratio, bars.columns[3].ratio = 3, 4
        bars.columns[2].justify = "right"
        for name, busy, text in _used(sample):
            bar = ProgressBar(100, busy or 0.0, complete_style=_color(busy or 0.0), finished_style="red")
            bars.add_row(name, bar, "unknown" if busy is None else percent(busy, 1), Text(text, style="dim"))
        bars.add_row()
        for name, rate in _rates(sample).items():
            bars.add_row(name, "", f"{size(rate)}/s", Text(f"at most {size(self._highest[name])}/s", style="dim"))
        for grid in (head, bars):
            for column in grid.columns:
                column.no_wrap = True
        foot = Text(f"Ctrl-C ends; this monitor itself: {percent(sample.own_cpu_percent, 1)} of a CPU", style="dim")
        if self.problems:
            foot = Text(printable(self.problems[-1]), style="bold red")
        foot.no_wrap, foot.overflow = True, "ellipsis"
        return Group(head, foot, "", bars)


def _used(sample: Sample) -> Iterator[tuple[str, float | None, str]]:
    """Yield what can be used up: its name, the percentage that is (None: unknown), and more about it."""
    percents = sample.cpu_percents
    yield "CPU", sample.cpu_percent, f"of {counted(len(percents), 'CPU')}"
    if len(percents) <= _SHOWN_CPUS:
        yield from ((f"CPU {number}", busy, "") for number, busy in enumerate(percents))
    else:
        yield "busiest CPU", max(percents), f"{number(sum(busy > 90 for busy in percents))} above 90%"
    used, whole = sample.memory_used_bytes, sample.memory_total_bytes
    yield "memory", 100 * used / whole, f"{size(used)} of {size(whole)}"
    process = sample.process
    if process is not None:
        text = f"of all CPUs, {size(process.rss_bytes)} in {counted(process.processes, 'process', 'processes')}"
        yield "watched", min(100.0, process.cpu_percent / len(percents)), text
    for gpu in sample.gpus:
        memory = "" if gpu.memory_used_bytes is None else size(gpu.memory_used_bytes)
        known = [
            "" if gpu.sm_active_percent is None else f"SM {percent(gpu.sm_active_percent)}",
            f"{memory} of {size(gpu.memory_total_bytes)}" if memory and gpu.memory_total_bytes else memory,
            "" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f} C",
            printable(gpu.name),
        ]
        yield _gpu_name(gpu), gpu.activity_percent, ", ".join(filter(None, known))


def _rates(sample: Sample) -> dict[str, float]:
    """Return bytes per second by what they are."""
    process = sample.process
    rates = {
        "disk read": sample.disk_read_bytes_per_s,
        "disk written": sample.disk_written_bytes_per_s,
        "watched, read": None if process is None else process.disk_read_bytes_per_s,
        "watched, written": None if process is None else process.disk_written_bytes_per_s,
        "network received": sample.network_received_bytes_per_s,
        "network sent": sample.network_sent_bytes_per_s,
    }
    return {name: rate for name, rate in rates.items() if rate is not None}


def _color(busy: float) -> str:
    return "red" if busy >= _FULL else "yellow" if busy >= _BUSY else "green"


@contextmanager
def _tracked(trackers: TrackerArguments, problems: _Problems) -> Iterator[Callable[[Sample], None]]:
    """Yield a function that sends a sample's figures to all trackers, which are closed at the end."""
    opened = trackers.opened()
    if not opened:
        yield lambda _: None
        return
    from fastio.measure.trackers.machine import MachineFigures
    from fastio.measure.trackers.training import TrackerThread

    threads = [TrackerThread(tracker, warn=problems) for tracker in opened]
    machine = MachineFigures()

    def track(sample: Sample) -> None:
        figures = machine.of(sample)
        for thread in threads:
            thread.put(figures)

    try:
        yield track
    finally:
        for thread in threads:
            thread.close()


def _line(sample: Sample) -> str:
    """Return a sample as one line, for logs and pipes."""
    clock = time.strftime("%H:%M:%S", time.localtime(sample.time_s))
    parts = [f"{clock}  CPU {percent(sample.cpu_percent)}"]
    if sample.process is not None:
        parts.append(f"process {percent(sample.process.cpu_percent)} of a CPU, {size(sample.process.rss_bytes)}")
    parts += [
        f"memory {size(sample.memory_used_bytes)} of {size(sample.memory_total_bytes)}",
        f"disk read {size(sample.disk_read_bytes_per_s)}/s, written {size(sample.disk_written_bytes_per_s)}/s",
        f"network in {size(sample.network_received_bytes_per_s)}/s, out {size(sample.network_sent_bytes_per_s)}/s",
    ]
    for gpu in sample.gpus:
        busy = gpu.activity_percent
        parts.append(_gpu_name(gpu) if busy is None else f"{_gpu_name(gpu)} {percent(busy)}")
    return "; ".join(parts)


def _gpu_name(gpu: GpuSample) -> str:
    return f"GPU {gpu.index}" + ("" if gpu.mig_index is None else f" slice {gpu.mig_index}")


def _watch(
    watching: Monitor,
    started: subprocess.Popen[bytes] | None,
    interval: float,
    seconds: float | None,
    take: Callable[[Sample], None],
) -> None:
    """Take a sample each interval until the process or the time ends; take at least one."""
    ends = None if seconds is None else time.perf_counter() + seconds
    while True:
        pause = interval if ends is None else max(0.0, min(interval, ends - time.perf_counter()))
        if started is None:
            time.sleep(pause)
        else:
            with suppress(subprocess.TimeoutExpired):
                started.wait(pause)
        sample = watching.sample()
        if sample is None:
            return
        take(sample)
        if ends is not None and time.perf_counter() >= ends:
            return


def _figures(sample: Sample) -> dict[str, tuple[float, Callable[[float], str]]]:
    """Map the name of each figure to its value and the way it is shown."""

    def share(value: float) -> str:
        return percent(value, 1)

    def rate(value: float) -> str:
        return size(value) + "/s"

    figures: dict[str, tuple[float, Callable[[float], str]]] = {"all CPUs": (sample.cpu_percent, share)}
    if len(sample.cpu_percents) <= _SHOWN_CPUS:
        figures |= {f"CPU {index}": (value, share) for index, value in enumerate(sample.cpu_percents)}
    else:
        figures["busiest CPU"] = (max(sample.cpu_percents), share)
        figures["CPUs above 90%"] = (sum(value > 90 for value in sample.cpu_percents), number)
    if sample.process is not None:
        figures["process, CPU (100%: one core)"] = (sample.process.cpu_percent, share)
        figures["process, memory"] = (sample.process.rss_bytes, size)
        if sample.process.disk_read_bytes_per_s is not None and sample.process.disk_written_bytes_per_s is not None:
            figures["process, disk read"] = (sample.process.disk_read_bytes_per_s, rate)
            figures["process, disk written"] = (sample.process.disk_written_bytes_per_s, rate)
    figures["memory used"] = (sample.memory_used_bytes, size)
    figures["memory used, share"] = (100 * sample.memory_used_bytes / sample.memory_total_bytes, share)
    figures["disk read"] = (sample.disk_read_bytes_per_s, rate)
    figures["disk written"] = (sample.disk_written_bytes_per_s, rate)
    figures["network received"] = (sample.network_received_bytes_per_s, rate)
    figures["network sent"] = (sample.network_sent_bytes_per_s, rate)
    for gpu in sample.gpus:
        known: tuple[tuple[str, float | None, Callable[[float], str]], ...] = (
            ("utilisation", gpu.utilization_percent, share),
            ("SM active", gpu.sm_active_percent, share),
            ("SM occupancy", gpu.sm_occupancy_percent, share),
            ("Tensor cores", gpu.tensor_active_percent, share),
            ("DRAM active", gpu.dram_active_percent, share),
            ("memory", gpu.memory_used_bytes, size),
            ("temperature", gpu.temperature_c, lambda value: f"{value:.0f} C"),
            ("PCIe received", gpu.pcie_received_bytes_per_s, rate),
            ("PCIe sent", gpu.pcie_sent_bytes_per_s, rate),
        )
        figures |= {f"{_gpu_name(gpu)} {name}": (value, show) for name, value, show in known if value is not None}
    figures["this monitor, CPU (100%: one core)"] = (sample.own_cpu_percent, share)
    return figures


def _summarise(samples: list[Sample], sources: tuple[str, ...]) -> None:
    """Print mean and maximum of every figure, and where the figures come from."""
    if not samples:
        click.echo("ended before the first sample; a shorter --interval sees more")
        return
    seconds = sum(sample.seconds for sample in samples)
    click.echo(f"{counted(len(samples), 'sample')} in {number(seconds)} s")
    every = [_figures(sample) for sample in samples]
    rows = []
    for name, (_, show) in every[-1].items():
        weighted = [
            (figures[name][0], sample.seconds)
            for figures, sample in zip(every, samples, strict=True)
            if name in figures
        ]
        mean = sum(value * weight for value, weight in weighted) / sum(weight for _, weight in weighted)
        rows.append((name, show(mean), show(max(value for value, _ in weighted))))
    table(("", "mean", "maximum"), rows, right=(1, 2))
    for source in sources:
        click.echo(source)
