"""An option that does not exist is one line, which names the one that is meant."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import fastio
from fastio import FastDataset, LengthBucketSampler, Writer, open_store, transforms
from fastio.transforms import RandomResizedCrop, Resize

OTHERS = {"BaseTransform", "BatchTransform", "Transform"}  # protocols
OTHERS |= {"invert_geometry", "move_boxes"}  # functions of tensors alone
OTHERS |= {"LoaderStats", "Receipt"}  # what users get
CALLED = {
    name: value
    for face in (fastio, transforms)
    for name, value in ((name, getattr(face, name)) for name in face.__all__ if name not in OTHERS)
    if callable(value) and not (inspect.isclass(value) and issubclass(value, Exception))
}


@pytest.mark.parametrize("name", sorted(CALLED))
def test_whatever_users_call_explains_its_options(name: str) -> None:
    """Every public class and function does: nothing is opened, and it says itself what it has."""
    parameters = list(inspect.signature(CALLED[name]).parameters)
    with pytest.raises(TypeError, match=f"^{name} has no option zzzzz[:,] ") as caught:
        CALLED[name](zzzzz=1)

    assert ", ".join(parameters) in str(caught.value)


@pytest.mark.parametrize(
    ("called", "arguments", "expected"),
    [
        (FastDataset, {"transfrom": None}, "FastDataset has no option transfrom: did you mean transform?"),
        (FastDataset, {"root": "a"}, "FastDataset has no option root: the store comes first: FastDataset(path)"),
        (
            FastDataset,
            {"batch_size": 2},
            "FastDataset has no option batch_size: pass it to FastLoader(dataset, batch_size)",
        ),
        (FastDataset, {"num_workers": 2}, "FastDataset has no option num_workers: pass it to your DataLoader"),
        (Resize, {"max_sise": 2}, "Resize has no option max_sise: did you mean max_size?"),
        (RandomResizedCrop, {"ratios": 2}, "RandomResizedCrop has no option ratios: did you mean ratio?"),
        (
            LengthBucketSampler,
            {"batchsize": 2},
            "LengthBucketSampler has no option batchsize: did you mean batch_size?",
        ),
        (Writer, {"overwite": True}, "Writer has no option overwite: did you mean overwrite?"),
        (open_store, {"raed": "map"}, "open_store has no option raed: did you mean read?"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_to_write_instead(called: Callable[..., Any], arguments: dict[str, Any], expected: str) -> None:
    """A misspelt option leads to the right one."""
    with pytest.raises(TypeError) as caught:
        called("nowhere.lmdb", **arguments)

    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_that_need_a_name() -> None:
    """It says which may come without, and names one that may not."""
    expected = r"^FastDataset\(path, transform, target_transform\): got 4 values without a name: .* such as fields="
    with pytest.raises(TypeError, match=expected):
        FastDataset("nowhere.lmdb", None, None, "image")  # type: ignore[misc] # what is tested


def test_transforms_are_still_dataclasses() -> None:
    """They compare, show themselves, can be pickled and replaced as before."""
    resize = Resize(32, max_size=64)

    assert resize == pickle.loads(pickle.dumps(resize))
    assert dataclasses.replace(resize, size=48) == Resize(48, max_size=64)
    assert "Resize(size=32, interpolation='bilinear', max_size=64, antialias=True)" == repr(resize)
