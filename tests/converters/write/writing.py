"""What tests of fastio.Writer write, and what they look at."""

from __future__ import annotations

import numpy as np

import fastio
from fastio.store.protocol import read_values
from tests.converters.trees import picture

OUTPUTS = ("out.lmdb", "out.h5", "out.tar", "out-%06d.tar", "out.zip")

FIELDS = {
    "image": "image",
    "mask": "mask16",
    "caption": "text",
    "objects": "json",
    "blob": "bytes",
    "embedding": ("float32", (3,)),
    "boxes": "xyxy",
    "kinds": "int64[*] per boxes",
    "ids": "tokens",
    "label": "label",
    "score": "float",
    "is_new": "bool",
    "pose": "float32[2] column",
}


def sample(i):
    """A sample with a value for each of FIELDS."""
    return {
        "image": picture(i, kind=("PNG", "JPEG")[i % 2], size=(6 + i % 3, 5)),
        "mask": np.full((5, 6 + i % 3), i * 250, np.uint16),
        "caption": f"nümber {i}",
        "objects": {"number": i, "list": [i, None]},
        "blob": bytes([i % 256]) * (i % 4),
        "embedding": [i, 0.5, -1],
        "boxes": [[0, 0, k + 1, i] for k in range(i % 3)],
        "kinds": list(range(i % 3)),
        "ids": [i, i + 1][: i % 3],
        "label": i % 5,
        "score": i / 3,
        "is_new": i % 2 == 0,
        "pose": (i, -i),
    }


def visible(folder):
    """Everything in a folder, hidden leftovers as well."""
    return sorted(p.name for p in folder.iterdir() if p.name.lstrip(".").startswith("out"))


def written(path, samples, fields=FIELDS, **options):
    """The writer, closed, after it took these samples."""
    with fastio.Writer(path, fields, **options) as writer:
        for each in samples:
            writer.write(each)
    return writer


def values(store, name):
    """The encoded values of a payload field, in order."""
    return [view.tobytes() for view in read_values(store, name, np.arange(len(store))).views()]
