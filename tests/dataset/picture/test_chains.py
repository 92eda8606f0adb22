"""Whatever is done to a picture that waits, it has the pixels, the mode and the size that Pillow gives."""

from __future__ import annotations

import io
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastio import FastDataset
from tests.conftest import write_store
from tests.dataset.picture.chains import chain, files

# Pillow's own words on palettes with alpha.
pytestmark = pytest.mark.filterwarnings("ignore:Palette images with Transparency")

SIZES = ((80, 95), (111, 60), (9, 7))  # the last one is decoded a batch at a time
MODES = ("RGB", "L", "RGBA", None)
FILES = [(f"{kind} {size}", value) for size in SIZES for kind, value in files(*size, seed=size[0]).items()]

Outcome = tuple[str, tuple[int, int], bytes, Any]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, FastDataset]:
    """All files, in each mode that a dataset may have."""
    path = write_store(tmp_path_factory.mktemp("chains") / "all.lmdb", [value for _, value in FILES])
    return {mode: FastDataset(path, mode=mode) for mode in MODES}


def outcome(picture: Image.Image, steps: list[Any]) -> Outcome | str:
    """What the steps lead to; the kind of error where Pillow refuses one."""
    try:
        for step in steps:
            picture = step(picture)
        return picture.mode, picture.size, picture.tobytes(), picture.info
    except (ValueError, OSError, ZeroDivisionError, TypeError) as exc:
        return type(exc).__name__


def check(datasets: dict[str | None, FastDataset], seed: int) -> None:
    """One random chain on one random file."""
    random = Random(seed)
    position, mode = random.randrange(len(FILES)), random.choice(MODES)
    picture = datasets[mode][position]
    with Image.open(io.BytesIO(FILES[position][1])) as opened:
        plain = opened.convert(picture.mode)
    steps_seed = random.random()

    expected = outcome(plain, chain(Random(steps_seed)))
    assert expected == outcome(picture, chain(Random(steps_seed))), (FILES[position][0], mode)


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**62))
def test_random_chains(datasets: dict[str | None, FastDataset], seed: int) -> None:
    """A random chain of Pillow calls ends with the pixels, mode, size and info that Pillow ends with."""
    check(datasets, seed)


@pytest.mark.parametrize("position", range(len(FILES)), ids=[name for name, _ in FILES])
@pytest.mark.parametrize("mode", MODES)
def test_untouched(datasets: dict[str | None, FastDataset], position: int, mode: str | None) -> None:
    """As it comes it is what ``Image.open(file).convert(mode)`` gives, ``info`` and EXIF too."""
    picture = datasets[mode][position]
    with Image.open(io.BytesIO(FILES[position][1])) as opened:
        plain = opened.convert(picture.mode)

        assert opened.format == picture.format
    assert (plain.mode, plain.size, plain.info) == (picture.mode, picture.size, picture.info)
    assert dict(plain.getexif()) == dict(picture.getexif())
    assert np.array_equal(np.asarray(plain), np.asarray(picture))
