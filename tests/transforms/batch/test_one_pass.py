"""Which path one pass takes: Triton's, if the installed Triton is one that the kernels are tested with."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastio import _native
from fastio.errors import SchemaError
from fastio.transforms import Normalize
from fastio.transforms.batch import one_pass
from fastio.transforms.batch.finish import Finish
from fastio.transforms.batch.one_pass import HostPass
from fastio.transforms.batch.recipe import Recipe


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


# Normalising on the CPU by tables: the same bits as torch's own operations, in memory that comes back.

LAYOUTS = [torch.contiguous_format, torch.channels_last]


def pictures(shape: tuple[int, int, int, int], layout: torch.memory_format, seed: int = 0) -> torch.Tensor:
    """Random pictures (B, C, H, W)."""
    values = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    return torch.from_numpy(values).contiguous(memory_format=layout)


@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 9), st.integers(1, 9)),
    layout=st.sampled_from(LAYOUTS),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32]),
    numbers=st.lists(st.tuples(st.floats(-3, 3, width=32), st.floats(-3, 3, width=32)), min_size=4, max_size=4),
    channels_last=st.booleans(),
)
def test_tables_equal_torch(
    shape: tuple[int, int, int, int],
    layout: torch.memory_format,
    dtype: torch.dtype,
    numbers: list[tuple[float, float]],
    channels_last: bool,
) -> None:
    """To the bit and in the same memory format, wherever tables are used."""
    images = pictures(shape, layout)
    scale, bias = zip(*numbers[: shape[1]], strict=True)
    finish = Finish(dtype, scale, bias, channels_last)
    host = HostPass()
    expected = finish.run(images)

    if host.takes(images, finish):
        result = host.run(images, finish)
        assert torch.equal(expected, result)
        assert expected.dtype == result.dtype
        for wanted in LAYOUTS:
            assert not expected.is_contiguous(memory_format=wanted) or result.is_contiguous(memory_format=wanted)
    else:
        assert channels_last
        assert not images.is_contiguous(memory_format=torch.channels_last)


def test_what_tables_are_not_for() -> None:
    """Slices, floats, bytes that stay bytes, and nothing at all."""
    finish, images = Finish(torch.float32), pictures((4, 3, 6, 8), torch.contiguous_format)

    assert HostPass.takes(images, finish)
    assert not HostPass.takes(images[..., ::2], finish)
    assert not HostPass.takes(images.float(), finish)
    assert not HostPass.takes(images, Finish(torch.uint8))
    assert not HostPass.takes(images[:0], finish)


def test_memory_comes_back() -> None:
    """A loop that lets go of each batch uses the same memory again."""
    host, images = HostPass(), pictures((4, 3, 6, 8), torch.channels_last)
    places = {host.run(images, Finish(torch.float32)).data_ptr() for _ in range(5)}

    assert 1 == len(places)


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda recipe: pickle.loads(pickle.dumps(recipe))], ids=["copied", "pickled"]
)
def test_recipes_travel(duplicate: Callable[[Recipe], Recipe]) -> None:
    """A recipe that normalises can be copied and pickled, also after it ran, and gives the same."""
    images = pictures((2, 3, 4, 5), torch.channels_last)
    recipe = Recipe([Normalize((0.5,), (0.25,))], seed=0)
    expected = recipe.run([images], recipe.draw([images], np.arange(2), 0))[0]
    other = duplicate(recipe)

    assert torch.equal(expected, other.run([images], other.draw([images], np.arange(2), 0))[0])


def test_numbers_for_other_channels_are_refused() -> None:
    """As ``Finish.run`` does."""
    images = pictures((1, 1, 2, 2), torch.contiguous_format)
    with pytest.raises(SchemaError, match="3 channels, but pictures have 1"):
        HostPass().run(images, Finish(torch.float32, (1.0, 2.0, 3.0)))


@pytest.mark.parametrize(
    ("tables", "out", "message"),
    [
        (np.zeros((2, 256), np.int32), np.zeros((2, 9), np.int32), "256 values for each channel"),
        (np.zeros((3, 255), np.int32), np.zeros((2, 9), np.int32), "256 values for each channel"),
        (np.zeros((3, 256), np.int32), np.zeros((2, 9), np.int16), "2 or 4 bytes, both the same"),
        (np.zeros((3, 256), np.int64), np.zeros((2, 9), np.int64), "2 or 4 bytes, both the same"),
        (np.zeros((3, 256), np.int32), np.zeros((2, 8), np.int32), "a value for each byte"),
    ],
    ids=["channels", "values", "types", "wide", "room"],
)
def test_arrays_that_do_not_fit_are_refused(tables: np.ndarray, out: np.ndarray, message: str) -> None:
    """Before anything is read or written."""
    with pytest.raises(ValueError, match=message):
        _native.look_up(np.zeros((2, 9), np.uint8), tables, out)
