"""Names of packages that are imported when they are first used, so that a command imports only what it needs."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["attach_stub"]


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
    homes, own = _read(Path(face.__file__).with_suffix(".pyi"))
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


def _read(stub: Path) -> tuple[Mapping[str, str], list[str]]:
    """Return the module of each name that a stub hands on, and the names that it declares."""
    homes, own = dict[str, str](), list[str]()
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            homes |= {alias.name: node.module for alias in node.names if alias.asname == alias.name}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            own.append(node.target.id)
    return homes, own
