"""A position in training as numbers: epochs and batches that users pass, states that loaders and samplers save."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "GIVEN_UP",
    "as_array",
    "as_state",
    "check_state",
    "plain",
    "value_in",
    "whole",
    "whole_consumed",
    "whole_epoch",
]

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


def as_array(values: Any) -> NDArray[Any]:
    """Return values as an array. Those that have no shape become one object, which a check of dtype and shape names."""
    try:
        return np.asarray(values)
    except ValueError:  # lists of different lengths, or a dataset that is read sample by sample
        array = np.empty((), object)
        array[()] = values
        return array


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


def as_state(state: Any, *, owner: str, newest: int) -> Mapping[str, Any]:
    """
    Return the state if it is one of an ``owner`` ("loader", say), of version 1 to ``newest``. Raises TypeError if it
    is no mapping, and ValueError for other mappings and versions.
    """
    if not isinstance(state, Mapping):
        remedy = ": pass json.loads(...) of it" if isinstance(state, str) else ""
        raise TypeError(f"state: expected the dict that state_dict() returned, got {type(state).__name__}{remedy}")
    is_sampler_here = owner == "loader" and "sampler" in state and "store" not in state
    if "version" not in state or (owner == "loader" and "store" not in state and not is_sampler_here):
        keys = ", ".join(map(repr, state)) or "none"
        raise ValueError(f"this is no state of a {owner}: its keys are {keys}: pass what state_dict() returned")
    version = state["version"]
    if type(version) is not int or version < 1:
        raise ValueError(f"version={version!r}: expected 1 to {newest} in the state: it is damaged")
    if is_sampler_here or (owner == "sampler" and "store" in state):
        kind = "loader" if "store" in state else state["sampler"]
        raise ValueError(f"the state is that of a {kind}, not of a {owner}: load it into the {kind}")
    if version > newest:
        raise ValueError(
            f"the state was written by another version of fastio ({version}; this one knows 1 to {newest}): update "
            "fastio"
        )
    return state


def value_in(state: Mapping[str, Any], name: str) -> Any:
    """Return a value of a state. Raises ValueError if it is missing."""
    if name not in state:
        raise ValueError(f"{name} is missing in the state: it is damaged")
    return state[name]


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
