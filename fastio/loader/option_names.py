"""What FastLoader says about an option that it does not have: its name here, or why there is none."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import ParamSpec

from fastio.dataset.fast_dataset import FastDataset

__all__ = ["explains_names"]

_Parameters = ParamSpec("_Parameters")

_POSITIONAL = 3  # self, dataset and batch_size
_NO_WORKERS = "leave it out: native threads make the batches, and there are no worker processes"
# Options of torch's DataLoader, and other names that people try first.
_ELSEWHERE = {
    "num_workers": "pass threads=N, or leave it out for all CPUs: native threads make the batches, and there are no "
    "worker processes",
    "workers": "pass threads=N, or leave it out for all CPUs",
    "collate_fn": "collate= joins samples that differ in length; for a function of your own, use torch's "
    "DataLoader(FastDataset(path), collate_fn=...), or call it on each batch",
    "prefetch_factor": "pass prefetch_batches=N, counted in batches for all threads together",
    "persistent_workers": "leave it out: threads live as long as the loader",
    "multiprocessing_context": _NO_WORKERS,
    "worker_init_fn": _NO_WORKERS,
    "timeout": _NO_WORKERS,
    "generator": "pass seed=N: order and random numbers depend on it and on the epoch alone",
    "pin_memory_device": 'pass device="cuda", which also copies the batches there',
    "in_order": "leave it out: batches always come in order",
    "path": "the dataset comes first: FastLoader(path, batch_size)",
    "transform": "pass transforms=[...] of fastio.transforms, or FastDataset(path, transform)",
}


def explains_names(init: Callable[_Parameters, None]) -> Callable[_Parameters, None]:
    """
    Let a constructor explain an option that it does not have.

    The TypeError names the option that does the same, one of nearly the same name, or FastDataset if it is an option
    of that; for too many values without a name, it says which may have none.
    """

    known = list(inspect.signature(init).parameters)[1:]  # without self

    @wraps(init)
    def checked(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> None:
        unknown = [name for name in kwargs if name not in known]
        if unknown:
            raise TypeError("; ".join(_explained(name, known) for name in unknown))
        if len(args) > _POSITIONAL:
            raise TypeError(
                f"FastLoader(dataset, batch_size): got {len(args) - 1} values without a name: name the others, such as "
                "shuffle=True"
            )
        init(*args, **kwargs)

    return checked


def _explained(name: str, known: Sequence[str]) -> str:
    """Return which option does what the user wants, in words."""
    start = f"FastLoader has no option {name}"
    if name in _ELSEWHERE:
        return f"{start}: {_ELSEWHERE[name]}"
    if name in inspect.signature(FastDataset).parameters:
        return f"{start}, but FastDataset has: pass FastLoader(FastDataset(path, {name}=...), ...)"
    near = get_close_matches(name, [*known, *_ELSEWHERE], n=1)
    if not near:
        return f"{start}: help(fastio.FastLoader) lists all"
    return f"{start}: did you mean {near[0]}?" if near[0] in known else f"{start}: {_ELSEWHERE[near[0]]}"
