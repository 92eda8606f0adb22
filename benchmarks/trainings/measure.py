"""
One loader of one training in this process and its environment; the last line printed is JSON.

    python -m benchmarks.trainings.measure pack MODULE WORK
    python -m benchmarks.trainings.measure load MODULE TRAINING NAME WORK SECONDS
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.process_tree import timed_epochs
from benchmarks.trainings.work import TRAININGS, OutputError, from_json, photos_of, scenes_of, videos_of

__all__ = ["main"]

_FILES = {"photos": photos_of, "scenes": scenes_of, "videos": videos_of}


def load(module: Any, training: str, name: str, work: Any, seconds: float) -> dict[str, Any]:
    """An epoch that is checked and not counted, then whole epochs until the seconds have passed."""
    spec = TRAININGS[training]
    loader = module.LOADERS[name][training](work)
    checked, total = 0, 0.0
    for arrays, samples in loader:
        total += samples * spec.check([np.asarray(array) for array in arrays], samples)
        checked += samples
    expected = len(_FILES[spec.source](work)) * spec.per_source
    if checked != expected:
        raise OutputError(f"an epoch of {checked} {spec.unit}, expected {expected}")
    return {**timed_epochs(lambda: (count for _, count in loader), seconds=seconds), "mean": total / checked}


def main(action: str, module_name: str, *rest: str) -> None:
    """See the module."""
    module = import_module(f"benchmarks.trainings.loaders.{module_name}")
    if action == "pack":
        module.pack(from_json(rest[0]))
        print("{}")
    else:
        training, name, work, seconds = rest
        print(json.dumps(load(module, training, name, from_json(work), float(seconds))))


if __name__ == "__main__":
    main(*sys.argv[1:])
