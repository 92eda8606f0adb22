"""Which path one pass takes: Triton's, if the installed Triton is one that the kernels are tested with."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from fastio.transforms.batch import one_pass


@pytest.mark.parametrize(
    ("version", "expected"), [("3.1.0", False), ("3.3.1", False), ("3.4.0", True), ("3.10.0+git1", True), ("4.0", True)]
)
def test_an_old_triton_is_left_alone(version: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch 2.5 to 2.7 bring one: torch's own operations do the work then."""
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__=version))
    monkeypatch.setattr(one_pass, "find_spec", lambda name: name)

    assert expected == one_pass._has_triton.__wrapped__()


def test_triton_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch without it works as well."""
    monkeypatch.setattr(one_pass, "find_spec", lambda name: None)

    assert not one_pass._has_triton.__wrapped__()
