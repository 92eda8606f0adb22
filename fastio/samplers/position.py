"""A position in training as numbers: epochs and batches that users pass, states that loaders and samplers save."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["GIVEN_UP", "check_state", "plain", "whole", "whole_consumed", "whole_epoch"]

# Logged if set_epoch sets another epoch than a loaded state: who, the epoch set, the epoch loaded.
GIVEN_UP = "%s: set_epoch(%d) drops the loaded position within epoch %d: the rest of that epoch will not come"

_MOST = 1 << 63  # what native code counts up to


def whole(name: str, number: int | None, expected: str, *, least: int, below: int = _MOST) -> int:
    """
    Return a Python or NumPy integer as an int. Raises ValueError for any other value, also for a bool, and outside
    ``least`` to ``below``.
    """
    try:
        value = least - 1 if number is None or isinstance(number, bool) else operator.index(number)
    except TypeError:
        value = least - 1
    if value >= below == _MOST:
        raise ValueError(f"{name}={number!r}: expected {expected}, and less than 2**63")
    if not least <= value < below:
        raise ValueError(f"{name}={number!r}: expected {expected}")
    return value


def whole_epoch(epoch: int) -> int:
    """Return an epoch's number. Raises ValueError if it is not one."""
    return whole("epoch", epoch, "0 <= epoch < 2**32", least=0, below=1 << 32)


def whole_consumed(consumed: Any, count: int) -> int:
    """Return the number of consumed samples in a state. Raises ValueError if it is not one of ``count``."""
    return (
        0 if consumed is None else whole("consumed", consumed, f"0 to {count} in the state", least=0, below=count + 1)
    )


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with NumPy's numbers as Python's, for JSON."""
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}


def check_state(state: Mapping[str, Any], expected: Mapping[str, Any], *, owner: str) -> None:
    """
    Raise ValueError, naming the differences, for the state of another ``owner`` ("loader", say) or of one built
    differently.
    """
    differences = [
        f"{name} is {state.get(name)!r} in the state and {value!r} here"
        for name, value in expected.items()
        if state.get(name) != value or type(state.get(name)) is not type(value)
    ]
    if differences:
        raise ValueError(
            f"the state belongs to another {owner}: {'; '.join(differences)}; build the {owner} as it was built before"
        )
