"""The random generators behind a user's sampler: its own, and the global ones, seeded for one draw."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

__all__ = ["Generator", "own_generators", "parts_of", "restore", "seeded", "snapshot"]

_DEEPEST = 8  # depth of samplers within samplers, which may refer back to themselves

Generator = torch.Generator | np.random.Generator | np.random.RandomState | random.Random


def own_generators(sampler: object) -> list[Generator]:
    """Return the generators that a sampler and the samplers within it keep as attributes, each once."""
    generators: dict[int, Generator] = {}
    for part in parts_of(sampler):
        for value in getattr(part, "__dict__", {}).values():
            if isinstance(value, Generator):
                generators[id(value)] = value
    return list(generators.values())


def parts_of(sampler: object) -> list[object]:
    """Return a sampler and the samplers within it, from the outermost inwards."""
    parts: list[object] = []
    part: object | None = sampler
    while part is not None and len(parts) < _DEEPEST:
        parts.append(part)
        part = next((value for name in ("batch_sampler", "sampler") if (value := getattr(part, name, None))), None)
    return parts


def snapshot(generators: list[Generator]) -> list[Any]:
    """Return the state of each generator."""
    return [_state(generator) for generator in generators]


def restore(generators: list[Generator], states: list[Any]) -> None:
    """Restore the state of each generator."""
    for generator, state in zip(generators, states, strict=True):
        if isinstance(generator, torch.Generator):
            generator.set_state(state)
        elif isinstance(generator, np.random.Generator):
            generator.bit_generator.state = state
        elif isinstance(generator, np.random.RandomState):
            generator.set_state(state)
        else:
            generator.setstate(state)


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
    """Seed the global CPU generators of torch, NumPy and Python from seed and epoch; restore them afterwards."""
    numbers = np.random.SeedSequence((seed, epoch)).generate_state(4).tolist()
    before = torch.default_generator.get_state(), np.random.get_state(), random.getstate()  # noqa: NPY002 - the user's
    try:
        # Not torch.manual_seed: it would seed the generators of GPUs too.
        torch.default_generator.manual_seed(numbers[0] | numbers[1] << 32)
        np.random.seed(numbers[2])  # noqa: NPY002
        random.seed(numbers[3])
        yield
    finally:
        torch.default_generator.set_state(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        random.setstate(before[2])
