"""
One loader of one training in this process and its environment; the last line printed is JSON.

    python -m benchmarks.text.measure pack MODULE TRAINING WORK
    python -m benchmarks.text.measure load MODULE TRAINING NAME WORK SECONDS
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

from benchmarks.process_tree import timed_epochs
from benchmarks.text.work import TRAININGS, Work, from_json

__all__ = ["load", "main"]


def load(module: Any, training: str, name: str, work: Work, *, seconds: float) -> dict[str, Any]:
    """An epoch that is checked and not counted, then whole epochs until the seconds have passed."""
    loader = module.LOADERS[name][training](work)
    figures = TRAININGS[training].check(work, iter(loader))
    return {**timed_epochs(lambda: (samples for _, samples in loader), seconds=seconds), **figures}


def main(action: str, module_name: str, training: str, *rest: str) -> None:
    """See the module."""
    module = import_module(f"benchmarks.text.loaders.{module_name}")
    if action == "pack":
        (work,) = rest
        module.PACKS[training](from_json(work))
        print("{}")
    else:
        name, work, seconds = rest
        print(json.dumps(load(module, training, name, from_json(work), seconds=float(seconds))))


if __name__ == "__main__":
    main(*sys.argv[1:])
