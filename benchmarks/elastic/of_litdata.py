"""LitData: chunks of numbers, its StreamingDataset and StreamingDataLoader, which keep the state."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import litdata

__all__ = ["keeping_loader", "loader", "mixture", "numbers", "pack"]

_CHUNK_SAMPLES = 100


def _sample(number: int) -> dict[str, int]:
    return {"number": number}


def pack(folder: Path, count: int) -> None:
    """Chunks of 100 samples: of all numbers, and again of three and two fifths of them."""
    # Deleted by optimize() when it starts, whoever's they are: see benchmarks/peers/litdata_caches.py.
    os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = str(folder / "caches" / "chunks")
    os.environ["DATA_OPTIMIZER_DATA_CACHE_FOLDER"] = str(folder / "caches" / "data")
    cut = 3 * count // 5
    for name, start, stop in (("chunks", 0, count), ("first", 0, cut), ("second", cut, count)):
        litdata.optimize(
            fn=_sample,
            inputs=list(range(start, stop)),
            output_dir=str(folder / name),
            chunk_size=_CHUNK_SAMPLES,
            num_workers=1,
            keep_data_ordered=True,
            verbose=False,
        )


def loader(folder: Path, batch_size: int, *, drop_last: bool | None = None) -> Any:
    """Ranks come from the process group; with several of them, LitData drops what does not fill a step."""
    dataset = litdata.StreamingDataset(str(folder / "chunks"), shuffle=True, drop_last=drop_last)
    return litdata.StreamingDataLoader(dataset, batch_size=batch_size, num_workers=0)


def keeping_loader(folder: Path, batch_size: int) -> Any:
    """The same with ``drop_last=False``, which LitData warns of."""
    return loader(folder, batch_size, drop_last=False)


def mixture(folder: Path, batch_size: int) -> Any:
    """Two datasets, each to its end: in the proportion of their sizes, since LitData takes no weights then."""
    members = [litdata.StreamingDataset(str(folder / name), shuffle=True) for name in ("first", "second")]
    combined = litdata.CombinedStreamingDataset(members)
    return litdata.StreamingDataLoader(combined, batch_size=batch_size, num_workers=0)


def numbers(batch: Any) -> list[int]:
    """The numbers of a batch."""
    return batch["number"].tolist()
