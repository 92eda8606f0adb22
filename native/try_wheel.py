"""Packs pictures with the fastio that is installed, and reads them back: what every wheel must do, also without torch.

``try_wheels.sh`` runs it in an environment that has nothing but a wheel and what that needs.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner
from PIL import Image

from fastio import _native, open_store
from fastio.cli import cli
from fastio.codec import CODECS, describe_status
from fastio.store import FORMATS
from fastio.store.protocol import read_values

HEIGHT, WIDTH = 40, 56
# What native code decodes: the file, its mode in Pillow, and how Pillow writes it.
PICTURES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("baseline.jpg", "RGB", {"quality": 90}),
    ("progressive.jpg", "RGB", {"quality": 90, "progressive": True}),
    ("inks.jpg", "CMYK", {"quality": 90}),
    ("grey.png", "L", {}),
    ("colour.png", "RGB", {}),
    ("palette.png", "P", {}),
    ("transparent.png", "RGBA", {}),
    ("colour.bmp", "RGB", {}),
    ("lossy.webp", "RGB", {"quality": 90}),
    ("colour.ppm", "RGB", {}),
)


def main() -> None:
    """Try all containers; ends with a line that names what is wrong."""
    build = _native.build_info()
    if build["entropy"] != "fastio" or build["libwebp"].startswith("none"):
        sys.exit(f"error: expected a wheel with all decoders, got {build}")
    with tempfile.TemporaryDirectory() as folder:
        # There, since Python would look for the module in this folder first, where its source may lie.
        subprocess.run([sys.executable, "-m", "fastio", "--version"], check=True, cwd=folder)
        source = Path(folder) / "pictures"
        write_pictures(source)
        for form in FORMATS.values():
            path = Path(folder) / f"packed{form.suffixes[0]}"
            run("pack", source, path)
            run("verify", "--decode", "--against", source, path)
            compare_pixels(path, source)
            run("unpack", path, Path(folder) / path.suffix)
            compare_files(Path(folder) / path.suffix, source)
    sys.stdout.write(
        f"works: fastio {version('fastio')}, Python {platform.python_version()} on {platform.machine()}, "
        f"numpy {version('numpy')}, pillow {version('pillow')}, h5py {version('h5py')}, SIMD {build['simd']}\n"
    )


def write_pictures(source: Path) -> None:
    """Write two folders with a picture of every kind."""
    random = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (source / name).mkdir(parents=True)
        for file, mode, options in PICTURES:
            blocks = random.integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3), np.uint8).repeat(8, 0).repeat(8, 1)
            Image.fromarray(blocks).convert(mode).save(source / name / f"{name}-{file}", **options)


def run(*words: str | Path) -> None:
    """Run a command of fastio in this process; what it prints is shown if it fails."""
    result = CliRunner().invoke(cli, [str(word) for word in words])
    if result.exit_code:
        sys.exit(f"error: fastio {' '.join(map(str, words))}: {result.exception!r}\n{result.output}")


def compare_pixels(path: Path, source: Path) -> None:
    """Compare what native code decodes with Pillow's pixels."""
    with open_store(path) as store:
        indices = np.arange(len(store))
        keys = store.keys(indices)
        pixels = np.zeros((len(store), HEIGHT, WIDTH, 3), np.uint8)
        status = np.full(len(store), -1, np.int32)
        CODECS["image"].decode(read_values(store, "image", indices), pixels, status).wait()
    if len(keys) != 2 * len(PICTURES):
        sys.exit(f"error: {path.name}: expected {2 * len(PICTURES)} pictures, got {len(keys)}")
    for i, key in enumerate(keys):
        if status[i] != _native.OK:
            sys.exit(f"error: {path.name}, {key}: {describe_status(int(status[i]))}")
        with Image.open(source / key) as picture:
            if not np.array_equal(pixels[i], np.asarray(picture.convert("RGB"))):
                sys.exit(f"error: {path.name}, {key}: the pixels are not Pillow's")


def compare_files(folder: Path, source: Path) -> None:
    """Compare the files that were unpacked with those that were packed."""
    for file in source.rglob("*.*"):
        if (folder / file.relative_to(source)).read_bytes() != file.read_bytes():
            sys.exit(f"error: {folder.name}, {file.relative_to(source)}: other bytes than were packed")


if __name__ == "__main__":
    main()
