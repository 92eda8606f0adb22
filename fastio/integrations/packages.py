"""Imports a library on first use, and says how to install it if it is missing."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

__all__ = ["imported"]


def imported(name: str, *, extra: str, needed_by: str = "") -> ModuleType:
    """
    Return the module. Raises ModuleNotFoundError that names the extra of fastio which installs its package.

    ``needed_by`` is the module of ours that needs it (default: that of ``fastio.integrations`` called as the extra).
    """
    package = name.partition(".")[0]
    if find_spec(package) is None:
        raise ModuleNotFoundError(
            f"{needed_by or f'fastio.integrations.{extra}'} needs {package}, which is not installed: "
            f"pip install 'fastio[{extra}]'",
            name=package,
        )
    return import_module(name)
