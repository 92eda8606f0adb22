"""Packs folders, text and stores, and unpacks them again; installed as ``fastio.converters``.

Each name is imported on first use: looking into a store needs no kind of source.
"""

from __future__ import annotations

if __name__ == "converters":
    raise ImportError("this package is fastio.converters: install fastio, then `import fastio.converters`")

from fastio.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
