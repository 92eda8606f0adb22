"""Commands on stores that lie on a network file system: nothing is mapped there, and everything works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.commands import run
from tests.conftest import encode, pictures


@pytest.fixture(autouse=True)
def network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is said to lie on NFS, and nobody may map one."""

    def refuse(*args: Any) -> None:
        raise AssertionError("a file of a network file system was mapped")

    monkeypatch.setattr("fastio.store.files.pread.network_file_system", lambda path: "nfs")
    monkeypatch.setattr("fastio.store.files.mapped._mapped", refuse)


@pytest.mark.parametrize("suffix", ["lmdb", "tar"])
def test_commands_on_pictures(tmp_path: Path, suffix: str) -> None:
    """Packing, looking, verifying, unpacking, and packing the store anew."""
    for index, pixels in enumerate(pictures(30, (40, 30, 3))):
        folder = tmp_path / "src" / f"class{index % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{index:02d}.png").write_bytes(encode(pixels))
    packed, again = tmp_path / f"x.{suffix}", tmp_path / "again.h5"
    run("pack", tmp_path / "src", packed)
    assert "samples" in run("info", packed)
    assert len(run("ls", packed).splitlines()) >= 30
    run("show", packed, "--out", tmp_path / "sheet.png")
    run("verify", packed, "--decode", "--against", tmp_path / "src")
    run("unpack", packed, tmp_path / "out")
    assert len(list((tmp_path / "out").rglob("*.png"))) == 30
    run("pack", packed, again)
    run("verify", again, "--against", packed)
    run("bench", "io", packed, "--seconds", "0.1", "--batch-size", "8")


def test_commands_on_text(tmp_path: Path) -> None:
    """Tokens and their text."""
    (tmp_path / "lines.txt").write_text("one line\nanother line\n" * 20)
    packed = tmp_path / "x.lmdb"
    run("pack", tmp_path / "lines.txt", packed, "--tokenizer", "bytes")
    assert "another line" in run("ls", packed)
    run("verify", packed, "--against", tmp_path / "lines.txt")
    run("unpack", packed, tmp_path / "out.txt")
