"""Imports the library of a tracker when one is made, and says how to install it if it is missing."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fastio.errors import FastioError

__all__ = ["library"]


def library(module: str, *, tracker: str, extra: str) -> Any:
    """Return the module. Raises FastioError that names the extra of fastio which installs its package."""
    package = module.partition(".")[0]
    if find_spec(package) is None:
        raise FastioError(f"{tracker} needs {package}, which is not installed: pip install 'fastio[{extra}]'")
    return import_module(module)
