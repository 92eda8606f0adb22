"""Numbers for people: bytes, times and counts as the terminal and the report show them."""

from __future__ import annotations

__all__ = ["counted", "duration", "number", "size"]


def size(count: float) -> str:
    """
    Bytes for people.

    >>> size(999), size(31_662_782)
    ('999 B', '31.7 MB')
    """
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB", "TB", "PB"):
        count /= 1000
        if count < 999.95 or unit == "PB":
            break
    return f"{count:.1f} {unit}"


def duration(seconds: float) -> str:
    """
    A time for people, in the largest unit that leaves at least 1 of it.

    >>> duration(0.0042), duration(33_333), duration(1_166_400)
    ('4.2 ms', '9.3 h', '13.5 d')
    """
    units = ((365 * 86_400, "y"), (86_400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"))
    unit, name = next(((unit, name) for unit, name in units if seconds >= unit), (1e-6, "us"))
    return f"{seconds / unit:,.1f} {name}"


def number(value: float) -> str:
    """A count with separators, a fraction with one digit."""
    return f"{value:,.0f}" if float(value).is_integer() or value >= 100 else f"{value:.1f}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """
    A count with its noun; the plural ends in s unless it is given.

    >>> counted(1, "file"), counted(2000, "file")
    ('1 file', '2,000 files')
    """
    return f"{number(count)} {noun if count == 1 else plural or noun + 's'}"
