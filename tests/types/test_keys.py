"""Which keys are paths below a folder."""

from __future__ import annotations

import pytest

from fastio.types.keys import is_plain_path


@pytest.mark.parametrize("key", ["a", "a/b.png", "a/b..c", "...", ".hidden/x", "é"])
def test_plain_paths(key: str) -> None:
    """Dots inside of names are harmless."""
    assert is_plain_path(key)


@pytest.mark.parametrize("key", ["", "/", "/a", "a/", "a//b", ".", "./a", "..", "../a", "a/../b", "a\0b"])
def test_others(key: str) -> None:
    """Empty and absolute keys, NUL, and parts that are empty or mean another folder."""
    assert not is_plain_path(key)
