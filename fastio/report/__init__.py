"""Reports: one HTML file that shows what a command found, for people without a terminal."""

from __future__ import annotations

from fastio.report.page import Page
from fastio.report.write import check_target, write_page

__all__ = ["Page", "check_target", "write_page"]
