"""Runs the examples of a guide in the driver of a cluster."""

from __future__ import annotations

import contextlib
import io
from typing import Any


def run(examples: list[str], folder: str) -> str:
    """Run examples with the names of those before them, in a folder; returns what they print."""
    names: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        for code in examples:
            exec(compile(code, "clusters.md", "exec"), names)
    return printed.getvalue()
