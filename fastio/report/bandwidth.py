"""The page of ``bandwidth``: how long data takes over each link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.report.page import Bar, Bars, Page, Section, Table
from fastio.types.units import duration, size

__all__ = ["bandwidth_page"]


def bandwidth_page(said: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.bandwidth``."""
    links = said["links"]
    bars = [
        Bar(each["link"], each["bytes_per_s"], f"{size(each['bytes_per_s'])}/s", _ROLES[each["measured"]])
        for each in links
    ]
    is_measured = any(each["measured"] for each in links)
    caption = "Bytes per second, as a course publishes them" + (
        "; another colour: measured on this machine" * is_measured
    )
    rows = [
        (each["link"], _SOURCES[each["measured"]], f"{size(each['bytes_per_s'])}/s", duration(each["seconds"]))
        for each in links
    ]
    table = Table(("link", "rate is", "rate", "time"), rows, (1, 2, 3), f"How long {size(said['size_bytes'])} take")
    subject = f"{size(said['size_bytes'])} over each link"
    sections = [Section("Time", [table]), Section("Rates", [Bars(caption, bars)])]
    return Page("How long data takes", subject, sections)


_ROLES: Mapping[bool, Any] = {True: "training", False: "plain"}
_SOURCES = {True: "measured here", False: "published"}
