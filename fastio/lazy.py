"""Names of packages that are imported when they are first used, so that a command imports only what it needs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["attach_stub"]

_HANDED_ON = re.compile(r"from (?P<home>\S+) import (?P<name>\w+) as (?P=name)\n?")
_DECLARED = re.compile(r"(?P<name>\w+): ")


def attach_stub(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """
    Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package whose public names ``__init__.pyi`` lists.

    That stub is the one list of them. Editors and type checkers read it instead of ``__init__.py``; here it says where
    each name lies: ``from fastio.store.opening import open_store as open_store``. A name is imported when it is first
    used, and is an attribute of the package from then on. No name may be that of a module in the package: importing the
    module would replace it. What the stub declares in other ways, the package itself defines.

    An AttributeError within a module that is imported so is raised again as ImportError: Python would take it for "no
    such name" and drop what it says.
    """
    face = sys.modules[package]
    assert face.__file__ is not None
    homes, own = _read(face.__file__.rpartition(".")[0] + ".pyi")
    names = sorted([*homes, *own])

    def public(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(names)}")
        try:
            value = getattr(import_module(home), name)
        except AttributeError as exc:
            raise ImportError(f"{package}.{name}: {home} cannot be imported: {exc}", name=home) from exc
        setattr(face, name, value)
        return value

    return public, lambda: list(names), names


def _read(stub: str) -> tuple[Mapping[str, str], list[str]]:
    """Return the module of each name that a stub hands on, and the names that it declares: a line each."""
    homes, own = dict[str, str](), list[str]()
    # Neither ast nor pathlib: `import fastio` would take a third longer.
    with open(stub, encoding="utf-8") as lines:  # noqa: PTH123
        for line in lines:
            if handed_on := _HANDED_ON.fullmatch(line):
                homes[handed_on["name"]] = handed_on["home"]
            elif declared := _DECLARED.match(line):
                own.append(declared["name"])
            elif line.strip():
                raise ValueError(f"{stub}: expected `from MODULE import NAME as NAME` or `NAME: TYPE`, got {line!r}")
    return homes, own
