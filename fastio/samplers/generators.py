"""The random generators behind a sampler of the user's: those of its own, and the global ones, seeded for one draw."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

__all__ = ["Generator", "own_generators", "parts_of", "restore", "seeded", "snapshot"]

_DEEPEST = 8  # samplers within samplers; one may lead back to itself

Generator = torch.Generator | np.random.Generator | np.random.RandomState | random.Random


def own_generators(sampler: object) -> list[Generator]:
    """The generators that a sampler keeps as attributes, and those of the samplers within it; each once."""
    found: dict[int, Generator] = {}
    for part in parts_of(sampler):
        for value in getattr(part, "__dict__", {}).values():
            if isinstance(value, Generator):
                found[id(value)] = value
    return list(found.values())


def parts_of(sampler: object) -> list[object]:
    """A sampler and the samplers within it, from the outermost inwards."""
    parts: list[object] = []
    part: object | None = sampler
    while part is not None and len(parts) < _DEEPEST:
        parts.append(part)
        part = next((value for name in ("batch_sampler", "sampler") if (value := getattr(part, name, None))), None)
    return parts


def snapshot(generators: list[Generator]) -> list[Any]:
    """Where each generator stands."""
    return [_state(each) for each in generators]


def restore(generators: list[Generator], states: list[Any]) -> None:
    """Let each generator stand where it stood."""
    for each, state in zip(generators, states, strict=True):
        if isinstance(each, torch.Generator):
            each.set_state(state)
        elif isinstance(each, np.random.Generator):
            each.bit_generator.state = state
        elif isinstance(each, np.random.RandomState):
            each.set_state(state)
        else:
            each.setstate(state)


def _state(generator: Generator) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state()
    return generator.getstate()


@contextmanager
def seeded(seed: int, epoch: int) -> Iterator[None]:
    """
    Torch's, numpy's and Python's global generators of the CPU begin anew, by a function of seed and epoch.

    Afterwards they stand where they stood before.
    """
    numbers = np.random.SeedSequence((seed, epoch)).generate_state(4).tolist()
    before = torch.default_generator.get_state(), np.random.get_state(), random.getstate()  # noqa: NPY002 - the user's
    try:
        # Not torch.manual_seed: that would seed the generators of GPUs too.
        torch.default_generator.manual_seed(numbers[0] | numbers[1] << 32)
        np.random.seed(numbers[2])  # noqa: NPY002
        random.seed(numbers[3])
        yield
    finally:
        torch.default_generator.set_state(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        random.setstate(before[2])
