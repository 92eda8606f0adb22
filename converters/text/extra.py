"""Libraries that text may need beside fastio's own: imported when they are used, one sentence where missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fastio.errors import SourceError

__all__ = ["pyarrow", "tokenizers"]


def pyarrow(purpose: str, module: str = "pyarrow") -> Any:
    """``pyarrow`` or one of its modules; SourceError says what it was needed for."""
    return _imported(module, "pyarrow", purpose)


def tokenizers(purpose: str) -> Any:
    """Hugging Face's ``tokenizers``; SourceError says what it was needed for."""
    return _imported("tokenizers", "tokenizers", purpose)


def _imported(module: str, package: str, purpose: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as exc:
        raise SourceError(f"{purpose} the package {package} is needed: pip install 'fastio[text]'") from exc
