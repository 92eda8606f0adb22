"""Why no rate was measured is said as one reason, not as a choice of two."""

from __future__ import annotations

import pytest

from fastio.cli.epoch_line import epoch_line


@pytest.mark.parametrize(
    ("size_bytes", "reason"),
    [
        (24_800, "the store has 24.8 kB, and its rate takes at least 4.2 MB to measure"),
        (1 << 30, "its file system cannot be read past the page cache"),
    ],
)
def test_why_nothing_was_measured(size_bytes: int, reason: str) -> None:
    """A small store is told apart from a file system that does not do it."""
    assert f"epoch:  not measured: {reason}" == epoch_line(None, size_bytes)
