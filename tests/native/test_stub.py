"""The stub says what the module has."""

from __future__ import annotations

from native.generate_stub import STUB, generate


def test_the_stub_is_current() -> None:
    """fastio/_native.pyi is what the module says: run ``python native/generate_stub.py`` after a change."""
    assert STUB.read_text() == generate()
