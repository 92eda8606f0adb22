"""The table of picture kinds: true of the native core, of Pillow and torchvision, and the only one of its kind."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastio import _native
from fastio._native import ImageKind, image_kind
from fastio.cli import cli
from fastio.codec.headers import read_headers
from fastio.converters.pictures.probe import check_truncated
from fastio.types.picture_kinds import (
    JPEG,
    JPEG_SIGNATURE,
    PICTURE_KINDS,
    PNG,
    PNG_SIGNATURE,
    PictureKind,
    count_beyond_imagefolder,
    is_picture_extension,
    kind_by_name,
    kinds_by_name,
    load_plugin,
    picture_extensions,
)
from fastio.types.spans import Spans

ROOT = Path(__file__).parents[2]
KNOWN = PICTURE_KINDS[1:]


def test_one_row_for_each_kind_of_the_native_core() -> None:
    """A kind's number is the position of its row."""
    native = [row for row in PICTURE_KINDS if row.is_native]

    assert native == PICTURE_KINDS[: len(native)]
    assert list(range(len(native))) == [int(kind) for kind in ImageKind]
    assert [row.name.upper() for row in native] == [kind.name for kind in ImageKind]


def test_decoded_natively() -> None:
    """Pillow decodes the others."""
    assert ["JPEG", "PNG", "BMP", "WebP", "PNM"] == [row.name for row in PICTURE_KINDS if row.is_decoded]


@pytest.mark.parametrize("row", KNOWN, ids=lambda row: row.name)
def test_pillow_agrees(row: PictureKind) -> None:
    """Pillow writes such a file by its extension, and the native core recognises it."""
    if load_plugin(PICTURE_KINDS.index(row)):
        pytest.skip(f"{row.package} is not installed")
    formats = {Image.registered_extensions()[f".{each}"] for each in row.extensions}
    assert len(formats) == 1
    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, formats.pop())
    data = np.frombuffer(file.getvalue(), np.uint8)

    assert row is PICTURE_KINDS[image_kind(data)]
    assert (_native.OK, 16, 16) == tuple(read_headers(Spans.joined(data, np.array([len(data)]))).rows[0, :3])


def test_a_kind_whose_package_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A HEIC without pillow-heif is a problem that names the package; with it, Pillow decodes the picture."""
    heic = PICTURE_KINDS.index(next(row for row in KNOWN if row.name == "HEIC"))
    data = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a.heic").write_bytes(data)
    monkeypatch.setitem(sys.modules, "pillow_heif", None)  # importing it fails
    load_plugin.cache_clear()
    result = CliRunner().invoke(cli, ["pack", str(tmp_path / "d"), str(tmp_path / "o.lmdb")])
    assert "a.heic: " in result.output
    assert "which Pillow opens with the package pillow-heif: pip install pillow-heif" in result.output

    calls = []
    module = ModuleType("pillow_heif")
    module.register_heif_opener = lambda: calls.append(1)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pillow_heif", module)
    load_plugin.cache_clear()
    assert ("", "") == (load_plugin(heic), load_plugin(heic))
    assert [1] == calls
    load_plugin.cache_clear()


def test_torchvision_agrees() -> None:
    """All of torchvision's IMG_EXTENSIONS are pictures; those that it lacks are counted in class folders."""
    names = [f"a.{extension}" for extension in picture_extensions()]
    beyond = {extension.removeprefix(".") for extension in count_beyond_imagefolder(names)}

    assert {"jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp"} == set(picture_extensions()) - beyond


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
    suffixes = [row.suffix for row in PICTURE_KINDS[:8]]
    assert [".bin", ".jpg", ".png", ".gif", ".bmp", ".webp", ".tif", ".ppm"] == suffixes


def test_the_guide_lists_them_too() -> None:
    """The guide shows what `fastio info` prints."""
    kinds = "kinds = " + repr(picture_extensions()).replace("'", '"')

    assert kinds in (ROOT / "fastio" / "guide" / "formats.md").read_text()


@given(st.lists(st.text("ab.pngjJ", max_size=5)), st.sampled_from(["", ".png", ".JPG", "jpeg", ".p.g", ".gif"]))
def test_many_names_at_once(stems: list[str], end: str) -> None:
    """The same kinds as name by name, whatever their ends have in common."""
    names = [stem + end for stem in stems]

    assert [kind_by_name(name) for name in names] == kinds_by_name(names)


def file_of(format_: str, **options: Any) -> bytes:
    """A small picture in some format."""
    pixels, file = np.random.default_rng(0).integers(0, 256, (40, 48, 3), np.uint8), io.BytesIO()
    Image.fromarray(pixels).save(file, format_, **options)
    return file.getvalue()


@pytest.mark.parametrize(("format_", "options"), [("AVIF", {}), ("JPEG2000", {}), ("JPEG2000", {"no_jp2": True})])
def test_ends(format_: str, options: dict[str, Any]) -> None:
    """Every prefix of a file looks cut off, and the whole one does not."""
    file = np.frombuffer(file_of(format_, **options), np.uint8)
    breaks_off = PICTURE_KINDS[image_kind(file)].breaks_off

    assert breaks_off is not None
    assert not breaks_off(file)
    assert all(breaks_off(file[:size]) for size in range(16, len(file), 7))


def test_big_tiffs() -> None:
    """Their headers are Pillow's to read."""
    data = np.frombuffer(file_of("TIFF", big_tiff=True), np.uint8)
    headers = read_headers(Spans.joined(data, np.array([len(data)])), verify=True)

    assert [_native.TRUNCATED, 40, 48, 3, ImageKind.TIFF] == headers.rows[0].tolist()  # to be confirmed by decoding
    check_truncated(headers, Spans.joined(data, np.array([len(data)])), decode=True)
    assert _native.OK == headers.status[0]


@pytest.mark.parametrize(
    ("share", "words"), [(0.95, "cannot be decoded: its data end too early"), (0.3, "is an AVIF whose file is cut off")]
)
def test_a_cut_avif_is_named_so(share: float, words: str, tmp_path: Path) -> None:
    """Also where Pillow does not recognise it any more: the file is to blame, not Pillow."""
    file = file_of("AVIF")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "1.avif").write_bytes(file[: int(share * len(file))])
    result = CliRunner().invoke(cli, ["pack", str(tmp_path / "pictures"), str(tmp_path / "a.lmdb")])

    assert result.exit_code != 0
    assert f"1.avif: {words}" in result.output
