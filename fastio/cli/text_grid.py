"""Lays out the cells of a table as lines: columns shrink to what a line holds, and long text is folded, never cut."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest

__all__ = ["column_widths", "text_grid"]

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
