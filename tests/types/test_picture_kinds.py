"""The table of picture kinds: true of the native core, of Pillow and torchvision, and the only one of its kind."""

from __future__ import annotations

import ast
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastio._native import ImageKind, image_kind
from fastio.types.picture_kinds import (
    JPEG,
    JPEG_SIGNATURE,
    PICTURE_EXTENSIONS,
    PICTURE_KINDS,
    PNG,
    PNG_SIGNATURE,
    PictureKind,
    count_beyond_imagefolder,
    is_picture_extension,
    kind_by_name,
    kinds_by_name,
)

ROOT = Path(__file__).parents[2]
KNOWN = PICTURE_KINDS[1:]


def test_one_row_for_each_kind_of_the_native_core() -> None:
    """A kind's number is the position of its row."""
    assert list(ImageKind) == [row.kind for row in PICTURE_KINDS]
    assert list(range(len(PICTURE_KINDS))) == [int(row.kind) for row in PICTURE_KINDS]


@pytest.mark.parametrize("row", KNOWN, ids=lambda row: row.name)
def test_pillow_agrees(row: PictureKind) -> None:
    """Pillow writes such a file by its extension, and the native core recognises it."""
    formats = {Image.registered_extensions()[f".{each}"] for each in row.extensions}
    assert len(formats) == 1
    file = io.BytesIO()
    Image.new("RGB", (3, 2)).save(file, formats.pop())

    assert row.kind == image_kind(np.frombuffer(file.getvalue(), np.uint8))


def test_torchvision_agrees() -> None:
    """All of torchvision's IMG_EXTENSIONS are pictures; those that it lacks are counted in class folders."""
    names = [f"a.{extension}" for extension in PICTURE_EXTENSIONS]
    beyond = {extension.removeprefix(".") for extension in count_beyond_imagefolder(names)}

    assert {"jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp"} == set(PICTURE_EXTENSIONS) - beyond
    assert {"gif", "jfif", "pbm", "pnm"} == beyond


@pytest.mark.parametrize(("kind", "signature"), [(JPEG, JPEG_SIGNATURE), (PNG, PNG_SIGNATURE)])
def test_signatures(kind: int, signature: bytes) -> None:
    """The native core recognises a signature, and nothing shorter."""
    assert kind == image_kind(np.frombuffer(signature, np.uint8))
    assert image_kind(np.frombuffer(signature[:-1], np.uint8)) == ImageKind.UNKNOWN


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.jpg", "JPEG"),
        ("a.b.JPEG", "JPEG"),
        ("dog.png/cat.Tiff", "TIFF"),
        (".ppm", "PNM"),
        ("a.gif", "GIF"),
        ("a.jfif", "JPEG"),
        ("a.npy", "unknown"),
        ("a.txt", "unknown"),
        ("dog.png/cat", "unknown"),
        ("png", "unknown"),
        ("JPG", "unknown"),
        ("a.", "unknown"),
        ("", "unknown"),
    ],
)
def test_names(name: str, kind: str) -> None:
    """The extension decides, in any case; a name without a dot has none."""
    assert kind == PICTURE_KINDS[kind_by_name(name)].name


def test_extensions_of_packed_pictures() -> None:
    """An extension counts in lower case, as members of shards have it; the first one names new files."""
    assert is_picture_extension("gif")
    assert not is_picture_extension("GIF")
    assert not is_picture_extension("txt")
    assert [".bin", ".jpg", ".png", ".gif", ".bmp", ".webp", ".tif", ".ppm"] == [row.suffix for row in PICTURE_KINDS]


def knows_kinds(node: ast.AST) -> bool:
    """Whether this is a list of extensions, or a signature."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bytes) and node.value.startswith((b"\x89PNG", b"\xff\xd8"))
    if not isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict):
        return False
    parts = node.keys if isinstance(node, ast.Dict) else node.elts
    texts = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    return sum(is_picture_extension(text.lstrip(".")) for text in texts) >= 3


def test_nobody_else_lists_extensions_or_signatures() -> None:
    """What is known of kinds is known here alone."""
    paths = sorted([*(ROOT / "fastio").rglob("*.py"), *(ROOT / "converters").rglob("*.py")])
    lists = {
        path.relative_to(ROOT).as_posix()
        for path in paths
        if any(map(knows_kinds, ast.walk(ast.parse(path.read_text()))))
    }

    assert {"fastio/types/picture_kinds.py"} == lists


def test_the_guide_lists_them_too() -> None:
    """The guide shows what `fastio info` prints."""
    kinds = "kinds = " + repr(PICTURE_EXTENSIONS).replace("'", '"')

    assert kinds in (ROOT / "fastio" / "guide" / "formats.md").read_text()


@given(st.lists(st.text("ab.pngjJ", max_size=5)), st.sampled_from(["", ".png", ".JPG", "jpeg", ".p.g", ".gif"]))
def test_many_names_at_once(stems: list[str], end: str) -> None:
    """The same kinds as name by name, whatever their ends have in common."""
    names = [stem + end for stem in stems]

    assert [kind_by_name(name) for name in names] == kinds_by_name(names)
