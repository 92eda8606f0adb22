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
    ChannelsLast,
    ColorJitter,
    Compose,
    CutMix,
    KeepGeometry,
    MixUp,
    Normalize,
    OneOf,
    PerBatch,
    PerSample,
    RandAugment,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    Resize,
    ToDtype,
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
NAMES_OF_ARRAYS = ("image", "mask", "depth", "caption", "objects", "sound", "boxes", "points", "embedding", "label")
MIXES = OneOf([MixUp(0.8, num_classes=3), CutMix(1.0, num_classes=3)])
ENDING = [Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), ToDtype("float32")]
COLOURS = [*CROPS, RandomRotation(10), ColorJitter(0.4, 0.4, 0.4), RandAugment()]
Options = dict[str, Any]


def scenes(folder: Path, *names: str) -> FastDataset:
    """Samples of these fields."""
    return FastDataset(folder / "scenes.tar", fields=names)


def named(label: Any) -> Any:
    """What a target_transform makes of a label."""
    return {"name": f"class {label}", "number": int(label), "half": label / 2}


def inverted(pictures: Any) -> Any:
    """The rest of a whole."""
    return 1 - pictures


def bright(picture: Any, *numbers: Any) -> Any:
    """Fails for some pictures."""
    if numbers and numbers[0][0] < 0.3:
        raise ValueError("drawn")
    if float(picture[0, 0, 0]) < 0.3:
        raise ValueError("dark")
    return picture


def with_means(batch: Any) -> Any:
    """A third value."""
    images, labels = batch
    return images, labels, [int(image[0, 0, 0]) for image in images]


def sorted_names(batch: Any) -> Any:
    """Entries in another order."""
    return dict(sorted(batch.items()))


def halves(picture: Any) -> Any:
    """A transform of Python."""
    return np.array(picture)[:, ::2].transpose(2, 0, 1) // 2


def halved(ids: Any) -> Any:
    """A transform of token ids."""
    return ids[::2]


def darker(sample: Any) -> Any:
    """A transform of whole samples, some values of which are made anew."""
    image, mask, depth, *others = sample
    return image, np.array(mask) // 2, depth, *others


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
    "normalized": lambda folder: (folder / "pictures.lmdb", {"transforms": [*COLOURS, *ENDING]}),
    "normalized, channels_last": lambda folder: (
        folder / "pictures.lmdb",
        {"transforms": [*CROPS, Normalize([0.5], [0.25]), ToDtype("float16")], "layout": "channels_last"},
    ),
    "scaled": lambda folder: (
        folder / "pictures.lmdb",
        {"transforms": [Resize((8, 9)), ToDtype("float32", scale=True)]},
    ),
    "mixed": lambda folder: (folder / "pictures.lmdb", {"transforms": [*CROPS, MIXES, *ENDING]}),
    "mixed floats": lambda folder: (
        folder / "pictures.lmdb",
        {"transforms": [*CROPS, *ENDING, CutMix(num_classes=3), Normalize([0.1], [0.3]), ChannelsLast()]},
    ),
    "mixed repeats": lambda folder: (
        folder / "pictures.lmdb",
        {"repeats": 2, "transforms": [*CROPS, MixUp(num_classes=3), Normalize([0.5], [0.25])]},
    ),
    "normalized views": lambda folder: (
        folder / "pictures.lmdb",
        {"views": [(2, [*COLOURS, *ENDING]), (1, [Resize((8, 9)), PerBatch(inverted), PerSample(inverted)])]},
    ),
    "normalized scenes": lambda folder: (
        scenes(folder, "image", "mask", "boxes", "caption", "label"),
        {"transforms": [*CROPS, *ENDING, PerSample(bright)], "on_error": "skip"},
    ),
    "batch functions": lambda folder: (
        folder / "pictures.lmdb",
        {"transforms": [*CROPS, PerBatch(with_means), *ENDING, lambda batch: [*batch, "end"]]},
    ),
    "a batch function alone": lambda folder: (folder / "ids.lmdb", {"transforms": [PerBatch(sorted_names)]}),
    "functions, skip": lambda folder: (
        folder / "damaged.lmdb",
        {"transforms": [*CROPS, MixUp(num_classes=3), PerSample(bright, draws=1)], "on_error": "skip"},
    ),
    "functions, zero": lambda folder: (
        folder / "damaged.lmdb",
        {"transforms": [*CROPS, PerSample(bright), *ENDING, PerSample(inverted)], "on_error": "zero"},
    ),
    "own transform": lambda folder: (FastDataset(folder / "pictures.lmdb", halves), {"transforms": [MIXES, *ENDING]}),
    "own transform of scenes": lambda folder: (
        FastDataset(folder / "scenes.tar", darker, fields=NAMES_OF_ARRAYS),
        {"collate": {"boxes": "pad", "points": "list"}},
    ),
    "own transform, padded": lambda folder: (FastDataset(folder / "ids.lmdb", halved), {"collate": PadCollate(1)}),
    "own transform, packed": lambda folder: (FastDataset(folder / "ids.lmdb", halved), {"collate": PackCollate(512)}),
    "own transform, rows": lambda folder: (
        FastDataset(folder / "ids.lmdb", halved),
        {"collate": PackCollate(32, rows=4)},
    ),
    "own transform, chunks": lambda folder: (FastDataset(folder / "ids.lmdb", halved), {"collate": ChunkCollate(16)}),
    "own transform, padded fields": lambda folder: (
        FastDataset(folder / "scenes.tar", lambda sample: sample, fields=("tokens", "boxes")),
        {"collate": "pad"},
    ),
    "own transform, preferences": lambda folder: (
        FastDataset(folder / "pairs.lmdb", dict),
        {"collate": "preference"},
    ),
    "composed": lambda folder: (
        FastDataset(folder / "damaged.lmdb", Compose([Resize((8, 9)), PerSample(bright)])),
        {"on_error": "skip"},
    ),
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
    for function in (inverted, bright, with_means, sorted_names):
        function.__module__ = "tests.loader.output_cases"  # as the test imports them: states have their names
    Path(sys.argv[2]).write_bytes(pickle.dumps(made(Path(sys.argv[1]), "numpy")))
