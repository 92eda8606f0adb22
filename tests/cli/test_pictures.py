"""``fastio pack`` with options that write pictures anew, and what ``info``, ``verify`` and ``unpack`` then say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.commands import run
from tests.converters.trees import class_folders, flat, picture


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Class folders with JPEGs of 80 x 60 and one PNG."""
    for name in ("ant", "bee"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(3):
            Image.new("RGB", (80, 60), (i * 40, 90, 200)).save(tmp_path / "photos" / name / f"{i}.jpg")
    (tmp_path / "photos" / "bee" / "z.png").write_bytes(picture(1))
    return tmp_path / "photos"


def test_restart(photos: Path, tmp_path: Path) -> None:
    """Bytes before and after, what was kept, and that the original bytes are gone: from pack, info, verify, unpack."""
    out = tmp_path / "s.lmdb"
    said = run("pack", photos, out, "--restart", 8)

    assert "before: " in said
    assert "after:  " in said
    line = "restart markers every 8 MCUs: 6 JPEGs whose pixels stay the same; the original bytes are not kept"
    assert line in said
    assert "unchanged: 1 picture, of a kind that is not rewritten; the first: bee/z.png" in said
    assert line in run("info", out)
    assert {"restart": 8} == {k: json.loads(run("info", out, "--json"))["options"]["packing"][k] for k in ["restart"]}
    assert "6 were rewritten when packed: compared by pixels, not bytes" in run("verify", out, "--against", photos)
    assert "original bytes are not kept" in run("unpack", out, tmp_path / "again")


def test_restart_without_jpegs(tmp_path: Path) -> None:
    """PNGs keep their bytes, and nothing says that they do not."""
    (tmp_path / "pngs").mkdir()
    (tmp_path / "pngs" / "z.png").write_bytes(picture(1))
    said = run("pack", tmp_path / "pngs", tmp_path / "s.lmdb", "--restart", 8)

    assert "restart markers every 8 MCUs: 0 JPEGs\n" in said
    assert "not kept" not in said


def test_short_side(photos: Path, tmp_path: Path) -> None:
    """Smaller pictures say how they were made, and are compared with packing again."""
    out = tmp_path / "s.tar"
    said = run("pack", photos, out, "--short-side", 30, "--quality", 80, "--subsampling", "4:4:4")

    assert "made smaller, with loss: 6 pictures to a short side of 30, JPEG quality 80, 4:4:4" in said
    assert "4:4:4, a restart marker every 8 MCUs; the original bytes are not kept" in said
    assert "unchanged: 1 picture, small enough already" in said
    assert "packing the source again with the same options" in run("verify", out, "--against", photos)


def test_raw_is_suggested_and_done(tmp_path: Path) -> None:
    """Small pictures of one size: pack says what --raw would make of them, and does it when told."""
    flat(tmp_path / "pngs")
    said = run("pack", tmp_path / "pngs", tmp_path / "a.h5")
    assert "all pictures are 5x6: with --raw they are 90 B each and need no decoding" in said
    said = run("pack", tmp_path / "pngs", tmp_path / "b.h5", "--raw")

    assert "decoded: 7 pictures as raw pixels; the original bytes are not kept" in said
    assert "--raw" not in said


def test_shuffle_and_the_score(tmp_path: Path) -> None:
    """info prints what shuffle=True is for the store, and the seed of the stored order."""
    class_folders(tmp_path / "c", 4)
    run("pack", tmp_path / "c", tmp_path / "s.lmdb", "--shuffle", 0)
    said = run("info", tmp_path / "s.lmdb")

    assert "stored in a random order, drawn from names and the seed 0" in said
    assert "shuffle=True: a full shuffle (" in said
    assert " fit into memory, " in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--short-side", 3, "--max-side", 4), "give one of them"),
        (("--raw", "--restart", 8), "give one of them"),
        (("--quality", 80), "add --short-side, --max-side or --resize"),
        (("--restart", 8, "--subsampling", "4:4:4"), "add --short-side, --max-side or --resize"),
        (("--restart", 0), "add --short-side, --max-side or --resize"),
        (("--restart", -1), "expected a whole number from 0"),
    ],
)
def test_options_that_do_not_go_together(photos: Path, tmp_path: Path, options: tuple[Any, ...], words: str) -> None:
    """One line, and nothing is written."""
    assert words in run("pack", photos, tmp_path / "s.lmdb", *options, code=2)
    assert not (tmp_path / "s.lmdb").exists()


def test_text_is_not_shuffled_in_silence(tmp_path: Path) -> None:
    """An option for pictures is refused for text, also with the seed 0."""
    (tmp_path / "a.txt").write_text("one\ntwo\n")

    assert "--shuffle is for pictures" in run("pack", tmp_path / "a.txt", tmp_path / "s.lmdb", "--shuffle", 0, code=2)
