"""Packing with webdataset's own writer."""

from __future__ import annotations

import pickle
from pathlib import Path

import webdataset

__all__ = ["pack"]


def pack(folder: Path, labels: Path, out: Path) -> None:
    """Write one tar file of pictures and ``.cls`` members."""
    classes = pickle.loads(labels.read_bytes())
    with webdataset.TarWriter(str(out)) as sink:
        for name in sorted(classes):
            stem, kind = Path(name).stem, Path(name).suffix[1:]
            sink.write({"__key__": stem, kind: (folder / name).read_bytes(), "cls": str(classes[name])})
