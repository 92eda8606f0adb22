"""Names of torchvision for what needs no transform here."""

from __future__ import annotations

import pytest

import fastio.transforms


def test_an_import_says_what_to_do_instead() -> None:
    """An import statement would drop the text of an AttributeError."""
    with pytest.raises(ImportError, match=r"fastio.transforms has no ToTensor: batches are tensors already: "):
        from fastio.transforms import ToTensor  # noqa: F401


def test_a_look_for_a_name_finds_none() -> None:
    """As hasattr and getattr with a default do in scripts that choose transforms by name."""
    assert not hasattr(fastio.transforms, "ToTensor")
    assert getattr(fastio.transforms, "ToImage", None) is None
    with pytest.raises(AttributeError, match="batches are tensors already"):
        _ = fastio.transforms.ToTensor
