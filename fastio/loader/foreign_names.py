"""Options that FastLoader does not have, attributes that cannot be set, and what to write instead."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from fastio.dataset.fast_dataset import FastDataset

__all__ = ["OPTIONS_ELSEWHERE", "cannot_be_set"]

_NO_WORKERS = "leave it out: native threads make the batches, and there are no worker processes"
# Options of FastDataset and of torch's DataLoader, and other names that people try first: what to write instead.
OPTIONS_ELSEWHERE: Final[Mapping[str, str]] = {
    **{
        name: f"FastDataset has it: pass FastLoader(FastDataset(path, {name}=...), ...)"
        for name in inspect.signature(FastDataset).parameters
    },
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
_ATTRIBUTES: Final[Mapping[str, str]] = {
    "weights": "for other weights in each epoch, pass sampler=WeightedRandomSampler(...), whose weights you change "
    "between epochs, or build another loader",
    "epoch": "call set_epoch(n)",
}


def cannot_be_set(name: str, loader: type) -> str:
    """Return why an attribute of a loader cannot be set, and what to do instead, in one line."""
    options = [option for option in inspect.signature(loader).parameters if option != "dataset"]
    read = [known for known, value in vars(loader).items() if isinstance(value, property)]
    if name in _ATTRIBUTES:
        advice = _ATTRIBUTES[name]
    elif name in options:
        advice = f"a loader keeps what it was built with: build another one with {name}=..."
    elif name in OPTIONS_ELSEWHERE:
        advice = OPTIONS_ELSEWHERE[name]
    elif name in ("dataset", "rank", "world_size", "base", "division", *read):
        advice = "it can only be read: build another loader"
    else:
        near = get_close_matches(name, [*options, *_ATTRIBUTES], n=1)
        if not near:
            return f"FastLoader has no attribute {name}: nothing would read it: keep your own values elsewhere"
        return f"FastLoader has no attribute {name}: did you mean {near[0]}? Even so, build another loader to change it"
    return f"{name} of a FastLoader cannot be set: {advice}"
