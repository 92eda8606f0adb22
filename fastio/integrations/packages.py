"""Libraries that only an adapter needs: imported when it is used, named when they are not there."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

__all__ = ["imported"]


def imported(name: str, *, extra: str) -> ModuleType:
    """The module; ModuleNotFoundError, saying which extra of fastio brings it, where its package is not installed."""
    package = name.partition(".")[0]
    if find_spec(package) is None:
        raise ModuleNotFoundError(
            f"fastio.integrations.{extra} needs {package}, which is not installed: pip install 'fastio[{extra}]'",
            name=package,
        )
    return import_module(name)
