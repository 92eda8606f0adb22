"""Imports libraries that only some sources need, on first use, with one sentence if they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fastio.errors import SourceError

__all__ = [
    "pyarrow",
    "tokenizers",
    "yaml",
]


def pyarrow(purpose: str, module: str = "pyarrow") -> Any:
    """Return ``pyarrow`` or one of its modules. Raises SourceError that says what it was needed for."""
    return _imported(module, "pyarrow", purpose)


def tokenizers(purpose: str) -> Any:
    """Return Hugging Face's ``tokenizers``. Raises SourceError that says what it was needed for."""
    return _imported("tokenizers", "tokenizers", purpose)


def yaml(purpose: str) -> Any:
    """Return PyYAML. Raises SourceError that says what it was needed for."""
    return _imported("yaml", "pyyaml", purpose, "yaml")


def _imported(module: str, package: str, purpose: str, extra: str = "text") -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as exc:
        raise SourceError(f"{purpose} the package {package} is needed: pip install 'fastio[{extra}]'") from exc
