"""The JSON that measuring commands print: one object, whose first key names its form."""

from __future__ import annotations

import json
from collections.abc import Mapping

import click

__all__ = ["echo_json", "form"]

# Raised when a key is removed or changes its meaning; new keys may be added at any time.
_VERSION = 1


def form(command: str, report: Mapping[str, object]) -> dict[str, object]:
    """
    Return a command's object, as ``fastio/guide/json.md`` describes it; a figure that is not finite becomes null.

    >>> form("tune", {"seconds": 30.0})
    {'format': 'fastio.tune/1', 'seconds': 30.0}
    """
    from fastio.report.finite import finite

    return {"format": f"fastio.{command}/{_VERSION}", **finite(report)}


def echo_json(command: str, report: Mapping[str, object]) -> None:
    """Print a command's object, indented for people."""
    click.echo(json.dumps(form(command, report), indent=2))
