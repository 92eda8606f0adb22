"""Which keys are paths below a folder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastio.types.keys import are_plain_paths, is_plain_path


@pytest.mark.parametrize("key", ["a", "a/b.png", "a/b..c", "...", ".hidden/x", "é"])
def test_plain_paths(key: str) -> None:
    """Dots inside of names are harmless."""
    assert is_plain_path(key)


@pytest.mark.parametrize("key", ["", "/", "/a", "a/", "a//b", ".", "./a", "..", "../a", "a/../b", "a\0b"])
def test_others(key: str) -> None:
    """Empty and absolute keys, NUL, and parts that are empty or mean another folder."""
    assert not is_plain_path(key)


@given(keys=st.lists(st.text("a./\0", max_size=6), max_size=4))
def test_many_at_once(keys: list[str]) -> None:
    """All keys together are plain paths if each of them is."""
    assert all(map(is_plain_path, keys)) == are_plain_paths(keys)
