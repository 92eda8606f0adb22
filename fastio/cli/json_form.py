"""The JSON that measuring commands write: one object, whose first key says which form it has."""

from __future__ import annotations

import json
from collections.abc import Mapping

import click

__all__ = ["echo_json", "form"]

# Goes up when a key goes away or means something else; new keys may come at any time.
_VERSION = 1


def form(command: str, said: Mapping[str, object]) -> dict[str, object]:
    """
    The object of a command, as ``fastio/guide/json.md`` describes it: null for a figure that is no number.

    >>> form("tune", {"seconds": 30.0})
    {'format': 'fastio.tune/1', 'seconds': 30.0}
    """
    from fastio.report.finite import finite

    return {"format": f"fastio.{command}/{_VERSION}", **finite(said)}


def echo_json(command: str, said: Mapping[str, object]) -> None:
    """Print it, for people too."""
    click.echo(json.dumps(form(command, said), indent=2))
