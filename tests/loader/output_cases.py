"""
Loaders of every kind, for both outputs: the test makes their batches with tensors, and this script with arrays.

``python output_cases.py FOLDER FILE`` blocks torch, and pickles what ``made`` returns to the file.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fastio import (
    ChunkCollate,
    FastDataset,
    FastLoader,
    PackCollate,
    PadCollate,
)
from fastio.transforms import (
    ColorJitter,
    KeepGeometry,
    RandAugment,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    Resize,
)

__all__ = ["CASES", "made"]

CROPS = [RandomResizedCrop(12), RandomHorizontalFlip()]
NAMES = (
    "image",
    "mask",
    "depth",
    "caption",
    "objects",
    "sound",
    "tokens",
    "boxes",
    "points",
    "embedding",
    "label",
    "city",
)
COLOURS = [*CROPS, RandomRotation(10), ColorJitter(0.4, 0.4, 0.4), RandAugment()]
Options = dict[str, Any]


def scenes(folder: Path, *names: str) -> FastDataset:
    """Samples of these fields."""
    return FastDataset(folder / "scenes.tar", fields=names)


def named(label: Any) -> Any:
    """What a target_transform makes of a label."""
    return {"name": f"class {label}", "number": int(label), "half": label / 2}


CASES: dict[str, Callable[[Path], tuple[Any, Options]]] = {
    "pictures": lambda folder: (folder / "pictures.lmdb", {}),
    "part": lambda folder: (folder / "pictures.lmdb", {"indices": [5, 1, 8], "batch_size": 2}),
    "channels_last": lambda folder: (folder / "pictures.lmdb", {"layout": "channels_last", "transforms": CROPS}),
    "crops": lambda folder: (folder / "pictures.lmdb", {"transforms": CROPS}),
    "colours": lambda folder: (folder / "pictures.lmdb", {"transforms": COLOURS}),
    "views": lambda folder: (folder / "pictures.lmdb", {"views": [(2, COLOURS), (1, [Resize((8, 9))])]}),
    "repeats": lambda folder: (folder / "pictures.lmdb", {"repeats": 2, "transforms": CROPS}),
    "cache": lambda folder: (folder / "pictures.lmdb", {"cache": "ram", "transforms": CROPS}),
    "targets": lambda folder: (FastDataset(folder / "pictures.lmdb", target_transform=named), {}),
    "skip": lambda folder: (folder / "damaged.lmdb", {"on_error": "skip", "transforms": CROPS}),
    "zero": lambda folder: (folder / "damaged.lmdb", {"on_error": "zero"}),
    "pillow": lambda folder: (folder / "gifs.lmdb", {"transforms": CROPS}),
    "scenes": lambda folder: (
        scenes(folder, *NAMES),
        {"transforms": [*CROPS, KeepGeometry()], "collate": {"boxes": "pad", "points": "list", "tokens": "list"}},
    ),
    "padded fields": lambda folder: (scenes(folder, "tokens", "boxes", "kinds"), {"collate": "pad"}),
    "tuples": lambda folder: (scenes(folder, "image", "mask", "label"), {"transforms": CROPS}),
    "padded": lambda folder: (folder / "ids.lmdb", {"collate": PadCollate(pad_to_multiple=8)}),
    "left": lambda folder: (folder / "ids.lmdb", {"collate": PadCollate(7, side="left")}),
    "packed": lambda folder: (folder / "ids.lmdb", {"collate": PackCollate()}),
    "chunks": lambda folder: (folder / "ids.lmdb", {"collate": ChunkCollate(16)}),
    "preferences": lambda folder: (folder / "pairs.lmdb", {"collate": "preference"}),
}


def made(folder: Path, output: str) -> dict[str, Any]:
    """Two epochs of each case: their batches, the state in the middle of the second, the receipt, what was skipped."""
    results = {}
    for name, case in CASES.items():
        dataset, options = case(folder)
        kept = {"batch_size": 4, "shuffle": True, "seed": 3, "threads": 2} | options
        with FastLoader(dataset, output=output, **kept) as loader:
            batches = [[*map(plain, loader)], []]
            receipt = loader.receipt().to_json()
            rest = iter(loader)
            batches[1].append(plain(next(rest)))
            state = loader.state_dict()
            batches[1] += map(plain, rest)
            skipped = [(error.index, str(error)) for error in loader.skipped]
        results[name] = batches, receipt, state, skipped
    return results


def plain(value: Any) -> Any:
    """
    Return a batch with each tensor or array as a copy of its values, and its strides. Raises AssertionError for an
    array that is not writable.
    """
    if isinstance(value, np.ndarray):
        assert value.flags.writeable
        return np.array(value), value.strides if value.size else ()
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value))
    return plain(value.numpy()) if hasattr(value, "numpy") else value


class _NoTorch:
    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] in ("torch", "torchvision"):
            raise ImportError(f"{name} is blocked")


if __name__ == "__main__":
    sys.meta_path.insert(0, _NoTorch())  # type: ignore[arg-type] # needs nothing else of a finder
    Path(sys.argv[2]).write_bytes(pickle.dumps(made(Path(sys.argv[1]), "numpy")))
