"""Which files a dataset reads, by its attributes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastio.measure.doctor.recipe import recipe_of
from fastio.measure.doctor.script import DataFiles, data_files, data_path
from fastio.transforms import KeepBoxes, KeepPoints, Pad, RandomCrop, RandomRotation
from tests.conftest import encode, pictures


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two class folders with two PNGs each, of two sizes."""
    for number, name in enumerate(("cat/0.png", "cat/1.png", "dog/0.png", "dog/1.png")):
        path = tmp_path / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(pictures(1, (6, 7 + number % 2, 3))[0]))
    return tmp_path / "pictures"


def dataset(**attributes: Any) -> Any:
    """Something with these attributes."""
    return SimpleNamespace(**attributes)


def listed(root: Path) -> list[str]:
    """All files, sorted."""
    return sorted(str(path) for path in root.rglob("*.png"))


def test_a_folder_that_is_named(root: Path) -> None:
    """Its files need not be listed."""
    files = data_files(dataset(name="no file", root=root))

    assert files == DataFiles(str(root), "pictures", sizes=files.sizes if files else ())
    assert files is not None
    assert {(7, 6), (8, 6)} == set(files.sizes)


@pytest.mark.parametrize("as_pairs", [False, True])
def test_files_that_are_listed(root: Path, as_pairs: bool) -> None:
    """What is common to all of them is the root, not the folder of the first one."""
    paths: list[Any] = [(path, 0) for path in listed(root)] if as_pairs else listed(root)
    files = data_files(dataset(samples=paths))
    assert files is not None

    assert (str(root), False, True) == (files.path, files.is_flat, files.is_sorted)
    assert not data_files(dataset(samples=paths[::-1])).is_sorted  # type: ignore[union-attr] # it is there


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("a/1", "b/1"), True),
        (("b/1", "a/1"), False),
        (("a/1", "a/1"), False),
        (("a-b/1", "a/1"), False),  # as text; classes come in the other order
        (("a/1", "a-b/1"), False),
        (("a/b/1", "a/c"), False),  # as text; a folder's own files come before those of folders in it
    ],
)
def test_an_order_that_may_be_another_one(tmp_path: Path, names: tuple[str, str], expected: bool) -> None:
    """Positions are those of a store only where every way to sort agrees."""
    paths = [str(tmp_path / f"{name}.png") for name in names]
    for path in paths:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(encode(pictures(1)[0]))
    files = data_files(dataset(samples=paths))
    assert files is not None

    assert expected == files.is_sorted


def test_labels_beside_a_flat_folder(root: Path) -> None:
    """The one file of labels above it, or the one that the dataset names, which is not taken for the data."""
    (root / "labels.csv").write_text("0.png,1\n")
    beside = data_files(dataset(root=root / "cat"))
    named = data_files(dataset(table=root / "labels.csv", root=root / "cat"))
    (root / "more.csv").write_text("0.png,1\n")
    unknown = data_files(dataset(root=root / "cat"))

    assert beside == named
    assert beside is not None
    assert (True, str(root / "labels.csv")) == (beside.is_flat, beside.labels)
    assert unknown is not None
    assert unknown.labels is None


def test_what_is_no_file() -> None:
    """Texts, however long, numbers, and names of files that are not there."""
    assert data_path(dataset(texts=["word " * 2000, "word"], lines=("\0", ""), name="x" * 5000, size=3)) is None
    assert data_path(3) is None


def test_text(tmp_path: Path) -> None:
    """A file of lines."""
    (tmp_path / "corpus.txt").write_text("one\ntwo\n")

    assert DataFiles(str(tmp_path / "corpus.txt"), "text") == data_files(dataset(path=str(tmp_path / "corpus.txt")))


# Steps of torchvision as fastio's: attributes that v2 keeps in another form, and steps for boxes.


def step_of(name: str, **attributes: Any) -> Any:
    """An object that looks like a step of torchvision v2."""
    kind = type(name, (SimpleNamespace,), {"__module__": "torchvision.transforms.v2._geometry"})
    return kind(**attributes)


def test_padding_as_v2_keeps_it() -> None:
    """RandomCrop of v2 keeps left, right, top, bottom, whatever was written."""
    step = step_of(
        "RandomCrop", size=(8, 8), padding=[1, 3, 2, 4], pad_if_needed=False, fill=0, padding_mode="constant"
    )

    assert ((RandomCrop(8, padding=(1, 2, 3, 4)),), ()) == recipe_of([step])


def test_fills_by_type() -> None:
    """v2 keeps a dict of types; the number for masks is our mask_fill."""
    image, mask = type("Image", (), {}), type("Mask", (), {})
    pad = step_of("Pad", padding=[1, 2, 3, 4], fill={image: 9, mask: 255}, padding_mode="constant")
    turn = step_of(
        "RandomRotation", degrees=[-5.0, 5.0], interpolation="bilinear", expand=False, center=None, fill={"others": 7}
    )

    expected = (Pad((1, 2, 3, 4), fill=9, mask_fill=255), RandomRotation(5, "bilinear", fill=7))
    assert (expected, ()) == recipe_of([pad, turn])


def test_steps_for_boxes_and_points() -> None:
    """Rules take their place; clamping boxes is what fastio does anyway."""
    steps = [
        step_of("ClampBoundingBoxes"),
        step_of("SanitizeBoundingBoxes", min_size=2, min_area=9),
        step_of("ClampKeyPoints"),
        step_of("SanitizeKeyPoints"),
    ]

    assert ((KeepBoxes(2, 9), KeepPoints("clip"), KeepPoints("drop")), ()) == recipe_of(steps)


def test_torchvisions_own() -> None:
    """The installed torchvision keeps these attributes."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    steps = [v2.RandomCrop(8, padding=(1, 2, 3, 4)), v2.ClampBoundingBoxes(), v2.SanitizeBoundingBoxes(2, 9)]

    assert ((RandomCrop(8, padding=(1, 2, 3, 4)), KeepBoxes(2, 9)), ()) == recipe_of(steps)
