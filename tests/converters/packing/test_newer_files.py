"""Files that change between two runs while their names and sizes stay: who goes on is told so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastio.converters import Part, pack
from fastio.converters.sources.listed import ListedSource
from tests.converters.packing.sources import PATTERN, SHARD_BYTES, packed, source_in

YEAR_NS = 365 * 24 * 3600 * 10**9


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A set without its last shard and its set object, a year younger than its source."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    (folder / "out.fastio-set").unlink()
    max(folder.iterdir()).unlink()
    for number, shard in enumerate(sorted(folder.iterdir()), 1):
        finished = shard.stat().st_mtime_ns + number * YEAR_NS
        os.utime(shard, ns=(finished, finished))
    return folder


def change(path: Path, *, years: float) -> None:
    """Flip the last bit of a file, some years after it was made. The time of the inode is always now."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    changed = path.stat().st_mtime_ns + int(years * YEAR_NS)
    path.write_bytes(data)
    os.utime(path, ns=(changed, changed))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged of newer files."""
    return [each.getMessage() for each in caplog.records if each.name.endswith("planned_set")]


@pytest.mark.parametrize("options", [{"resume": True}, {"part": Part(1, 2)}, {"part": Part(1, 2), "resume": True}])
def test_newer_files_are_counted(
    tmp_path: Path, begun: Path, caplog: pytest.LogCaptureFixture, options: dict[str, object]
) -> None:
    """One line names the set, how many files, the first of them, and what to do."""
    files = sorted((tmp_path / "classes").rglob("*.png"))
    for path in files[3:5]:
        change(path, years=1.5)

    pack(source_in(tmp_path), begun / PATTERN, shard_bytes=SHARD_BYTES, on_error="skip", **options)  # type: ignore[arg-type]

    (line,) = warnings(caplog)
    assert f"{begun / PATTERN}: 2 files of the source, e.g. {files[3]}, changed or came here after" in line
    assert line.endswith("pack anew with --overwrite")


def test_the_oldest_shard_counts(tmp_path: Path, begun: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that changed after the first shard was made may be in a later one; what is older than all is the same."""
    files = sorted((tmp_path / "classes").rglob("*.png"))
    change(files[-1], years=0.5)

    pack(source_in(tmp_path), begun / PATTERN, shard_bytes=SHARD_BYTES, on_error="skip", resume=True)

    assert [] == warnings(caplog)


def test_an_unpacked_archive_is_newer(tmp_path: Path, begun: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It sets times of content back, but not those of inodes."""
    files = sorted((tmp_path / "classes").rglob("*.png"))
    finished = max(path.stat().st_ctime_ns for path in files) + 10**7  # some file systems drop the last digits
    for shard in begun.iterdir():
        os.utime(shard, ns=(finished, finished))
    while files[0].stat().st_ctime_ns <= finished:
        os.utime(files[0], ns=(0, 0))

    pack(source_in(tmp_path), begun / PATTERN, shard_bytes=SHARD_BYTES, resume=True)

    (line,) = warnings(caplog)
    assert f"1 file of the source, e.g. {files[0]}," in line


@pytest.mark.parametrize("options", [{"resume": True}, {"part": Part(0, 2)}])
def test_the_same_source_is_not_mentioned(
    tmp_path: Path, begun: Path, caplog: pytest.LogCaptureFixture, options: dict[str, object]
) -> None:
    """Nor is a source without a shard beside it."""
    pack(source_in(tmp_path), begun / PATTERN, shard_bytes=SHARD_BYTES, **options)  # type: ignore[arg-type]
    (tmp_path / "empty").mkdir()
    pack(source_in(tmp_path), tmp_path / "empty" / PATTERN, shard_bytes=SHARD_BYTES, **options)  # type: ignore[arg-type]

    assert [] == warnings(caplog)


def test_a_pack_from_the_beginning_looks_at_no_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs nothing."""
    monkeypatch.setattr(ListedSource, "files", None)

    packed(tmp_path, "out", source_in(tmp_path))
