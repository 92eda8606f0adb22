"""fastio packs training data into one open container and reads it back faster than the GPU asks for it.

The names that `__init__.pyi` lists are the public interface. Each is imported on first use: neither `fastio --help` nor
packing needs torch.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fastio import errors  # noqa: F401 - fastio.errors.StoreError needs no import of its own
from fastio.lazy import attach_stub

if find_spec("fastio._native") is None:  # Python looks into the working directory first
    raise ImportError(
        f"{__path__[0]} is source code whose native part is not built, and hides a fastio that is installed elsewhere: "
        "start Python in another folder, or build this one with `pip install -e .`"
    )


_public, __dir__, __all__ = attach_stub(__name__)

# Names that the root had in 0.1, and the packages that have them now.
_MOVED = {
    "MockLoader": "fastio.measure",
    "MockTrainer": "fastio.measure",
    "StepShares": "fastio.measure",
    "create_store": "fastio.store",
    "verdict": "fastio.measure",
}


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        warnings.warn(
            f"fastio.{name}: write from {_MOVED[name]} import {name} instead", DeprecationWarning, stacklevel=2
        )
        return getattr(import_module(_MOVED[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("fastio")
    return _public(name)
