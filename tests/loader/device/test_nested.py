"""Batches of any form keep it."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from fastio.loader.device.nested import held_tensors, map_tensors, sample_count, tensors


class Pair(NamedTuple):
    images: Any
    labels: Any


@dataclass
class Tokens:
    tokens: torch.Tensor
    name: str


ONE, TWO = torch.ones(3), torch.zeros(3, 2)


@pytest.mark.parametrize(
    "batch",
    [
        ONE,
        [ONE, TWO],
        (ONE, [TWO, None]),
        {"a": ONE, "b": {"c": TWO}, "d": "text"},
        OrderedDict(b=ONE, a=TWO),
        Pair(ONE, (TWO, 3)),
        Tokens(ONE, "text"),
        [Tokens(ONE, "x"), TWO],
    ],
)
def test_the_form_is_kept(batch: Any) -> None:
    """Only tensors are replaced; containers, their types and everything else stay."""
    doubled = map_tensors(lambda tensor: tensor * 2 + 1, batch)

    assert type(batch) is type(doubled)
    assert all(map(torch.equal, [tensor * 2 + 1 for tensor in tensors(batch)], tensors(doubled)))
    again = map_tensors(lambda tensor: (tensor - 1) / 2, doubled)
    assert repr(batch) == repr(again)


def test_mappings_of_other_kinds() -> None:
    """A defaultdict keeps its factory; a mapping that cannot be filled becomes a dict."""
    filled = map_tensors(torch.Tensor.neg, defaultdict(list, a=ONE))

    assert filled["missing"] == []
    assert torch.equal(-ONE, filled["a"])
    assert list(map_tensors(torch.Tensor.neg, MappingProxyType({"a": ONE}))) == ["a"]


def test_a_packed_sequence_keeps_its_sizes() -> None:
    """``batch_sizes`` is not touched: torch wants it on the CPU."""
    packed = pack_sequence([torch.ones(2), torch.ones(3)], enforce_sorted=False)
    moved = map_tensors(lambda tensor: tensor.clone(), packed)

    assert type(packed) is type(moved)
    assert moved.batch_sizes is packed.batch_sizes
    assert moved.data is not packed.data
    assert torch.equal(packed.sorted_indices, moved.sorted_indices)


@pytest.mark.parametrize(
    ("batch", "expected"), [([ONE, TWO], 3), ({"a": "x", "b": TWO}, 3), (torch.tensor(1), 1), ("x", 0)]
)
def test_sample_count(batch: Any, expected: int) -> None:
    """The first tensor's length."""
    assert expected == sample_count(batch)


class Slotted:
    """An object with slots, that holds another with attributes, that holds itself."""

    __slots__ = ("inner", "number", "unset")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.number = 3
        self.inner = SimpleNamespace(own=[tensor], name="a")
        self.inner.inner = self.inner


def test_tensors_that_an_object_holds() -> None:
    """In attributes and slots, some levels deep; a network beside the batch is none of it."""
    one, other = torch.ones(1), torch.ones(2)
    batch = {"a": Slotted(one), "b": [other, "text"], "c": torch.nn.Linear(2, 2)}

    assert {id(one), id(other)} == {id(each) for each in held_tensors(batch)}
