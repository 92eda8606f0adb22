"""What commands print with: tables, problems, and progress on the terminal."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal

import click

from fastio.types.units import number, parse_size, per_second, size

__all__ = [
    "SIZE",
    "WholeNumber",
    "begun",
    "by_reason",
    "column_widths",
    "columns",
    "meter",
    "printable",
    "problem_table",
    "steps",
    "table",
    "text_grid",
]


if TYPE_CHECKING:
    from rich.progress import Progress

    _ParamType = click.ParamType[int]
else:
    _ParamType = click.ParamType  # not generic before click 8.2


_PLAIN_COLUMNS = 160  # the width of a line if there is no terminal
_BAR_FROM = 80  # columns; with fewer, the figures beside a bar would be cut off
_PLAIN_INTERVAL_S = 5.0  # seconds between lines of progress if there is no terminal

Unit = Literal["samples", "bytes"]


class _Size(_ParamType):
    """A number of bytes: 1000000, 500MB, 1.5GB, 1GiB."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_size(str(value))
        except ValueError as exc:
            self.fail(str(exc), param, ctx)


SIZE = _Size()


class WholeNumber(click.IntRange):
    """As ``click.IntRange``, which says that "x" is no valid integer range, but not what would be."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number. Raises BadParameter that says what is expected."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r}: expected a whole number{self._range}", param, ctx)

    @property
    def _range(self) -> str:
        """The limits in words, each of which may be missing."""
        if self.min is not None and self.max is not None:
            return f" from {self.min:,} to {self.max:,}"
        return "" if self.min is None else f", {self.min:,} or more"


def printable(text: str) -> str:
    """Return text that cannot move the cursor: control characters are escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def by_reason(counts: Mapping[str, int]) -> str:
    """
    Return how many there are of each kind.

    >>> by_reason({"is empty": 1200, "is not UTF-8": 1})
    'is empty (1,200), is not UTF-8 (1)'
    """
    return ", ".join(f"{printable(reason)} ({number(count)})" for reason, count in counts.items())


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """
    Print a whole table on stdout; long cells are folded, never cut. Columns in ``right`` are aligned right. Without any
    title there is no heading.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    heading, lines = text_grid(titles, cells, right=right, available=columns())
    for line in heading if any(titles) else ():
        click.echo(click.style(line, bold=True))
    for line in lines:
        click.echo(line)


def columns() -> int:
    """Return how many characters fit into a line."""
    if not sys.stdout.isatty():
        return _PLAIN_COLUMNS
    import shutil

    return shutil.get_terminal_size().columns


def problem_table(problems: Sequence[tuple[str, str]]) -> None:
    """Print each key with its problem."""
    table(("sample", "problem"), problems)


def begun(text: str) -> None:
    """Say what takes the next seconds, but only on a terminal: programs that read stderr want results only."""
    if sys.stderr.isatty():
        click.echo(f"{text} ...", err=True)


class Meter:
    def __init__(self, title: str, total: int, bar: Progress | None, unit: Unit = "samples") -> None:
        self._title = title
        self._total = total
        self._unit = unit
        self._bar = bar
        self._task = None if bar is None else bar.add_task(title, total=total, rates="")
        self._samples = self._bytes = self._kept = 0
        self._begun = self._printed = time.perf_counter()

    def __call__(self, samples: int, size_bytes: int) -> None:
        """Add a piece. A first one without bytes was there already: it counts as done, but not for the rate."""
        if self._unit == "samples" and not self._samples and not size_bytes:
            self._kept, self._begun = samples, time.perf_counter()
        self._samples += samples
        self._bytes += size_bytes
        done = self._samples if self._unit == "samples" else self._bytes
        now = time.perf_counter()
        passed = max(now - self._begun, 1e-6)
        rates = f"{size(self._bytes / passed)}/s"
        if self._samples > self._kept:
            rates = f"{per_second((self._samples - self._kept) / passed)} samples/s, {rates}"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, rates=rates)
        elif now - self._printed >= _PLAIN_INTERVAL_S:
            self._printed = now
            left = max(self._total - done, 0) * passed / max(done - self._kept, 1)
            shown = number if self._unit == "samples" else size
            click.echo(f"{self._title}: {shown(done)} of {shown(self._total)}, {rates}, {left:.0f} s left", err=True)


@contextmanager
def meter(title: str, total: int, unit: Unit = "samples") -> Iterator[Meter]:
    """
    Yield a Meter: a bar with rates and the time left on a terminal, a line now and then elsewhere; both on stderr.

    ``total`` is a number of samples, or of bytes if samples cannot be counted before they are read.
    """
    if not sys.stderr.isatty():
        yield Meter(title, total, None, unit)
        return
    import shutil

    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    fitting = (
        TextColumn("{task.description}"),
        *([BarColumn()] if shutil.get_terminal_size().columns >= _BAR_FROM else []),
        MofNCompleteColumn() if unit == "samples" else DownloadColumn(),
        TextColumn("{task.fields[rates]}"),
        TimeRemainingColumn(),
    )
    with Progress(*fitting, console=Console(stderr=True), transient=True) as bar:
        yield Meter(title, total, bar, unit)


@contextmanager
def steps(title: str) -> Iterator[Callable[[int, int], None]]:
    """Like ``meter``, for steps that are not samples: call it with the steps done and their total."""
    if not sys.stderr.isatty():
        printed = time.perf_counter()

        def say(done: int, total: int) -> None:
            nonlocal printed
            if time.perf_counter() - printed >= _PLAIN_INTERVAL_S:
                printed = time.perf_counter()
                click.echo(f"{title}: {number(done)} of {number(total)}", err=True)

        yield say
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*parts, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


# Lays out the cells of a table as lines: columns shrink to what a line holds, and long text is folded, never cut.

_FOLDED = 16  # characters to which a column of text may shrink
_WORD = re.compile(r"\s*\S+\s*")

Cells = Sequence[str]


def text_grid(
    titles: Cells, rows: Sequence[Cells], *, right: Sequence[int] = (), available: int
) -> tuple[list[str], list[str]]:
    """
    Return the lines of the titles and of the rows, at most ``available`` characters wide if that is possible.

    Columns in ``right`` are numbers, aligned right. These and the words of titles stay whole. If they do not fit, lines
    become longer: a reader can undo that, but not a broken number.

    >>> text_grid(("key", "bytes"), [("cat", "1,024")], right=(1,), available=80)
    (['key  bytes'], ['cat  1,024'])
    """
    widths, gap = column_widths(titles, rows, right, available)
    heading = [_folded(title, width) for title, width in zip(titles, widths, strict=True)]
    height = max(map(len, heading), default=0)
    shifted = [[""] * (height - len(lines)) + lines for lines in heading]  # a title of fewer lines stands at the bottom
    folded = [[_folded(cell, width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return _lines(shifted, widths, right, gap), [line for row in folded for line in _lines(row, widths, right, gap)]


def column_widths(titles: Cells, rows: Sequence[Cells], right: Sequence[int], available: int) -> tuple[list[int], int]:
    """Return the width of each column, and of the gap between two."""
    widths, least = [], []
    for i, title in enumerate(titles):
        longest = max((_width(row[i]) for row in rows), default=0)
        word = max((_width(word) for word in title.split()), default=0)
        widths.append(max(longest, *map(_width, title.split("\n"))))
        least.append(max(word, longest if i in right else min(longest, _FOLDED)))
    gap = 2 if sum(widths) + 2 * (len(widths) - 1) <= available else 1
    excess = sum(widths) + gap * (len(widths) - 1) - available
    for i in sorted(range(len(widths)), key=lambda i: least[i] - widths[i]):
        taken = max(0, min(excess, widths[i] - least[i]))
        widths[i] -= taken
        excess -= taken
    return widths, gap


def _lines(cells: Sequence[Sequence[str]], widths: Sequence[int], right: Sequence[int], gap: int) -> list[str]:
    """Return the lines of a row, of whose cells each has lines of its own."""
    lines = []
    for parts in zip_longest(*cells, fillvalue=""):
        padded = []
        for i, (part, width) in enumerate(zip(parts, widths, strict=True)):
            blanks = " " * (width - _width(part))
            padded.append(blanks + part if i in right else part + blanks)
        lines.append((" " * gap).join(padded).rstrip())
    return lines


def _folded(text: str, width: int) -> list[str]:
    """Return the lines of a cell: broken between words, and within words that are longer than a line."""
    lines = []
    for paragraph in text.split("\n"):
        line = ""
        for word in _WORD.findall(paragraph):
            rest = word
            if _width(line) + _width(rest.rstrip()) > width:
                if line:
                    lines.append(line.rstrip())
                line = ""
                while _width(rest.rstrip()) > width:
                    head = _head(rest, width)
                    lines.append(head)
                    rest = rest[len(head) :]
            line += rest
        lines.append(line.rstrip())
    return lines


def _head(text: str, width: int) -> str:
    """Return the longest beginning that is no wider, at least one character."""
    if text.isascii():
        return text[: max(width, 1)]
    stop = 1
    while _width(text[: stop + 1]) <= width:
        stop += 1
    return text[:stop]


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes: 2 for each wide character, 0 for each combining one."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(
        0 if category(letter) in ("Mn", "Me", "Cf") else 2 if east_asian_width(letter) in "WF" else 1 for letter in text
    )
