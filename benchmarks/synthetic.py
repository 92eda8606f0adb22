"""Data sets made from a seed: small PNGs as CIFAR-10 lies on people's disks, and photo-like JPEGs in class folders."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

__all__ = ["CLASSES", "make_photos", "make_pngs", "natural_images"]

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PHOTO_SIZES = ((375, 500), (500, 375), (400, 400))  # height, width

# Amplitudes of natural pictures fall as about 1/f (Field 1987, J. Opt. Soc. Am. A 4:2379), those of objects cut
# out of them more steeply. Steepness and grain are set so that a 32x32 PNG comes out near the 2.3 kB of real
# CIFAR-10 pictures.
GRAIN = 2.2
STEEPNESS = 1.7


def natural_images(
    count: int, height: int, width: int, *, rng: np.random.Generator, grain: float = GRAIN
) -> NDArray[np.uint8]:
    """
    Pictures with the spectrum, the colour correlation and the grain of photos.

    Returns ``(count, height, width, 3)`` uint8.
    """
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    frequency[0, 0] = 1.0 / max(height, width)
    # One strong luminance pattern and two weak colour patterns, as in photos.
    noise = rng.standard_normal((count, 3, height, width), dtype=np.float32)
    pattern = np.fft.irfft2(np.fft.rfft2(noise) / frequency**STEEPNESS, s=(height, width)).astype(np.float32)
    pattern /= pattern.std(axis=(2, 3), keepdims=True)
    luminance, blue, red = pattern[:, 0] * 55, pattern[:, 1] * 14, pattern[:, 2] * 14
    level = rng.uniform(80, 170, size=(count, 1, 1)).astype(np.float32)
    planes = np.stack([luminance + red, luminance - 0.3 * red - 0.3 * blue, luminance + blue], axis=-1)
    planes += level[..., None] + rng.standard_normal((count, height, width, 3), dtype=np.float32) * grain
    return np.clip(planes, 0, 255).astype(np.uint8)


def _encode(image: NDArray[np.uint8], kind: str, quality: int = 90) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, kind, **({"quality": quality} if kind == "JPEG" else {}))
    return file.getvalue()


def _batches(count: int, size: int = 500) -> Iterator[range]:
    for start in range(0, count, size):
        yield range(start, min(start + size, count))


def make_pngs(folder: Path, count: int = 10_000, *, seed: int = 0) -> Path:
    """
    One flat folder of 32x32 PNGs and ``labels.pkl`` beside it: ``{file name: class number}``.

    Returns the path of the labels. A folder that is already complete is left as it is.
    """
    labels = folder.with_name(f"{folder.name}-labels.pkl")
    if labels.exists():
        return labels
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    numbers: dict[str, int] = {}
    for batch in _batches(count):
        for index, image in zip(batch, natural_images(len(batch), 32, 32, rng=rng), strict=True):
            label = index % len(CLASSES)
            name = f"{CLASSES[label]}_{index // len(CLASSES):04d}.png"
            (folder / name).write_bytes(_encode(image, "PNG"))
            numbers[name] = label
    labels.write_bytes(pickle.dumps(numbers))
    return labels


def make_photos(
    folder: Path, count: int = 300, *, seed: int = 0, sizes: Sequence[tuple[int, int]] = PHOTO_SIZES
) -> Path:
    """
    Class folders of JPEGs, heights and widths from ``sizes`` in turn, one in ten grey, one in five 4:2:0.

    Returns the folder. One that is already complete is left as it is.
    """
    done = folder.with_name(f"{folder.name}-complete")
    if done.exists():
        return folder
    rng = np.random.default_rng(seed)
    for index in range(count):
        height, width = sizes[index % len(sizes)]
        image = natural_images(1, height, width, rng=rng, grain=4.0)[0]
        picture = Image.fromarray(image)
        if index % 10 == 9:
            picture = picture.convert("L")
        target = folder / CLASSES[index % len(CLASSES)] / f"photo_{index:05d}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        picture.save(target, quality=92, subsampling=2 if index % 5 == 0 else 0)
    done.touch()
    return folder
