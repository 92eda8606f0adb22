"""Kinds of pictures: decoded whole and cropped natively, by Pillow and by OpenCV, from memory, in one thread.

python -m benchmarks.kinds FOLDER [--photos 48] [--rounds 7] [--only progressive] [--json FILE]

Every photo of FOLDER is written once in each kind. A round takes all photos of a kind by each library in turn; ratios
are those of one round's CPU time, their median and range over the rounds. The crops of RandomResizedCrop(224) are the
same for all libraries; OpenCV's resize is not antialiased, the others' are. OpenCV is left out where it is not
installed, and where it cannot read a kind.
"""

from __future__ import annotations

import io
import json
import statistics
import struct
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.table import Table

from fastio._native import decode_images, decode_transformed
from fastio.transforms import RandomResizedCrop
from fastio.transforms.fused import Fused
from fastio.types.spans import Spans

__all__ = ["KINDS", "main"]

SIZE = 224
_SUFFIXES = (".jpg", ".jpeg", ".png")

Pixels = NDArray[np.uint8]
Box = tuple[int, int, int, int]


def _saved(format_: str, image: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format_, **options)
    return file.getvalue()


def _cmyk(image: Image.Image) -> bytes:
    """Inks as print shops have them: what all three have in common is black."""
    inks = np.asarray(image.convert("CMYK")).copy()
    inks[..., 3] = inks[..., :3].min(axis=-1)
    inks[..., :3] -= inks[..., 3:]
    return _saved("JPEG", Image.fromarray(inks, "CMYK"), quality=90)


def _ycck(image: Image.Image) -> bytes:
    """The CMYK file said to be YCCK: other colours, the same work. Pillow does not write YCCK."""
    file = bytearray(_cmyk(image))
    file[file.index(b"Adobe") + 11] = 2
    return bytes(file)


def _deep_png(image: Image.Image) -> bytes:
    """16 bits a channel, rows by the filter "sub". Pillow does not write such colours."""
    pixels = np.asarray(image).astype(">u2") * 257
    height, width = pixels.shape[:2]
    rows = pixels.astype(">u2").reshape(height, -1).view(np.uint8).copy()
    rows[:, 6:] -= rows[:, :-6].copy()
    filtered = np.concatenate([np.ones((height, 1), np.uint8), rows], axis=1)
    file = b"\x89PNG\r\n\x1a\n"
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    for name, data in ((b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes())), (b"IEND", b"")):
        file += struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return file


def _deep_grey_png(image: Image.Image) -> bytes:
    return _saved("PNG", Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257))


# How an RGB picture is written in each kind.
KINDS: dict[str, Callable[[Image.Image], bytes]] = {
    "baseline JPEG, 4:2:0": partial(_saved, "JPEG", quality=90),
    "progressive JPEG, 4:2:0": partial(_saved, "JPEG", quality=90, progressive=True),
    "baseline JPEG, 4:4:4": partial(_saved, "JPEG", quality=95, subsampling=0),
    "progressive JPEG, 4:4:4": partial(_saved, "JPEG", quality=95, subsampling=0, progressive=True),
    "CMYK JPEG": _cmyk,
    "YCCK JPEG": _ycck,
    "lossy WebP": partial(_saved, "WEBP", quality=80),
    "lossless WebP": partial(_saved, "WEBP", lossless=True, method=0),
    "BMP": partial(_saved, "BMP"),
    "16-bit PNG": _deep_png,
    "16-bit grey PNG": _deep_grey_png,
    "PNM": partial(_saved, "PPM"),
}


def by_pillow(file: bytes, box: Box | None) -> Pixels:
    """Decode to RGB; with a box, resize that to 224x224."""
    image = Image.open(io.BytesIO(file)).convert("RGB")
    if box is not None:
        left, top, width, height = box
        image = image.crop((left, top, left + width, top + height)).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    return np.asarray(image)


class Native:
    """Decodes by the native core: whole pictures, and planned crops."""

    def __init__(self) -> None:
        self.status = np.zeros(1, np.int32)
        self.crop = np.empty((1, SIZE, SIZE, 3), np.uint8)

    def __call__(self, spans: Spans, plan: NDArray[np.int32] | None, whole: Pixels) -> None:
        """Decode one picture, into ``whole`` or by its plan. Raises RuntimeError if that is left to Pillow."""
        if plan is None:
            decode_images(spans, whole, self.status, verify=False).wait()
        else:
            decode_transformed(spans, plan, self.crop, self.status, filter=0, fill=b"\0\0\0", verify=False).wait()
        if self.status.any():
            raise RuntimeError(f"not decoded natively: status {self.status[0]}")


def opencv() -> Callable[[bytes, Box | None], Any] | None:
    """Return how OpenCV does the same; None if it is not installed."""
    try:
        import cv2
    except ImportError:
        return None
    cv2.setNumThreads(1)
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION

    def decode(file: bytes, box: Box | None) -> Any:
        image = cv2.imdecode(np.frombuffer(file, np.uint8), flags)
        if box is not None:
            left, top, width, height = box
            image = image[top : top + height, left : left + width]
            image = cv2.resize(image, (SIZE, SIZE), interpolation=cv2.INTER_LINEAR)
        return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)

    return decode


class Case:
    """One kind's files, ready to be decoded by all libraries."""

    def __init__(self, files: list[bytes], *, is_cropped: bool) -> None:
        self.files = files
        sizes = [Image.open(io.BytesIO(file)).size for file in files]
        self.spans = [
            Spans.of(np.frombuffer(file, np.uint8), np.zeros(1, np.int64), np.array([len(file)], np.int64))
            for file in files
        ]
        self.wholes = [np.empty((1, height, width, 3), np.uint8) for width, height in sizes]
        self.plans: list[NDArray[np.int32] | None] = [None] * len(files)
        self.boxes: list[Box | None] = [None] * len(files)
        if is_cropped:
            fused = Fused([RandomResizedCrop(SIZE)], seed=0, mode="RGB", is_raw=False, is_fast=False)
            shapes = np.array([(height, width, 3) for width, height in sizes], np.int64)
            rows = fused.plan(np.arange(len(files)), shapes, epoch=0).rows
            self.plans = [rows[i : i + 1] for i in range(len(files))]
            self.boxes = [(int(row[0]), int(row[1]), int(row[2]), int(row[3])) for row in rows]

    def run(self, library: str, decode: Any) -> float:
        """Take all files by one library and return the CPU time in seconds."""
        begun = time.process_time()
        if library == "fastio":
            for spans, plan, whole in zip(self.spans, self.plans, self.wholes, strict=True):
                decode(spans, plan, whole)
        else:
            for file, box in zip(self.files, self.boxes, strict=True):
                decode(file, box)
        return time.process_time() - begun


def _measure(case: Case, rounds: int) -> dict[str, list[float]]:
    """Milliseconds a picture of each library that can read the kind, by round; the first is not counted."""
    libraries: dict[str, Any] = {"fastio": Native(), "Pillow": by_pillow, "OpenCV": opencv()}
    try:
        libraries["OpenCV"](case.files[0], case.boxes[0])
    except Exception:  # whatever its decoders raise, or there is none
        del libraries["OpenCV"]
    times: dict[str, list[float]] = {name: [] for name in libraries}
    for number in range(rounds + 1):
        for name, decode in libraries.items():
            seconds = case.run(name, decode)
            if number > 0:
                times[name].append(1e3 * seconds / len(case.files))
    return times


def _ratio(times: dict[str, list[float]], library: str) -> str:
    """How many times as long a library takes as fastio, in words."""
    if library not in times:
        return "-"
    ratios = sorted(other / own for other, own in zip(times[library], times["fastio"], strict=True))
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--photos", default=48, show_default=True, help="How many, evenly chosen.")
@click.option("--rounds", default=7, show_default=True)
@click.option("--only", default="", help="Kinds whose names contain this.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="All rounds go there.")
def main(folder: Path, photos: int, rounds: int, only: str, json_file: Path | None) -> None:
    """Write the photos of FOLDER in every kind, measure all libraries in turn, and print a table."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES)
    chosen = [paths[i] for i in np.unique(np.linspace(0, len(paths) - 1, min(photos, len(paths))).astype(int))]
    images = [Image.open(path).convert("RGB") for path in chosen]
    table = Table(title=f"{len(images)} photos, one thread, CPU time; ratios: median (min-max) of {rounds} rounds")
    for heading in ("kind", "work", "B", "fastio ms", "Pillow / fastio", "OpenCV / fastio"):
        table.add_column(heading, justify="left" if heading in ("kind", "work") else "right")
    results = []
    for kind, write in KINDS.items():
        if only not in kind:
            continue
        files = [write(image) for image in images]
        bytes_ = sum(map(len, files)) // len(files)
        for work in ("whole", "RandomResizedCrop(224)"):
            times = _measure(Case(files, is_cropped=work != "whole"), rounds)
            results.append({"kind": kind, "work": work, "bytes": bytes_, "ms": times})
            own = f"{statistics.median(times['fastio']):.2f}"
            table.add_row(kind, work, f"{bytes_:,}", own, _ratio(times, "Pillow"), _ratio(times, "OpenCV"))
    Console(width=120).print(table)
    if json_file is not None:
        json_file.write_text(json.dumps({"photos": len(images), "rounds": rounds, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
