"""What the stores of a version are packed from: pictures, text and scenes, the same whenever they are made."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

__all__ = ["SCENE_FIELDS", "scenes", "write_photos", "write_pictures", "write_shards", "write_text", "write_tiles"]

SCENE_FIELDS = {
    "image": "image",
    "mask": "mask",
    "caption": "text",
    "objects": "json",
    "boxes": "xyxy",
    "kinds": "int64[*] per boxes",
    "ids": "tokens16",
    "blob": "bytes",
    "embedding": ("float32", (4,)),
    "weight": "float",
    "label": "label",
}
_SMALL, _LARGE = (16, 12), (144, 40)


def write_pictures(folder: Path) -> Path:
    """Class folders with pictures of every kind that fastio decodes, and names that are hard to keep."""
    files = {
        "cat/grey.jpg": _encoded("L", _LARGE, "JPEG", quality=80),
        "cat/photo one.jpg": _encoded("RGB", _LARGE, "JPEG", quality=80),
        "cat/progressive.jpeg": _encoded("RGB", _LARGE, "JPEG", quality=80, progressive=True),
        "cat/ü.png": _encoded("RGB", _SMALL, "PNG"),
        "dög/cmyk.jpg": _encoded("CMYK", _LARGE, "JPEG", quality=80),
        "dög/palette.png": _encoded("P", _SMALL, "PNG"),
        "dög/see-through.png": _encoded("RGBA", _SMALL, "PNG"),
        "dög/sixteen.png": _encoded("I;16", _SMALL, "PNG"),
        "owl/flat.bmp": _encoded("RGB", _SMALL, "BMP"),
        "owl/lossless.webp": _encoded("RGB", _SMALL, "WEBP", lossless=True),
        "owl/lossy.webp": _encoded("RGB", _SMALL, "WEBP", quality=80),
        "owl/plain.ppm": _encoded("RGB", _SMALL, "PPM"),
        "owl/scan.tif": _encoded("RGB", _SMALL, "TIFF"),
    }
    return _written(folder, files)


def write_photos(folder: Path) -> Path:
    """Two JPEGs wide enough for places to start within them."""
    files = {f"photo/{number}.jpg": _encoded("RGB", (200 + number, 48), "JPEG", quality=80) for number in range(2)}
    return _written(folder, files)


def write_tiles(folder: Path, first: int = 0) -> Path:
    """Four PNGs of one size in two class folders, called by their numbers from ``first`` on."""
    files = {
        f"{'even' if number % 2 == 0 else 'odd'}/{number:02d}.png": _encoded("RGB", (8, 8), "PNG", number)
        for number in range(first, first + 4)
    }
    return _written(folder, files)


def write_text(path: Path) -> Path:
    """Sixty lines of different lengths, none like another."""
    lines = [f"{number} größer {'word ' * (number * 7 % 11)}end" for number in range(60)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_shards(folder: Path) -> Path:
    """Two tar shards as webdataset writes them: a picture, a class, JSON, text and an array a sample."""
    folder.mkdir(exist_ok=True)
    for shard in range(2):
        with tarfile.open(folder / f"other-{shard:06d}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for number in range(3 * shard, 3 * shard + 3):
                array = io.BytesIO()
                np.save(array, np.arange(number, number + 3, dtype=np.float32))
                members = {
                    "jpg": _encoded("RGB", (_LARGE[0] + number, _LARGE[1]), "JPEG", quality=80),
                    "cls": b"%d" % (number % 3),
                    "json": b'{"number": %d}' % number,
                    "caption.txt": f"the {number}. ü".encode(),
                    "npy": array.getvalue(),
                }
                for extension, value in members.items():
                    member = tarfile.TarInfo(f"s{number:04d}.{extension}")
                    member.size = len(value)
                    archive.addfile(member, io.BytesIO(value))
    return folder


def scenes() -> Iterator[tuple[str, dict[str, Any]]]:
    """Three samples with a value of every type: keys, and values by field."""
    for number in range(3):
        yield (
            f"scene {number}",
            {
                "image": _encoded("P", (24, 16), "GIF") if number == 1 else _encoded("RGB", (24, 16), "PNG"),
                "mask": (np.arange(24 * 16, dtype=np.uint8).reshape(16, 24) // 7 + number) % 5,
                "caption": f"scene {number}: a street, größer",
                "objects": {"cars": number, "names": ["a", None, 1.5]},
                "boxes": [[4, 8, 20, 12.5]] * number,
                "kinds": list(range(number)),
                "ids": list(range(10 * number, 10 * number + 3 + number)),
                "blob": bytes(range(number, number + 9)),
                "embedding": np.arange(4, dtype=np.float32) / 3 + number,
                "weight": 0.1 * number,
                "label": number % 2,
            },
        )


def _written(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def _pixels(mode: str, size: tuple[int, int], seed: int) -> NDArray[Any]:
    """Smooth colours with a little noise, (height, width, channels)."""
    channels = {"L": 1, "I;16": 1, "RGB": 3, "RGBA": 4, "CMYK": 4}[mode]
    rows, columns, depth = np.meshgrid(*map(np.arange, (size[1], size[0], channels)), indexing="ij")
    smooth = 2 * columns + 3 * rows + 60 * depth + np.random.default_rng(seed).integers(0, 6, rows.shape)
    return (97 * smooth).astype("<u2") if mode == "I;16" else (smooth % 256).astype(np.uint8)


def _encoded(mode: str, size: tuple[int, int], kind: str, seed: int = 0, **options: Any) -> bytes:
    """A picture file's bytes, written by Pillow."""
    pixels = _pixels("L" if mode == "P" else mode, size, seed)
    picture = Image.frombytes("L" if mode == "P" else mode, size, pixels.tobytes())
    file = io.BytesIO()
    (picture.quantize(16) if mode == "P" else picture).save(file, kind, **options)
    return file.getvalue()
