"""The page of ``bandwidth``: how long data takes over each link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.report.page import Bar, Bars, Page, Section, Table
from fastio.types.units import duration, size

__all__ = ["bandwidth_page"]


def bandwidth_page(report: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.bandwidth``."""
    links = report["links"]
    bars = [
        Bar(link["link"], link["bytes_per_s"], f"{size(link['bytes_per_s'])}/s", _ROLES[link["measured"]])
        for link in links
    ]
    is_measured = any(link["measured"] for link in links)
    caption = "Bytes per second, as a course publishes them" + (
        "; another colour: measured on this machine" * is_measured
    )
    rows = [
        (link["link"], _SOURCES[link["measured"]], f"{size(link['bytes_per_s'])}/s", duration(link["seconds"]))
        for link in links
    ]
    table = Table(("link", "rate is", "rate", "time"), rows, (1, 2, 3), f"How long {size(report['size_bytes'])} take")
    subject = f"{size(report['size_bytes'])} over each link"
    sections = [Section("Time", [table]), Section("Rates", [Bars(caption, bars)])]
    return Page("How long data takes", subject, sections)


_ROLES: Mapping[bool, Any] = {True: "training", False: "plain"}
_SOURCES = {True: "measured here", False: "published"}
