"""Reports: one HTML file that shows what a command found, for people without a terminal."""

from __future__ import annotations
