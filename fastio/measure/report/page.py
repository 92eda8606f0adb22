"""The description of a result, for the terminal and for HTML: sections of prose, tables, charts and pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

__all__ = [
    "Bar",
    "Bars",
    "Cell",
    "Code",
    "Heading",
    "HeatMap",
    "Page",
    "PageVerdict",
    "Part",
    "Picture",
    "PictureGrid",
    "Plot",
    "Portion",
    "Prose",
    "ReferenceLine",
    "Role",
    "Section",
    "Series",
    "Shares",
    "Table",
    "finite",
    "headline",
    "verdict_of",
]

# These classes are made whenever `fastio info` starts: frozen ones that can be compared take three times as long.

# Each role has a colour in style.css, the same on every page; c0 to c7 are those of shares.
Role = Literal[
    "loading", "training", "both", "device", "memory", "plain", "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"
]

_HEADLINES = {
    "io_bound": "Training waits for data",
    "compute_bound": "Training is the limit",
    "launch_bound": "The host launches too slowly",
    "sync_bound": "The host waits for the device in every step",
    "balanced": "Loading barely keeps up with training",
}


@dataclass(slots=True, eq=False)
class Prose:
    """A line of text."""

    text: str
    kind: ClassVar[str] = "prose"


@dataclass(slots=True, eq=False)
class Heading:
    """A smaller heading within a section."""

    text: str
    kind: ClassVar[str] = "heading"


@dataclass(slots=True, eq=False)
class Code:
    """Lines of a program."""

    text: str
    kind: ClassVar[str] = "code"


@dataclass(slots=True, eq=False)
class Table:
    """
    Rows under titles; columns in ``right`` are numbers. A ``folded`` table opens on request.

    A terminal shows the first ``shown`` rows (None: all), with at most ``longest`` characters in the first column.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[int] = ()
    caption: str = ""
    folded: bool = False
    shown: int | None = None
    longest: int | None = None
    kind: ClassVar[str] = "table"


@dataclass(slots=True, eq=False)
class Bar:
    """One bar of length ``value``; ``text`` is the value with its unit, ``spread`` the least and the greatest."""

    name: str
    value: float
    text: str
    role: Role = "plain"
    spread: tuple[float, float] | None = None


@dataclass(slots=True, eq=False)
class ReferenceLine:
    """A line across all bars, such as the wanted rate: ``name`` says what it is, ``text`` is its value."""

    name: str
    value: float
    text: str


@dataclass(slots=True, eq=False)
class Bars:
    """
    Bars with a common zero. ``caption`` says what is measured, and in which unit.

    A terminal leaves out what is ``tabled``: a table of the same page has the same figures.
    """

    caption: str
    bars: Sequence[Bar]
    mark: ReferenceLine | None = None
    tabled: bool = False
    kind: ClassVar[str] = "bars"

    @property
    def limit(self) -> float:
        """The value at the right end."""
        values = [max((bar.value, *(bar.spread or ()))) for bar in self.bars]
        return max([*values, 0.0 if self.mark is None else self.mark.value]) * 1.02 or 1.0


@dataclass(slots=True, eq=False)
class Portion:
    """One part of a whole; without a role, its position decides its colour."""

    name: str
    value: float
    text: str
    role: Literal["loading", "training"] | None = None


@dataclass(slots=True, eq=False)
class Shares:
    """Parts of a whole, as one divided bar with a table below; ``unit`` is the heading of the texts."""

    caption: str
    unit: str
    parts: Sequence[Portion]
    kind: ClassVar[str] = "shares"

    @property
    def whole(self) -> float:
        """The sum of the parts."""
        return sum(part.value for part in self.parts) or 1.0


@dataclass(slots=True, eq=False)
class Cell:
    """A field of a heat map: ``value`` decides its colour between the least and the greatest, ``text`` shows it."""

    value: float
    text: str


@dataclass(slots=True, eq=False)
class HeatMap:
    """
    A table whose cells are coloured by value; None was not measured. ``corner`` names rows and columns.

    A terminal leaves it out: a table of the same page has the same figures.
    """

    caption: str
    corner: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell | None]]]
    less_is_better: bool = False
    kind: ClassVar[str] = "heat"

    def strength(self, cell: Cell) -> float:
        """Return a strength from 0 for the worst cell to 1 for the best."""
        values = [other.value for _, cells in self.rows for other in cells if other is not None]
        low, high = min(values), max(values)
        part = (cell.value - low) / (high - low) if high > low else 1.0
        return 1 - part if self.less_is_better else part


@dataclass(slots=True, eq=False)
class Series:
    """A curve; None was not measured."""

    name: str
    values: Sequence[float | None]
    role: Role = "plain"


@dataclass(slots=True, eq=False)
class Plot:
    """
    Curves over ascending ``xs``, which a reader can zoom.

    ``look`` is ``lines``; ``held`` if a value stays until the next one; or ``stack`` for filled steps, each series on
    top of those before it. ``unit`` is one of ms, s, %, bytes, bytes/s and "" for plain numbers; ``x_unit`` one of s,
    ms and step. ``summary`` describes the plot in words, for those who do not see it.
    """

    caption: str
    summary: str
    x_unit: Literal["s", "ms", "step"]
    xs: Sequence[float]
    unit: Literal["ms", "s", "%", "bytes", "bytes/s", ""]
    series: Sequence[Series]
    look: Literal["lines", "held", "stack"] = "lines"
    limit: float | None = None
    kind: ClassVar[str] = "plot"

    def as_data(self) -> dict[str, Any]:
        """Return the data that the script in the page draws."""
        return {
            "xUnit": self.x_unit,
            "xs": self.xs,
            "unit": self.unit,
            "look": self.look,
            "limit": self.limit,
            "series": [{"name": curve.name, "role": curve.role, "values": curve.values} for curve in self.series],
        }


@dataclass(slots=True, eq=False)
class Picture:
    """A picture as JPEG (None: it cannot be shown), its caption, and a fainter line below."""

    jpeg: bytes | None
    caption: str
    detail: str


@dataclass(slots=True, eq=False)
class PictureGrid:
    """Small pictures in as many columns as fit, at most ``size`` pixels wide."""

    pictures: Sequence[Picture]
    size: int
    kind: ClassVar[str] = "pictures"


Part = Prose | Heading | Code | Table | Bars | Shares | HeatMap | Plot | PictureGrid


@dataclass(slots=True, eq=False)
class Section:
    """A heading and its content. A terminal leaves out what it has ``said`` before, such as a traceback on stderr."""

    title: str
    parts: Sequence[Part]
    said: bool = False


@dataclass(slots=True, eq=False)
class PageVerdict:
    """The headline of a page: the answer, the command's name for it, the reasons, and what to do next."""

    headline: str
    name: str
    evidence: Sequence[str] = ()
    next_step: str = ""
    colour: str = ""  # a bound


@dataclass(slots=True, eq=False)
class Page:
    """A result. ``subject`` is what was examined, such as a path; ``figures`` are a few pairs of name and value."""

    title: str
    subject: str
    sections: Sequence[Section]
    verdict: PageVerdict | None = None
    figures: Sequence[tuple[str, str]] = ()


def headline(bound: str, headroom: float | None) -> str:
    """Return the answer in a few words; a loader that is faster than training when alone is not called the limit."""
    if bound == "io_bound" and headroom is not None and headroom > 0:
        return "Loading alone would keep up, but the CPUs were busy"
    return _HEADLINES[bound]


def verdict_of(verdict: Mapping[str, Any]) -> PageVerdict:
    """Return the verdict of a JSON form, in words."""
    from fastio.measure.loop.verdict import headroom_in_words

    evidence = list(verdict["evidence"])
    if verdict["headroom"] is not None:
        evidence.insert(0, headroom_in_words(verdict["headroom"]))
    bound = verdict["bound"]
    return PageVerdict(headline(bound, verdict["headroom"]), bound, evidence, verdict["next_step"], bound)


# Replaces figures that JSON cannot represent.


def finite(value: Any) -> Any:
    """
    Return the value with None for NaN and infinity, such as the loss of a training that diverged.

    >>> finite({"losses": [0.5, float("nan")], "rate": float("inf")})
    {'losses': [0.5, None], 'rate': None}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [finite(part) for part in value]
    return value
