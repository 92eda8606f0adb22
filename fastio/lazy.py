"""Names of packages that are imported when they are first used, so that a command imports only what it needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """
    Return ``__getattr__`` and ``__dir__`` of a package whose public names lie in other modules, those of ``homes``.

    A name is imported when it is first used, and is an attribute of the package from then on; ``dir`` lists all of
    ``__all__`` before. The package imports the same names below ``if TYPE_CHECKING``, for editors and type checkers. No
    name may be that of a module in the package: importing the module would replace it.
    """

    def public(name: str) -> Any:
        face = sys.modules[package]
        if name not in homes:
            known = ", ".join(face.__all__)
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {known}")
        value = getattr(import_module(homes[name]), name)
        setattr(face, name, value)
        return value

    def names() -> list[str]:
        return sorted(sys.modules[package].__all__)

    return public, names
