"""Formats numbers for people: bytes, times and counts as the terminal and the report show them."""

from __future__ import annotations

import re

__all__ = ["counted", "duration", "gain", "number", "parse_size", "per_second", "percent", "quantity", "size"]

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgtp]?)(i?)b?\Z", re.IGNORECASE)


def size(count: float) -> str:
    """
    Format a number of bytes.

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


def parse_size(text: str) -> int:
    """
    Return the number of bytes that a text names. Raises ValueError.

    >>> parse_size("1000"), parse_size("1.5 GB"), parse_size("1GiB")
    (1000, 1500000000, 1073741824)
    """
    match = _SIZE.match(text.strip())
    if match is None or (match[3] and not match[2]):
        raise ValueError(f"{text!r} is not a size; expected e.g. 500MB, 1GB or 1GiB")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2].lower()])


def duration(seconds: float) -> str:
    """
    Format a time in the largest unit of which it has at least one.

    >>> duration(0.0042), duration(33_333), duration(1_166_400)
    ('4.2 ms', '9.3 h', '13.5 d')
    """
    units = ((365 * 86_400, "y"), (86_400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"))
    unit, name = next(((unit, name) for unit, name in units if seconds >= unit), (1e-6, "us"))
    return f"{seconds / unit:,.1f} {name}"


def number(value: float) -> str:
    """Format a count with separators, a fraction with one digit."""
    return f"{value:,.0f}" if float(value).is_integer() or value >= 100 else f"{value:.1f}"


def per_second(rate: float) -> str:
    """
    Format a rate per second: a whole number from 100 on, three digits below.

    >>> per_second(48_123.4), per_second(2.8409), per_second(0.3), per_second(0)
    ('48,123', '2.84', '0.3', '0')
    """
    return f"{rate:,.0f}" if rate >= 99.95 else f"{rate:.3g}"


def percent(value: float, digits: int = 0) -> str:
    """
    Format a percentage, as ``f"{share:.0%}"`` does a share.

    >>> percent(97.4), percent(0.38, 1)
    ('97%', '0.4%')
    """
    return f"{value:.{digits}f}%"


def counted(count: int, noun: str, plural: str = "") -> str:
    """
    Format a count with its noun; the plural ends in s unless it is given.

    >>> counted(1, "file"), counted(2000, "file")
    ('1 file', '2,000 files')
    """
    return f"{number(count)} {noun if count == 1 else plural or noun + 's'}"


def quantity(value: float, unit: str) -> str:
    """
    Format a figure in its unit: seconds and bytes in the largest that fits, others unchanged.

    >>> quantity(0.0042, "s"), quantity(2e6, "bytes/s"), quantity(3, "%")
    ('4.2 ms', '2.0 MB/s', '3%')
    """
    if unit == "s":
        return duration(value) if value > 0 else "0 s"
    if unit.startswith("bytes"):
        return size(value) + unit.removeprefix("bytes")
    if unit == "%":
        return f"{number(value)}%"
    return f"{number(value)} {unit}".rstrip()


def gain(times: float | None, *, is_bound: bool) -> str:
    """
    Format the gain of a change as a multiple of the rate.

    >>> gain(1.84, is_bound=True), gain(None, is_bound=True)
    ('up to 1.8 times the rate', 'gain unknown from these figures')
    """
    if times is None:
        return "gain unknown from these figures"
    return f"{'up to' if is_bound else 'about'} {times:.1f} times the rate"
