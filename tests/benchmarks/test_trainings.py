"""The table of trainings names what takes part, and why the others do not; every transform is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

import fastio.transforms
from benchmarks.trainings.run import ABSENT, CASES, LOADERS
from benchmarks.trainings.transforms import MIXES, SHAPES, TRANSFORMS, WITH_MASKS
from benchmarks.trainings.work import TRAININGS

FILES = Path(__file__).parents[2] / "benchmarks" / "trainings" / "loaders"
# Nothing that torchvision has: functions of a user's own, ours alone, and what choices and lists are made of. The
# scenes that are measured have masks, but no boxes to crop by.
UNMEASURED = {
    "BaseTransform", "BatchTransform", "ByField", "ByFraction", "ChannelsLast", "Compiled", "Compose", "KeepBoxes",
    "KeepCrop", "KeepGeometry", "KeepPoints", "Letterbox", "Mosaic", "NormalizeLayer", "OneOf", "Patchify", "PerBatch",
    "PerSample", "Pick", "RandomApply", "RandomIoUCrop", "ResizeToBucket", "ResizeToTokens", "SmartResize", "Transform",
    "Views", "invert_geometry", "move_boxes", "patches_of", "vision_lengths",
}  # fmt: skip


def test_every_training_is_in_the_table() -> None:
    """Trainings that are defined are measured."""
    assert list(TRAININGS) == list(CASES)


@pytest.mark.parametrize("training", CASES)
def test_a_loader_takes_part_or_says_why_not(training: str) -> None:
    """No peer is left out of a table without a reason, and none is both measured and excused."""
    peers = set(LOADERS) - {"fastio", "plain", "plain, colours of tensors"}
    absent = {name for name, reasons in ABSENT.items() if training in reasons}

    assert peers == absent | (peers & set(CASES[training]))
    assert set() == absent & set(CASES[training])


def test_every_file_of_a_loader_is_used() -> None:
    """Loaders in the table have their file, and files their loader."""
    assert {module for module, _ in LOADERS.values()} == {path.stem for path in FILES.glob("[a-z]*.py")}


@pytest.mark.parametrize("name", sorted(set(fastio.transforms.__all__) - UNMEASURED))
def test_every_transform_is_measured(name: str) -> None:
    """What torchvision has too is in the list of transforms that are timed beside it."""
    assert any(f"{name}(" in code for code in (*TRANSFORMS, *SHAPES, *MIXES, *WITH_MASKS))
