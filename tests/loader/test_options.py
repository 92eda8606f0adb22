"""LoaderOptions: every argument of FastLoader arrives under its own name, and is checked before anything is opened."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastio import FastLoader
from fastio.loader import fast_loader
from fastio.loader.options import LoaderOptions

# One value for each option that no other option has; several would rule each other out.
VALUES: dict[str, Any] = {
    "batch_size": 7,
    "shuffle": True,
    "seed": np.int64(11),
    "drop_last": "drop_last",
    "rank": "rank",
    "world_size": "world_size",
    "mesh": "mesh",
    "replication": "replication",
    "uneven": "uneven",
    "indices": "indices",
    "sampler": None,
    "batch_sampler": None,
    "weights": None,
    "samples_per_epoch": None,
    "collate": "collate",
    "threads": np.uint8(3),
    "prefetch_batches": 5,
    "on_error": "skip",
    "verify": False,
    "pin_memory": "pin_memory",
    "transforms": [print],
    "quality": "fast",
    "layout": "channels_last",
    "device": "device",
    "cache": "ram",
    "decode": "cpu",
}
PARTS = ("samples", "order", "pixels", "work")


class WiredError(Exception):
    """Instead of wiring: the options."""


def options_of(monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> LoaderOptions:
    def wire(dataset: object, options: LoaderOptions) -> None:
        raise WiredError(options)

    monkeypatch.setattr(fast_loader, "wire", wire)
    with pytest.raises(WiredError) as wired:
        FastLoader("nowhere", **arguments)
    (options,) = wired.value.args
    assert isinstance(options, LoaderOptions)
    return options


@pytest.mark.parametrize("changed", [{}, {"shuffle": False, "sampler": [1]}, {"shuffle": False, "weights": [2.0]}])
def test_each_argument_arrives(monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]) -> None:
    """No two arguments change places on their way."""
    values = {**VALUES, **changed}
    if "weights" in changed:
        values["samples_per_epoch"] = 9
    options = options_of(monkeypatch, **values)
    parts = [*(getattr(options, part) for part in PARTS), options.order.ranks]
    arrived = {field.name: getattr(part, field.name) for part in parts for field in fields(part)}
    del arrived["ranks"]

    assert values == arrived
    assert set(inspect.signature(FastLoader).parameters) == {"dataset", *arrived}


def test_numbers_become_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state is plain numbers, so numpy's are made Python's; options are frozen."""
    options = options_of(monkeypatch, batch_size=np.int32(4), seed=np.uint64(2), threads=np.int8(1))

    assert [int] * 3 == [
        type(number) for number in (options.order.batch_size, options.order.seed, options.work.threads)
    ]
    with pytest.raises(FrozenInstanceError):
        options.order.seed = 3  # type: ignore[misc] # what is tested


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size=0: expected a whole number from 1"),
        ({"batch_size": True}, "batch_size=True: expected a whole number from 1"),
        ({"batch_size": 10**30}, f"batch_size={10**30}: expected a whole number from 1, and less than 2"),
        ({"batch_size": 4, "prefetch_batches": 1 << 63}, f"prefetch_batches={1 << 63}: expected 1 or more, and less"),
        ({"batch_size": 4, "shuffle": 1}, "shuffle=1: expected False, True or 'full'"),
        ({"batch_size": 4, "seed": -1}, "seed=-1: expected 0 <= seed < 2"),
        ({"batch_size": 4, "threads": -1}, "threads=-1: expected 0"),
        ({"batch_size": 4, "prefetch_batches": 0}, "prefetch_batches=0: expected 1 or more"),
        ({"batch_size": 4, "on_error": "ignore"}, "on_error='ignore': expected one of 'raise', 'skip', 'zero'"),
        ({"batch_size": 4, "verify": "auto"}, "verify='auto': expected True"),
        ({"batch_size": 4, "quality": "best"}, "quality='best': expected one of 'exact', 'fast'"),
        ({"batch_size": 4, "layout": "NCHW"}, "layout='NCHW': expected one of 'contiguous', 'channels_last'"),
        ({"batch_size": 4, "decode": "gpu"}, "decode='gpu': expected one of 'cpu', 'device'"),
        ({"batch_size": 4, "cache": "disk"}, "cache='disk': expected one of 'ram', 'device' or None"),
        ({"batch_size": 4, "cache": "device"}, "cache='device': pass device= too"),
        ({"batch_size": 4, "decode": "device"}, "decode='device': pass device='cuda' too"),
        ({"batch_size": 4, "samples_per_epoch": 3}, "samples_per_epoch=3: only for weights= or a Mixture: drop it"),
        ({"batch_size": 4, "batch_sampler": [[0]]}, "batch_size: the batch_sampler decides that: drop it here"),
        ({"batch_size": 4, "sampler": [0], "shuffle": True}, "shuffle: the sampler decides that"),
        ({"batch_size": 4, "weights": [1], "shuffle": "full"}, "shuffle: the weights decide that"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    """A value that no dataset could make right is one line, though the store is not there."""
    with pytest.raises(ValueError, match=f"^{message}".replace("(", r"\(")):
        FastLoader(tmp_path / "nowhere.lmdb", **arguments)
