"""What this process may use of its machine, CPUs and memory, and which rank of a distributed job it is."""

from __future__ import annotations

from fastio.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
