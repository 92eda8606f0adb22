"""Subclasses that make samples themselves: FastDataset says so in one place, and all that read the store ask there."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import fastio
from fastio import FastDataset


class Longer(FastDataset):
    def __len__(self) -> int:
        return 100


class Relabelled(FastDataset):
    @property
    def targets(self) -> list[Any]:  # type: ignore[override] # as users do it
        return [0] * len(self)


class Single(FastDataset):
    def __getitem__(self, index: int) -> Any:
        return index


class Several(FastDataset):
    def __getitems__(self, indices: Any) -> list[Any]:
        return list(indices)


class WithBlank(Single):
    def blank(self, index: int) -> Any:
        return 0


class Mixin:
    def __getitem__(self, index: int) -> Any:
        return index


class Mixed(Mixin, FastDataset):  # type: ignore[misc] # as users do it
    pass


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (FastDataset, (False, False)),
        (Longer, (False, False)),
        (Relabelled, (False, False)),
        (Single, (True, False)),
        (Several, (True, False)),
        (WithBlank, (True, True)),
        (Mixed, (True, False)),
    ],
)
def test_what_a_subclass_makes(png_store: Path, kind: type[FastDataset], expected: tuple[bool, bool]) -> None:
    """Its own __getitem__ or __getitems__, however inherited, makes samples; a length or labels of its own do not."""
    dataset = kind(png_store)

    assert (dataset.makes_samples, dataset.makes_blanks) == expected
    assert dataset.is_as_stored is not dataset.makes_samples


def test_a_transform_is_not_as_stored(png_store: Path) -> None:
    """A transform changes samples too, from the moment it is assigned."""
    dataset = FastDataset(png_store)
    assert dataset.is_as_stored
    dataset.transform = repr

    assert not dataset.is_as_stored
    assert not dataset.makes_samples


def test_nobody_else_compares_methods() -> None:
    """No other module looks at a FastDataset's methods to find out."""
    asking = {
        path.name
        for path in Path(fastio.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare) and "FastDataset." in ast.unparse(node)
    }

    assert asking == {"fast_dataset.py"}
