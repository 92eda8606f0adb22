"""The live screen of ``fastio monitor``: bars of what is used, and curves of the last minutes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from fastio.cli.screen import printable
from fastio.types.units import counted, size

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from fastio.measure.machine.gpus import GpuSample
    from fastio.measure.machine.monitor import Sample

    _SampleFigure = Callable[[Sample], float | None]

__all__ = ["MonitorScreen"]

_KEPT = 240  # samples in the curves
_LABEL = 9  # columns
_VALUE = 10
_DETAILS = 38  # columns behind a percentage
_LEAST_CURVE = 10  # columns; with fewer, it is left out
_CELL = 16  # columns of one CPU: number, bar, percent
_BUSY, _FULL = 70, 90  # percent from which a bar is yellow, red


@dataclass(frozen=True, slots=True)
class _Glyphs:
    """What bars and curves are drawn with: eighths of a block, or what every terminal has."""

    full: str
    empty: str
    levels: str


_BLOCKS = _Glyphs("█", "░", "▁▂▃▄▅▆▇█")
_ASCII = _Glyphs("#", ".", "_.-=*#")


class MonitorScreen:
    """
    What fits of the latest samples: a renderable of rich, drawn anew for each size of the terminal.

    ``add`` takes the next sample; ``problems`` is a list that may grow, whose last line is shown.
    """

    def __init__(self, subject: str, problems: Sequence[str] = ()) -> None:
        self._subject = printable(subject)
        self._problems = problems
        self._samples: deque[Sample] = deque(maxlen=_KEPT)
        self._seconds = 0.0

    def add(self, sample: Sample) -> None:
        """Show this sample from the next drawing on."""
        self._samples.append(sample)
        self._seconds += sample.seconds

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self._samples:
            yield Text("the first sample is on its way", style="dim")
            return
        glyphs = _BLOCKS if options.encoding.lower().startswith("utf") else _ASCII
        height = options.height or options.size.height
        drawing = _Drawing(list(self._samples), options.max_width, glyphs)
        lines = [drawing.header(self._subject, self._seconds), Text(), *drawing.lines(height - 4), Text()]
        lines.append(drawing.footer(self._problems[-1] if self._problems else ""))
        for line in lines[:height]:
            line.truncate(options.max_width)
            line.no_wrap = True
            yield line


class _Drawing:
    """The lines of one moment, in a terminal of ``width`` columns."""

    def __init__(self, samples: Sequence[Sample], width: int, glyphs: _Glyphs) -> None:
        self._samples = samples
        self._now = samples[-1]
        self._width = width
        self._glyphs = glyphs
        self._bar = max(8, min(40, width * 3 // 10))
        self._blocks_in_row = max(1, min(64, width - _LABEL))

    def header(self, subject: str, seconds: float) -> Text:
        minutes, rest = divmod(int(seconds), 60)
        time = f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
        title = "fastio monitor  "
        room = max(0, self._width - len(title) - len(time) - 2)
        return Text.assemble((title, "bold"), (subject[:room].ljust(room) + "  "), (time, "dim"))

    def footer(self, problem: str) -> Text:
        if problem:
            return Text(printable(problem), style="bold red")
        names = ", ".join(dict.fromkeys(printable(gpu.name) for gpu in self._now.gpus))
        own = f"this monitor itself: {self._now.own_cpu_percent:.1f} % of a CPU"
        return Text("; ".join(filter(None, ("Ctrl-C ends", own, names))), style="dim")

    def lines(self, height: int) -> list[Text]:
        """Return all rows that fit into the height; CPUs and GPUs share what the others leave."""
        below = [*self._memory(), Text(), *self._rates()]
        blocks = -(-len(self._now.cpu_percents) // self._blocks_in_row)
        gpus = self._gpus(max(1, height - len(below) - 1 - blocks))
        cpus = self._cpus(height - len(below) - len(gpus))
        is_roomy = len(cpus) + len(gpus) + len(below) < height
        return [*cpus, *([Text()] if is_roomy else []), *gpus, *below]

    def _cpus(self, height: int) -> list[Text]:
        """Return all CPUs together, then one by one: as bars if there is room, otherwise as one block each."""
        now = self._now
        row = self._used("CPU", now.cpu_percent, f"of {counted(len(now.cpu_percents), 'CPU')}", _mean_of_cpus)
        percents = now.cpu_percents
        in_row = max(1, (self._width - _LABEL) // _CELL)
        if -(-len(percents) // in_row) < height:
            cells = [self._cell(number, percent) for number, percent in enumerate(percents)]
        else:
            in_row = self._blocks_in_row
            cells = [Text(self._level(percent, 100), style=_color(percent)) for percent in percents]
        rows = [cells[start : start + in_row] for start in range(0, len(cells), in_row)]
        lines = [Text(" " * _LABEL).append_text(Text().join(row)) for row in rows]
        return [row, *lines[: max(0, height - 1)]]

    def _cell(self, number: int, percent: float) -> Text:
        bar = _CELL - 4 - 5
        return Text.assemble((f"{number:>3} ", "dim"), self._filled(percent, bar, _color(percent)), f"{percent:4.0f} ")

    def _gpus(self, height: int) -> list[Text]:
        """Return one row per GPU or slice; the last row counts those for which there is no room."""
        gpus = self._now.gpus
        shown = len(gpus) if len(gpus) <= height else height - 1
        rows = [self._gpu(number, gpu) for number, gpu in enumerate(gpus[:shown])]
        if shown < len(gpus):
            rows.append(Text(f"and {counted(len(gpus) - shown, 'more GPU')}; a taller terminal shows all", style="dim"))
        return rows

    def _gpu(self, number: int, gpu: GpuSample) -> Text:
        known = [
            "" if gpu.sm_active_percent is None else f"SM {gpu.sm_active_percent:.0f} %",
            "" if gpu.memory_used_bytes is None else _part(gpu.memory_used_bytes, gpu.memory_total_bytes),
            "" if gpu.temperature_c is None else f"{gpu.temperature_c} C",
        ]
        label = f"GPU {gpu.index}" + ("" if gpu.mig_index is None else f".{gpu.mig_index}")
        return self._used(
            label, gpu.activity_percent, ", ".join(filter(None, known)), lambda sample: _of_gpu(sample, number)
        )

    def _memory(self) -> Iterator[Text]:
        used, whole = self._now.memory_used_bytes, self._now.memory_total_bytes
        yield self._used("Memory", 100 * used / whole, _part(used, whole), _memory_percent)
        process = self._now.process
        if process is not None:
            text = f"of all CPUs, {size(process.rss_bytes)} in {counted(process.processes, 'process', 'processes')}"
            yield self._used("Watched", _process_percent(self._now), text, _process_percent)

    def _rates(self) -> Iterator[Text]:
        yield self._rate("Disk", "read", lambda sample: sample.disk_read_bytes_per_s)
        yield self._rate("", "written", lambda sample: sample.disk_written_bytes_per_s)
        process = self._now.process
        if process is not None and process.disk_read_bytes_per_s is not None:
            yield self._rate("Watched", "read", _read_by_process)
            yield self._rate("", "written", _written_by_process)
        yield self._rate("Network", "received", lambda sample: sample.network_received_bytes_per_s)
        yield self._rate("", "sent", lambda sample: sample.network_sent_bytes_per_s)

    def _used(self, label: str, percent: float | None, text: str, figure: _SampleFigure) -> Text:
        """Return a row of something that can be used up: bar, percent, details, and the curve if there is room."""
        is_gpu = label.startswith("GPU")
        row = Text(label.ljust(_LABEL))
        row.append_text(self._filled(percent or 0.0, self._bar, "cyan" if is_gpu else _color(percent or 0.0)))
        row.append("  unknown " if percent is None else f"{percent:6.1f} % ".rjust(_VALUE), style="bold")
        row.append(f" {text}")
        start = _LABEL + self._bar + _VALUE + _DETAILS
        if self._width - start >= _LEAST_CURVE:
            row.append(" " * max(1, start - row.cell_len))
            row.append(self._curve(map(figure, self._samples), self._width - start, top=100.0), style="dim")
        return row

    def _rate(self, label: str, direction: str, figure: _SampleFigure) -> Text:
        """Return a row of bytes per second: its curve instead of a bar, the rate now and the highest one shown."""
        values = [figure(sample) or 0.0 for sample in list(self._samples)[-self._bar :]]
        row = Text(label.ljust(_LABEL))
        row.append(self._curve(values, self._bar, top=max(values)).rjust(self._bar), style="blue")
        row.append(f"{size(values[-1])}/s".rjust(_VALUE + 2), style="bold")
        row.append(f" {direction.ljust(8)}")
        return row.append(f"  at most {size(max(values))}/s", style="dim")

    def _filled(self, percent: float, width: int, style: str) -> Text:
        """Return a bar."""
        full = round(min(100.0, max(0.0, percent)) / 100 * width)
        return Text.assemble((self._glyphs.full * full, style), (self._glyphs.empty * (width - full), "dim"))

    def _curve(self, values: Iterable[float | None], width: int, *, top: float) -> str:
        """Return the latest values as blocks of different heights; unknown ones are blank."""
        latest = list(values)[-width:]
        return "".join(" " if value is None else self._level(value, top) for value in latest)

    def _level(self, value: float, top: float) -> str:
        levels = self._glyphs.levels
        return levels[min(len(levels) - 1, int(value / top * len(levels)))] if top > 0 else levels[0]


def _color(percent: float) -> str:
    return "red" if percent >= _FULL else "yellow" if percent >= _BUSY else "green"


def _part(used: int, whole: int | None) -> str:
    """
    Return what is used of something, in the unit of the whole.

    >>> _part(12_300_000_000, 140_000_000_000)
    '12.3 GB of 140.0 GB'
    """
    return size(used) if whole is None else f"{size(used)} of {size(whole)}"


def _mean_of_cpus(sample: Sample) -> float:
    return sample.cpu_percent


def _memory_percent(sample: Sample) -> float:
    return 100 * sample.memory_used_bytes / sample.memory_total_bytes


def _process_percent(sample: Sample) -> float | None:
    """Return the share of all CPUs that the watched processes use."""
    if sample.process is None:
        return None
    return min(100.0, sample.process.cpu_percent / len(sample.cpu_percents))


def _read_by_process(sample: Sample) -> float | None:
    return None if sample.process is None else sample.process.disk_read_bytes_per_s


def _written_by_process(sample: Sample) -> float | None:
    return None if sample.process is None else sample.process.disk_written_bytes_per_s


def _of_gpu(sample: Sample, number: int) -> float | None:
    return sample.gpus[number].activity_percent if number < len(sample.gpus) else None
