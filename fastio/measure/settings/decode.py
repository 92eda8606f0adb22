"""Compares decoders on the same pictures: images per second, and how far their pixels are from Pillow's."""

from __future__ import annotations

import importlib
import importlib.util
import io
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image

from fastio.codec.pillow import PLUGIN_ERRORS
from fastio.errors import FastioError, SampleError
from fastio.loader.fast_loader import FastLoader
from fastio.measure.loop.data import is_picture_folder, picture_files
from fastio.store import SampleBatch, create_store, open_store
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.jump_tables import begin_jump_tables
from fastio.store.protocol import read_values
from fastio.transforms import CenterCrop, Compose, Resize
from fastio.types.schema import IMAGE, Field, Schema
from fastio.types.spans import Spans, distinct

__all__ = ["DecoderRate", "compare_decoders", "sample_pictures"]

Pixels = NDArray[np.uint8]
_BATCH = 32


@dataclass(frozen=True, slots=True)
class DecoderRate:
    """
    One decoder in one thread.

    ``images_per_cpu_s`` is the median over rounds, by user and system time, with the ``slowest`` and ``fastest``
    round. Differences are those of 8-bit values from Pillow, the first decoder: mean, 99th percentile, largest.
    """

    name: str
    images_per_cpu_s: float
    slowest_images_per_cpu_s: float
    fastest_images_per_cpu_s: float
    mean_difference: float
    p99_difference: float
    max_difference: int


def sample_pictures(data: str, count: int, remote: Remote = DEFAULT) -> list[bytes]:
    """
    Return up to ``count`` encoded pictures, spread evenly over a store or a folder. Raises FastioError if there are
    none.
    """
    if is_picture_folder(data):
        files = picture_files(data)
        return [Path(files[index]).read_bytes() for index in _spread(len(files), count)]
    with open_store(data, remote=remote) as store:
        field = next((field for field in store.schema.payload if field.traits.is_image), None)
        if field is None or len(store) == 0:
            raise FastioError(f"{data}: holds no encoded pictures, only {', '.join(map(str, store.schema.fields))}")
        return [view.tobytes() for view in read_values(store, field.name, _spread(len(store), count)).views()]


def compare_decoders(
    pictures: Sequence[bytes], *, crop: int | None = None, rounds: int = 3, seconds: float = 0.5
) -> list[DecoderRate]:
    """
    Decode all pictures to RGB repeatedly with Pillow, OpenCV if it is installed, and fastio.

    With ``crop``, each is also resized and cropped to ``crop`` pixels (Resize, CenterCrop): only then can fastio
    leave out what is not needed, and use its fast mode. Rounds of ``seconds`` per decoder are interleaved.
    """
    expected = list(_pillow(pictures, crop))
    is_uniform = len({pixels.shape for pixels in expected}) == 1
    with _decoders(pictures, crop, batch_size=_BATCH if is_uniform else 1) as decoders:
        differences = [_difference(expected, decode()) for _, decode in decoders]
        rates: list[list[float]] = [[] for _ in decoders]
        for _ in range(rounds):
            for position, (_, decode) in enumerate(decoders):
                rates[position].append(_rate(decode, seconds))
    return [
        DecoderRate(name, statistics.median(repeats), min(repeats), max(repeats), *difference)
        for (name, _), repeats, difference in zip(decoders, rates, differences, strict=True)
    ]


Decode = Callable[[], Iterator[Pixels]]  # all pictures once, (H, W, 3)


@contextmanager
def _decoders(pictures: Sequence[bytes], crop: int | None, *, batch_size: int) -> Iterator[list[tuple[str, Decode]]]:
    decoders: list[tuple[str, Decode]] = [(_pillow_name(), lambda: _pillow(pictures, crop))]
    if importlib.util.find_spec("cv2") is not None:
        decoders.append((f"OpenCV {_opencv().__version__}", lambda: _opencv_pictures(pictures, crop)))
    with TemporaryDirectory(prefix="fastio-decode-") as folder:
        path = _stored(pictures, Path(folder) / "pictures.lmdb")
        with _loader(path, batch_size, crop, "exact") as exact:
            decoders.append(("fastio, exact", lambda: _rows(exact)))
            if crop is None:
                yield decoders
                return
            with _loader(path, batch_size, crop, "fast") as fast:
                decoders.append(("fastio, fast", lambda: _rows(fast)))
                yield decoders


def _spread(length: int, count: int) -> NDArray[np.int64]:
    """Return ``count`` of ``length`` positions, evenly spread."""
    return distinct(np.linspace(0, length - 1, min(count, length)).astype(np.int64))


def _pillow_name() -> str:
    """Return Pillow's name; Pillow-SIMD has the same one, and ".post" in its version."""
    return f"{'Pillow-SIMD' if '.post' in PIL.__version__ else 'Pillow'} {PIL.__version__}"


def _pillow(pictures: Sequence[bytes], crop: int | None) -> Iterator[Pixels]:
    made_equal = None if crop is None else Compose([Resize(crop), CenterCrop(crop)])
    for number, picture in enumerate(pictures):
        try:
            image = Image.open(io.BytesIO(picture)).convert("RGB")
        except PLUGIN_ERRORS as exc:
            raise SampleError(f"picture {number} of {len(pictures)}: Pillow cannot decode it ({exc})") from exc
        yield np.asarray(image if made_equal is None else made_equal(image))


def _opencv() -> Any:
    cv2 = importlib.import_module("cv2")  # not a dependency of fastio
    cv2.setNumThreads(1)
    return cv2


def _opencv_pictures(pictures: Sequence[bytes], crop: int | None) -> Iterator[Pixels]:
    """Decode as is usual with OpenCV: INTER_AREA is its only antialiased interpolation."""
    cv2 = _opencv()
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    for number, picture in enumerate(pictures):
        pixels = cv2.imdecode(np.frombuffer(picture, np.uint8), flags)
        if pixels is None:
            raise SampleError(f"picture {number} of {len(pictures)}: OpenCV cannot decode it")
        pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
        if crop is not None:
            height, width = pixels.shape[:2]
            short = min(height, width)
            height, width = crop * height // short, crop * width // short
            pixels = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)
            top, left = round((height - crop) / 2), round((width - crop) / 2)
            pixels = pixels[top : top + crop, left : left + crop]
        yield pixels


def _stored(pictures: Sequence[bytes], path: Path) -> Path:
    """Put the pictures into a store, because fastio reads nothing else; with start points, as ``pack`` does."""
    sizes = np.array([len(picture) for picture in pictures], np.int64)
    spans, _ = begin_jump_tables(Spans.joined(np.frombuffer(b"".join(pictures), np.uint8), sizes))()
    keys = [f"{number:08d}" for number in range(len(pictures))]
    with create_store(path, Schema((Field("image", IMAGE, "|u1", (None, None, None)),))) as writer:
        writer.append(SampleBatch(keys, {"image": spans}, {}, {}))
        writer.close(None)
    return path


def _loader(path: Path, batch_size: int, crop: int | None, quality: Literal["exact", "fast"]) -> FastLoader:
    transforms = [] if crop is None else [Resize(crop), CenterCrop(crop)]
    return FastLoader(path, batch_size, threads=1, transforms=transforms, quality=quality)


def _rows(loader: FastLoader) -> Iterator[Pixels]:
    for images in loader:
        yield from images.permute(0, 2, 3, 1).numpy()


def _rate(decode: Decode, seconds: float) -> float:
    """Return the images per second of this process's CPU time, over whole passes."""
    images = 0
    begun, ends = time.process_time(), time.perf_counter() + seconds
    while images == 0 or time.perf_counter() < ends:
        images += sum(1 for _ in decode())
    return images / (time.process_time() - begun)


def _difference(expected: Sequence[Pixels], actual: Iterator[Pixels]) -> tuple[float, float, int]:
    """Return mean, 99th percentile and maximum of the absolute differences of all values."""
    counts = np.zeros(256, np.int64)
    for number, (one, other) in enumerate(zip(expected, actual, strict=True)):
        if one.shape != other.shape:
            raise FastioError(f"picture {number}: {one.shape} from Pillow, {other.shape} from another decoder")
        counts += np.bincount(np.abs(one.astype(np.int16) - other).ravel(), minlength=256)
    total = int(counts.sum())
    p99 = int(np.searchsorted(np.cumsum(counts), 0.99 * total))
    return float(counts @ np.arange(256)) / total, float(p99), int(np.flatnonzero(counts)[-1])
