"""Street-like scenes from a seed: PNG pictures, palette masks and ``metadata.jsonl``, as Hugging Face has them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.synthetic import natural_images

__all__ = ["CLASSES", "make_scenes"]

CLASSES = 11
_HEIGHT, _WIDTH = 360, 480


def make_scenes(folder: Path, count: int = 40, *, seed: int = 0) -> Path:
    """
    Write ``images/``, ``masks/`` (palette PNGs of class numbers) and ``metadata.jsonl`` into ``folder``; returns it.

    A folder that is already complete is left as it is.
    """
    table = folder / "metadata.jsonl"
    if table.exists():
        return folder
    (folder / "images").mkdir(parents=True, exist_ok=True)
    (folder / "masks").mkdir(exist_ok=True)
    rng = np.random.default_rng(seed)
    palette = rng.integers(0, 256, 3 * CLASSES, np.uint8).tobytes()
    rows = []
    for number, pixels in enumerate(natural_images(count, _HEIGHT, _WIDTH, rng=rng)):
        name = f"{number:04d}.png"
        Image.fromarray(pixels).save(folder / "images" / name)
        mask = Image.fromarray(_regions(rng))
        mask.putpalette(palette)
        mask.save(folder / "masks" / name)
        rows.append({"file_name": f"images/{name}", "mask_file_name": f"masks/{name}", "text": f"Scene {number}."})
    table.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def _regions(rng: np.random.Generator) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """Rectangles of classes over a road and a sky."""
    mask = np.zeros((_HEIGHT, _WIDTH), np.uint8)
    mask[_HEIGHT // 2 :] = 1
    for _ in range(30):
        top, left = rng.integers(0, (_HEIGHT, _WIDTH))
        height, width = rng.integers(8, (_HEIGHT // 2, _WIDTH // 3))
        mask[top : top + height, left : left + width] = rng.integers(0, CLASSES)
    return mask
